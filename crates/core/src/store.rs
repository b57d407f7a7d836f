//! What the gateway needs of a store, as whole steps with a stated guarantee.
//!
//! A method is one transaction and one promise. Callers never hold a transaction, so none is open
//! during a network call. Both the embedded store and a server database implement these traits; the
//! conformance suite in `surehook-store` is the definition of "the same".
//!
//! By caller: the door sees [`IngestStore`], the lanes see [`DeliveryStore`], the API and the upkeep
//! see [`AdminStore`], replay jobs see [`ReplayStore`].

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    access::Token,
    decision::{Decision, Unrouted},
    delivery::{Class, DeadReason, Failure, Lease, LeaseToken, state::Status},
    destination::DestinationSpec,
    event::{NewEvent, Payload, RequestHead},
    idempotency::IdempotencyStore,
    ids::{AttemptId, DeliveryId, DestinationId, EventId, RequestId, RouteId, SourceId, TokenId},
    key::DedupKey,
    lane::LaneState,
    name::Name,
    refused::{RefusedFilter, RefusedRequest},
    replay::ReplayStore,
    rollup::{RollupQuery, Tally},
    route::RouteSpec,
    source::SourceSpec,
    sync::Ending,
    time::Timestamp,
};

/// Why a step was not taken, split by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Too much is waiting already. Nothing was written; try again in a moment.
    #[error("the store has more work waiting than it may take on")]
    Overloaded,
    /// There is no room on the disk. Nothing was written; it works again when there is room.
    #[error("the disk that holds the data is full")]
    Full,
    /// It is not known whether the step was committed. The store takes no more work and the
    /// process must end: what is on the disk decides.
    #[error("the store has failed and takes no more work: {0}")]
    Failed(String),
    /// A statement was refused; nothing of this step was written.
    #[error("the store refused the step: {0}")]
    Refused(String),
    /// A row says what cannot be.
    #[error("the store holds something that cannot be: {0}")]
    Corrupt(String),
}

/// What became of an event that asked to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It is stored, with its key and its deliveries.
    Accepted {
        /// Deliveries that nobody has claimed: they wait for their turn, or their destination was
        /// removed a moment ago and they were not written.
        held: Vec<DeliveryId>,
    },
    /// Another event with its key is stored already.
    Duplicate(Duplicate),
    /// Its source was removed a moment ago; nothing was written.
    SourceGone,
}

/// What a duplicate is a duplicate of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
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
    fn recall(
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
    ///   it asks for that.
    async fn admit(&self, events: Vec<NewEvent>) -> Result<Vec<Admitted>, StoreError>;

    /// Lets a sender that came again wait for what is owed to a destination, and hurries that up.
    ///
    /// - What waits for its next attempt is due now, unless the destination asked for the wait; that
    ///   is told as its end for now.
    /// - What is dead is revived, if the sender asks for that and it can be mended; with everything
    ///   else of the event, if all of that is dead too.
    /// - What has ended otherwise is told.
    async fn join(&self, wish: JoinWish) -> Result<Joined, StoreError>;
}

/// Who wants to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct JoinWish {
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
pub enum Joined {
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
    Ended(Ending),
}

/// A delivery in the hands of a lane.
#[derive(Clone, Debug)]
pub struct Claimed {
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

/// One try, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Counted from 1 within its delivery.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why there was none.
    pub failure: Option<Failure>,
    /// What kind of failure it was; `None` for a success.
    pub class: Option<Class>,
    /// A short text for people.
    pub detail: Option<String>,
    /// The first part of the answer's body.
    pub response: Vec<u8>,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is done.
    Succeeded,
    /// It is tried again then.
    RetryAt(Timestamp),
    /// It is given up.
    Dead(DeadReason),
}

impl Next {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::RetryAt(_) => "retry",
            Self::Dead(_) => "dead",
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
    pub attempt: Attempt,
    /// What follows.
    pub next: Next,
    /// Others may wait for it; see [`Claimed::ordered`].
    pub ordered: bool,
}

/// Whether a settlement counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is recorded.
    Recorded,
    /// Somebody else holds the delivery now, or it was cancelled; nothing was written.
    LeaseLost,
}

/// A claim that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Proof of it.
    pub token: LeaseToken,
}

