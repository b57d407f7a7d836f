//! Provider statuses of sent messages: applied at once to a pending delivery, and after the attempt
//! to one that is in flight.

use serde_json::json;
use surehook_core::{
    dead_letters::DeadLetterCause,
    decision::{EventDecision, EventDecisionKind},
    delivery::state::DeliveryStatus,
    event::{ProviderStatus, StatusUpdate},
    store::{ConfirmedDelivery, NextStep, SettleResult, Settlement},
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, EventId},
    time::Timestamp,
};

use super::{
    StepTransaction, awaited_statuses, callbacks, dead_letter_groups, decisions, ordering_queue,
    rollups::SubjectSeq,
    row::{blob, corrupt_value, id, next, optional_id, reason, status, time},
    sent_messages,
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// A status and what it refers to.
pub(crate) struct ReceivedStatus {
    /// The event that carried the status; for a late answer, the event it is about.
    status_event: EventId,
    at: Timestamp,
    sent_id: Option<String>,
    pub(crate) status: ProviderStatus,
    /// The event whose delivery the status is about.
    about_event: EventId,
}

/// The delivery that a status is about.
struct StatusTarget {
    id: DeliveryId,
    event: EventId,
    /// Row number.
    destination: i64,
    status: DeliveryStatus,
    reason: Option<DeadReason>,
    attempts: u32,
    created_at: Timestamp,
    replay_of: Option<DeliveryId>,
}

/// Columns of [`read_target`], from `deliveries d`.
macro_rules! target_columns {
    () => {
        "d.id, d.event_id, d.destination, d.state, d.reason, d.attempts, d.created_at, d.replay_of"
    };
}

fn read_target(row: &dyn SqlRow) -> Result<StatusTarget> {
    Ok(StatusTarget {
        id: id(row, 0)?,
        event: id(row, 1)?,
        destination: row.get(2)?,
        status: status(row, 3)?,
        reason: reason(row, 4)?,
        attempts: row.get(5)?,
        created_at: time(row, 6)?,
        replay_of: optional_id(row, 7)?,
    })
}

impl StatusTarget {
    /// Whether a status can be about this delivery and move it. A waiting delivery must have been
    /// sent before, by its own attempts or as `was_sent` says. One that is dead because its outcome
    /// was ambiguous can only succeed.
    fn is_movable_by(&self, status: ProviderStatus, was_sent: bool) -> bool {
        match self.status {
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => self.attempts > 0 || was_sent,
            DeliveryStatus::Held => was_sent && status == ProviderStatus::Sent,
            DeliveryStatus::Dead => {
                self.reason == Some(DeadReason::Ambiguous) && status == ProviderStatus::Sent
            }
            DeliveryStatus::InFlight
            | DeliveryStatus::Succeeded
            | DeliveryStatus::Cancelled
            | DeliveryStatus::Replayed => false,
        }
    }
}

const LATEST_DELIVERY: &str = concat!(
    "SELECT ",
    target_columns!(),
    " FROM deliveries d INDEXED BY deliveries_by_event
       WHERE d.event_id = ?1 AND d.destination = ?2 AND d.state <> 'replayed'
       ORDER BY d.id DESC LIMIT 1"
);

/// Applies the status that `status_event` carries to its delivery; returns the delivery if it
/// moved.
pub(crate) fn apply_update(
    tx: &mut impl StepTransaction,
    status_event: EventId,
    update: &StatusUpdate,
) -> Result<Option<ConfirmedDelivery>> {
    let Some(destination) = tx.destination_seq(update.destination)? else { return Ok(None) };
    let found =
        tx.find_one(LATEST_DELIVERY, params![blob(update.event), destination], read_target)?;
    let Some(target) = found else { return Ok(None) };
    if let Some(sent_id) = &update.sent_id
        && sent_messages::belongs_to_other_delivery(tx, target.id, sent_id)?
    {
        return Ok(None);
    }
    let StatusUpdate { at, status, event: about_event, .. } = *update;
    let received =
        ReceivedStatus { status_event, at, sent_id: update.sent_id.clone(), status, about_event };
    if target.status == DeliveryStatus::InFlight {
        store_for_in_flight(tx, target.id, &received)?;
        return Ok(None);
    }
    let was_sent = status == ProviderStatus::Sent && replaces_ambiguous(tx, &target, &received)?;
    if !target.is_movable_by(status, was_sent) {
        return Ok(None);
    }
    let next = move_delivery(tx, &target, &received)?;
    Ok(Some(ConfirmedDelivery {
        delivery: target.id,
        event: target.event,
        destination: update.destination,
        attempts: target.attempts,
        next,
    }))
}

const DELIVERY_BY_ID: &str =
    concat!("SELECT ", target_columns!(), " FROM deliveries d WHERE d.id = ?1");

/// Applies an answer that came after its claim was lost: the message has arrived all the same, as a
/// status update would report.
pub(crate) fn apply_late_answer(
    tx: &mut impl StepTransaction,
    settlement: &Settlement,
) -> Result<SettleResult> {
    let sent_id = settlement.sent.as_ref().and_then(|sent| sent.id.clone());
    let has_destination = tx.destination_seq(settlement.destination)?.is_some();
    if sent_id.is_none() || settlement.next != NextStep::Succeeded || !has_destination {
        return Ok(SettleResult::ClaimLost);
    }
    let found = tx.find_one(DELIVERY_BY_ID, params![blob(settlement.delivery)], read_target)?;
    let Some(target) = found else { return Ok(SettleResult::ClaimLost) };
    let received = ReceivedStatus {
        status_event: target.event,
        at: settlement.at,
        sent_id,
        status: ProviderStatus::Sent,
        about_event: target.event,
    };
    if target.status == DeliveryStatus::InFlight {
        store_for_in_flight(tx, target.id, &received)?;
        return Ok(SettleResult::ClaimLost);
    }
    if !target.is_movable_by(received.status, true) {
        return Ok(SettleResult::ClaimLost);
    }
    move_delivery(tx, &target, &received).map(SettleResult::Overruled)
}

const IS_AMBIGUOUS: &str = "
    SELECT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = ?1 AND d.reason = 'ambiguous')
       AND NOT EXISTS (SELECT 1 FROM sends s WHERE s.delivery_id = ?1 AND s.sent_id IS DISTINCT FROM ?2)";

