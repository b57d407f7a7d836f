//! Events and their duplicates.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use surehook_types::{
    ids::{AttemptId, DeliveryId, EventId, RequestId},
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{Attributes, EventKind},
    key::KeyOrigin,
};

use crate::{BodyContent, HeaderField, ListResponse, deliveries::DeliveryResponse};

/// An event without its body.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventResponse {
    pub id: EventId,
    pub request_id: RequestId,
    /// Absent if it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub no_key: bool,
    /// Absent without a key and for older events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_origin: Option<KeyOrigin>,
    /// The event that had the same key with another body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_conflict: Option<EventId>,
    /// Event type, if the source's provider reports one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    /// Searchable attributes, each with its values: `{ "phone": ["5511987654321"] }`.
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub attributes: Attributes,
    pub received_at: Timestamp,
    pub body_bytes: u64,
    pub duplicate_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_duplicate_at: Option<Timestamp>,
    pub body_removed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedEvent {
    #[serde(flatten)]
    pub event: EventResponse,
    /// Number of deliveries per status; statuses without deliveries are omitted.
    pub deliveries: BTreeMap<String, u64>,
}

/// One page of events, and how far the search went.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    #[serde(flatten)]
    pub page: ListResponse<ListedEvent>,
    pub searched: SearchProgress,
}

/// A search that finds little returns a short page after a while.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SearchProgress {
    pub events: usize,
    /// When the oldest examined event was received; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// An event with its deliveries, duplicates and timeline.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EventDetail")]
pub struct EventDetailResponse {
    #[serde(flatten)]
    pub event: EventResponse,
    /// Of the body.
    pub sha256: String,
    /// The HTTP request; absent if the body was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestHeadResponse>,
    /// Oldest first.
    pub deliveries: Vec<DeliveryResponse>,
    /// The first duplicates that were received, oldest first.
    pub duplicates: Vec<DuplicateResponse>,
    /// Timeline, oldest first.
    pub decisions: Vec<TimelineEntryResponse>,
}

/// One entry of an event's timeline.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineEntry")]
pub struct TimelineEntryResponse {
    pub at: Timestamp,
    /// What happened. Stable, for programs.
    pub kind: String,
    /// What happened, for people.
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryId>,
    /// Further data, depending on `kind`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Map<String, Value>")]
    pub detail: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RequestHead")]
pub struct RequestHeadResponse {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    pub remote: String,
    pub headers: Vec<HeaderField>,
}

/// One received duplicate of an event.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Duplicate")]
pub struct DuplicateResponse {
    /// Number of the duplicate within its event. Never changes.
    pub n: u32,
    pub seen_at: Timestamp,
    /// `same_key`, or `same_signed_bytes` if the signed bytes came again under another key.
    #[schemars(regex(pattern = "^(same_key|same_signed_bytes)$"))]
    #[serde(default = "same_key")]
    pub reason: String,
    pub bytes_differ: bool,
    /// The body, if it differs from the event's; secrets masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyContent>,
    /// Stored but not shown: an event shows up to 256 KiB of duplicate bodies. Compare the
    /// duplicate.
    pub body_omitted: bool,
    /// Masked values in the body.
    pub masked: usize,
    /// The event created from it, if it was delivered anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_as: Option<EventId>,
}

fn same_key() -> String {
    "same_key".to_owned()
}

/// A duplicate compared with its event.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DuplicateComparison {
    pub n: u32,
    /// When the duplicate was received.
    pub at: Timestamp,
    /// Time since the event was received, in milliseconds.
    pub gap_ms: u64,
    pub same_bytes: bool,
    /// Whether the body is still stored, so that the duplicate can be delivered.
    pub body_kept: bool,
    /// The event created from it, if it was delivered anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_as: Option<EventId>,
    /// `json` by structure, `text` by lines, or `bytes`; absent if equal or no longer stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared_as: Option<String>,
    /// In the order of the bodies, at most 200. If empty, JSON bodies differ only in formatting or
    /// in masked values.
    pub diff: Vec<DuplicateDifference>,
    /// Whether a value, the list or the comparison was cut off.
    pub truncated: bool,
    /// Number of masked values in both bodies. Masked values count as equal.
    pub masked: usize,
}

/// One difference between an event and its duplicate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DuplicateDifference {
    /// JSON pointer into the duplicate, or into the event for a removed value; `line N` or `byte N` if
    /// the bodies are not JSON.
    pub path: String,
    /// `added`, `removed` or `changed`.
    pub change: String,
    /// Value in the event: JSON text of at most 1000 characters, lines, or bytes in hex. Absent if added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Value in the duplicate. Absent if removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The event created from a duplicate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeliverDuplicateResponse {
    pub event_id: EventId,
}

/// An event with its secrets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RevealedEvent")]
pub struct RevealEventResponse {
    pub id: EventId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub attributes: Attributes,
    /// The HTTP request; absent if the body was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestHeadResponse>,
    /// The exact body; absent if retention has removed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyContent>,
    pub body_removed: bool,
    /// Stored bodies of duplicates that differ, oldest first.
    pub duplicates: Vec<RevealedDuplicate>,
    /// Whether bodies beyond 256 KiB were omitted.
    pub duplicates_omitted: bool,
    /// Stored responses to attempts, newest first.
    pub responses: Vec<RevealedAttemptResponse>,
    pub responses_omitted: bool,
}

/// Body of a duplicate that differs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RevealedDuplicate {
    pub seen_at: Timestamp,
    pub body: BodyContent,
}

/// Response to an attempt.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RevealedResponse")]
pub struct RevealedAttemptResponse {
    pub delivery: DeliveryId,
    pub attempt: AttemptId,
    pub number: u32,
    pub response: BodyContent,
}
