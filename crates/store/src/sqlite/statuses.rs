//! What a status says of a message that we sent: heard at once by a delivery that waits, and after the
//! attempt by one that is under way.

use rusqlite::{OptionalExtension, Row, params};
use serde_json::json;
use surehook_core::{
    dead_letters::DeathCause,
    decision::{EventDecision, EventDecisionKind},
    delivery::{DeadReason, state::DeliveryStatus},
    event::{ProviderStatus, StatusUpdate},
    ids::{DeliveryId, EventId},
    store::{ConfirmedDelivery, NextStep, SettleResult, Settlement},
    time::Timestamp,
};

use super::{
    awaited_statuses, claims,
    dead_letter_groups::{self, DeadDelivery},
    decisions, ordering_queue, prune,
    read::collect_rows,
    rollups::SubjectSeq,
    row::{blob, corrupt_value, id, next, optional_id, reason, status, time},
    sent_messages,
    writer::WriteTransaction,
};

/// What a status said, and which.
pub(super) struct ReceivedStatus {
    /// The event that the status is; that which it is about, if its own answer came late.
    status_event: EventId,
    at: Timestamp,
    sent_id: Option<String>,
    pub(super) said: ProviderStatus,
    /// Of which event.
    about_event: EventId,
}

/// The delivery that a status is about.
struct StatusTarget {
    id: DeliveryId,
    event: EventId,
    /// The row number.
    destination: i64,
    status: DeliveryStatus,
    reason: Option<DeadReason>,
    attempts: u32,
    created_at: Timestamp,
    /// What it took over from.
    replay_of: Option<DeliveryId>,
}

/// Columns of [`target`], from `deliveries d`.
macro_rules! target_columns {
    () => {
        "d.id, d.event_id, d.destination, d.state, d.reason, d.attempts, d.created_at, d.replay_of"
    };
}

