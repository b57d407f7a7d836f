//! What goes before its event, by the wish of its source, and what is never touched.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    ids::{DeliveryId, EventId},
    retention::RetentionSpec,
    store::{ConfigChange, NextStep, PruneReport, ReplayResult},
    time::HumanDuration,
};

use super::{World, samples::payload, world::WINDOW};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// How long the server keeps events.
const SERVER: Duration = Duration::from_secs(30 * 86_400);
const DEAD: NextStep = NextStep::Dead(DeadReason::MaxRetries);

fn days(days: u64) -> Option<HumanDuration> {
    Some(HumanDuration::from_secs(days * 86_400))
}

/// Bodies for seven days, attempts for fourteen.
fn seven_and_fourteen() -> RetentionSpec {
    RetentionSpec { bodies: days(7), attempts: days(14), ..RetentionSpec::default() }
}

/// Whether the body is there, and how many attempts are, over all deliveries.
async fn left(world: &World, event: EventId) -> (bool, usize) {
    let body = world.body(event).await.unwrap().is_some();
    let detail = world.detail(event).await;
    assert_eq!(detail.event.body_removed, !body);
    assert_eq!(detail.head.is_some(), body, "the head goes with the body");
    let mut attempts = 0;
    for delivery in detail.deliveries {
        attempts += world.delivery_detail(delivery.id).await.attempts.len();
    }
    (body, attempts)
}

async fn replay(world: &World, old: DeliveryId) -> ReplayResult {
    world.replay(old, world.id(), world.now).await.unwrap()
}

pub async fn body_is_pruned_before_its_event_and_metadata_stays(mut world: World) {
    world.keep(world.shop, seven_and_fourteen()).await;
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;
    let differing = NewEvent { payload: payload(b"other"), ..world.again(&first) };
    world.expect_duplicate(differing).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;

    world.wait(DAY * 7);
    assert_eq!(world.prune_all(SERVER).await.bodies, 0, "the border is exact");
    world.wait(SECOND);
    let pruned = world.prune_all(SERVER).await;

    assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 1, 0));
    world.reopen().await;
    assert_eq!(left(&world, first.id).await, (false, 2));
    let detail = world.detail(first.id).await;
    let facts = (detail.fingerprint, detail.event.body_bytes, detail.event.key.as_deref());
    let body_bytes = first.payload.body.len() as u64;
    assert_eq!(facts, (first.payload.fingerprint, body_bytes, Some("k")));
    let copy = &detail.duplicates[0];
    assert!(copy.bytes_differ && copy.body.is_none(), "that it differed is a fact: {copy:?}");
    assert_eq!(replay(&world, first.deliveries[0].id).await, ReplayResult::BodyRemoved);
    assert_eq!(world.statuses(first.id).await, [DeliveryStatus::Succeeded; 2]);
}

pub async fn attempts_are_pruned_and_their_counts_stay(mut world: World) {
    world.keep(world.shop, seven_and_fourteen()).await;
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::RetryAt(world.now)).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;

    world.wait(DAY * 14 + SECOND);
    let pruned = world.prune_all(SERVER).await;

    assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 1, 2));
    assert_eq!(left(&world, event).await, (false, 0));
    let delivery = world.only_delivery(event).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Succeeded, 2));
    let counts = world.counts();
    assert_eq!((counts.attempts, counts.retries), (2, 1));
    world.wait(DAY * 16);
    assert_eq!(world.prune_all(SERVER).await.events, 1);
    assert!(world.event(event).await.unwrap().is_none());
}

pub async fn each_source_has_its_own_retention(mut world: World) {
    world.keep(world.shop, seven_and_fourteen()).await;
    let brief = RetentionSpec { events: days(2), ..RetentionSpec::default() };
    world.keep(world.bank, brief).await;
    let of_shop = world.accept(world.arrival()).await;
    let of_bank = world.accept(NewEvent { source: world.bank, ..world.arrival() }).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;

    world.wait(DAY * 2 + SECOND);
    let pruned = world.prune_all(SERVER).await;

    assert_eq!(pruned, PruneReport { events: 1, ..PruneReport::default() });
    assert!(world.event(of_bank).await.unwrap().is_none());
    assert_eq!(left(&world, of_shop).await, (true, 1));
    // What was deleted keeps as it said last.
    world.change(vec![ConfigChange::DeleteSource(world.shop)], world.now).await.unwrap();
    world.wait(DAY * 5);
    assert_eq!(world.prune_all(SERVER).await.bodies, 1);
}

