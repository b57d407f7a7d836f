//! A sender that came again and waits: finds what is owed, and hurries it up.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    ids::DeliveryId,
    store::{JoinRequest, JoinResult, NextStep},
    sync::{SyncResult, is_revivable},
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
    status: DeliveryStatus,
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
pub(super) fn join(tx: &mut Tx<'_, '_>, wish: &JoinRequest) -> rusqlite::Result<JoinResult> {
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
        return Ok(if known { JoinResult::NotOwed } else { JoinResult::Forgotten });
    };
    let Owed { delivery, attempts, .. } = owed;
    let is_deleted = !tx.names.destinations.contains_key(&wish.destination);
    match owed.status {
        // Its slice has not come yet, but nobody will try it.
        DeliveryStatus::Pending
        | DeliveryStatus::InFlight
        | DeliveryStatus::Held
        | DeliveryStatus::Scheduled
            if is_deleted =>
        {
            Ok(JoinResult::Cancelled)
        }
        DeliveryStatus::Pending | DeliveryStatus::InFlight | DeliveryStatus::Held => {
            Ok(JoinResult::Underway { delivery, attempts, due: Vec::new() })
        }
        DeliveryStatus::Scheduled => scheduled(tx, wish, &owed),
        DeliveryStatus::Succeeded => {
            ending(tx, delivery, NextStep::Succeeded).map(JoinResult::Ended)
        }
        DeliveryStatus::Dead => dead(tx, wish, &owed),
        DeliveryStatus::Cancelled | DeliveryStatus::Replayed => Ok(JoinResult::Cancelled),
    }
}

/// Hurries up what waits for its next attempt; but not against the wish of the destination, and not
/// while a word may come that it has arrived. The sender is told so instead.
fn scheduled(tx: &Tx<'_, '_>, wish: &JoinRequest, owed: &Owed) -> rusqlite::Result<JoinResult> {
    let due_at = owed.due_at.unwrap_or(wish.now);
    let last = ending(tx, owed.delivery, NextStep::RetryAt(due_at))?;
    let must_wait = matches!(last.class, Some(FailureClass::Throttled | FailureClass::Ambiguous));
    if must_wait && due_at > wish.now {
        return Ok(JoinResult::Ended(last));
    }
    hasten(tx, wish, owed.delivery)?;
    let (delivery, attempts) = (owed.delivery, owed.attempts);
    Ok(JoinResult::Underway { delivery, attempts, due: vec![wish.destination] })
}

// Not a move: it stays scheduled, for now.
const HASTEN: &str = "
    UPDATE deliveries SET due_at = ?2 WHERE id = ?1 AND state = 'scheduled' AND due_at > ?2";

fn hasten(tx: &Tx<'_, '_>, wish: &JoinRequest, delivery: DeliveryId) -> rusqlite::Result<()> {
    let now = wish.now.as_millis();
    let changed = tx.connection.prepare_cached(HASTEN)?.execute(params![blob(delivery), now])?;
    if changed > 0 {
        let decision = EventDecision {
            event: wish.event,
            delivery: Some(delivery),
            at: wish.now,
            kind: EventDecisionKind::Hastened,
            detail: Value::Null,
        };
        decide::note(tx.connection, &decision)?;
    }
    Ok(())
}

fn dead(tx: &mut Tx<'_, '_>, wish: &JoinRequest, owed: &Owed) -> rusqlite::Result<JoinResult> {
    let reason = owed.reason.unwrap_or(DeadReason::Unrecoverable);
    if wish.revive && is_revivable(reason) {
        let due = replay::revive(tx, wish.event, wish.request, wish.now)?;
        let due = if due.is_empty() {
            replay::revive_one(tx, owed.delivery, wish.request, wish.now)?
        } else {
            due
        };
        let delivery = replay::heir(owed.delivery, wish.request, wish.now);
        if due.contains(&wish.destination) {
            return Ok(JoinResult::Underway { delivery, attempts: 0, due });
        }
        // To ask the sender for another try would be to ask for ever.
        if !tx.connection.prepare_cached(HAS_BODY)?.exists(params![blob(wish.event)])? {
            return Ok(JoinResult::Forgotten);
        }
        // The destination is gone, and the end is the end.
    }
    ending(tx, owed.delivery, NextStep::Dead(reason)).map(JoinResult::Ended)
}

const LAST_ATTEMPT: &str = "
    SELECT class, response FROM attempts WHERE delivery_id = ?1 ORDER BY number DESC LIMIT 1";

/// What is kept of the latest attempt.
fn ending(tx: &Tx<'_, '_>, delivery: DeliveryId, next: NextStep) -> rusqlite::Result<SyncResult> {
    let last = tx
        .connection
        .prepare_cached(LAST_ATTEMPT)?
        .query_row(params![blob(delivery)], |row| {
            let response: Option<Vec<u8>> = row.get(1)?;
            Ok((word(row, 0, FailureClass::from_word)?, response.unwrap_or_default()))
        })
        .optional()?;
    // Attempts may be removed before their delivery; that it ended, and how, is still known.
    let (class, response) = last.unwrap_or_default();
    Ok(SyncResult { next, class, response })
}
