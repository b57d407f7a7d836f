//! Claims of deliveries, and how they end: settled, released, abandoned or cancelled.

use serde_json::json;
use surehook_core::{
    dead_letters::DeadLetterCause,
    decision::{EventDecision, EventDecisionKind, NotRoutedReason},
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    store::{
        AbandonedClaim, AttemptRecord, ClaimBatch, ClaimedDelivery, HeldClaim, NextStep,
        SettleResult, Settlement,
    },
};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass, ScheduleReason};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    time::Timestamp,
};
use surehook_webhooks::key::{DedupKey, fingerprint};

use super::{
    StepTransaction, attempt_timing, awaited_statuses, callbacks,
    counts::{CountChanges, Counter},
    crash_outcomes, dead_letter_groups, decisions, delivery_bodies, ordering_queue,
    rollups::SubjectSeq,
    row::{self, blob, duration_millis, id, name, optional_time, payload, status, time},
    sent_messages, statuses,
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// A claim ends with the body that exceeds this, so that large bodies do not fill the memory.
pub(crate) const CLAIM_BYTES_MAX: usize = 4 << 20;

/// Finds what [`DeliveryStore::claim_due`] claims.
///
/// [`DeliveryStore::claim_due`]: surehook_core::store::DeliveryStore::claim_due
pub(crate) const DUE: &str = "
    SELECT id, event_id, state, attempts, throttled, created_at, order_key IS NOT NULL
      FROM deliveries INDEXED BY deliveries_due
     WHERE destination = ?1 AND due_at <= ?2 ORDER BY due_at, id LIMIT ?3";

struct DueDeliveryRow {
    id: DeliveryId,
    event: EventId,
    status: DeliveryStatus,
    attempts: u32,
    throttled: u32,
    created_at: Timestamp,
    ordered: bool,
}

// `DeliveryTransition::Claim`. One row at a time: UPDATE … RETURNING has no order, and does not
// return the previous state.
const CLAIM: &str = "
    UPDATE deliveries
       SET state = 'in_flight', due_at = NULL, claim_number = ?2, lane_epoch = ?3
     WHERE id = ?1";

/// How many waiting deliveries [`NEXT`] looks through for one that may be attempted now.
pub(crate) const NEXT_SCAN_MAX: usize = 1000;

/// Finds what [`DeliveryStore::claim_next`] claims, which may be before its time.
///
/// [`DeliveryStore::claim_next`]: surehook_core::store::DeliveryStore::claim_next
// Due deliveries come first, so that the limit applies to those that are not due yet.
pub(crate) const NEXT: &str = "
    SELECT id, event_id, state, attempts, throttled, created_at, order_key IS NOT NULL
      FROM (SELECT * FROM deliveries INDEXED BY deliveries_due
             WHERE destination = ?1 AND due_at IS NOT NULL ORDER BY due_at, id LIMIT ?3) d
     WHERE due_at <= ?2
        OR (coalesce(not_before <= ?2, TRUE)
            AND NOT EXISTS (SELECT 1 FROM attempts a
                             WHERE a.delivery_id = d.id AND a.number = d.attempts
                               AND a.class = 'ambiguous'))
     ORDER BY due_at, id LIMIT 1";

/// Claims the deliveries of a destination that `select` finds: [`DUE`] or [`NEXT`].
pub(crate) fn claim(
    tx: &mut impl StepTransaction,
    select: &str,
    destination: DestinationId,
    now: Timestamp,
    proof: ClaimProof,
    limit: usize,
) -> Result<ClaimBatch> {
    let Some(seq) = tx.destination_seq(destination)? else {
        return Ok(ClaimBatch::default());
    };
    if !tx.is_current_epoch(seq, proof.epoch)? {
        return Ok(ClaimBatch::default());
    }
    let due: Vec<DueDeliveryRow> =
        tx.read_all(select, params![seq, now.as_millis(), limit], read_due)?;
    let mut claims = ClaimBatch { claimed: Vec::with_capacity(due.len()), damaged: Vec::new() };
    let mut bytes = 0;
    for row in due {
        if bytes >= CLAIM_BYTES_MAX {
            break;
        }
        tx.run_prepared(CLAIM, params![blob(row.id), proof.number, proof.epoch.0])?;
        tx.counts().count_move(Some(row.status), Some(DeliveryStatus::InFlight));
        match load_claimed(tx, &row, destination, proof)? {
            Some(claimed) => {
                bytes += claimed.payload.body.len();
                claims.claimed.push(claimed);
            }
            // Sending a damaged body would be worse than sending none.
            None => {
                give_up_damaged(tx, &row, seq, now)?;
                claims.damaged.push(row.id);
            }
        }
    }
    Ok(claims)
}

fn read_due(row: &dyn SqlRow) -> Result<DueDeliveryRow> {
    Ok(DueDeliveryRow {
        id: id(row, 0)?,
        event: id(row, 1)?,
        status: status(row, 2)?,
        attempts: row.get(3)?,
        throttled: row.get(4)?,
        created_at: time(row, 5)?,
        ordered: row.get(6)?,
    })
}

const LOAD_CONTENT: &str = "
    SELECT s.name, e.key, e.received_at,
           p.path, p.query, p.remote, p.headers, p.body, e.fingerprint
      FROM events e JOIN payloads p ON p.seq = e.payload JOIN sources s ON s.seq = e.source
     WHERE e.id = ?1";

/// Loads what a claimed delivery sends; `None` if the body is missing or damaged.
fn load_claimed(
    connection: &impl SqlConnection,
    due: &DueDeliveryRow,
    destination: DestinationId,
    proof: ClaimProof,
) -> Result<Option<ClaimedDelivery>> {
    let content = connection.find_one(LOAD_CONTENT, params![blob(due.event)], |row| {
        Ok(ClaimedDelivery {
            id: due.id,
            event: due.event,
            destination,
            source: name(row, 0)?,
            key: row.get::<Option<String>>(1)?.and_then(|key| DedupKey::new(&key)),
            proof,
            attempts: due.attempts,
            throttled: due.throttled,
            created_at: due.created_at,
            received_at: time(row, 2)?,
            payload: payload(row, 3)?,
            pending_route: None,
            ordered: due.ordered,
        })
    })?;
    let Some(claimed) = content else { return Ok(None) };
    if fingerprint(&claimed.payload.body) != claimed.payload.fingerprint {
        return Ok(None);
    }
    let body = delivery_bodies::load_for_delivery(connection, due.id, claimed.payload.clone())?;
    Ok(body.map(|(payload, pending_route)| ClaimedDelivery { payload, pending_route, ..claimed }))
}

// `DeliveryTransition::GiveUp`
const GIVE_UP_DAMAGED: &str = "
    UPDATE deliveries
       SET state = 'dead', reason = 'unrecoverable', ended_at = ?2,
           claim_number = NULL, lane_epoch = NULL
     WHERE id = ?1";

fn give_up_damaged(
    tx: &mut impl StepTransaction,
    row: &DueDeliveryRow,
    destination: i64,
    now: Timestamp,
) -> Result<()> {
    let delivery = row.id;
    tracing::error!(%delivery, event = %row.event, "the stored body is missing or damaged; the delivery is dead");
    tx.run(GIVE_UP_DAMAGED, params![blob(delivery), now.as_millis()])?;
    tx.counts().count_move(Some(DeliveryStatus::InFlight), Some(DeliveryStatus::Dead));
    let (cause, reason) = (DeadLetterCause::from_damaged_body(), DeadReason::Unrecoverable);
    dead_letter_groups::add_delivery(tx, delivery, destination, &cause, reason, now)?;
    ordering_queue::release_next(tx, delivery, now)?;
    callbacks::make_due(tx, delivery)?;
    decisions::insert_for_delivery(tx, row.event, delivery, EventDecisionKind::Damaged, now)?;
    Ok(())
}

const NEXT_DUE: &str = "
    SELECT min(due_at) FROM deliveries INDEXED BY deliveries_due
     WHERE destination = (SELECT seq FROM destinations WHERE id = ?1 AND deleted_at IS NULL)
       AND due_at IS NOT NULL";

pub(crate) fn next_due(
    connection: &impl SqlConnection,
    destination: DestinationId,
) -> Result<Option<Timestamp>> {
    connection.read_one(NEXT_DUE, params![blob(destination)], |row| optional_time(row, 0))
}

// `DeliveryTransition::Succeed`, `Retry` or `GiveUp`, depending on the values.
const SETTLE: &str = "
    UPDATE deliveries
       SET state = ?3, due_at = ?4, ended_at = ?5, reason = ?6, attempts = attempts + 1,
           throttled = throttled + ?7, claim_number = NULL, lane_epoch = NULL
     WHERE id = ?1 AND claim_number = ?2 AND lane_epoch = ?8";

/// Implements `DeliveryStore::settle`.
pub(crate) fn settle(
    tx: &mut impl StepTransaction,
    settlement: &Settlement,
) -> Result<SettleResult> {
    match settle_with_status(tx, settlement)? {
        SettleResult::ClaimLost => match find_recorded(tx, settlement)? {
            Some(result) => Ok(result),
            None => statuses::apply_late_answer(tx, settlement),
        },
        result @ (SettleResult::Recorded | SettleResult::Overruled(_)) => Ok(result),
    }
}

const RECORDED: &str = "
    SELECT a.next, a.next_due_at, d.reason
      FROM attempts a JOIN deliveries d ON d.id = a.delivery_id
     WHERE a.delivery_id = ?1 AND a.number = ?2 AND a.id = ?3";

/// The result of a settlement that was recorded before: the same one is tried again if its outcome was
/// unknown.
fn find_recorded(
    connection: &impl SqlConnection,
    settlement: &Settlement,
) -> Result<Option<SettleResult>> {
    let Settlement { delivery, attempt, next, .. } = settlement;
    let values = params![blob(*delivery), attempt.number, blob(attempt.id)];
    let read = |row: &dyn SqlRow| {
        let code: Option<String> = row.get(0)?;
        let reason: Option<String> = row.get(2)?;
        match (code.as_deref(), reason) {
            // A provider status has confirmed the delivery since, and removed the reason of its death: what
            // was recorded cannot be compared any more, and counts as the same.
            (Some("dead"), None) => Ok(*next),
            _ => row::next(row, 0).map(|recorded| recorded.unwrap_or(*next)),
        }
    };
    let recorded = connection.find_one(RECORDED, values, read)?;
    Ok(recorded.map(|recorded| match recorded == *next {
        true => SettleResult::Recorded,
        false => SettleResult::Overruled(recorded),
    }))
}

fn settle_with_status(
    tx: &mut impl StepTransaction,
    settlement: &Settlement,
) -> Result<SettleResult> {
    let Some(received) = statuses::find_stored(tx, settlement.delivery)? else {
        return record_settlement(tx, settlement, DeadLetterCause::from_attempt);
    };
    let next = received.status.apply_to_attempt(settlement.attempt.class, settlement.next);
    let schedule_reason = match next == settlement.next {
        true => settlement.schedule_reason,
        false => next.due_at().map(|_| ScheduleReason::StatusFailed),
    };
    let effective = Settlement { next, schedule_reason, ..settlement.clone() };
    // The status is the cause of death, unless the attempt alone would have ended the delivery.
    let status_reason = next.reason().filter(|_| next != settlement.next);
    let settled = record_settlement(tx, &effective, |attempt| {
        status_reason.map_or_else(
            || DeadLetterCause::from_attempt(attempt),
            DeadLetterCause::from_status_update,
        )
    })?;
    if settled == SettleResult::ClaimLost {
        return Ok(settled);
    }
    statuses::remove_stored(tx, settlement.delivery)?;
    if next == settlement.next {
        return Ok(settled);
    }
    awaited_statuses::remove(tx, settlement.delivery)?;
    statuses::record_decision(tx, settlement.delivery, &received, settlement.at)?;
    Ok(SettleResult::Overruled(next))
}

fn record_settlement(
    tx: &mut impl StepTransaction,
    settlement: &Settlement,
    cause_of_death: impl FnOnce(&AttemptRecord) -> DeadLetterCause,
) -> Result<SettleResult> {
    // Deleting a destination ended all its claims.
    let Some(destination) = tx.destination_seq(settlement.destination)? else {
        return Ok(SettleResult::ClaimLost);
    };
    let status = match settlement.next {
        NextStep::Succeeded => DeliveryStatus::Succeeded,
        NextStep::RetryAt(_) => DeliveryStatus::Scheduled,
        NextStep::Dead(_) => DeliveryStatus::Dead,
    };
    let (due_at, reason) = (settlement.next.due_at(), settlement.next.reason());
    let ended_at = status.is_final().then(|| settlement.at.as_millis());
    let throttled = settlement.attempt.class == Some(FailureClass::Throttled);
    let changed = tx.run_prepared(
        SETTLE,
        params![
            blob(settlement.delivery),
            settlement.proof.number,
            status.as_str(),
            due_at.map(Timestamp::as_millis),
            ended_at,
            reason.map(DeadReason::as_str),
            throttled,
            settlement.proof.epoch.0,
        ],
    )?;
    if changed == 0 {
        return Ok(SettleResult::ClaimLost);
    }
    insert_attempt(tx, settlement)?;
    crash_outcomes::remove(tx, settlement.delivery)?;
    awaited_statuses::update(tx, settlement)?;
    if let Some(sent) = &settlement.sent {
        sent_messages::record_sent(tx, settlement.delivery, destination, sent, settlement.at)?;
    }
    tx.counts().count_move(Some(DeliveryStatus::InFlight), Some(status));
    count_attempt(tx.counts(), destination, settlement);
    if let Some(reason) = reason {
        let cause = cause_of_death(&settlement.attempt);
        let (delivery, at) = (settlement.delivery, settlement.at);
        dead_letter_groups::add_delivery(tx, delivery, destination, &cause, reason, at)?;
    }
    if ended_at.is_some() {
        callbacks::make_due(tx, settlement.delivery)?;
    }
    if settlement.ordered && ended_at.is_some() {
        ordering_queue::release_next(tx, settlement.delivery, settlement.at)?;
    }
    Ok(SettleResult::Recorded)
}

/// Counts an attempt in the rollups of its destination, a row number.
pub(crate) fn count_attempt(counts: &mut CountChanges, destination: i64, settlement: &Settlement) {
    let bucket = counts.rollups.bucket(SubjectSeq::Destination(destination), settlement.at);
    bucket.record_attempt(settlement);
}

const INSERT_ATTEMPT: &str = "
    INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status, failure, class,
                          detail, response, next, next_due_at, timing)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

