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

/// The receipt of each message; `unsplit` is the event of the whole request.
pub(super) fn parts(fields: &FieldValues<'_>, unsplit: &EventPart, body: &[u8]) -> Vec<EventPart> {
    let state = state(fields);
    let unsplit =
        EventPart { kind: EventKind::new(&format!("Receipt.{state}")), ..unsplit.clone() };
    let text = std::str::from_utf8(body).ok();
    let root = text.and_then(|text| serde_json::from_str::<ReceiptRoot<'_>>(text).ok());
    let parts = root.and_then(|root| split_receipt(&root, fields, state, &unsplit));
    parts.filter(|parts| !parts.is_empty()).unwrap_or_else(|| vec![unsplit])
}

/// The state is next to `data`; inside it, an empty type means delivered.
fn state<'f>(fields: &'f FieldValues<'_>) -> &'f str {
    match fields.get("/state|/data/Type") {
        None => "Delivered",
        Some("read") => "Read",
        Some("read-self") => "ReadSelf",
        Some(state) => state,
    }
}

fn split_receipt(
    root: &ReceiptRoot<'_>,
    fields: &FieldValues<'_>,
    state: &str,
    unsplit: &EventPart,
) -> Option<Vec<EventPart>> {
    let (data_index, _, data) = root.nested().next()?;
    let (ids_index, _, ids) = data.nested().next()?;
    if ids.0.len() > EVENTS_MAX {
        return None;
    }
    let instance = fields.get("/instanceId|/instanceName");
    // `-` stands for a missing sender.
    let sender = fields.get("/data/Sender|-").unwrap_or_default();
    let mut bytes_left = SPLIT_BYTES_MAX;
    let mut parts = Vec::with_capacity(ids.0.len());
    for raw in &ids.0 {
        let id = scalar_text(raw).unwrap_or(Cow::Borrowed(raw.get()));
        let key = instance.and_then(|instance| {
            DedupKey::new(&format!("evolution_go:{instance}:Receipt:{id}:{state}:{sender}"))
        });
        let mut part = EventPart { key: known_or_content_hash(key), ..unsplit.clone() };
        part.attributes.push(AttributeName::MessageId, &id);
        if ids.0.len() > 1 {
            let data = data.rewrite(&[(ids_index, &json_array([raw.get()].into_iter()))]);
            let body = root.rewrite(&[(data_index, &data)]);
            bytes_left = bytes_left.checked_sub(body.len())?;
            part.body = Some(Bytes::from(body));
        }
        parts.push(part);
    }
    Some(parts)
}
