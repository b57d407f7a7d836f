//! What retention takes away: a body, the attempts, or an event with all that belongs to it.

use rusqlite::{Connection, params};
use surehook_core::{
    attribute::{Attributes, EventKind},
    delivery::{DeadReason, state::DeliveryStatus},
    ids::{DeliveryId, EventId},
};

use super::{
    groups,
    row::{blob, id, reason, status},
    writer::Tx,
};

// That a copy differed stays known.
const ERASE_COPIES: &str = "
    UPDATE duplicates SET body = NULL, body_removed = 1
     WHERE event_id = ?1 AND body IS NOT NULL";

const ERASE_MADE: &str = "
    DELETE FROM delivery_bodies
     WHERE delivery_id IN (SELECT id FROM deliveries WHERE event_id = ?1)
    RETURNING coalesce(length(body), 0)";

/// Removes what transforms made of the body of an event; says how many bytes that were.
fn made(connection: &Connection, event: EventId) -> rusqlite::Result<u64> {
    let mut erase = connection.prepare_cached(ERASE_MADE)?;
    let bytes: Vec<u64> =
        erase.query_map(params![blob(event)], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(bytes.iter().sum())
}

/// Removes the body of an event, the head of its request, the bodies of copies that differed, and
/// what transforms made of it; says how many bytes the last were.
pub(super) fn body(tx: &Tx<'_, '_>, event: EventId, payload: i64) -> rusqlite::Result<u64> {
    let key = params![blob(event)];
    tx.connection.prepare_cached("UPDATE events SET payload = NULL WHERE id = ?1")?.execute(key)?;
    tx.connection.prepare_cached(ERASE_COPIES)?.execute(key)?;
    erase_payload(tx.connection, payload)?;
    made(tx.connection, event)
}

fn erase_payload(connection: &Connection, payload: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM payloads WHERE seq = ?1")?.execute(params![payload])?;
    Ok(())
}

const ERASE_ATTEMPTS: &str = "
    DELETE FROM attempts
     WHERE delivery_id IN (SELECT id FROM deliveries WHERE event_id = ?1)";

/// Removes the attempts of all deliveries of an event; says how many there were.
pub(super) fn attempts(tx: &Tx<'_, '_>, event: EventId) -> rusqlite::Result<usize> {
    tx.connection.prepare_cached(ERASE_ATTEMPTS)?.execute(params![blob(event)])
}

/// What there was of an event beside its body.
pub(super) struct Erased {
    /// Bytes that transforms had made of the body.
    pub(super) made: u64,
    /// What it was found by.
    pub(super) terms: usize,
}

const ERASE_EVENT: &str = "DELETE FROM events WHERE id = ?1 RETURNING kind, attributes";

/// Removes an event with all that belongs to it.
pub(super) fn event(
    tx: &mut Tx<'_, '_>,
    event: EventId,
    payload: Option<i64>,
) -> rusqlite::Result<Erased> {
    // By their deliveries, so before these.
    let made = made(tx.connection, event)?;
    let deliveries: Vec<(DeliveryId, DeliveryStatus, Option<DeadReason>)> = tx
        .connection
        .prepare_cached("SELECT id, state, reason FROM deliveries WHERE event_id = ?1")?
        .query_map(params![blob(event)], |row| Ok((id(row, 0)?, status(row, 1)?, reason(row, 2)?)))?
        .collect::<Result<_, _>>()?;
    for (delivery, status, reason) in deliveries {
        if let (DeliveryStatus::Dead, Some(reason)) = (status, reason) {
            tx.delta.dead_now(reason, -1);
            groups::left(tx, delivery)?;
        }
        let key = params![blob(delivery)];
        tx.connection
            .prepare_cached("DELETE FROM attempts WHERE delivery_id = ?1")?
            .execute(key)?;
        tx.connection.prepare_cached("DELETE FROM deliveries WHERE id = ?1")?.execute(key)?;
        tx.delta.moved(Some(status), None);
    }
    let key = params![blob(event)];
    for belongs in [
        "DELETE FROM duplicates WHERE event_id = ?1",
        "DELETE FROM decisions WHERE event_id = ?1",
        "DELETE FROM prune_later WHERE event_id = ?1",
    ] {
        tx.connection.prepare_cached(belongs)?.execute(key)?;
    }
    let (kind, attributes): (Option<String>, Option<String>) = tx
        .connection
        .prepare_cached(ERASE_EVENT)?
        .query_row(key, |row| Ok((row.get(0)?, row.get(1)?)))?;
    // What cannot be read must not be in the way of what has to go.
    let kind = kind.and_then(|text| EventKind::new(&text));
    let attributes = attributes.and_then(|json| Attributes::from_json(&json).ok());
    let attributes = attributes.unwrap_or_default();
    let terms = tx.terms.remove(tx.connection, event, (kind.as_ref(), &attributes))?;
    if let Some(payload) = payload {
        erase_payload(tx.connection, payload)?;
    }
    Ok(Erased { made, terms })
}
