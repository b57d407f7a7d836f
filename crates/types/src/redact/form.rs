//! Secret fields of forms and queries: `name=value&…`.

use std::borrow::Cow;

use super::{
    MASK,
    edit::{Edit, TextEncoding},
    json,
    names::{SecretNames, is_card, is_card_number, is_card_number_name},
};

/// The mask in form encoding.
const MASK_ENCODED: &str = "%E2%80%A2%E2%80%A2%E2%80%A2";

/// Whether a text without a content type looks like a form.
pub(super) fn looks_like(text: &[u8]) -> bool {
    let fits = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'%' | b'+' | b'&' | b'=' | b'-' | b'_' | b'.' | b'~' | b'*')
            || matches!(byte, b'[' | b']' | b'!' | b'(' | b')' | b',' | b':' | b'/' | b'@' | b'$')
    };
    text.contains(&b'=') && text.trim_ascii().iter().all(fits)
}

/// The edits that mask the secrets in a form.
pub(super) fn scan(text: &[u8], names: &SecretNames) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut start = 0;
    for pair in text.split(|byte| *byte == b'&') {
        scan_pair(pair, start, names, &mut edits);
        start += pair.len() + 1;
    }
    edits
}

fn scan_pair(pair: &[u8], start: usize, names: &SecretNames, edits: &mut Vec<Edit>) {
    let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { return };
    let (name, value) =
        (TextEncoding::Percent.decode(&pair[..equals]), pair[equals + 1..].trim_ascii_end());
    let span = start + equals + 1..start + equals + 1 + value.len();
    let is_masked = std::str::from_utf8(value).is_ok_and(is_mask);
    if value.is_empty() || is_masked {
        return;
    }
    let decoded_text = TextEncoding::Percent.decode(value);
    if is_secret(&String::from_utf8_lossy(&name), &decoded_text, names) {
        edits.push(Edit { span, replacement: Cow::Borrowed(MASK_ENCODED) });
    } else if json::begins(&decoded_text) {
        let (found, _) = json::scan(&decoded_text, names);
        edits.extend(TextEncoding::Percent.map_edits(value, span.start, found));
    }
}

/// Whether a field is a secret. `card[number]` is a card number; every `token[…]` is a secret.
fn is_secret(name: &str, value: &[u8], names: &SecretNames) -> bool {
    let parts = || name.split(['[', ']']).filter(|part| !part.is_empty());
    let of_card = || parts().any(is_card) && parts().next_back().is_some_and(is_card_number_name);
    names.is_secret_field(name)
        || parts().any(|part| names.is_secret_field(part))
        || is_card_number(value) && of_card()
}

/// Masks the secrets in a query.
pub fn mask_query(query: &str, names: &SecretNames) -> String {
    let pairs = query.split('&').map(|pair| match secret_pair(pair, names) {
        Some((name, _)) => format!("{name}={MASK}"),
        None => pair.to_owned(),
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Raw name and value of a query pair whose value is a secret.
pub(super) fn secret_pair<'p>(pair: &'p str, names: &SecretNames) -> Option<(&'p str, &'p str)> {
    let (name, value) = pair.split_once('=').filter(|(_, value)| !value.is_empty())?;
    let decoded_name = percent_decode(name);
    let is_hidden = names.is_secret_parameter(&decoded_name)
        || is_secret(&decoded_name, &TextEncoding::Percent.decode(value.as_bytes()), names);
    is_hidden.then_some((name, value))
}

pub(super) fn percent_decode(text: &str) -> String {
    String::from_utf8_lossy(&TextEncoding::Percent.decode(text.as_bytes())).into_owned()
}

/// Whether a value is the mask, plain or encoded.
pub(super) fn is_mask(value: &str) -> bool {
    value == MASK || value.eq_ignore_ascii_case(MASK_ENCODED)
}
