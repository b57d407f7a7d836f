//! What the API and the upkeep need of a store.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use async_trait::async_trait;

use super::{
    ConfigChange, Configuration, DeliveryDetail, DeliveryFilter, DeliveryRow, DuplicateDetail,
    EventDetail, EventFilter, EventRow, ListPage, PageRequest, StoreError,
};
use crate::{
    access::ApiToken, attribute::AttributeFilter, dead_letters::DeadLetterGroup,
    dead_letters::DeadLetterGroupCursor, dead_letters::DeadLetterGroupFilter,
    decision::EventDecision, delivery::DeadReason, delivery::state::DeliveryStatus,
    event::DuplicateId, event::Payload, ids::DeliveryId, ids::DestinationId, ids::EventId,
    ids::RequestId, ids::TokenId, refused::RefusedFilter, refused::RefusedRequest,
    requests::ReceivedRequest, requests::RequestCursor, requests::RequestFilter,
    rollup::RollupCounts, rollup::RollupQuery, time::Timestamp,
};

/// What became of a wish to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayResult {
    /// This new delivery takes over; it is due at once.
    Created {
        /// The new delivery.
        delivery: DeliveryId,
        /// Where it goes.
        destination: DestinationId,
    },
    /// There is no such delivery.
    NotFound,
    /// It is not final, or its destination is gone.
    NotReplayable(DeliveryStatus),
    /// There is nothing left to send: retention has removed its body.
    BodyRemoved,
    /// The event was replayed to that destination less than the limit ago.
    TooSoon {
        /// When it may be replayed again.
        again_at: Timestamp,
    },
}

/// What became of a wish to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelResult {
    /// It is cancelled.
    Done {
        /// Where it would have gone; the next of its ordering key may be due there now.
        destination: DestinationId,
    },
    /// There is no such delivery.
    NotFound,
    /// It has ended, or is being tried.
    NotCancellable(DeliveryStatus),
}

/// Counts since the beginning, exact and kept with the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Events stored.
    pub events: u64,
    /// Events stored without a key.
    pub no_key: u64,
    /// Duplicates seen.
    pub duplicates: u64,
    /// Attempts recorded.
    pub attempts: u64,
    /// Attempts that were not the first of their delivery.
    pub retries: u64,
    /// Deliveries that are in each status now, as it is written in their rows.
    pub by_status: BTreeMap<DeliveryStatus, u64>,
    /// For each reason: ever dead, and dead now.
    pub dead: BTreeMap<DeadReason, DeadReasonCount>,
}

impl StoreCounts {
    /// Counts as `held` what is shown as such; see [`AdminStore::count_held`].
    pub fn move_to_held(&mut self, held: &BTreeMap<DeliveryStatus, u64>) {
        for (status, many) in held {
            let counted = self.by_status.entry(*status).or_default();
            *counted = counted.saturating_sub(*many);
            *self.by_status.entry(DeliveryStatus::Held).or_default() += many;
        }
    }
}

/// How many deliveries died for a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadReasonCount {
    /// Ever.
    pub total: u64,
    /// Now.
    pub pending: u64,
}

/// How the store does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// The disk was full at the last try.
    pub full: bool,
    /// The store has failed; the process must end.
    pub failed: Option<String>,
    /// Bytes of the database file.
    pub store_bytes: u64,
    /// Bytes of its log.
    pub wal_bytes: u64,
    /// Bytes left on the disk that holds it; `None` where that is not ours to know.
    pub disk_free: Option<u64>,
    /// Jobs that wait for the next commit.
    pub queued: usize,
}

/// What retention removed in one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Events, with their bodies, deliveries and attempts.
    pub events: usize,
    /// Bodies of events that stay.
    pub bodies: usize,
    /// Attempts of deliveries that stay.
    pub attempts: usize,
    /// Keys whose time had passed.
    pub keys: usize,
    /// There may be more: this was not all that there is to look at.
    pub more: bool,
}

