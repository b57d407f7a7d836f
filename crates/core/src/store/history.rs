//! The recorded history of a destination: its deliveries and attempts, without bodies.

use std::time::Duration;

use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};

use crate::delivery::state::DeliveryStatus;

/// Which deliveries to read.
#[derive(Clone, Copy, Debug)]
pub struct HistoryFilter {
    pub destination: DestinationId,
    /// Created at this time or later.
    pub since: Timestamp,
    /// Created before this time.
    pub until: Timestamp,
}

/// A delivery as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDelivery {
    pub id: DeliveryId,
    pub created_at: Timestamp,
    /// The state of its row: a delivery that waits for a paused destination is not `held` here.
    pub status: DeliveryStatus,
    /// Set if it is or was dead, also if it was replayed later.
    pub reason: Option<DeadReason>,
    pub ended_at: Option<Timestamp>,
    /// The delivery that it replaces: it is a replay or a revival.
    pub replay_of: Option<DeliveryId>,
    pub order_key: Option<String>,
    /// How many attempts were made, also if they are not stored any more.
    pub attempts_made: u32,
    /// Oldest first. Empty if retention has removed them.
    pub attempts: Vec<RecordedAttempt>,
}

/// An attempt as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAttempt {
    pub started_at: Timestamp,
    pub took: Duration,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub failure: Option<AttemptFailure>,
    /// `None` for a success.
    pub class: Option<FailureClass>,
    /// The `Retry-After` that the next attempt waited for. A shorter one than the backoff is not recorded.
    pub retry_after: Option<Duration>,
}
