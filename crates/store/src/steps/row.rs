//! Conversions from rows to domain types, with checks that match those of the schema.
//!
//! A function is named for what it reads: `time(row, 6)` is the time in column 6, `event(row)` the event
//! in a row of [`EVENT_COLUMNS`].

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{HeaderBlock, Payload, RequestHead},
    store::{AttemptRecord, AttemptRow, DeliveryRow, EventRow, NextStep},
};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::{
    ids::{EventId, Id, IdKind},
    name::Name,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{Attributes, EventKind},
    key::{KeyOrigin, fingerprint},
};
use uuid::Uuid;

use super::{attempt_timing, displayed_status::displayed_status};
use crate::sql::{Result, SqlError, SqlRow};

/// A value that the schema should have rejected.
pub(crate) fn corrupt_value(column: usize, what: &str) -> SqlError {
    SqlError::InvalidValue { column, what: what.to_owned() }
}

pub(crate) fn id<K: IdKind>(row: &dyn SqlRow, column: usize) -> Result<Id<K>> {
    let bytes: [u8; 16] = row.get(column)?;
    Ok(Id::from_uuid(Uuid::from_bytes(bytes)))
}

pub(crate) fn optional_id<K: IdKind>(row: &dyn SqlRow, column: usize) -> Result<Option<Id<K>>> {
    let bytes: Option<[u8; 16]> = row.get(column)?;
    Ok(bytes.map(|bytes| Id::from_uuid(Uuid::from_bytes(bytes))))
}

/// An id as it is stored.
pub(crate) fn blob<K: IdKind>(id: Id<K>) -> [u8; 16] {
    id.uuid().into_bytes()
}

/// The parameter of `Dialect::ID_LIST`: a JSON list of hex strings.
pub(crate) fn id_list<'a>(ids: impl IntoIterator<Item = &'a [u8; 16]>) -> String {
    let quote = |id: &[u8; 16]| format!("\"{}\"", data_encoding::HEXLOWER.encode(id));
    let quoted: Vec<String> = ids.into_iter().map(quote).collect();
    format!("[{}]", quoted.join(","))
}

/// A duration as it is stored.
pub(crate) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}

pub(crate) fn time(row: &dyn SqlRow, column: usize) -> Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

pub(crate) fn optional_time(row: &dyn SqlRow, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.get::<Option<i64>>(column)?.map(Timestamp::from_millis))
}

/// Parses a text column.
pub(crate) fn text<T>(
    row: &dyn SqlRow,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T> {
    optional_text(row, column, parse)?.ok_or_else(|| corrupt_value(column, "NULL"))
}

pub(crate) fn optional_text<T>(
    row: &dyn SqlRow,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    match row.optional_text(column)? {
        None => Ok(None),
        Some(text) => parse(text).map(Some).ok_or_else(|| corrupt_value(column, text)),
    }
}

pub(crate) fn name(row: &dyn SqlRow, column: usize) -> Result<Name> {
    text(row, column, |text| text.parse().ok())
}

pub(crate) fn status(row: &dyn SqlRow, column: usize) -> Result<DeliveryStatus> {
    text(row, column, DeliveryStatus::parse)
}

pub(crate) fn reason(row: &dyn SqlRow, column: usize) -> Result<Option<DeadReason>> {
    optional_text(row, column, DeadReason::parse)
}

pub(crate) fn json<T: DeserializeOwned>(row: &dyn SqlRow, column: usize) -> Result<T> {
    optional_json(row, column)?.ok_or_else(|| corrupt_value(column, "NULL"))
}

pub(crate) fn optional_json<T: DeserializeOwned>(
    row: &dyn SqlRow,
    column: usize,
) -> Result<Option<T>> {
    let parsed = row.optional_text(column)?.map(serde_json::from_str).transpose();
    parsed.map_err(|error| corrupt_value(column, &error.to_string()))
}

/// The text of a JSON column.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| SqlError::Unstorable(error.to_string()))
}

/// Columns of [`payload`], from `payloads p` and `events e`.
pub(crate) const PAYLOAD_COLUMNS: &str =
    "p.path, p.query, p.remote, p.headers, p.body, e.fingerprint";

/// Reads [`PAYLOAD_COLUMNS`] that begin at `first`.
pub(crate) fn payload(row: &dyn SqlRow, first: usize) -> Result<Payload> {
    Ok(Payload {
        head: Arc::new(head(row, first)?),
        body: row.get(first + 4)?,
        fingerprint: row.get(first + 5)?,
    })
}

/// Like [`payload`], and fails if the body does not match its SHA-256.
pub(crate) fn intact_payload(row: &dyn SqlRow, first: usize, event: EventId) -> Result<Payload> {
    let payload = payload(row, first)?;
    if fingerprint(&payload.body) == payload.fingerprint {
        return Ok(payload);
    }
    Err(damaged_body(event))
}

/// Logs that a body is damaged, and returns the error.
pub(crate) fn damaged_body(event: EventId) -> SqlError {
    tracing::error!(%event, "the stored body is damaged and is not returned");
    SqlError::DamagedBody(event)
}

