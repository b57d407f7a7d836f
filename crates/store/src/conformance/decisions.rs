//! Decisions about an event: the intake record is stored with the event, later ones in their own rows.

use std::time::Duration;

use serde_json::{Value, json};
use surehook_core::{
    decision::{
        EventDecision, EventDecisionKind, IntakeRecord, NotRoutedReason, SkippedRoute,
        encode_unrouted,
    },
    event::NewEvent,
    store::{ConfigChange, NextStep},
};
use surehook_retry::DeadReason;
use surehook_types::ids::EventId;

use super::StoreFixture;

/// The kinds of all decision rows of an event, oldest first.
pub(super) async fn decision_kinds(
    fixture: &StoreFixture,
    event: EventId,
) -> Vec<EventDecisionKind> {
    fixture.event_detail(event).await.decisions.iter().map(|decision| decision.kind).collect()
}

pub async fn intake_record_is_stored_with_the_event(mut fixture: StoreFixture) {
    let unrouted = vec![
        SkippedRoute {
            to: "log".parse().unwrap(),
            reason: NotRoutedReason::FilterFailed("runtime".to_owned()),
        },
        SkippedRoute { to: "mail".parse().unwrap(), reason: NotRoutedReason::DroppedByTransform },
    ];
    let mut expected = unrouted.clone();
    expected.sort_by_key(|route| route.reason.to_code());
    let intake = IntakeRecord {
        verified_by: Some("hmac-sha256 secret 2 of 2".into()),
        key_from: Some("header:idempotency-key".into()),
        unrouted: encode_unrouted(&unrouted),
    };
    let recorded = fixture.accept(NewEvent { intake, ..fixture.event_with_key("k") }).await;
    let without_record = fixture.accept(fixture.new_event()).await;

    fixture.reopen().await;

    let detail = fixture.event_detail(recorded).await;
    assert_eq!(detail.verified_by.as_deref(), Some("hmac-sha256 secret 2 of 2"));
    assert_eq!(detail.key_from.as_deref(), Some("header:idempotency-key"));
    let mut stored = detail.unrouted;
    stored.sort_by_key(|route| route.reason.to_code());
    assert_eq!(stored, expected);
    let detail = fixture.event_detail(without_record).await;
    assert_eq!((detail.verified_by, detail.key_from), (None, None));
    assert!(detail.unrouted.is_empty() && detail.decisions.is_empty());
}

pub async fn delivered_event_has_no_decision_rows(fixture: StoreFixture) {
    let event = fixture.accept(fixture.event_for_both("k")).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    assert!(decision_kinds(&fixture, event).await.is_empty());
}

pub async fn event_detail_lists_attempts_without_responses(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let due_at = fixture.now + Duration::from_secs(5);
    let mut expected = Vec::new();
    for next in [NextStep::RetryAt(due_at), NextStep::Dead(DeadReason::MaxRetries)] {
        let claimed = fixture.claim_one(fixture.crm).await;
        fixture.finish(&claimed, next).await;
        expected.push((claimed.id, claimed.attempts + 1, Some(next)));
        fixture.wait(Duration::from_secs(5));
    }

    let attempts = fixture.event_detail(event).await.attempts;

    let recorded: Vec<_> =
        attempts.iter().map(|row| (row.delivery, row.attempt.number, row.next)).collect();
    assert_eq!(recorded, expected);
    assert!(
        attempts.iter().all(|row| row.attempt.response.is_empty()),
        "responses are shown with the delivery"
    );
}

pub async fn replays_and_revivals_are_recorded_as_decisions(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    let event = fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let old = fixture.only_delivery(event).await.id;
    fixture.expect_duplicate(fixture.repeat_of(&first)).await;
    let revived = fixture.delivery_detail(old).await.delivery.replayed_by.unwrap();
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(Duration::from_secs(61));
    let new = fixture.new_id();
    fixture.replay(revived, new, fixture.now).await.unwrap();

    let decisions = fixture.event_detail(event).await.decisions;

    let recorded: Vec<_> =
        decisions.iter().map(|row| (row.kind, row.delivery, &row.detail)).collect();
    let (of_old, of_revived) = (json!({ "replay_of": old }), json!({ "replay_of": revived }));
    let expected = [
        (EventDecisionKind::Revived, Some(revived), &of_old),
        (EventDecisionKind::Replayed, Some(new), &of_revived),
    ];
    assert_eq!(recorded, expected);
    assert_eq!(decisions[1].at, fixture.now);
}

pub async fn cancellation_by_deleted_destination_is_recorded(fixture: StoreFixture) {
    let event = fixture.accept(fixture.event_for_both("k")).await;
    let done = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    let claimed = fixture.claim(fixture.crm, 9).await;
    let settled = claimed.iter().find(|claimed| claimed.event == done).unwrap();
    fixture.finish(settled, NextStep::Succeeded).await;

    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::Cancelled]);
    assert!(decision_kinds(&fixture, done).await.is_empty(), "the delivery had ended");
}

pub async fn abandoned_claim_is_recorded_once(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    fixture.abandon_claim(&claimed).await;
    fixture.abandon_claim(&claimed).await;
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::LeaseExpired]);
}

pub async fn recovery_after_crash_is_recorded(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let waiting = fixture.accept(NewEvent { deliveries: Vec::new(), ..fixture.new_event() }).await;
    fixture.claim_one(fixture.crm).await;
    fixture.reopen().await;
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::Recovered]);
    assert!(decision_kinds(&fixture, waiting).await.is_empty());
}

pub async fn stored_decisions_of_each_kind_are_bounded(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let decision = |kind, number: u32| EventDecision {
        event,
        delivery: None,
        at: fixture.now,
        kind,
        detail: json!({ "number": number }),
    };
    for number in 0..120 {
        fixture.record_decision(decision(EventDecisionKind::Answered, number)).await.unwrap();
    }
    fixture.record_decision(decision(EventDecisionKind::BroughtForward, 7)).await.unwrap();

    let stored = fixture.event_detail(event).await.decisions;

    assert_eq!(stored.len(), 101);
    assert_eq!(stored[99], decision(EventDecisionKind::Answered, 99));
    assert_eq!(stored[100], decision(EventDecisionKind::BroughtForward, 7));
}

pub async fn decision_about_unknown_event_is_not_stored(fixture: StoreFixture) {
    let decision = EventDecision {
        event: fixture.new_id(),
        delivery: None,
        at: fixture.now,
        kind: EventDecisionKind::Answered,
        detail: Value::Null,
    };
    fixture.record_decision(decision.clone()).await.unwrap();
    assert!(fixture.find_event(decision.event).await.unwrap().is_none());
}

pub async fn decisions_are_pruned_with_their_event(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let old = fixture.only_delivery(event).await.id;
    fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(Duration::from_secs(1000));
    fixture.prune_all(Duration::ZERO).await;
    assert!(fixture.find_event(event).await.unwrap().is_none());
}
