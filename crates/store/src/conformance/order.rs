//! Deliveries that must arrive one after the other.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::{NewDelivery, NewEvent},
    ids::DeliveryId,
    store::{AdmitResult, CancelResult, ConfigChange, NextStep, ReplayResult},
};

use super::{
    World,
    samples::{destination, held, ordered},
};

/// Admits events of one key, one after the other; gives back their deliveries.
async fn line(world: &World, key: &str, many: usize) -> Vec<DeliveryId> {
    let mut line = Vec::new();
    for _ in 0..many {
        let event = world.in_line(key);
        line.push(event.deliveries[0].id);
        world.accept(event).await;
    }
    line
}

async fn stand(world: &World, line: &[DeliveryId]) -> Vec<DeliveryStatus> {
    let mut statuses = Vec::new();
    for id in line {
        statuses.push(world.delivery_detail(*id).await.delivery.status);
    }
    statuses
}

pub async fn only_the_first_delivery_of_an_ordering_key_is_due(world: World) {
    let line = line(&world, "c-1", 3).await;
    assert_eq!(
        stand(&world, &line).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held, DeliveryStatus::Held]
    );
    assert_eq!(world.count(DeliveryStatus::Held), 2);
    for expected in line {
        let claimed = world.claim_one(world.crm).await;
        assert_eq!((claimed.id, claimed.ordered), (expected, true));
        world.finish(&claimed, NextStep::Succeeded).await;
    }
    assert_eq!(world.count(DeliveryStatus::Succeeded), 3);
}

pub async fn held_delivery_is_not_claimed_at_creation(world: World) {
    let claimed = |event: NewEvent| {
        let owed = event.deliveries[0].clone();
        let deliveries = vec![NewDelivery { claim: Some(world.lease()), ..owed }];
        NewEvent { deliveries, ..event }
    };
    let (first, second) = (claimed(world.in_line("c-1")), claimed(world.in_line("c-1")));
    let told = world.admit(vec![first.clone(), second.clone()]).await.unwrap();

    let held = vec![second.deliveries[0].id];
    assert_eq!(
        told,
        [
            AdmitResult::Accepted { held: vec![], confirmed: None },
            AdmitResult::Accepted { held, confirmed: None }
        ]
    );
    assert_eq!(world.statuses(first.id).await, [DeliveryStatus::InFlight]);
    assert_eq!(world.statuses(second.id).await, [DeliveryStatus::Held]);
}

pub async fn other_ordering_keys_and_destinations_are_not_held(world: World) {
    let first = world.in_line("c-1");
    let owed = first.deliveries[0].clone();
    let elsewhere = NewDelivery { destination: world.mail, ..world.to(world.mail) };
    let elsewhere = NewDelivery { order_key: owed.order_key.clone(), ..elsewhere };
    world.accept(first).await;
    world.accept(world.in_line("c-2")).await;
    world.accept(world.arrival()).await;
    world.accept(NewEvent { deliveries: vec![elsewhere], ..world.arrival() }).await;

    assert_eq!(world.count(DeliveryStatus::Held), 0);
    assert_eq!(world.claim(world.crm, 10).await.len(), 3);
    assert_eq!(world.claim(world.mail, 10).await.len(), 1);
}

pub async fn retry_of_the_first_keeps_the_others_held(mut world: World) {
    let line = line(&world, "c-1", 2).await;
    let claimed = world.claim_one(world.crm).await;
    world.finish(&claimed, NextStep::RetryAt(world.now + Duration::from_secs(60))).await;
    assert_eq!(stand(&world, &line).await, [DeliveryStatus::Scheduled, DeliveryStatus::Held]);
    assert!(world.claim(world.crm, 10).await.is_empty());

    world.wait(Duration::from_secs(60));
    let again = world.claim_one(world.crm).await;
    world.release(vec![held(&again)], world.now).await.unwrap();
    assert_eq!(stand(&world, &line).await, [DeliveryStatus::Pending, DeliveryStatus::Held]);
    world.claim_one(world.crm).await;
    world.wait(Duration::from_secs(600));
    world.release_expired(world.now).await.unwrap();
    assert_eq!(stand(&world, &line).await, [DeliveryStatus::Pending, DeliveryStatus::Held]);
}

pub async fn next_delivery_becomes_due_when_the_first_ends(world: World) {
    let line = line(&world, "c-1", 4).await;
    let claimed = world.claim_one(world.crm).await;
    world.finish(&claimed, NextStep::Dead(DeadReason::PayloadError)).await;
    assert_eq!(
        stand(&world, &line[1..]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held, DeliveryStatus::Held]
    );

    let cancelled = world.cancel(line[1], world.now).await.unwrap();
    assert_eq!(cancelled, CancelResult::Done { destination: world.crm });
    assert_eq!(stand(&world, &line[2..]).await, [DeliveryStatus::Pending, DeliveryStatus::Held]);

    // One from the middle leaves without a word to anybody.
    world.cancel(line[3], world.now).await.unwrap();
    assert_eq!(
        stand(&world, &line[2..]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Cancelled]
    );
    world.finish(&world.claim_one(world.crm).await, NextStep::Succeeded).await;
    assert_eq!(world.count(DeliveryStatus::Held), 0);
}