fn insert_attempt(tx: &mut impl StepTransaction, settlement: &Settlement) -> Result<()> {
    let Settlement { delivery, attempt, next, schedule_reason, .. } = settlement;
    let response = (!attempt.response.is_empty()).then_some(&attempt.response[..]);
    tx.run_prepared(
        INSERT_ATTEMPT,
        params![
            blob(*delivery),
            attempt.number,
            blob(attempt.id),
            attempt.started_at.as_millis(),
            duration_millis(attempt.took),
            attempt.status,
            attempt.failure.map(AttemptFailure::as_str),
            attempt.class.map(FailureClass::as_str),
            attempt.detail,
            response,
            next.as_str(),
            next.due_at().map(Timestamp::as_millis),
            attempt_timing::encode(attempt.timing, *schedule_reason),
        ],
    )?;
    count_new_attempt(tx.counts(), attempt);
    Ok(())
}

/// Counts an attempt in the totals.
pub(crate) fn count_new_attempt(counts: &mut CountChanges, attempt: &AttemptRecord) {
    counts.add(Counter::Attempts, 1);
    if attempt.number > 1 {
        counts.add(Counter::Retries, 1);
    }
}

// `DeliveryTransition::Release`
const RELEASE: &str = "
    UPDATE deliveries
       SET state = 'pending', due_at = ?4, claim_number = NULL, lane_epoch = NULL
     WHERE id = ?1 AND claim_number = ?2 AND lane_epoch = ?3";

