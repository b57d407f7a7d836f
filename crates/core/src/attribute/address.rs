//! Phone numbers and other addresses of people, in the forms in which they come.

use std::borrow::Cow;

use super::AttributeName::{self, Chat, Phone};

/// The part after the `@` of an address that is a phone number.
const PHONE_SERVERS: [&str; 2] = ["s.whatsapp.net", "c.us"];
/// The same of one that hides it.
const HIDDEN_SERVER: &str = "lid";
/// How one dials out. No number begins with a zero when its country is named.
const EXIT: &str = "00";
/// What is written before a phone number.
const SCHEMES: [&str; 3] = ["whatsapp:", "tel:", "rcs:"];

/// Where a value belongs, and how it is shown.
pub(super) fn place(name: AttributeName, text: &str) -> (AttributeName, Cow<'_, str>) {
    if name != Phone && name != Chat {
        return (name, text.into());
    }
    match phone(text).filter(|_| name == Phone || says_it_is_a_phone(text)) {
        Some(digits) => (Phone, digits),
        None => (Chat, chat(text)),
    }
}

/// The digits of a phone number as it was given.
pub(crate) fn phone(text: &str) -> Option<Cow<'_, str>> {
    let text = without_scheme(text).unwrap_or(text);
    if let Some((user, server)) = text.rsplit_once('@') {
        // An agent and a device may follow the number: `5511987654321.0:12@s.whatsapp.net`.
        let user = user.split([':', '.']).next().unwrap_or_default();
        let is_phone = is_one_of(&PHONE_SERVERS, server) && is_digits(user);
        return is_phone.then(|| user.trim_start_matches(EXIT).into());
    }
    if is_digits(text) {
        return Some(text.trim_start_matches(EXIT).into());
    }
    let is_punctuation = |c: char| c.is_whitespace() || "+()-./".contains(c);
    let is_number = text.chars().all(|c| c.is_ascii_digit() || is_punctuation(c));
    let digits = || text.chars().filter(char::is_ascii_digit).collect::<String>();
    is_number.then(|| digits().trim_start_matches(EXIT).to_owned().into())
}

/// Whether a text that could be a phone number says that it is one. Ids of chats are digits too.
fn says_it_is_a_phone(text: &str) -> bool {
    text.starts_with('+') || text.contains('@') || without_scheme(text).is_some()
}

fn without_scheme(text: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| {
        let begins = text.get(..scheme.len())?;
        begins.eq_ignore_ascii_case(scheme).then(|| text[scheme.len()..].trim_start())
    })
}

/// Another address, without the device from which it was used.
fn chat(text: &str) -> Cow<'_, str> {
    let Some((user, server)) = text.rsplit_once('@') else { return text.into() };
    match user.split_once(':') {
        Some((user, _)) if server.eq_ignore_ascii_case(HIDDEN_SERVER) => {
            format!("{user}@{server}").into()
        }
        _ => text.into(),
    }
}

fn is_one_of(words: &[&str], word: &str) -> bool {
    words.iter().any(|one| one.eq_ignore_ascii_case(word))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// One form for each number that is written in two.
///
/// - Brazil: mobile numbers got a ninth digit, a 9 before the others; addresses of accounts that
///   are older than that do without. What begins with 2 to 5 is a landline, which has no ninth digit.
/// - Mexico and Argentina: mobile numbers are written with and without a 1, respectively a 9, after
///   the country.
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
