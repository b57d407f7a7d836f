//! What was selected in a list, delivered again one by one.

use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{Address, Trouble},
    lang::fill,
    page::local,
    visitor::Visitor,
    words::Replays,
};

/// As many as a list shows on a page, with room.
const SELECTED_MAX: usize = 200;

/// What a form with checkboxes says: the same name again and again, which serde's forms do not take.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    deliveries: Vec<String>,
    events: Vec<String>,
    once: String,
    next: String,
}

impl Selection {
    fn read(body: &[u8]) -> Self {
        let mut selection = Self::default();
        for (name, value) in form(body) {
            match name.as_str() {
                "delivery" => selection.deliveries.push(value),
                "event" => selection.events.push(value),
                "once" => selection.once = value,
                "next" => selection.next = value,
                _ => {}
            }
        }
        selection.deliveries.truncate(SELECTED_MAX);
        selection.events.truncate(SELECTED_MAX);
        selection
    }
}

/// The pairs of a form.
fn form(body: &[u8]) -> impl Iterator<Item = (String, String)> + '_ {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        (decoded(name), decoded(value))
    })
}

fn decoded(text: &[u8]) -> String {
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
struct Event {
    #[serde(default)]
    deliveries: Vec<Delivery>,
}

#[derive(Deserialize)]
struct Delivery {
    id: String,
    status: String,
}

pub(super) async fn replay(visitor: Visitor, body: Bytes) -> Response {
    let t = Replays::of(visitor.lang());
    let selection = Selection::read(&body);
    let next = local(&selection.next);
    let mut deliveries = selection.deliveries;
    for event in &selection.events {
        // Of an event, what is dead is meant.
        if let Ok(event) = visitor.get::<Event>(Address::new(&["events", event])).await {
            let dead = event.deliveries.into_iter().filter(|owed| owed.status == "dead");
            deliveries.extend(dead.map(|owed| owed.id));
        }
    }
    // One may have been selected by itself and with its event.
    deliveries.sort();
    deliveries.dedup();
    if deliveries.is_empty() {
        let nothing = Trouble { detail: t.nothing_selected.to_owned(), ..Trouble::default() };
        return visitor.refused(next, &nothing);
    }
    let (mut done, mut refused) = (0_usize, Vec::new());
    let once = if selection.once.is_empty() { visitor.once() } else { selection.once };
    for delivery in &deliveries {
        let address = Address::new(&["deliveries", delivery, "replay"]);
        // By name: when the form is sent again, fewer may be dead and each has another place.
        let once = format!("{once}-{delivery}");
        match visitor.post_once::<Value>(address, None, &once).await {
            Ok(_) => done += 1,
            Err(trouble) => refused.push(trouble.detail),
        }
    }
    let said = fill(t.selected_done, &[&done, &refused.len()]);
    match refused.first() {
        None => visitor.done(next, said),
        Some(first) => {
            let detail = format!("{said} {}", fill(t.selected_first, &[first]));
            visitor.refused(next, &Trouble { detail, ..Trouble::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_with_checkboxes_is_read_whole() {
        let body =
            b"once=a1&delivery=dlv_1&next=%2Fdead-letters%2Fall%3Fq%3Da%2Bb+c&delivery=dlv_2&&x";
        let expected = Selection {
            deliveries: vec!["dlv_1".to_owned(), "dlv_2".to_owned()],
            events: Vec::new(),
            once: "a1".to_owned(),
            next: "/dead-letters/all?q=a+b c".to_owned(),
        };
        assert_eq!(Selection::read(body), expected);
        assert_eq!(decoded(b"100%zz%4"), "100%zz%4");
    }
}
