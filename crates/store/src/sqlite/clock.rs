//! The stored time of the wall clock, and waits that end too late because it was ahead.

use std::time::Duration;

use rusqlite::{Connection, Result, params};
use surehook_core::clock::{SavedClock, StoredClock};
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{
    prepared::CachedStatements,
    row::{blob, duration_millis, json, time, to_json},
    writer::WriteTransaction,
};

const SAVED: &str = "SELECT value FROM meta WHERE name = 'clock'";
const SAVE: &str = "INSERT OR REPLACE INTO meta (name, value) VALUES ('clock', ?1)";
const NEWEST_EVENT: &str = "SELECT received_at FROM events ORDER BY id DESC LIMIT 1";

/// Implements `DeliveryStore::load_clock`.
pub(super) fn load(connection: &Connection) -> Result<StoredClock> {
    // A value that cannot be read is replaced by the next one.
    let saved = connection.find_one(SAVED, [], |row| Ok(json(row, 0).ok()))?.flatten();
    let newest_event = connection.find_one(NEWEST_EVENT, [], |row| Ok(time(row, 0)?))?;
    Ok(StoredClock { saved, newest_event })
}

/// Implements `DeliveryStore::save_clock`.
pub(super) fn save(connection: &Connection, clock: &SavedClock) -> Result<()> {
    connection.run(SAVE, params![to_json(clock)?])?;
    Ok(())
}

// A retry was scheduled when its last attempt ended: if that is in the future, the clock was ahead. It
// becomes due after the same delay, or after what was left of it before the step.
const SHORTEN_RETRIES: &str = "
    UPDATE deliveries SET due_at = max(?1, min(?1 + due_at - late.scheduled_at, due_at - ?2))
      FROM (SELECT d.id, coalesce((SELECT a.started_at + a.took_ms FROM attempts a
                                    WHERE a.delivery_id = d.id AND a.number = d.attempts),
                                  d.created_at) AS scheduled_at
              FROM deliveries d
             WHERE d.destination IN (SELECT seq FROM destinations) AND d.due_at > ?1
               AND d.state = 'scheduled') late
     WHERE late.id = deliveries.id AND late.scheduled_at > ?1";

// Before the first attempt there is a delay, or a time chosen by a person. The latter stays.
const SHORTEN_DELAYS: &str = "
    UPDATE deliveries
       SET not_before = max(?1, min(?1 + not_before - created_at, not_before - ?2))
     WHERE id > ?3 AND created_at > ?1 AND not_before > ?1 AND ended_at IS NULL";

const SHORTEN_FIRST_ATTEMPTS: &str = "
    UPDATE deliveries SET due_at = max(?1, coalesce(not_before, ?1))
     WHERE destination IN (SELECT seq FROM destinations) AND due_at > ?1 AND state = 'pending'
       AND (?2 > 0 OR created_at > ?1)";

const SHORTEN_LANES: &str = "
    UPDATE lane_states
       SET open_until = max(min(open_until, ?1), open_until - ?2),
           cool_until = max(min(cool_until, ?1), cool_until - ?2)";

// No lease is longer than an hour, so one that ends later was granted by a clock that was ahead.
const SHORTEN_LEASES: &str = "
    UPDATE surehook_dedup_claims SET lease_until = max(?1, lease_until - ?2)
     WHERE state = 0 AND lease_until > ?1 + 3600000";

/// Implements `DeliveryStore::shorten_waits`.
pub(super) fn shorten_waits(
    tx: &mut WriteTransaction<'_, '_>,
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
    use super::{super::schema::query_plan, *};

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