/// How many messages were sent on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailySendCount {
    /// To where.
    pub destination: DestinationId,
    /// In days since 1970, by the calendar of the destination.
    pub day: i32,
    /// So many.
    pub sent: u64,
}

/// What the API and the upkeep need.
#[async_trait]
pub trait AdminStore: Send + Sync {
    /// All that is configured.
    async fn configuration(&self) -> Result<Configuration, StoreError>;

    /// Makes the changes, all or none, in order.
    async fn change(&self, changes: Vec<ConfigChange>, now: Timestamp) -> Result<(), StoreError>;

    /// Events, newest first.
    async fn events(
        &self,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<ListPage<EventRow, EventId>, StoreError>;

    /// The newest events that have each of these, newest first: of each at most `limit`. The same as
    /// [`Self::events`] finds with each of them alone, at about the cost of one.
    async fn list_events_with_each(
        &self,
        wanted: Vec<AttributeFilter>,
        limit: usize,
    ) -> Result<Vec<Vec<EventRow>>, StoreError>;

    /// One event.
    async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError>;

    /// The row of one event alone, without counts of its deliveries.
    async fn event_row(&self, id: EventId) -> Result<Option<EventRow>, StoreError>;

    /// One of the duplicates of an event that are kept.
    async fn duplicate(&self, copy: DuplicateId) -> Result<Option<DuplicateDetail>, StoreError>;

    /// The body of one event as it came; `None` when there is no event or its body was removed.
    async fn body(&self, id: EventId) -> Result<Option<Payload>, StoreError>;

    /// Deliveries, newest first.
    async fn deliveries(
        &self,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<ListPage<DeliveryRow, DeliveryId>, StoreError>;

    /// All deliveries of these events, oldest first.
    async fn list_deliveries_of(
        &self,
        events: Vec<EventId>,
    ) -> Result<Vec<DeliveryRow>, StoreError>;

    /// One delivery.
    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError>;

    /// Groups of dead letters of which there is at least one, the one that grew last first.
    ///
    /// Their counts are exact: they change in the step that a delivery dies or stops being dead in.
    async fn list_dead_letter_groups(
        &self,
        filter: DeadLetterGroupFilter,
        page: PageRequest<DeadLetterGroupCursor>,
    ) -> Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>, StoreError>;

    /// What is sent for a delivery; `None` when there is no delivery, or its body was removed, or its
    /// route's transform has made none yet.
    async fn find_delivery_body(&self, id: DeliveryId) -> Result<Option<Payload>, StoreError>;

    /// Keeps a decision; of each event and kind a bounded number.
    async fn record_decision(&self, decision: EventDecision) -> Result<(), StoreError>;

    /// Keeps a refused request, in place of the oldest of its source and reason if there are
    /// [`SAMPLES_MAX`](crate::refused::SAMPLES_MAX) already.
    async fn store_refused(&self, refused: Vec<RefusedRequest>) -> Result<(), StoreError>;

    /// Refused requests, newest first.
    async fn refused(
        &self,
        filter: RefusedFilter,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RefusedRequest>, StoreError>;

    /// Requests that came to the door, whatever became of them, newest first. Sightings are in the
    /// order in which they were written, which may be a moment off.
    async fn list_requests(
        &self,
        filter: RequestFilter,
        page: PageRequest<RequestCursor>,
    ) -> Result<ListPage<ReceivedRequest, RequestCursor>, StoreError>;

    /// One refused request.
    async fn find_refused(&self, id: RequestId) -> Result<Option<RefusedRequest>, StoreError>;

    /// Makes a new delivery of the same event to the same destination and marks `id` as replayed.
    ///
    /// Compare-and-set: of two at the same time one is `Created`, the other `TooSoon` or
    /// `NotReplayable`. The event's key plays no part, so a replay is never a duplicate. The same
    /// wish again, `new` included, is `Created` again and changes nothing.
    async fn replay(
        &self,
        id: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
    ) -> Result<ReplayResult, StoreError>;

    /// Cancels a delivery that waits: `pending`, `scheduled` or `held`. The next one of its ordering
    /// key becomes due in the same step.
    async fn cancel(&self, id: DeliveryId, now: Timestamp) -> Result<CancelResult, StoreError>;

    /// Cancels one bounded slice of what waits for destinations that were deleted; says whether there
    /// may be more.
    ///
    /// [`Self::change`] does as much itself, so that a destination to which little is owed is done with
    /// at once. Until its slice has come a delivery waits as before, but nobody can claim it.
    async fn cancel_for_deleted_destinations(&self) -> Result<bool, StoreError>;

    /// The counts, as of a recent commit.
    fn counts(&self) -> StoreCounts;

    /// How many deliveries, by the status in their rows, are shown as `held` because their
    /// destination is paused or its circuit is open.
    async fn count_held(&self) -> Result<BTreeMap<DeliveryStatus, u64>, StoreError>;

    /// When the delivery that waits longest for each destination was due, if it is due by `now`.
    async fn oldest_due(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<DestinationId, Timestamp>, StoreError>;

    /// How many messages were sent on each of these days to each destination that is there; days
    /// without any are left out. See [`Sent::day`](super::Sent::day).
    async fn count_sent_by_day(
        &self,
        days: RangeInclusive<i32>,
    ) -> Result<Vec<DailySendCount>, StoreError>;

    /// How the store does.
    fn health(&self) -> StoreHealth;

    /// Returns when the store has failed.
    async fn wait_for_failure(&self) -> String;

    /// Removes one bounded slice of what is past its time at `now`: events, bodies and attempts as
    /// the `retention` of their source says (see [`Keep::due`]), where `events_kept` is the span of
    /// events if it says nothing; keys that expired; old buckets of [`Self::rollups`]; days of
    /// [`Self::count_sent_by_day`] that are [`SENT_DAYS_KEPT`] past; and what is known of files that are
    /// [unused](crate::media::unused_cutoff).
    ///
    /// - Nothing of an event that has a delivery that is not final is touched.
    /// - A source that was deleted keeps as it said last.
    /// - What was not final when its time came is looked at again after a tenth of its age, at the
    ///   latest a day later.
    ///
    /// [`Keep::due`]: crate::retention::Keep::due
    async fn prune(&self, events_kept: Duration, now: Timestamp)
    -> Result<PruneReport, StoreError>;

    /// Sorts a bounded slice of what was counted into the buckets of [`Self::rollups`]; says
    /// whether there is more. What they say is the same before and after.
    async fn roll_up(&self) -> Result<bool, StoreError>;

    /// What happened in each bucket, oldest first; those in which nothing did are left out.
    ///
    /// Exact: counted in the transaction of what it counts, and not changed by [`Self::prune`]
    /// before the bucket's own time has passed.
    async fn rollups(
        &self,
        query: RollupQuery,
    ) -> Result<Vec<(Timestamp, RollupCounts)>, StoreError>;

    /// Keeps an API token. One with the same hash stays, and takes on its role and its end.
    ///
    /// A session is kept only while the token is there that it was begun with; says whether it is
    /// kept.
    async fn add_token(&self, token: ApiToken) -> Result<bool, StoreError>;

    /// All API tokens, oldest first, also those whose time has passed.
    async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError>;

    /// Removes an API token, unless nobody could change anything after that.
    async fn remove_token(
        &self,
        id: TokenId,
        now: Timestamp,
    ) -> Result<RemoveTokenResult, StoreError>;
}

/// What became of a wish to remove a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveTokenResult {
    /// It is gone.
    Removed,
    /// There is no such token.
    NotFound,
    /// It is the last admin token that has not expired; it stays.
    LastAdmin,
}

/// Days for which it is known how many messages were sent.
pub const SENT_DAYS_KEPT: i32 = 400;

/// A delivery may be replayed once in this time.
pub const REPLAY_INTERVAL: Duration = Duration::from_secs(60);
