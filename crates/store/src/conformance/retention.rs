//! What goes when its time has passed, and what never does.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::{DedupKeyClaim, NewEvent},
    store::{ConfigChange, EventFilter, NextStep, PageRequest, PruneReport, ReplayResult},
};

use super::{World, world::WINDOW};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
const TICK: Duration = Duration::from_millis(1);

pub async fn expired_ended_event_is_pruned_with_all_its_rows(mut world: World) {
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;
    world.expect_duplicate(world.again(&first)).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    let replayed = world.replay(first.deliveries[0].id, world.id(), world.now).await.unwrap();
    let ReplayResult::Created { delivery: heir, .. } = replayed else { panic!("{replayed:?}") };
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    world.wait(SECOND);

    let pruned = world.prune(Duration::ZERO, world.now).await.unwrap();

    assert_eq!(pruned, PruneReport { events: 1, keys: 0, ..PruneReport::default() });
    world.reopen().await;
    assert!(world.event(first.id).await.unwrap().is_none());
    assert!(world.body(first.id).await.unwrap().is_none());
    for delivery in [first.deliveries[0].id, first.deliveries[1].id, heir] {
        assert!(world.delivery(delivery).await.unwrap().is_none());
    }
    let gone = world.replay(heir, world.id(), world.now).await.unwrap();
    assert_eq!(gone, ReplayResult::NotFound);
}

pub async fn pruned_events_stay_in_totals_only(mut world: World) {
    for n in 0..2 {
        let event = world.keyed_for_both(&format!("k{n}"));
        world.accept(event.clone()).await;
        world.expect_duplicate(world.again(&event)).await;
    }
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.wait(SECOND);

    world.prune(Duration::ZERO, world.now).await.unwrap();

    let counts = world.counts();
    assert!(counts.by_status.values().all(|many| *many == 0), "{counts:?}");
    let dead = counts.dead[&DeadReason::MaxRetries];
    assert_eq!((dead.total, dead.pending), (2, 0));
    assert_eq!((counts.events, counts.attempts, counts.duplicates), (2, 4, 2));
}

pub async fn event_with_unfinished_delivery_is_not_pruned(mut world: World) {
    let events: Vec<NewEvent> = (0..3).map(|n| world.keyed_for_both(&format!("k{n}"))).collect();
    world.admit(events.clone()).await.unwrap();
    world.finish_due(world.mail, NextStep::Succeeded).await;
    let claimed = world.claim(world.crm, 2).await;
    world.finish(&claimed[0], NextStep::RetryAt(world.now + SECOND)).await;
    world.wait(Duration::from_secs(86_400 * 365));

    let pruned = world.prune(Duration::ZERO, world.now).await.unwrap();

    assert_eq!(pruned.events, 0);
    let expected = [DeliveryStatus::Scheduled, DeliveryStatus::InFlight, DeliveryStatus::Pending];
    for (event, status) in events.iter().zip(expected) {
        assert_eq!(world.statuses(event.id).await, [status, DeliveryStatus::Succeeded]);
        assert_eq!(world.body(event.id).await.unwrap(), Some(event.payload.clone()));
    }
    // It is looked at more than once in vain.
    for _ in 0..3 {
        world.wait(DAY);
        assert_eq!(world.prune_all(Duration::ZERO).await.events, 0);
    }
    world.finish(&claimed[1], NextStep::Succeeded).await;
    world.wait(DAY);
    assert_eq!(world.prune(Duration::ZERO, world.now).await.unwrap().events, 1);
}

pub async fn event_is_pruned_only_after_the_exact_retention_time(mut world: World) {
    let nothing_owed = |world: &World| NewEvent { deliveries: Vec::new(), ..world.arrival() };
    let early = world.accept(nothing_owed(&world)).await;
    world.wait(TICK);
    let late = world.accept(nothing_owed(&world)).await;

    assert_eq!(world.prune(TICK, world.now).await.unwrap().events, 0);
    assert_eq!(world.prune(Duration::ZERO, world.now).await.unwrap().events, 1);

    assert!(world.event(early).await.unwrap().is_none());
    assert!(world.event(late).await.unwrap().is_some());
}

pub async fn key_is_still_known_after_its_event_is_pruned(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::Expired)).await;
    world.wait(SECOND);
    assert_eq!(world.prune(Duration::ZERO, world.now).await.unwrap().events, 1);

    world.reopen().await;
    let duplicate = world.expect_duplicate(world.again(&first)).await;

    assert_eq!(duplicate.original, first.id);
    assert!(duplicate.revived.is_empty(), "there is nothing left to send");
    assert_eq!(world.counts().duplicates, 1);
    world.wait(WINDOW);
    world.accept(world.again(&first)).await;
}

pub async fn event_stays_after_its_key_expires(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.wait(WINDOW);

    let pruned = world.prune(world.now.since(first.received_at), world.now).await.unwrap();

    assert_eq!(pruned, PruneReport { events: 0, keys: 1, ..PruneReport::default() });
    assert_eq!(world.detail(first.id).await.event.key.as_deref(), Some("k"));
    let second = world.accept(world.again(&first)).await;
    assert_eq!(world.expect_duplicate(world.again(&first)).await.original, second);
}

pub async fn expired_key_is_pruned_without_its_event(mut world: World) {
    let brief = DedupKeyClaim { expires_at: world.now + SECOND, ..world.key("brief") };
    world.accept(NewEvent { key: Some(brief), ..world.arrival() }).await;
    let long = world.accept(world.keyed("long")).await;

    world.wait(SECOND - TICK);
    assert_eq!(world.prune(SECOND, world.now).await.unwrap(), PruneReport::default());
    world.wait(TICK);
    let pruned = world.prune(SECOND * 2, world.now).await.unwrap();

    assert_eq!(pruned, PruneReport { events: 0, keys: 1, ..PruneReport::default() });
    assert_eq!(world.expect_duplicate(world.keyed("long")).await.original, long);
}

pub async fn pruning_in_slices_ends_when_nothing_is_left(mut world: World) {
    const MANY: usize = 1200;
    let events: Vec<NewEvent> = (0..MANY)
        .map(|n| NewEvent { deliveries: Vec::new(), ..world.keyed(&format!("k{n}")) })
        .collect();
    world.admit(events).await.unwrap();
    let kept = world.accept(world.arrival()).await;
    world.wait(WINDOW);

    let mut all = PruneReport::default();
    let mut slices = 0;
    loop {
        let pruned = world.prune(Duration::ZERO, world.now).await.unwrap();
        all.events += pruned.events;
        all.keys += pruned.keys;
        slices += 1;
        if !pruned.more {
            break;
        }
    }

    assert_eq!(all, PruneReport { events: MANY, keys: MANY, ..PruneReport::default() });
    assert!(slices > 1, "a slice is bounded, however much there is");
    let page = PageRequest { after: None, limit: 9 };
    let left = world.events(EventFilter::default(), page).await.unwrap().rows;
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [kept]);
}

pub async fn event_with_an_open_replay_is_not_pruned(mut world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(SECOND);
    let old = world.only_delivery(event).await.id;
    let replayed = world.replay(old, world.id(), world.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }));

    assert_eq!(world.prune(Duration::ZERO, world.now).await.unwrap().events, 0);
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    world.wait(SECOND);

    assert_eq!(world.prune(Duration::ZERO, world.now).await.unwrap().events, 1);
    assert!(world.counts().by_status.values().all(|many| *many == 0));
}
