//! Store operations of lanes: claiming and settling deliveries, and saving lane state.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use surehook_guard::timing::AttemptTiming;
use surehook_retry::{AttemptFailure, DeadReason, FailureClass, ScheduleReason};
use surehook_types::{
    ids::{AttemptId, DeliveryId, DestinationId, EventId},
    name::Name,
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::key::DedupKey;

use crate::{
    callback::{CallbackResult, DueCallback},
    clock::{SavedClock, StoredClock},
    decision::NotRoutedReason,
    delivery::{ClaimProof, LaneEpoch},
    event::{Payload, PendingRoute},
    lane::SavedLaneState,
};

/// A delivery claimed by a lane.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    pub id: DeliveryId,
    pub event: EventId,
    pub destination: DestinationId,
    /// Name of the source.
    pub source: Name,
    /// Dedup key of the event.
    pub key: Option<DedupKey>,
    pub proof: ClaimProof,
    pub attempts: u32,
    /// Number of throttled attempts.
    pub throttled: u32,
    pub created_at: Timestamp,
    /// Receipt time of the event.
    pub received_at: Timestamp,
    pub payload: Payload,
    /// The route that must still be applied; it failed when the event was received.
    pub pending_route: Option<PendingRoute>,
    /// It has an ordering key, so others may wait for it.
    pub ordered: bool,
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimBatch {
    pub claimed: Vec<ClaimedDelivery>,
    /// Due deliveries that were given up because their body is missing or damaged.
    pub damaged: Vec<DeliveryId>,
}

/// A stored attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    pub id: AttemptId,
    /// Counted from 1 within its delivery.
    pub number: u32,
    pub started_at: Timestamp,
    pub took: Duration,
    pub timing: AttemptTiming,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub failure: Option<AttemptFailure>,
    /// `None` for a success.
    pub class: Option<FailureClass>,
    /// Short text for people.
    pub detail: Option<String>,
    /// Beginning of the answer's body.
    pub response: Vec<u8>,
}

/// The next step of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    Succeeded,
    RetryAt(Timestamp),
    Dead(DeadReason),
}

impl NextStep {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::RetryAt(_) => "retry",
            Self::Dead(_) => "dead",
        }
    }

    pub const fn reason(self) -> Option<DeadReason> {
        match self {
            Self::Dead(reason) => Some(reason),
            Self::Succeeded | Self::RetryAt(_) => None,
        }
    }

    pub const fn due_at(self) -> Option<Timestamp> {
        match self {
            Self::RetryAt(due_at) => Some(due_at),
            Self::Succeeded | Self::Dead(_) => None,
        }
    }
}

/// The result of an attempt and the next step of its delivery, to be recorded.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub delivery: DeliveryId,
    /// As in the claim.
    pub destination: DestinationId,
    /// Creation time of the delivery, as in the claim.
    pub created_at: Timestamp,
    pub proof: ClaimProof,
    pub at: Timestamp,
    pub attempt: AttemptRecord,
    pub next: NextStep,
    /// Reason for the time of the next attempt.
    pub schedule_reason: Option<ScheduleReason>,
    /// See [`ClaimedDelivery::ordered`].
    pub ordered: bool,
    /// The sent message, for channels that count messages.
    pub sent: Option<SentMessage>,
}

/// A message that was or may have been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The provider's id, used by its status updates; `None` if unknown.
    pub id: Option<String>,
    /// The day it counts for, in days since 1970 in the destination's time zone.
    pub day: i32,
}

/// The result of settling an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    Recorded,
    /// The delivery got this next step instead: a status update arrived during the attempt, or the claim
    /// was lost but the response proves that the message was sent.
    Overruled(NextStep),
    /// The claim was lost or the delivery was cancelled; no attempt was recorded.
    ClaimLost,
}

/// A claim on a delivery, with its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    pub delivery: DeliveryId,
    pub proof: ClaimProof,
}

/// A claim to be ended, because its attempt ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbandonedClaim {
    pub destination: DestinationId,
    pub proof: ClaimProof,
    /// `None`: all deliveries that were claimed with this proof. Which ones is unknown if it is unknown
    /// whether they were claimed at all.
    pub delivery: Option<DeliveryId>,
    /// When it is due again, unless it has a crash outcome.
    pub due_at: Timestamp,
}

