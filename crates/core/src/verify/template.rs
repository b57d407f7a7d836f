//! The text that a signature is made over, such as `v0:{timestamp}:{body}`.

use super::VerifySpecError;

/// One piece of a signed text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SignedPart {
    Literal(Box<[u8]>),
    Body,
    Timestamp,
    Id,
    Url,
}

/// A signed text, cut into its pieces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SignedTemplate(Vec<SignedPart>);

impl SignedTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, VerifySpecError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            let (name, tail) = after.split_once('}').ok_or(VerifySpecError::UnclosedPlaceholder)?;
            push_literal(&mut parts, literal);
            parts.push(placeholder(name)?);
            rest = tail;
        }
        push_literal(&mut parts, rest);
        if !parts.contains(&SignedPart::Body) {
            return Err(VerifySpecError::NoBody);
        }
        Ok(Self(parts))
    }

    pub(super) fn parts(&self) -> &[SignedPart] {
        &self.0
    }

    pub(super) fn has(&self, part: &SignedPart) -> bool {
        self.0.contains(part)
    }

    /// Whether `id` holds the text that ends it in the template. With `{id}.{timestamp}.{body}` a
    /// dot in the id would let the same signature stand for another cut of the same bytes.
    pub(super) fn is_ambiguous(&self, id: &[u8]) -> bool {
        self.0.windows(2).any(|pair| match pair {
            [SignedPart::Id, SignedPart::Literal(end)] => {
                id.windows(end.len()).any(|window| window == end.as_ref())
            }
            _ => false,
        })
    }
}

fn push_literal(parts: &mut Vec<SignedPart>, literal: &str) {
    if !literal.is_empty() {
        parts.push(SignedPart::Literal(literal.as_bytes().into()));
    }
}

fn placeholder(name: &str) -> Result<SignedPart, VerifySpecError> {
    match name {
        "body" => Ok(SignedPart::Body),
        "timestamp" => Ok(SignedPart::Timestamp),
        "id" => Ok(SignedPart::Id),
        "url" => Ok(SignedPart::Url),
        _ => Err(VerifySpecError::UnknownPlaceholder { name: name.to_owned() }),
    }
}