pub async fn unfinished_event_keeps_body_and_attempts(mut world: World) {
    let brief = RetentionSpec { bodies: days(1), attempts: days(1), ..RetentionSpec::default() };
    world.keep(world.shop, brief).await;
    let event = world.keyed_for_both("k");
    world.accept(event.clone()).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.finish_due(world.crm, NextStep::RetryAt(world.now + DAY * 365)).await;

    for _ in 0..20 {
        world.wait(DAY * 10);
        let pruned = world.prune_all(SERVER).await;
        assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 0, 0));
        world.reopen().await;
    }
    assert_eq!(left(&world, event.id).await, (true, 2));
    assert_eq!(world.body(event.id).await.unwrap(), Some(event.payload));
    world.wait(DAY * 165);
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(world.prune_all(SERVER).await.events, 0, "it is in flight");
    world.finish(&claimed, NextStep::Succeeded).await;
    world.wait(DAY);
    assert_eq!(world.prune_all(SERVER).await.events, 1);
}

pub async fn event_that_ends_late_loses_body_and_attempts(mut world: World) {
    let attempts = RetentionSpec { attempts: days(1), ..RetentionSpec::default() };
    for (spec, expected) in [(bodies(1), (false, 2)), (attempts, (true, 0))] {
        world.keep(world.shop, spec).await;
        let event = world.accept(world.arrival()).await;
        world.finish_due(world.crm, NextStep::RetryAt(world.now)).await;
        for _looked_at_in_vain in 0..4 {
            world.wait(DAY * 2);
            world.prune_all(SERVER).await;
            assert_eq!(left(&world, event).await, (true, 1));
        }
        world.finish_due(world.crm, NextStep::Succeeded).await;
        world.wait(DAY);

        world.prune_all(SERVER).await;

        assert_eq!(left(&world, event).await, expected, "case: {spec:?}");
    }
}

pub async fn dead_letter_keeps_body_and_attempts_for_replay(mut world: World) {
    world.keep(world.shop, seven_and_fourteen()).await;
    let event = world.keyed_for_both("k");
    world.accept(event.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;

    world.wait(DAY * 20);
    let pruned = world.prune_all(SERVER).await;

    assert_eq!((pruned.bodies, pruned.attempts), (0, 0));
    assert_eq!(left(&world, event.id).await, (true, 2));
    let replayed = replay(&world, event.deliveries[0].id).await;
    assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
    world.finish_due(world.crm, NextStep::Succeeded).await;
    // Now that nothing of it is dead, it is like any other of its age.
    world.wait(DAY);
    let pruned = world.prune_all(SERVER).await;
    assert_eq!((pruned.bodies, pruned.attempts), (1, 3));
    assert_eq!(left(&world, event.id).await, (false, 0));
}

pub async fn dead_letter_retention_follows_the_source_setting(mut world: World) {
    let spec = RetentionSpec { dead_letters: days(16), ..seven_and_fourteen() };
    world.keep(world.shop, spec).await;
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, DEAD).await;
    let delivery = world.only_delivery(event).await.id;

    for (age, expected) in [(8, (true, 1)), (15, (true, 1)), (18, (false, 0))] {
        world.wait(DAY * age - world.now.since(world.detail(event).await.event.received_at));
        world.prune_all(SERVER).await;
        assert_eq!(left(&world, event).await, expected, "after {age} days");
    }
    assert_eq!(replay(&world, delivery).await, ReplayResult::BodyRemoved);
    assert_eq!(world.only_delivery(event).await.status, DeliveryStatus::Dead);
    assert_eq!(world.count(DeliveryStatus::Dead), 1, "it is still listed, and counted");
}

pub async fn duplicate_does_not_revive_an_event_without_body(mut world: World) {
    let brief = RetentionSpec {
        bodies: Some(HumanDuration::from_secs(1)),
        attempts: Some(HumanDuration::from_secs(1)),
        dead_letters: Some(HumanDuration::from_secs(1)),
        ..RetentionSpec::default()
    };
    world.keep(world.shop, brief).await;
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    world.wait(SECOND * 2);
    assert_eq!(world.prune_all(SERVER).await.bodies, 1);

    let other = NewEvent { payload: payload(b"other"), ..world.again(&first) };
    let duplicate = world.expect_duplicate(other).await;

    assert!(duplicate.bytes_differ && duplicate.revived.is_empty(), "{duplicate:?}");
    let copies = world.detail(first.id).await.duplicates;
    assert!(copies[0].bytes_differ && copies[0].body.is_none(), "no body outlives the original's");
    assert_eq!(world.statuses(first.id).await, [DeliveryStatus::Dead]);
}

/// Bodies for so many days.
fn bodies(span: u64) -> RetentionSpec {
    RetentionSpec { bodies: days(span), ..RetentionSpec::default() }
}

pub async fn retention_setting_can_be_changed_at_any_time(mut world: World) {
    world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY * 8);

    for (spec, expected) in [(RetentionSpec::default(), 0), (bodies(9), 0), (bodies(7), 1)] {
        world.keep(world.shop, spec).await;
        assert_eq!(world.prune_all(SERVER).await.bodies, expected, "case: {spec:?}");
    }

    // Longer again: what is gone is gone, what comes is kept.
    world.keep(world.shop, bodies(20)).await;
    let second = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY * 10);
    assert_eq!(world.prune_all(SERVER).await.bodies, 0);
    assert_eq!(left(&world, second).await, (true, 1));
}

