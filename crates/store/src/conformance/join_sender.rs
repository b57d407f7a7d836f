//! A synchronous sender that retries joins the existing delivery and makes its next attempt due.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    event::NewEvent,
    store::{AttemptRecord, ConfigChange, JoinRequest, JoinResult, NextStep, Settlement},
    sync::SyncResult,
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::ids::EventId;
use tokio::task::JoinSet;

use super::StoreFixture;

fn join_request(fixture: &StoreFixture, event: EventId) -> JoinRequest {
    JoinRequest {
        event,
        destination: fixture.crm,
        request: fixture.new_id(),
        revive: true,
        now: fixture.now,
    }
}

async fn join(fixture: &StoreFixture, event: EventId) -> JoinResult {
    fixture.join(join_request(fixture, event)).await.unwrap()
}

pub async fn join_without_a_delivery_reports_no_delivery(fixture: StoreFixture) {
    let deliveries = vec![fixture.delivery_to(fixture.mail)];
    let event = fixture.accept(NewEvent { deliveries, ..fixture.new_event() }).await;
    assert_eq!(join(&fixture, event).await, JoinResult::NoDelivery);
    assert_eq!(join(&fixture, fixture.new_id()).await, JoinResult::Expired);
}

pub async fn join_waits_for_pending_or_in_flight_delivery(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let delivery = fixture.only_delivery(event).await.id;
    let expected = JoinResult::InProgress { delivery, attempts: 0, due: Vec::new() };

    assert_eq!(join(&fixture, event).await, expected);
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(join(&fixture, event).await, expected);

    fixture.finish(&claimed, NextStep::Succeeded).await;
    assert!(matches!(join(&fixture, event).await, JoinResult::Ended(_)));
}

pub async fn join_makes_a_scheduled_retry_due_now(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let delivery = fixture.only_delivery(event).await.id;
    fixture
        .finish_due(fixture.crm, NextStep::RetryAt(fixture.now + Duration::from_secs(3600)))
        .await;
    fixture.wait(Duration::from_secs(1));

    let joined = [join(&fixture, event).await, join(&fixture, event).await];

    let expected = JoinResult::InProgress { delivery, attempts: 1, due: vec![fixture.crm] };
    assert_eq!(joined, [expected.clone(), expected]);
    fixture.reopen().await;
    let stored = fixture.only_delivery(event).await;
    assert_eq!((stored.status, stored.due_at), (DeliveryStatus::Scheduled, Some(fixture.now)));
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(fixture.now));
    assert_eq!(fixture.claim_one(fixture.crm).await.attempts, 1);
    let kinds: Vec<_> =
        fixture.event_detail(event).await.decisions.iter().map(|row| row.kind).collect();
    let brought_forward =
        kinds.iter().filter(|kind| **kind == EventDecisionKind::BroughtForward).count();
    assert_eq!(brought_forward, 1, "the second join changed nothing");
}

pub async fn join_does_not_shorten_a_throttled_retry(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let due_at = fixture.now + Duration::from_secs(30);
    let claimed = fixture.claim_one(fixture.crm).await;
    let settlement = fixture.settlement(&claimed, NextStep::RetryAt(due_at));
    let attempt =
        AttemptRecord { class: Some(FailureClass::Throttled), ..settlement.attempt.clone() };
    fixture.settle(Settlement { attempt, ..settlement }).await.unwrap();

    let JoinResult::Ended(result) = join(&fixture, event).await else {
        panic!("the delivery was made due")
    };

    assert_eq!(
        (result.next, result.class),
        (NextStep::RetryAt(due_at), Some(FailureClass::Throttled))
    );
    assert_eq!(fixture.only_delivery(event).await.due_at, Some(due_at));
    fixture.wait(Duration::from_secs(30));
    assert!(matches!(join(&fixture, event).await, JoinResult::InProgress { attempts: 1, .. }));
}