/// What the lanes need.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Hands over up to `limit` deliveries of `destination` that are due, oldest first; fewer, but
    /// at least one, where their bodies are large.
    ///
    /// Each is `in_flight` under `lease` when this returns; nobody else gets it before the lease
    /// has run out.
    async fn claim_due(
        &self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
        limit: usize,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// Hands over the delivery of `destination` that is due first, whenever that is; like
    /// [`Self::claim_due`] otherwise.
    async fn claim_next(
        &self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
    ) -> Result<Option<Claimed>, StoreError>;

    /// When the next delivery of `destination` is due, if one waits.
    async fn next_due(&self, destination: DestinationId) -> Result<Option<Timestamp>, StoreError>;

    /// Records an attempt and what follows from it, in one step; durable after `Ok`.
    ///
    /// When a delivery with an ordering key ends here, the next one that has it becomes due in the
    /// same step. With a token that is not the current one nothing changes.
    async fn settle(&self, settlement: Settlement) -> Result<Settled, StoreError>;

    /// Prolongs claims. Those that were lost already are left alone.
    async fn renew(&self, held: Vec<Held>, until: Timestamp) -> Result<(), StoreError>;

    /// Gives claims back untried: due at once, no attempt counted.
    async fn release(&self, held: Vec<Held>, now: Timestamp) -> Result<(), StoreError>;

    /// Makes deliveries whose lease has run out due again; says to which destinations they go.
    async fn release_expired(&self, now: Timestamp) -> Result<Vec<DestinationId>, StoreError>;

    /// Keeps what is to say of a lane, in place of what was kept before; durable after `Ok`.
    async fn save_lane(
        &self,
        destination: DestinationId,
        state: LaneState,
    ) -> Result<(), StoreError>;

    /// What is kept of each lane of which there is something to say.
    async fn lanes(&self) -> Result<BTreeMap<DestinationId, LaneState>, StoreError>;
}

/// A stored object that people configure, with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<I, S> {
    /// Its id.
    pub id: I,
    /// What was written.
    pub spec: S,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// Everything that people configure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// All sources, by name.
    pub sources: Vec<Stored<SourceId, SourceSpec>>,
    /// All destinations, by name.
    pub destinations: Vec<Stored<DestinationId, DestinationSpec>>,
    /// All routes, oldest first.
    pub routes: Vec<Stored<RouteId, RouteSpec>>,
}

impl Configuration {
    /// What it would be after `changes`; the store does the same to its tables.
    pub fn apply(&mut self, changes: &[Change], now: Timestamp) {
        for change in changes {
            match change {
                // Routes follow their ends through a change of name.
                Change::PutSource(id, spec) => {
                    let before = put(&mut self.sources, *id, spec, now).map(|old| old.name);
                    let moved = self.routes.iter_mut().map(|route| &mut route.spec.from);
                    rename(moved, before.as_ref(), &spec.name);
                }
                Change::PutDestination(id, spec) => {
                    let before = put(&mut self.destinations, *id, spec, now).map(|old| old.name);
                    let moved = self.routes.iter_mut().map(|route| &mut route.spec.to);
                    rename(moved, before.as_ref(), &spec.name);
                }
                Change::PutRoute(id, spec) => {
                    put(&mut self.routes, *id, spec, now);
                }
                Change::DeleteSource(id) => {
                    let name = remove(&mut self.sources, *id).map(|spec| spec.name);
                    self.routes.retain(|route| Some(&route.spec.from) != name.as_ref());
                }
                Change::DeleteDestination(id) => {
                    let name = remove(&mut self.destinations, *id).map(|spec| spec.name);
                    self.routes.retain(|route| Some(&route.spec.to) != name.as_ref());
                }
                Change::DeleteRoute(id) => self.routes.retain(|route| route.id != *id),
            }
        }
        self.sources.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        self.destinations.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    }
}

/// Writes one entry; gives back what it replaced.
fn put<I: PartialEq, S: Clone>(
    list: &mut Vec<Stored<I, S>>,
    id: I,
    spec: &S,
    now: Timestamp,
) -> Option<S> {
    let spec = spec.clone();
    if let Some(stored) = list.iter_mut().find(|stored| stored.id == id) {
        stored.updated_at = now;
        return Some(std::mem::replace(&mut stored.spec, spec));
    }
    list.push(Stored { id, spec, created_at: now, updated_at: now });
    None
}

