//! A sender that came again and waits finds what there is to wait for, and hurries it up.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    event::NewEvent,
    ids::EventId,
    store::{AttemptRecord, ConfigChange, JoinRequest, JoinResult, NextStep, Settlement},
    sync::SyncResult,
};
use tokio::task::JoinSet;

use super::World;

fn wish(world: &World, event: EventId) -> JoinRequest {
    JoinRequest { event, destination: world.crm, request: world.id(), revive: true, now: world.now }
}

async fn join(world: &World, event: EventId) -> JoinResult {
    world.join(wish(world, event)).await.unwrap()
}

pub async fn join_without_a_delivery_is_not_owed(world: World) {
    let deliveries = vec![world.to(world.mail)];
    let event = world.accept(NewEvent { deliveries, ..world.arrival() }).await;
    assert_eq!(join(&world, event).await, JoinResult::NotOwed);
    assert_eq!(join(&world, world.id()).await, JoinResult::Forgotten);
}

pub async fn join_waits_for_pending_or_in_flight_delivery(world: World) {
    let event = world.accept(world.arrival()).await;
    let delivery = world.only_delivery(event).await.id;
    let expected = JoinResult::Underway { delivery, attempts: 0, due: Vec::new() };

    assert_eq!(join(&world, event).await, expected);
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(join(&world, event).await, expected);

    world.finish(&claimed, NextStep::Succeeded).await;
    assert!(matches!(join(&world, event).await, JoinResult::Ended(_)));
}

pub async fn join_makes_a_scheduled_retry_due_now(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let delivery = world.only_delivery(event).await.id;
    world.finish_due(world.crm, NextStep::RetryAt(world.now + Duration::from_secs(3600))).await;
    world.wait(Duration::from_secs(1));

    let joined = [join(&world, event).await, join(&world, event).await];

    let expected = JoinResult::Underway { delivery, attempts: 1, due: vec![world.crm] };
    assert_eq!(joined, [expected.clone(), expected]);
    world.reopen().await;
    let kept = world.only_delivery(event).await;
    assert_eq!((kept.status, kept.due_at), (DeliveryStatus::Scheduled, Some(world.now)));
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(world.now));
    assert_eq!(world.claim_one(world.crm).await.attempts, 1);
    let told: Vec<_> = world.detail(event).await.decisions.iter().map(|row| row.kind).collect();
    let hastened = told.iter().filter(|kind| **kind == EventDecisionKind::BroughtForward).count();
    assert_eq!(hastened, 1, "the second one changed nothing");
}

pub async fn join_does_not_shorten_a_throttled_retry(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let due_at = world.now + Duration::from_secs(30);
    let claimed = world.claim_one(world.crm).await;
    let settlement = world.settlement(&claimed, NextStep::RetryAt(due_at));
    let attempt =
        AttemptRecord { class: Some(FailureClass::Throttled), ..settlement.attempt.clone() };
    world.settle(Settlement { attempt, ..settlement }).await.unwrap();

    let JoinResult::Ended(ending) = join(&world, event).await else { panic!("it is hurried up") };

    assert_eq!(
        (ending.next, ending.class),
        (NextStep::RetryAt(due_at), Some(FailureClass::Throttled))
    );
    assert_eq!(world.only_delivery(event).await.due_at, Some(due_at));
    world.wait(Duration::from_secs(30));
    assert!(matches!(join(&world, event).await, JoinResult::Underway { attempts: 1, .. }));
}

pub async fn join_does_not_shorten_a_wait_for_a_status(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let due_at = world.now + Duration::from_secs(600);
    let claimed = world.claim_one(world.crm).await;
    world.settle(world.will(&claimed, NextStep::RetryAt(due_at))).await.unwrap();

    let JoinResult::Ended(ending) = join(&world, event).await else { panic!("it is hurried up") };

    assert_eq!(
        (ending.next, ending.class),
        (NextStep::RetryAt(due_at), Some(FailureClass::Ambiguous))
    );
    assert_eq!(world.only_delivery(event).await.due_at, Some(due_at));
    world.wait(Duration::from_secs(600));
    assert!(matches!(join(&world, event).await, JoinResult::Underway { attempts: 1, .. }));
}

