//! Delivering again in bulk: what jobs hand out, count, and survive.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::NewEvent,
    replay::{ReplayItemOutcome, ReplayState, ReplayTransition, SelectionReport, SkipReason},
    store::{ConfigChange, NextStep, ReplayResult},
};
use tokio::task::JoinSet;

use super::{
    World,
    job_kit::{
        DEAD, MANY, ROOMY, TICK, advance, all, count, create, dead_letters, ended, report, resend,
        retry, select, selected,
    },
};

pub async fn job_step_replays_dead_deliveries(mut world: World) {
    let (event, old) = ended(&world, world.keyed("k"), DEAD).await;
    let (other, _) = ended(&world, world.arrival(), NextStep::Succeeded).await;
    world.wait(TICK);

    let job = selected(&world, retry(all())).await;
    let step = advance(&world, job, MANY).await;

    assert_eq!(step.dispatched, BTreeMap::from([(world.crm, 1)]));
    assert_eq!((step.state, step.open, step.queued), (ReplayState::Running, 1, 0));
    let deliveries = world.detail(event).await.deliveries;
    let [was, heir] = &deliveries[..] else { panic!("two deliveries: {deliveries:?}") };
    assert_eq!(
        (was.id, was.status, was.replayed_by),
        (old, DeliveryStatus::Replayed, Some(heir.id))
    );
    assert_eq!((heir.status, heir.replay_of), (DeliveryStatus::Pending, Some(old)));
    assert_eq!(heir.due_at, Some(world.now));
    assert_eq!(world.statuses(other).await, [DeliveryStatus::Succeeded]);
}

pub async fn job_is_done_when_its_deliveries_have_ended(mut world: World) {
    ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, MANY).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(TICK);

    let done = advance(&world, job, MANY).await;

    assert_eq!((done.state, done.open), (ReplayState::Done, 0));
    assert_eq!(done.outcomes, BTreeMap::from([(ReplayItemOutcome::Succeeded, 1)]));
    let row = report(&world, job).await;
    assert_eq!((row.state, row.ended_at), (ReplayState::Done, Some(world.now)));
    assert_eq!(row.progress().dispatched(), 1);
    assert_eq!(advance(&world, job, MANY).await.dispatched, BTreeMap::new(), "it is left alone");
}

pub async fn job_continues_after_restart(mut world: World) {
    const EVENTS: usize = 250;
    let events = dead_letters(&world, EVENTS).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;

    let mut state = ReplayState::Running;
    while state == ReplayState::Running {
        world.reopen().await;
        assert_eq!(world.unfinished_replays().await.unwrap(), [job]);
        state = advance(&world, job, 100).await.state;
        world.finish_due(world.crm, NextStep::Succeeded).await;
    }

    for event in events {
        assert_eq!(
            world.statuses(event).await,
            [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]
        );
    }
    assert_eq!(count(&world, job, ReplayItemOutcome::Succeeded).await, 250);
    assert!(world.unfinished_replays().await.unwrap().is_empty());
}

pub async fn concurrent_selections_and_steps_dispatch_each_delivery_once(mut world: World) {
    const EVENTS: usize = 250;
    let events = dead_letters(&world, EVENTS).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (store, now) = (world.store(), world.now);
        tasks.spawn(async move {
            while store.select_replay(job).await.unwrap()
                == SelectionReport::Now(ReplayState::Selecting)
            {}
            let mut handed = 0;
            loop {
                let step = store.advance_replay(job, 20, ROOMY, now).await.unwrap().unwrap();
                handed += step.dispatched.values().sum::<usize>();
                if step.queued == 0 {
                    return handed;
                }
            }
        });
    }

    let handed: usize = tasks.join_all().await.into_iter().sum();

    assert_eq!(handed, EVENTS);
    for event in events {
        assert_eq!(
            world.statuses(event).await,
            [DeliveryStatus::Replayed, DeliveryStatus::Pending]
        );
    }
    assert_eq!(report(&world, job).await.progress().dispatched(), 250);
}

