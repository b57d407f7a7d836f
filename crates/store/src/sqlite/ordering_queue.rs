//! Ordering queues: deliveries that must be sent one after the other.
//!
//! Of all unfinished deliveries of a destination with the same ordering key, the one with the
//! lowest number is first; the others are `held`. Whatever ends the first one makes the next one
//! due in the same transaction, so that no held delivery is ever without one before it.

use rusqlite::{OptionalExtension, Result, Row, params};
use surehook_core::{
    decision::EventDecisionKind, delivery::state::DeliveryStatus, store::CancelResult,
};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};

use super::{
    awaited_statuses, callbacks, decisions,
    prepared::CachedStatements,
    row::{blob, id, status},
    writer::WriteTransaction,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePosition {
    pub(super) seq: i64,
    /// No unfinished delivery is before it.
    pub(super) is_first: bool,
}

// Numbers are never reused, not even after a restart.
const NEXT_SEQ: &str =
    "UPDATE counters SET value = value + 1 WHERE name = 'order_seq' RETURNING value";

const HAS_UNFINISHED: &str = "
    SELECT EXISTS (SELECT 1 FROM deliveries
                    WHERE destination = ?1 AND order_key = ?2 AND ended_at IS NULL)";

/// Appends a new delivery to the queue of its key.
pub(super) fn append(
    tx: &mut WriteTransaction<'_, '_>,
    destination: i64,
    key: &str,
) -> Result<QueuePosition> {
    let seq = tx.sql.get(NEXT_SEQ)?.query_row([], |row| row.get(0))?;
    let has_unfinished: bool =
        tx.sql.get(HAS_UNFINISHED)?.query_row(params![destination, key], |row| row.get(0))?;
    Ok(QueuePosition { seq, is_first: !has_unfinished })
}

const QUEUE_OF: &str =
    "SELECT destination, order_key FROM deliveries WHERE id = ?1 AND order_key IS NOT NULL";

// `DeliveryTransition::EndHold`
const RELEASE_NEXT: &str = "
    UPDATE deliveries SET state = 'pending', due_at = max(?3, coalesce(not_before, created_at))
     WHERE state = 'held' AND id =
           (SELECT id FROM deliveries
             WHERE destination = ?1 AND order_key = ?2 AND ended_at IS NULL
             ORDER BY order_seq LIMIT 1)";

/// Makes the next delivery due after one with an ordering key has ended.
pub(super) fn release_next(
    tx: &mut WriteTransaction<'_, '_>,
    ended: DeliveryId,
    now: Timestamp,
) -> Result<()> {
    let queue: Option<(i64, String)> = tx
        .sql
        .get(QUEUE_OF)?
        .query_row(params![blob(ended)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((destination, key)) = queue else { return Ok(()) };
    let released = tx.sql.get(RELEASE_NEXT)?.execute(params![destination, key, now.as_millis()])?;
    tx.counts.count_moves(DeliveryStatus::Held, DeliveryStatus::Pending, released);
    Ok(())
}

// `DeliveryTransition::EndHold`
const RELEASE_ALL: &str = "
    UPDATE deliveries SET state = 'pending', due_at = max(?2, coalesce(not_before, created_at))
     WHERE state = 'held' AND order_key IS NOT NULL AND ended_at IS NULL
       AND destination = (SELECT seq FROM destinations WHERE id = ?1)";

/// Makes all held deliveries due after the ordering of a destination was removed.
pub(super) fn release_all(
    tx: &mut WriteTransaction<'_, '_>,
    destination: DestinationId,
    now: Timestamp,
) -> Result<()> {
    let released = tx.run(RELEASE_ALL, params![blob(destination), now.as_millis()])?;
    tx.counts.count_moves(DeliveryStatus::Held, DeliveryStatus::Pending, released);
    Ok(())
}

const FIND: &str = "
    SELECT d.state, t.id, d.event_id FROM deliveries d JOIN destinations t ON t.seq = d.destination
     WHERE d.id = ?1";

// `DeliveryTransition::Cancel`
const CANCEL: &str =
    "UPDATE deliveries SET state = 'cancelled', ended_at = ?2, due_at = NULL WHERE id = ?1";

/// Implements `AdminStore::cancel`.
pub(super) fn cancel(
    tx: &mut WriteTransaction<'_, '_>,
    delivery: DeliveryId,
    now: Timestamp,
) -> Result<CancelResult> {
    let read = |row: &Row<'_>| Ok((status(row, 0)?, id(row, 1)?, id(row, 2)?));
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
    tx.counts.count_move(Some(from), Some(DeliveryStatus::Cancelled));
    decisions::insert_for_delivery(tx, event, delivery, EventDecisionKind::Cancelled, now)?;
    release_next(tx, delivery, now)?;
    Ok(CancelResult::Done { destination })
}
