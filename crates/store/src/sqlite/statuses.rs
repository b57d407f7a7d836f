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
    awaited, decide, deliver,
    groups::{self, Death},
    line, prune,
    read::collect,
    rollups::Subject,
    row::{blob, corrupt, id, next, optional_id, reason, status, time},
    sends,
    writer::Tx,
};

/// What a status said, and which.
pub(super) struct Heard {
    /// The event that the status is; that which it is about, if its own answer came late.
    by: EventId,
    at: Timestamp,
    sent_id: Option<String>,
    pub(super) said: ProviderStatus,
    /// Of which event.
    of: EventId,
}

/// The delivery that a status is about.
struct Meant {
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

/// Columns of [`meant`], from `deliveries d`.
macro_rules! meant_columns {
    () => {
        "d.id, d.event_id, d.destination, d.state, d.reason, d.attempts, d.created_at, d.replay_of"
    };
}

fn meant(row: &Row<'_>) -> rusqlite::Result<Meant> {
    Ok(Meant {
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

impl Meant {
    /// Whether what a status says can be about it, and moves it. That is so for what waits if it was
    /// sent before, or if `went_out` says so; and what was given up because nobody knew whether it
    /// arrived has arrived after all.
    fn can_be_moved(&self, said: ProviderStatus, went_out: bool) -> bool {
        match self.status {
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => self.attempts > 0 || went_out,
            DeliveryStatus::Held => went_out && said == ProviderStatus::Sent,
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

const NEWEST: &str = concat!(
    "SELECT ",
    meant_columns!(),
    " FROM deliveries d INDEXED BY deliveries_by_event
       WHERE d.event_id = ?1 AND d.destination = ?2 AND d.state <> 'replayed'
       ORDER BY d.id DESC LIMIT 1"
);

/// Lets the delivery that it is about hear what the event `by` says; says whether it moved.
pub(super) fn hear(
    tx: &mut Tx<'_, '_>,
    by: EventId,
    told: &StatusUpdate,
) -> rusqlite::Result<Option<ConfirmedDelivery>> {
    let Some(destination) = tx.names.destinations.get(&told.destination).copied() else {
        return Ok(None);
    };
    let found = tx
        .connection
        .prepare_cached(NEWEST)?
        .query_row(params![blob(told.event), destination], meant)
        .optional()?;
    let Some(meant) = found else { return Ok(None) };
    if let Some(sent_id) = &told.sent_id
        && sends::is_of_another(tx, meant.id, sent_id)?
    {
        return Ok(None);
    }
    let (at, said, of) = (told.at, told.said, told.event);
    let heard = Heard { by, at, sent_id: told.sent_id.clone(), said, of };
    if meant.status == DeliveryStatus::InFlight {
        keep(tx, meant.id, &heard)?;
        return Ok(None);
    }
    let went_out = said == ProviderStatus::Sent && took_over_in_doubt(tx, &meant, &heard)?;
    if !meant.can_be_moved(said, went_out) {
        return Ok(None);
    }
    let next = apply(tx, &meant, &heard)?;
    Ok(Some(ConfirmedDelivery {
        delivery: meant.id,
        event: meant.event,
        destination: told.destination,
        attempts: meant.attempts,
        next,
    }))
}

const BY_ID: &str = concat!("SELECT ", meant_columns!(), " FROM deliveries d WHERE d.id = ?1");

/// An answer that came after its claim was lost: what it names has arrived all the same, and is heard
/// as a status is.
pub(super) fn hear_late(
    tx: &mut Tx<'_, '_>,
    settlement: &Settlement,
) -> rusqlite::Result<SettleResult> {
    let sent_id = settlement.sent.as_ref().and_then(|sent| sent.id.clone());
    let is_there = tx.names.destinations.contains_key(&settlement.destination);
    if sent_id.is_none() || settlement.next != NextStep::Succeeded || !is_there {
        return Ok(SettleResult::LeaseLost);
    }
    let found = tx
        .connection
        .prepare_cached(BY_ID)?
        .query_row(params![blob(settlement.delivery)], meant)
        .optional()?;
    let Some(meant) = found else { return Ok(SettleResult::LeaseLost) };
    let (by, of) = (meant.event, meant.event);
    let heard = Heard { by, at: settlement.at, sent_id, said: ProviderStatus::Sent, of };
    if meant.status == DeliveryStatus::InFlight {
        keep(tx, meant.id, &heard)?;
        return Ok(SettleResult::LeaseLost);
    }
    if !meant.can_be_moved(heard.said, true) {
        return Ok(SettleResult::LeaseLost);
    }
    apply(tx, &meant, &heard).map(SettleResult::Overruled)
}

const IN_DOUBT: &str = "
    SELECT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = ?1 AND d.reason = 'ambiguous')
       AND NOT EXISTS (SELECT 1 FROM sends s WHERE s.delivery_id = ?1 AND s.sent_id IS NOT ?2)";

/// Whether a delivery took over from one of which nobody knew whether it arrived, and which this can
/// be about: it has no other name.
fn took_over_in_doubt(tx: &Tx<'_, '_>, meant: &Meant, heard: &Heard) -> rusqlite::Result<bool> {
    let Some(old) = meant.replay_of else { return Ok(false) };
    tx.connection
        .prepare_cached(IN_DOUBT)?
        .query_row(params![blob(old), heard.sent_id], |row| row.get(0))
}

// That it has arrived is not unsaid by what comes later, or comes late.
const KEEP: &str = "
    INSERT INTO said (delivery_id, by_event, at, sent_id, next, due_at, reason)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT DO UPDATE
       SET by_event = excluded.by_event, at = excluded.at, sent_id = excluded.sent_id,
           next = excluded.next, due_at = excluded.due_at, reason = excluded.reason
     WHERE said.next <> 'succeeded'";

fn keep(tx: &mut Tx<'_, '_>, delivery: DeliveryId, heard: &Heard) -> rusqlite::Result<()> {
    let next = heard.said.next();
    tx.connection.prepare_cached(KEEP)?.execute(params![
        blob(delivery),
        blob(heard.by),
        heard.at.as_millis(),
        heard.sent_id,
        next.word(),
        next.due_at().map(Timestamp::as_millis),
        next.reason().map(DeadReason::as_str),
    ])?;
    tx.doubts.said = true;
    Ok(())
}

const KEPT: &str = "
    SELECT s.by_event, s.at, s.sent_id, s.next, s.due_at, s.reason, d.event_id
      FROM said s JOIN deliveries d ON d.id = s.delivery_id WHERE s.delivery_id = ?1";

/// What was said while a delivery was under way.
pub(super) fn kept(tx: &Tx<'_, '_>, delivery: DeliveryId) -> rusqlite::Result<Option<Heard>> {
    if !tx.doubts.said {
        return Ok(None);
    }
    tx.connection
        .prepare_cached(KEPT)?
        .query_row(params![blob(delivery)], |row| heard(row, 0))
        .optional()
}

fn heard(row: &Row<'_>, first: usize) -> rusqlite::Result<Heard> {
    let next = next(row, first + 3)?.ok_or_else(|| corrupt(first + 3, "NULL"))?;
    let said = if next == NextStep::Succeeded {
        ProviderStatus::Sent
    } else {
        ProviderStatus::Failed(next)
    };
    Ok(Heard {
        by: id(row, first)?,
        at: time(row, first + 1)?,
        sent_id: row.get(first + 2)?,
        said,
        of: id(row, first + 6)?,
    })
}

/// Forgets what was said of a delivery whose claim has ended.
pub(super) fn forget(tx: &Tx<'_, '_>, delivery: DeliveryId) -> rusqlite::Result<()> {
    if tx.doubts.said {
        let forget = "DELETE FROM said WHERE delivery_id = ?1";
        tx.connection.prepare_cached(forget)?.execute(params![blob(delivery)])?;
    }
    Ok(())
}

const LEFT: &str = concat!(
    "SELECT ",
    meant_columns!(),
    ", s.by_event, s.at, s.sent_id, s.next, s.due_at, s.reason, d.event_id
       FROM said s CROSS JOIN deliveries d ON d.id = s.delivery_id WHERE d.lease_token IS NULL"
);

/// Lets those hear what was said whose claim has ended without an attempt being recorded.
pub(super) fn hear_what_was_kept(tx: &mut Tx<'_, '_>) -> rusqlite::Result<()> {
    if !tx.doubts.said {
        return Ok(());
    }
    let left = collect(tx.connection, LEFT, [], |row| Ok((meant(row)?, heard(row, 8)?)))?;
    for (meant, heard) in left {
        forget(tx, meant.id)?;
        // It was under way: that somebody speaks of it proves that it went out, though no attempt
        // was recorded. Only a failure may be that of what it took over from.
        let went_out = heard.said == ProviderStatus::Sent || meant.replay_of.is_none();
        if meant.can_be_moved(heard.said, went_out) {
            apply(tx, &meant, &heard)?;
        }
    }
    Ok(())
}

// Input::Confirm and Input::Refute, by what is bound.
const END: &str = "
    UPDATE deliveries SET state = ?2, ended_at = ?3, reason = ?4, due_at = NULL WHERE id = ?1";
// Not a move: it goes on waiting, for another time.
const PUT_OFF: &str = "UPDATE deliveries SET due_at = ?2 WHERE id = ?1";

/// Moves a delivery that waits, or was given up.
fn apply(tx: &mut Tx<'_, '_>, meant: &Meant, heard: &Heard) -> rusqlite::Result<NextStep> {
    let at = heard.at;
    let next = heard.said.next();
    awaited::forget(tx, meant.id)?;
    match next {
        NextStep::RetryAt(due_at) => {
            let values = params![blob(meant.id), due_at.as_millis()];
            tx.connection.prepare_cached(PUT_OFF)?.execute(values)?;
        }
        NextStep::Succeeded => {
            end(tx, meant, DeliveryStatus::Succeeded, None, at)?;
            let subject = Subject::Destination(meant.destination);
            tx.delta.facts.tally(subject, at).latency.record(at.since(meant.created_at));
        }
        NextStep::Dead(reason) => {
            end(tx, meant, DeliveryStatus::Dead, Some(reason), at)?;
            tx.delta.died(reason, meant.destination, at);
            let (delivery, destination) = (meant.id, meant.destination);
            let cause = &DeathCause::told(reason);
            groups::died(tx, &Death { delivery, destination, cause, reason, at })?;
            deliver::forget_key(tx, meant.id)?;
        }
    }
    tell(tx, meant.id, heard, at)?;
    Ok(next)
}

fn end(
    tx: &mut Tx<'_, '_>,
    meant: &Meant,
    to: DeliveryStatus,
    reason: Option<DeadReason>,
    at: Timestamp,
) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(END)?.execute(params![
        blob(meant.id),
        to.as_str(),
        at.as_millis(),
        reason.map(DeadReason::as_str),
    ])?;
    tx.delta.moved(Some(meant.status), Some(to));
    if let Some(was) = meant.reason {
        // It had ended before: the line has gone on, and retention has seen it.
        tx.delta.dead_now(was, -1);
        groups::left(tx, meant.id)?;
        return prune::look_later_if_passed(tx, meant.event, at);
    }
    line::call_next(tx, meant.id, at)
}

/// Writes down that a delivery went where a status said, and what the service calls its message.
pub(super) fn tell(
    tx: &mut Tx<'_, '_>,
    delivery: DeliveryId,
    heard: &Heard,
    at: Timestamp,
) -> rusqlite::Result<()> {
    if let Some(sent_id) = &heard.sent_id {
        sends::name(tx, delivery, sent_id, at)?;
    }
    let by = (heard.by != heard.of).then_some(heard.by);
    let (kind, detail) = match heard.said.next() {
        NextStep::Succeeded => (EventDecisionKind::Confirmed, json!({ "by": by })),
        NextStep::RetryAt(due_at) => {
            (EventDecisionKind::Refuted, json!({ "by": by, "due_at": due_at }))
        }
        NextStep::Dead(reason) => {
            (EventDecisionKind::Refuted, json!({ "by": by, "reason": reason.as_str() }))
        }
    };
    let decision = EventDecision { event: heard.of, delivery: Some(delivery), at, kind, detail };
    decide::note(tx.connection, &decision)
}

#[cfg(test)]
mod tests {
    use super::{super::schema::plan, *};

    #[test]
    fn what_a_status_is_about_is_found_by_its_event() {
        let steps = plan(NEWEST);
        assert!(steps[0].starts_with("SEARCH d USING INDEX deliveries_by_event"), "{steps:#?}");
        assert_eq!(plan(LEFT)[0], "SCAN s");
        let steps = plan(IN_DOUBT);
        assert!(!steps.iter().any(|step| step == "SCAN d" || step == "SCAN s"), "{steps:#?}");
    }
}
