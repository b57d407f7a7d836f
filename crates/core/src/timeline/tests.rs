//! The entries of a timeline, from the stored rows of an event.

use std::time::Duration;

use surehook_guard::timing::AttemptTiming;
use surehook_retry::{DeadReason, FailureClass, ScheduleReason};
use surehook_types::ids::{AttemptId, EventId, RequestId, SourceId};
use surehook_webhooks::attribute::Attributes;

use super::*;
use crate::{
    delivery::state::DeliveryStatus,
    store::{AttemptRecord, EventRow},
};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn event() -> EventDetail {
    EventDetail {
        event: EventRow {
            id: EventId::new(START, 1),
            request_id: RequestId::new(START, 2),
            source: SourceId::new(START, 3),
            key: Some("k".to_owned()),
            key_origin: None,
            key_conflict: None,
            kind: None,
            attributes: Attributes::default(),
            received_at: START,
            body_bytes: 7,
            duplicates: 0,
            last_duplicate_at: None,
            body_removed: false,
            deliveries: std::collections::BTreeMap::new(),
        },
        head: None,
        fingerprint: [0; 32],
        deliveries: Vec::new(),
        duplicates: Vec::new(),
        verified_by: Some("hmac-sha256 secret 2 of 2".to_owned()),
        key_from: Some("header:idempotency-key".to_owned()),
        unrouted: Vec::new(),
        decisions: Vec::new(),
        attempts: Vec::new(),
    }
}

fn delivery(number: u128, created_at: Timestamp, replay_of: Option<DeliveryId>) -> DeliveryRow {
    DeliveryRow {
        id: DeliveryId::new(created_at, number << 100),
        event: EventId::new(START, 1),
        destination: DestinationId::new(START, 9),
        status: DeliveryStatus::Succeeded,
        reason: None,
        attempts: 1,
        created_at,
        due_at: None,
        ended_at: Some(created_at),
        replay_of,
        replayed_by: None,
        sent_id: None,
        group: None,
        order_key: None,
    }
}

fn attempt(
    delivery_id: DeliveryId,
    started_at: Timestamp,
    status: u16,
    next: NextStep,
) -> AttemptRow {
    let class = (status != 200).then_some(FailureClass::Transient);
    AttemptRow {
        delivery: delivery_id,
        attempt: AttemptRecord {
            id: AttemptId::new(started_at, 1),
            number: 1,
            started_at,
            took: Duration::from_millis(12),
            timing: AttemptTiming::default(),
            status: Some(status),
            failure: None,
            class,
            detail: None,
            response: Vec::new(),
        },
        next: Some(next),
        schedule_reason: next.due_at().map(|_| ScheduleReason::Backoff),
    }
}

fn crm(_: DestinationId) -> Option<String> {
    Some("crm".to_owned())
}

#[test]
fn timeline_lists_all_entries_in_order() {
    let first = delivery(1, at(0), None);
    let replacement = delivery(2, at(60), Some(first.id));
    let decision = |kind, delivery, at| EventDecision {
        event: EventId::new(START, 1),
        delivery: Some(delivery),
        at,
        kind,
        detail: Value::Null,
    };
    let duplicate = |seen_at, bytes_differ| DuplicateRow {
        n: 1,
        seen_at,
        reason: DuplicateReason::SameKey,
        bytes_differ,
        body: None,
        body_left_out: false,
        delivered_as: None,
    };
    let detail = EventDetail {
        unrouted: vec![
            SkippedRoute { to: "mail".parse().unwrap(), reason: NotRoutedReason::FilterFalse },
            SkippedRoute {
                to: "log".parse().unwrap(),
                reason: NotRoutedReason::DroppedByTransform,
            },
        ],
        attempts: vec![
            attempt(first.id, at(1), 503, NextStep::RetryAt(at(30))),
            attempt(first.id, at(30), 500, NextStep::Dead(DeadReason::MaxRetries)),
            attempt(replacement.id, at(61), 200, NextStep::Succeeded),
        ],
        duplicates: vec![duplicate(at(5), false), duplicate(at(60), true)],
        decisions: vec![decision(EventDecisionKind::Revived, replacement.id, at(60))],
        deliveries: vec![first, replacement],
        ..event()
    };

    let timeline = build_timeline(&detail, &crm);

    let entries: Vec<_> = timeline.iter().map(|entry| (entry.kind, entry.text.as_str())).collect();
    let expected = [
        ("received", "received with 7 bytes"),
        ("verified", "verified by hmac-sha256 secret 2 of 2"),
        ("key", "the key is `k`, found in header:idempotency-key"),
        ("not_routed", "not sent to `mail`: the filter did not match"),
        ("not_routed", "not sent to `log`: the transform dropped it"),
        ("delivery_created", "delivery to `crm` created"),
        (
            "attempt_failed",
            "attempt 1 to `crm` failed (transient): status 503 after 12 ms; next attempt at 2027-01-15T08:00:30.000Z (retry policy backoff after attempt 1)",
        ),
        ("duplicate", "duplicate received"),
        (
            "attempt_failed",
            "attempt 1 to `crm` failed (transient): status 500 after 12 ms; given up: max_retries",
        ),
    ];
    assert_eq!(entries[..expected.len()], expected);
    let rest: Vec<_> = entries[expected.len()..].iter().map(|(kind, _)| *kind).collect();
    assert_eq!(rest, ["delivery_created", "duplicate_differs", "revived", "attempt_succeeded"]);
    assert!(timeline.is_sorted_by_key(|entry| entry.at));
}

