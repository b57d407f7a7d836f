//! Callbacks of deliveries: stored with the delivery, due in the transaction that ends it.

use serde_json::json;
use surehook_core::{
    callback::{Callback, CallbackResult, DeliveryEnd, DueCallback, LastAttempt},
    decision::{EventDecision, EventDecisionKind},
};
use surehook_retry::AttemptFailure;
use surehook_types::{
    ids::{DeliveryId, EventId},
    time::Timestamp,
};

use super::{
    StepTransaction, decisions,
    row::{blob, corrupt_value, id, json, optional_text, reason, status, text, time, to_json},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const INSERT: &str = "INSERT INTO callbacks (delivery_id, spec) VALUES (?1, ?2)";

pub(crate) fn insert(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    callback: &Callback,
) -> Result<()> {
    tx.run(INSERT, params![blob(delivery), to_json(callback)?])?;
    tx.hints_mut().callbacks = true;
    Ok(())
}

const COPY: &str = "
    INSERT INTO callbacks (delivery_id, spec) SELECT ?2, spec FROM callbacks WHERE delivery_id = ?1";

/// The replay of a delivery has the same callback.
pub(crate) fn copy(tx: &mut impl StepTransaction, old: DeliveryId, new: DeliveryId) -> Result<()> {
    if tx.hints().callbacks {
        tx.run(COPY, params![blob(old), blob(new)])?;
    }
    Ok(())
}

const MAKE_DUE: &str = "UPDATE callbacks SET state = 1 WHERE delivery_id = ?1 AND state = 0";

/// Makes the callback of a delivery due. Called by every step that ends deliveries.
pub(crate) fn make_due(tx: &impl StepTransaction, ended: DeliveryId) -> Result<()> {
    if tx.hints().callbacks {
        tx.run(MAKE_DUE, params![blob(ended)])?;
    }
    Ok(())
}

pub(crate) fn remove(tx: &impl StepTransaction, delivery: DeliveryId) -> Result<()> {
    if tx.hints().callbacks {
        tx.run("DELETE FROM callbacks WHERE delivery_id = ?1", params![blob(delivery)])?;
    }
    Ok(())
}

/// Whether there is any callback.
pub(crate) fn exist(connection: &impl SqlConnection) -> Result<bool> {
    connection.read_one("SELECT EXISTS (SELECT 1 FROM callbacks)", params![], |row| row.get(0))
}

// Reads only what is due.
pub(crate) const DUE: &str = "
    SELECT c.spec, d.id, d.event_id, t.name, d.state, d.reason, d.attempts, d.ended_at,
           a.status, a.failure, a.detail, a.response, a.number
      FROM callbacks c JOIN deliveries d ON d.id = c.delivery_id
      JOIN destinations t ON t.seq = d.destination
      LEFT JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts
     WHERE c.state = 1 AND c.delivery_id > ?1 ORDER BY c.delivery_id LIMIT ?2";

/// Implements `DeliveryStore::list_due_callbacks`.
pub(crate) fn list_due(
    connection: &impl SqlConnection,
    after: Option<DeliveryId>,
    limit: usize,
) -> Result<Vec<DueCallback>> {
    connection.read_all(DUE, params![after.map_or([0; 16], blob), limit], read_due)
}

fn read_due(row: &dyn SqlRow) -> Result<DueCallback> {
    let reason = reason(row, 5)?;
    // One that a replay has taken over since was dead or had succeeded, as its reason tells.
    let end = match text(row, 4, |state| (state == "replayed").then_some(())) {
        Ok(()) if reason.is_some() => DeliveryEnd::Dead,
        Ok(()) => DeliveryEnd::Succeeded,
        Err(_) => DeliveryEnd::of(status(row, 4)?)
            .ok_or_else(|| corrupt_value(4, "a callback is due, and its delivery has not ended"))?,
    };
    let attempt: Option<u32> = row.get(12)?;
    let last_attempt = match attempt {
        None => None,
        Some(_) => Some(LastAttempt {
            status: row.get(8)?,
            failure: optional_text(row, 9, AttemptFailure::parse)?,
            detail: row.get(10)?,
            response: row.get::<Option<Vec<u8>>>(11)?.unwrap_or_default(),
        }),
    };
    Ok(DueCallback {
        callback: json(row, 0)?,
        delivery: id(row, 1)?,
        event: id(row, 2)?,
        destination: row.get(3)?,
        end,
        reason,
        attempts: row.get(6)?,
        ended_at: time(row, 7)?,
        last_attempt,
    })
}

const END: &str = "UPDATE callbacks SET state = 2 WHERE delivery_id = ?1 AND state = 1";
const EVENT_OF: &str = "SELECT event_id FROM deliveries WHERE id = ?1";

/// Implements `DeliveryStore::end_callback`.
pub(crate) fn end(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    result: CallbackResult,
    at: Timestamp,
) -> Result<()> {
    if tx.run(END, params![blob(delivery)])? == 0 {
        return Ok(());
    }
    let event: Option<EventId> =
        tx.find_one(EVENT_OF, params![blob(delivery)], |row| id(row, 0))?;
    let Some(event) = event else { return Ok(()) };
    let (kind, detail) = match result {
        CallbackResult::Posted(callback) => {
            (EventDecisionKind::CallbackPosted, json!({ "event": callback }))
        }
        CallbackResult::NoDestination => (EventDecisionKind::CallbackLost, json!(null)),
        CallbackResult::NotRequested => return Ok(()),
    };
    let decision = EventDecision { event, delivery: Some(delivery), at, kind, detail };
    decisions::insert(tx, &decision)
}