pub async fn restored_retention_setting_prunes_events_skipped_before(mut world: World) {
    world.keep(world.shop, bodies(7)).await;
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, DEAD).await;
    world.wait(DAY * 8);
    assert_eq!(world.prune_all(SERVER).await.bodies, 0, "it is dead");
    world.keep(world.shop, RetentionSpec::default()).await;
    world.wait(DAY);
    world.prune_all(SERVER).await;

    let dead_letters = days(7);
    world.keep(world.shop, RetentionSpec { dead_letters, ..bodies(7) }).await;
    world.wait(DAY);

    world.prune_all(SERVER).await;
    // Attempts are kept for as long as the event, and so is what a dead letter needs.
    assert_eq!(left(&world, event).await, (true, 1));
    world.keep(world.shop, RetentionSpec { dead_letters, attempts: days(7), ..bodies(7) }).await;
    world.wait(DAY);
    world.prune_all(SERVER).await;
    assert_eq!(left(&world, event).await, (false, 0));
}

pub async fn event_committed_late_is_still_pruned(mut world: World) {
    let brief = RetentionSpec { bodies: days(1), ..RetentionSpec::default() };
    world.keep(world.shop, brief).await;
    let nothing_owed = |world: &World| NewEvent { deliveries: Vec::new(), ..world.arrival() };
    let late = nothing_owed(&world);
    world.wait(SECOND);
    world.accept(nothing_owed(&world)).await;
    world.wait(DAY * 2);
    assert_eq!(world.prune_all(SERVER).await.bodies, 1);

    for _restarted in [false, true] {
        let late = NewEvent { id: world.id(), received_at: late.received_at, ..late.clone() };
        // Its id is that of the time at which it came to the door.
        let id = EventId::new(late.received_at, late.id.uuid().as_u128() << 48);
        world.accept(NewEvent { id, ..late }).await;
        assert_eq!(world.prune_all(SERVER).await.bodies, 1);
        assert_eq!(left(&world, id).await, (false, 0));
        world.reopen().await;
    }
}

pub async fn attempts_of_a_replay_after_pruning_are_pruned(mut world: World) {
    let brief = RetentionSpec { attempts: days(1), ..RetentionSpec::default() };
    world.keep(world.shop, brief).await;
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY * 2);
    assert_eq!(world.prune_all(SERVER).await.attempts, 1);

    let old = world.only_delivery(event).await.id;
    assert!(matches!(replay(&world, old).await, ReplayResult::Created { .. }));
    world.prune_all(SERVER).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    assert_eq!(left(&world, event).await, (true, 1));
    world.wait(DAY);

    assert_eq!(world.prune_all(SERVER).await.attempts, 1);
    assert_eq!(left(&world, event).await, (true, 0));
}

pub async fn pruning_slice_is_bounded(mut world: World) {
    const MANY: usize = 700;
    let spec = RetentionSpec { bodies: days(1), attempts: days(2), ..RetentionSpec::default() };
    world.keep(world.shop, spec).await;
    let events: Vec<NewEvent> = (0..MANY).map(|_| world.arrival()).collect();
    world.admit(events).await.unwrap();
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY * 3);

    let mut slices = 0;
    let mut all = PruneReport::default();
    loop {
        let pruned = world.prune(SERVER, world.now).await.unwrap();
        assert!(pruned.bodies + pruned.attempts <= 400, "too much at once: {pruned:?}");
        all.bodies += pruned.bodies;
        all.attempts += pruned.attempts;
        slices += 1;
        if !pruned.more {
            break;
        }
        // Whatever else happens between two slices.
        if slices == 2 {
            world.reopen().await;
        }
    }

    assert_eq!((all.bodies, all.attempts), (MANY, MANY));
    assert!(slices > 3, "{slices} slices");
    world.wait(WINDOW);
    assert_eq!(world.prune_all(SERVER).await, PruneReport::default(), "nothing is found twice");
}

pub async fn large_bodies_are_pruned_in_small_slices(mut world: World) {
    const LARGE: usize = 5 << 20;
    world.keep(world.shop, bodies(1)).await;
    for _ in 0..4 {
        let large = payload(&vec![b'x'; LARGE]);
        world.accept(NewEvent { payload: large, deliveries: Vec::new(), ..world.arrival() }).await;
    }
    world.wait(DAY * 2);

    let first = world.prune(SERVER, world.now).await.unwrap();

    assert!(first.more && (1..4).contains(&first.bodies), "{first:?}");
    assert_eq!(first.bodies + world.prune_all(SERVER).await.bodies, 4);
}