pub(crate) fn head(row: &dyn SqlRow, first: usize) -> Result<RequestHead> {
    Ok(RequestHead {
        path: row.get(first)?,
        query: row.get(first + 1)?,
        remote: row.get(first + 2)?,
        headers: HeaderBlock::from_bytes(row.get(first + 3)?),
    })
}

/// Columns of [`event`], from `events e JOIN sources s`.
pub(crate) const EVENT_COLUMNS: &str = "e.id, e.request_id, s.id, e.key, e.received_at,
    e.body_bytes, e.duplicates, e.last_duplicate_at, e.payload IS NULL, e.kind, e.attributes,
    e.key_guessed, (SELECT k.holder FROM key_conflicts k WHERE k.event_id = e.id)";

pub(crate) fn event(row: &dyn SqlRow) -> Result<EventRow> {
    Ok(EventRow {
        id: id(row, 0)?,
        request_id: id(row, 1)?,
        source: id(row, 2)?,
        key: row.get(3)?,
        key_origin: row.get::<Option<bool>>(11)?.map(key_origin),
        key_conflict: optional_id(row, 12)?,
        received_at: time(row, 4)?,
        body_bytes: row.get(5)?,
        duplicates: row.get(6)?,
        last_duplicate_at: optional_time(row, 7)?,
        body_removed: row.get(8)?,
        kind: optional_text(row, 9, EventKind::new)?,
        attributes: attributes(row, 10)?,
        // Filled in by the caller.
        deliveries: BTreeMap::new(),
    })
}

fn key_origin(is_guessed: bool) -> KeyOrigin {
    if is_guessed { KeyOrigin::Guessed } else { KeyOrigin::Explicit }
}

fn attributes(row: &dyn SqlRow, column: usize) -> Result<Attributes> {
    let Some(json) = row.optional_text(column)? else {
        return Ok(Attributes::default());
    };
    // Without the value, which may contain a phone number and would be logged.
    Attributes::from_json(json).map_err(|_| corrupt_value(column, "attributes"))
}

/// Columns of [`delivery`], from `deliveries d JOIN destinations t`.
///
/// A delivery held by its lane is displayed as held; its row does not change, since a pause is a
/// fact about the destination, not about a million deliveries.
pub(crate) const DELIVERY_COLUMNS: &str = concat!(
    "d.id, d.event_id, t.id, ",
    displayed_status!(),
    ", d.reason, d.attempts, d.created_at, d.due_at, d.ended_at, d.replay_of,
    d.replayed_by, d.order_key, (SELECT sent_id FROM sends WHERE delivery_id = d.id),
    (SELECT id FROM dead_groups WHERE seq = d.dead_group)"
);

pub(crate) fn delivery(row: &dyn SqlRow) -> Result<DeliveryRow> {
    Ok(DeliveryRow {
        id: id(row, 0)?,
        event: id(row, 1)?,
        destination: id(row, 2)?,
        status: status(row, 3)?,
        reason: reason(row, 4)?,
        attempts: row.get(5)?,
        created_at: time(row, 6)?,
        due_at: optional_time(row, 7)?,
        ended_at: optional_time(row, 8)?,
        replay_of: optional_id(row, 9)?,
        replayed_by: optional_id(row, 10)?,
        order_key: row.get(11)?,
        sent_id: row.get(12)?,
        group: optional_id(row, 13)?,
    })
}

/// Columns of [`attempt`], from `attempts a JOIN deliveries d`.
pub(crate) const ATTEMPT_COLUMNS: &str = "a.number, a.id, a.started_at, a.took_ms, a.status,
    a.failure, a.class, a.detail, a.response, a.delivery_id, a.next, a.next_due_at,
    coalesce(d.reason, 'ambiguous'), a.timing";

pub(crate) fn attempt(row: &dyn SqlRow) -> Result<AttemptRow> {
    let (timing, schedule_reason) =
        optional_text(row, 13, attempt_timing::decode)?.unwrap_or_default();
    let attempt = AttemptRecord {
        number: row.get(0)?,
        id: id(row, 1)?,
        started_at: time(row, 2)?,
        took: Duration::from_millis(row.get(3)?),
        timing,
        status: row.get(4)?,
        failure: optional_text(row, 5, AttemptFailure::parse)?,
        class: optional_text(row, 6, FailureClass::parse)?,
        detail: row.get(7)?,
        response: row.get::<Option<Vec<u8>>>(8)?.unwrap_or_default(),
    };
    let (delivery, next) = (id(row, 9)?, next(row, 10)?);
    Ok(AttemptRow { delivery, attempt, next, schedule_reason })
}

/// Reads the next step from three columns: name, due time and reason. An attempt has the reason of
/// its delivery, whose last attempt it is; if that has none any more it was `ambiguous`, and has
/// arrived after all.
pub(crate) fn next(row: &dyn SqlRow, first: usize) -> Result<Option<NextStep>> {
    let Some(code) = row.get::<Option<String>>(first)? else { return Ok(None) };
    let found = match code.as_str() {
        "succeeded" => Some(NextStep::Succeeded),
        "retry" => optional_time(row, first + 1)?.map(NextStep::RetryAt),
        "dead" => reason(row, first + 2)?.map(NextStep::Dead),
        _ => None,
    };
    found.map(Some).ok_or_else(|| corrupt_value(first, &code))
}
