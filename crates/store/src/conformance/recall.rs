//! What memory may say: "that is stored", and only when it is.
//!
//! A store may always answer `None`. So these cases ask what must never be said; that the embedded
//! store does remember is a test of its own.

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    ids::EventId,
    store::{NextStep, ReplayResult},
};

use super::{World, samples::payload, world::WINDOW};

fn recall(world: &World, event: &NewEvent) -> Option<EventId> {
    let key = &event.key.as_ref().unwrap().key;
    world.find_committed(event.source, key, &event.payload.fingerprint, world.now)
}

pub async fn find_committed_returns_only_committed_events(mut world: World) {
    let first = world.keyed("k");
    assert_eq!(recall(&world, &first), None, "it is not stored yet");
    world.accept(first.clone()).await;

    let other_source = NewEvent { source: world.bank, ..first.clone() };
    let other_bytes = NewEvent { payload: payload(b"other"), ..first.clone() };

    assert!([None, Some(first.id)].contains(&recall(&world, &first)));
    assert_eq!(recall(&world, &other_source), None);
    // Other bytes must reach the file, where the difference is written down.
    assert_eq!(recall(&world, &other_bytes), None);
    world.wait(WINDOW);
    assert_eq!(recall(&world, &first), None, "its time has passed");
    let second = world.again(&first);
    world.accept(second.clone()).await;
    assert!([None, Some(second.id)].contains(&recall(&world, &first)));
}

pub async fn find_committed_ignores_events_of_a_refused_request(world: World) {
    let known = world.accept(world.arrival()).await;
    let good = world.keyed("k");
    let bad = NewEvent { id: known, ..world.arrival() };

    assert!(world.admit(vec![good.clone(), bad]).await.is_err());

    assert_eq!(recall(&world, &good), None);
}

pub async fn find_committed_ignores_events_with_a_dead_delivery(world: World) {
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;

    world.finish_due(world.crm, NextStep::Dead(DeadReason::Unrecoverable)).await;

    assert_eq!(recall(&world, &first), None);
    world.finish_due(world.mail, NextStep::Succeeded).await;
    assert_eq!(recall(&world, &first), None);
}

pub async fn find_committed_still_ignores_a_dead_event_after_a_duplicate(world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::Unrecoverable)).await;
    let copy = NewEvent { revive_dead: false, ..world.again(&first) };

    world.expect_duplicate(copy).await;

    assert_eq!(recall(&world, &first), None);
    let dead = world.only_delivery(first.id).await.id;
    let replayed = world.replay(dead, world.id(), world.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }));
    world.finish_due(world.crm, NextStep::Dead(DeadReason::Unrecoverable)).await;
    assert_eq!(recall(&world, &first), None, "the replay died too");
}

pub async fn duplicates_answered_from_memory_are_counted(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    let mut seen = 0;
    for _ in 0..40 {
        world.wait(std::time::Duration::from_millis(1));
        if let Some(original) = recall(&world, &first) {
            assert_eq!(original, first.id);
        } else {
            world.expect_duplicate(world.again(&first)).await;
        }
        seen += 1;
    }

    // The counts may be late while the store is open; after its end they are on the disk.
    world.reopen().await;

    assert_eq!(world.counts().duplicates, seen);
    let event = world.detail(first.id).await.event;
    assert_eq!((event.duplicates, event.last_duplicate_at), (seen, Some(world.now)));
    assert_eq!(world.count(DeliveryStatus::Pending), 1);
}
