//! Deliveries that wait for a status of an attempt that may have arrived, and for how long.
//!
//! No status arrives while the gateway is down. So every wait restarts when the store is opened: a
//! delivery that is overdue only because of the downtime must not be sent again at once. The table
//! holds little else than these deliveries, so that they are found quickly among very many.

use std::time::Duration;

use rusqlite::{Connection, Result, params};
use surehook_core::store::{NextStep, Settlement};
use surehook_retry::FailureClass;
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{
    claims::duration_millis, prepared::CachedStatements, row::blob, writer::WriteTransaction,
};

/// Upper limit of a restarted wait.
const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

const INSERT: &str = "INSERT OR REPLACE INTO awaited (delivery_id, wait_ms) VALUES (?1, ?2)";

/// Records that a delivery waits for a status of the attempt being settled, or that it no longer
/// waits.
pub(super) fn update(tx: &mut WriteTransaction<'_, '_>, settlement: &Settlement) -> Result<()> {
    let attempt = &settlement.attempt;
    let (Some(FailureClass::Ambiguous), NextStep::RetryAt(due_at)) =
        (attempt.class, settlement.next)
    else {
        return remove(tx, settlement.delivery);
    };
    let wait = due_at.since(attempt.started_at + attempt.took);
    tx.run(INSERT, params![blob(settlement.delivery), duration_millis(wait)])?;
    tx.hints.awaited_statuses = true;
    Ok(())
}

pub(super) fn remove(tx: &WriteTransaction<'_, '_>, delivery: DeliveryId) -> Result<()> {
    if tx.hints.awaited_statuses {
        tx.run("DELETE FROM awaited WHERE delivery_id = ?1", params![blob(delivery)])?;
    }
    Ok(())
}

// Not a state transition: they stay scheduled, for a later time.
const POSTPONE_ALL: &str = "
    UPDATE deliveries
       SET due_at = max(due_at, ?1 + min(?2, (SELECT a.wait_ms FROM awaited a
                                               WHERE a.delivery_id = deliveries.id)))
     WHERE state = 'scheduled' AND id IN (SELECT delivery_id FROM awaited)";

// Deliveries that were retried, cancelled or given up in the meantime.
const REMOVE_STALE: &str = "
    DELETE FROM awaited
     WHERE NOT EXISTS (SELECT 1 FROM deliveries d
                        WHERE d.id = awaited.delivery_id AND d.state = 'scheduled')";

/// Restarts all waits; returns whether there are any.
pub(super) fn restart_waits(connection: &Connection, now: Timestamp) -> Result<bool> {
    connection.execute(REMOVE_STALE, [])?;
    let waiting =
        connection.execute(POSTPONE_ALL, params![now.as_millis(), duration_millis(WAIT_MAX)])?;
    Ok(waiting > 0)
}

#[cfg(test)]
mod tests {
    use super::{super::schema::query_plan, *};

    #[test]
    fn restarting_waits_reads_only_awaited_deliveries() {
        for sql in [POSTPONE_ALL, REMOVE_STALE] {
            let steps = query_plan(sql);
            let reads_all = |step: &String| step.starts_with("SCAN d");
            assert!(!steps.iter().any(reads_all), "{sql}: {steps:#?}");
        }
    }
}
