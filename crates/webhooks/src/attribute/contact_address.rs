//! Parses phone numbers and other addresses of people in the formats of the providers.

use std::borrow::Cow;

use super::AttributeName::{self, Chat, Phone};

/// Server parts of phone number addresses.
const PHONE_SERVERS: [&str; 2] = ["s.whatsapp.net", "c.us"];
/// Server part of an address that hides the phone number.
const HIDDEN_SERVER: &str = "lid";
/// International call prefix. No number with a country code begins with a zero.
const CALL_PREFIX: &str = "00";
/// URI schemes of phone numbers.
const SCHEMES: [&str; 3] = ["whatsapp:", "tel:", "rcs:"];

/// Decides whether an address is a phone number or a chat, and how it is stored.
pub(super) fn classify_address(name: AttributeName, text: &str) -> (AttributeName, Cow<'_, str>) {
    if name != Phone && name != Chat {
        return (name, text.into());
    }
    match parse_phone(text).filter(|_| name == Phone || is_explicit_phone(text)) {
        Some(digits) => (Phone, digits),
        None => (Chat, without_device(text)),
    }
}

/// The digits of a phone number in any format.
pub fn parse_phone(text: &str) -> Option<Cow<'_, str>> {
    let text = strip_scheme(text).unwrap_or(text);
    if let Some((user, server)) = text.rsplit_once('@') {
        // An agent and a device may follow the number: `5511987654321.0:12@s.whatsapp.net`.
        let user = user.split([':', '.']).next().unwrap_or_default();
        let is_phone = is_one_of(&PHONE_SERVERS, server) && is_digits(user);
        return is_phone.then(|| user.trim_start_matches(CALL_PREFIX).into());
    }
    if is_digits(text) {
        return Some(text.trim_start_matches(CALL_PREFIX).into());
    }
    let is_punctuation = |c: char| c.is_whitespace() || "+()-./".contains(c);
    let is_number = text.chars().all(|c| c.is_ascii_digit() || is_punctuation(c));
    let digits = || text.chars().filter(char::is_ascii_digit).collect::<String>();
    is_number.then(|| digits().trim_start_matches(CALL_PREFIX).to_owned().into())
}

/// Whether a text is marked as a phone number. Chat ids consist of digits too.
fn is_explicit_phone(text: &str) -> bool {
    text.starts_with('+') || text.contains('@') || strip_scheme(text).is_some()
}

fn strip_scheme(text: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| {
        let start = text.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| text[scheme.len()..].trim_start())
    })
}

/// A chat address without the device.
fn without_device(text: &str) -> Cow<'_, str> {
    let Some((user, server)) = text.rsplit_once('@') else { return text.into() };
    match user.split_once(':') {
        Some((user, _)) if server.eq_ignore_ascii_case(HIDDEN_SERVER) => {
            format!("{user}@{server}").into()
        }
        _ => text.into(),
    }
}

fn is_one_of(words: &[&str], word: &str) -> bool {
    words.iter().any(|other| other.eq_ignore_ascii_case(word))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// One format for phone numbers that exist in two.
///
/// - Brazil: mobile numbers got a ninth digit, a leading 9; older WhatsApp accounts lack it. Numbers that
///   begin with 2 to 5 are landlines, which have no ninth digit.
/// - Mexico and Argentina: mobile numbers are used with and without a 1 (Mexico) or 9 (Argentina) after
///   the country code.
pub(super) fn canonical_phone(digits: &str) -> Cow<'_, str> {
    match (digits.as_bytes(), digits.len()) {
        ([b'5', b'5', b'1'..=b'9', b'1'..=b'9', b'6'..=b'9', ..], 12) => {
            let (area, number) = digits.split_at(4);
            format!("{area}9{number}").into()
        }
        ([b'5', b'2', b'1', ..] | [b'5', b'4', b'9', ..], 13) => {
            format!("{}{}", &digits[..2], &digits[3..]).into()
        }
        _ => digits.into(),
    }
}
