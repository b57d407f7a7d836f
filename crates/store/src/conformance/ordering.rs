//! Ordering: deliveries of one ordering key are attempted one after the other.

use std::time::Duration;

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    store::{AdmitResult, CancelResult, ConfigChange, NextStep, ReplayResult},
};
use surehook_retry::DeadReason;
use surehook_types::ids::DeliveryId;

use super::{
    StoreFixture,
    fixture::{destination_spec, held_claim, ordered_destination_spec},
};

/// Admits events of one ordering key in turn and returns their deliveries.
async fn admit_in_order(fixture: &StoreFixture, key: &str, count: usize) -> Vec<DeliveryId> {
    let mut queue = Vec::new();
    for _ in 0..count {
        let event = fixture.ordered_event(key);
        queue.push(event.deliveries[0].id);
        fixture.accept(event).await;
    }
    queue
}

async fn statuses_of(fixture: &StoreFixture, queue: &[DeliveryId]) -> Vec<DeliveryStatus> {
    let mut statuses = Vec::new();
    for id in queue {
        statuses.push(fixture.delivery_detail(*id).await.delivery.status);
    }
    statuses
}

pub async fn only_the_first_delivery_of_an_ordering_key_is_due(fixture: StoreFixture) {
    let queue = admit_in_order(&fixture, "c-1", 3).await;
    assert_eq!(
        statuses_of(&fixture, &queue).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held, DeliveryStatus::Held]
    );
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Held).await, 2);
    for expected in queue {
        let claimed = fixture.claim_one(fixture.crm).await;
        assert_eq!((claimed.id, claimed.ordered), (expected, true));
        fixture.finish(&claimed, NextStep::Succeeded).await;
    }
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Succeeded).await, 3);
}

pub async fn held_delivery_is_not_claimed_at_creation(fixture: StoreFixture) {
    let claimed = |event: NewEvent| {
        let delivery = event.deliveries[0].clone();
        let deliveries = vec![NewDelivery { claim: Some(fixture.new_claim()), ..delivery }];
        NewEvent { deliveries, ..event }
    };
    let (first, second) =
        (claimed(fixture.ordered_event("c-1")), claimed(fixture.ordered_event("c-1")));
    let results = fixture.admit(vec![first.clone(), second.clone()]).await.unwrap();

    let held = vec![second.deliveries[0].id];
    assert_eq!(
        results,
        [
            AdmitResult::Accepted { held: vec![], confirmed: None, key_conflict: None },
            AdmitResult::Accepted { held, confirmed: None, key_conflict: None }
        ]
    );
    assert_eq!(fixture.delivery_statuses(first.id).await, [DeliveryStatus::InFlight]);
    assert_eq!(fixture.delivery_statuses(second.id).await, [DeliveryStatus::Held]);
}

pub async fn other_ordering_keys_and_destinations_are_not_held(fixture: StoreFixture) {
    let first = fixture.ordered_event("c-1");
    let delivery = first.deliveries[0].clone();
    let elsewhere = NewDelivery { destination: fixture.mail, ..fixture.delivery_to(fixture.mail) };
    let elsewhere = NewDelivery { order_key: delivery.order_key.clone(), ..elsewhere };
    fixture.accept(first).await;
    fixture.accept(fixture.ordered_event("c-2")).await;
    fixture.accept(fixture.new_event()).await;
    fixture.accept(NewEvent { deliveries: vec![elsewhere], ..fixture.new_event() }).await;

    assert_eq!(fixture.count_deliveries(DeliveryStatus::Held).await, 0);
    assert_eq!(fixture.claim(fixture.crm, 10).await.len(), 3);
    assert_eq!(fixture.claim(fixture.mail, 10).await.len(), 1);
}

pub async fn retry_of_the_first_keeps_the_others_held(mut fixture: StoreFixture) {
    let queue = admit_in_order(&fixture, "c-1", 2).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    fixture.finish(&claimed, NextStep::RetryAt(fixture.now + Duration::from_secs(60))).await;
    assert_eq!(
        statuses_of(&fixture, &queue).await,
        [DeliveryStatus::Scheduled, DeliveryStatus::Held]
    );
    assert!(fixture.claim(fixture.crm, 10).await.is_empty());

    fixture.wait(Duration::from_secs(60));
    let again = fixture.claim_one(fixture.crm).await;
    fixture.release(vec![held_claim(&again)], fixture.now).await.unwrap();
    assert_eq!(
        statuses_of(&fixture, &queue).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held]
    );
    let lost = fixture.claim_one(fixture.crm).await;
    fixture.abandon_claim(&lost).await;
    assert_eq!(
        statuses_of(&fixture, &queue).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held]
    );
}

pub async fn next_delivery_becomes_due_when_the_first_ends(fixture: StoreFixture) {
    let queue = admit_in_order(&fixture, "c-1", 4).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    fixture.finish(&claimed, NextStep::Dead(DeadReason::PayloadError)).await;
    assert_eq!(
        statuses_of(&fixture, &queue[1..]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held, DeliveryStatus::Held]
    );

    let cancelled = fixture.cancel(queue[1], fixture.now).await.unwrap();
    assert_eq!(cancelled, CancelResult::Done { destination: fixture.crm });
    assert_eq!(
        statuses_of(&fixture, &queue[2..]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held]
    );

    // Cancelling a held delivery changes no other.
    fixture.cancel(queue[3], fixture.now).await.unwrap();
    assert_eq!(
        statuses_of(&fixture, &queue[2..]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Cancelled]
    );
    fixture.finish(&fixture.claim_one(fixture.crm).await, NextStep::Succeeded).await;
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Held).await, 0);
}

