//! Sources, destinations and routes, and the state of destinations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use surehook_core::{destination::kind::DestinationKind, health::HealthStatus, route::RouteSpec};
use surehook_retry::{AttemptFailure, FailureClass, rate::Rate};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, RouteId, SourceId},
    name::Name,
    time::{HumanDuration, Timestamp},
};

use crate::deliveries::AttemptResponse;

// A source, destination or route in a response: its spec as stored, and what is derived from it.
/// Secrets are masked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
// Each resource has a state type of its own, whose schema name is the name of the resource.
#[schemars(rename = "{T}")]
pub struct StoredSpecResponse<I, S, T> {
    pub id: I,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(flatten)]
    pub spec: S,
    #[serde(flatten)]
    pub state: T,
}

pub type SourceResponse = StoredSpecResponse<SourceId, SourceSummary, SourceStatus>;
pub type DestinationResponse =
    StoredSpecResponse<DestinationId, DestinationSummary, DestinationStatus>;
pub type RouteResponse = StoredSpecResponse<RouteId, RouteSpec, NoRuntimeState>;

/// The settings of a source that clients use. They cannot read a `SourceSpec`: the mask of a secret is not a
/// secret.
#[derive(Clone, Debug, Deserialize)]
pub struct SourceSummary {
    pub name: Name,
    pub provider: String,
    pub verify: Option<Value>,
    pub enabled: bool,
}

/// The settings of a destination that clients use.
#[derive(Clone, Debug, Deserialize)]
pub struct DestinationSummary {
    pub name: Name,
    #[serde(default)]
    pub kind: DestinationKind,
    /// Empty if the kind needs none.
    #[serde(default)]
    pub url: String,
    pub rate: Option<Rate>,
}

/// Properties derived from a source's settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Source")]
pub struct SourceStatus {
    /// Whether requests must pass signature verification.
    pub verified: bool,
}

/// Runtime state in a destination's response.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Destination")]
pub struct DestinationStatus {
    /// Delivery state; absent if the settings are unusable. Not covered by the `ETag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DestinationState>,
    /// Health in the last minutes. Not covered by the `ETag`.
    pub health: DestinationHealthResponse,
}

/// Routes have no runtime state.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Route")]
pub struct NoRuntimeState {}

/// Health of a destination, from its attempts in the last minutes and its state.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DestinationHealth")]
pub struct DestinationHealthResponse {
    pub status: HealthStatus,
    /// Since when; absent if that is longer ago than a day, and for a healthy destination than an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The time span of the following counts.
    pub window: HumanDuration,
    pub attempts: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Deliveries that became dead.
    pub dead: u64,
    /// Share of failed attempts, 0 to 1; absent without attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_ratio: Option<f64>,
    pub backlog: DestinationBacklog,
    /// The most recent failed attempt of the last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorResponse>,
}

/// Deliveries that wait for a destination.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DestinationBacklog {
    /// All of them: due, to be retried later, or held.
    pub waiting: u64,
    /// Those that could be sent now.
    pub due: u64,
    /// Whether there may be more: they are counted up to 10,000.
    pub more: bool,
    /// Time until those that are due are sent at the rate of the last minute, in seconds; absent if there
    /// are none, or none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<u64>,
}

/// A failed attempt.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LastError")]
pub struct LastErrorResponse {
    pub at: Timestamp,
    pub event: EventId,
    pub delivery: DeliveryId,
    /// HTTP status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<AttemptFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DestinationState {
    pub paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<DestinationPause>,
    #[schemars(regex(pattern = "^(closed|open|half_open|ramp)$"))]
    pub circuit: String,
    /// When the open circuit lets the next probe through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    /// End of a wait that the destination asked for (Retry-After).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooling_until: Option<Timestamp>,
    /// Pause of sending messages by quiet hours or a daily limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<DestinationHold>,
    /// Programs that listen to it; only of the kind `listen`, and only on the node that owns its lane.
    /// Without one, deliveries wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DestinationDrain>,
    /// Whether deliveries are held, because it is paused or its circuit is open.
    pub holds: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DestinationPause {
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Paused by the gateway.
    pub automatic: bool,
}

/// A time during which a destination sends no messages. Deliveries stay pending.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DestinationHold {
    pub until: Timestamp,
    #[schemars(regex(pattern = "^(quiet_hours|daily_limit)$"))]
    pub reason: String,
}

/// Rate limit for the backlog after a pause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DestinationDrain {
    pub rate: Rate,
    /// Applies to deliveries created before this time.
    pub until: Timestamp,
}

/// Request to pause a destination.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Reason, visible to your team.
    #[schemars(length(max = PauseRequest::REASON_CHARS_MAX))]
    pub reason: Option<String>,
}

impl PauseRequest {
    pub const REASON_CHARS_MAX: usize = 500;
}

/// Request to resume a destination.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeRequest {
    /// Rate limit for the backlog; unlimited by default.
    pub rate: Option<Rate>,
}

/// Result of a probe.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProbeResponse {
    /// The attempted delivery.
    pub delivery: DeliveryId,
    pub succeeded: bool,
    pub attempt: AttemptResponse,
    /// State of the destination after the probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DestinationState>,
}

/// Filter and transform to test, and the sample to test them on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TryRouteRequest {
    /// Filter in jq.
    pub filter: Option<String>,
    /// Transform in jq.
    pub transform: Option<String>,
    /// Event whose body is the sample.
    pub event: Option<EventId>,
    /// The sample itself: a string is used as text, anything else as JSON.
    #[schemars(with = "Option<Value>")]
    pub body: Option<Box<RawValue>>,
    /// Source whose recent events the filter is tested on as well, and `$source` of a `body`. Default: the
    /// source of `event`.
    pub source: Option<Name>,
    /// `$kind` of a `body`.
    pub kind: Option<String>,
    /// Headers of a `body`. With the content type of a form, a string is a form.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Use the event's body with its secrets. Requires the role operator.
    #[serde(default)]
    pub exact: bool,
}

/// Result of a trial.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TryRouteResponse {
    /// Whether the filter matches; absent without a filter or if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_error: Option<String>,
    /// Output of the transform; absent without a transform, if it failed, or if it drops the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Whether the transform drops the event.
    pub dropped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform_error: Option<String>,
    /// The sample; absent if it is not text or too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Number of masked values in the sample. Filter and transform see the masked sample.
    pub masked: usize,
    /// The filter on recent events; absent without a filter or a source, or if the filter is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent: Option<RecentTrialResponse>,
}

/// Result of a filter on the newest events of a source.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecentTrialResponse {
    /// Events tried, newest first; the first one that matches ends the trial.
    pub events: usize,
    /// Events on which the filter failed.
    pub failed: usize,
    /// Whether one of them matches.
    pub matches: bool,
    /// Set if none of them matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}