/// Whether the delivery replaces an ambiguous one that the status can be about: that one has no
/// other message id.
fn replaces_ambiguous(
    connection: &impl SqlConnection,
    target: &StatusTarget,
    received: &ReceivedStatus,
) -> Result<bool> {
    let Some(old) = target.replay_of else { return Ok(false) };
    connection.read_one(IS_AMBIGUOUS, params![blob(old), received.sent_id], |row| row.get(0))
}

// Once a message has arrived, a later or delayed status does not change that.
const STORE: &str = "
    INSERT INTO said (delivery_id, by_event, at, sent_id, next, due_at, reason)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (delivery_id) DO UPDATE
       SET by_event = excluded.by_event, at = excluded.at, sent_id = excluded.sent_id,
           next = excluded.next, due_at = excluded.due_at, reason = excluded.reason
     WHERE said.next <> 'succeeded'";

fn store_for_in_flight(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    received: &ReceivedStatus,
) -> Result<()> {
    let next = received.status.next_step();
    tx.run(
        STORE,
        params![
            blob(delivery),
            blob(received.status_event),
            received.at.as_millis(),
            received.sent_id,
            next.as_str(),
            next.due_at().map(Timestamp::as_millis),
            next.reason().map(DeadReason::as_str),
        ],
    )?;
    tx.hints_mut().stored_statuses = true;
    Ok(())
}

const FIND_STORED: &str = "
    SELECT s.by_event, s.at, s.sent_id, s.next, s.due_at, s.reason, d.event_id
      FROM said s JOIN deliveries d ON d.id = s.delivery_id WHERE s.delivery_id = ?1";

/// The status that arrived while a delivery was in flight.
pub(crate) fn find_stored(
    tx: &impl StepTransaction,
    delivery: DeliveryId,
) -> Result<Option<ReceivedStatus>> {
    if !tx.hints().stored_statuses {
        return Ok(None);
    }
    tx.find_one(FIND_STORED, params![blob(delivery)], |row| read_status(row, 0))
}

fn read_status(row: &dyn SqlRow, first: usize) -> Result<ReceivedStatus> {
    let next = next(row, first + 3)?.ok_or_else(|| corrupt_value(first + 3, "NULL"))?;
    let status = if next == NextStep::Succeeded {
        ProviderStatus::Sent
    } else {
        ProviderStatus::Failed(next)
    };
    Ok(ReceivedStatus {
        status_event: id(row, first)?,
        at: time(row, first + 1)?,
        sent_id: row.get(first + 2)?,
        status,
        about_event: id(row, first + 6)?,
    })
}

/// Removes the stored status of a delivery whose claim has ended.
pub(crate) fn remove_stored(tx: &impl StepTransaction, delivery: DeliveryId) -> Result<()> {
    if tx.hints().stored_statuses {
        tx.run("DELETE FROM said WHERE delivery_id = ?1", params![blob(delivery)])?;
    }
    Ok(())
}

const STORED_FOR_ENDED_CLAIMS: &str = concat!(
    "SELECT ",
    target_columns!(),
    ", s.by_event, s.at, s.sent_id, s.next, s.due_at, s.reason, d.event_id
       FROM said s CROSS JOIN deliveries d WHERE d.id = s.delivery_id AND d.claim_number IS NULL"
);

