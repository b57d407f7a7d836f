//! Finds what was pasted into the search box: an id, a phone number, an e-mail address, or any other
//! value that events are indexed by.
//!
//! The page is redirected to the filter or event that was found, so that the address and the chips say
//! how the text was understood. What is found nowhere stays a text search.

use std::time::Duration;

use futures_util::future;
use surehook_api::{
    ApiTransport as _, calls,
    events::{EventList, EventResponse},
    percent_encode,
};
use surehook_types::ids::{DeliveryId, EventId, GroupId, ReplayId, RequestId};

use super::event_path;
use crate::{
    current_user::CurrentUser,
    filter::{FilterQuery, FilterTerm},
};

/// Longer texts are no ids.
const CHARS_MAX: usize = 256;
/// Digits of a phone number with or without its country code.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;
/// Digits of a Brazilian number without the country code: area code and eight or nine digits.
const BRAZILIAN_DIGITS: std::ops::RangeInclusive<usize> = 10..=11;
/// What links and `vCards` write before a number or address.
const PREFIXES: [&str; 6] =
    ["https://wa.me/", "http://wa.me/", "wa.me/", "tel:", "mailto:", "whatsapp:"];
/// How much later than the id of its request an event may be received.
const REQUEST_SPAN: Duration = Duration::from_secs(10);
const REQUEST_EVENTS_MAX: &str = "200";

/// The page to show for a text that was typed or pasted without a filter name; `None` to search for the
/// text. `filters` are the names of the filter bar.
pub(super) async fn find_pasted(
    user: &CurrentUser,
    typed: &str,
    filters: &[&str],
) -> Option<String> {
    let text = typed.trim().trim_matches('"').trim();
    let is_filter = |term: &FilterTerm| {
        let is_prefix = |name: &&str| name.ends_with('.') && term.name.starts_with(name);
        !term.name.is_empty() && filters.iter().any(|name| *name == term.name || is_prefix(name))
    };
    let terms = FilterQuery::parse(typed).terms;
    if text.is_empty() || text.chars().count() > CHARS_MAX || terms.iter().any(is_filter) {
        return None;
    }
    if let Some(page) = find_by_id(user, text).await {
        return Some(page);
    }
    let candidates = candidates(text);
    let has_events = async |candidate: &FilterTerm| {
        let call = FilterQuery { terms: vec![candidate.clone()] }
            .apply_to(calls::list_events().query("limit", "1"), filters, user.now())
            .ok()?;
        let found: EventList = user.call(call).await.ok()?;
        (!found.page.data.is_empty()).then_some(())
    };
    let found = future::join_all(candidates.iter().map(has_events)).await;
    let found = candidates.iter().zip(found).find_map(|(term, found)| found.map(|()| term.text()));
    // A phone number without a country code is part of the numbers in keys and bodies.
    let digits = || {
        let digits = phone_digits(text)?;
        (digits != text).then_some(digits)
    };
    let filter = found.or_else(digits)?;
    Some(format!("/events?q={}", percent_encode(&filter)))
}

/// The page of the object whose id the text contains, which may also be a URL.
async fn find_by_id(user: &CurrentUser, text: &str) -> Option<String> {
    let is_separator = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    for token in text.split(is_separator).filter(|token| token.contains('_')) {
        if let Ok(id) = token.parse::<EventId>() {
            return user.call(calls::get_event(token)).await.ok().map(|_| event_path(id));
        }
        if token.parse::<DeliveryId>().is_ok() {
            let delivery = user.call(calls::get_delivery(token)).await.ok()?.delivery;
            return Some(format!("{}#{}", event_path(delivery.event), delivery.id));
        }
        if token.parse::<ReplayId>().is_ok() {
            return user
                .call(calls::get_replay(token))
                .await
                .ok()
                .map(|_| format!("/replays/{token}"));
        }
        if token.parse::<GroupId>().is_ok() {
            return Some(format!("/dead-letters/all?q=group:{token}"));
        }
        if let Ok(id) = token.parse::<RequestId>() {
            return find_request(user, id).await;
        }
    }
    None
}

