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
    awaited, decide,
    row::{blob, id, status, time},
    statuses, wills,
    writer::Tx,
};

/// Deliveries in a slice: as many as a slice of retention looks at.
const PER_SLICE: usize = 200;

/// A delivery that is to be cancelled.
struct Owed {
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
const IN_LINE: &str = "
    SELECT id, event_id, state FROM deliveries INDEXED BY deliveries_line
     WHERE destination = ?1 AND order_key IS NOT NULL AND ended_at IS NULL LIMIT ?2";

const NOTE: &str = "INSERT OR REPLACE INTO meta (name, value) VALUES ('deleted:' || ?1, ?1)";
const FORGET: &str = "DELETE FROM meta WHERE name = 'deleted:' || ?1";
// The character after the colon is the semicolon.
const NEXT_NOTED: &str = "
    SELECT t.seq, t.deleted_at FROM meta m JOIN destinations t ON t.seq = m.value
     WHERE m.name > 'deleted:' AND m.name < 'deleted;' LIMIT 1";

/// Begins with a destination that was deleted at `at`.
pub(super) fn begin(tx: &mut Tx<'_, '_>, destination: i64, at: Timestamp) -> rusqlite::Result<()> {
    tx.connection.execute(NOTE, params![destination])?;
    slice(tx, [IN_FLIGHT, WAITING, IN_LINE], destination, at)?;
    Ok(())
}

/// See `AdminStore::cancel_for_deleted`.
pub(super) fn go_on(tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
    let next: Option<(i64, Timestamp)> = tx
        .connection
        .prepare_cached(NEXT_NOTED)?
        .query_row([], |row| Ok((row.get(0)?, time(row, 1)?)))
        .optional()?;
    let Some((destination, at)) = next else { return Ok(false) };
    slice(tx, [WAITING, IN_LINE, IN_FLIGHT], destination, at)?;
    // Another one may have been deleted too; the next call knows.
    Ok(true)
}

const DELETED_AT: &str = "
    SELECT seq, deleted_at FROM destinations WHERE id = ?1 AND deleted_at IS NOT NULL";

/// Cancels the rest at once if the destination is put again: it begins anew, and must not get what
/// it was owed before. New destinations have new ids, so this is rare.
pub(super) fn finish_before_return(
    tx: &mut Tx<'_, '_>,
    destination: DestinationId,
) -> rusqlite::Result<()> {
    let found: Option<(i64, Timestamp)> = tx
        .connection
        .prepare_cached(DELETED_AT)?
        .query_row(params![blob(destination)], |row| Ok((row.get(0)?, time(row, 1)?)))
        .optional()?;
    let Some((destination, at)) = found else { return Ok(()) };
    while slice(tx, [WAITING, IN_LINE, IN_FLIGHT], destination, at)? {}
    Ok(())
}

/// Cancels one slice of what is found in these ways, the first ones first; says whether there may be
/// more.
fn slice(
    tx: &mut Tx<'_, '_>,
    ways: [&str; 3],
    destination: i64,
    at: Timestamp,
) -> rusqlite::Result<bool> {
    let mut left = PER_SLICE;
    for find in ways {
        if left > 0 {
            left -= cancel(tx, find, destination, at, left)?;
        }
    }
    if left > 0 {
        tx.connection.prepare_cached(FORGET)?.execute(params![destination])?;
    }
    Ok(left == 0)
}

// Input::Cancel
const CANCEL: &str = "
    UPDATE deliveries
       SET state = 'cancelled', ended_at = ?2, due_at = NULL, lease_token = NULL, lease_until = NULL
     WHERE id = ?1";

/// Cancels up to `limit` of those that `find` finds; says how many.
fn cancel(
    tx: &mut Tx<'_, '_>,
    find: &str,
    destination: i64,
    at: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let found: Vec<Owed> = tx
        .connection
        .prepare_cached(find)?
        .query_map(params![destination, limit], owed)?
        .collect::<Result<_, _>>()?;
    let mut cancel = tx.connection.prepare_cached(CANCEL)?;
    for delivery in &found {
        cancel.execute(params![blob(delivery.id), at.as_millis()])?;
        wills::forget(tx, delivery.id)?;
        statuses::forget(tx, delivery.id)?;
        awaited::forget(tx, delivery.id)?;
        tx.delta.moved(Some(delivery.status), Some(DeliveryStatus::Cancelled));
        let decision = EventDecision {
            event: delivery.event,
            delivery: Some(delivery.id),
            at,
            kind: EventDecisionKind::Cancelled,
            detail: Value::Null,
        };
        decide::note(tx.connection, &decision)?;
    }
    Ok(found.len())
}

fn owed(row: &Row<'_>) -> rusqlite::Result<Owed> {
    Ok(Owed { id: id(row, 0)?, event: id(row, 1)?, status: status(row, 2)? })
}

#[cfg(test)]
mod tests {
    use super::{super::schema::plan, *};

    #[test]
    fn a_slice_reads_only_what_it_cancels() {
        let cases = [
            (WAITING, "SEARCH deliveries USING INDEX deliveries_due (destination=? AND due_at>?)"),
            (
                IN_LINE,
                "SEARCH deliveries USING INDEX deliveries_line (destination=? AND order_key>?)",
            ),
            (IN_FLIGHT, "SEARCH deliveries USING INDEX deliveries_leased (lease_until>?)"),
        ];
        for (sql, expected) in cases {
            assert_eq!(plan(sql), [expected], "{sql}");
        }
        let noted = plan(NEXT_NOTED);
        assert!(noted.iter().all(|step| step.starts_with("SEARCH")), "{noted:#?}");
    }
}
