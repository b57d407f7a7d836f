//! Replays of single deliveries.

use std::time::Duration;

use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{ConfigChange, NextStep, REPLAY_INTERVAL, ReplayResult},
};
use surehook_retry::DeadReason;
use surehook_types::ids::{DeliveryId, EventId};
use tokio::task::JoinSet;

use super::StoreFixture;

const TICK: Duration = Duration::from_millis(1);
const DEAD: NextStep = NextStep::Dead(DeadReason::InvalidEndpoint);

/// Accepts an event and ends its only delivery.
async fn accept_and_finish(fixture: &StoreFixture, next: NextStep) -> (EventId, DeliveryId) {
    let event = fixture.accept(fixture.event_with_key("k")).await;
    fixture.finish_due(fixture.crm, next).await;
    (event, fixture.only_delivery(event).await.id)
}

/// Replays a delivery, which must succeed.
async fn replay(fixture: &StoreFixture, old: DeliveryId) -> DeliveryId {
    let new = fixture.new_id();
    let replayed = fixture.replay(old, new, fixture.now).await.unwrap();
    assert_eq!(replayed, ReplayResult::Created { delivery: new, destination: fixture.crm });
    new
}

pub async fn ended_delivery_can_be_replayed(mut fixture: StoreFixture) {
    for (next, reason) in [(DEAD, Some(DeadReason::InvalidEndpoint)), (NextStep::Succeeded, None)] {
        let event = fixture.accept(fixture.new_event()).await;
        fixture.finish_due(fixture.crm, next).await;
        let (old, ended_at) = (fixture.only_delivery(event).await.id, fixture.now);
        fixture.wait(TICK);

        let new = replay(&fixture, old).await;

        let deliveries = fixture.event_detail(event).await.deliveries;
        let [old_row, replay_row] = &deliveries[..] else {
            panic!("two deliveries: {deliveries:?}")
        };
        assert_eq!((old_row.id, old_row.status), (old, DeliveryStatus::Replayed));
        assert_eq!((old_row.replayed_by, old_row.replay_of), (Some(new), None));
        // The result of the old delivery stays visible.
        assert_eq!(
            (old_row.attempts, old_row.reason, old_row.ended_at),
            (1, reason, Some(ended_at))
        );
        assert_eq!(
            (replay_row.id, replay_row.status, replay_row.attempts),
            (new, DeliveryStatus::Pending, 0)
        );
        assert_eq!((replay_row.replay_of, replay_row.replayed_by), (Some(old), None));
        assert_eq!((replay_row.created_at, replay_row.due_at), (fixture.now, Some(fixture.now)));
        assert_eq!(fixture.claim_one(fixture.crm).await.id, new);
    }
}

pub async fn unfinished_delivery_cannot_be_replayed(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let id = fixture.only_delivery(event).await.id;
    let not_replayable = ReplayResult::NotReplayable;

    let pending = fixture.replay(id, fixture.new_id(), fixture.now).await.unwrap();
    let claimed = fixture.claim_one(fixture.crm).await;
    let in_flight = fixture.replay(id, fixture.new_id(), fixture.now).await.unwrap();
    fixture.finish(&claimed, NextStep::RetryAt(fixture.now + TICK)).await;
    let scheduled = fixture.replay(id, fixture.new_id(), fixture.now).await.unwrap();

    assert_eq!(pending, not_replayable(DeliveryStatus::Pending));
    assert_eq!(in_flight, not_replayable(DeliveryStatus::InFlight));
    assert_eq!(scheduled, not_replayable(DeliveryStatus::Scheduled));
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Scheduled]);
}

pub async fn cancelled_delivery_cannot_be_replayed(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let id = fixture.only_delivery(event).await.id;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    let refused = fixture.replay(id, fixture.new_id(), fixture.now).await.unwrap();

    assert_eq!(refused, ReplayResult::NotReplayable(DeliveryStatus::Cancelled));
    assert_eq!(fixture.event_detail(event).await.deliveries.len(), 1);
}

