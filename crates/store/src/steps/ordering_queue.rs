//! Ordering queues: deliveries that must be sent one after the other.
//!
//! Of all unfinished deliveries of a destination with the same ordering key, the one with the
//! lowest number is first; the others are `held`. Whatever ends the first one makes the next one
//! due in the same transaction, so that no held delivery is ever without one before it.

use surehook_core::{
    decision::EventDecisionKind, delivery::state::DeliveryStatus, store::CancelResult,
};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};

use super::{
    StepTransaction, awaited_statuses, callbacks, decisions,
    row::{blob, id, status},
};
use crate::sql::{Dialect as _, Result, SqlError, SqlRow, params};

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePosition {
    pub(crate) seq: i64,
    /// No unfinished delivery is before it.
    pub(crate) is_first: bool,
}

const HAS_UNFINISHED: &str = "
    SELECT EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_line
                    WHERE destination = ?1 AND order_key = ?2 AND ended_at IS NULL)";

/// Appends a new delivery to the queue of its key.
pub(crate) fn append<T: StepTransaction>(
    tx: &mut T,
    destination: i64,
    key: &str,
) -> Result<QueuePosition> {
    let seq = tx.find_prepared(T::Dialect::NEXT_ORDER_NUMBER, params![], |row| row.get(0))?;
    let seq = seq.ok_or(SqlError::RowMissing)?;
    let has_unfinished =
        tx.find_prepared(HAS_UNFINISHED, params![destination, key], |row| row.get(0))?;
    let has_unfinished: bool = has_unfinished.unwrap_or_default();
    Ok(QueuePosition { seq, is_first: !has_unfinished })
}

const QUEUE_OF: &str =
    "SELECT destination, order_key FROM deliveries WHERE id = ?1 AND order_key IS NOT NULL";

// `DeliveryTransition::EndHold`
const RELEASE_NEXT: &str = "
    UPDATE deliveries SET state = 'pending', due_at = CASE WHEN coalesce(not_before, created_at) > ?3
                                              THEN coalesce(not_before, created_at) ELSE ?3 END
     WHERE state = 'held' AND id =
           (SELECT id FROM deliveries INDEXED BY deliveries_line
             WHERE destination = ?1 AND order_key = ?2 AND ended_at IS NULL
             ORDER BY order_seq LIMIT 1)";

/// Makes the next delivery due after one with an ordering key has ended.
pub(crate) fn release_next(
    tx: &mut impl StepTransaction,
    ended: DeliveryId,
    now: Timestamp,
) -> Result<()> {
    let queue: Option<(i64, String)> =
        tx.find_prepared(QUEUE_OF, params![blob(ended)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some((destination, key)) = queue else { return Ok(()) };
    let released = tx.run_prepared(RELEASE_NEXT, params![destination, key, now.as_millis()])?;
    tx.counts().count_moves(DeliveryStatus::Held, DeliveryStatus::Pending, released);
    Ok(())
}

// `DeliveryTransition::EndHold`
const RELEASE_ALL: &str = "
    UPDATE deliveries SET state = 'pending', due_at = CASE WHEN coalesce(not_before, created_at) > ?2
                                              THEN coalesce(not_before, created_at) ELSE ?2 END
     WHERE id IN (SELECT id FROM deliveries INDEXED BY deliveries_line
                   WHERE order_key IS NOT NULL AND ended_at IS NULL AND state = 'held'
                     AND destination = (SELECT seq FROM destinations WHERE id = ?1))";

/// Makes all held deliveries due after the ordering of a destination was removed.
pub(crate) fn release_all(
    tx: &mut impl StepTransaction,
    destination: DestinationId,
    now: Timestamp,
) -> Result<()> {
    let released = tx.run(RELEASE_ALL, params![blob(destination), now.as_millis()])?;
    tx.counts().count_moves(DeliveryStatus::Held, DeliveryStatus::Pending, released);
    Ok(())
}

const FIND: &str = "
    SELECT d.state, t.id, d.event_id FROM deliveries d JOIN destinations t ON t.seq = d.destination
     WHERE d.id = ?1";

// `DeliveryTransition::Cancel`
const CANCEL: &str =
    "UPDATE deliveries SET state = 'cancelled', ended_at = ?2, due_at = NULL WHERE id = ?1";

/// Implements `AdminStore::cancel`.
pub(crate) fn cancel(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    now: Timestamp,
) -> Result<CancelResult> {
    let read = |row: &dyn SqlRow| Ok((status(row, 0)?, id(row, 1)?, id(row, 2)?));
    let found = tx.find_one(FIND, params![blob(delivery)], read)?;
    let Some((from, destination, event)) = found else { return Ok(CancelResult::NotFound) };
    match from {
        DeliveryStatus::Pending | DeliveryStatus::Scheduled | DeliveryStatus::Held => {}
        DeliveryStatus::InFlight
        | DeliveryStatus::Succeeded
        | DeliveryStatus::Dead
        | DeliveryStatus::Cancelled
        | DeliveryStatus::Replayed => return Ok(CancelResult::NotCancellable(from)),
    }
    tx.run(CANCEL, params![blob(delivery), now.as_millis()])?;
    awaited_statuses::remove(tx, delivery)?;
    callbacks::make_due(tx, delivery)?;
    tx.counts().count_move(Some(from), Some(DeliveryStatus::Cancelled));
    decisions::insert_for_delivery(tx, event, delivery, EventDecisionKind::Cancelled, now)?;
    release_next(tx, delivery, now)?;
    Ok(CancelResult::Done { destination })
}
