//! A receipt is for one message or for many: one event each.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{
        EventPart, FieldValues,
        pieces::{BODIES_BYTES_MAX, Object, Opened, PARTS_MAX, list},
    },
    SENDER, STATE, TYPE, key, known,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::scalar_text,
};

type Root<'b> = Object<'b, Data<'b>>;
type Data<'b> = Object<'b, Ids<'b>>;

#[derive(Deserialize)]
struct Ids<'b>(#[serde(borrow)] Vec<&'b RawValue>);

impl<'b> Opened<'b> for Data<'b> {
    fn is_called(name: &str) -> bool {
        name == r#""data""#
    }
}

impl<'b> Opened<'b> for Ids<'b> {
    fn is_called(name: &str) -> bool {
        name == r#""MessageIDs""#
    }
}

/// The receipt of each message; `whole` is what the request is if it is read as one event.
pub(super) fn parts(found: &FieldValues<'_>, whole: &EventPart, body: &[u8]) -> Vec<EventPart> {
    let state = state(found);
    let whole = EventPart { kind: EventKind::new(&format!("Receipt.{state}")), ..whole.clone() };
    let text = std::str::from_utf8(body).ok();
    let root = text.and_then(|text| serde_json::from_str::<Root<'_>>(text).ok());
    let parts = root.and_then(|root| of_each(&root, found, state, &whole));
    parts.filter(|parts| !parts.is_empty()).unwrap_or_else(|| vec![whole])
}

/// It stands beside the data; in them, delivered is spelled as nothing.
fn state<'f>(found: &'f FieldValues<'_>) -> &'f str {
    match found.first(&[STATE, TYPE]) {
        None => "Delivered",
        Some("read") => "Read",
        Some("read-self") => "ReadSelf",
        Some(state) => state,
    }
}

fn of_each(
    root: &Root<'_>,
    found: &FieldValues<'_>,
    state: &str,
    whole: &EventPart,
) -> Option<Vec<EventPart>> {
    let (data_at, _, data) = root.opened().next()?;
    let (ids_at, _, ids) = data.opened().next()?;
    if ids.0.len() > PARTS_MAX {
        return None;
    }
    let sender = found.get(SENDER).unwrap_or("-");
    let mut room = BODIES_BYTES_MAX;
    let mut parts = Vec::with_capacity(ids.0.len());
    for raw in &ids.0 {
        let id = scalar_text(raw).unwrap_or(Cow::Borrowed(raw.get()));
        let key = known(key(found, "Receipt", &[&id, state, sender]));
        let mut part = EventPart { key, ..whole.clone() };
        part.attributes.push(AttributeName::MessageId, &id);
        if ids.0.len() > 1 {
            let data = data.rewrite(&[(ids_at, &list([raw.get()].into_iter()))]);
            let body = root.rewrite(&[(data_at, &data)]);
            room = room.checked_sub(body.len())?;
            part.body = Some(Bytes::from(body));
        }
        parts.push(part);
    }
    Some(parts)
}