/// Makes a claimed delivery due; returns whether the claim was current.
fn release_one(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    proof: ClaimProof,
    due_at: Timestamp,
) -> Result<bool> {
    let values = params![blob(delivery), proof.number, proof.epoch.0, due_at.as_millis()];
    let released = tx.run(RELEASE, values)?;
    tx.counts().count_moves(DeliveryStatus::InFlight, DeliveryStatus::Pending, released);
    Ok(released > 0)
}

/// Implements `DeliveryStore::release`.
pub(crate) fn release(
    tx: &mut impl StepTransaction,
    claims: &[HeldClaim],
    due_at: Timestamp,
) -> Result<()> {
    for claim in claims {
        if release_one(tx, claim.delivery, claim.proof, due_at)? {
            crash_outcomes::remove(tx, claim.delivery)?;
        }
    }
    statuses::apply_stored(tx)?;
    Ok(())
}

const CLAIMED_BY_ID: &str = "
    SELECT id, event_id FROM deliveries WHERE id = ?1 AND claim_number = ?2 AND lane_epoch = ?3";
// Reads what is in flight in the epoch; needed only if the outcome of a claim is unknown.
const CLAIMED_BY_PROOF: &str = "
    SELECT id, event_id FROM deliveries INDEXED BY deliveries_leased
     WHERE lane_epoch = ?3 AND claim_number = ?2
       AND destination = (SELECT seq FROM destinations WHERE id = ?1)";

