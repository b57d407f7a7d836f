//! What the door needs of a store.

use std::sync::Arc;

use async_trait::async_trait;

use super::{NextStep, StoreError};
use crate::{
    event::NewEvent, ids::DeliveryId, ids::DestinationId, ids::EventId, ids::RequestId,
    ids::SourceId, key::DedupKey, sync::SyncResult, time::Timestamp,
};

/// What became of an event that asked to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmitResult {
    /// It is stored, with its key and its deliveries.
    Accepted {
        /// Deliveries that nobody has claimed: they wait for their turn, or their destination was
        /// removed a moment ago and they were not written.
        held: Vec<DeliveryId>,
        /// The delivery that was moved by what it says; see [`NewEvent::status_update`].
        confirmed: Option<ConfirmedDelivery>,
    },
    /// Another event with its key is stored already.
    Duplicate(DuplicateOf),
    /// It was made of a duplicate that became this event before; nothing was written. See
    /// [`NewEvent::from_duplicate`].
    DeliveredBefore(EventId),
    /// Its source was removed a moment ago; nothing was written.
    SourceGone,
}

/// A delivery that waited, and was moved by a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedDelivery {
    /// Which one.
    pub delivery: DeliveryId,
    /// Of which event.
    pub event: EventId,
    /// To where. The next of its ordering key may be due there now.
    pub destination: DestinationId,
    /// Attempts recorded.
    pub attempts: u32,
    /// What follows.
    pub next: NextStep,
}

/// What a duplicate is a duplicate of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateOf {
    /// The event that came first.
    pub original: EventId,
    /// Whether the bodies differ. The differing body is kept beside the original.
    pub bytes_differ: bool,
    /// Destinations to which the original goes once more, because all of it was dead.
    pub revived: Vec<DestinationId>,
}

/// What the door needs.
#[async_trait]
pub trait IngestStore: Send + Sync {
    /// Says from memory, without waiting, that an event with this key and these bytes is stored,
    /// and counts the sighting.
    ///
    /// Only remembers what was committed and has no dead delivery. `None` says nothing: ask
    /// [`Self::admit`].
    fn find_committed(
        &self,
        source: SourceId,
        key: &DedupKey,
        fingerprint: &[u8; 32],
        seen_at: Timestamp,
    ) -> Option<EventId>;

    /// Stores the events of one request, with their keys and deliveries.
    ///
    /// - **Durable.** After `Ok` they survive a power cut.
    /// - **Atomic.** All of one request, or nothing of it.
    /// - **Once.** An event whose source and key are known, within the key's time, writes only a
    ///   sighting; the answer names the original, which is durable too when this returns.
    /// - **In order.** A delivery with an ordering key that another unfinished one to the same
    ///   destination has is held, and not claimed, until all that came before it have ended.
    /// - A duplicate of an event whose deliveries are all dead makes a new delivery for each, if
    ///   it asks for that; but not for one that is dead because nobody knows whether it arrived.
    /// - **Heard.** What an accepted event says of something that we sent moves that delivery in
    ///   the same step; see [`NewEvent::status_update`]. A duplicate says nothing new.
    /// - **A copy once.** Of events that are made of the same duplicate the first is admitted, and
    ///   both stories say so in the same step; see [`NewEvent::from_duplicate`].
    ///
    /// The events are shared, because whoever asks needs them again once they are stored.
    async fn admit(&self, events: Arc<[NewEvent]>) -> Result<Vec<AdmitResult>, StoreError>;

    /// Lets a sender that came again wait for what is owed to a destination, and hurries that up.
    ///
    /// - What waits for its next attempt is due now, unless the destination asked for the wait, or
    ///   its last attempt may have arrived; that is told as its end for now.
    /// - What is dead is revived, if the sender asks for that and it can be mended; with everything
    ///   else of the event, if all of that is dead too.
    /// - What has ended otherwise is told.
    async fn join(&self, wish: JoinRequest) -> Result<JoinResult, StoreError>;
}

/// Who wants to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct JoinRequest {
    /// For which event.
    pub event: EventId,
    /// Going where.
    pub destination: DestinationId,
    /// The request that waits; names what it revives.
    pub request: RequestId,
    /// Whether it revives what is dead.
    pub revive: bool,
    /// When it came.
    pub now: Timestamp,
}

/// What there is to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinResult {
    /// Nothing is owed to that destination.
    NotOwed,
    /// The event is past its time, and only its key is still known; or it is dead and could be
    /// mended, but its body is past its time.
    Forgotten,
    /// Somebody stopped it.
    Cancelled,
    /// This delivery will come to an attempt, or is in one.
    Underway {
        /// The delivery.
        delivery: DeliveryId,
        /// Attempts recorded so far; the one to wait for is the next.
        attempts: u32,
        /// Destinations for which something is due that was not before.
        due: Vec<DestinationId>,
    },
    /// It has ended like this.
    Ended(SyncResult),
}
