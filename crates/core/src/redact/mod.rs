//! Hides secrets in what is shown, and takes them out of what is sent where a source asks for that.
//!
//! A body is stored as it came. What leaves through the API has the values of secret fields replaced
//! by [`MASK`], and nothing else changed: the rest is the same, byte for byte. [`SecretNames`] says which
//! fields these are.
//!
//! - [`mask_body`] is for people: it hides what it can find, also in a text that is cut off or broken.
//! - [`strip_secrets`] is for destinations: it takes out all, or says that it cannot be sure.

mod edit;
mod form;
mod json;
mod names;
mod path;
#[cfg(test)]
mod tests;
mod text;
mod url;

use std::borrow::Cow;

use http::{HeaderMap, header::CONTENT_TYPE};

pub(crate) use self::path::is_event_name;
use self::{
    edit::{Edit, apply},
    json::End,
};
pub use self::{
    form::mask_query,
    names::{EXTRA_NAMES_MAX, NAME_BYTES_MAX, SecretNames, SecretNamesSpecError},
    path::mask_path,
    url::{has_mask, mask_url, unmask_url},
};
use crate::inflate;

/// What stands in place of a secret.
pub const MASK: &str = "•••";

/// A body as it may be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedBody<'b> {
    /// The body; the very bytes that were given if nothing had to be hidden.
    pub body: Cow<'b, [u8]>,
    /// How many values were replaced.
    pub fields: usize,
    /// It came packed, and this is what was in it. Only if something was replaced.
    pub unpacked: bool,
}

/// A body that cannot be looked into, so that nobody knows what is secret in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableBodyError {
    /// It is packed in a way that is unknown or broken.
    #[error("the body is packed in a way that cannot be undone here")]
    Packed,
    /// It is neither JSON nor a form.
    #[error("the body is neither JSON nor a form, so that nothing says which part of it is secret")]
    Unknown,
}

/// The body of a request with its secrets masked, as far as they can be found.
pub fn mask_body<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    names: &SecretNames,
) -> Result<RedactedBody<'b>, UnreadableBodyError> {
    hide(headers, body, |plain| Ok(find(plain, is_form(headers), names)))
}

/// A text with its secrets masked, as far as they can be found. It may be cut off.
pub fn mask_text<'b>(text: &'b [u8], names: &SecretNames) -> RedactedBody<'b> {
    let edits = find(text, false, names);
    RedactedBody { body: apply(text, &edits), fields: edits.len(), unpacked: false }
}

/// The body of a request without its secrets, if it can be said for sure what they are.
pub fn strip_secrets<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    names: &SecretNames,
) -> Result<RedactedBody<'b>, UnreadableBodyError> {
    hide(headers, body, |plain| {
        if plain.trim_ascii().is_empty() {
            return Ok(Vec::new());
        }
        if let (edits, End::Whole) = json::scan(plain, names) {
            return Ok(edits);
        }
        match is_form(headers) {
            true => Ok(form::scan(plain, names)),
            false => Err(UnreadableBodyError::Unknown),
        }
    })
}

fn hide<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    find: impl FnOnce(&[u8]) -> Result<Vec<Edit>, UnreadableBodyError>,
) -> Result<RedactedBody<'b>, UnreadableBodyError> {
    let plain = inflate::decode_body(headers, body).ok_or(UnreadableBodyError::Packed)?;
    let edits = find(&plain)?;
    let body = match &plain {
        Cow::Borrowed(plain) => apply(plain, &edits),
        Cow::Owned(_) if edits.is_empty() => Cow::Borrowed(body),
        Cow::Owned(plain) => Cow::Owned(apply(plain, &edits).into_owned()),
    };
    let unpacked = matches!(plain, Cow::Owned(_)) && !edits.is_empty();
    Ok(RedactedBody { body, fields: edits.len(), unpacked })
}

/// What to hide in a text, whatever it is.
fn find(text: &[u8], is_form: bool, names: &SecretNames) -> Vec<Edit> {
    if !json::begins(text) && (is_form || form::looks_like(text)) {
        return form::scan(text, names);
    }
    let (mut edits, is_json_until) = json_in(text, names);
    if let Some(end) = is_json_until {
        // A name may stand before the place where it breaks, and its value behind it.
        let guessed = text::scan(text, 0, names).into_iter().filter(|edit| edit.span.end > end);
        edits.extend(guessed);
    }
    edit::merged(edits)
}

/// What to hide in all JSON that there is in a text, and from where on there may be more than JSON.
fn json_in(text: &[u8], names: &SecretNames) -> (Vec<Edit>, Option<usize>) {
    let mut edits = Vec::new();
    let mut is_json_until = (!json::begins(text)).then_some(0);
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|byte| matches!(byte, b'{' | b'[')) {
        let start = at + found;
        let (found, end) = json::scan(&text[start..], names);
        edits.extend(found.into_iter().map(|edit| edit.after(start)));
        match end {
            End::Whole | End::Cut => break,
            End::Broken(broken) => at = start + broken.max(1),
        }
        is_json_until = is_json_until.or(Some(at));
    }
    (edits, is_json_until)
}

fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &str = "application/x-www-form-urlencoded";
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(FORM)
}

/// A message about a body, without the secrets of that body: whoever reads why something failed must
/// not learn them from there.
pub fn mask_values_in_message(
    message: &str,
    headers: &HeaderMap,
    body: &[u8],
    names: &SecretNames,
) -> String {
    /// A value this short says nothing and would be found everywhere.
    const VALUE_BYTES_MIN: usize = 4;
    let Some(plain) = inflate::decode_body(headers, body) else { return message.to_owned() };
    let mut concealed = message.to_owned();
    for edit in find(&plain, is_form(headers), names) {
        let raw = &plain[edit.span];
        // Of an object or an array, each text in it.
        for text in raw.split(|byte| raw.len() > 1 && raw[0] != b'"' && *byte == b'"') {
            let meant = edit::Code::Escaped.decode(text);
            let meant = String::from_utf8_lossy(&meant);
            let value = meant.trim_matches('"');
            if value.len() >= VALUE_BYTES_MIN {
                concealed = conceal_beginning(&concealed.replace(value, MASK), value);
            }
        }
    }
    concealed
}

/// Masks also what is left of a value where a message was shortened.
fn conceal_beginning(message: &str, value: &str) -> String {
    let Some((before, _)) = message.rsplit_once('…') else { return message.to_owned() };
    let ends = value.char_indices().map(|(end, _)| end).skip(1);
    let longest = ends.filter(|end| before.ends_with(&value[..*end])).last();
    match longest {
        Some(length) => format!("{}{MASK}…", &before[..before.len() - length]),
        None => message.to_owned(),
    }
}
