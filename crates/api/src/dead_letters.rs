//! Dead letters: deliveries that were given up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, EventId, GroupId},
    time::Timestamp,
};

/// The dead letters of one destination that have the same cause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeadLetterGroup")]
pub struct DeadLetterGroupResponse {
    pub id: GroupId,
    /// Absent if it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Failure class; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// HTTP status of the last response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Why there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<AttemptFailure>,
    /// Why the most recent dead letter was given up.
    pub reason: DeadReason,
    /// Error message without its variable parts.
    pub shape: String,
    /// Beginning of the error message of `newest_delivery`, secrets masked. Absent if there was none, or
    /// retention has removed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
    pub count: u64,
    /// When the first delivery died since the group was last empty.
    pub first_seen: Timestamp,
    /// When the most recent delivery died.
    pub last_seen: Timestamp,
    pub newest_delivery: DeliveryId,
    pub newest_event: EventId,
}

/// Dead letters of one reason.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeadReasonStats {
    /// Since the beginning.
    pub total: u64,
    /// Currently dead.
    pub pending: u64,
}
