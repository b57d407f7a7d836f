//! The whole story of an event, in order: what was decided, what was tried, what followed.
//!
//! Nothing here is stored as such. It is put together from the event's own columns, its duplicates,
//! its deliveries with their attempts, and the decisions that have rows of their own.

use serde_json::{Value, json};

use crate::{
    decision::{EventDecision, EventDecisionKind, NotRoutedReason, UnroutedRoute},
    ids::{DeliveryId, DestinationId},
    quarantine::MANUALLY_RELEASED,
    store::{AttemptRow, DeliveryRow, DuplicateRow, EVENT_ATTEMPTS_MAX, EventDetail, NextStep},
    time::Timestamp,
    verify::UNVERIFIED,
};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEntry {
    /// When.
    pub at: Timestamp,
    /// What; for programs, and stable.
    pub kind: &'static str,
    /// What, for people.
    pub text: String,
    /// Which delivery it is about.
    pub delivery: Option<DeliveryId>,
    /// What else a program may want; an object, or null.
    pub detail: Value,
}

/// How a destination is called; `None` if it is gone.
type NameOf<'n> = &'n dyn Fn(DestinationId) -> Option<String>;

/// Tells the story, oldest first. What happened in the same millisecond stands in the order in which
/// it must have happened.
pub fn build_timeline(detail: &EventDetail, name_of: NameOf<'_>) -> Vec<TimelineEntry> {
    let mut story = taken_in(detail);
    story.extend(detail.unrouted.iter().map(|route| unrouted(route, detail.event.received_at)));
    let to = |delivery: DeliveryId| -> String {
        let owed = detail.deliveries.iter().find(|other| other.id == delivery);
        let name = owed.and_then(|owed| name_of(owed.destination));
        name.map_or_else(|| "a deleted destination".to_owned(), |name| format!("`{name}`"))
    };
    story.extend(detail.deliveries.iter().map(|owed| created(owed, &to(owed.id))));
    story.extend(detail.attempts.iter().map(|row| attempt(row, &to(row.delivery))));
    story.extend(without_attempts(detail).map(|owed| attempts_removed(owed, &to(owed.id))));
    story.extend(detail.duplicates.iter().map(duplicate));
    story.extend(unkept_duplicates(detail));
    story.extend(detail.decisions.iter().map(|row| decision(row, &to)));
    story.sort_by_key(|entry| entry.at);
    story
}

fn taken_in(detail: &EventDetail) -> Vec<TimelineEntry> {
    let row = &detail.event;
    let entry = |kind, text, detail| TimelineEntry {
        at: row.received_at,
        kind,
        text,
        delivery: None,
        detail,
    };
    let body = if row.body_removed { "; retention has removed the body" } else { "" };
    let mut story = vec![entry(
        "received",
        format!("received with {} bytes{body}", row.body_bytes),
        json!({ "request": row.request_id }),
    )];
    if let Some(by) = &detail.verified_by {
        let text = match by.as_str() {
            UNVERIFIED => "unverified: the source asks for nothing".to_owned(),
            MANUALLY_RELEASED => "unverified: released by hand".to_owned(),
            _ => format!("verified by {by}"),
        };
        story.push(entry("verified", text, json!({ "by": by })));
    }
    match (&row.key, &detail.key_from) {
        (None, _) => {
            let is_copy = |row: &EventDecision| row.kind == EventDecisionKind::NotADuplicate;
            let text = match detail.decisions.iter().any(is_copy) {
                true => "it has no key, because its own is that of another event",
                false => "no key was found, so this is a duplicate of nothing",
            };
            story.push(entry("no_key", text.to_owned(), Value::Null));
        }
        (Some(key), from) => {
            let place = from.as_ref().map(|from| format!(", found in {from}")).unwrap_or_default();
            let text = format!("the key is `{}`{place}", key.escape_default());
            story.push(entry("key", text, json!({ "key": key, "from": from })));
        }
    }
    story
}

