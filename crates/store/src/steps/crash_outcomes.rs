//! Crash outcomes: how to settle an attempt if the process crashes during it. Stored before the
//! attempt, applied when its claim ends without a settlement.
//!
//! A crash outcome is valid only while the delivery has the claim under which it was stored. A
//! stale row is harmless; it is removed to keep the table small.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::{ClaimProof, LaneEpoch},
    store::{AttemptRecord, NextStep, SentMessage, SettleResult, Settlement},
};
use surehook_guard::timing::AttemptTiming;
use surehook_retry::{AttemptFailure, DeadReason, FailureClass, ScheduleReason};
use surehook_types::{
    ids::{DeliveryId, EventId},
    time::Timestamp,
};

use super::{
    StepTransaction,
    claims::{self, EndedEpochs},
    decisions,
    row::{blob, corrupt_value, duration_millis, id, next, optional_text, time},
};
use crate::sql::{Result, SqlRow, params};

const RECORD: &str = "
    INSERT INTO wills (delivery_id, claim_number, attempt_id, number, started_at, took_ms, failure,
                       class, detail, next, due_at, reason, sent_id, sent_day, why_then)
    SELECT id, claim_number, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15
      FROM deliveries WHERE id = ?1 AND claim_number = ?2 AND lane_epoch = ?16
    ON CONFLICT (delivery_id) DO UPDATE
       SET claim_number = excluded.claim_number, attempt_id = excluded.attempt_id,
           number = excluded.number, started_at = excluded.started_at,
           took_ms = excluded.took_ms, failure = excluded.failure, class = excluded.class,
           detail = excluded.detail, next = excluded.next, due_at = excluded.due_at,
           reason = excluded.reason, sent_id = excluded.sent_id, sent_day = excluded.sent_day,
           why_then = excluded.why_then";

/// Implements `DeliveryStore::record_crash_outcome`.
pub(crate) fn record(tx: &mut impl StepTransaction, outcome: &Settlement) -> Result<SettleResult> {
    if tx.destination_seq(outcome.destination)?.is_none() {
        return Ok(SettleResult::ClaimLost);
    }
    let Settlement { attempt, sent, .. } = outcome;
    let recorded = tx.run_prepared(
        RECORD,
        params![
            blob(outcome.delivery),
            outcome.proof.number,
            blob(attempt.id),
            attempt.number,
            attempt.started_at.as_millis(),
            duration_millis(attempt.took),
            attempt.failure.map(AttemptFailure::as_str),
            attempt.class.map(FailureClass::as_str),
            attempt.detail,
            outcome.next.as_str(),
            outcome.next.due_at().map(Timestamp::as_millis),
            outcome.next.reason().map(DeadReason::as_str),
            sent.as_ref().and_then(|sent| sent.id.as_deref()),
            sent.as_ref().map(|sent| sent.day),
            outcome.schedule_reason.map(ScheduleReason::as_str),
            outcome.proof.epoch.0,
        ],
    )?;
    if recorded == 0 {
        return Ok(SettleResult::ClaimLost);
    }
    tx.hints_mut().crash_outcomes = true;
    Ok(SettleResult::Recorded)
}

/// Removes the crash outcome of a delivery whose claim has ended.
pub(crate) fn remove(tx: &impl StepTransaction, delivery: DeliveryId) -> Result<()> {
    if tx.hints().crash_outcomes {
        tx.run("DELETE FROM wills WHERE delivery_id = ?1", params![blob(delivery)])?;
    }
    Ok(())
}

// Few deliveries are in flight, and no more have a crash outcome.
macro_rules! outcomes_where {
    ($condition:literal) => {
        concat!(
            "SELECT w.delivery_id, t.id, d.created_at, w.claim_number, w.attempt_id, w.number,
                    w.started_at, w.took_ms, w.failure, w.class, w.detail, w.next, w.due_at, w.reason,
                    w.sent_id, w.sent_day, d.order_key IS NOT NULL, d.event_id, w.why_then, d.lane_epoch
               FROM wills w
               CROSS JOIN deliveries d
               JOIN destinations t ON t.seq = d.destination
              WHERE d.id = w.delivery_id AND d.claim_number = w.claim_number AND ",
            $condition
        )
    };
}

const OF_EPOCHS: &str =
    outcomes_where!("d.lane_epoch BETWEEN ?1 AND ?2 AND (d.destination = ?3 OR ?3 IS NULL)");
const OF_DELIVERY: &str = outcomes_where!("w.delivery_id = ?1");

/// Settles the deliveries that were claimed under these epochs with their crash outcome; returns how
/// many.
pub(crate) fn settle_epochs(
    tx: &mut impl StepTransaction,
    epochs: EndedEpochs,
    now: Timestamp,
) -> Result<usize> {
    if !tx.hints().crash_outcomes {
        return Ok(0);
    }
    let EndedEpochs { first, last, destination } = epochs;
    let values = params![first.0, last.0, destination];
    let outcomes: Vec<_> = tx.read_all(OF_EPOCHS, values, |row| read_outcome(row, now))?;
    let mut settled = 0;
    for (event, outcome) in outcomes {
        settled += usize::from(settle(tx, event, &outcome)?);
    }
    Ok(settled)
}

/// Settles a claimed delivery with its crash outcome; returns whether it has one.
pub(crate) fn settle_abandoned(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    now: Timestamp,
) -> Result<bool> {
    if !tx.hints().crash_outcomes {
        return Ok(false);
    }
    let found = tx.find_one(OF_DELIVERY, params![blob(delivery)], |row| read_outcome(row, now))?;
    found.map_or(Ok(false), |(event, outcome)| settle(tx, event, &outcome))
}

fn settle(tx: &mut impl StepTransaction, event: EventId, outcome: &Settlement) -> Result<bool> {
    // The destination was deleted: the delivery is cancelled instead.
    if claims::settle(tx, outcome)? == SettleResult::ClaimLost {
        remove(tx, outcome.delivery)?;
        return Ok(false);
    }
    let kind = EventDecisionKind::OutcomeUnknown;
    decisions::insert_for_delivery(tx, event, outcome.delivery, kind, outcome.at)?;
    Ok(true)
}

fn read_outcome(row: &dyn SqlRow, now: Timestamp) -> Result<(EventId, Settlement)> {
    let attempt = AttemptRecord {
        id: id(row, 4)?,
        number: row.get(5)?,
        started_at: time(row, 6)?,
        took: Duration::from_millis(row.get(7)?),
        timing: AttemptTiming::default(),
        status: None,
        failure: optional_text(row, 8, AttemptFailure::parse)?,
        class: optional_text(row, 9, FailureClass::parse)?,
        detail: row.get(10)?,
        response: Vec::new(),
    };
    let next: NextStep = next(row, 11)?.ok_or_else(|| corrupt_value(11, "NULL"))?;
    let day: Option<i32> = row.get(15)?;
    let sent_id = row.get(14)?;
    let outcome = Settlement {
        delivery: id(row, 0)?,
        destination: id(row, 1)?,
        created_at: time(row, 2)?,
        proof: ClaimProof { epoch: LaneEpoch(row.get(19)?), number: row.get(3)? },
        at: now,
        attempt,
        next,
        schedule_reason: optional_text(row, 18, ScheduleReason::parse)?,
        ordered: row.get(16)?,
        sent: day.map(|day| SentMessage { id: sent_id, day }),
    };
    Ok((id(row, 17)?, outcome))
}
