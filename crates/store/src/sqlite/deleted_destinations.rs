//! What is still owed to a destination that was deleted: cancelled a slice at a time.
//!
//! The deletion itself takes the destination out of the names, after which nothing is made for it,
//! claimed or settled, and cancels the first slice. A note in `meta` says that there may be more; it
//! goes with the last slice, so that a restart in between goes on.
//!
//! Whenever its slice comes, a delivery has ended when its destination was deleted.

use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;
use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    delivery::state::DeliveryStatus,
    ids::{DeliveryId, DestinationId, EventId},
    time::Timestamp,
};

use super::{
    awaited_statuses, crash_outcomes, decisions,
    row::{blob, id, status, time},
    statuses,
    writer::WriteTransaction,
};

/// Deliveries in a slice: as many as a slice of retention looks at.
const PER_SLICE: usize = 200;

/// A delivery that is to be cancelled.
struct PendingDelivery {
    id: DeliveryId,
    event: EventId,
    status: DeliveryStatus,
}

// A walk over what all lanes have in their hands.
const IN_FLIGHT: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_leased
     WHERE lease_until IS NOT NULL AND destination = ?1 LIMIT ?2";
const WAITING: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_due
     WHERE destination = ?1 AND due_at IS NOT NULL LIMIT ?2";
const ORDERED: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_line
     WHERE destination = ?1 AND order_key IS NOT NULL AND ended_at IS NULL LIMIT ?2";

const INSERT_MARKER: &str =
    "INSERT OR REPLACE INTO meta (name, value) VALUES ('deleted:' || ?1, ?1)";
const DELETE_MARKER: &str = "DELETE FROM meta WHERE name = 'deleted:' || ?1";
// The character after the colon is the semicolon.
const NEXT_MARKED: &str = "
    SELECT t.seq, t.deleted_at FROM meta m JOIN destinations t ON t.seq = m.value
     WHERE m.name > 'deleted:' AND m.name < 'deleted;' LIMIT 1";

/// Begins with a destination that was deleted at `at`.
pub(super) fn start_cancelling(
    tx: &mut WriteTransaction<'_, '_>,
    destination: i64,
    at: Timestamp,
) -> rusqlite::Result<()> {
    tx.connection.execute(INSERT_MARKER, params![destination])?;
    cancel_slice(tx, [IN_FLIGHT, WAITING, ORDERED], destination, at)?;
    Ok(())
}

/// See `AdminStore::cancel_for_deleted`.
pub(super) fn cancel_next_slice(tx: &mut WriteTransaction<'_, '_>) -> rusqlite::Result<bool> {
    let next: Option<(i64, Timestamp)> = tx
        .connection
        .prepare_cached(NEXT_MARKED)?
        .query_row([], |row| Ok((row.get(0)?, time(row, 1)?)))
        .optional()?;
    let Some((destination, at)) = next else { return Ok(false) };
    cancel_slice(tx, [WAITING, ORDERED, IN_FLIGHT], destination, at)?;
    // Another one may have been deleted too; the next call knows.
    Ok(true)
}

const DELETED_AT: &str = "
    SELECT seq, deleted_at FROM destinations WHERE id = ?1 AND deleted_at IS NOT NULL";

/// Cancels the rest at once if the destination is put again: it begins anew, and must not get what
/// it was owed before. New destinations have new ids, so this is rare.
pub(super) fn cancel_all(
    tx: &mut WriteTransaction<'_, '_>,
    destination: DestinationId,
) -> rusqlite::Result<()> {
    let found: Option<(i64, Timestamp)> = tx
        .connection
        .prepare_cached(DELETED_AT)?
        .query_row(params![blob(destination)], |row| Ok((row.get(0)?, time(row, 1)?)))
        .optional()?;
    let Some((destination, at)) = found else { return Ok(()) };
    while cancel_slice(tx, [WAITING, ORDERED, IN_FLIGHT], destination, at)? {}
    Ok(())
}

/// Cancels one slice of what is found in these ways, the first ones first; says whether there may be
/// more.
fn cancel_slice(
    tx: &mut WriteTransaction<'_, '_>,
    queries: [&str; 3],
    destination: i64,
    at: Timestamp,
) -> rusqlite::Result<bool> {
    let mut left = PER_SLICE;
    for find in queries {
        if left > 0 {
            left -= cancel_found(tx, find, destination, at, left)?;
        }
    }
    if left > 0 {
        tx.connection.prepare_cached(DELETE_MARKER)?.execute(params![destination])?;
    }
    Ok(left == 0)
}

// Input::Cancel
const CANCEL: &str = "
    UPDATE deliveries
       SET state = 'cancelled', ended_at = ?2, due_at = NULL, lease_token = NULL, lease_until = NULL
     WHERE id = ?1";

/// Cancels up to `limit` of those that `find` finds; says how many.
fn cancel_found(
    tx: &mut WriteTransaction<'_, '_>,
    find: &str,
    destination: i64,
    at: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let found: Vec<PendingDelivery> = tx
        .connection
        .prepare_cached(find)?
        .query_map(params![destination, limit], pending_delivery)?
        .collect::<Result<_, _>>()?;
    let mut cancel = tx.connection.prepare_cached(CANCEL)?;
    for delivery in &found {
        cancel.execute(params![blob(delivery.id), at.as_millis()])?;
        crash_outcomes::remove(tx, delivery.id)?;
        statuses::remove_stored(tx, delivery.id)?;
        awaited_statuses::remove(tx, delivery.id)?;
        tx.counts.count_move(Some(delivery.status), Some(DeliveryStatus::Cancelled));
        let decision = EventDecision {
            event: delivery.event,
            delivery: Some(delivery.id),
            at,
            kind: EventDecisionKind::Cancelled,
            detail: Value::Null,
        };
        decisions::insert(tx.connection, &decision)?;
    }
    Ok(found.len())
}

fn pending_delivery(row: &Row<'_>) -> rusqlite::Result<PendingDelivery> {
    Ok(PendingDelivery { id: id(row, 0)?, event: id(row, 1)?, status: status(row, 2)? })
}

#[cfg(test)]
mod tests {
    use super::{super::schema::query_plan, *};

    #[test]
    fn a_slice_reads_only_what_it_cancels() {
        let cases = [
            (WAITING, "SEARCH deliveries USING INDEX deliveries_due (destination=? AND due_at>?)"),
            (
                ORDERED,
                "SEARCH deliveries USING INDEX deliveries_line (destination=? AND order_key>?)",
            ),
            (IN_FLIGHT, "SEARCH deliveries USING INDEX deliveries_leased (lease_until>?)"),
        ];
        for (sql, expected) in cases {
            assert_eq!(query_plan(sql), [expected], "{sql}");
        }
        let noted = query_plan(NEXT_MARKED);
        assert!(noted.iter().all(|step| step.starts_with("SEARCH")), "{noted:#?}");
    }
}
