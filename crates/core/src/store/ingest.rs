//! The store trait of the receive path.

use std::sync::Arc;

use async_trait::async_trait;
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, RequestId, SourceId},
    store_error::StoreError,
    time::Timestamp,
};

use super::NextStep;
use crate::{
    event::{DedupKeyClaim, DuplicateReason, NewEvent},
    sync::SyncResult,
};

/// The result of admitting an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmitResult {
    /// Stored with its key and deliveries.
    Accepted {
        /// Deliveries that must not start now, even with a slot: they are held for ordering, their lane has
        /// another owner, or they were not written because their destination was just deleted.
        held: Vec<DeliveryId>,
        /// The delivery that was moved by [`NewEvent::status_update`].
        confirmed: Option<ConfirmedDelivery>,
        /// The event that held its key with another body.
        key_conflict: Option<EventId>,
    },
    Duplicate(DuplicateOf),
    /// Its duplicate was already delivered as this event; nothing was written. See
    /// [`NewEvent::from_duplicate`].
    DeliveredBefore(EventId),
    /// Its source was just deleted; nothing was written.
    SourceGone,
    /// This event holds its key with another body; nothing was written. See
    /// [`NewEvent::refuses_other_body`].
    OtherBody(EventId),
}

/// A waiting delivery that was moved by a status update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedDelivery {
    pub delivery: DeliveryId,
    pub event: EventId,
    /// The next delivery of the ordering key may be due there now.
    pub destination: DestinationId,
    pub attempts: u32,
    pub next: NextStep,
}

/// The original of a duplicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateOf {
    pub original: EventId,
    pub reason: DuplicateReason,
    /// Whether the bodies differ. The different body is stored with the original.
    pub bytes_differ: bool,
    /// Destinations to which the original is redelivered, because all of its deliveries were dead.
    pub revived: Vec<DestinationId>,
}

/// The store operations of the receive path.
#[async_trait]
pub trait IngestStore: Send + Sync {
    /// Looks up in memory whether an event with this key and these bytes is stored, and counts the
    /// duplicate.
    ///
    /// Only knows committed events without a dead delivery. `None` proves nothing: call
    /// [`Self::admit`].
    fn find_committed(
        &self,
        source: SourceId,
        claim: &DedupKeyClaim,
        fingerprint: &[u8; 32],
        seen_at: Timestamp,
    ) -> Option<EventId>;

    /// Stores the events of one request, with their keys and deliveries.
    ///
    /// - **Durable.** After `Ok` they survive a power cut.
    /// - **Atomic.** All of one request, or nothing of it.
    /// - **Once.** An event whose key is known for its source, and not expired, writes only
    ///   a duplicate; the result names the original, which is durable too.
    /// - **No body is lost.** Another body under a known key is stored: as a new event with a key
    ///   conflict if the claim says so, otherwise with the original; and as a new event as well if the
    ///   original has no room for it, or was removed. From then on the key belongs to the new event, and
    ///   each body that was accepted under it stays known until its own window ends.
    /// - **Signed bytes once.** An event whose signed bytes are known is a duplicate whatever its key;
    ///   see [`NewEvent::signed_bytes`].
    /// - **In order.** A delivery is held, and not claimed, while an earlier one with the same
    ///   destination and ordering key has not ended.
    /// - **Revival.** A duplicate of an event whose deliveries are all dead creates a new delivery for
    ///   each, if requested; but not for one with an ambiguous outcome.
    /// - **Status updates.** The status update of an accepted event is applied in the same transaction;
    ///   see [`NewEvent::status_update`]. That of a duplicate is ignored.
    /// - **Delivered anyway once.** Of events created from the same duplicate only the first is
    ///   admitted, with a decision on both events; see [`NewEvent::from_duplicate`].
    ///
    /// The events are shared, because the caller needs them after they are stored.
    async fn admit(&self, events: Arc<[NewEvent]>) -> Result<Vec<AdmitResult>, StoreError>;

    /// Lets a sender that retries wait for the delivery to a destination, and brings it forward.
    ///
    /// - A scheduled delivery is due now, unless the destination asked for the wait or the last attempt
    ///   may have arrived: then that attempt is the result.
    /// - A dead delivery is revived if requested and its reason allows it; together with all others of
    ///   the event if all are dead.
    /// - Otherwise the result of an ended delivery is returned.
    async fn join(&self, request: JoinRequest) -> Result<JoinResult, StoreError>;
}

/// A request to wait for a delivery.
#[derive(Clone, Copy, Debug)]
pub struct JoinRequest {
    pub event: EventId,
    pub destination: DestinationId,
    /// The waiting request; part of the ids of revived deliveries.
    pub request: RequestId,
    /// Whether to revive dead deliveries.
    pub revive: bool,
    pub now: Timestamp,
}

/// The result of joining a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinResult {
    /// The event has no delivery to that destination.
    NoDelivery,
    /// Retention has removed the event, or the body of a delivery that could be revived.
    Expired,
    /// The delivery was cancelled.
    Cancelled,
    /// An attempt is pending or running.
    InProgress {
        delivery: DeliveryId,
        /// Recorded attempts; the next one is awaited.
        attempts: u32,
        /// Destinations with deliveries that became due.
        due: Vec<DestinationId>,
    },
    /// The delivery has ended.
    Ended(SyncResult),
}