pub async fn undeliverable_items_are_skipped_with_a_reason(mut world: World) {
    let (_, by_hand) = ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let to_mail = NewEvent { deliveries: vec![world.to(world.mail)], ..world.arrival() };
    ended(&world, to_mail, DEAD).await;
    let (kept, _) = ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;

    let replayed = world.replay(by_hand, world.id(), world.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }));
    world.change(vec![ConfigChange::DeleteDestination(world.mail)], world.now).await.unwrap();
    let step = advance(&world, job, MANY).await;

    let expected = [SkipReason::Superseded, SkipReason::DestinationGone];
    assert_eq!(step.outcomes, expected.map(|skip| (ReplayItemOutcome::Skipped(skip), 1)).into());
    assert_eq!(step.dispatched, BTreeMap::from([(world.crm, 1)]));
    assert_eq!(world.statuses(kept).await, [DeliveryStatus::Replayed, DeliveryStatus::Pending]);
    world.finish_due(world.crm, NextStep::Succeeded).await;
    advance(&world, job, 0).await;
    let row = report(&world, job).await;
    assert_eq!((row.state, row.progress().skipped()), (ReplayState::Done, 2));
    assert_eq!(row.progress().dispatched(), 1);
}

pub async fn item_whose_event_was_pruned_is_skipped(mut world: World) {
    ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    assert_eq!(world.prune_all(Duration::ZERO).await.events, 1);

    let step = advance(&world, job, MANY).await;

    assert_eq!(
        step.outcomes,
        BTreeMap::from([(ReplayItemOutcome::Skipped(SkipReason::EventGone), 1)])
    );
    assert_eq!(report(&world, job).await.state, ReplayState::Done);
}

pub async fn destination_at_its_open_limit_does_not_delay_others(mut world: World) {
    for _ in 0..3 {
        ended(&world, world.arrival(), DEAD).await;
        let to_mail = NewEvent { deliveries: vec![world.to(world.mail)], ..world.arrival() };
        ended(&world, to_mail, DEAD).await;
    }
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    let step = || async { world.advance_replay(job, MANY, 2, world.now).await.unwrap().unwrap() };
    let (crm, mail) = (world.crm, world.mail);

    let first = step().await;
    assert_eq!(first.dispatched, BTreeMap::from([(crm, 2), (mail, 2)]), "two for each");
    assert_eq!((first.open, first.queued), (4, 2));
    assert_eq!(step().await.dispatched, BTreeMap::new(), "and no more");
    world.finish_due(mail, DEAD).await;
    let second = step().await;

    assert_eq!(second.dispatched, BTreeMap::from([(mail, 1)]), "the other one still waits");
    assert_eq!(second.outcomes, BTreeMap::from([(ReplayItemOutcome::Dead, 2)]));
    report(&world, job).await;
}

pub async fn step_limit_is_shared_among_destinations(mut world: World) {
    for _ in 0..3 {
        let both = world.arrival();
        let deliveries = vec![world.to(world.crm), world.to(world.mail)];
        world.accept(NewEvent { deliveries, ..both }).await;
    }
    world.finish_due(world.crm, DEAD).await;
    world.finish_due(world.mail, DEAD).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;

    let step = advance(&world, job, 4).await;

    assert_eq!(step.dispatched, BTreeMap::from([(world.crm, 2), (world.mail, 2)]));
}

pub async fn paused_job_selects_nothing(mut world: World) {
    dead_letters(&world, 3).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;

    world.change_replay(job, ReplayTransition::Pause, world.now).await.unwrap();
    assert_eq!(world.select_replay(job).await.unwrap(), SelectionReport::Now(ReplayState::Paused));
    assert_eq!(report(&world, job).await.progress().selected, 0);

    world.change_replay(job, ReplayTransition::Resume, world.now).await.unwrap();
    select(&world, job).await;
    assert_eq!(report(&world, job).await.progress().selected, 3);
}

pub async fn paused_job_dispatches_nothing(mut world: World) {
    dead_letters(&world, 3).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, 1).await;

    world.change_replay(job, ReplayTransition::Pause, world.now).await.unwrap();
    world.finish_due(world.crm, NextStep::Succeeded).await;
    let step = advance(&world, job, MANY).await;

    // What was handed out before goes on and is counted.
    assert_eq!((step.dispatched.len(), step.state), (0, ReplayState::Paused));
    assert_eq!(step.outcomes, BTreeMap::from([(ReplayItemOutcome::Succeeded, 1)]));
    assert_eq!((world.count(DeliveryStatus::Dead), step.queued), (2, 2));
    assert_eq!(world.unfinished_replays().await.unwrap(), [job]);
}