fn rename<'a>(names: impl Iterator<Item = &'a mut Name>, from: Option<&Name>, to: &Name) {
    if let Some(from) = from {
        names.filter(|name| *name == from).for_each(|name| *name = to.clone());
    }
}

fn remove<I: PartialEq, S>(list: &mut Vec<Stored<I, S>>, id: I) -> Option<S> {
    let at = list.iter().position(|stored| stored.id == id)?;
    Some(list.remove(at).spec)
}

/// One change to the configuration.
#[derive(Clone, Debug)]
pub enum Change {
    /// Creates a source under this id, or replaces the one that has it.
    PutSource(SourceId, SourceSpec),
    /// Creates a destination under this id, or replaces the one that has it. One that has no order
    /// (any more) makes what is held for it due.
    PutDestination(DestinationId, DestinationSpec),
    /// Creates a route under this id, or replaces the one that has it.
    PutRoute(RouteId, RouteSpec),
    /// Removes a source and its routes. Its events stay.
    DeleteSource(SourceId),
    /// Removes a destination and its routes. What it was still owed is cancelled.
    DeleteDestination(DestinationId),
    /// Removes a route.
    DeleteRoute(RouteId),
}

/// A place in a list, newest first: the id after which it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<I> {
    /// Goes on after this one.
    pub after: Option<I>,
    /// At most this many.
    pub limit: usize,
}

/// One page of a list.
///
/// A page costs a bounded number of rows looked at, so one that is narrowed by a rare thing may be
/// short, or even empty, and still have a next one.
#[derive(Clone, Debug)]
pub struct Listed<R, I> {
    /// What was found, newest first.
    pub rows: Vec<R>,
    /// Where the next page goes on; `None` at the end.
    pub next: Option<I>,
}

/// Which events to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only of this source.
    pub source: Option<SourceId>,
    /// Only with this key; needs the source.
    pub key: Option<String>,
    /// Only with a delivery that has this status.
    pub status: Option<Status>,
    /// Only with this text in the key, or in a body that is not too large to look into.
    pub search: Option<String>,
    /// Only received at this time or later.
    pub since: Option<Timestamp>,
    /// Only received before this time.
    pub until: Option<Timestamp>,
}

/// An event without its body.
#[derive(Clone, Debug)]
pub struct EventRow {
    /// Its id.
    pub id: EventId,
    /// The request it came with.
    pub request_id: RequestId,
    /// Its source.
    pub source: SourceId,
    /// Its key, if it has one.
    pub key: Option<String>,
    /// When it came.
    pub received_at: Timestamp,
    /// The length of its body.
    pub body_bytes: u64,
    /// How often it came again.
    pub duplicates: u64,
    /// When it last came again.
    pub last_duplicate_at: Option<Timestamp>,
    /// Whether retention has removed its body.
    pub body_removed: bool,
}

/// A later sighting of an event.
#[derive(Clone, Debug)]
pub struct DuplicateRow {
    /// When.
    pub seen_at: Timestamp,
    /// Whether its body differed.
    pub bytes_differ: bool,
    /// The differing body, unless retention has removed it.
    pub body: Option<Bytes>,
}

/// Attempts of one event that are told with it; each delivery has its own list of all of them.
pub const ATTEMPTS_TOLD: usize = 1000;

/// An event with all that is known of it but its body.
#[derive(Clone, Debug)]
pub struct EventDetail {
    /// The event.
    pub event: EventRow,
    /// How it came; `None` when its body was removed.
    pub head: Option<RequestHead>,
    /// The SHA-256 of its body.
    pub fingerprint: [u8; 32],
    /// Its deliveries, oldest first.
    pub deliveries: Vec<DeliveryRow>,
    /// The first sightings of duplicates, oldest first.
    pub duplicates: Vec<DuplicateRow>,
    /// How the request proved where it comes from.
    pub verified_by: Option<String>,
    /// Where the key was found.
    pub key_from: Option<String>,
    /// The routes that led to no delivery.
    pub unrouted: Vec<Unrouted>,
    /// What happened to it later, oldest first.
    pub decisions: Vec<Decision>,
    /// The first [`ATTEMPTS_TOLD`] attempts of all its deliveries, without the answers' bodies,
    /// oldest first; none of deliveries whose attempts retention has removed.
    pub attempts: Vec<AttemptRow>,
}

