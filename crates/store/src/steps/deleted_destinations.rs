//! Cancels the pending deliveries of deleted destinations, a slice at a time.
//!
//! The deletion removes the destination from the row numbers, after which nothing is inserted,
//! claimed or settled for it, and cancels the first slice. A marker in `meta` says that there may
//! be more; it is removed with the last slice, so that a restart in between continues.
//!
//! Whenever its slice is processed, a delivery ends at the time its destination was deleted.

use surehook_core::{decision::EventDecisionKind, delivery::state::DeliveryStatus};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    time::Timestamp,
};

use super::{
    StepTransaction, awaited_statuses, callbacks, crash_outcomes, decisions,
    row::{blob, id, status, time},
    statuses,
};
use crate::sql::{Result, SqlRow, params};

/// Deliveries per slice: as many as retention removes at once.
const DELIVERIES_PER_SLICE: usize = 200;

struct PendingDelivery {
    id: DeliveryId,
    event: EventId,
    status: DeliveryStatus,
}

// Reads the in-flight deliveries of all destinations.
const IN_FLIGHT: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_leased
     WHERE lane_epoch IS NOT NULL AND destination = ?1 LIMIT ?2";
const WAITING: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_due
     WHERE destination = ?1 AND due_at IS NOT NULL LIMIT ?2";
const ORDERED: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_line
     WHERE destination = ?1 AND order_key IS NOT NULL AND ended_at IS NULL LIMIT ?2";

const INSERT_MARKER: &str =
    "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
const DELETE_MARKER: &str = "DELETE FROM meta WHERE name = ?1";
// ';' is the character after ':'.
const NEXT_MARKED: &str = "
    SELECT t.seq, t.deleted_at FROM meta m JOIN destinations t ON t.seq = CAST(m.value AS bigint)
     WHERE m.name > 'deleted:' AND m.name < 'deleted;' LIMIT 1";

fn marker_name(destination: i64) -> String {
    format!("deleted:{destination}")
}

/// Cancels the first slice of a destination that was deleted at `at`.
pub(crate) fn start_cancelling(
    tx: &mut impl StepTransaction,
    destination: i64,
    at: Timestamp,
) -> Result<()> {
    tx.run(INSERT_MARKER, params![marker_name(destination), destination.to_string()])?;
    cancel_slice(tx, [IN_FLIGHT, WAITING, ORDERED], destination, at)?;
    Ok(())
}

/// Implements `AdminStore::cancel_for_deleted_destinations`.
pub(crate) fn cancel_next_slice(tx: &mut impl StepTransaction) -> Result<bool> {
    let next = tx.find_one(NEXT_MARKED, params![], |row| Ok((row.get(0)?, time(row, 1)?)))?;
    let Some((destination, at)) = next else { return Ok(false) };
    cancel_slice(tx, [WAITING, ORDERED, IN_FLIGHT], destination, at)?;
    // Another destination may have been deleted too; the next call finds it.
    Ok(true)
}

const DELETED_AT: &str = "
    SELECT seq, deleted_at FROM destinations WHERE id = ?1 AND deleted_at IS NOT NULL";

/// Cancels all the rest at once when a deleted destination is put again: it starts over and must
/// not get old deliveries. This is rare, because new destinations have new ids.
pub(crate) fn cancel_all(tx: &mut impl StepTransaction, destination: DestinationId) -> Result<()> {
    let read = |row: &dyn SqlRow| Ok((row.get(0)?, time(row, 1)?));
    let found = tx.find_one(DELETED_AT, params![blob(destination)], read)?;
    let Some((destination, at)) = found else { return Ok(()) };
    while cancel_slice(tx, [WAITING, ORDERED, IN_FLIGHT], destination, at)? {}
    Ok(())
}

/// Cancels one slice of the deliveries found by these queries, in this order; returns whether there
/// may be more.
fn cancel_slice(
    tx: &mut impl StepTransaction,
    queries: [&str; 3],
    destination: i64,
    at: Timestamp,
) -> Result<bool> {
    let mut remaining = DELIVERIES_PER_SLICE;
    for find in queries {
        if remaining > 0 {
            remaining -= cancel_found(tx, find, destination, at, remaining)?;
        }
    }
    if remaining > 0 {
        tx.run(DELETE_MARKER, params![marker_name(destination)])?;
    }
    Ok(remaining == 0)
}

// `DeliveryTransition::Cancel`
const CANCEL: &str = "
    UPDATE deliveries
       SET state = 'cancelled', ended_at = ?2, due_at = NULL, claim_number = NULL, lane_epoch = NULL
     WHERE id = ?1";

/// Cancels up to `limit` deliveries found by `find`; returns how many.
fn cancel_found(
    tx: &mut impl StepTransaction,
    find: &str,
    destination: i64,
    at: Timestamp,
    limit: usize,
) -> Result<usize> {
    let found: Vec<PendingDelivery> =
        tx.read_all(find, params![destination, limit], read_pending)?;
    for delivery in &found {
        tx.run(CANCEL, params![blob(delivery.id), at.as_millis()])?;
        crash_outcomes::remove(tx, delivery.id)?;
        statuses::remove_stored(tx, delivery.id)?;
        awaited_statuses::remove(tx, delivery.id)?;
        callbacks::make_due(tx, delivery.id)?;
        tx.counts().count_move(Some(delivery.status), Some(DeliveryStatus::Cancelled));
        let kind = EventDecisionKind::Cancelled;
        decisions::insert_for_delivery(tx, delivery.event, delivery.id, kind, at)?;
    }
    Ok(found.len())
}

fn read_pending(row: &dyn SqlRow) -> Result<PendingDelivery> {
    Ok(PendingDelivery { id: id(row, 0)?, event: id(row, 1)?, status: status(row, 2)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn slice_reads_only_deliveries_it_cancels() {
        let cases = [
            (WAITING, "SEARCH deliveries USING INDEX deliveries_due (destination=? AND due_at>?)"),
            (
                ORDERED,
                "SEARCH deliveries USING INDEX deliveries_line (destination=? AND order_key>?)",
            ),
            (IN_FLIGHT, "SEARCH deliveries USING INDEX deliveries_leased (lane_epoch>?)"),
        ];
        for (sql, expected) in cases {
            assert_eq!(query_plan(sql), [expected], "{sql}");
        }
        let noted = query_plan(NEXT_MARKED);
        assert!(noted.iter().all(|step| step.starts_with("SEARCH")), "{noted:#?}");
    }
}
