//! JSON pointers (RFC 6901), such as `/data/messageId` or `/entry/0/id`.

use std::{fmt, str::FromStr};

/// Longer than any real path; the walk through a body recurses once per token.
const TOKENS_MAX: usize = 32;

/// A path to a value in a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(Vec<String>);

/// A text that is not a valid JSON pointer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a JSON pointer; write a path such as /data/id (at most 32 segments)")]
pub struct ParseJsonPointerError {
    text: String,
}

impl JsonPointer {
    pub(super) fn tokens(&self) -> &[String] {
        &self.0
    }
}

impl FromStr for JsonPointer {
    type Err = ParseJsonPointerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseJsonPointerError { text: text.to_owned() };
        let Some(path) = text.strip_prefix('/') else {
            return if text.is_empty() { Ok(Self(Vec::new())) } else { Err(invalid()) };
        };
        let tokens: Option<Vec<_>> = path.split('/').map(unescape).collect();
        tokens.filter(|tokens| tokens.len() <= TOKENS_MAX).map(Self).ok_or_else(invalid)
    }
}

/// Decodes `~0` and `~1`; `None` for any other use of a tilde.
fn unescape(token: &str) -> Option<String> {
    let mut pieces = token.split('~');
    let mut text = pieces.next()?.to_owned();
    for piece in pieces {
        match piece.split_at_checked(1)? {
            ("0", rest) => text.extend(["~", rest]),
            ("1", rest) => text.extend(["/", rest]),
            _ => return None,
        }
    }
    Some(text)
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.0 {
            write!(f, "/{}", token.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_parse_according_to_rfc_6901() {
        let cases: [(_, _, Option<&[&str]>); 11] = [
            ("whole document", "", Some(&[])),
            ("one step", "/id", Some(&["id"])),
            ("two steps", "/data/messageId", Some(&["data", "messageId"])),
            ("an index", "/entry/0", Some(&["entry", "0"])),
            ("an empty name", "/", Some(&[""])),
            ("escapes", "/a~1b/m~0n/~01", Some(&["a/b", "m~n", "~1"])),
            ("not ASCII", "/é/😀", Some(&["é", "😀"])),
            ("no slash", "id", None),
            ("unknown escape", "/a~2", None),
            ("half an escape", "/a~", None),
            ("escape cut by a wide character", "/~é", None),
        ];
        for (name, text, expected) in cases {
            let parsed = text.parse::<JsonPointer>().ok();
            assert_eq!(
                parsed.as_ref().map(|p| p.0.as_slice()),
                expected
                    .map(|tokens| {
                        tokens.iter().map(|&token| token.to_owned()).collect::<Vec<_>>()
                    })
                    .as_deref(),
                "case: {name}"
            );
            if let Some(pointer) = parsed {
                assert_eq!(pointer.to_string(), text, "case: {name}");
            }
        }
        assert!("/a".repeat(32).parse::<JsonPointer>().is_ok());
        assert!("/a".repeat(33).parse::<JsonPointer>().is_err());
    }
}
