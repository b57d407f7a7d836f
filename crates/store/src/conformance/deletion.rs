//! A destination that is deleted with more owed to it than one step cancels.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    event::NewEvent,
    ids::EventId,
    replay::{ReplayItemOutcome, ReplayState},
    store::{CancelResult, ConfigChange, JoinRequest, JoinResult, NextStep, SettleResult},
    time::Timestamp,
};

use super::{
    World,
    job_kit::{MANY, TICK, advance, all, dead_letters, report, retry, selected},
    samples::destination,
};

/// More than a few slices of every store.
const OWED: usize = 1500;

/// Events for the CRM, a third of them in three lines, a few of all in flight.
async fn owed(world: &World) -> Vec<EventId> {
    let lines = ["a", "b", "c"];
    let one = |number: usize| match number % 3 {
        0 => world.in_line(lines[number / 3 % 3]),
        _ => world.arrival(),
    };
    let events: Vec<NewEvent> = (0..OWED).map(one).collect();
    let ids = events.iter().map(|event| event.id).collect();
    world.admit(events).await.unwrap();
    ids
}

async fn delete(world: &World) {
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
}

async fn cancel_all(world: &World) {
    while world.cancel_for_deleted_destinations().await.unwrap() {}
}

fn counted(world: &World) -> u64 {
    world.counts().by_status.values().sum()
}

/// Nobody gets anything of the CRM, and nobody is told to look.
async fn is_asked_for_nothing(world: &World) {
    assert!(world.claim(world.crm, MANY).await.is_empty());
    let next = world.claim_next(world.crm, world.now, world.lease()).await.unwrap();
    assert!(next.claimed.is_empty());
    assert_eq!(world.next_due(world.crm).await.unwrap(), None);
    assert!(world.oldest_due(world.now).await.unwrap().is_empty());
}

/// Cancelled at that time, and told once.
async fn is_cancelled(world: &World, event: EventId, at: Timestamp) {
    let detail = world.detail(event).await;
    let delivery = &detail.deliveries[0];
    assert_eq!((delivery.status, delivery.ended_at), (DeliveryStatus::Cancelled, Some(at)));
    let told = detail.decisions.iter().filter(|told| told.kind == EventDecisionKind::Cancelled);
    assert_eq!(told.count(), 1);
}

pub async fn large_backlog_of_deleted_destination_is_cancelled_in_slices(mut world: World) {
    let events = owed(&world).await;
    let claimed = world.claim(world.crm, 700).await;
    let deleted_at = world.now;
    delete(&world).await;

    for _ in 0..2 {
        world.wait(Duration::from_secs(1));
        assert!(world.cancel_for_deleted_destinations().await.unwrap(), "there is more");
        assert_eq!(counted(&world), u64::try_from(OWED).unwrap());
        is_asked_for_nothing(&world).await;
        world.reopen().await;
    }
    for late in [&claimed[0], &claimed[699]] {
        let late = world.settlement(late, NextStep::Succeeded);
        assert_eq!(world.settle(late).await.unwrap(), SettleResult::LeaseLost);
    }
    cancel_all(&world).await;

    assert_eq!(world.count(DeliveryStatus::Cancelled), u64::try_from(OWED).unwrap());
    for event in events {
        is_cancelled(&world, event, deleted_at).await;
    }
}

pub async fn delivery_not_yet_cancelled_behaves_as_cancelled(world: World) {
    let events = owed(&world).await;
    delete(&world).await;
    let mut waiting = None;
    for event in events {
        let delivery = world.only_delivery(event).await;
        if delivery.status != DeliveryStatus::Cancelled {
            waiting = Some(delivery);
        }
    }
    let Some(waiting) = waiting else { return };

    let (event, destination, request) = (waiting.event, world.crm, world.id());
    let wish = JoinRequest { event, destination, request, revive: true, now: world.now };
    assert_eq!(world.join(wish).await.unwrap(), JoinResult::Cancelled);
    // Somebody may be faster than the slices.
    let cancelled = world.cancel(waiting.id, world.now).await.unwrap();
    assert_eq!(cancelled, CancelResult::Done { destination });

    cancel_all(&world).await;
    assert_eq!(world.count(DeliveryStatus::Cancelled), u64::try_from(OWED).unwrap());
}

pub async fn recreated_destination_gets_no_old_deliveries(world: World) {
    owed(&world).await;
    delete(&world).await;

    let put = vec![ConfigChange::PutDestination(world.crm, destination("crm"))];
    world.change(put, world.now).await.unwrap();
    let new = world.accept(world.arrival()).await;
    cancel_all(&world).await;

    assert_eq!(world.claim_one(world.crm).await.event, new);
    assert_eq!(world.count(DeliveryStatus::Cancelled), u64::try_from(OWED).unwrap());
}

pub async fn replay_job_of_deleted_destination_finishes(mut world: World) {
    dead_letters(&world, OWED).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, OWED).await;

    delete(&world).await;
    cancel_all(&world).await;
    while advance(&world, job, MANY).await.state != ReplayState::Done {
        assert!(
            report(&world, job).await.progress().count(ReplayItemOutcome::Cancelled) > 0,
            "it goes on"
        );
    }

    let row = report(&world, job).await;
    assert_eq!(row.state, ReplayState::Done);
    assert_eq!(row.progress().count(ReplayItemOutcome::Cancelled), u64::try_from(OWED).unwrap());
}
