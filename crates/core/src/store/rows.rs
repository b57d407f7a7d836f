//! Filters, pages and rows of lists and lookups.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use surehook_retry::{DeadReason, FailureClass, ScheduleReason};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, GroupId, RequestId, SourceId},
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{AttributeFilter, Attributes, EventKind, SearchTerm},
    body_value::BodyValueFilter,
    key::KeyOrigin,
};

use super::{AttemptRecord, Configuration, NextStep};
use crate::{
    decision::{EventDecision, SkippedRoute},
    delivery::state::DeliveryStatus,
    event::{DuplicateReason, Payload, RequestHead},
    replay::StatusPattern,
};

/// A request for one page of a list, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<I> {
    /// Continue after this row.
    pub after: Option<I>,
    pub limit: usize,
}

/// One page of a list.
///
/// A page scans a bounded number of rows, so with a rare filter it may be short or even empty and still
/// have a next page.
#[derive(Clone, Debug)]
pub struct ListPage<R, I> {
    /// Newest first.
    pub rows: Vec<R>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<I>,
    pub rows_scanned: usize,
    /// The last row scanned, matching or not.
    pub last: Option<I>,
}

impl<R, I> ListPage<R, I> {
    pub fn empty() -> Self {
        Self { rows: Vec::new(), next: None, rows_scanned: 0, last: None }
    }
}

/// The conditions of a list of events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub source: Option<SourceId>,
    /// Only with this dedup key: one per source, and those that it had a key conflict with.
    pub key: Option<String>,
    /// Only with a key conflict, or only without.
    pub key_conflict: Option<bool>,
    pub kind: Option<EventKind>,
    pub attributes: Vec<AttributeFilter>,
    /// Only with a delivery that matches.
    pub delivery_filter: EventDeliveryFilter,
    /// Only with these values in a JSON body that is not too large to search.
    pub body: Vec<BodyValueFilter>,
    /// Only with this text in the key, or in a body that is not too large to search.
    pub search: Option<String>,
    /// Search bodies with secrets masked by this configuration, for users who may not see them.
    /// Otherwise a secret could be guessed letter by letter.
    pub masked_by: Option<Arc<Configuration>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl EventFilter {
    /// Whether kind and attributes of an event match.
    pub fn matches(&self, event: &EventRow) -> bool {
        (self.kind.is_none() || self.kind == event.kind)
            && self.attributes.iter().all(|filter| event.attributes.matches(filter))
    }

    pub fn most_selective_term(&self) -> Option<SearchTerm> {
        let filter = self.attributes.iter().min_by_key(|filter| filter.name());
        filter.map(AttributeFilter::term).or_else(|| self.kind.as_ref().map(EventKind::term))
    }
}

/// A delivery that an event must have; all fields must match the same delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventDeliveryFilter {
    pub status: Option<DeliveryStatus>,
    pub destination: Option<DestinationId>,
    pub reason: Option<DeadReason>,
    /// Class of the last attempt.
    pub class: Option<FailureClass>,
    /// HTTP status of the last attempt.
    pub code: Option<StatusPattern>,
}

/// An event without its body.
#[derive(Clone, Debug)]
pub struct EventRow {
    pub id: EventId,
    pub request_id: RequestId,
    pub source: SourceId,
    pub key: Option<String>,
    /// `None` without a key, and for events stored before this was recorded.
    pub key_origin: Option<KeyOrigin>,
    /// The event that held its key with another body.
    pub key_conflict: Option<EventId>,
    /// The provider's event type.
    pub kind: Option<EventKind>,
    /// Searchable attributes.
    pub attributes: Attributes,
    pub received_at: Timestamp,
    pub body_bytes: u64,
    /// Number of duplicates received.
    pub duplicates: u64,
    pub last_duplicate_at: Option<Timestamp>,
    /// Whether retention has removed the body.
    pub body_removed: bool,
    /// Number of deliveries by status.
    pub deliveries: BTreeMap<DeliveryStatus, u64>,
}

