//! Delivering again because a person asks for it.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    ids::{DeliveryId, EventId},
    store::{ConfigChange, NextStep, REPLAY_INTERVAL, ReplayResult},
};
use tokio::task::JoinSet;

use super::World;

const TICK: Duration = Duration::from_millis(1);
const DEAD: NextStep = NextStep::Dead(DeadReason::InvalidEndpoint);

/// An event whose only delivery has ended.
async fn ended(world: &World, next: NextStep) -> (EventId, DeliveryId) {
    let event = world.accept(world.keyed("k")).await;
    world.finish_due(world.crm, next).await;
    (event, world.only_delivery(event).await.id)
}

/// Replays what must be replayable.
async fn replay(world: &World, old: DeliveryId) -> DeliveryId {
    let new = world.id();
    let replayed = world.replay(old, new, world.now).await.unwrap();
    assert_eq!(replayed, ReplayResult::Created { delivery: new, destination: world.crm });
    new
}

pub async fn ended_delivery_can_be_replayed(mut world: World) {
    for (next, reason) in [(DEAD, Some(DeadReason::InvalidEndpoint)), (NextStep::Succeeded, None)] {
        let event = world.accept(world.arrival()).await;
        world.finish_due(world.crm, next).await;
        let (old, ended_at) = (world.only_delivery(event).await.id, world.now);
        world.wait(TICK);

        let new = replay(&world, old).await;

        let deliveries = world.detail(event).await.deliveries;
        let [was, heir] = &deliveries[..] else { panic!("two deliveries: {deliveries:?}") };
        assert_eq!((was.id, was.status), (old, DeliveryStatus::Replayed));
        assert_eq!((was.replayed_by, was.replay_of), (Some(new), None));
        // What it ended with stays to be seen.
        assert_eq!((was.attempts, was.reason, was.ended_at), (1, reason, Some(ended_at)));
        assert_eq!((heir.id, heir.status, heir.attempts), (new, DeliveryStatus::Pending, 0));
        assert_eq!((heir.replay_of, heir.replayed_by), (Some(old), None));
        assert_eq!((heir.created_at, heir.due_at), (world.now, Some(world.now)));
        assert_eq!(world.claim_one(world.crm).await.id, new);
    }
}

pub async fn unfinished_delivery_cannot_be_replayed(world: World) {
    let event = world.accept(world.arrival()).await;
    let id = world.only_delivery(event).await.id;
    let refused = |status| ReplayResult::NotReplayable(status);

    let pending = world.replay(id, world.id(), world.now).await.unwrap();
    let claimed = world.claim_one(world.crm).await;
    let in_flight = world.replay(id, world.id(), world.now).await.unwrap();
    world.finish(&claimed, NextStep::RetryAt(world.now + TICK)).await;
    let scheduled = world.replay(id, world.id(), world.now).await.unwrap();

    assert_eq!(pending, refused(DeliveryStatus::Pending));
    assert_eq!(in_flight, refused(DeliveryStatus::InFlight));
    assert_eq!(scheduled, refused(DeliveryStatus::Scheduled));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Scheduled]);
}

pub async fn cancelled_delivery_cannot_be_replayed(world: World) {
    let event = world.accept(world.arrival()).await;
    let id = world.only_delivery(event).await.id;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    let refused = world.replay(id, world.id(), world.now).await.unwrap();

    assert_eq!(refused, ReplayResult::NotReplayable(DeliveryStatus::Cancelled));
    assert_eq!(world.detail(event).await.deliveries.len(), 1);
}

pub async fn only_the_newest_delivery_of_a_replay_chain_can_be_replayed(mut world: World) {
    let (event, old) = ended(&world, DEAD).await;
    let new = replay(&world, old).await;
    world.finish_due(world.crm, DEAD).await;
    world.wait(REPLAY_INTERVAL);

    let refused = world.replay(old, world.id(), world.now).await.unwrap();
    assert_eq!(refused, ReplayResult::NotReplayable(DeliveryStatus::Replayed));
    let newest = replay(&world, new).await;

    let deliveries = world.detail(event).await.deliveries;
    let chain: Vec<_> = deliveries.iter().map(|row| (row.replay_of, row.replayed_by)).collect();
    assert_eq!(chain, [(None, Some(new)), (Some(old), Some(newest)), (Some(new), None)]);
}

pub async fn replay_is_not_treated_as_a_duplicate(world: World) {
    let (event, old) = ended(&world, NextStep::Succeeded).await;

    let new = replay(&world, old).await;

    // The key is still known, and still the replay goes out with the same event and bytes.
    let claimed = world.claim_one(world.crm).await;
    assert_eq!((claimed.id, claimed.event), (new, event));
    assert_eq!(Some(claimed.payload.clone()), world.body(event).await.unwrap());
    world.finish(&claimed, NextStep::Succeeded).await;
    assert_eq!(world.counts().duplicates, 0);
    assert_eq!(world.expect_duplicate(world.keyed("k")).await.original, event);
}

pub async fn second_replay_is_allowed_after_the_replay_interval(mut world: World) {
    let (_, old) = ended(&world, DEAD).await;
    let again_at = world.now + REPLAY_INTERVAL;
    let new = replay(&world, old).await;
    world.finish_due(world.crm, DEAD).await;

    world.wait(REPLAY_INTERVAL - TICK);
    for id in [old, new] {
        let refused = world.replay(id, world.id(), world.now).await.unwrap();
        assert_eq!(refused, ReplayResult::TooSoon { again_at });
    }

    world.wait(TICK);
    replay(&world, new).await;
}

pub async fn concurrent_replays_of_a_delivery_succeed_once(world: World) {
    let (event, old) = ended(&world, DEAD).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, new, now) = (world.store(), world.id(), world.now);
        tasks.spawn(async move { store.replay(old, new, now).await.unwrap() });
    }

    let told = tasks.join_all().await;

    let created = |told: &&ReplayResult| matches!(told, ReplayResult::Created { .. });
    assert_eq!(told.iter().filter(created).count(), 1, "{told:?}");
    for refused in told.iter().filter(|told| !created(told)) {
        let fair = matches!(refused, ReplayResult::TooSoon { .. } | ReplayResult::NotReplayable(_));
        assert!(fair, "{refused:?}");
    }
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Replayed, DeliveryStatus::Pending]);
    assert_eq!(
        (world.count(DeliveryStatus::Pending), world.count(DeliveryStatus::Replayed)),
        (1, 1)
    );
}

pub async fn delivery_to_deleted_destination_cannot_be_replayed(world: World) {
    let (event, old) = ended(&world, DEAD).await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    let refused = world.replay(old, world.id(), world.now).await.unwrap();

    assert_eq!(refused, ReplayResult::NotReplayable(DeliveryStatus::Dead));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Dead]);
    assert_eq!(world.counts().dead[&DeadReason::InvalidEndpoint].pending, 1);
}

pub async fn replay_of_unknown_delivery_is_not_found(world: World) {
    let replayed = world.replay(world.id(), world.id(), world.now).await.unwrap();

    assert_eq!(replayed, ReplayResult::NotFound);
}

pub async fn replay_survives_restart(mut world: World) {
    let (event, old) = ended(&world, DEAD).await;
    let new = replay(&world, old).await;

    world.reopen().await;

    let refused = world.replay(old, world.id(), world.now).await.unwrap();
    assert_eq!(refused, ReplayResult::TooSoon { again_at: world.now + REPLAY_INTERVAL });
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Replayed, DeliveryStatus::Pending]);
    assert_eq!(world.claim_one(world.crm).await.id, new);
}
