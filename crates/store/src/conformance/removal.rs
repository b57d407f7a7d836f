//! Retention beside lines, transforms, jobs and senders that wait.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::{NewDeliveryBody, NewEvent},
    ids::EventId,
    replay::{ReplayItemOutcome, ReplaySpec, ReplayState, SkipReason},
    retention::RetentionSpec,
    store::{CancelResult, JoinRequest, JoinResult, NextStep},
    sync::SyncResult,
    time::HumanDuration,
};

use super::{
    World,
    job_kit::{DEAD, MANY, advance, all, ended, missing, report, resend, retry, selected},
};

const DAY: Duration = Duration::from_secs(86_400);
const SERVER: Duration = Duration::from_secs(30 * 86_400);

fn day() -> Option<HumanDuration> {
    Some(HumanDuration::from_secs(86_400))
}

/// Bodies and attempts for a day, also those of dead letters.
fn all_brief() -> RetentionSpec {
    let (bodies, attempts, dead_letters) = (day(), day(), day());
    RetentionSpec { bodies, attempts, dead_letters, ..RetentionSpec::default() }
}

fn brief_attempts() -> RetentionSpec {
    RetentionSpec { attempts: day(), ..RetentionSpec::default() }
}

async fn attempts(world: &World, event: EventId) -> usize {
    world.detail(event).await.attempts.len()
}

pub async fn held_delivery_keeps_its_event_whole(mut world: World) {
    world.keep(world.shop, all_brief()).await;
    let (first, second) = (world.in_line("c-1"), world.in_line("c-1"));
    world.accept(first.clone()).await;
    world.accept(second.clone()).await;
    world.finish_due(world.crm, NextStep::RetryAt(world.now + DAY * 365)).await;

    for _ in 0..3 {
        world.wait(DAY * 40);
        let pruned = world.prune_all(SERVER).await;
        assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 0, 0));
        world.reopen().await;
    }

    assert_eq!(world.statuses(second.id).await, [DeliveryStatus::Held]);
    assert_eq!(world.body(second.id).await.unwrap(), Some(second.payload.clone()));
    let cancelled = world.cancel(first.deliveries[0].id, world.now).await.unwrap();
    assert_eq!(cancelled, CancelResult::Done { destination: world.crm });
    world.wait(DAY);
    assert_eq!(world.prune_all(SERVER).await.events, 1, "what was cancelled has ended");
    let claimed = world.claim_one(world.crm).await;
    assert_eq!((claimed.id, claimed.payload), (second.deliveries[0].id, second.payload));
}

fn transformed(world: &World, made: &[u8]) -> NewEvent {
    let event = world.arrival();
    let (delivery, body) = (event.deliveries[0].id, Some(Bytes::copy_from_slice(made)));
    NewEvent { bodies: vec![NewDeliveryBody { delivery, route: world.id(), body }], ..event }
}

pub async fn transformed_body_is_pruned_with_the_body(mut world: World) {
    world.keep(world.shop, RetentionSpec { bodies: day(), ..RetentionSpec::default() }).await;
    let event = transformed(&world, b"{}");
    let delivery = event.deliveries[0].id;
    world.accept(event.clone()).await;
    world.wait(DAY * 2);
    world.prune_all(SERVER).await;
    assert_eq!(world.find_delivery_body(delivery).await.unwrap().unwrap().body, b"{}"[..]);
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(claimed.payload.body, b"{}"[..], "what is owed is not touched");
    world.finish(&claimed, NextStep::Succeeded).await;
    world.wait(DAY);

    assert_eq!(world.prune_all(SERVER).await.bodies, 1);

    assert_eq!(world.find_delivery_body(delivery).await.unwrap(), None);
    assert!(world.detail(event.id).await.event.body_removed);
}

pub async fn large_transformed_bodies_are_pruned_in_small_slices(mut world: World) {
    const LARGE: usize = 5 << 20;
    let bodies = RetentionSpec { bodies: day(), ..RetentionSpec::default() };
    // Together with their events, and as parts of events that stay.
    for spec in [RetentionSpec { events: day(), ..RetentionSpec::default() }, bodies] {
        world.keep(world.shop, spec).await;
        for _ in 0..4 {
            world.accept(transformed(&world, &vec![b'x'; LARGE])).await;
        }
        while world.count(DeliveryStatus::Pending) > 0 {
            world.finish_due(world.crm, NextStep::Succeeded).await;
        }
        world.wait(DAY * 2);

        let first = world.prune(SERVER, world.now).await.unwrap();

        let removed = first.bodies + first.events;
        assert!(first.more && (1..4).contains(&removed), "case: {spec:?}: {first:?}");
        let rest = world.prune_all(SERVER).await;
        assert_eq!(removed + rest.bodies + rest.events, 4, "case: {spec:?}: {rest:?}");
    }
}