/// Applies stored statuses to deliveries whose claim has ended without a recorded attempt.
pub(crate) fn apply_stored(tx: &mut impl StepTransaction) -> Result<()> {
    if !tx.hints().stored_statuses {
        return Ok(());
    }
    let read = |row: &dyn SqlRow| Ok((read_target(row)?, read_status(row, 8)?));
    let stored: Vec<_> = tx.read_all(STORED_FOR_ENDED_CLAIMS, params![], read)?;
    for (target, received) in stored {
        remove_stored(tx, target.id)?;
        // A status for a delivery in flight proves that it was sent, though no attempt was
        // recorded. Only a failure may be about the delivery it replaces.
        let was_sent = received.status == ProviderStatus::Sent || target.replay_of.is_none();
        if target.is_movable_by(received.status, was_sent) {
            move_delivery(tx, &target, &received)?;
        }
    }
    Ok(())
}

// `DeliveryTransition::Confirm` or `ConfirmFailure`, depending on the values.
const END_DELIVERY: &str = "
    UPDATE deliveries SET state = ?2, ended_at = ?3, reason = ?4, due_at = NULL WHERE id = ?1";
// Not a state transition: it keeps waiting, for another time.
const POSTPONE: &str = "UPDATE deliveries SET due_at = ?2 WHERE id = ?1";

/// Moves a waiting or ambiguous delivery as the status says.
fn move_delivery(
    tx: &mut impl StepTransaction,
    target: &StatusTarget,
    received: &ReceivedStatus,
) -> Result<NextStep> {
    let at = received.at;
    let next = received.status.next_step();
    awaited_statuses::remove(tx, target.id)?;
    match next {
        NextStep::RetryAt(due_at) => {
            tx.run(POSTPONE, params![blob(target.id), due_at.as_millis()])?;
        }
        NextStep::Succeeded => {
            end_delivery(tx, target, DeliveryStatus::Succeeded, None, at)?;
            let subject = SubjectSeq::Destination(target.destination);
            tx.counts().rollups.bucket(subject, at).latency.record(at.since(target.created_at));
        }
        NextStep::Dead(reason) => {
            end_delivery(tx, target, DeliveryStatus::Dead, Some(reason), at)?;
            let cause = DeadLetterCause::from_status_update(reason);
            let destination = target.destination;
            dead_letter_groups::add_delivery(tx, target.id, destination, &cause, reason, at)?;
        }
    }
    record_decision(tx, target.id, received, at)?;
    Ok(next)
}

fn end_delivery(
    tx: &mut impl StepTransaction,
    target: &StatusTarget,
    to: DeliveryStatus,
    reason: Option<DeadReason>,
    at: Timestamp,
) -> Result<()> {
    let reason = reason.map(DeadReason::as_str);
    tx.run(END_DELIVERY, params![blob(target.id), to.as_str(), at.as_millis(), reason])?;
    callbacks::make_due(tx, target.id)?;
    tx.counts().count_move(Some(target.status), Some(to));
    if let Some(previous_reason) = target.reason {
        // It had ended before: its ordering queue has moved on, and retention may have passed it.
        dead_letter_groups::remove_delivery(tx, target.id, previous_reason)?;
        return tx.defer_pruning(target.event, at);
    }
    ordering_queue::release_next(tx, target.id, at)
}

/// Records the decision, and the provider's id of the message.
pub(crate) fn record_decision(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    received: &ReceivedStatus,
    at: Timestamp,
) -> Result<()> {
    if let Some(sent_id) = &received.sent_id {
        sent_messages::record_sent_id(tx, delivery, sent_id, at)?;
    }
    let status_event =
        (received.status_event != received.about_event).then_some(received.status_event);
    let (kind, detail) = match received.status.next_step() {
        NextStep::Succeeded => (EventDecisionKind::Confirmed, json!({ "by": status_event })),
        NextStep::RetryAt(due_at) => {
            (EventDecisionKind::Refuted, json!({ "by": status_event, "due_at": due_at }))
        }
        NextStep::Dead(reason) => {
            (EventDecisionKind::Refuted, json!({ "by": status_event, "reason": reason.as_str() }))
        }
    };
    let decision =
        EventDecision { event: received.about_event, delivery: Some(delivery), at, kind, detail };
    decisions::insert(tx, &decision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn target_of_a_status_is_found_by_its_event() {
        let steps = query_plan(LATEST_DELIVERY);
        assert!(steps[0].starts_with("SEARCH d USING INDEX deliveries_by_event"), "{steps:#?}");
        assert_eq!(query_plan(STORED_FOR_ENDED_CLAIMS)[0], "SCAN s");
        let steps = query_plan(IS_AMBIGUOUS);
        assert!(!steps.iter().any(|step| step == "SCAN d" || step == "SCAN s"), "{steps:#?}");
    }
}
