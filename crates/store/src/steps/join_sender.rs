//! A duplicate whose sender waits for the result: finds the delivery to wait for, and makes it due
//! at once.

use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    store::{JoinRequest, JoinResult, NextStep},
    sync::{SyncResult, is_revivable},
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{
    StepTransaction, decisions, replay,
    row::{blob, id, optional_text, optional_time, reason, status},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// The delivery to wait for; replayed deliveries are represented by their replay.
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

fn read_target(row: &dyn SqlRow) -> Result<JoinTarget> {
    Ok(JoinTarget {
        delivery: id(row, 0)?,
        status: status(row, 1)?,
        attempts: row.get(2)?,
        reason: reason(row, 3)?,
        due_at: optional_time(row, 4)?,
    })
}

/// Implements `IngestStore::join`.
pub(crate) fn join_delivery(
    tx: &mut impl StepTransaction,
    request: &JoinRequest,
) -> Result<JoinResult> {
    let values = params![blob(request.event), blob(request.destination)];
    let Some(target) = tx.find_one(FIND_TARGET, values, read_target)? else {
        let exists = tx.exists(EVENT_EXISTS, params![blob(request.event)])?;
        return Ok(if exists { JoinResult::NoDelivery } else { JoinResult::Expired });
    };
    let JoinTarget { delivery, attempts, .. } = target;
    let is_deleted = tx.destination_seq(request.destination)?.is_none();
    match target.status {
        // It is still to be cancelled, but will not be attempted.
        DeliveryStatus::Pending
        | DeliveryStatus::InFlight
        | DeliveryStatus::Held
        | DeliveryStatus::Scheduled
            if is_deleted =>
        {
            Ok(JoinResult::Cancelled)
        }
        DeliveryStatus::Pending | DeliveryStatus::InFlight | DeliveryStatus::Held => {
            Ok(JoinResult::InProgress { delivery, attempts, due: Vec::new() })
        }
        DeliveryStatus::Scheduled => join_scheduled(tx, request, &target),
        DeliveryStatus::Succeeded => {
            last_attempt_result(tx, delivery, NextStep::Succeeded).map(JoinResult::Ended)
        }
        DeliveryStatus::Dead => join_dead(tx, request, &target),
        DeliveryStatus::Cancelled | DeliveryStatus::Replayed => Ok(JoinResult::Cancelled),
    }
}

/// Makes a scheduled retry due now, unless the destination asked to wait or a status may still
/// report that the message arrived. Then the sender gets the last result instead.
fn join_scheduled(
    tx: &impl StepTransaction,
    request: &JoinRequest,
    target: &JoinTarget,
) -> Result<JoinResult> {
    let due_at = target.due_at.unwrap_or(request.now);
    let last = last_attempt_result(tx, target.delivery, NextStep::RetryAt(due_at))?;
    let must_wait = matches!(last.class, Some(FailureClass::Throttled | FailureClass::Ambiguous));
    if must_wait && due_at > request.now {
        return Ok(JoinResult::Ended(last));
    }
    make_due_now(tx, request, target.delivery)?;
    let (delivery, attempts) = (target.delivery, target.attempts);
    Ok(JoinResult::InProgress { delivery, attempts, due: vec![request.destination] })
}

// Not a state transition: it stays scheduled, for now.
const MAKE_DUE_NOW: &str = "
    UPDATE deliveries SET due_at = ?2 WHERE id = ?1 AND state = 'scheduled' AND due_at > ?2";

fn make_due_now(
    connection: &impl SqlConnection,
    request: &JoinRequest,
    delivery: DeliveryId,
) -> Result<()> {
    let (event, now) = (request.event, request.now);
    if connection.run(MAKE_DUE_NOW, params![blob(delivery), now.as_millis()])? > 0 {
        let kind = EventDecisionKind::BroughtForward;
        decisions::insert_for_delivery(connection, event, delivery, kind, now)?;
    }
    Ok(())
}

fn join_dead(
    tx: &mut impl StepTransaction,
    request: &JoinRequest,
    target: &JoinTarget,
) -> Result<JoinResult> {
    let reason = target.reason.unwrap_or(DeadReason::Unrecoverable);
    if request.revive && is_revivable(reason) {
        let due = replay::revive_event(tx, request.event, request.request, request.now)?;
        let due = if due.is_empty() {
            replay::revive_delivery(tx, target.delivery, request.request, request.now)?
        } else {
            due
        };
        let delivery = replay::derive_delivery_id(target.delivery, request.request, request.now);
        if due.contains(&request.destination) {
            return Ok(JoinResult::InProgress { delivery, attempts: 0, due });
        }
        // Without a body no retry can succeed, so the sender must not be asked to retry.
        if !tx.exists(HAS_BODY, params![blob(request.event)])? {
            return Ok(JoinResult::Expired);
        }
        // The destination is deleted: the last result is final.
    }
    last_attempt_result(tx, target.delivery, NextStep::Dead(reason)).map(JoinResult::Ended)
}

const LAST_ATTEMPT: &str = "
    SELECT class, response FROM attempts WHERE delivery_id = ?1 ORDER BY number DESC LIMIT 1";

fn last_attempt_result(
    connection: &impl SqlConnection,
    delivery: DeliveryId,
    next: NextStep,
) -> Result<SyncResult> {
    let last = connection.find_one(LAST_ATTEMPT, params![blob(delivery)], |row| {
        let response: Option<Vec<u8>> = row.get(1)?;
        Ok((optional_text(row, 0, FailureClass::parse)?, response.unwrap_or_default()))
    })?;
    // Attempts may be pruned before their delivery, whose end is still known.
    let (class, response) = last.unwrap_or_default();
    Ok(SyncResult { next, class, response })
}
