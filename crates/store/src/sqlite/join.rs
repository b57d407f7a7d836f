//! A sender that came again and waits: finds what is owed, and hurries it up.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use surehook_core::{
    decision::{Decision, DecisionKind},
    delivery::{Class, DeadReason, state::Status},
    ids::DeliveryId,
    store::{JoinWish, Joined, Next},
    sync::{Ending, can_be_mended},
    time::Timestamp,
};

use super::{
    decide, replay,
    row::{blob, id, optional_time, reason, status, word},
    writer::Tx,
};

/// The delivery that counts: whatever was replayed has handed its turn on.
struct Owed {
    delivery: DeliveryId,
    status: Status,
    attempts: u32,
    reason: Option<DeadReason>,
    due_at: Option<Timestamp>,
}

const OWED: &str = "
    SELECT d.id, d.state, d.attempts, d.reason, d.due_at FROM deliveries d
      JOIN destinations t ON t.seq = d.destination
     WHERE d.event_id = ?1 AND t.id = ?2 AND d.state <> 'replayed' ORDER BY d.id DESC LIMIT 1";

const IS_KEPT: &str = "SELECT 1 FROM events WHERE id = ?1";
const HAS_BODY: &str = "SELECT 1 FROM events WHERE id = ?1 AND payload IS NOT NULL";

/// See `IngestStore::join`.
pub(super) fn join(tx: &mut Tx<'_, '_>, wish: &JoinWish) -> rusqlite::Result<Joined> {
    let owed = tx
        .connection
        .prepare_cached(OWED)?
        .query_row(params![blob(wish.event), blob(wish.destination)], |row| {
            Ok(Owed {
                delivery: id(row, 0)?,
                status: status(row, 1)?,
                attempts: row.get(2)?,
                reason: reason(row, 3)?,
                due_at: optional_time(row, 4)?,
            })
        })
        .optional()?;
    let Some(owed) = owed else {
        let known = tx.connection.prepare_cached(IS_KEPT)?.exists(params![blob(wish.event)])?;
        return Ok(if known { Joined::NotOwed } else { Joined::Forgotten });
    };
    let Owed { delivery, attempts, .. } = owed;
    let is_deleted = !tx.names.destinations.contains_key(&wish.destination);
    match owed.status {
        // Its slice has not come yet, but nobody will try it.
        Status::Pending | Status::InFlight | Status::Held | Status::Scheduled if is_deleted => {
            Ok(Joined::Cancelled)
        }
        Status::Pending | Status::InFlight | Status::Held => {
            Ok(Joined::Underway { delivery, attempts, due: Vec::new() })
        }
        Status::Scheduled => scheduled(tx, wish, &owed),
        Status::Succeeded => ending(tx, delivery, Next::Succeeded).map(Joined::Ended),
        Status::Dead => dead(tx, wish, &owed),
        Status::Cancelled | Status::Replayed => Ok(Joined::Cancelled),
    }
}

/// Hurries up what waits for its next attempt; but not against the wish of the destination, and not
/// while a word may come that it has arrived. The sender is told so instead.
fn scheduled(tx: &Tx<'_, '_>, wish: &JoinWish, owed: &Owed) -> rusqlite::Result<Joined> {
    let due_at = owed.due_at.unwrap_or(wish.now);
    let last = ending(tx, owed.delivery, Next::RetryAt(due_at))?;
    let must_wait = matches!(last.class, Some(Class::Throttled | Class::Ambiguous));
    if must_wait && due_at > wish.now {
        return Ok(Joined::Ended(last));
    }
    hasten(tx, wish, owed.delivery)?;
    let (delivery, attempts) = (owed.delivery, owed.attempts);
    Ok(Joined::Underway { delivery, attempts, due: vec![wish.destination] })
}

// Not a move: it stays scheduled, for now.
const HASTEN: &str = "
    UPDATE deliveries SET due_at = ?2 WHERE id = ?1 AND state = 'scheduled' AND due_at > ?2";

fn hasten(tx: &Tx<'_, '_>, wish: &JoinWish, delivery: DeliveryId) -> rusqlite::Result<()> {
    let now = wish.now.as_millis();
    let changed = tx.connection.prepare_cached(HASTEN)?.execute(params![blob(delivery), now])?;
    if changed > 0 {
        let decision = Decision {
            event: wish.event,
            delivery: Some(delivery),
            at: wish.now,
            kind: DecisionKind::Hastened,
            detail: Value::Null,
        };
        decide::note(tx.connection, &decision)?;
    }
    Ok(())
}

fn dead(tx: &mut Tx<'_, '_>, wish: &JoinWish, owed: &Owed) -> rusqlite::Result<Joined> {
    let reason = owed.reason.unwrap_or(DeadReason::Unrecoverable);
    if wish.revive && can_be_mended(reason) {
        let due = replay::revive(tx, wish.event, wish.request, wish.now)?;
        let due = if due.is_empty() {
            replay::revive_one(tx, owed.delivery, wish.request, wish.now)?
        } else {
            due
        };
        let delivery = replay::heir(owed.delivery, wish.request, wish.now);
        if due.contains(&wish.destination) {
            return Ok(Joined::Underway { delivery, attempts: 0, due });
        }
        // To ask the sender for another try would be to ask for ever.
        if !tx.connection.prepare_cached(HAS_BODY)?.exists(params![blob(wish.event)])? {
            return Ok(Joined::Forgotten);
        }
        // The destination is gone, and the end is the end.
    }
    ending(tx, owed.delivery, Next::Dead(reason)).map(Joined::Ended)
}

const LAST_ATTEMPT: &str = "
    SELECT class, response FROM attempts WHERE delivery_id = ?1 ORDER BY number DESC LIMIT 1";

/// What is kept of the latest attempt.
fn ending(tx: &Tx<'_, '_>, delivery: DeliveryId, next: Next) -> rusqlite::Result<Ending> {
    let last = tx
        .connection
        .prepare_cached(LAST_ATTEMPT)?
        .query_row(params![blob(delivery)], |row| {
            let response: Option<Vec<u8>> = row.get(1)?;
            Ok((word(row, 0, Class::from_word)?, response.unwrap_or_default()))
        })
        .optional()?;
    // Attempts may be removed before their delivery; that it ended, and how, is still known.
    let (class, response) = last.unwrap_or_default();
    Ok(Ending { next, class, response })
}
