//! What the lanes need of a store.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;

use super::StoreError;
use crate::{
    delivery::AttemptFailure, delivery::AttemptTiming, delivery::DeadReason,
    delivery::FailureClass, delivery::Lease, delivery::LeaseToken, delivery::ScheduleReason,
    event::Payload, ids::AttemptId, ids::DeliveryId, ids::DestinationId, ids::EventId,
    ids::RouteId, key::DedupKey, lane::SavedLaneState, name::Name, time::Timestamp,
};

/// A delivery in the hands of a lane.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    /// Which one.
    pub id: DeliveryId,
    /// Of which event.
    pub event: EventId,
    /// To where.
    pub destination: DestinationId,
    /// The name of the source from which its event came.
    pub source: Name,
    /// What makes its event the same as another.
    pub key: Option<DedupKey>,
    /// Until when it is ours.
    pub lease: Lease,
    /// Attempts made so far.
    pub attempts: u32,
    /// How many of them were throttled.
    pub throttled: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its event was received.
    pub received_at: Timestamp,
    /// What to send.
    pub payload: Payload,
    /// The route whose transform is still to be run on it; it failed when the event came.
    pub transform: Option<RouteId>,
    /// It has an ordering key, and others may wait for it.
    pub ordered: bool,
}

/// What a claim brings.
#[derive(Clone, Debug, Default)]
pub struct ClaimBatch {
    /// What may be tried.
    pub claimed: Vec<ClaimedDelivery>,
    /// What was due and had to be given up, because its body is missing or damaged.
    pub damaged: Vec<DeliveryId>,
}

/// One try, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Its id.
    pub id: AttemptId,
    /// Counted from 1 within its delivery.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// Where that time went.
    pub timing: AttemptTiming,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why there was none.
    pub failure: Option<AttemptFailure>,
    /// What kind of failure it was; `None` for a success.
    pub class: Option<FailureClass>,
    /// A short text for people.
    pub detail: Option<String>,
    /// The first part of the answer's body.
    pub response: Vec<u8>,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// It is done.
    Succeeded,
    /// It is tried again then.
    RetryAt(Timestamp),
    /// It is given up.
    Dead(DeadReason),
}

impl NextStep {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::RetryAt(_) => "retry",
            Self::Dead(_) => "dead",
        }
    }

    /// Why it is given up.
    pub const fn reason(self) -> Option<DeadReason> {
        match self {
            Self::Dead(reason) => Some(reason),
            Self::Succeeded | Self::RetryAt(_) => None,
        }
    }

    /// When it is tried again.
    pub const fn due_at(self) -> Option<Timestamp> {
        match self {
            Self::RetryAt(due_at) => Some(due_at),
            Self::Succeeded | Self::Dead(_) => None,
        }
    }
}

/// The end of one attempt.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Of which delivery.
    pub delivery: DeliveryId,
    /// To where; as the claim said it.
    pub destination: DestinationId,
    /// When the delivery was created; as the claim said it.
    pub created_at: Timestamp,
    /// Proof of the claim.
    pub token: LeaseToken,
    /// When it ended.
    pub at: Timestamp,
    /// What was tried.
    pub attempt: AttemptRecord,
    /// What follows.
    pub next: NextStep,
    /// If it is tried again: why then.
    pub schedule_reason: Option<ScheduleReason>,
    /// Others may wait for it; see [`ClaimedDelivery::ordered`].
    pub ordered: bool,
    /// That a message was sent, for those destinations that count and name them.
    pub sent: Option<SentMessage>,
}

/// That a message was sent, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// What the service calls it; statuses about it have this name. `None` if that is not known.
    pub id: Option<String>,
    /// The day on which it counts, in days since 1970, by the calendar of its destination.
    pub day: i32,
}

/// Whether a settlement counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// It is recorded.
    Recorded,
    /// It is recorded, but this follows: a status that came during the attempt said so. Or the claim
    /// was lost, and the delivery has succeeded by this answer all the same.
    Overruled(NextStep),
    /// Somebody else holds the delivery now, or it was cancelled; no attempt was written.
    LeaseLost,
}

/// A claim that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Proof of it.
    pub token: LeaseToken,
}

/// What the lanes need.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Hands over up to `limit` deliveries of `destination` that are due, oldest first; fewer, but
    /// at least one, where their bodies are large. One whose body is damaged is dead after this.
    ///
    /// Each is `in_flight` under `lease` when this returns; nobody else gets it before the lease
    /// has run out.
    async fn claim_due(
        &self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
        limit: usize,
    ) -> Result<ClaimBatch, StoreError>;

    /// Hands over the delivery of `destination` that is due first, whenever that is; like
    /// [`Self::claim_due`] otherwise.
    ///
    /// Before its time nothing is handed over that was planned for later ([`NewDelivery::delay`]),
    /// or whose last attempt was ambiguous, because a word of it may still come. It may look no
    /// further than a bounded number of those.
    ///
    /// [`NewDelivery::delay`]: crate::event::NewDelivery::delay
    async fn claim_next(
        &self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
    ) -> Result<ClaimBatch, StoreError>;

    /// When the next delivery of `destination` is due, if one waits.
    async fn next_due(&self, destination: DestinationId) -> Result<Option<Timestamp>, StoreError>;

    /// Records an attempt and what follows from it, in one step; durable after `Ok`.
    ///
    /// When a delivery with an ordering key ends here, the next one that has it becomes due in the
    /// same step. With a token that is not the current one nothing changes, but that a success which
    /// names what was sent is heard as a status would be.
    ///
    /// Where a status came during the attempt (see [`Confirmation`]), what it said follows if
    /// nobody knows how the attempt ended, and a success whatever the attempt was told.
    ///
    /// [`Confirmation`]: crate::event::Confirmation
    async fn settle(&self, settlement: Settlement) -> Result<SettleResult, StoreError>;

    /// Notes what holds if nothing more is heard of the attempt that is about to be made; durable
    /// after `Ok`, and in place of what was noted before.
    ///
    /// Should the claim end without [`Self::settle`] or [`Self::release`], because its lease runs
    /// out or the process dies, the delivery is settled as `will` says, at that time, and is not
    /// simply due again: what may have been sent is not sent again by a crash. A will has a failure
    /// and no answer. With a token that is not the current one nothing changes.
    async fn record_crash_outcome(&self, will: Settlement) -> Result<SettleResult, StoreError>;

    /// How many messages were sent to `destination` on that day; see [`SentMessage::day`].
    async fn count_sent_on(&self, destination: DestinationId, day: i32) -> Result<u64, StoreError>;

    /// Prolongs claims. Those that were lost already are left alone.
    async fn renew(&self, held: Vec<HeldClaim>, until: Timestamp) -> Result<(), StoreError>;

    /// Gives claims back untried: due at `due_at`, which may be later than now, no attempt counted.
    async fn release(&self, held: Vec<HeldClaim>, due_at: Timestamp) -> Result<(), StoreError>;

    /// Makes deliveries whose lease has run out due again, or settles them as their will says; says
    /// to which destinations they go.
    async fn release_expired(&self, now: Timestamp) -> Result<Vec<DestinationId>, StoreError>;

    /// Keeps what is to say of a lane, in place of what was kept before; durable after `Ok`.
    async fn save_lane(
        &self,
        destination: DestinationId,
        state: SavedLaneState,
    ) -> Result<(), StoreError>;

    /// What is kept of each lane of which there is something to say.
    async fn lanes(&self) -> Result<BTreeMap<DestinationId, SavedLaneState>, StoreError>;
}