/// Implements `DeliveryStore::abandon`.
pub(crate) fn abandon(
    tx: &mut impl StepTransaction,
    claims: &[AbandonedClaim],
    now: Timestamp,
) -> Result<()> {
    for claim in claims {
        let AbandonedClaim { destination, proof, delivery, due_at } = *claim;
        let (sql, subject) = match delivery {
            Some(delivery) => (CLAIMED_BY_ID, blob(delivery)),
            None => (CLAIMED_BY_PROOF, blob(destination)),
        };
        let values = params![subject, proof.number, proof.epoch.0];
        let found: Vec<(DeliveryId, EventId)> =
            tx.read_all(sql, values, |row| Ok((id(row, 0)?, id(row, 1)?)))?;
        for (delivery, event) in found {
            if crash_outcomes::settle_abandoned(tx, delivery, now)? {
                continue;
            }
            let kind = EventDecisionKind::LeaseExpired;
            decisions::insert_for_delivery(tx, event, delivery, kind, now)?;
            release_one(tx, delivery, proof, due_at)?;
        }
    }
    statuses::apply_stored(tx)?;
    Ok(())
}

// `DeliveryTransition::Cancel`
const CANCEL_CLAIMED: &str = "
    UPDATE deliveries
       SET state = 'cancelled', ended_at = ?4, due_at = NULL, claim_number = NULL,
           lane_epoch = NULL
     WHERE id = ?1 AND claim_number = ?2 AND lane_epoch = ?3
    RETURNING event_id";

