//! What was decided about an event is kept: on the way in with the event, later in rows of its own.

use std::time::Duration;

use serde_json::{Value, json};
use surehook_core::{
    decision::{
        EventDecision, EventDecisionKind, IntakeRecord, NotRoutedReason, UnroutedRoute,
        write_unrouted,
    },
    delivery::DeadReason,
    event::NewEvent,
    ids::EventId,
    store::{ConfigChange, NextStep},
};

use super::{World, world::LEASE};

/// The kinds of all decisions that have rows, oldest first.
pub(super) async fn kinds(world: &World, event: EventId) -> Vec<EventDecisionKind> {
    world.detail(event).await.decisions.iter().map(|decision| decision.kind).collect()
}

pub async fn intake_record_is_stored_with_the_event(mut world: World) {
    let unrouted = vec![
        UnroutedRoute {
            to: "log".parse().unwrap(),
            reason: NotRoutedReason::FilterFailed("runtime".to_owned()),
        },
        UnroutedRoute { to: "mail".parse().unwrap(), reason: NotRoutedReason::DroppedByTransform },
    ];
    let mut expected = unrouted.clone();
    expected.sort_by_key(|route| route.reason.to_code());
    let intake = IntakeRecord {
        verified_by: Some("hmac-sha256 secret 2 of 2".into()),
        key_from: Some("header:idempotency-key".into()),
        unrouted: write_unrouted(&unrouted),
    };
    let told = world.accept(NewEvent { intake, ..world.keyed("k") }).await;
    let silent = world.accept(world.arrival()).await;

    world.reopen().await;

    let detail = world.detail(told).await;
    assert_eq!(detail.verified_by.as_deref(), Some("hmac-sha256 secret 2 of 2"));
    assert_eq!(detail.key_from.as_deref(), Some("header:idempotency-key"));
    let mut kept = detail.unrouted;
    kept.sort_by_key(|route| route.reason.to_code());
    assert_eq!(kept, expected);
    let detail = world.detail(silent).await;
    assert_eq!((detail.verified_by, detail.key_from), (None, None));
    assert!(detail.unrouted.is_empty() && detail.decisions.is_empty());
}

pub async fn delivered_event_has_no_decision_rows(world: World) {
    let event = world.accept(world.keyed_for_both("k")).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    assert!(kinds(&world, event).await.is_empty());
}

pub async fn event_detail_lists_attempts_without_responses(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let due_at = world.now + Duration::from_secs(5);
    let mut expected = Vec::new();
    for next in [NextStep::RetryAt(due_at), NextStep::Dead(DeadReason::MaxRetries)] {
        let claimed = world.claim_one(world.crm).await;
        world.finish(&claimed, next).await;
        expected.push((claimed.id, claimed.attempts + 1, Some(next)));
        world.wait(Duration::from_secs(5));
    }

    let attempts = world.detail(event).await.attempts;

    let told: Vec<_> =
        attempts.iter().map(|row| (row.delivery, row.attempt.number, row.next)).collect();
    assert_eq!(told, expected);
    assert!(attempts.iter().all(|row| row.attempt.response.is_empty()), "they are told elsewhere");
}

pub async fn replays_and_revivals_are_recorded_as_decisions(mut world: World) {
    let first = world.keyed("k");
    let event = world.accept(first.clone()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let old = world.only_delivery(event).await.id;
    world.expect_duplicate(world.again(&first)).await;
    let heir = world.delivery_detail(old).await.delivery.replayed_by.unwrap();
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(Duration::from_secs(61));
    let new = world.id();
    world.replay(heir, new, world.now).await.unwrap();

    let decisions = world.detail(event).await.decisions;

    let told: Vec<_> = decisions.iter().map(|row| (row.kind, row.delivery, &row.detail)).collect();
    let (of_old, of_heir) = (json!({ "replay_of": old }), json!({ "replay_of": heir }));
    let expected = [
        (EventDecisionKind::Revived, Some(heir), &of_old),
        (EventDecisionKind::Replayed, Some(new), &of_heir),
    ];
    assert_eq!(told, expected);
    assert_eq!(decisions[1].at, world.now);
}

pub async fn cancellation_by_deleted_destination_is_recorded(world: World) {
    let event = world.accept(world.keyed_for_both("k")).await;
    let done = world.accept(world.arrival()).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    let claimed = world.claim(world.crm, 9).await;
    let settled = claimed.iter().find(|claimed| claimed.event == done).unwrap();
    world.finish(settled, NextStep::Succeeded).await;

    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    assert_eq!(kinds(&world, event).await, [EventDecisionKind::Cancelled]);
    assert!(kinds(&world, done).await.is_empty(), "it had ended");
}

pub async fn expired_lease_is_recorded_once(mut world: World) {
    let event = world.accept(world.arrival()).await;
    world.claim_one(world.crm).await;
    world.wait(LEASE);
    world.release_expired(world.now).await.unwrap();
    world.release_expired(world.now).await.unwrap();
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::LeaseExpired]);
}

pub async fn recovery_after_crash_is_recorded(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let waiting = world.accept(NewEvent { deliveries: Vec::new(), ..world.arrival() }).await;
    world.claim_one(world.crm).await;
    world.reopen().await;
    let told = kinds(&world, event).await;
    let expected =
        if world.is_sole_owner() { vec![EventDecisionKind::Recovered] } else { Vec::new() };
    assert_eq!(told, expected);
    assert!(kinds(&world, waiting).await.is_empty());
}

pub async fn stored_decisions_of_each_kind_are_bounded(world: World) {
    let event = world.accept(world.arrival()).await;
    let decision = |kind, number: u32| EventDecision {
        event,
        delivery: None,
        at: world.now,
        kind,
        detail: json!({ "number": number }),
    };
    for number in 0..120 {
        world.record_decision(decision(EventDecisionKind::Answered, number)).await.unwrap();
    }
    world.record_decision(decision(EventDecisionKind::BroughtForward, 7)).await.unwrap();

    let kept = world.detail(event).await.decisions;

    assert_eq!(kept.len(), 101);
    assert_eq!(kept[99], decision(EventDecisionKind::Answered, 99));
    assert_eq!(kept[100], decision(EventDecisionKind::BroughtForward, 7));
}

pub async fn decision_about_unknown_event_is_not_stored(world: World) {
    let decision = EventDecision {
        event: world.id(),
        delivery: None,
        at: world.now,
        kind: EventDecisionKind::Answered,
        detail: Value::Null,
    };
    world.record_decision(decision.clone()).await.unwrap();
    assert!(world.event(decision.event).await.unwrap().is_none());
}

pub async fn decisions_are_pruned_with_their_event(mut world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    let old = world.only_delivery(event).await.id;
    world.replay(old, world.id(), world.now).await.unwrap();
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(Duration::from_secs(1000));
    world.prune_all(Duration::ZERO).await;
    assert!(world.event(event).await.unwrap().is_none());
}
