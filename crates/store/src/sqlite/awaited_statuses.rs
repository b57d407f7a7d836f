//! Which deliveries wait for a word of what may have arrived, and for how long.
//!
//! No status can reach us while we are down. So the wait of each begins anew when the file is opened:
//! what is overdue only because nobody was there must not go out at once. The table holds these and
//! hardly any others, so that it costs nothing to find them among very many.

use std::time::Duration;

use rusqlite::{Connection, params};
use surehook_core::{
    delivery::FailureClass,
    ids::DeliveryId,
    store::{NextStep, Settlement},
    time::Timestamp,
};

use super::{claims::millis, row::blob, writer::WriteTransaction};

/// Nothing waits for longer than this anew.
const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

const INSERT: &str = "INSERT OR REPLACE INTO awaited (delivery_id, wait_ms) VALUES (?1, ?2)";

/// Keeps that a delivery waits for a word of the attempt that is being recorded, or that it waits for
/// none any more.
pub(super) fn update(
    tx: &mut WriteTransaction<'_, '_>,
    settlement: &Settlement,
) -> rusqlite::Result<()> {
    let attempt = &settlement.attempt;
    let (Some(FailureClass::Ambiguous), NextStep::RetryAt(due_at)) =
        (attempt.class, settlement.next)
    else {
        return remove(tx, settlement.delivery);
    };
    let wait = due_at.since(attempt.started_at + attempt.took);
    let values = params![blob(settlement.delivery), millis(wait)];
    tx.connection.prepare_cached(INSERT)?.execute(values)?;
    tx.hints.awaited_statuses = true;
    Ok(())
}

/// A delivery waits for no word any more.
pub(super) fn remove(tx: &WriteTransaction<'_, '_>, delivery: DeliveryId) -> rusqlite::Result<()> {
    if tx.hints.awaited_statuses {
        let forget = "DELETE FROM awaited WHERE delivery_id = ?1";
        tx.connection.prepare_cached(forget)?.execute(params![blob(delivery)])?;
    }
    Ok(())
}

// Not a move: they stay scheduled, for another time.
const POSTPONE_ALL: &str = "
    UPDATE deliveries
       SET due_at = max(due_at, ?1 + min(?2, (SELECT a.wait_ms FROM awaited a
                                               WHERE a.delivery_id = deliveries.id)))
     WHERE state = 'scheduled' AND id IN (SELECT delivery_id FROM awaited)";

// What was tried again, stopped or given up meanwhile.
const REMOVE_STALE: &str = "
    DELETE FROM awaited
     WHERE NOT EXISTS (SELECT 1 FROM deliveries d
                        WHERE d.id = awaited.delivery_id AND d.state = 'scheduled')";

/// Begins all waits anew; says whether there are any.
pub(super) fn restart_waits(connection: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
    connection.execute(REMOVE_STALE, [])?;
    let waiting = connection.execute(POSTPONE_ALL, params![now.as_millis(), millis(WAIT_MAX)])?;
    Ok(waiting > 0)
}

#[cfg(test)]
mod tests {
    use super::{super::schema::query_plan, *};

    #[test]
    fn only_what_waits_for_a_word_is_looked_at() {
        for sql in [POSTPONE_ALL, REMOVE_STALE] {
            let steps = query_plan(sql);
            let reads_all = |step: &String| step.starts_with("SCAN d");
            assert!(!steps.iter().any(reads_all), "{sql}: {steps:#?}");
        }
    }
}