fn unrouted(route: &UnroutedRoute, at: Timestamp) -> TimelineEntry {
    let to = &route.to;
    let text = match &route.why {
        NotRoutedReason::Ping => "the provider only asked whether we are there".to_owned(),
        NotRoutedReason::FilterFalse => format!("not for `{to}`: the filter says no"),
        NotRoutedReason::FilterFailed(code) => {
            format!("not for `{to}`: the filter failed ({code})")
        }
        NotRoutedReason::NotJson => {
            format!("not for `{to}`: it has a filter, and the body is not JSON")
        }
        NotRoutedReason::SameDestination => {
            format!("not for `{to}` again: an earlier route leads there")
        }
        NotRoutedReason::DroppedByTransform => format!("not for `{to}`: the transform dropped it"),
    };
    let detail = json!({ "destination": to, "why": route.why.word() });
    TimelineEntry { at, kind: "not_routed", text, delivery: None, detail }
}

fn created(owed: &DeliveryRow, to: &str) -> TimelineEntry {
    let place = owed.replay_of.map(|old| format!(", in place of {old}")).unwrap_or_default();
    TimelineEntry {
        at: owed.created_at,
        kind: "delivery_created",
        text: format!("to be delivered to {to}{place}"),
        delivery: Some(owed.id),
        detail: json!({ "replay_of": owed.replay_of }),
    }
}

fn attempt(row: &AttemptRow, to: &str) -> TimelineEntry {
    let AttemptRow { delivery, attempt, next, schedule_reason } = row;
    let what = match (attempt.status, attempt.failure) {
        (Some(status), _) => format!("status {status}"),
        (None, Some(failure)) => failure.as_str().to_owned(),
        (None, None) => "no answer".to_owned(),
    };
    let took = attempt.took.as_millis();
    let follows = match next {
        Some(NextStep::RetryAt(due_at)) => {
            let why = schedule_reason.map(|why| format!(" ({})", why.text(attempt.number)));
            format!("; next attempt at {due_at}{}", why.unwrap_or_default())
        }
        Some(NextStep::Dead(reason)) => format!("; given up: {}", reason.as_str()),
        Some(NextStep::Succeeded) | None => String::new(),
    };
    let (kind, outcome) = match attempt.class {
        None => ("attempt_succeeded", "succeeded".to_owned()),
        Some(class) => ("attempt_failed", format!("failed ({})", class.as_str())),
    };
    let number = attempt.number;
    TimelineEntry {
        at: attempt.started_at + attempt.took,
        kind,
        text: format!("attempt {number} to {to} {outcome}: {what} after {took} ms{follows}"),
        delivery: Some(*delivery),
        detail: json!({
            "attempt": attempt.id,
            "number": number,
            "status": attempt.status,
            "failure": attempt.failure,
            "class": attempt.class,
            "detail": attempt.detail,
            "next": next.map(NextStep::word),
            "next_at": next.and_then(NextStep::due_at),
            "next_why": schedule_reason,
            "timing": attempt.timing.to_view(attempt.took),
        }),
    }
}

/// Deliveries that were tried and of whose attempts nothing is left. Those that are not told because
/// there are too many are not missing.
fn without_attempts(detail: &EventDetail) -> impl Iterator<Item = &DeliveryRow> {
    let all_are_told = detail.attempts.len() < EVENT_ATTEMPTS_MAX;
    detail.deliveries.iter().filter(move |owed| {
        let is_told = || detail.attempts.iter().any(|row| row.delivery == owed.id);
        all_are_told && owed.attempts > 0 && !is_told()
    })
}

fn attempts_removed(owed: &DeliveryRow, to: &str) -> TimelineEntry {
    let many = owed.attempts;
    let what = if many == 1 { "1 attempt".to_owned() } else { format!("{many} attempts") };
    TimelineEntry {
        // The last of them was not later.
        at: owed.ended_at.unwrap_or(owed.created_at),
        kind: "attempts_removed",
        text: format!("{what} to {to}, of which retention has removed the record"),
        delivery: Some(owed.id),
        detail: json!({ "count": many }),
    }
}

