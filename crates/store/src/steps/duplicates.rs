//! Duplicates of events: counting and listing sightings, and marking duplicates that are delivered
//! anyway. A sighting is one arrival of a duplicate.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::json;
use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    event::{DuplicateId, DuplicateReason, NewEvent},
    rollup::RollupMetric,
    store::{DuplicateDetail, DuplicateRow, EVENT_DUPLICATE_BYTES_MAX},
};
use surehook_types::{
    ids::{EventId, SourceId},
    time::Timestamp,
};
use surehook_webhooks::key::fingerprint;

use super::{
    StepTransaction,
    counts::Counter,
    decisions, lookups,
    rollups::SubjectSeq,
    row::{blob, damaged_body, optional_id, optional_text, time},
};
use crate::sql::{Result, SqlConnection, SqlError, SqlRow, params};

/// Duplicates of one event seen since the last write.
#[derive(Clone, Debug, Default)]
pub(crate) struct DuplicateSightings {
    pub(crate) reason: DuplicateReason,
    pub(crate) source: Option<SourceId>,
    pub(crate) count: u64,
    /// Of the first sightings only; the count is always exact.
    pub(crate) times: Vec<Timestamp>,
    pub(crate) last: Timestamp,
}

/// Sightings of one event that are stored as rows; the count has no limit.
pub(crate) const SIGHTING_ROWS_MAX: u64 = 100;

const COUNT_SIGHTINGS: &str = "
    UPDATE events
       SET duplicates = duplicates + ?2,
           last_duplicate_at = CASE WHEN last_duplicate_at > ?3 THEN last_duplicate_at ELSE ?3 END
     WHERE id = ?1 RETURNING duplicates, payload IS NULL";

const INSERT_SIGHTING: &str = "
    INSERT INTO duplicates (event_id, seen_at, body, body_removed, reason, fingerprint)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const ROOM_FOR_BODIES: &str = "SELECT duplicates FROM events WHERE id = ?1 AND payload IS NOT NULL";

/// Whether another body can be stored with an event: not if retention has removed the event or its
/// body, nor beyond the limit of stored sightings.
pub(crate) fn has_room_for_body(connection: &impl SqlConnection, event: EventId) -> Result<bool> {
    let sightings: Option<u64> =
        connection.find_one(ROOM_FOR_BODIES, params![blob(event)], |row| row.get(0))?;
    Ok(match sightings {
        None => false,
        Some(count) if count < SIGHTING_ROWS_MAX => true,
        Some(_) => count_differing_bodies(connection, event)? < SIGHTING_ROWS_MAX,
    })
}

/// Counts sightings and stores the first ones as rows; `body` belongs to the first. There must be room
/// for it; see [`has_room_for_body`].
///
/// Sightings answered from the cache are written later than they were seen, possibly after newer
/// ones.
pub(crate) fn record_sightings(
    tx: &mut impl StepTransaction,
    event: EventId,
    sightings: &DuplicateSightings,
    body: Option<&[u8]>,
) -> Result<()> {
    tx.counts().add(Counter::Duplicates, i64::try_from(sightings.count).unwrap_or(i64::MAX));
    if let Some(source) = sightings.source.map_or(Ok(None), |source| find_source_seq(tx, source))? {
        let bucket = tx.counts().rollups.bucket(SubjectSeq::Source(source), sightings.last);
        bucket.add(RollupMetric::Duplicates, sightings.count);
    }
    let values = params![blob(event), sightings.count, sightings.last.as_millis()];
    let read = |row: &dyn SqlRow| Ok((row.get::<u64>(0)?, row.get(1)?));
    let counted: Option<(u64, bool)> = tx.find_one(COUNT_SIGHTINGS, values, read)?;
    // The event may be removed by retention while its key is still valid.
    let Some((total, body_removed)) = counted else { return Ok(()) };
    if total <= SIGHTING_ROWS_MAX
        || (body.is_some() && count_differing_bodies(tx, event)? < SIGHTING_ROWS_MAX)
    {
        for (index, seen_at) in sightings.times.iter().enumerate() {
            let body = body.filter(|_| index == 0);
            // The body of a duplicate must not outlive the removed original.
            let stored_body = body.filter(|_| !body_removed);
            tx.run(
                INSERT_SIGHTING,
                params![
                    blob(event),
                    seen_at.as_millis(),
                    stored_body,
                    body.is_some() && body_removed,
                    (sightings.reason != DuplicateReason::SameKey)
                        .then_some(sightings.reason.as_str()),
                    stored_body.map(fingerprint),
                ],
            )?;
        }
    }
    Ok(())
}

/// The row number of a source that may be deleted.
fn find_source_seq(tx: &impl StepTransaction, source: SourceId) -> Result<Option<i64>> {
    if let Some(seq) = tx.source_seq(source)? {
        return Ok(Some(seq));
    }
    tx.find_one("SELECT seq FROM sources WHERE id = ?1", params![blob(source)], |row| row.get(0))
}

const COUNT_DIFFERING_BODIES: &str = "
    SELECT count(*) FROM duplicates WHERE event_id = ?1 AND (body IS NOT NULL OR body_removed = 1)";

/// Duplicates whose body differs from the original have a limit of their own, so that many identical
/// ones do not crowd them out.
fn count_differing_bodies(connection: &impl SqlConnection, event: EventId) -> Result<u64> {
    connection.read_one(COUNT_DIFFERING_BODIES, params![blob(event)], |row| row.get(0))
}

/// Writes the sightings that were answered from the cache since the last write.
pub(crate) fn write_sightings(
    tx: &mut impl StepTransaction,
    sightings: &HashMap<EventId, DuplicateSightings>,
) -> Result<()> {
    for (event, of_event) in sightings {
        record_sightings(tx, *event, of_event, None)?;
    }
    Ok(())
}

