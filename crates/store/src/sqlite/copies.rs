//! Duplicates one by one: what is kept of each, and those of which a person says that they are none.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;
use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    event::{DuplicateId, NewEvent},
    ids::EventId,
    store::{DuplicateDetail, DuplicateRow, EVENT_DUPLICATE_BYTES_MAX},
};

use super::{
    decide, read,
    row::{self, EVENT_COLUMNS, blob, optional_id, time},
    writer::Tx,
};

const COLUMNS: &str = "seen_at, body, body_removed, delivered_as";

fn read_row(row: &Row<'_>, n: u32) -> rusqlite::Result<DuplicateRow> {
    let body: Option<Vec<u8>> = row.get(1)?;
    Ok(DuplicateRow {
        n,
        seen_at: time(row, 0)?,
        bytes_differ: body.is_some() || row.get(2)?,
        body: body.map(Bytes::from),
        body_left_out: false,
        delivered_as: optional_id(row, 3)?,
    })
}

const LENGTHS: &str = "
    SELECT seq, seen_at, length(body), body_removed, delivered_as FROM duplicates
     WHERE event_id = ?1 ORDER BY seq";
const BODY: &str = "SELECT body FROM duplicates WHERE seq = ?1";

/// All that are kept of an event, in the order in which they were seen. One that memory answered is
/// written later than it was seen; its number is that of the writing, which never changes. Bodies
/// are read as long as they fit into [`EVENT_DUPLICATE_BYTES_MAX`]: whoever sends can make them many and
/// large.
pub(super) fn of_event(
    connection: &Connection,
    event: EventId,
) -> rusqlite::Result<Vec<DuplicateRow>> {
    let mut n = 0;
    let found = read::collect(connection, LENGTHS, params![blob(event)], |row| {
        n += 1;
        let length: Option<usize> = row.get(2)?;
        let seen = DuplicateRow {
            n,
            seen_at: time(row, 1)?,
            bytes_differ: length.is_some() || row.get(3)?,
            body: None,
            body_left_out: false,
            delivered_as: optional_id(row, 4)?,
        };
        Ok((row.get::<_, i64>(0)?, length, seen))
    })?;
    let mut left = EVENT_DUPLICATE_BYTES_MAX;
    let mut body = connection.prepare_cached(BODY)?;
    let mut rows = Vec::with_capacity(found.len());
    for (seq, length, mut seen) in found {
        match length {
            Some(length) if length <= left => {
                left -= length;
                let bytes: Option<Vec<u8>> = body.query_row(params![seq], |row| row.get(0))?;
                seen.body = bytes.map(Bytes::from);
            }
            Some(_) => seen.body_left_out = true,
            None => {}
        }
        rows.push(seen);
    }
    rows.sort_by_key(|row| row.seen_at);
    Ok(rows)
}

const SEQ: &str = "
    SELECT seq FROM duplicates WHERE event_id = ?1 ORDER BY seq LIMIT 1 OFFSET ?2";

fn seq(connection: &Connection, copy: DuplicateId) -> rusqlite::Result<Option<i64>> {
    let Some(before) = copy.n.checked_sub(1) else { return Ok(None) };
    connection
        .prepare_cached(SEQ)?
        .query_row(params![blob(copy.event), before], |row| row.get(0))
        .optional()
}

/// See `AdminStore::duplicate`.
pub(super) fn find(
    connection: &Connection,
    copy: DuplicateId,
) -> rusqlite::Result<Option<DuplicateDetail>> {
    let Some(seq) = seq(connection, copy)? else { return Ok(None) };
    let sql = format!("SELECT {COLUMNS} FROM duplicates WHERE seq = ?1");
    let duplicate = connection
        .prepare_cached(&sql)?
        .query_row(params![seq], |row| read_row(row, copy.n))
        .optional()?;
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN sources s ON s.seq = e.source WHERE e.id = ?1"
    );
    let event = connection
        .prepare_cached(&sql)?
        .query_row(params![blob(copy.event)], row::event)
        .optional()?;
    let (Some(event), Some(duplicate)) = (event, duplicate) else { return Ok(None) };
    Ok(Some(DuplicateDetail { event, original: read::body(connection, copy.event)?, duplicate }))
}

const DELIVERED_AS: &str = "SELECT delivered_as FROM duplicates WHERE seq = ?1";
const DELIVER: &str = "UPDATE duplicates SET delivered_as = ?2 WHERE seq = ?1";

/// Notes that a copy becomes this event; or says which one it became before.
pub(super) fn take(
    tx: &Tx<'_, '_>,
    event: &NewEvent,
    copy: DuplicateId,
) -> rusqlite::Result<Option<EventId>> {
    // It went with its event meanwhile: nothing is admitted.
    let seq = seq(tx.connection, copy)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let before: Option<EventId> = tx
        .connection
        .prepare_cached(DELIVERED_AS)?
        .query_row(params![seq], |row| optional_id(row, 0))?;
    if before.is_none() {
        tx.connection.prepare_cached(DELIVER)?.execute(params![seq, blob(event.id)])?;
    }
    Ok(before)
}

/// Writes it down in both stories. To be called when both events are there.
pub(super) fn note(tx: &Tx<'_, '_>, event: &NewEvent, copy: DuplicateId) -> rusqlite::Result<()> {
    for (of, other, kind) in [
        (copy.event, event.id, EventDecisionKind::DeliveredAnyway),
        (event.id, copy.event, EventDecisionKind::NotADuplicate),
    ] {
        let detail = json!({ "event": other, "n": copy.n });
        let at = event.received_at;
        decide::note(
            tx.connection,
            &EventDecision { event: of, delivery: None, at, kind, detail },
        )?;
    }
    Ok(())
}
