//! Masks secrets in bodies, queries and URLs.
//!
//! A body is stored unchanged. In API responses the values of secret fields are replaced by [`MASK`]; all
//! other bytes stay the same. [`SecretNames`] decides which fields are secret.
//!
//! - [`mask_body`] is for people: it masks what it finds, also in truncated or malformed text.
//! - [`strip_secrets`] is for destinations: it masks everything secret, or fails if it cannot be sure.

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

pub use self::path::is_event_name;
use self::{
    edit::{Edit, apply},
    json::ScanEnd,
};
pub use self::{
    form::mask_query,
    names::{EXTRA_NAMES_MAX, NAME_BYTES_MAX, SecretNames, SecretNamesSpecError},
    path::mask_path,
    url::{has_mask, mask_url, unmask_url},
};
use crate::inflate;

/// Replacement for a secret.
pub const MASK: &str = "•••";

/// A body with its secrets masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedBody<'b> {
    /// Borrowed if nothing had to be masked.
    pub body: Cow<'b, [u8]>,
    /// Number of masked values.
    pub fields: usize,
    /// Whether this is the decompressed content of a compressed body. A body in which nothing was masked
    /// stays compressed.
    pub is_unpacked: bool,
}

/// A body that cannot be searched for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableBodyError {
    /// It could not be decompressed.
    #[error("the body has an unknown or broken content encoding")]
    Packed,
    /// Its format is unknown.
    #[error("the body is neither JSON nor a form, so its secrets cannot be found")]
    Unknown,
}

/// Masks the secrets in a request body, as far as they can be found.
pub fn mask_body<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    names: &SecretNames,
) -> Result<RedactedBody<'b>, UnreadableBodyError> {
    edit_body(headers, body, |plain| Ok(find_edits(plain, is_form(headers), names)))
}

/// Masks the secrets in a text, which may be truncated, as far as they can be found.
pub fn mask_text<'b>(text: &'b [u8], names: &SecretNames) -> RedactedBody<'b> {
    let edits = find_edits(text, false, names);
    RedactedBody { body: apply(text, &edits), fields: edits.len(), is_unpacked: false }
}

/// Masks all secrets in a request body; fails if they cannot be found reliably.
pub fn strip_secrets<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    names: &SecretNames,
) -> Result<RedactedBody<'b>, UnreadableBodyError> {
    edit_body(headers, body, |plain| {
        if plain.trim_ascii().is_empty() {
            return Ok(Vec::new());
        }
        if let (edits, ScanEnd::Whole) = json::scan(plain, names) {
            return Ok(edits);
        }
        match is_form(headers) {
            true => Ok(form::scan(plain, names)),
            false => Err(UnreadableBodyError::Unknown),
        }
    })
}

fn edit_body<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    scan: impl FnOnce(&[u8]) -> Result<Vec<Edit>, UnreadableBodyError>,
) -> Result<RedactedBody<'b>, UnreadableBodyError> {
    let plain = inflate::decode_body(headers, body).ok_or(UnreadableBodyError::Packed)?;
    let edits = scan(&plain)?;
    let body = match &plain {
        Cow::Borrowed(plain) => apply(plain, &edits),
        Cow::Owned(_) if edits.is_empty() => Cow::Borrowed(body),
        Cow::Owned(plain) => Cow::Owned(apply(plain, &edits).into_owned()),
    };
    let is_unpacked = matches!(plain, Cow::Owned(_)) && !edits.is_empty();
    Ok(RedactedBody { body, fields: edits.len(), is_unpacked })
}

/// The edits for a text of any format.
fn find_edits(text: &[u8], is_form: bool, names: &SecretNames) -> Vec<Edit> {
    if !json::begins(text) && (is_form || form::looks_like(text)) {
        return form::scan(text, names);
    }
    let (mut edits, json_end) = find_json_edits(text, names);
    if let Some(end) = json_end {
        // A name may be before the position where the JSON breaks and its value after it.
        let after_json = text::scan(text, 0, names).into_iter().filter(|edit| edit.span.end > end);
        edits.extend(after_json);
    }
    edit::merge_overlapping(edits)
}

/// The edits for all JSON in a text, and the position after which it may be something else; `None` if all
/// of it is JSON.
fn find_json_edits(text: &[u8], names: &SecretNames) -> (Vec<Edit>, Option<usize>) {
    let mut edits = Vec::new();
    let mut json_end = (!json::begins(text)).then_some(0);
    let mut at = 0;
    while let Some(offset) = text[at..].iter().position(|byte| matches!(byte, b'{' | b'[')) {
        let start = at + offset;
        let (json_edits, end) = json::scan(&text[start..], names);
        edits.extend(json_edits.into_iter().map(|edit| edit.shifted(start)));
        match end {
            ScanEnd::Whole | ScanEnd::Cut => break,
            ScanEnd::Broken(position) => at = start + position.max(1),
        }
        json_end = json_end.or(Some(at));
    }
    (edits, json_end)
}

fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &str = "application/x-www-form-urlencoded";
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(FORM)
}

/// Masks the secrets of a request in an error message about it, so that reading why something failed
/// does not reveal them.
pub fn mask_values_in_message(
    message: &str,
    headers: &HeaderMap,
    body: &[u8],
    names: &SecretNames,
) -> String {
    /// Shorter values would match everywhere.
    const VALUE_BYTES_MIN: usize = 4;
    let mut masked = message.to_owned();
    let secret_headers =
        headers.iter().filter(|(name, _)| names.is_secret_parameter(name.as_str()));
    for value in secret_headers.filter_map(|(_, value)| value.to_str().ok()) {
        if value.len() >= VALUE_BYTES_MIN {
            masked = mask_prefix(&masked.replace(value, MASK), value);
        }
    }
    let Some(plain) = inflate::decode_body(headers, body) else { return masked };
    let is_form = is_form(headers) && !json::begins(&plain);
    for edit in find_edits(&plain, is_form, names) {
        let raw = match is_form {
            true => Cow::Owned(edit::TextEncoding::Percent.decode(&plain[edit.span])),
            false => Cow::Borrowed(&plain[edit.span]),
        };
        // A masked object or array is split at its quotes, so that each string in it is masked.
        let is_container = raw.len() > 1 && raw[0] != b'"';
        for text in raw.split(|byte| is_container && *byte == b'"') {
            let plain_text = edit::TextEncoding::Escaped.decode(text);
            let plain_text = String::from_utf8_lossy(&plain_text);
            let value = plain_text.trim_matches('"');
            if value.len() >= VALUE_BYTES_MIN {
                masked = mask_prefix(&masked.replace(value, MASK), value);
            }
        }
    }
    masked
}

/// Masks also the beginning of a value where a message was truncated.
fn mask_prefix(message: &str, value: &str) -> String {
    let Some((before, _)) = message.rsplit_once('…') else { return message.to_owned() };
    let ends = value.char_indices().map(|(end, _)| end).skip(1);
    let longest = ends.filter(|end| before.ends_with(&value[..*end])).last();
    match longest {
        Some(length) => format!("{}{MASK}…", &before[..before.len() - length]),
        None => message.to_owned(),
    }
}