const SIGHTINGS: &str = "
    SELECT seq, seen_at, length(body), body_removed, delivered_as, reason FROM duplicates
     WHERE event_id = ?1 ORDER BY seq LIMIT ?2 OFFSET ?3";

/// A stored duplicate, whose body is not read yet.
struct Sighting {
    seq: i64,
    body_bytes: Option<usize>,
    duplicate: DuplicateRow,
}

/// Reads a row of [`SIGHTINGS`], the `n`th of its event.
fn read_sighting(row: &dyn SqlRow, n: u32) -> Result<Sighting> {
    let body_bytes: Option<usize> = row.get(2)?;
    let duplicate = DuplicateRow {
        n,
        seen_at: time(row, 1)?,
        reason: optional_text(row, 5, DuplicateReason::parse)?.unwrap_or_default(),
        bytes_differ: body_bytes.is_some() || row.get(3)?,
        body: None,
        body_left_out: false,
        delivered_as: optional_id(row, 4)?,
    };
    Ok(Sighting { seq: row.get(0)?, body_bytes, duplicate })
}

/// Reads the body of a duplicate of `event`; fails if it does not match its SHA-256.
fn read_body(connection: &impl SqlConnection, event: EventId, seq: i64) -> Result<Option<Bytes>> {
    let sql = "SELECT body, fingerprint FROM duplicates WHERE seq = ?1";
    connection.read_one(sql, params![seq], |row| {
        let Some(body) = row.get::<Option<Vec<u8>>>(0)? else { return Ok(None) };
        // Rows of older versions have no SHA-256.
        let stored: Option<[u8; 32]> = row.get(1)?;
        if stored.is_some_and(|stored| stored != fingerprint(&body)) {
            return Err(damaged_body(event));
        }
        Ok(Some(Bytes::from(body)))
    })
}

/// All stored duplicates of an event in the order in which they were seen. Their numbers follow the
/// order in which they were written, and never change. Bodies are read up to
/// [`EVENT_DUPLICATE_BYTES_MAX`] in total: a sender can make them many and large. A damaged one is left
/// out, so that the event can still be shown.
pub(crate) fn list_for_event(
    connection: &impl SqlConnection,
    event: EventId,
) -> Result<Vec<DuplicateRow>> {
    let mut n = 0;
    let sightings: Vec<Sighting> =
        connection.read_all(SIGHTINGS, params![blob(event), i64::MAX, 0], |row| {
            n += 1;
            read_sighting(row, n)
        })?;
    let mut bytes_left = EVENT_DUPLICATE_BYTES_MAX;
    let mut rows = Vec::with_capacity(sightings.len());
    for Sighting { seq, body_bytes, mut duplicate } in sightings {
        match body_bytes {
            Some(bytes) if bytes <= bytes_left => {
                bytes_left -= bytes;
                match read_body(connection, event, seq) {
                    Ok(body) => duplicate.body = body,
                    Err(error) if error.damaged_event().is_some() => duplicate.body_left_out = true,
                    Err(error) => return Err(error),
                }
            }
            Some(_) => duplicate.body_left_out = true,
            None => {}
        }
        rows.push(duplicate);
    }
    rows.sort_by_key(|row| row.seen_at);
    Ok(rows)
}

fn find_sighting(connection: &impl SqlConnection, id: DuplicateId) -> Result<Option<Sighting>> {
    let Some(offset) = id.n.checked_sub(1) else { return Ok(None) };
    let values = params![blob(id.event), 1, offset];
    connection.find_one(SIGHTINGS, values, |row| read_sighting(row, id.n))
}

/// Implements `AdminStore::find_duplicate`.
pub(crate) fn find(
    connection: &impl SqlConnection,
    id: DuplicateId,
) -> Result<Option<DuplicateDetail>> {
    let event = lookups::find_event_row(connection, id.event)?;
    let (Some(event), Some(sighting)) = (event, find_sighting(connection, id)?) else {
        return Ok(None);
    };
    let original = lookups::find_payload(connection, id.event)?;
    let body = read_body(connection, id.event, sighting.seq)?;
    let duplicate = DuplicateRow { body, ..sighting.duplicate };
    Ok(Some(DuplicateDetail { event, original, duplicate }))
}

/// Marks a duplicate as delivered as this event; returns the event if it was delivered before.
pub(crate) fn mark_delivered(
    connection: &impl SqlConnection,
    event: &NewEvent,
    id: DuplicateId,
) -> Result<Option<EventId>> {
    // A duplicate that was removed with its event is an error: the new event is not inserted.
    let sighting = find_sighting(connection, id)?.ok_or(SqlError::RowMissing)?;
    if sighting.duplicate.delivered_as.is_none() {
        let sql = "UPDATE duplicates SET delivered_as = ?2 WHERE seq = ?1";
        connection.run(sql, params![sighting.seq, blob(event.id)])?;
    }
    Ok(sighting.duplicate.delivered_as)
}

/// Records the decision for both events, which must exist.
pub(crate) fn record_decisions(
    connection: &impl SqlConnection,
    event: &NewEvent,
    duplicate: DuplicateId,
) -> Result<()> {
    for (target, other, kind) in [
        (duplicate.event, event.id, EventDecisionKind::DeliveredAnyway),
        (event.id, duplicate.event, EventDecisionKind::NotADuplicate),
    ] {
        let (at, detail) = (event.received_at, json!({ "event": other, "n": duplicate.n }));
        let decision = EventDecision { event: target, delivery: None, at, kind, detail };
        decisions::insert(connection, &decision)?;
    }
    Ok(())
}
