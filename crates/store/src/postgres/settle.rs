//! Records the attempts of many lanes in one transaction, with a handful of statements.
//!
//! This is for the common case: a success or a retry of a delivery that is in flight, about which nothing
//! else is known. The rest is left undecided, and the steps of [`crate::steps::claims`] decide it alone.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{NextStep, SettleResult, Settlement},
};
use surehook_retry::{AttemptFailure, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    store_error::StoreError,
    time::Timestamp,
};
use tokio_postgres::types::Type;

use super::{
    admit::{AdmitState, slices},
    committer::QueuedJob,
    connection::PgConnection,
    pool::Access,
    transaction,
    writer::try_until_decided,
};
use crate::{
    sql::{Result, SqlRow},
    steps::{
        attempt_timing,
        claims::{count_attempt, count_new_attempt},
        configure::RowNumbers,
        counts::CountChanges,
        row::{blob, duration_millis, id},
    },
};

/// Settlements in one transaction.
pub(super) const BATCH_MAX: usize = 256;

/// The result of a settlement; `None` if the steps must decide.
pub(super) type SettleDecision = Option<SettleResult>;

/// Whether a settlement can be recorded together with others.
pub(super) fn is_plain(settlement: &Settlement) -> bool {
    let is_plain_step = match settlement.next {
        NextStep::Succeeded => true,
        // A status may still arrive.
        NextStep::RetryAt(_) => settlement.attempt.class != Some(FailureClass::Ambiguous),
        NextStep::Dead(_) => false,
    };
    is_plain_step && !settlement.ordered && settlement.sent.is_none()
}

/// Records the settlements of a batch and answers them.
pub(super) fn run_batch(state: &AdmitState, jobs: Vec<QueuedJob<Arc<Settlement>, SettleDecision>>) {
    let settlements: Vec<&Settlement> = jobs.iter().map(|job| &*job.job).collect();
    let recorded = try_until_decided(|| {
        let work = |connection: PgConnection<'_>| {
            let numbers = state.row_numbers(&connection)?;
            let (recorded, counts) = record(&connection, &settlements, &numbers)?;
            transaction::write_counts(&connection, &counts)?;
            Ok(recorded)
        };
        state.pool.transact(&state.handle, Access::Write, work)
    });
    match recorded {
        Ok(recorded) => {
            // Of two settlements of one delivery the steps decide the second.
            let mut unanswered = recorded;
            for job in jobs {
                let is_recorded = unanswered.remove(&job.job.delivery);
                job.answer(Ok(is_recorded.then_some(SettleResult::Recorded)));
            }
        }
        Err(error) if error.is_of_a_statement() => {
            for job in jobs {
                job.answer(Ok(None));
            }
        }
        Err(error) => {
            let error = StoreError::from(error);
            for job in jobs {
                job.answer(Err(error.clone()));
            }
        }
    }
}

// `DeliveryTransition::Succeed` or `Retry`, depending on the values. Only the steps know how to settle
// deliveries with a status, a crash outcome, a wait for a status or a callback; these tables are small, and
// mostly empty.
const SETTLE: &str = "
    WITH u AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                             $6::bigint[], $7::bigint[], $8::bytea[], $9::bigint[], $10::bigint[],
                             $11::bigint[], $12::text[], $13::text[], $14::text[], $15::bytea[],
                             $16::text[], $17::text[])
            AS u (delivery_id, claim_number, lane_epoch, due_at, ended_at, throttled, number, id,
                  started_at, took_ms, status, failure, class, detail, response, next, timing)
    ), settled AS (
        UPDATE deliveries d
           SET state = CASE WHEN u.due_at IS NULL THEN 'succeeded' ELSE 'scheduled' END,
               due_at = u.due_at, ended_at = u.ended_at, attempts = d.attempts + 1,
               throttled = d.throttled + u.throttled, claim_number = NULL, lane_epoch = NULL
          FROM u
         WHERE d.id = u.delivery_id AND d.claim_number = u.claim_number
           AND d.lane_epoch = u.lane_epoch
           AND NOT EXISTS (SELECT 1 FROM said x WHERE x.delivery_id = d.id)
           AND NOT EXISTS (SELECT 1 FROM wills x WHERE x.delivery_id = d.id)
           AND NOT EXISTS (SELECT 1 FROM awaited x WHERE x.delivery_id = d.id)
           AND NOT EXISTS (SELECT 1 FROM callbacks x WHERE x.delivery_id = d.id)
        RETURNING u.*, d.destination, d.shard
    ), landed AS (
        DELETE FROM in_flight f USING settled s
         WHERE f.destination = s.destination AND f.delivery_id = s.delivery_id
    ), waiting AS (
        INSERT INTO due (destination, due_at, delivery_id, shard)
        SELECT destination, due_at, delivery_id, shard FROM settled WHERE due_at IS NOT NULL
    )
    INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status, failure, class,
                          detail, response, next, next_due_at, timing)
    SELECT delivery_id, number, id, started_at, took_ms, status, failure, class, detail, response,
           next, due_at, timing
      FROM settled
    RETURNING delivery_id";

