//! Splits a receipt for several messages into one event per message.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{
        EventPart,
        fields::FieldValues,
        raw_json::{EVENTS_MAX, NestedMember, RawObject, SPLIT_BYTES_MAX, json_array},
    },
    known_or_content_hash,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::{DedupKey, scalar_text},
};

type ReceiptRoot<'b> = RawObject<'b, ReceiptData<'b>>;
type ReceiptData<'b> = RawObject<'b, MessageIds<'b>>;

#[derive(Deserialize)]
struct MessageIds<'b>(#[serde(borrow)] Vec<&'b RawValue>);

impl<'b> NestedMember<'b> for ReceiptData<'b> {
    fn has_name(name: &str) -> bool {
        name == r#""data""#
    }
}

impl<'b> NestedMember<'b> for MessageIds<'b> {
    fn has_name(name: &str) -> bool {
        name == r#""MessageIDs""#
    }
}

/// The receipt of each message; `whole` is the event of an unsplit request.
pub(super) fn parts(found: &FieldValues<'_>, whole: &EventPart, body: &[u8]) -> Vec<EventPart> {
    let state = state(found);
    let whole = EventPart { kind: EventKind::new(&format!("Receipt.{state}")), ..whole.clone() };
    let text = std::str::from_utf8(body).ok();
    let root = text.and_then(|text| serde_json::from_str::<ReceiptRoot<'_>>(text).ok());
    let parts = root.and_then(|root| split_receipt(&root, found, state, &whole));
    parts.filter(|parts| !parts.is_empty()).unwrap_or_else(|| vec![whole])
}

/// The state is next to `data`; inside it, an empty type means delivered.
fn state<'f>(found: &'f FieldValues<'_>) -> &'f str {
    match found.get("/state|/data/Type") {
        None => "Delivered",
        Some("read") => "Read",
        Some("read-self") => "ReadSelf",
        Some(state) => state,
    }
}

fn split_receipt(
    root: &ReceiptRoot<'_>,
    found: &FieldValues<'_>,
    state: &str,
    whole: &EventPart,
) -> Option<Vec<EventPart>> {
    let (data_at, _, data) = root.nested().next()?;
    let (ids_at, _, ids) = data.nested().next()?;
    if ids.0.len() > EVENTS_MAX {
        return None;
    }
    let instance = found.get("/instanceId|/instanceName");
    // `-` stands for a missing sender.
    let sender = found.get("/data/Sender|-").unwrap_or_default();
    let mut room = SPLIT_BYTES_MAX;
    let mut parts = Vec::with_capacity(ids.0.len());
    for raw in &ids.0 {
        let id = scalar_text(raw).unwrap_or(Cow::Borrowed(raw.get()));
        let key = instance.and_then(|instance| {
            DedupKey::new(&format!("evolution_go:{instance}:Receipt:{id}:{state}:{sender}"))
        });
        let mut part = EventPart { key: known_or_content_hash(key), ..whole.clone() };
        part.attributes.push(AttributeName::MessageId, &id);
        if ids.0.len() > 1 {
            let data = data.rewrite(&[(ids_at, &json_array([raw.get()].into_iter()))]);
            let body = root.rewrite(&[(data_at, &data)]);
            room = room.checked_sub(body.len())?;
            part.body = Some(Bytes::from(body));
        }
        parts.push(part);
    }
    Some(parts)
}