pub async fn replay_joins_the_end_of_the_ordering_queue(world: World) {
    let line = line(&world, "c-1", 3).await;
    world.finish(&world.claim_one(world.crm).await, NextStep::Succeeded).await;
    let new = world.id();
    let replayed = world.replay(line[0], new, world.now).await.unwrap();
    assert_eq!(replayed, ReplayResult::Created { delivery: new, destination: world.crm });
    assert_eq!(
        stand(&world, &[line[1], line[2], new]).await,
        [DeliveryStatus::Pending, DeliveryStatus::Held, DeliveryStatus::Held]
    );
    for expected in [line[1], line[2], new] {
        let claimed = world.claim_one(world.crm).await;
        assert_eq!(claimed.id, expected);
        world.finish(&claimed, NextStep::Succeeded).await;
    }
}

pub async fn revived_delivery_joins_the_end_of_the_ordering_queue(world: World) {
    let first = NewEvent { key: Some(world.key("k")), ..world.in_line("c-1") };
    world.accept(first.clone()).await;
    let second = line(&world, "c-1", 1).await;
    world.finish(&world.claim_one(world.crm).await, NextStep::Dead(DeadReason::MaxRetries)).await;
    let duplicate = world.expect_duplicate(world.again(&first)).await;
    assert_eq!(duplicate.revived, [world.crm]);
    assert_eq!(world.statuses(first.id).await, [DeliveryStatus::Replayed, DeliveryStatus::Held]);

    let claimed = world.claim_one(world.crm).await;
    assert_eq!(claimed.id, second[0]);
    world.finish(&claimed, NextStep::Succeeded).await;
    assert_eq!(world.claim_one(world.crm).await.event, first.id);
}

pub async fn ordering_queue_survives_restart(mut world: World) {
    let mut line_up = line(&world, "c-1", 2).await;
    let done = line(&world, "c-2", 1).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.claim_one(world.crm).await;
    world.reopen().await;
    world.wait(Duration::from_secs(600));
    world.release_expired(world.now).await.unwrap();

    // Those of later lives stand behind those of earlier ones.
    line_up.extend(line(&world, "c-1", 2).await);
    assert_eq!(stand(&world, &done).await, [DeliveryStatus::Succeeded]);
    for expected in &line_up[1..] {
        let claimed = world.claim_one(world.crm).await;
        assert_eq!(claimed.id, *expected);
        world.finish(&claimed, NextStep::Succeeded).await;
    }
}

pub async fn removing_the_ordering_setting_releases_held_deliveries(world: World) {
    let line = line(&world, "c-1", 3).await;
    let put = |spec| vec![ConfigChange::PutDestination(world.crm, spec)];
    world.change(put(ordered("crm")), world.now).await.unwrap();
    assert_eq!(world.count(DeliveryStatus::Held), 2);

    world.change(put(destination("crm")), world.now).await.unwrap();
    assert_eq!(stand(&world, &line).await, [DeliveryStatus::Pending; 3]);
    assert_eq!((world.count(DeliveryStatus::Held), world.count(DeliveryStatus::Pending)), (0, 3));
    assert_eq!(world.claim(world.crm, 10).await.len(), 3);
}

pub async fn deleting_a_destination_cancels_held_deliveries(world: World) {
    let line = line(&world, "c-1", 3).await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    assert_eq!(stand(&world, &line).await, [DeliveryStatus::Cancelled; 3]);
    assert_eq!((world.count(DeliveryStatus::Held), world.count(DeliveryStatus::Cancelled)), (0, 3));
}

pub async fn delay_is_kept_for_held_deliveries(mut world: World) {
    let delay = Duration::from_secs(60);
    let delayed = |world: &World| {
        let event = world.in_line("c-1");
        let deliveries = vec![NewDelivery { delay, ..event.deliveries[0].clone() }];
        NewEvent { deliveries, ..event }
    };
    world.accept(delayed(&world)).await;
    world.wait(Duration::from_secs(50));
    world.accept(delayed(&world)).await;
    let second_at = world.now + delay;
    world.wait(Duration::from_secs(10));
    world.finish(&world.claim_one(world.crm).await, NextStep::Succeeded).await;

    assert!(world.claim(world.crm, 10).await.is_empty());
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(second_at));
}

pub async fn concurrent_events_of_one_ordering_key_have_one_first(world: World) {
    let events: Vec<NewEvent> = (0..40).map(|_| world.in_line("c-1")).collect();
    let mut admitting = tokio::task::JoinSet::new();
    for event in events {
        let store = world.store();
        admitting.spawn(async move { store.admit([event].into()).await.unwrap() });
    }
    let told = admitting.join_all().await.concat();
    let free = told
        .iter()
        .filter(|one| **one == AdmitResult::Accepted { held: vec![], confirmed: None })
        .count();
    assert_eq!((free, world.count(DeliveryStatus::Held)), (1, 39));
    for _ in 0..40 {
        world.finish(&world.claim_one(world.crm).await, NextStep::Succeeded).await;
    }
    assert_eq!(world.count(DeliveryStatus::Succeeded), 40);
}
