//! The stored time of the wall clock, and waits that end too late because it was ahead.

use std::time::Duration;

use surehook_core::clock::{SavedClock, StoredClock};
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{
    StepTransaction,
    row::{blob, duration_millis, json, time, to_json},
};
use crate::sql::{Result, SqlConnection, params};

const SAVED: &str = "SELECT value FROM meta WHERE name = 'clock'";
const SAVE: &str = "
    INSERT INTO meta (name, value) VALUES ('clock', ?1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const NEWEST_EVENT: &str = "SELECT received_at FROM events ORDER BY id DESC LIMIT 1";

/// Implements `DeliveryStore::load_clock`.
pub(crate) fn load(connection: &impl SqlConnection) -> Result<StoredClock> {
    // A value that cannot be read is replaced by the next one.
    let saved = connection.find_one(SAVED, params![], |row| Ok(json(row, 0).ok()))?.flatten();
    let newest_event = connection.find_one(NEWEST_EVENT, params![], |row| time(row, 0))?;
    Ok(StoredClock { saved, newest_event })
}

/// Implements `DeliveryStore::save_clock`.
pub(crate) fn save(connection: &impl SqlConnection, clock: &SavedClock) -> Result<()> {
    connection.run(SAVE, params![to_json(clock)?])?;
    Ok(())
}

// A retry was scheduled when its last attempt ended: if that is in the future, the clock was ahead. It
// becomes due after the same delay, or after what was left of it before the step.
const SHORTEN_RETRIES: &str = "
    UPDATE deliveries
       SET due_at = CASE WHEN late.after_delay < late.after_step
                         THEN CASE WHEN late.after_delay > ?1 THEN late.after_delay ELSE ?1 END
                         ELSE CASE WHEN late.after_step > ?1 THEN late.after_step ELSE ?1 END END
      FROM (SELECT w.id, w.scheduled_at, w.due_at - ?2 AS after_step,
                   w.due_at - w.scheduled_at + ?1 AS after_delay
              FROM (SELECT d.id, d.due_at,
                           coalesce((SELECT a.started_at + a.took_ms FROM attempts a
                                      WHERE a.delivery_id = d.id AND a.number = d.attempts),
                                    d.created_at) AS scheduled_at
                      FROM deliveries d INDEXED BY deliveries_due
                     WHERE d.destination IN (SELECT seq FROM destinations) AND d.due_at > ?1
                       AND d.state = 'scheduled') AS w) AS late
     WHERE late.id = deliveries.id AND late.scheduled_at > ?1";

// Before the first attempt there is a delay, or a time chosen by a person. The latter stays.
const SHORTEN_DELAYS: &str = "
    UPDATE deliveries
       SET not_before =
           CASE WHEN not_before - created_at + ?1 < not_before - ?2
                THEN CASE WHEN not_before > created_at THEN not_before - created_at + ?1 ELSE ?1 END
                ELSE CASE WHEN not_before - ?2 > ?1 THEN not_before - ?2 ELSE ?1 END END
     WHERE id > ?3 AND created_at > ?1 AND not_before > ?1 AND ended_at IS NULL";

const SHORTEN_FIRST_ATTEMPTS: &str = "
    UPDATE deliveries SET due_at = CASE WHEN not_before > ?1 THEN not_before ELSE ?1 END
     WHERE id IN (SELECT id FROM deliveries INDEXED BY deliveries_due
                   WHERE destination IN (SELECT seq FROM destinations) AND due_at > ?1
                     AND state = 'pending' AND (CAST(?2 AS bigint) > 0 OR created_at > ?1))";

const SHORTEN_LANES: &str = "
    UPDATE lane_states
       SET open_until = CASE WHEN open_until - ?2 > ?1 THEN open_until - ?2
                             WHEN open_until > ?1 THEN ?1 ELSE open_until END,
           cool_until = CASE WHEN cool_until - ?2 > ?1 THEN cool_until - ?2
                             WHEN cool_until > ?1 THEN ?1 ELSE cool_until END";

// No lease is longer than an hour, so one that ends later was granted by a clock that was ahead.
const SHORTEN_LEASES: &str = "
    UPDATE surehook_dedup_claims 
       SET lease_until = CASE WHEN lease_until - ?2 > ?1 THEN lease_until - ?2 ELSE ?1 END
     WHERE state = 0 AND lease_until > CAST(?1 AS bigint) + 3600000";

/// Implements `DeliveryStore::shorten_waits`.
pub(crate) fn shorten_waits(
    tx: &mut impl StepTransaction,
    now: Timestamp,
    step: Duration,
) -> Result<usize> {
    let (at, step) = (now.as_millis(), duration_millis(step));
    let retries = tx.run(SHORTEN_RETRIES, params![at, step])?;
    tx.run(SHORTEN_DELAYS, params![at, step, blob(DeliveryId::new(now, 0))])?;
    let first = tx.run(SHORTEN_FIRST_ATTEMPTS, params![at, step])?;
    tx.run(SHORTEN_LANES, params![at, step])?;
    tx.run(SHORTEN_LEASES, params![at, step])?;
    Ok(retries + first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn waits_are_found_by_index() {
        for sql in [SHORTEN_RETRIES, SHORTEN_FIRST_ATTEMPTS] {
            let steps = query_plan(sql);
            let by_index =
                |step: &String| step.contains("deliveries_due (destination=? AND due_at>?)");
            assert!(steps.iter().any(by_index), "{steps:#?}");
        }
        let steps = query_plan(SHORTEN_LEASES);
        assert!(steps[0].contains("claims_by_lease (lease_until>?)"), "{steps:#?}");
    }
}