pub async fn attempts_of_a_replay_job_after_pruning_are_pruned(mut world: World) {
    world.keep(world.shop, brief_attempts()).await;
    let verbs: [fn(&World) -> ReplaySpec; 2] =
        [|_| resend(all()), |world| missing(world.mail, all())];
    for spec in verbs {
        let (event, _) = ended(&world, world.arrival(), NextStep::Succeeded).await;
        world.wait(DAY * 2);
        world.prune_all(SERVER).await;
        assert_eq!(attempts(&world, event).await, 0);

        let job = selected(&world, spec(&world)).await;
        advance(&world, job, MANY).await;
        // The walk has passed it, and it is owed again.
        assert_eq!(world.prune_all(SERVER).await.attempts, 0);
        world.finish_due(world.crm, NextStep::Succeeded).await;
        world.finish_due(world.mail, NextStep::Succeeded).await;
        assert_eq!(attempts(&world, event).await, 1);
        assert_eq!(advance(&world, job, MANY).await.state, ReplayState::Done);
        world.wait(DAY);
        world.prune_all(SERVER).await;

        assert_eq!(attempts(&world, event).await, 0, "case: {:?}", spec(&world).verb);
    }
}

pub async fn replay_job_skips_events_without_body(mut world: World) {
    let (one, _) = ended(&world, world.arrival(), DEAD).await;
    let (other, _) = ended(&world, world.arrival(), NextStep::Succeeded).await;
    world.wait(DAY * 2);
    let jobs =
        [selected(&world, retry(all())).await, selected(&world, missing(world.mail, all())).await];
    world.keep(world.shop, all_brief()).await;
    assert_eq!(world.prune_all(SERVER).await.bodies, 2);

    for (job, skipped) in jobs.into_iter().zip([1, 2]) {
        let step = advance(&world, job, MANY).await;
        assert_eq!(
            step.outcomes,
            BTreeMap::from([(ReplayItemOutcome::Skipped(SkipReason::BodyGone), skipped)])
        );
        assert_eq!(report(&world, job).await.state, ReplayState::Done);
    }
    assert_eq!(world.statuses(one).await, [DeliveryStatus::Dead]);
    assert_eq!(world.statuses(other).await, [DeliveryStatus::Succeeded]);
}

pub async fn replay_job_counts_outcomes_after_attempts_are_pruned(mut world: World) {
    world.keep(world.shop, brief_attempts()).await;
    let (event, _) = ended(&world, world.arrival(), NextStep::Succeeded).await;
    world.wait(DAY * 2);
    let job = selected(&world, resend(all())).await;
    advance(&world, job, MANY).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY);
    assert_eq!(world.prune_all(SERVER).await.attempts, 2);

    let step = advance(&world, job, MANY).await;

    assert_eq!(step.outcomes, BTreeMap::from([(ReplayItemOutcome::Succeeded, 1)]));
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]);
}

async fn join(world: &World, event: EventId) -> JoinResult {
    let (destination, request, now) = (world.crm, world.id(), world.now);
    world.join(JoinRequest { event, destination, request, revive: true, now }).await.unwrap()
}

pub async fn joining_sender_gets_the_result_after_attempts_are_pruned(mut world: World) {
    world.keep(world.shop, all_brief()).await;
    let endings = [
        NextStep::Succeeded,
        NextStep::Dead(DeadReason::PayloadError),
        NextStep::Dead(DeadReason::MaxRetries),
    ];
    let mut events = Vec::new();
    for next in endings {
        events.push(ended(&world, world.arrival(), next).await.0);
    }
    world.wait(DAY * 2);
    assert_eq!(world.prune_all(SERVER).await.attempts, 3);

    let bare = |next| JoinResult::Ended(SyncResult { next, class: None, response: Vec::new() });
    assert_eq!(join(&world, events[0]).await, bare(endings[0]));
    assert_eq!(join(&world, events[1]).await, bare(endings[1]));
    // Another try would mend it, but there is nothing left to be tried.
    assert_eq!(join(&world, events[2]).await, JoinResult::Forgotten);
    assert_eq!(world.statuses(events[2]).await, [DeliveryStatus::Dead]);
}

pub async fn attempts_of_a_delivery_revived_by_join_are_pruned(mut world: World) {
    world.keep(world.shop, brief_attempts()).await;
    let (event, _) = ended(&world, world.arrival(), DEAD).await;
    world.wait(DAY * 2);
    world.prune_all(SERVER).await;
    assert_eq!(attempts(&world, event).await, 1, "it is dead");

    assert!(matches!(join(&world, event).await, JoinResult::Underway { .. }));
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY);

    assert_eq!(world.prune_all(SERVER).await.attempts, 2);
    assert_eq!(attempts(&world, event).await, 0);
}
