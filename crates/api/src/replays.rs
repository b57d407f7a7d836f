//! Replay jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::{
        NOTE_CHARS_MAX, ReplayAction, ReplayRate, ReplayState, SEARCH_CHARS_MAX, StatusPattern,
    },
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{GroupId, ReplayId},
    name::Name,
    object,
    time::Timestamp,
};
use surehook_webhooks::attribute::EventKind;

/// Selects the events and deliveries of a replay. Refers to sources and destinations by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ReplayFilter")]
pub struct ReplayFilterSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub destination: Option<String>,
    /// Delivery status: `dead` or `succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<DeliveryStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Failure class of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// HTTP status of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<StatusPattern>,
    /// Received at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Received before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Exact deduplication key of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub key: Option<String>,
    /// Text in the event's key or in the detail of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SEARCH_CHARS_MAX))]
    pub search: Option<String>,
}

/// Request to create a replay job.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateReplayRequest {
    pub verb: ReplayAction,
    #[serde(default, deserialize_with = "object::required")]
    pub filter: ReplayFilterSpec,
    /// Destination of missing events; only with `send_missing`.
    #[schemars(with = "Option<Name>")]
    pub to: Option<String>,
    /// Maximum rate.
    #[serde(default)]
    pub rate: ReplayRate,
    /// Note for people.
    #[schemars(length(max = NOTE_CHARS_MAX))]
    pub note: Option<String>,
    /// Only return a preview.
    #[serde(default)]
    pub dry_run: bool,
    /// With `dry_run`: examine at most 20,000 rows, for a fast response.
    #[serde(default)]
    pub quick: bool,
}

/// Request to replay dead letters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReprocessRequest {
    #[serde(default, deserialize_with = "object::required")]
    pub filter: ReplayFilterSpec,
    /// Maximum rate.
    #[serde(default)]
    pub rate: ReplayRate,
    /// Note for people.
    #[schemars(length(max = NOTE_CHARS_MAX))]
    pub note: Option<String>,
    /// Only return a preview.
    #[serde(default)]
    pub dry_run: bool,
    /// With `dry_run`: examine at most 20,000 rows, for a fast response.
    #[serde(default)]
    pub quick: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReplayJob")]
pub struct ReplayJobResponse {
    pub id: ReplayId,
    pub verb: ReplayAction,
    pub filter: ReplayFilterSpec,
    /// Destination of missing events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    pub rate: ReplayRate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub state: ReplayState,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Whether more was selected than one job can hold; the rest needs another job.
    pub capped: bool,
    pub destinations: BTreeMap<String, ReplayCounts>,
    #[serde(flatten)]
    pub counts: ReplayCounts,
}

/// Counts of a job or of one destination in it:
/// `selected = succeeded + dead + cancelled + skipped + remaining`, and
/// `remaining = queued + in_flight + left`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCounts {
    pub selected: u64,
    /// Items for which a delivery was created.
    pub dispatched: u64,
    pub succeeded: u64,
    pub dead: u64,
    pub cancelled: u64,
    /// Items that were not replayed, by reason in `skipped_by_reason`.
    pub skipped: u64,
    /// Items that no delivery was created for yet.
    pub queued: u64,
    /// Items whose delivery has not ended: it is attempted, or waits for an attempt.
    pub in_flight: u64,
    /// Items not delivered: queued, in flight, or left.
    pub remaining: u64,
    /// Items still to be delivered: queued or in flight.
    pub waiting: u64,
    /// Items never delivered because the job was cancelled.
    pub left: u64,
    pub skipped_by_reason: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReplayPreview")]
pub struct ReplayPreviewResponse {
    pub dry_run: bool,
    pub count: u64,
    /// Whether all rows were examined; if not, there are at least `count`.
    pub complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Timestamp>,
    pub rate: ReplayRate,
    pub estimate_seconds: f64,
    pub by_destination: BTreeMap<String, u64>,
}