/// The page of a refused request, or of the event that an accepted one carried.
async fn find_request(user: &CurrentUser, id: RequestId) -> Option<String> {
    if user.call(calls::get_request(&id.to_string())).await.is_ok() {
        return Some(format!("/requests/{id}"));
    }
    let (since, until) = (id.created_at() - REQUEST_SPAN, id.created_at() + REQUEST_SPAN);
    let call = calls::list_events()
        .query("since", &since.to_string())
        .query("until", &until.to_string())
        .query("limit", REQUEST_EVENTS_MAX);
    let found: EventList = user.call(call).await.ok()?;
    let events = found.page.data.into_iter().map(|listed| listed.event);
    let mut events = events.filter(|event: &EventResponse| event.request_id == id);
    events.next().map(|event| event_path(event.id))
}

/// The filters that may find the text, the most specific one first.
fn candidates(text: &str) -> Vec<FilterTerm> {
    let term =
        |name: &str, value: &str| FilterTerm { name: name.to_owned(), value: value.to_owned() };
    let address = without_prefix(text);
    let mut candidates = Vec::new();
    match address.rsplit_once('@') {
        Some((_, "s.whatsapp.net" | "c.us")) => candidates.push(term("phone", address)),
        Some((_, "lid" | "g.us")) => candidates.push(term("chat", address)),
        Some((user, domain))
            if !user.is_empty()
                && domain.contains('.')
                && !address.contains(char::is_whitespace) =>
        {
            candidates.push(term("email", address));
        }
        Some(_) | None => {}
    }
    if let Some(digits) = phone_digits(text) {
        candidates.push(term("phone", &digits));
        let local = digits.trim_start_matches('0');
        let has_country_code = address.trim_start().starts_with('+');
        if !has_country_code && BRAZILIAN_DIGITS.contains(&local.len()) {
            candidates.push(term("phone", &format!("55{local}")));
        }
    }
    if !text.contains(char::is_whitespace) {
        let names = ["message", "key", "object", "conversation", "user", "chat", "account"];
        candidates.extend(names.map(|name| term(name, text)));
    }
    candidates
}

fn without_prefix(text: &str) -> &str {
    let prefix = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix));
    prefix.unwrap_or(text).trim()
}

/// The digits of a text that has the form of a phone number, without an international prefix `00`.
fn phone_digits(text: &str) -> Option<String> {
    let number = without_prefix(text);
    let number = number.strip_prefix('+').unwrap_or(number);
    let is_written =
        |c: char| c.is_ascii_digit() || c.is_whitespace() || "-.()/\u{a0}\u{2011}".contains(c);
    if !number.chars().all(is_written) {
        return None;
    }
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.strip_prefix("00").unwrap_or(&digits);
    PHONE_DIGITS.contains(&digits.len()).then(|| digits.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let candidates = candidates(text);
        let others = ["object:", "conversation:", "user:", "chat:", "account:"];
        let is_other = |term: &String| others.iter().any(|name| term.starts_with(name));
        candidates.iter().map(FilterTerm::text).filter(|term| !is_other(term)).collect()
    }

    #[test]
    fn phone_numbers_are_recognized_in_every_usual_form() {
        for text in [
            "+55 11 98765-4321",
            "+55 (11) 98765-4321",
            "0055 11 98765 4321",
            "5511987654321",
            "tel:+55-11-98765-4321",
            "https://wa.me/5511987654321",
            "whatsapp:+5511987654321",
        ] {
            assert_eq!(shown(text)[0], "phone:5511987654321", "case: {text}");
        }
        for text in ["(11) 98765-4321", "11 98765.4321", "011 98765-4321"] {
            assert!(shown(text).contains(&"phone:5511987654321".to_owned()), "case: {text}");
        }
        for text in ["4711", "12345678901234567", "98765-4321-A", "+", "ord_123"] {
            assert_eq!(phone_digits(text), None, "case: {text}");
        }
    }

    #[test]
    fn addresses_are_recognized_by_their_form() {
        for (text, expected) in [
            ("ana@example.com", "email:ana@example.com"),
            ("mailto:ana@example.com", "email:ana@example.com"),
            ("5511987654321@s.whatsapp.net", "phone:5511987654321@s.whatsapp.net"),
        ] {
            assert_eq!(shown(text)[0], expected, "case: {text}");
        }
        let group = candidates("120363021@g.us");
        assert_eq!(group[0].text(), "chat:120363021@g.us");
        assert_eq!(shown("wamid.HBgM=="), ["message:wamid.HBgM==", "key:wamid.HBgM=="]);
        assert!(candidates("two words").is_empty());
    }
}
