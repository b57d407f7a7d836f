//! Calls of a listener: a program that asks for the deliveries of a destination of kind `listen`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_retry::AttemptFailure;
use surehook_types::{
    ids::{DeliveryId, EventId},
    name::Name,
    time::Timestamp,
};
use surehook_webhooks::attribute::EventKind;

/// Reports answers, and asks for deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenRequest {
    /// A random name that the listener has chosen for itself and keeps while it runs.
    #[schemars(length(min = 1, max = ListenRequest::LISTENER_BYTES_MAX))]
    pub listener: String,
    /// Deliveries to return at most. With 0, the call only reports answers.
    #[serde(default)]
    #[schemars(range(max = ListenRequest::DELIVERIES_MAX))]
    pub max: usize,
    /// Seconds to wait for a delivery.
    #[serde(default)]
    #[schemars(range(max = ListenRequest::WAIT_SECONDS_MAX))]
    pub wait_seconds: u64,
    /// Deliveries that the listener has got and not reported. Others that were handed to it are handed out
    /// again.
    #[serde(default)]
    #[schemars(length(max = ListenRequest::HOLDING_MAX))]
    pub holding: Vec<DeliveryId>,
    #[serde(default)]
    #[schemars(length(max = ListenRequest::HOLDING_MAX))]
    pub answers: Vec<ListenAnswer>,
    /// The listener stops: what it has and did not report is due again.
    #[serde(default)]
    pub leave: bool,
}

impl ListenRequest {
    pub const LISTENER_BYTES_MAX: usize = 64;
    pub const DELIVERIES_MAX: usize = 64;
    pub const WAIT_SECONDS_MAX: u64 = 20;
    pub const HOLDING_MAX: usize = 1024;
}

/// What came of a delivery at the listener: a status, or why there was none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenAnswer {
    pub delivery: DeliveryId,
    /// HTTP status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 599))]
    pub status: Option<u16>,
    /// Why there was no response: `dns`, `refused`, `unreachable`, `reset`, `timeout`, `tls` or `protocol`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<AttemptFailure>,
    /// A short text about the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub duration_ms: u64,
    /// The header `Retry-After`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// Begin of the response body.
    #[serde(default)]
    pub response: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListenResponse {
    pub deliveries: Vec<ListenDelivery>,
    /// Answers that ended an attempt.
    pub accepted: Vec<DeliveryId>,
    /// Answers that no attempt waits for any more: it timed out, or the gateway was restarted. The delivery
    /// is handed out again, unless it has ended.
    pub unknown: Vec<DeliveryId>,
}

/// A delivery for a listener, which answers it within `timeout_ms`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListenDelivery {
    pub id: DeliveryId,
    /// The value of `webhook-id`: the same in all attempts.
    pub event: EventId,
    pub source: Name,
    /// Event type, if the source's provider reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    pub received_at: Timestamp,
    /// Headers to send, in this order. Each character of a value stands for one byte.
    pub headers: Vec<ListenHeader>,
    /// The body, in Base64.
    pub body_base64: String,
    pub timeout_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListenHeader {
    pub name: String,
    pub value: String,
}