/// Records what is plain; returns the deliveries of it.
fn record(
    connection: &PgConnection<'_>,
    settlements: &[&Settlement],
    numbers: &RowNumbers,
) -> Result<(HashSet<DeliveryId>, CountChanges)> {
    let mut counts = CountChanges::default();
    let plain = find_plain(settlements, numbers);
    if plain.is_empty() {
        return Ok((HashSet::new(), counts));
    }
    let attempts: Vec<_> = plain.iter().map(|settlement| &settlement.attempt).collect();
    let ids: Vec<[u8; 16]> = plain.iter().map(|settlement| blob(settlement.delivery)).collect();
    let numbers_claimed: Vec<i64> =
        plain.iter().map(|settlement| settlement.proof.number).collect();
    let epochs: Vec<i64> = plain.iter().map(|settlement| settlement.proof.epoch.0).collect();
    let due: Vec<Option<i64>> =
        plain.iter().map(|settlement| settlement.next.due_at().map(Timestamp::as_millis)).collect();
    let ended: Vec<Option<i64>> = plain
        .iter()
        .zip(&due)
        .map(|(settlement, due)| due.is_none().then(|| settlement.at.as_millis()))
        .collect();
    let throttled: Vec<i64> = attempts
        .iter()
        .map(|attempt| i64::from(attempt.class == Some(FailureClass::Throttled)))
        .collect();
    let attempt_numbers: Vec<i64> = attempts.iter().map(|attempt| attempt.number.into()).collect();
    let attempt_ids: Vec<[u8; 16]> = attempts.iter().map(|attempt| blob(attempt.id)).collect();
    let started: Vec<i64> = attempts.iter().map(|attempt| attempt.started_at.as_millis()).collect();
    let took: Vec<i64> = attempts
        .iter()
        .map(|attempt| i64::try_from(duration_millis(attempt.took)).unwrap_or(i64::MAX))
        .collect();
    let statuses: Vec<Option<i64>> =
        attempts.iter().map(|attempt| attempt.status.map(i64::from)).collect();
    let failures: Vec<Option<&str>> =
        attempts.iter().map(|attempt| attempt.failure.map(AttemptFailure::as_str)).collect();
    let classes: Vec<Option<&str>> =
        attempts.iter().map(|attempt| attempt.class.map(FailureClass::as_str)).collect();
    let details: Vec<Option<&str>> =
        attempts.iter().map(|attempt| attempt.detail.as_deref()).collect();
    let responses: Vec<Option<&[u8]>> = attempts
        .iter()
        .map(|attempt| (!attempt.response.is_empty()).then_some(&attempt.response[..]))
        .collect();
    let next: Vec<&str> = plain.iter().map(|settlement| settlement.next.as_str()).collect();
    let timings: Vec<Option<String>> = plain
        .iter()
        .map(|settlement| {
            attempt_timing::encode(settlement.attempt.timing, settlement.schedule_reason)
        })
        .collect();
    let (ids, attempt_ids) = (slices(&ids), slices(&attempt_ids));
    let rows = connection.query_arrays(
        SETTLE,
        &[
            (&ids, Type::BYTEA_ARRAY),
            (&numbers_claimed, Type::INT8_ARRAY),
            (&epochs, Type::INT8_ARRAY),
            (&due, Type::INT8_ARRAY),
            (&ended, Type::INT8_ARRAY),
            (&throttled, Type::INT8_ARRAY),
            (&attempt_numbers, Type::INT8_ARRAY),
            (&attempt_ids, Type::BYTEA_ARRAY),
            (&started, Type::INT8_ARRAY),
            (&took, Type::INT8_ARRAY),
            (&statuses, Type::INT8_ARRAY),
            (&failures, Type::TEXT_ARRAY),
            (&classes, Type::TEXT_ARRAY),
            (&details, Type::TEXT_ARRAY),
            (&responses, Type::BYTEA_ARRAY),
            (&next, Type::TEXT_ARRAY),
            (&timings, Type::TEXT_ARRAY),
        ],
    )?;
    let mut recorded = HashSet::with_capacity(rows.len());
    for row in &rows {
        let row: &dyn SqlRow = row;
        recorded.insert(id(row, 0)?);
    }
    for settlement in plain.iter().filter(|settlement| recorded.contains(&settlement.delivery)) {
        let status = match settlement.next {
            NextStep::Succeeded => DeliveryStatus::Succeeded,
            NextStep::RetryAt(_) | NextStep::Dead(_) => DeliveryStatus::Scheduled,
        };
        counts.count_move(Some(DeliveryStatus::InFlight), Some(status));
        count_new_attempt(&mut counts, &settlement.attempt);
        if let Some(destination) = numbers.destinations.get(&settlement.destination) {
            count_attempt(&mut counts, *destination, settlement);
        }
    }
    Ok((recorded, counts))
}

/// The settlements that may be recorded here: of a destination that exists, the first of their deliveries.
fn find_plain<'a>(settlements: &[&'a Settlement], numbers: &RowNumbers) -> Vec<&'a Settlement> {
    let exists = |destination: &DestinationId| numbers.destinations.contains_key(destination);
    let mut plain: HashMap<DeliveryId, &Settlement> = HashMap::with_capacity(settlements.len());
    for settlement in settlements.iter().filter(|settlement| exists(&settlement.destination)) {
        plain.entry(settlement.delivery).or_insert(settlement);
    }
    let mut plain: Vec<&Settlement> = plain.into_values().collect();
    // Two batches that touch the same deliveries lock them in the same order.
    plain.sort_by_key(|settlement| settlement.delivery);
    plain
}