fn target(row: &Row<'_>) -> rusqlite::Result<StatusTarget> {
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
    /// Whether what a status says can be about it, and moves it. That is so for what waits if it was
    /// sent before, or if `was_sent` says so; and what was given up because nobody knew whether it
    /// arrived has arrived after all.
    fn is_movable_by(&self, said: ProviderStatus, was_sent: bool) -> bool {
        match self.status {
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => self.attempts > 0 || was_sent,
            DeliveryStatus::Held => was_sent && said == ProviderStatus::Sent,
            DeliveryStatus::Dead => {
                self.reason == Some(DeadReason::Ambiguous) && said == ProviderStatus::Sent
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

/// Lets the delivery that it is about hear what the event `status_event` says; says whether it moved.
pub(super) fn apply_update(
    tx: &mut WriteTransaction<'_, '_>,
    status_event: EventId,
    update: &StatusUpdate,
) -> rusqlite::Result<Option<ConfirmedDelivery>> {
    let Some(destination) = tx.row_numbers.destinations.get(&update.destination).copied() else {
        return Ok(None);
    };
    let found = tx
        .connection
        .prepare_cached(LATEST_DELIVERY)?
        .query_row(params![blob(update.event), destination], target)
        .optional()?;
    let Some(target) = found else { return Ok(None) };
    if let Some(sent_id) = &update.sent_id
        && sent_messages::belongs_to_other_delivery(tx, target.id, sent_id)?
    {
        return Ok(None);
    }
    let (at, said, about_event) = (update.at, update.said, update.event);
    let received =
        ReceivedStatus { status_event, at, sent_id: update.sent_id.clone(), said, about_event };
    if target.status == DeliveryStatus::InFlight {
        store_for_in_flight(tx, target.id, &received)?;
        return Ok(None);
    }
    let was_sent = said == ProviderStatus::Sent && replaces_ambiguous(tx, &target, &received)?;
    if !target.is_movable_by(said, was_sent) {
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

/// An answer that came after its claim was lost: what it names has arrived all the same, and is heard
/// as a status is.
pub(super) fn apply_late_answer(
    tx: &mut WriteTransaction<'_, '_>,
    settlement: &Settlement,
) -> rusqlite::Result<SettleResult> {
    let sent_id = settlement.sent.as_ref().and_then(|sent| sent.id.clone());
    let is_there = tx.row_numbers.destinations.contains_key(&settlement.destination);
    if sent_id.is_none() || settlement.next != NextStep::Succeeded || !is_there {
        return Ok(SettleResult::LeaseLost);
    }
    let found = tx
        .connection
        .prepare_cached(DELIVERY_BY_ID)?
        .query_row(params![blob(settlement.delivery)], target)
        .optional()?;
    let Some(target) = found else { return Ok(SettleResult::LeaseLost) };
    let (status_event, about_event) = (target.event, target.event);
    let received = ReceivedStatus {
        status_event,
        at: settlement.at,
        sent_id,
        said: ProviderStatus::Sent,
        about_event,
    };
    if target.status == DeliveryStatus::InFlight {
        store_for_in_flight(tx, target.id, &received)?;
        return Ok(SettleResult::LeaseLost);
    }
    if !target.is_movable_by(received.said, true) {
        return Ok(SettleResult::LeaseLost);
    }
    move_delivery(tx, &target, &received).map(SettleResult::Overruled)
}

const IS_AMBIGUOUS: &str = "
    SELECT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = ?1 AND d.reason = 'ambiguous')
       AND NOT EXISTS (SELECT 1 FROM sends s WHERE s.delivery_id = ?1 AND s.sent_id IS NOT ?2)";

/// Whether a delivery took over from one of which nobody knew whether it arrived, and which this can
/// be about: it has no other name.
fn replaces_ambiguous(
    tx: &WriteTransaction<'_, '_>,
    target: &StatusTarget,
    received: &ReceivedStatus,
) -> rusqlite::Result<bool> {
    let Some(old) = target.replay_of else { return Ok(false) };
    tx.connection
        .prepare_cached(IS_AMBIGUOUS)?
        .query_row(params![blob(old), received.sent_id], |row| row.get(0))
}

// That it has arrived is not unsaid by what comes later, or comes late.
const STORE: &str = "
    INSERT INTO said (delivery_id, by_event, at, sent_id, next, due_at, reason)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT DO UPDATE
       SET by_event = excluded.by_event, at = excluded.at, sent_id = excluded.sent_id,
           next = excluded.next, due_at = excluded.due_at, reason = excluded.reason
     WHERE said.next <> 'succeeded'";

fn store_for_in_flight(
    tx: &mut WriteTransaction<'_, '_>,
    delivery: DeliveryId,
    received: &ReceivedStatus,
) -> rusqlite::Result<()> {
    let next = received.said.next();
    tx.connection.prepare_cached(STORE)?.execute(params![
        blob(delivery),
        blob(received.status_event),
        received.at.as_millis(),
        received.sent_id,
        next.word(),
        next.due_at().map(Timestamp::as_millis),
        next.reason().map(DeadReason::as_str),
    ])?;
    tx.hints.stored_statuses = true;
    Ok(())
}

const FIND_STORED: &str = "
    SELECT s.by_event, s.at, s.sent_id, s.next, s.due_at, s.reason, d.event_id
      FROM said s JOIN deliveries d ON d.id = s.delivery_id WHERE s.delivery_id = ?1";

/// What was said while a delivery was under way.
pub(super) fn find_stored(
    tx: &WriteTransaction<'_, '_>,
    delivery: DeliveryId,
) -> rusqlite::Result<Option<ReceivedStatus>> {
    if !tx.hints.stored_statuses {
        return Ok(None);
    }
    tx.connection
        .prepare_cached(FIND_STORED)?
        .query_row(params![blob(delivery)], |row| received(row, 0))
        .optional()
}

fn received(row: &Row<'_>, first: usize) -> rusqlite::Result<ReceivedStatus> {
    let next = next(row, first + 3)?.ok_or_else(|| corrupt_value(first + 3, "NULL"))?;
    let said = if next == NextStep::Succeeded {
        ProviderStatus::Sent
    } else {
        ProviderStatus::Failed(next)
    };
    Ok(ReceivedStatus {
        status_event: id(row, first)?,
        at: time(row, first + 1)?,
        sent_id: row.get(first + 2)?,
        said,
        about_event: id(row, first + 6)?,
    })
}

/// Forgets what was said of a delivery whose claim has ended.
pub(super) fn remove_stored(
    tx: &WriteTransaction<'_, '_>,
    delivery: DeliveryId,
) -> rusqlite::Result<()> {
    if tx.hints.stored_statuses {
        let forget = "DELETE FROM said WHERE delivery_id = ?1";
        tx.connection.prepare_cached(forget)?.execute(params![blob(delivery)])?;
    }
    Ok(())
}

const STORED_FOR_ENDED_CLAIMS: &str = concat!(
    "SELECT ",
    target_columns!(),
    ", s.by_event, s.at, s.sent_id, s.next, s.due_at, s.reason, d.event_id
       FROM said s CROSS JOIN deliveries d ON d.id = s.delivery_id WHERE d.lease_token IS NULL"
);

/// Lets those hear what was said whose claim has ended without an attempt being recorded.
pub(super) fn apply_stored(tx: &mut WriteTransaction<'_, '_>) -> rusqlite::Result<()> {
    if !tx.hints.stored_statuses {
        return Ok(());
    }
    let left = collect_rows(tx.connection, STORED_FOR_ENDED_CLAIMS, [], |row| {
        Ok((target(row)?, received(row, 8)?))
    })?;
    for (target, received) in left {
        remove_stored(tx, target.id)?;
        // It was under way: that somebody speaks of it proves that it went out, though no attempt
        // was recorded. Only a failure may be that of what it took over from.
        let was_sent = received.said == ProviderStatus::Sent || target.replay_of.is_none();
        if target.is_movable_by(received.said, was_sent) {
            move_delivery(tx, &target, &received)?;
        }
    }
    Ok(())
}

// Input::Confirm and Input::Refute, by what is bound.
const END_DELIVERY: &str = "
    UPDATE deliveries SET state = ?2, ended_at = ?3, reason = ?4, due_at = NULL WHERE id = ?1";
// Not a move: it goes on waiting, for another time.
const POSTPONE: &str = "UPDATE deliveries SET due_at = ?2 WHERE id = ?1";

/// Moves a delivery that waits, or was given up.
fn move_delivery(
    tx: &mut WriteTransaction<'_, '_>,
    target: &StatusTarget,
    received: &ReceivedStatus,
) -> rusqlite::Result<NextStep> {
    let at = received.at;
    let next = received.said.next();
    awaited_statuses::remove(tx, target.id)?;
    match next {
        NextStep::RetryAt(due_at) => {
            let values = params![blob(target.id), due_at.as_millis()];
            tx.connection.prepare_cached(POSTPONE)?.execute(values)?;
        }
        NextStep::Succeeded => {
            end_delivery(tx, target, DeliveryStatus::Succeeded, None, at)?;
            let subject = SubjectSeq::Destination(target.destination);
            tx.counts.rollups.bucket(subject, at).latency.record(at.since(target.created_at));
        }
        NextStep::Dead(reason) => {
            end_delivery(tx, target, DeliveryStatus::Dead, Some(reason), at)?;
            tx.counts.count_death(reason, target.destination, at);
            let (delivery, destination) = (target.id, target.destination);
            let cause = &DeathCause::told(reason);
            dead_letter_groups::add_delivery(
                tx,
                &DeadDelivery { delivery, destination, cause, reason, at },
            )?;
            claims::forget_cached_key(tx, target.id)?;
        }
    }
    record_decision(tx, target.id, received, at)?;
    Ok(next)
}

fn end_delivery(
    tx: &mut WriteTransaction<'_, '_>,
    target: &StatusTarget,
    to: DeliveryStatus,
    reason: Option<DeadReason>,
    at: Timestamp,
) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(END_DELIVERY)?.execute(params![
        blob(target.id),
        to.as_str(),
        at.as_millis(),
        reason.map(DeadReason::as_str),
    ])?;
    tx.counts.count_move(Some(target.status), Some(to));
    if let Some(was) = target.reason {
        // It had ended before: the line has gone on, and retention has seen it.
        tx.counts.change_dead_count(was, -1);
        dead_letter_groups::remove_delivery(tx, target.id)?;
        return prune::defer_if_passed(tx, target.event, at);
    }
    ordering_queue::release_next(tx, target.id, at)
}

/// Writes down that a delivery went where a status said, and what the service calls its message.
pub(super) fn record_decision(
    tx: &mut WriteTransaction<'_, '_>,
    delivery: DeliveryId,
    received: &ReceivedStatus,
    at: Timestamp,
) -> rusqlite::Result<()> {
    if let Some(sent_id) = &received.sent_id {
        sent_messages::record_sent_id(tx, delivery, sent_id, at)?;
    }
    let status_event =
        (received.status_event != received.about_event).then_some(received.status_event);
    let (kind, detail) = match received.said.next() {
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
    decisions::insert(tx.connection, &decision)
}

#[cfg(test)]
mod tests {
    use super::{super::schema::query_plan, *};

    #[test]
    fn what_a_status_is_about_is_found_by_its_event() {
        let steps = query_plan(LATEST_DELIVERY);
        assert!(steps[0].starts_with("SEARCH d USING INDEX deliveries_by_event"), "{steps:#?}");
        assert_eq!(query_plan(STORED_FOR_ENDED_CLAIMS)[0], "SCAN s");
        let steps = query_plan(IS_AMBIGUOUS);
        assert!(!steps.iter().any(|step| step == "SCAN d" || step == "SCAN s"), "{steps:#?}");
    }
}
