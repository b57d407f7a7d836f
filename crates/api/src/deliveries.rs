//! Deliveries and their attempts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::delivery::state::DeliveryStatus;
use surehook_guard::timing::AttemptTimingView;
use surehook_retry::{AttemptFailure, DeadReason, FailureClass, ScheduleReason};
use surehook_types::{
    ids::{AttemptId, DeliveryId, EventId, GroupId},
    time::Timestamp,
};

/// The delivery of one event to one destination.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub struct DeliveryResponse {
    pub id: DeliveryId,
    pub event: EventId,
    /// Absent if it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    pub status: DeliveryStatus,
    /// Ordering key, if the destination delivers in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// Why the delivery is dead, or was before it was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<DeliveryId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed_as: Option<DeliveryId>,
    /// Id of the sent message at the provider; its status updates carry it as `message_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Dead letter group, while the delivery is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryWithAttempts {
    #[serde(flatten)]
    pub delivery: DeliveryResponse,
    pub attempts_removed: bool,
    /// Oldest first.
    pub attempt_list: Vec<AttemptResponse>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Attempt")]
pub struct AttemptResponse {
    pub id: AttemptId,
    pub number: u32,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    /// Duration of each phase.
    pub timing: AttemptTimingView,
    /// HTTP status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<AttemptFailure>,
    /// Failure class; absent for a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Beginning of the response body, secrets masked.
    pub response: String,
    /// Masked values in the response.
    pub masked: usize,
    /// What followed: `succeeded`, `retry` or `dead`; absent in old records.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(succeeded|retry|dead)$"))]
    pub next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Why the next attempt is at that time; absent without a retry and in old records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_reason: Option<ScheduleReason>,
}

/// The new delivery that a replay created.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedAs {
    pub delivery_id: DeliveryId,
}
