//! The timeline of an event: decisions, attempts and their results in order.
//!
//! It is not stored as such, but built from the event's own columns, its duplicates, its deliveries
//! with their attempts, and the [`EventDecision`] rows. The API and the dashboard show it.

use serde_json::{Value, json};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};
use surehook_webhooks::verify::UNVERIFIED;

use crate::{
    decision::{EventDecision, EventDecisionKind, NotRoutedReason, SkippedRoute},
    event::DuplicateReason,
    quarantine::MANUALLY_RELEASED,
    store::{AttemptRow, DeliveryRow, DuplicateRow, EVENT_ATTEMPTS_MAX, EventDetail, NextStep},
};

#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEntry {
    pub at: Timestamp,
    /// Stable code.
    pub kind: &'static str,
    /// Text for people.
    pub text: String,
    pub delivery: Option<DeliveryId>,
    /// Further facts: an object, or null.
    pub detail: Value,
}

/// Name of a destination; `None` if it was deleted.
type NameOf<'n> = &'n dyn Fn(DestinationId) -> Option<String>;

/// Builds the timeline, oldest first. Entries of the same millisecond are in causal order.
pub fn build_timeline(detail: &EventDetail, name_of: NameOf<'_>) -> Vec<TimelineEntry> {
    let mut timeline = receipt_entries(detail);
    timeline.extend(detail.unrouted.iter().map(|route| unrouted(route, detail.event.received_at)));
    let to = |delivery: DeliveryId| -> String {
        let delivery_row = detail.deliveries.iter().find(|other| other.id == delivery);
        let name = delivery_row.and_then(|delivery_row| name_of(delivery_row.destination));
        name.map_or_else(|| "a deleted destination".to_owned(), |name| format!("`{name}`"))
    };
    timeline.extend(
        detail.deliveries.iter().map(|delivery_row| created(delivery_row, &to(delivery_row.id))),
    );
    timeline.extend(detail.attempts.iter().map(|row| attempt(row, &to(row.delivery))));
    timeline.extend(
        without_attempts(detail)
            .map(|delivery_row| attempts_removed(delivery_row, &to(delivery_row.id))),
    );
    timeline.extend(detail.duplicates.iter().map(duplicate));
    timeline.extend(duplicate_total(detail));
    timeline.extend(detail.decisions.iter().map(|row| decision(row, &to)));
    timeline.sort_by_key(|entry| entry.at);
    timeline
}

fn receipt_entries(detail: &EventDetail) -> Vec<TimelineEntry> {
    let row = &detail.event;
    let entry = |kind, text, detail| TimelineEntry {
        at: row.received_at,
        kind,
        text,
        delivery: None,
        detail,
    };
    let body = if row.body_removed { "; retention has removed the body" } else { "" };
    let mut timeline = vec![entry(
        "received",
        format!("received with {} bytes{body}", row.body_bytes),
        json!({ "request": row.request_id }),
    )];
    if let Some(by) = &detail.verified_by {
        let text = match by.as_str() {
            UNVERIFIED => "not verified: the source does not require it".to_owned(),
            MANUALLY_RELEASED => "not verified: released by a user".to_owned(),
            _ => format!("verified by {by}"),
        };
        timeline.push(entry("verified", text, json!({ "by": by })));
    }
    match (&row.key, &detail.key_from) {
        (None, _) => {
            let is_copy = |row: &EventDecision| row.kind == EventDecisionKind::NotADuplicate;
            let text = match detail.decisions.iter().any(is_copy) {
                true => "no key: another event has it",
                false => "no key found, so it is never a duplicate",
            };
            timeline.push(entry("no_key", text.to_owned(), Value::Null));
        }
        (Some(key), from) => {
            let found_in =
                from.as_ref().map(|from| format!(", found in {from}")).unwrap_or_default();
            let text = format!("the key is `{}`{found_in}", key.escape_default());
            let origin = row.key_origin;
            let detail = json!({ "key": key, "from": from, "origin": origin });
            timeline.push(entry("key", text, detail));
        }
    }
    if let Some(holder) = row.key_conflict {
        let text = format!("{holder} has the same key with a different body; both are delivered");
        timeline.push(entry("key_conflict", text, json!({ "event": holder })));
    }
    timeline
}

