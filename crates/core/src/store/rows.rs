//! What is listed and looked up: filters, pages, rows.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{AttemptRecord, Configuration, NextStep};
use crate::{
    attribute::AttributeFilter, attribute::Attributes, attribute::EventKind, attribute::SearchTerm,
    body_value::BodyValueFilter, decision::EventDecision, decision::UnroutedRoute,
    delivery::DeadReason, delivery::FailureClass, delivery::ScheduleReason,
    delivery::state::DeliveryStatus, event::Payload, event::RequestHead, ids::DeliveryId,
    ids::DestinationId, ids::EventId, ids::GroupId, ids::RequestId, ids::SourceId,
    replay::StatusPattern, time::Timestamp,
};

/// A place in a list, newest first: the id after which it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<I> {
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
pub struct ListPage<R, I> {
    /// What was found, newest first.
    pub rows: Vec<R>,
    /// Where the next page goes on; `None` at the end.
    pub next: Option<I>,
    /// How many rows were looked at.
    pub rows_scanned: usize,
    /// The last row that was looked at, wanted or not.
    pub last: Option<I>,
}

impl<R, I> ListPage<R, I> {
    /// A list without anything in it.
    pub fn empty() -> Self {
        Self { rows: Vec::new(), next: None, rows_scanned: 0, last: None }
    }
}

/// Which events to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only of this source.
    pub source: Option<SourceId>,
    /// Only those that have this key now: one of each source at most.
    pub key: Option<String>,
    /// Only of this kind.
    pub kind: Option<EventKind>,
    /// Only with all of these.
    pub attributes: Vec<AttributeFilter>,
    /// Only with a delivery that is like this.
    pub delivery_filter: EventDeliveryFilter,
    /// Only with these values in a body that is JSON and not too large to look into.
    pub body: Vec<BodyValueFilter>,
    /// Only with this text in the key, or in a body that is not too large to look into.
    pub search: Option<String>,
    /// Look into bodies as somebody sees them who may not see secrets: masked by what this says.
    /// Otherwise a value that nobody shows could be guessed letter by letter.
    pub masked_by: Option<Arc<Configuration>>,
    /// Only received at this time or later.
    pub since: Option<Timestamp>,
    /// Only received before this time.
    pub until: Option<Timestamp>,
}

impl EventFilter {
    /// Whether an event is of the kind and has the attributes that are wanted.
    pub fn matches(&self, event: &EventRow) -> bool {
        (self.kind.is_none() || self.kind == event.kind)
            && self.attributes.iter().all(|wanted| event.attributes.matches(wanted))
    }

    /// What the events are found by: of all that is wanted the most telling.
    pub fn term(&self) -> Option<SearchTerm> {
        let wanted = self.attributes.iter().min_by_key(|wanted| wanted.name());
        wanted.map(AttributeFilter::term).or_else(|| self.kind.as_ref().map(EventKind::term))
    }
}

/// Which delivery an event must have: one that is all of this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventDeliveryFilter {
    /// With this status.
    pub status: Option<DeliveryStatus>,
    /// To this destination.
    pub destination: Option<DestinationId>,
    /// Dead for this reason.
    pub reason: Option<DeadReason>,
    /// With a last attempt that failed like this.
    pub class: Option<FailureClass>,
    /// With a last attempt that was answered with this HTTP status.
    pub code: Option<StatusPattern>,
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
    /// What sort of thing happened.
    pub kind: Option<EventKind>,
    /// What it can be found by.
    pub attributes: Attributes,
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
    /// How many of its deliveries have each status; none is left out.
    pub deliveries: BTreeMap<DeliveryStatus, u64>,
}

/// A later sighting of an event.
#[derive(Clone, Debug)]
pub struct DuplicateRow {
    /// Its number among those that are kept of its event, from 1. It never changes; where two are
    /// seen at almost the same time, the later one may have the smaller number.
    pub n: u32,
    /// When.
    pub seen_at: Timestamp,
    /// Whether its body differed.
    pub bytes_differ: bool,
    /// The differing body, unless retention has removed it or it is left out here.
    pub body: Option<Bytes>,
    /// Its body is kept and not here: of one event, no more than [`EVENT_DUPLICATE_BYTES_MAX`] are.
    pub body_left_out: bool,
    /// The event that it became when a person said that it is no duplicate.
    pub delivered_as: Option<EventId>,
}

/// A later sighting of an event, beside that event.
#[derive(Clone, Debug)]
pub struct DuplicateDetail {
    /// The event that came first.
    pub event: EventRow,
    /// What came with it, unless retention has removed it.
    pub original: Option<Payload>,
    /// The sighting.
    pub duplicate: DuplicateRow,
}

/// Bytes of all differing bodies that are told with an event; each sighting has its own by itself.
pub const EVENT_DUPLICATE_BYTES_MAX: usize = 256 * 1024;

/// Attempts of one event that are told with it; each delivery has its own list of all of them.
pub const EVENT_ATTEMPTS_MAX: usize = 1000;

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
    pub unrouted: Vec<UnroutedRoute>,
    /// What happened to it later, oldest first.
    pub decisions: Vec<EventDecision>,
    /// The first [`EVENT_ATTEMPTS_MAX`] attempts of all its deliveries, without the answers' bodies,
    /// oldest first; none of deliveries whose attempts retention has removed.
    pub attempts: Vec<AttemptRow>,
}

/// Which deliveries to list.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Only with this status.
    pub status: Option<DeliveryStatus>,
    /// Only to this destination.
    pub destination: Option<DestinationId>,
    /// Only dead for this reason; goes with status `dead`.
    pub reason: Option<DeadReason>,
    /// Only of events of this source.
    pub source: Option<SourceId>,
    /// Only of events of this kind.
    pub kind: Option<EventKind>,
    /// Only of this event.
    pub event: Option<EventId>,
    /// Only dead, and in this group.
    pub group: Option<GroupId>,
    /// Only with a last attempt that failed like this.
    pub class: Option<FailureClass>,
    /// Only with a last attempt that was answered with this HTTP status.
    pub code: Option<StatusPattern>,
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
    pub status: DeliveryStatus,
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
    /// What the service calls the message that was sent; statuses about it have this name.
    pub sent_id: Option<String>,
    /// Which dead letters it belongs to, as long as it is one.
    pub group: Option<GroupId>,
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
    pub attempt: AttemptRecord,
    /// What followed; `None` for one that was recorded before this was kept.
    pub next: Option<NextStep>,
    /// If it is tried again: why then; `None` also for one that was recorded before this was kept.
    pub schedule_reason: Option<ScheduleReason>,
}