pub async fn join_does_not_shorten_a_wait_for_a_status(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let due_at = fixture.now + Duration::from_secs(600);
    let claimed = fixture.claim_one(fixture.crm).await;
    fixture
        .settle(fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(due_at)))
        .await
        .unwrap();

    let JoinResult::Ended(result) = join(&fixture, event).await else {
        panic!("the delivery was made due")
    };

    assert_eq!(
        (result.next, result.class),
        (NextStep::RetryAt(due_at), Some(FailureClass::Ambiguous))
    );
    assert_eq!(fixture.only_delivery(event).await.due_at, Some(due_at));
    fixture.wait(Duration::from_secs(600));
    assert!(matches!(join(&fixture, event).await, JoinResult::InProgress { attempts: 1, .. }));
}

pub async fn join_returns_the_stored_result(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let response = b"destination response".to_vec();
    let expected =
        JoinResult::Ended(SyncResult { next: NextStep::Succeeded, class: None, response });

    assert_eq!(join(&fixture, event).await, expected);
    fixture.reopen().await;
    assert_eq!(join(&fixture, event).await, expected);
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn concurrent_joins_revive_a_dead_delivery_once(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::InvalidEndpoint)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, request) = (fixture.store(), join_request(&fixture, event));
        tasks.spawn(async move { store.join(request).await.unwrap() });
    }

    let joined = tasks.join_all().await;

    let deliveries = fixture.event_detail(event).await.deliveries;
    assert_eq!(deliveries.len(), 2, "revived once");
    let revived =
        deliveries.iter().find(|delivery| delivery.status == DeliveryStatus::Pending).unwrap();
    for joined in &joined {
        let JoinResult::InProgress { delivery, attempts: 0, .. } = joined else {
            panic!("{joined:?}")
        };
        assert_eq!(*delivery, revived.id);
    }
    let has_due = |joined: &&JoinResult| matches!(joined, JoinResult::InProgress { due, .. } if !due.is_empty());
    assert_eq!(joined.iter().filter(has_due).count(), 1);
    assert_eq!(fixture.claim_one(fixture.crm).await.id, revived.id);
}

pub async fn join_revives_only_the_dead_delivery_of_its_destination(fixture: StoreFixture) {
    let event = fixture.accept(fixture.event_for_both("k")).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;

    let joined = join(&fixture, event).await;

    assert!(
        matches!(&joined, JoinResult::InProgress { due, .. } if *due == [fixture.crm]),
        "{joined:?}"
    );
    fixture.claim_one(fixture.crm).await;
    assert!(fixture.claim(fixture.mail, 9).await.is_empty());
}

pub async fn join_revives_all_deliveries_if_all_are_dead(fixture: StoreFixture) {
    let event = fixture.accept(fixture.event_for_both("k")).await;
    fixture.finish_due(fixture.mail, NextStep::Dead(DeadReason::MaxRetries)).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;

    join(&fixture, event).await;

    fixture.claim_one(fixture.crm).await;
    fixture.claim_one(fixture.mail).await;
}

pub async fn join_does_not_revive_permanent_or_ambiguous_failures(fixture: StoreFixture) {
    let ended = |reason| {
        let next = NextStep::Dead(reason);
        let response = b"destination response".to_vec();
        JoinResult::Ended(SyncResult { next, class: Some(FailureClass::Permanent), response })
    };
    // A delivery that may have arrived is not sent again because its sender retries.
    for reason in [DeadReason::PayloadError, DeadReason::Unrecoverable, DeadReason::Ambiguous] {
        let event = fixture.accept(fixture.new_event()).await;
        fixture.finish_due(fixture.crm, NextStep::Dead(reason)).await;
        assert_eq!(join(&fixture, event).await, ended(reason));
        assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Dead]);
    }
    // Nor is anything revived if the source disables it.
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let without_revival = JoinRequest { revive: false, ..join_request(&fixture, event) };
    assert_eq!(fixture.join(without_revival).await.unwrap(), ended(DeadReason::MaxRetries));
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn join_reports_a_cancelled_delivery(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    assert_eq!(join(&fixture, event).await, JoinResult::Cancelled);
}

pub async fn join_does_not_revive_for_a_deleted_destination(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    assert!(matches!(join(&fixture, event).await, JoinResult::Ended(_)));
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn join_works_for_deliveries_in_flight_at_a_crash(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.claim_one(fixture.crm).await;
    fixture.reopen().await;
    assert!(matches!(join(&fixture, event).await, JoinResult::InProgress { attempts: 0, .. }));
}
