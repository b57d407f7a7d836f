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
    /// Name of the destination; null if it was deleted.
    pub destination: Option<String>,
    /// Failure class; null if unknown.
    pub class: Option<FailureClass>,
    /// HTTP status of the last response.
    pub code: Option<u16>,
    /// Why there was no response.
    pub failure: Option<AttemptFailure>,
    /// Why the most recent dead letter was given up.
    pub reason: DeadReason,
    /// Error message without its variable parts.
    pub shape: String,
    /// Beginning of the error message of `newest_delivery`, secrets masked. Null if there was none, or
    /// retention has removed it.
    pub sample: Option<String>,
    /// Number of dead letters now.
    pub count: u64,
    /// When the first delivery died since the group was last empty.
    pub first_seen: Timestamp,
    /// When the most recent delivery died.
    pub last_seen: Timestamp,
    /// The newest delivery among the dead ones.
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