fn duplicate(row: &DuplicateRow) -> TimelineEntry {
    let (kind, text) = match (row.bytes_differ, row.body.is_some() || row.body_left_out) {
        (true, true) => {
            ("duplicate_differs", "came again with another body, which was kept and not sent")
        }
        (true, false) => (
            "duplicate_differs",
            "came again with another body, which was not sent; retention has removed it",
        ),
        (false, _) => ("duplicate", "came again"),
    };
    TimelineEntry {
        at: row.seen_at,
        kind,
        text: text.to_owned(),
        delivery: None,
        detail: Value::Null,
    }
}

/// Only the first sightings have rows; the count knows of all.
fn unkept_duplicates(detail: &EventDetail) -> Option<TimelineEntry> {
    let (all, at) = (detail.event.duplicates, detail.event.last_duplicate_at?);
    (all > detail.duplicates.len() as u64).then(|| TimelineEntry {
        at,
        kind: "duplicates",
        text: format!("came again {all} times in all, last now"),
        delivery: None,
        detail: json!({ "count": all }),
    })
}

fn decision(row: &EventDecision, to: &dyn Fn(DeliveryId) -> String) -> TimelineEntry {
    let to = row.delivery.map_or_else(|| "all".to_owned(), to);
    let text = match row.kind {
        EventDecisionKind::Revived => format!("a duplicate revived the delivery to {to}"),
        EventDecisionKind::Replayed => format!("the delivery to {to} was replayed"),
        EventDecisionKind::Cancelled => format!("the delivery to {to} was cancelled"),
        EventDecisionKind::LeaseExpired => {
            format!("nobody answered for the attempt to {to} in time; it is due again")
        }
        EventDecisionKind::Recovered => {
            format!("the gateway ended during the attempt to {to}; it is due again")
        }
        EventDecisionKind::BroughtForward => {
            format!("the sender came again and waits, so the attempt to {to} is due at once")
        }
        EventDecisionKind::OutcomeUnknown => {
            format!("the attempt to {to} ended without a word, and what it sent may have arrived")
        }
        EventDecisionKind::Confirmed if row.detail["by"].is_null() => {
            format!("confirmed by an answer that came late: {to} has it")
        }
        EventDecisionKind::Confirmed => format!("confirmed by a status: {to} has it"),
        EventDecisionKind::Refuted => {
            let follows = match (row.detail["reason"].as_str(), row.detail["due_at"].as_str()) {
                (Some(reason), _) => format!("; given up: {reason}"),
                (None, Some(due_at)) => format!("; next attempt at {due_at}"),
                (None, None) => String::new(),
            };
            format!("a status says that what was sent to {to} has failed{follows}")
        }
        EventDecisionKind::Damaged => {
            format!("what should go to {to} is missing or damaged in the store; given up")
        }
        EventDecisionKind::DeliveredAnyway => {
            let (n, event) = (&row.detail["n"], row.detail["event"].as_str().unwrap_or("another"));
            format!("duplicate {n} was delivered anyway, as {event}")
        }
        EventDecisionKind::NotADuplicate => {
            let (n, event) = (&row.detail["n"], row.detail["event"].as_str().unwrap_or("another"));
            format!("it came as duplicate {n} of {event}, and a person said that it is none")
        }
        EventDecisionKind::Answered => {
            let told = row.detail["answer"].as_str().unwrap_or("something");
            format!("the sender that waited was told `{told}`")
        }
        EventDecisionKind::Revealed => match row.detail["name"].as_str() {
            Some(name) => {
                let name = name.escape_debug();
                format!("what is masked was revealed to whoever has the token `{name}`")
            }
            None => "what is masked was revealed".to_owned(),
        },
    };
    let EventDecision { delivery, at, kind, ref detail, .. } = *row;
    TimelineEntry { at, kind: kind.as_str(), text, delivery, detail: detail.clone() }
}

#[cfg(test)]
mod tests;