pub async fn replay_joins_the_end_of_the_ordering_queue(fixture: StoreFixture) {
    let queue = admit_in_order(&fixture, "c-1", 3).await;
    fixture.finish(&fixture.claim_one(fixture.crm).await, NextStep::Succeeded).await;
    let new = fixture.new_id();
    let replayed = fixture.replay(queue[0], new, fixture.now).await.unwrap();
    assert_eq!(replayed, ReplayResult::Created { delivery: new, destination: fixture.crm });
    assert_eq!(
        statuses_of(&fixture, &[queue[1], queue[2], new]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held, DeliveryStatus::Held]
    );
    for expected in [queue[1], queue[2], new] {
        let claimed = fixture.claim_one(fixture.crm).await;
        assert_eq!(claimed.id, expected);
        fixture.finish(&claimed, NextStep::Succeeded).await;
    }
}

pub async fn revived_delivery_joins_the_end_of_the_ordering_queue(fixture: StoreFixture) {
    let first = NewEvent { key: Some(fixture.key_claim("k")), ..fixture.ordered_event("c-1") };
    fixture.accept(first.clone()).await;
    let second = admit_in_order(&fixture, "c-1", 1).await;
    fixture
        .finish(&fixture.claim_one(fixture.crm).await, NextStep::Dead(DeadReason::MaxRetries))
        .await;
    let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;
    assert_eq!(duplicate.revived, [fixture.crm]);
    assert_eq!(
        fixture.delivery_statuses(first.id).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Held]
    );

    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(claimed.id, second[0]);
    fixture.finish(&claimed, NextStep::Succeeded).await;
    assert_eq!(fixture.claim_one(fixture.crm).await.event, first.id);
}

pub async fn ordering_queue_survives_restart(mut fixture: StoreFixture) {
    let mut queue = admit_in_order(&fixture, "c-1", 2).await;
    let done = admit_in_order(&fixture, "c-2", 1).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.claim_one(fixture.crm).await;
    fixture.reopen().await;

    // Deliveries created after the restart are behind those from before.
    queue.extend(admit_in_order(&fixture, "c-1", 2).await);
    assert_eq!(statuses_of(&fixture, &done).await, [DeliveryStatus::Succeeded]);
    for expected in &queue[1..] {
        let claimed = fixture.claim_one(fixture.crm).await;
        assert_eq!(claimed.id, *expected);
        fixture.finish(&claimed, NextStep::Succeeded).await;
    }
}

pub async fn removing_the_ordering_setting_releases_held_deliveries(fixture: StoreFixture) {
    let queue = admit_in_order(&fixture, "c-1", 3).await;
    let put = |spec| vec![ConfigChange::PutDestination(fixture.crm, spec)];
    fixture.change(put(ordered_destination_spec("crm")), fixture.now).await.unwrap();
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Held).await, 2);

    fixture.change(put(destination_spec("crm")), fixture.now).await.unwrap();
    assert_eq!(statuses_of(&fixture, &queue).await, [DeliveryStatus::Pending; 3]);
    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::Held).await,
            fixture.count_deliveries(DeliveryStatus::Pending).await
        ),
        (0, 3)
    );
    assert_eq!(fixture.claim(fixture.crm, 10).await.len(), 3);
}

pub async fn deleting_a_destination_cancels_held_deliveries(fixture: StoreFixture) {
    let queue = admit_in_order(&fixture, "c-1", 3).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    assert_eq!(statuses_of(&fixture, &queue).await, [DeliveryStatus::Cancelled; 3]);
    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::Held).await,
            fixture.count_deliveries(DeliveryStatus::Cancelled).await
        ),
        (0, 3)
    );
}

pub async fn delay_is_kept_for_held_deliveries(mut fixture: StoreFixture) {
    let delay = Duration::from_secs(60);
    let delayed = |fixture: &StoreFixture| {
        let event = fixture.ordered_event("c-1");
        let deliveries = vec![NewDelivery { delay, ..event.deliveries[0].clone() }];
        NewEvent { deliveries, ..event }
    };
    fixture.accept(delayed(&fixture)).await;
    fixture.wait(Duration::from_secs(50));
    fixture.accept(delayed(&fixture)).await;
    let second_due_at = fixture.now + delay;
    fixture.wait(Duration::from_secs(10));
    fixture.finish(&fixture.claim_one(fixture.crm).await, NextStep::Succeeded).await;

    assert!(fixture.claim(fixture.crm, 10).await.is_empty());
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(second_due_at));
}

pub async fn concurrent_events_of_one_ordering_key_have_one_first(fixture: StoreFixture) {
    let events: Vec<NewEvent> = (0..40).map(|_| fixture.ordered_event("c-1")).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for event in events {
        let store = fixture.store();
        tasks.spawn(async move { store.admit([event].into()).await.unwrap() });
    }
    let results = tasks.join_all().await.concat();
    let unheld = results
        .iter()
        .filter(|result| {
            **result == AdmitResult::Accepted { held: vec![], confirmed: None, key_conflict: None }
        })
        .count();
    assert_eq!((unheld, fixture.count_deliveries(DeliveryStatus::Held).await), (1, 39));
    for _ in 0..40 {
        fixture.finish(&fixture.claim_one(fixture.crm).await, NextStep::Succeeded).await;
    }
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Succeeded).await, 40);
}