#[test]
fn missing_key_and_deleted_destination_are_reported() {
    let mut detail = event();
    detail.event.key = None;
    detail.event.duplicates = 300;
    detail.event.last_duplicate_at = Some(at(9));
    detail.verified_by = Some("none".to_owned());
    detail.deliveries = vec![delivery(1, at(0), None)];

    let timeline = build_timeline(&detail, &|_| None);

    let text = |kind| timeline.iter().find(|entry| entry.kind == kind).map(|entry| &*entry.text);
    assert_eq!(text("verified"), Some("not verified: the source does not require it"));
    assert_eq!(text("no_key"), Some("no key found, so it is never a duplicate"));
    assert_eq!(text("delivery_created"), Some("delivery to a deleted destination created"));
    assert_eq!(text("duplicates"), Some("300 duplicates received in all, the last one now"));
    assert_eq!(text("key"), None);
}

#[test]
fn parts_removed_by_retention_are_reported() {
    let first = DeliveryRow { attempts: 3, ended_at: Some(at(40)), ..delivery(1, at(0), None) };
    let replacement = delivery(2, at(60), Some(first.id));
    let waiting = DeliveryRow { attempts: 0, ended_at: None, ..delivery(3, at(70), None) };
    let mut detail = EventDetail {
        attempts: vec![attempt(replacement.id, at(61), 200, NextStep::Succeeded)],
        duplicates: vec![DuplicateRow {
            n: 1,
            seen_at: at(5),
            reason: DuplicateReason::SameKey,
            bytes_differ: true,
            body: None,
            body_left_out: false,
            delivered_as: None,
        }],
        deliveries: vec![first.clone(), replacement, waiting],
        ..event()
    };
    detail.event.body_removed = true;

    let timeline = build_timeline(&detail, &crm);

    let text = |kind| timeline.iter().find(|entry| entry.kind == kind).map(|entry| &*entry.text);
    assert_eq!(text("received"), Some("received with 7 bytes; retention has removed the body"));
    assert_eq!(
        text("duplicate_differs"),
        Some("duplicate with a different body, not delivered; retention has removed the body")
    );
    let removed: Vec<_> =
        timeline.iter().filter(|entry| entry.kind == "attempts_removed").collect();
    assert_eq!(removed.len(), 1, "{removed:#?}");
    assert_eq!((removed[0].delivery, removed[0].at), (Some(first.id), at(40)));
    assert_eq!(removed[0].text, "3 attempts to `crm`; retention has removed the details");
    assert_eq!(removed[0].detail, json!({ "count": 3 }));
}

#[test]
fn attempts_beyond_the_limit_are_not_reported_as_removed() {
    let first = delivery(1, at(0), None);
    let replacement = delivery(2, at(60), Some(first.id));
    let attempts =
        vec![attempt(first.id, at(1), 503, NextStep::RetryAt(at(30))); EVENT_ATTEMPTS_MAX];
    let detail = EventDetail { attempts, deliveries: vec![first, replacement], ..event() };

    assert!(build_timeline(&detail, &crm).iter().all(|entry| entry.kind != "attempts_removed"));
}

#[test]
fn every_kind_of_decision_has_a_text() {
    let delivery = delivery(1, at(0), None);
    for kind in EventDecisionKind::ALL {
        let detail = EventDetail {
            decisions: vec![EventDecision {
                event: delivery.event,
                delivery: Some(delivery.id),
                at: at(1),
                kind,
                detail: json!({ "answer": "success" }),
            }],
            attempts: vec![attempt(delivery.id, at(0), 200, NextStep::Succeeded)],
            deliveries: vec![delivery.clone()],
            ..event()
        };

        let last = build_timeline(&detail, &crm).pop().unwrap();

        assert_eq!((last.kind, last.delivery), (kind.as_str(), Some(delivery.id)));
        assert!(!last.text.is_empty());
    }
}
