//! Implements `AdminStore::list_history`: recorded deliveries with their attempts, without bodies.

use std::time::Duration;

use surehook_core::store::{HistoryFilter, PageRequest, RecordedAttempt, RecordedDelivery};
use surehook_retry::{AttemptFailure, FailureClass, ScheduleReason};
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{
    attempt_timing,
    list::IdRange,
    row::{blob, id, optional_id, optional_text, optional_time, reason, status, time},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const DELIVERIES: &str = "
    SELECT d.id, d.created_at, d.state, d.reason, d.ended_at, d.replay_of, d.order_key, d.attempts
      FROM deliveries d INDEXED BY deliveries_by_destination
     WHERE d.destination = (SELECT seq FROM destinations WHERE id = ?1)
       AND d.id < ?2 AND d.id >= ?3
     ORDER BY d.id DESC LIMIT ?4";
const ATTEMPTS: &str = "
    SELECT a.started_at, a.took_ms, a.status, a.failure, a.class, a.next_due_at, a.timing
      FROM attempts a WHERE a.delivery_id = ?1 ORDER BY a.number";

pub(crate) fn list_history(
    connection: &impl SqlConnection,
    filter: HistoryFilter,
    page: PageRequest<DeliveryId>,
) -> Result<Vec<RecordedDelivery>> {
    let range = IdRange::new(page.after, Some(filter.since), Some(filter.until));
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let values = params![blob(filter.destination), range.top, range.bottom, limit];
    let mut deliveries: Vec<RecordedDelivery> =
        connection.read_all(DELIVERIES, values, read_delivery)?;
    for delivery in deliveries.iter_mut().filter(|delivery| delivery.attempts_made > 0) {
        delivery.attempts =
            connection.read_all(ATTEMPTS, params![blob(delivery.id)], read_attempt)?;
    }
    Ok(deliveries)
}

fn read_delivery(row: &dyn SqlRow) -> Result<RecordedDelivery> {
    Ok(RecordedDelivery {
        id: id(row, 0)?,
        created_at: time(row, 1)?,
        status: status(row, 2)?,
        reason: reason(row, 3)?,
        ended_at: optional_time(row, 4)?,
        replay_of: optional_id(row, 5)?,
        order_key: row.get(6)?,
        attempts_made: row.get(7)?,
        attempts: Vec::new(),
    })
}

fn read_attempt(row: &dyn SqlRow) -> Result<RecordedAttempt> {
    let started_at: Timestamp = time(row, 0)?;
    let took = Duration::from_millis(row.get(1)?);
    let due_at = optional_time(row, 5)?;
    let (_, schedule_reason) = optional_text(row, 6, attempt_timing::decode)?.unwrap_or_default();
    let is_requested = schedule_reason == Some(ScheduleReason::RetryAfter);
    Ok(RecordedAttempt {
        started_at,
        took,
        status: row.get(2)?,
        failure: optional_text(row, 3, AttemptFailure::parse)?,
        class: optional_text(row, 4, FailureClass::parse)?,
        retry_after: due_at.filter(|_| is_requested).map(|due| due.since(started_at + took)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn history_is_read_by_indexes_without_sorting() {
        for sql in [DELIVERIES, ATTEMPTS] {
            let steps = query_plan(sql);
            let is_bad = |step: &String| step.contains("SCAN") || step.contains("TEMP B-TREE");
            assert!(!steps.iter().any(is_bad), "{sql}: {steps:?}");
        }
        let steps = query_plan(DELIVERIES);
        assert!(steps.iter().any(|step| step.contains("(destination=? AND id>? AND id<?)")));
    }
}