/// Implements `DeliveryStore::cancel_claimed`.
pub(crate) fn cancel_claimed(
    tx: &mut impl StepTransaction,
    claim: HeldClaim,
    reason: &NotRoutedReason,
    at: Timestamp,
) -> Result<bool> {
    let ClaimProof { epoch, number } = claim.proof;
    let values = params![blob(claim.delivery), number, epoch.0, at.as_millis()];
    let Some(event) = tx.find_one(CANCEL_CLAIMED, values, |row| id(row, 0))? else {
        return Ok(false);
    };
    crash_outcomes::remove(tx, claim.delivery)?;
    awaited_statuses::remove(tx, claim.delivery)?;
    tx.counts().count_move(Some(DeliveryStatus::InFlight), Some(DeliveryStatus::Cancelled));
    let decision = EventDecision {
        event,
        delivery: Some(claim.delivery),
        at,
        kind: EventDecisionKind::Cancelled,
        detail: json!({ "why": reason.to_code() }),
    };
    decisions::insert(tx, &decision)?;
    callbacks::make_due(tx, claim.delivery)?;
    ordering_queue::release_next(tx, claim.delivery, at)?;
    Ok(true)
}

/// Epochs whose claims end, because their lanes have another owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedEpochs {
    pub(crate) first: LaneEpoch,
    pub(crate) last: LaneEpoch,
    /// Row number of the destination; `None` for all.
    pub(crate) destination: Option<i64>,
}

impl EndedEpochs {
    /// Of all lanes, or of all lanes of one destination, before this epoch.
    pub(crate) fn before(epoch: LaneEpoch, destination: Option<i64>) -> Self {
        Self { first: LaneEpoch(0), last: LaneEpoch(epoch.0 - 1), destination }
    }

    /// Of one lane. Other lanes of the destination may have earlier epochs that have not ended.
    pub(crate) fn of_lane(epoch: LaneEpoch, destination: i64) -> Self {
        Self { first: epoch, last: epoch, destination: Some(destination) }
    }
}

// `DeliveryTransition::Release`
const RELEASE_EPOCHS: &str = "
    UPDATE deliveries
       SET state = 'pending', due_at = ?3, claim_number = NULL, lane_epoch = NULL
     WHERE id IN (SELECT id FROM deliveries INDEXED BY deliveries_leased
                   WHERE lane_epoch BETWEEN ?1 AND ?2 AND (destination = ?4 OR ?4 IS NULL))";

/// Ends the claims of these epochs: settles those with a crash outcome and releases the others. Returns
/// how many.
pub(crate) fn end_epochs(
    tx: &mut impl StepTransaction,
    epochs: EndedEpochs,
    now: Timestamp,
) -> Result<usize> {
    let settled = crash_outcomes::settle_epochs(tx, epochs, now)?;
    decisions::insert_for_epochs(tx, EventDecisionKind::Recovered, epochs, now)?;
    let EndedEpochs { first, last, destination } = epochs;
    let values = params![first.0, last.0, now.as_millis(), destination];
    let released = tx.run(RELEASE_EPOCHS, values)?;
    tx.counts().count_moves(DeliveryStatus::InFlight, DeliveryStatus::Pending, released);
    statuses::apply_stored(tx)?;
    Ok(released + settled)
}
