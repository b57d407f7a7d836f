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
    decisions, replay,
    row::{blob, id, optional_time, reason, status, word},
    writer::WriteTransaction,
};

/// The delivery that counts: whatever was replayed has handed its turn on.
struct JoinTarget {
    delivery: DeliveryId,
    status: DeliveryStatus,
    attempts: u32,
    reason: Option<DeadReason>,
    due_at: Option<Timestamp>,
}

const FIND_TARGET: &str = "
    SELECT d.id, d.state, d.attempts, d.reason, d.due_at FROM deliveries d
      JOIN destinations t ON t.seq = d.destination
     WHERE d.event_id = ?1 AND t.id = ?2 AND d.state <> 'replayed' ORDER BY d.id DESC LIMIT 1";

const EVENT_EXISTS: &str = "SELECT 1 FROM events WHERE id = ?1";
const HAS_BODY: &str = "SELECT 1 FROM events WHERE id = ?1 AND payload IS NOT NULL";

/// See `IngestStore::join_delivery`.
pub(super) fn join_delivery(
    tx: &mut WriteTransaction<'_, '_>,
    wish: &JoinRequest,
) -> rusqlite::Result<JoinResult> {
    let target = tx
        .connection
        .prepare_cached(FIND_TARGET)?
        .query_row(params![blob(wish.event), blob(wish.destination)], |row| {
            Ok(JoinTarget {
                delivery: id(row, 0)?,
                status: status(row, 1)?,
                attempts: row.get(2)?,
                reason: reason(row, 3)?,
                due_at: optional_time(row, 4)?,
            })
        })
        .optional()?;
    let Some(target) = target else {
        let known =
            tx.connection.prepare_cached(EVENT_EXISTS)?.exists(params![blob(wish.event)])?;
        return Ok(if known { JoinResult::NotOwed } else { JoinResult::Forgotten });
    };
    let JoinTarget { delivery, attempts, .. } = target;
    let is_deleted = !tx.row_numbers.destinations.contains_key(&wish.destination);
    match target.status {
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
        DeliveryStatus::Scheduled => join_scheduled(tx, wish, &target),
        DeliveryStatus::Succeeded => {
            last_attempt_result(tx, delivery, NextStep::Succeeded).map(JoinResult::Ended)
        }
        DeliveryStatus::Dead => join_dead(tx, wish, &target),
        DeliveryStatus::Cancelled | DeliveryStatus::Replayed => Ok(JoinResult::Cancelled),
    }
}

/// Hurries up what waits for its next attempt; but not against the wish of the destination, and not
/// while a word may come that it has arrived. The sender is told so instead.
fn join_scheduled(
    tx: &WriteTransaction<'_, '_>,
    wish: &JoinRequest,
    target: &JoinTarget,
) -> rusqlite::Result<JoinResult> {
    let due_at = target.due_at.unwrap_or(wish.now);
    let last = last_attempt_result(tx, target.delivery, NextStep::RetryAt(due_at))?;
    let must_wait = matches!(last.class, Some(FailureClass::Throttled | FailureClass::Ambiguous));
    if must_wait && due_at > wish.now {
        return Ok(JoinResult::Ended(last));
    }
    make_due_now(tx, wish, target.delivery)?;
    let (delivery, attempts) = (target.delivery, target.attempts);
    Ok(JoinResult::Underway { delivery, attempts, due: vec![wish.destination] })
}

// Not a move: it stays scheduled, for now.
const MAKE_DUE_NOW: &str = "
    UPDATE deliveries SET due_at = ?2 WHERE id = ?1 AND state = 'scheduled' AND due_at > ?2";

fn make_due_now(
    tx: &WriteTransaction<'_, '_>,
    wish: &JoinRequest,
    delivery: DeliveryId,
) -> rusqlite::Result<()> {
    let now = wish.now.as_millis();
    let changed =
        tx.connection.prepare_cached(MAKE_DUE_NOW)?.execute(params![blob(delivery), now])?;
    if changed > 0 {
        let decision = EventDecision {
            event: wish.event,
            delivery: Some(delivery),
            at: wish.now,
            kind: EventDecisionKind::Hastened,
            detail: Value::Null,
        };
        decisions::insert(tx.connection, &decision)?;
    }
    Ok(())
}

fn join_dead(
    tx: &mut WriteTransaction<'_, '_>,
    wish: &JoinRequest,
    target: &JoinTarget,
) -> rusqlite::Result<JoinResult> {
    let reason = target.reason.unwrap_or(DeadReason::Unrecoverable);
    if wish.revive && is_revivable(reason) {
        let due = replay::revive_event(tx, wish.event, wish.request, wish.now)?;
        let due = if due.is_empty() {
            replay::revive_delivery(tx, target.delivery, wish.request, wish.now)?
        } else {
            due
        };
        let delivery = replay::derive_delivery_id(target.delivery, wish.request, wish.now);
        if due.contains(&wish.destination) {
            return Ok(JoinResult::Underway { delivery, attempts: 0, due });
        }
        // To ask the sender for another try would be to ask for ever.
        if !tx.connection.prepare_cached(HAS_BODY)?.exists(params![blob(wish.event)])? {
            return Ok(JoinResult::Forgotten);
        }
        // The destination is gone, and the end is the end.
    }
    last_attempt_result(tx, target.delivery, NextStep::Dead(reason)).map(JoinResult::Ended)
}

const LAST_ATTEMPT: &str = "
    SELECT class, response FROM attempts WHERE delivery_id = ?1 ORDER BY number DESC LIMIT 1";

/// What is kept of the latest attempt.
fn last_attempt_result(
    tx: &WriteTransaction<'_, '_>,
    delivery: DeliveryId,
    next: NextStep,
) -> rusqlite::Result<SyncResult> {
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