pub async fn resumed_job_dispatches_the_rest_once(mut world: World) {
    let events = dead_letters(&world, 3).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, 1).await;
    world.change_replay(job, ReplayTransition::Pause, world.now).await.unwrap();

    world.change_replay(job, ReplayTransition::Resume, world.now).await.unwrap();
    select(&world, job).await;
    advance(&world, job, MANY).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    advance(&world, job, 0).await;

    assert_eq!(count(&world, job, ReplayItemOutcome::Succeeded).await, 3);
    for event in events {
        assert_eq!(
            world.statuses(event).await,
            [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]
        );
    }
}

pub async fn cancelled_job_leaves_the_rest_and_counts_open_deliveries(mut world: World) {
    dead_letters(&world, 5).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, 2).await;

    world.change_replay(job, ReplayTransition::Cancel, world.now).await.unwrap();

    let row = report(&world, job).await;
    assert_eq!((row.state, row.ended_at), (ReplayState::Cancelled, Some(world.now)));
    let progress = row.progress();
    assert_eq!((progress.left(row.state), progress.waiting(row.state)), (3, 2));
    assert_eq!(world.unfinished_replays().await.unwrap(), [job], "two are on their way");
    assert_eq!(advance(&world, job, MANY).await.dispatched, BTreeMap::new());
    world.finish_due(world.crm, DEAD).await;
    let step = advance(&world, job, MANY).await;
    assert_eq!((step.open, step.state), (0, ReplayState::Cancelled));
    assert_eq!(count(&world, job, ReplayItemOutcome::Dead).await, 2);
    assert!(world.unfinished_replays().await.unwrap().is_empty());
    assert_eq!(world.count(DeliveryStatus::Dead), 5, "three were never touched, two died again");
}

pub async fn delivery_replayed_later_counts_with_its_first_outcome(mut world: World) {
    for (next, outcome) in
        [(DEAD, ReplayItemOutcome::Dead), (NextStep::Succeeded, ReplayItemOutcome::Succeeded)]
    {
        ended(&world, world.arrival(), DEAD).await;
        world.wait(TICK);
        let job = selected(&world, retry(all())).await;
        advance(&world, job, MANY).await;
        let claimed = world.claim_one(world.crm).await;
        world.finish(&claimed, next).await;
        world.wait(surehook_core::store::REPLAY_INTERVAL);
        let replayed = world.replay(claimed.id, world.id(), world.now).await.unwrap();
        assert!(matches!(replayed, ReplayResult::Created { .. }));

        advance(&world, job, 0).await;

        assert_eq!(count(&world, job, outcome).await, 1);
        world.finish_due(world.crm, NextStep::Succeeded).await;
        world.wait(TICK);
    }
}

pub async fn deleting_a_destination_cancels_its_part_of_the_job(mut world: World) {
    dead_letters(&world, 3).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, 1).await;

    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    advance(&world, job, MANY).await;

    let row = report(&world, job).await;
    assert_eq!(row.state, ReplayState::Done);
    assert_eq!(row.progress().count(ReplayItemOutcome::Cancelled), 1);
    assert_eq!(row.progress().count(ReplayItemOutcome::Skipped(SkipReason::DestinationGone)), 2);
}

pub async fn old_jobs_are_pruned_only_after_they_have_ended(mut world: World) {
    dead_letters(&world, 2).await;
    world.wait(TICK);
    let over = selected(&world, retry(all())).await;
    advance(&world, over, MANY).await;
    world.change_replay(over, ReplayTransition::Cancel, world.now).await.unwrap();
    world.wait(TICK);

    assert!(!world.prune_replays(world.now).await.unwrap(), "two are on their way");
    world.finish_due(world.crm, NextStep::Succeeded).await;
    advance(&world, over, 0).await;
    let running = create(&world, resend(all())).await;
    while world.prune_replays(world.now).await.unwrap() {}

    assert!(world.find_replay(over).await.unwrap().is_none());
    assert_eq!(report(&world, running).await.state, ReplayState::Selecting);
}