/// Which deliveries to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryFilter {
    /// Only with this status.
    pub status: Option<Status>,
    /// Only to this destination.
    pub destination: Option<DestinationId>,
    /// Only dead for this reason; goes with status `dead`.
    pub reason: Option<DeadReason>,
    /// Only of events of this source.
    pub source: Option<SourceId>,
    /// Only of this event.
    pub event: Option<EventId>,
    /// Only with a last attempt that failed like this.
    pub class: Option<Class>,
    /// Only with a last attempt that was answered with this HTTP status.
    pub code: Option<u16>,
    /// Only created at this time or later.
    pub since: Option<Timestamp>,
    /// Only created before this time.
    pub until: Option<Timestamp>,
}

/// A delivery.
#[derive(Clone, Debug)]
pub struct DeliveryRow {
    /// Its id.
    pub id: DeliveryId,
    /// Of which event.
    pub event: EventId,
    /// To where.
    pub destination: DestinationId,
    /// Where it stands. What waits for a destination that is paused, or whose circuit is open, is
    /// `held`, whatever is written in its row.
    pub status: Status,
    /// Its ordering key.
    pub order_key: Option<String>,
    /// Why it is dead.
    pub reason: Option<DeadReason>,
    /// Attempts recorded.
    pub attempts: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it is tried next.
    pub due_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Which delivery it took over from.
    pub replay_of: Option<DeliveryId>,
    /// Which delivery took over from it.
    pub replayed_by: Option<DeliveryId>,
}

/// A delivery with its attempts, oldest first.
#[derive(Clone, Debug)]
pub struct DeliveryDetail {
    /// The delivery.
    pub delivery: DeliveryRow,
    /// Its attempts; none when retention has removed them.
    pub attempts: Vec<AttemptRow>,
}

/// An attempt and what followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// Of which delivery.
    pub delivery: DeliveryId,
    /// The attempt.
    pub attempt: Attempt,
    /// What followed; `None` for one that was recorded before this was kept.
    pub next: Option<Next>,
}

/// What became of a wish to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
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
    NotReplayable(Status),
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
pub enum Cancelled {
    /// It is cancelled.
    Done {
        /// Where it would have gone; the next of its ordering key may be due there now.
        destination: DestinationId,
    },
    /// There is no such delivery.
    NotFound,
    /// It has ended, or is being tried.
    NotCancellable(Status),
}

/// Counts since the beginning, exact and kept with the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
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
    pub by_status: BTreeMap<Status, u64>,
    /// For each reason: ever dead, and dead now.
    pub dead: BTreeMap<DeadReason, DeadCount>,
}

impl Counts {
    /// Counts as `held` what is shown as such; see [`AdminStore::held_back`].
    pub fn hold_back(&mut self, held: &BTreeMap<Status, u64>) {
        for (status, many) in held {
            let counted = self.by_status.entry(*status).or_default();
            *counted = counted.saturating_sub(*many);
            *self.by_status.entry(Status::Held).or_default() += many;
        }
    }
}

/// How many deliveries died for a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadCount {
    /// Ever.
    pub total: u64,
    /// Now.
    pub pending: u64,
}

/// How the store does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
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
pub struct Pruned {
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

/// What the API and the upkeep need.
#[async_trait]
pub trait AdminStore: Send + Sync {
    /// All that is configured.
    async fn configuration(&self) -> Result<Configuration, StoreError>;

    /// Makes the changes, all or none, in order.
    async fn change(&self, changes: Vec<Change>, now: Timestamp) -> Result<(), StoreError>;

    /// Events, newest first.
    async fn events(
        &self,
        filter: EventFilter,
        page: Page<EventId>,
    ) -> Result<Listed<EventRow, EventId>, StoreError>;

    /// One event.
    async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError>;

    /// The body of one event as it came; `None` when there is no event or its body was removed.
    async fn body(&self, id: EventId) -> Result<Option<Payload>, StoreError>;

    /// Deliveries, newest first.
    async fn deliveries(
        &self,
        filter: DeliveryFilter,
        page: Page<DeliveryId>,
    ) -> Result<Listed<DeliveryRow, DeliveryId>, StoreError>;

