//! Retention, one bounded slice at a time, so that it never holds up an answer for long.

use rusqlite::params;
use surehook_core::{
    delivery::{DeadReason, state::Status},
    ids::{DeliveryId, EventId},
    key::KeyDigest,
    store::Pruned,
    time::Timestamp,
};

use super::{
    fresh, refused,
    row::{blob, id, reason, status, time},
    writer::Tx,
};

/// Events in a slice. At about 50 µs each it stays far below what a sender notices.
const EVENTS_PER_SLICE: usize = 200;
const KEYS_PER_SLICE: usize = 2000;

/// How far the sweeps have come; None: from the beginning.
///
/// A sweep looks at a bounded slice each time, whatever it finds there: a million old events that
/// are still owed must not be walked through again and again.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    events: Option<EventId>,
    keys: Option<KeyDigest>,
}

const NEXT_EVENTS: &str = "
    SELECT e.id, e.payload,
           EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.ended_at IS NULL)
      FROM events e WHERE e.id > ?1 AND e.id < ?2 ORDER BY e.id LIMIT ?3";

/// An old event, its payload, and whether it is still owed to somebody.
type OldEvent = (EventId, Option<i64>, bool);

/// See `AdminStore::prune`.
pub(super) fn prune(
    tx: &mut Tx<'_, '_>,
    events_before: Timestamp,
    now: Timestamp,
) -> rusqlite::Result<Pruned> {
    let events = sweep_events(tx, events_before)?;
    let fresh_keys = tx.fresh.prune(tx.connection, now, KEYS_PER_SLICE)?;
    let keys = sweep_keys(tx, now)?;
    refused::prune(tx, events_before)?;
    let is_through = tx.sweep.events.is_none() && tx.sweep.keys.is_none();
    let more = !is_through || fresh_keys == KEYS_PER_SLICE;
    Ok(Pruned { events, keys: keys + fresh_keys, more })
}

/// Removes old events from the next slice of them. What is still owed stays, however old it is.
fn sweep_events(tx: &mut Tx<'_, '_>, before: Timestamp) -> rusqlite::Result<usize> {
    // Ids begin with their time: the smallest id of that moment is the border.
    let border = EventId::new(before, 0);
    let after = tx.sweep.events.take().map_or([0; 16], blob);
    let slice: Vec<OldEvent> = tx
        .connection
        .prepare_cached(NEXT_EVENTS)?
        .query_map(params![after, blob(border), EVENTS_PER_SLICE], |row| {
            Ok((id(row, 0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut removed = 0;
    for (event, payload, _) in slice.iter().filter(|(_, _, is_owed)| !is_owed) {
        delete_event(tx, *event, *payload)?;
        removed += 1;
    }
    if slice.len() == EVENTS_PER_SLICE {
        tx.sweep.events = slice.last().map(|(event, ..)| *event);
    }
    Ok(removed)
}

const NEXT_KEYS: &str = "
    SELECT digest, expires_at FROM keys WHERE digest > ?1 ORDER BY digest LIMIT ?2";

/// Removes keys whose time has passed from the next slice of all keys, in their order.
///
/// There is no index by time: it would cost every event a write, and this costs a read of each key
/// now and then.
fn sweep_keys(tx: &mut Tx<'_, '_>, now: Timestamp) -> rusqlite::Result<usize> {
    // Nothing sorts before all digests: it is shorter.
    let after = tx.sweep.keys.take().map_or_else(Vec::new, |last| last.to_bytes().to_vec());
    let slice: Vec<(KeyDigest, Timestamp)> = tx
        .connection
        .prepare_cached(NEXT_KEYS)?
        .query_map(params![after, KEYS_PER_SLICE], |row| {
            Ok((KeyDigest::from_bytes(row.get(0)?), time(row, 1)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut removed = 0;
    for (key, _) in slice.iter().filter(|(_, expires_at)| *expires_at <= now) {
        removed += fresh::remove_folded(tx.connection, *key)?;
    }
    if slice.len() == KEYS_PER_SLICE {
        tx.sweep.keys = slice.last().map(|(key, _)| *key);
    }
    Ok(removed)
}

fn delete_event(tx: &mut Tx<'_, '_>, event: EventId, payload: Option<i64>) -> rusqlite::Result<()> {
    let deliveries: Vec<(DeliveryId, Status, Option<DeadReason>)> = tx
        .connection
        .prepare_cached("SELECT id, state, reason FROM deliveries WHERE event_id = ?1")?
        .query_map(params![blob(event)], |row| Ok((id(row, 0)?, status(row, 1)?, reason(row, 2)?)))?
        .collect::<Result<_, _>>()?;
    for (delivery, status, reason) in deliveries {
        let key = params![blob(delivery)];
        tx.connection
            .prepare_cached("DELETE FROM attempts WHERE delivery_id = ?1")?
            .execute(key)?;
        tx.connection
            .prepare_cached("DELETE FROM delivery_bodies WHERE delivery_id = ?1")?
            .execute(key)?;
        tx.connection.prepare_cached("DELETE FROM deliveries WHERE id = ?1")?.execute(key)?;
        tx.delta.moved(Some(status), None);
        if let (Status::Dead, Some(reason)) = (status, reason) {
            tx.delta.dead_now(reason, -1);
        }
    }
    let key = params![blob(event)];
    tx.connection.prepare_cached("DELETE FROM duplicates WHERE event_id = ?1")?.execute(key)?;
    tx.connection.prepare_cached("DELETE FROM decisions WHERE event_id = ?1")?.execute(key)?;
    tx.connection.prepare_cached("DELETE FROM events WHERE id = ?1")?.execute(key)?;
    tx.connection
        .prepare_cached("DELETE FROM payloads WHERE seq = ?1")?
        .execute(params![payload])?;
    Ok(())
}