/// The store operations of lanes.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Claims up to `limit` due deliveries of `destination`, oldest first; fewer, but at least one, if
    /// their bodies are large. One with a damaged body is given up.
    ///
    /// Each is `in_flight` under `proof` when this returns, and cannot be claimed again before the claim
    /// has ended or the lane has another owner. With an outdated epoch nothing is claimed. Waiting
    /// deliveries belong to the destination: each of its lanes may claim them, under its own epoch.
    async fn claim_due(
        &self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
        limit: usize,
    ) -> Result<ClaimBatch, StoreError>;

    /// Claims the delivery of `destination` that is due first, even before its due time; otherwise like
    /// [`Self::claim_due`].
    ///
    /// Skips deliveries with a delayed first attempt ([`NewDelivery::delay`]) and those whose last
    /// attempt was ambiguous, because a status update may still arrive. Skips a bounded number only.
    ///
    /// [`NewDelivery::delay`]: crate::event::NewDelivery::delay
    async fn claim_next(
        &self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
    ) -> Result<ClaimBatch, StoreError>;

    /// Due time of the next waiting delivery.
    async fn find_next_due(
        &self,
        destination: DestinationId,
    ) -> Result<Option<Timestamp>, StoreError>;

    /// Records attempts and the next steps of their deliveries in one transaction; durable after `Ok`.
    /// Each is decided by itself; the results are in the order of the settlements.
    ///
    /// The same attempt, by its id, again changes nothing and returns the first result, so that a
    /// settlement whose outcome is unknown can be tried until it is known.
    ///
    /// When a delivery with an ordering key ends, the next one of the key becomes due in the same
    /// transaction. With an outdated proof nothing changes, except that a success with a message id is
    /// applied like a status update.
    ///
    /// If the outcome of the attempt is ambiguous, a status update received during the attempt (see
    /// [`StatusUpdate`]) takes precedence. A reported success always takes precedence.
    ///
    /// [`StatusUpdate`]: crate::event::StatusUpdate
    /// A lane settles each attempt when it ends, and a caller that has several passes them together.
    /// Settlements of different callers are collected by the store, which knows what a round trip costs.
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<SettleResult>, StoreError>;

    /// Records the outcome that applies if the process crashes during the attempt that is about to
    /// start; durable after `Ok`, and replaces an earlier one.
    ///
    /// If the claim ends without [`Self::settle`] or [`Self::release`], by [`Self::abandon`] or because
    /// the process dies, the delivery is settled with this outcome and is not simply due again: a crash
    /// must not send a message twice. The outcome has a failure and no answer. With an outdated proof
    /// nothing changes.
    async fn record_crash_outcome(&self, outcome: Settlement) -> Result<SettleResult, StoreError>;

    /// Releases claims without an attempt: due at `due_at`, which may be later than now. Lost ones are
    /// ignored.
    async fn release(&self, held: Vec<HeldClaim>, due_at: Timestamp) -> Result<(), StoreError>;

    /// Ends claims whose attempts ended without a result, or whose owner never learned of them: settles
    /// their deliveries with the crash outcome, or makes them due. Lost ones are ignored, so that it can
    /// be repeated until its outcome is known.
    async fn abandon(&self, claims: Vec<AbandonedClaim>, now: Timestamp) -> Result<(), StoreError>;

    /// Cancels a claimed delivery without an attempt, because its route does not take the event now,
    /// for this reason. Returns `false`, and changes nothing, if the claim was lost.
    async fn cancel_claimed(
        &self,
        claim: HeldClaim,
        reason: NotRoutedReason,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// The callbacks whose deliveries have ended, and that [`Self::end_callback`] has not ended yet, in
    /// the order of their deliveries' ids, after that of `after`.
    async fn list_due_callbacks(
        &self,
        after: Option<DeliveryId>,
        limit: usize,
    ) -> Result<Vec<DueCallback>, StoreError>;

    /// Ends a due callback, with a decision unless it was not requested. Changes nothing if it has ended already.
    async fn end_callback(
        &self,
        delivery: DeliveryId,
        result: CallbackResult,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Replaces the saved state of a destination; durable after `Ok`. With an outdated epoch nothing
    /// changes. If it has several lanes, the first one saves its state.
    async fn save_lane(
        &self,
        destination: DestinationId,
        epoch: LaneEpoch,
        state: SavedLaneState,
    ) -> Result<(), StoreError>;

    /// The saved states of all destinations that have one.
    async fn load_lanes(&self) -> Result<BTreeMap<DestinationId, SavedLaneState>, StoreError>;

    /// The last stored time, to judge the clock at a start.
    async fn load_clock(&self) -> Result<StoredClock, StoreError>;

    /// Replaces the stored time; durable after `Ok`.
    async fn save_clock(&self, clock: SavedClock) -> Result<(), StoreError>;

    /// Shortens waits that are too long because the wall clock was ahead and now went back by `step`:
    /// retries, first attempts, circuits and cool-downs. A time that a person chose stays. With a
    /// `step` of zero, only what was written in the future is shortened. Returns the number of
    /// deliveries.
    async fn shorten_waits(&self, now: Timestamp, step: Duration) -> Result<usize, StoreError>;
}