/// A received duplicate of an event.
#[derive(Clone, Debug)]
pub struct DuplicateRow {
    /// Number within the event, from 1. It never changes; of two duplicates received at almost the same
    /// time the later one may have the smaller number.
    pub n: u32,
    pub seen_at: Timestamp,
    pub reason: DuplicateReason,
    /// Whether its body differs from the original.
    pub bytes_differ: bool,
    /// The different body, unless removed by retention or left out here.
    pub body: Option<Bytes>,
    /// The body is stored but left out, because of [`EVENT_DUPLICATE_BYTES_MAX`].
    pub body_left_out: bool,
    /// The event it became when it was delivered anyway.
    pub delivered_as: Option<EventId>,
}

/// A received duplicate with its event.
#[derive(Clone, Debug)]
pub struct DuplicateDetail {
    pub event: EventRow,
    /// The original request, unless removed by retention.
    pub original: Option<Payload>,
    pub duplicate: DuplicateRow,
}

/// Maximum bytes of different bodies returned with an event; each duplicate can be loaded by itself.
pub const EVENT_DUPLICATE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of attempts returned with an event; each delivery lists all of its own.
pub const EVENT_ATTEMPTS_MAX: usize = 1000;

/// An event with everything except its body.
#[derive(Clone, Debug)]
pub struct EventDetail {
    pub event: EventRow,
    /// `None` when the body was removed.
    pub head: Option<RequestHead>,
    /// SHA-256 of the body.
    pub fingerprint: [u8; 32],
    pub deliveries: Vec<DeliveryRow>,
    /// The first duplicates that were received, oldest first.
    pub duplicates: Vec<DuplicateRow>,
    pub verified_by: Option<String>,
    pub key_from: Option<String>,
    /// Routes that created no delivery.
    pub unrouted: Vec<SkippedRoute>,
    /// Oldest first.
    pub decisions: Vec<EventDecision>,
    /// The first [`EVENT_ATTEMPTS_MAX`] attempts of all deliveries, without the answers' bodies, oldest
    /// first.
    pub attempts: Vec<AttemptRow>,
}

/// The conditions of a list of deliveries.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    pub status: Option<DeliveryStatus>,
    pub destination: Option<DestinationId>,
    /// Only dead for this reason; together with status `dead`.
    pub reason: Option<DeadReason>,
    pub source: Option<SourceId>,
    pub kind: Option<EventKind>,
    pub event: Option<EventId>,
    /// Only dead letters of this group.
    pub group: Option<GroupId>,
    /// Only with this class of the last attempt.
    pub class: Option<FailureClass>,
    /// Only with this HTTP status of the last attempt.
    pub code: Option<StatusPattern>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct DeliveryRow {
    pub id: DeliveryId,
    pub event: EventId,
    pub destination: DestinationId,
    /// Waiting deliveries of a destination that is paused or has an open circuit are `held`, whatever
    /// their row says.
    pub status: DeliveryStatus,
    pub order_key: Option<String>,
    /// Set if it is dead.
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    pub created_at: Timestamp,
    /// Time of the next attempt.
    pub due_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The delivery it replaces.
    pub replay_of: Option<DeliveryId>,
    /// The delivery that replaced it.
    pub replayed_by: Option<DeliveryId>,
    /// The provider's id of the sent message, used by its status updates.
    pub sent_id: Option<String>,
    /// Group of dead letters, while it is dead.
    pub group: Option<GroupId>,
}

/// A delivery with its attempts, oldest first.
#[derive(Clone, Debug)]
pub struct DeliveryDetail {
    pub delivery: DeliveryRow,
    /// Empty when retention has removed them.
    pub attempts: Vec<AttemptRow>,
}

/// An attempt and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    pub delivery: DeliveryId,
    pub attempt: AttemptRecord,
    /// `None` for attempts recorded before this was stored.
    pub next: Option<NextStep>,
    /// Reason for the time of the next attempt; `None` also for attempts recorded before this was stored.
    pub schedule_reason: Option<ScheduleReason>,
}