fn unrouted(route: &SkippedRoute, at: Timestamp) -> TimelineEntry {
    let to = &route.to;
    let text = match &route.reason {
        NotRoutedReason::Ping => "ping of the provider".to_owned(),
        NotRoutedReason::FilterFalse => format!("not sent to `{to}`: the filter did not match"),
        NotRoutedReason::FilterFailed(code) => {
            format!("not sent to `{to}`: the filter failed ({code})")
        }
        NotRoutedReason::NotJson => {
            format!("not sent to `{to}`: the route has a filter and the body is not JSON")
        }
        NotRoutedReason::SameDestination => {
            format!("not sent to `{to}` again: an earlier route already does")
        }
        NotRoutedReason::DroppedByTransform => {
            format!("not sent to `{to}`: the transform dropped it")
        }
    };
    let detail = json!({ "destination": to, "why": route.reason.to_code() });
    TimelineEntry { at, kind: "not_routed", text, delivery: None, detail }
}

fn created(delivery_row: &DeliveryRow, to: &str) -> TimelineEntry {
    let replaced =
        delivery_row.replay_of.map(|old| format!(", replacing {old}")).unwrap_or_default();
    TimelineEntry {
        at: delivery_row.created_at,
        kind: "delivery_created",
        text: format!("delivery to {to} created{replaced}"),
        delivery: Some(delivery_row.id),
        detail: json!({ "replay_of": delivery_row.replay_of }),
    }
}

