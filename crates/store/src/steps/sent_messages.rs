//! Sent messages: their ids at the provider, and how many were sent per day.

use std::ops::RangeInclusive;

use surehook_core::store::SentMessage;
use surehook_messaging::store::{DailySendCount, SENT_DAYS_KEPT};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};

use super::{
    StepTransaction,
    row::{blob, id},
};
use crate::sql::{Result, SqlConnection, params};

const DAY_MILLIS: i64 = 86_400_000;

const COUNT_SENT: &str = "
    INSERT INTO sends_by_day (destination, day, sent) VALUES (?1, ?2, 1)
    ON CONFLICT (destination, day) DO UPDATE SET sent = sends_by_day.sent + 1";

/// Records that a message of `delivery` was sent to a destination (by row number).
pub(crate) fn record_sent(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    destination: i64,
    sent: &SentMessage,
    at: Timestamp,
) -> Result<()> {
    tx.run_prepared(COUNT_SENT, params![destination, sent.day])?;
    sent.id.as_deref().map_or(Ok(()), |sent_id| record_sent_id(tx, delivery, sent_id, at))
}

// If the message is sent again, later statuses refer to the last one.
const SET_SENT_ID: &str = "
    INSERT INTO sends (delivery_id, sent_id, sent_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (delivery_id) DO UPDATE SET sent_id = excluded.sent_id, sent_at = excluded.sent_at";

/// Stores the provider's id of the message of a delivery.
pub(crate) fn record_sent_id(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    sent_id: &str,
    at: Timestamp,
) -> Result<()> {
    // An empty id counts as missing.
    if !sent_id.is_empty() {
        tx.run_prepared(SET_SENT_ID, params![blob(delivery), sent_id, at.as_millis()])?;
    }
    Ok(())
}

const BELONGS_TO_OTHER_DELIVERY: &str = "
    SELECT EXISTS (SELECT 1 FROM sends s JOIN deliveries d ON d.id = s.delivery_id
                    WHERE s.sent_id = ?2 AND s.delivery_id <> ?1
                      AND d.event_id = (SELECT event_id FROM deliveries WHERE id = ?1))";

/// Whether the id belongs to a message of another delivery of the same event.
pub(crate) fn belongs_to_other_delivery(
    connection: &impl SqlConnection,
    delivery: DeliveryId,
    sent_id: &str,
) -> Result<bool> {
    connection
        .read_one(BELONGS_TO_OTHER_DELIVERY, params![blob(delivery), sent_id], |row| row.get(0))
}

const SENT_ON: &str = "
    SELECT s.sent FROM destinations t JOIN sends_by_day s ON s.destination = t.seq
     WHERE t.id = ?1 AND s.day = ?2";

/// Implements `MessageStore::count_sent_on`.
pub(crate) fn count_sent_on(
    connection: &impl SqlConnection,
    destination: DestinationId,
    day: i32,
) -> Result<u64> {
    let count = connection.find_one(SENT_ON, params![blob(destination), day], |row| row.get(0))?;
    Ok(count.unwrap_or_default())
}

const BY_DAY: &str = "
    SELECT t.id, s.day, s.sent FROM destinations t JOIN sends_by_day s ON s.destination = t.seq
     WHERE t.deleted_at IS NULL AND s.day BETWEEN ?1 AND ?2 ORDER BY s.day, t.id";

/// Implements `MessageStore::count_sent_by_day`.
pub(crate) fn list_by_day(
    connection: &impl SqlConnection,
    days: &RangeInclusive<i32>,
) -> Result<Vec<DailySendCount>> {
    connection.read_all(BY_DAY, params![days.start(), days.end()], |row| {
        Ok(DailySendCount { destination: id(row, 0)?, day: row.get(1)?, sent: row.get(2)? })
    })
}

const PRUNE_DAYS: &str = "DELETE FROM sends_by_day WHERE destination = ?1 AND day < ?2";

/// Removes the counts of old days, of which each has one row.
pub(crate) fn prune_days(
    connection: &impl SqlConnection,
    destination: i64,
    now: Timestamp,
) -> Result<()> {
    let first_day_kept = now.as_millis() / DAY_MILLIS - i64::from(SENT_DAYS_KEPT);
    connection.run(PRUNE_DAYS, params![destination, first_day_kept])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn days_and_message_ids_are_found_by_index() {
        for sql in [SENT_ON, PRUNE_DAYS, BELONGS_TO_OTHER_DELIVERY] {
            let steps = query_plan(sql);
            assert!(steps.iter().all(|step| !step.starts_with("SCAN s")), "{sql}: {steps:#?}");
        }
        let steps = query_plan(BY_DAY);
        let by_day = "SEARCH s USING PRIMARY KEY (destination=? AND day>? AND day<?)";
        assert!(steps.iter().any(|step| step == by_day), "{steps:#?}");
    }
}
