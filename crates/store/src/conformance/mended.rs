//! What was given up, replaced or lost has arrived after all, and somebody says so.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::{DeadReason, state::DeliveryStatus},
    event::{NewEvent, ProviderStatus},
    ids::{DeliveryId, EventId},
    store::{
        ClaimedDelivery, NextStep, REPLAY_INTERVAL, ReplayResult, SentMessage, SettleResult,
        Settlement,
    },
};

use super::{
    World,
    decisions::kinds,
    job_kit::{MANY, advance, all, report, retry, selected},
    statuses::tell,
    world::LEASE,
};

const MINUTE: Duration = Duration::from_secs(60);
const REFUSED: NextStep = NextStep::Dead(DeadReason::Unrecoverable);
const PARKED: NextStep = NextStep::Dead(DeadReason::Ambiguous);

/// An event of which nobody knows whether it arrived, and which is left to a person.
async fn parked(world: &World, event: NewEvent) -> (EventId, DeliveryId) {
    let event = world.accept(event).await;
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(world.settle(world.will(&claimed, PARKED)).await.unwrap(), SettleResult::Recorded);
    (event, claimed.id)
}

pub async fn sent_status_turns_an_ambiguous_dead_delivery_into_a_success(mut world: World) {
    let (event, delivery) = parked(&world, world.arrival()).await;
    world.wait(MINUTE);

    let moved = tell(&world, event, ProviderStatus::Sent).await.unwrap();

    assert_eq!((moved.delivery, moved.next), (delivery, NextStep::Succeeded));
    let ended_at = world.now;
    world.reopen().await;
    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Succeeded, None));
    assert_eq!((row.ended_at, row.sent_id.as_deref()), (Some(ended_at), Some("wamid.1")));
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::Confirmed]);
    let dead = world.counts().dead[&DeadReason::Ambiguous];
    assert_eq!((dead.total, dead.pending), (1, 0), "it did die, and is not dead");
    assert_eq!((world.count(DeliveryStatus::Succeeded), world.count(DeliveryStatus::Dead)), (1, 0));
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None, "it is heard once");
}

pub async fn failed_status_leaves_an_ambiguous_dead_delivery_dead(world: World) {
    let (event, _) = parked(&world, world.arrival()).await;
    for next in [REFUSED, NextStep::RetryAt(world.now)] {
        assert_eq!(tell(&world, event, ProviderStatus::Failed(next)).await, None);
    }
    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Dead, Some(DeadReason::Ambiguous)));
}

pub async fn late_success_of_an_earlier_delivery_does_not_advance_the_ordering_queue(world: World) {
    let (first, _) = parked(&world, world.in_line("c-1")).await;
    let second = world.accept(world.in_line("c-1")).await;
    let third = world.accept(world.in_line("c-1")).await;
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(claimed.event, second);

    tell(&world, first, ProviderStatus::Sent).await.unwrap();

    assert_eq!(world.statuses(third).await, [DeliveryStatus::Held]);
    assert_eq!(world.statuses(second).await, [DeliveryStatus::InFlight]);
}

pub async fn replay_job_skips_a_delivery_that_succeeded_meanwhile(mut world: World) {
    let (event, _) = parked(&world, world.arrival()).await;
    world.wait(MINUTE);
    let job = selected(&world, retry(all())).await;
    tell(&world, event, ProviderStatus::Sent).await.unwrap();

    let step = advance(&world, job, MANY).await;

    assert!(step.dispatched.is_empty());
    assert_eq!(report(&world, job).await.progress().skipped(), 1);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn sent_status_of_the_replayed_delivery_ends_its_replay(mut world: World) {
    let (event, old) = parked(&world, world.arrival()).await;
    world.wait(REPLAY_INTERVAL);
    let heir = world.id();
    let replayed = world.replay(old, heir, world.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
    // That the one before failed is why this one is sent.
    assert_eq!(tell(&world, event, ProviderStatus::Failed(REFUSED)).await, None);

    let moved = tell(&world, event, ProviderStatus::Sent).await.unwrap();

    assert_eq!((moved.delivery, moved.next), (heir, NextStep::Succeeded));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]);
    assert!(world.claim(world.crm, 9).await.is_empty());
}

pub async fn status_that_cannot_be_about_the_replayed_delivery_is_ignored(mut world: World) {
    // What it takes over from has a name, and the status is about something else.
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let sent = Some(SentMessage { id: Some("wamid.0".to_owned()), day: 1 });
    world.settle(Settlement { sent, ..world.will(&claimed, PARKED) }).await.unwrap();
    world.wait(REPLAY_INTERVAL);
    world.replay(claimed.id, world.id(), world.now).await.unwrap();
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);
    world.finish_due(world.crm, NextStep::Succeeded).await;

    // What it takes over from was refused, so nothing of it can have arrived.
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.finish(&claimed, REFUSED).await;
    world.wait(REPLAY_INTERVAL);
    world.replay(claimed.id, world.id(), world.now).await.unwrap();
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Replayed, DeliveryStatus::Pending]);
}

/// The answer to an attempt that arrived.
fn arrived(world: &World, claimed: &ClaimedDelivery) -> Settlement {
    let sent = Some(SentMessage { id: Some("wamid.1".to_owned()), day: 1 });
    Settlement { sent, ..world.settlement(claimed, NextStep::Succeeded) }
}

pub async fn late_success_after_a_lost_claim_is_recorded(mut world: World) {
    let waits = NextStep::RetryAt(world.now + MINUTE * 60);
    for will in [Some(waits), Some(PARKED), None] {
        let event = world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        if let Some(next) = will {
            world.record_crash_outcome(world.will(&claimed, next)).await.unwrap();
        }
        world.wait(LEASE);
        world.release_expired(world.now).await.unwrap();

        let late = arrived(&world, &claimed);
        let settled = world.settle(late.clone()).await.unwrap();

        assert_eq!(settled, SettleResult::Overruled(NextStep::Succeeded), "{will:?}");
        let row = world.only_delivery(event).await;
        assert_eq!(
            (row.status, row.sent_id.as_deref()),
            (DeliveryStatus::Succeeded, Some("wamid.1"))
        );
        assert!(kinds(&world, event).await.contains(&EventDecisionKind::Confirmed));
        assert_eq!(world.settle(late).await.unwrap(), SettleResult::LeaseLost, "it is heard once");
    }
}

pub async fn late_success_overrules_the_running_retry(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let lost = world.claim_one(world.crm).await;
    world.wait(LEASE);
    world.release_expired(world.now).await.unwrap();
    let claimed = world.claim_one(world.crm).await;
    let late = arrived(&world, &lost);
    assert_eq!(world.settle(late).await.unwrap(), SettleResult::LeaseLost);
    let refused = world.settlement(&claimed, REFUSED);
    assert_eq!(world.settle(refused).await.unwrap(), SettleResult::Overruled(NextStep::Succeeded));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
}