pub async fn only_the_newest_delivery_of_a_replay_chain_can_be_replayed(mut fixture: StoreFixture) {
    let (event, old) = accept_and_finish(&fixture, DEAD).await;
    let new = replay(&fixture, old).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.wait(REPLAY_INTERVAL);

    let refused = fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(refused, ReplayResult::NotReplayable(DeliveryStatus::Replayed));
    let newest = replay(&fixture, new).await;

    let deliveries = fixture.event_detail(event).await.deliveries;
    let chain: Vec<_> = deliveries.iter().map(|row| (row.replay_of, row.replayed_by)).collect();
    assert_eq!(chain, [(None, Some(new)), (Some(old), Some(newest)), (Some(new), None)]);
}

pub async fn replay_is_not_treated_as_a_duplicate(fixture: StoreFixture) {
    let (event, old) = accept_and_finish(&fixture, NextStep::Succeeded).await;

    let new = replay(&fixture, old).await;

    // The key is still known, and yet the replay sends the same event and body.
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!((claimed.id, claimed.event), (new, event));
    assert_eq!(Some(claimed.payload.clone()), fixture.find_body(event).await.unwrap());
    fixture.finish(&claimed, NextStep::Succeeded).await;
    assert_eq!(fixture.counts().await.duplicates, 0);
    assert_eq!(fixture.expect_duplicate(fixture.event_with_key("k")).await.original, event);
}

pub async fn second_replay_is_allowed_after_the_replay_interval(mut fixture: StoreFixture) {
    let (_, old) = accept_and_finish(&fixture, DEAD).await;
    let again_at = fixture.now + REPLAY_INTERVAL;
    let new = replay(&fixture, old).await;
    fixture.finish_due(fixture.crm, DEAD).await;

    fixture.wait(REPLAY_INTERVAL - TICK);
    for id in [old, new] {
        let refused = fixture.replay(id, fixture.new_id(), fixture.now).await.unwrap();
        assert_eq!(refused, ReplayResult::TooSoon { again_at });
    }

    fixture.wait(TICK);
    replay(&fixture, new).await;
}

pub async fn concurrent_replays_of_a_delivery_succeed_once(fixture: StoreFixture) {
    let (event, old) = accept_and_finish(&fixture, DEAD).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, new, now) = (fixture.store(), fixture.new_id(), fixture.now);
        tasks.spawn(async move { store.replay(old, new, now).await.unwrap() });
    }

    let results = tasks.join_all().await;

    let created = |results: &&ReplayResult| matches!(results, ReplayResult::Created { .. });
    assert_eq!(results.iter().filter(created).count(), 1, "{results:?}");
    for refused in results.iter().filter(|results| !created(results)) {
        let is_expected =
            matches!(refused, ReplayResult::TooSoon { .. } | ReplayResult::NotReplayable(_));
        assert!(is_expected, "{refused:?}");
    }
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Pending]
    );
    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::Pending).await,
            fixture.count_deliveries(DeliveryStatus::Replayed).await
        ),
        (1, 1)
    );
}

pub async fn delivery_to_deleted_destination_cannot_be_replayed(fixture: StoreFixture) {
    let (event, old) = accept_and_finish(&fixture, DEAD).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    let refused = fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();

    assert_eq!(refused, ReplayResult::NotReplayable(DeliveryStatus::Dead));
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Dead]);
    assert_eq!(fixture.counts().await.dead[&DeadReason::InvalidEndpoint].pending, 1);
}

pub async fn replay_of_unknown_delivery_is_not_found(fixture: StoreFixture) {
    let replayed = fixture.replay(fixture.new_id(), fixture.new_id(), fixture.now).await.unwrap();

    assert_eq!(replayed, ReplayResult::NotFound);
}

pub async fn replay_survives_restart(mut fixture: StoreFixture) {
    let (event, old) = accept_and_finish(&fixture, DEAD).await;
    let new = replay(&fixture, old).await;

    fixture.reopen().await;

    let refused = fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(refused, ReplayResult::TooSoon { again_at: fixture.now + REPLAY_INTERVAL });
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Pending]
    );
    assert_eq!(fixture.claim_one(fixture.crm).await.id, new);
}