fn attempt(row: &AttemptRow, to: &str) -> TimelineEntry {
    let AttemptRow { delivery, attempt, next, schedule_reason } = row;
    let result = match (attempt.status, attempt.failure) {
        (Some(status), _) => format!("status {status}"),
        (None, Some(failure)) => failure.as_str().to_owned(),
        (None, None) => "no answer".to_owned(),
    };
    let took = attempt.took.as_millis();
    let follows = match next {
        Some(NextStep::RetryAt(due_at)) => {
            let because =
                schedule_reason.map(|reason| format!(" ({})", reason.describe(attempt.number)));
            format!("; next attempt at {due_at}{}", because.unwrap_or_default())
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
        text: format!("attempt {number} to {to} {outcome}: {result} after {took} ms{follows}"),
        delivery: Some(*delivery),
        detail: json!({
            "attempt": attempt.id,
            "number": number,
            "status": attempt.status,
            "failure": attempt.failure,
            "class": attempt.class,
            "detail": attempt.detail,
            "next": next.map(NextStep::as_str),
            "next_at": next.and_then(NextStep::due_at),
            "next_reason": schedule_reason,
            "timing": attempt.timing.to_view(attempt.took),
        }),
    }
}

/// Deliveries with attempts of which none is stored any more. Attempts that were left out because there
/// are too many do not count as removed.
fn without_attempts(detail: &EventDetail) -> impl Iterator<Item = &DeliveryRow> {
    let is_complete = detail.attempts.len() < EVENT_ATTEMPTS_MAX;
    detail.deliveries.iter().filter(move |delivery_row| {
        let has_row = || detail.attempts.iter().any(|row| row.delivery == delivery_row.id);
        is_complete && delivery_row.attempts > 0 && !has_row()
    })
}

fn attempts_removed(delivery_row: &DeliveryRow, to: &str) -> TimelineEntry {
    let count = delivery_row.attempts;
    let attempts = if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") };
    TimelineEntry {
        // The last attempt was not later.
        at: delivery_row.ended_at.unwrap_or(delivery_row.created_at),
        kind: "attempts_removed",
        text: format!("{attempts} to {to}; retention has removed the details"),
        delivery: Some(delivery_row.id),
        detail: json!({ "count": count }),
    }
}

fn duplicate(row: &DuplicateRow) -> TimelineEntry {
    let (kind, text) = match (row.bytes_differ, row.body.is_some() || row.body_left_out) {
        (true, true) => {
            ("duplicate_differs", "duplicate with a different body, stored and not delivered")
        }
        (true, false) => (
            "duplicate_differs",
            "duplicate with a different body, not delivered; retention has removed the body",
        ),
        (false, _) if row.reason == DuplicateReason::SameSignedBytes => (
            "duplicate_replayed",
            "the same signed bytes received under another key, not delivered",
        ),
        (false, _) => ("duplicate", "duplicate received"),
    };
    TimelineEntry {
        at: row.seen_at,
        kind,
        text: text.to_owned(),
        delivery: None,
        detail: Value::Null,
    }
}

/// An entry with the count of all duplicates: only the first ones have a row, and so an entry.
fn duplicate_total(detail: &EventDetail) -> Option<TimelineEntry> {
    let (all, at) = (detail.event.duplicates, detail.event.last_duplicate_at?);
    (all > detail.duplicates.len() as u64).then(|| TimelineEntry {
        at,
        kind: "duplicates",
        text: format!("{all} duplicates received in all, the last one now"),
        delivery: None,
        detail: json!({ "count": all }),
    })
}

fn decision(row: &EventDecision, to: &dyn Fn(DeliveryId) -> String) -> TimelineEntry {
    let to = row.delivery.map_or_else(|| "all".to_owned(), to);
    let text = match row.kind {
        EventDecisionKind::Revived => format!("a duplicate revived the delivery to {to}"),
        EventDecisionKind::Replayed => format!("the delivery to {to} was replayed"),
        EventDecisionKind::Cancelled if !row.detail["why"].is_null() => {
            format!("the delivery to {to} was cancelled: the route does not take the event")
        }
        EventDecisionKind::Cancelled => format!("the delivery to {to} was cancelled"),
        EventDecisionKind::LeaseExpired => {
            format!("the attempt to {to} ended without a result; it is due again")
        }
        EventDecisionKind::Recovered => {
            format!("the gateway stopped during the attempt to {to}; it is due again")
        }
        EventDecisionKind::BroughtForward => {
            format!("the sender retried and waits, so the attempt to {to} is due at once")
        }
        EventDecisionKind::OutcomeUnknown => {
            format!("no response to the attempt to {to}; it may have been delivered")
        }
        EventDecisionKind::Confirmed if row.detail["by"].is_null() => {
            format!("delivery to {to} confirmed by a late response")
        }
        EventDecisionKind::Confirmed => format!("delivery to {to} confirmed by a status update"),
        EventDecisionKind::Refuted => {
            let follows = match (row.detail["reason"].as_str(), row.detail["due_at"].as_str()) {
                (Some(reason), _) => format!("; given up: {reason}"),
                (None, Some(due_at)) => format!("; next attempt at {due_at}"),
                (None, None) => String::new(),
            };
            format!("a status update reported that the delivery to {to} failed{follows}")
        }
        EventDecisionKind::Damaged => {
            format!("the stored body for {to} is missing or damaged; given up")
        }
        EventDecisionKind::DeliveredAnyway => {
            let (n, event) = (&row.detail["n"], row.detail["event"].as_str().unwrap_or("another"));
            format!("duplicate {n} was delivered anyway, as {event}")
        }
        EventDecisionKind::NotADuplicate => {
            let (n, event) = (&row.detail["n"], row.detail["event"].as_str().unwrap_or("another"));
            format!("delivered anyway: it was received as duplicate {n} of {event}")
        }
        EventDecisionKind::CallbackPosted => {
            let event = row.detail["event"].as_str().unwrap_or("another event");
            format!("the end of the delivery to {to} is reported by the callback {event}")
        }
        EventDecisionKind::CallbackLost => {
            format!("no callback for the delivery to {to}: its destination was deleted")
        }
        EventDecisionKind::Answered => {
            let response = row.detail["answer"].as_str().unwrap_or("something");
            format!("the waiting sender was answered `{response}`")
        }
        EventDecisionKind::Revealed => match row.detail["name"].as_str() {
            Some(name) => {
                let name = name.escape_debug();
                format!("masked values were revealed to the token `{name}`")
            }
            None => "masked values were revealed".to_owned(),
        },
    };
    let EventDecision { delivery, at, kind, ref detail, .. } = *row;
    TimelineEntry { at, kind: kind.as_str(), text, delivery, detail: detail.clone() }
}

#[cfg(test)]
mod tests;
