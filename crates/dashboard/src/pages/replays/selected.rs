//! Replays deliveries and events selected in a list.

use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{ApiError, ApiPath},
    current_user::CurrentUser,
    lang::fill,
    page::local_path,
    translations::ReplayTexts,
};

/// More than one page of a list.
const SELECTED_MAX: usize = 200;

/// Fields with checkboxes repeat a name, which `axum::Form` does not support.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    deliveries: Vec<String>,
    events: Vec<String>,
    idempotency_key: String,
    next: String,
}

impl Selection {
    fn read(body: &[u8]) -> Self {
        let mut selection = Self::default();
        for (name, value) in form_pairs(body) {
            match name.as_str() {
                "delivery" => selection.deliveries.push(value),
                "event" => selection.events.push(value),
                "idempotency_key" => selection.idempotency_key = value,
                "next" => selection.next = value,
                _ => {}
            }
        }
        selection.deliveries.truncate(SELECTED_MAX);
        selection.events.truncate(SELECTED_MAX);
        selection
    }
}

fn form_pairs(body: &[u8]) -> impl Iterator<Item = (String, String)> + '_ {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        (percent_decode(name), percent_decode(value))
    })
}

fn percent_decode(text: &[u8]) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let pair = (digit(text.get(at + 1)), digit(text.get(at + 2)));
        match (byte, pair) {
            (b'%', (Some(high), Some(low))) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 2;
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Deserialize)]
struct EventDeliveries {
    #[serde(default)]
    deliveries: Vec<DeliveryState>,
}

#[derive(Deserialize)]
struct DeliveryState {
    id: String,
    status: String,
}

pub(super) async fn replay_selected(user: CurrentUser, body: Bytes) -> Response {
    let t = ReplayTexts::of(user.lang());
    let selection = Selection::read(&body);
    let next = local_path(&selection.next);
    let mut deliveries = selection.deliveries;
    for event in &selection.events {
        // For an event, its dead deliveries are replayed.
        if let Ok(event) = user.get::<EventDeliveries>(ApiPath::new(&["events", event])).await {
            let dead = event.deliveries.into_iter().filter(|delivery| delivery.status == "dead");
            deliveries.extend(dead.map(|delivery| delivery.id));
        }
    }
    // A delivery may be selected directly and through its event.
    deliveries.sort();
    deliveries.dedup();
    if deliveries.is_empty() {
        let error = ApiError { detail: t.nothing_selected.to_owned(), ..ApiError::default() };
        return user.redirect_with_error(next, &error);
    }
    let (mut done, mut refused) = (0_usize, Vec::new());
    let idempotency_key = if selection.idempotency_key.is_empty() {
        user.new_idempotency_key()
    } else {
        selection.idempotency_key
    };
    for delivery in &deliveries {
        let address = ApiPath::new(&["deliveries", delivery, "replay"]);
        // The delivery id, not its index: when the form is sent again, the list may be shorter.
        let idempotency_key = format!("{idempotency_key}-{delivery}");
        match user.post_idempotent::<Value>(address, None, &idempotency_key).await {
            Ok(_) => done += 1,
            Err(error) => refused.push(error.detail),
        }
    }
    let summary = fill(t.selected_done, &[&done, &refused.len()]);
    match refused.first() {
        None => user.redirect_with_notice(next, summary),
        Some(first) => {
            let detail = format!("{summary} {}", fill(t.selected_first, &[first]));
            user.redirect_with_error(next, &ApiError { detail, ..ApiError::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_checkbox_fields_are_all_read() {
        let body =
            b"idempotency_key=a1&delivery=dlv_1&next=%2Fdead-letters%2Fall%3Fq%3Da%2Bb+c&delivery=dlv_2&&x";
        let expected = Selection {
            deliveries: vec!["dlv_1".to_owned(), "dlv_2".to_owned()],
            events: Vec::new(),
            idempotency_key: "a1".to_owned(),
            next: "/dead-letters/all?q=a+b c".to_owned(),
        };
        assert_eq!(Selection::read(body), expected);
        assert_eq!(percent_decode(b"100%zz%4"), "100%zz%4");
    }
}