    /// One delivery.
    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError>;

    /// What is sent for a delivery; `None` when there is no delivery, or its body was removed, or its
    /// route's transform has made none yet.
    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Payload>, StoreError>;

    /// Keeps a decision; of each event and kind a bounded number.
    async fn decide(&self, decision: Decision) -> Result<(), StoreError>;

    /// Keeps a refused request, in place of the oldest of its source and reason if there are
    /// [`SAMPLES_MAX`](crate::refused::SAMPLES_MAX) already.
    async fn keep_refused(&self, refused: Vec<RefusedRequest>) -> Result<(), StoreError>;

    /// Refused requests, newest first.
    async fn refused(
        &self,
        filter: RefusedFilter,
        page: Page<RequestId>,
    ) -> Result<Vec<RefusedRequest>, StoreError>;

    /// One refused request.
    async fn refused_request(&self, id: RequestId) -> Result<Option<RefusedRequest>, StoreError>;

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
    ) -> Result<Replayed, StoreError>;

    /// Cancels a delivery that waits: `pending`, `scheduled` or `held`. The next one of its ordering
    /// key becomes due in the same step.
    async fn cancel(&self, id: DeliveryId, now: Timestamp) -> Result<Cancelled, StoreError>;

    /// The counts, as of a recent commit.
    fn counts(&self) -> Counts;

    /// How many deliveries, by the status in their rows, are shown as `held` because their
    /// destination is paused or its circuit is open.
    async fn held_back(&self) -> Result<BTreeMap<Status, u64>, StoreError>;

    /// When the delivery that waits longest for each destination was due, if it is due by `now`.
    async fn oldest_due(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<DestinationId, Timestamp>, StoreError>;

    /// How the store does.
    fn health(&self) -> Health;

    /// Returns when the store has failed.
    async fn failure(&self) -> String;

    /// Removes one bounded slice of what is past its time at `now`: events, bodies and attempts as
    /// the `retention` of their source says (see [`Keep::due`]), where `events_kept` is the span of
    /// events if it says nothing; keys that expired; and old buckets of [`Self::rollups`].
    ///
    /// - Nothing of an event that has a delivery that is not final is touched.
    /// - A source that was deleted keeps as it said last.
    /// - What was not final when its time came is looked at again after a tenth of its age, at the
    ///   latest a day later.
    ///
    /// [`Keep::due`]: crate::retention::Keep::due
    async fn prune(&self, events_kept: Duration, now: Timestamp) -> Result<Pruned, StoreError>;

    /// Sorts a bounded slice of what was counted into the buckets of [`Self::rollups`]; says
    /// whether there is more. What they say is the same before and after.
    async fn roll_up(&self) -> Result<bool, StoreError>;

    /// What happened in each bucket, oldest first; those in which nothing did are left out.
    ///
    /// Exact: counted in the transaction of what it counts, and not changed by [`Self::prune`]
    /// before the bucket's own time has passed.
    async fn rollups(&self, query: RollupQuery) -> Result<Vec<(Timestamp, Tally)>, StoreError>;

    /// Keeps an API token. One with the same hash stays, and takes on its role and its end.
    async fn add_token(&self, token: Token) -> Result<(), StoreError>;

    /// All API tokens, oldest first, also those whose time has passed.
    async fn tokens(&self) -> Result<Vec<Token>, StoreError>;

    /// Removes an API token, unless nobody could change anything after that.
    async fn remove_token(&self, id: TokenId, now: Timestamp) -> Result<TokenRemoved, StoreError>;
}

/// What became of a wish to remove a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRemoved {
    /// It is gone.
    Removed,
    /// There is no such token.
    NotFound,
    /// It is the last admin token that has not expired; it stays.
    LastAdmin,
}

/// A delivery may be replayed once in this time.
pub const REPLAY_INTERVAL: Duration = Duration::from_secs(60);

/// A whole store. Only the place that puts the program together holds one.
pub trait Store: IngestStore + DeliveryStore + AdminStore + ReplayStore + IdempotencyStore {}

impl<T: IngestStore + DeliveryStore + AdminStore + ReplayStore + IdempotencyStore> Store for T {}
