//! Deliveries that wait for a status of an attempt that may have arrived, and for how long.
//!
//! No status arrives while the gateway is down. So every wait restarts when the store is opened: a
//! delivery that is overdue only because of the downtime must not be sent again at once. The table
//! holds little else than these deliveries, so that they are found quickly among very many.

use std::time::Duration;

use surehook_core::store::{NextStep, Settlement};
use surehook_retry::FailureClass;
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{
    StepTransaction,
    row::{blob, duration_millis},
};
use crate::sql::{Result, SqlConnection, params};

/// Upper limit of a restarted wait.
const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

const INSERT: &str = "
    INSERT INTO awaited (delivery_id, wait_ms) VALUES (?1, ?2)
    ON CONFLICT (delivery_id) DO UPDATE SET wait_ms = excluded.wait_ms";

/// Records that a delivery waits for a status of the attempt being settled, or that it no longer
/// waits.
pub(crate) fn update(tx: &mut impl StepTransaction, settlement: &Settlement) -> Result<()> {
    let attempt = &settlement.attempt;
    let (Some(FailureClass::Ambiguous), NextStep::RetryAt(due_at)) =
        (attempt.class, settlement.next)
    else {
        return remove(tx, settlement.delivery);
    };
    let wait = due_at.since(attempt.started_at + attempt.took);
    tx.run(INSERT, params![blob(settlement.delivery), duration_millis(wait)])?;
    tx.hints_mut().awaited_statuses = true;
    Ok(())
}

pub(crate) fn remove(tx: &impl StepTransaction, delivery: DeliveryId) -> Result<()> {
    if tx.hints().awaited_statuses {
        tx.run("DELETE FROM awaited WHERE delivery_id = ?1", params![blob(delivery)])?;
    }
    Ok(())
}

// Not a state transition: they stay scheduled, for a later time.
const POSTPONE_ALL: &str = "
    UPDATE deliveries
       SET due_at = (SELECT CASE WHEN deliveries.due_at > ?1 + w.wait THEN deliveries.due_at
                                 ELSE ?1 + w.wait END
                       FROM (SELECT CASE WHEN a.wait_ms > ?2 THEN ?2 ELSE a.wait_ms END AS wait
                               FROM awaited a WHERE a.delivery_id = deliveries.id) AS w)
     WHERE state = 'scheduled' AND id IN (SELECT delivery_id FROM awaited)
       AND (destination = ?3 OR ?3 IS NULL)";

// Deliveries that were retried, cancelled or given up in the meantime.
const REMOVE_STALE: &str = "
    DELETE FROM awaited
     WHERE NOT EXISTS (SELECT 1 FROM deliveries d
                        WHERE d.id = awaited.delivery_id AND d.state = 'scheduled')";

/// Restarts the waits of one lane (by the row number of its destination) or of all; returns whether there
/// are any.
pub(crate) fn restart_waits(
    connection: &impl SqlConnection,
    lane: Option<i64>,
    now: Timestamp,
) -> Result<bool> {
    connection.run(REMOVE_STALE, params![])?;
    let values = params![now.as_millis(), duration_millis(WAIT_MAX), lane];
    let waiting = connection.run(POSTPONE_ALL, values)?;
    Ok(waiting > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn restarting_waits_reads_only_awaited_deliveries() {
        for sql in [POSTPONE_ALL, REMOVE_STALE] {
            let steps = query_plan(sql);
            let reads_all = |step: &String| step.starts_with("SCAN d");
            assert!(!steps.iter().any(reads_all), "{sql}: {steps:#?}");
        }
    }
}