pub async fn join_returns_the_stored_result(mut world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    let response = b"said the destination".to_vec();
    let expected =
        JoinResult::Ended(SyncResult { next: NextStep::Succeeded, class: None, response });

    assert_eq!(join(&world, event).await, expected);
    world.reopen().await;
    assert_eq!(join(&world, event).await, expected);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn concurrent_joins_revive_a_dead_delivery_once(world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::InvalidEndpoint)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, wish) = (world.store(), wish(&world, event));
        tasks.spawn(async move { store.join(wish).await.unwrap() });
    }

    let joined = tasks.join_all().await;

    let deliveries = world.detail(event).await.deliveries;
    assert_eq!(deliveries.len(), 2, "revived once");
    let heir =
        deliveries.iter().find(|delivery| delivery.status == DeliveryStatus::Pending).unwrap();
    for joined in &joined {
        let JoinResult::Underway { delivery, attempts: 0, .. } = joined else {
            panic!("{joined:?}")
        };
        assert_eq!(*delivery, heir.id);
    }
    let told = |joined: &&JoinResult| matches!(joined, JoinResult::Underway { due, .. } if !due.is_empty());
    assert_eq!(joined.iter().filter(told).count(), 1);
    assert_eq!(world.claim_one(world.crm).await.id, heir.id);
}

pub async fn join_revives_only_the_dead_delivery_of_its_destination(world: World) {
    let event = world.accept(world.keyed_for_both("k")).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;

    let joined = join(&world, event).await;

    assert!(
        matches!(&joined, JoinResult::Underway { due, .. } if *due == [world.crm]),
        "{joined:?}"
    );
    world.claim_one(world.crm).await;
    assert!(world.claim(world.mail, 9).await.is_empty());
}

pub async fn join_revives_all_deliveries_if_all_are_dead(world: World) {
    let event = world.accept(world.keyed_for_both("k")).await;
    world.finish_due(world.mail, NextStep::Dead(DeadReason::MaxRetries)).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;

    join(&world, event).await;

    world.claim_one(world.crm).await;
    world.claim_one(world.mail).await;
}

pub async fn join_does_not_revive_permanent_or_ambiguous_failures(world: World) {
    let of = |reason| {
        let next = NextStep::Dead(reason);
        let response = b"said the destination".to_vec();
        JoinResult::Ended(SyncResult { next, class: Some(FailureClass::Permanent), response })
    };
    // What may have arrived is not sent again because its sender came again.
    for reason in [DeadReason::PayloadError, DeadReason::Unrecoverable, DeadReason::Ambiguous] {
        let event = world.accept(world.arrival()).await;
        world.finish_due(world.crm, NextStep::Dead(reason)).await;
        assert_eq!(join(&world, event).await, of(reason));
        assert_eq!(world.statuses(event).await, [DeliveryStatus::Dead]);
    }
    // Nor is anything revived against the wish of the source.
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let unwilling = JoinRequest { revive: false, ..wish(&world, event) };
    assert_eq!(world.join(unwilling).await.unwrap(), of(DeadReason::MaxRetries));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn join_reports_a_cancelled_delivery(world: World) {
    let event = world.accept(world.arrival()).await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    assert_eq!(join(&world, event).await, JoinResult::Cancelled);
}

pub async fn join_does_not_revive_for_a_deleted_destination(world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    assert!(matches!(join(&world, event).await, JoinResult::Ended(_)));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn join_works_for_deliveries_in_flight_at_a_crash(mut world: World) {
    let event = world.accept(world.arrival()).await;
    world.claim_one(world.crm).await;
    world.reopen().await;
    assert!(matches!(join(&world, event).await, JoinResult::Underway { attempts: 0, .. }));
}
