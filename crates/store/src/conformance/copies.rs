//! Duplicates one by one, and those of which a person says that they are none.

use std::time::Duration;

use serde_json::json;
use surehook_core::{
    decision::EventDecisionKind,
    event::{DuplicateId, NewEvent},
    ids::EventId,
    retention::RetentionSpec,
    store::{AdmitResult, DuplicateDetail, NextStep, StoreError},
    time::HumanDuration,
};
use tokio::task::JoinSet;

use super::{World, samples::payload};

const SECOND: Duration = Duration::from_secs(1);

/// An event that came again with the same bytes, and then with others.
async fn seen_three_times(world: &mut World) -> NewEvent {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.wait(SECOND);
    world.expect_duplicate(world.again(&first)).await;
    world.wait(SECOND);
    let other = NewEvent { payload: payload(b"other bytes"), ..world.again(&first) };
    assert!(world.expect_duplicate(other).await.bytes_differ);
    first
}

async fn copy(world: &World, event: EventId, n: u32) -> DuplicateDetail {
    world.duplicate(DuplicateId { event, n }).await.unwrap().unwrap()
}

/// An event that is made of a duplicate.
fn made_of(world: &World, event: EventId, n: u32) -> NewEvent {
    NewEvent { from_duplicate: Some(DuplicateId { event, n }), ..world.arrival() }
}

pub async fn duplicate_is_found_by_event_and_number(mut world: World) {
    let first = seen_three_times(&mut world).await;

    world.reopen().await;

    for (n, expected) in [(1, None), (2, Some(&b"other bytes"[..]))] {
        let found = copy(&world, first.id, n).await;
        assert_eq!((found.event.id, found.duplicate.n), (first.id, n));
        assert_eq!(found.original, Some(first.payload.clone()));
        assert_eq!(found.duplicate.seen_at, first.received_at + SECOND * n);
        assert_eq!(found.duplicate.bytes_differ, expected.is_some());
        assert_eq!(found.duplicate.body.as_deref(), expected);
        assert_eq!(found.duplicate.delivered_as, None);
    }
    let listed = world.detail(first.id).await.duplicates;
    assert_eq!(listed.iter().map(|row| row.n).collect::<Vec<_>>(), [1, 2]);
    for (event, n) in [(first.id, 0), (first.id, 3), (first.id, u32::MAX), (world.id(), 1)] {
        assert!(world.duplicate(DuplicateId { event, n }).await.unwrap().is_none(), "case: {n}");
    }
}

/// What memory answers is written late. It must not take the number of one that was looked at.
pub async fn duplicate_number_never_changes(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    let seen_before = world.now + SECOND;
    world.wait(2 * SECOND);
    let other = NewEvent { payload: payload(b"other bytes"), ..world.again(&first) };
    world.expect_duplicate(other).await;
    let key = first.key.as_ref().unwrap().key.clone();
    let recalled =
        world.find_committed(first.source, &key, &first.payload.fingerprint, seen_before).is_some();

    world.reopen().await;

    assert!(copy(&world, first.id, 1).await.duplicate.bytes_differ);
    let listed = world.detail(first.id).await.duplicates;
    let expected: &[u32] = if recalled { &[2, 1] } else { &[1] };
    assert_eq!(listed.iter().map(|row| row.n).collect::<Vec<_>>(), expected);
}

/// Both stories name the other event.
async fn told_in_both(world: &World, first: EventId, new: EventId) {
    for (of, other, kind) in [
        (first, new, EventDecisionKind::DeliveredAnyway),
        (new, first, EventDecisionKind::NotADuplicate),
    ] {
        let told = world.detail(of).await.decisions;
        assert_eq!((told.len(), told[0].kind), (1, kind));
        assert_eq!(told[0].detail, json!({ "event": other, "n": 2 }));
    }
}

pub async fn duplicate_is_delivered_anyway_once(mut world: World) {
    let first = seen_three_times(&mut world).await;
    let new = made_of(&world, first.id, 2);

    world.accept(new.clone()).await;

    for _restarted in [false, true] {
        let again = world.admit_one(made_of(&world, first.id, 2)).await;
        assert_eq!(again, AdmitResult::DeliveredBefore(new.id));
        assert_eq!(world.admit_one(new.clone()).await, AdmitResult::DeliveredBefore(new.id));
        assert_eq!(world.counts().events, 2);
        assert_eq!(copy(&world, first.id, 2).await.duplicate.delivered_as, Some(new.id));
        assert_eq!(copy(&world, first.id, 1).await.duplicate.delivered_as, None);
        told_in_both(&world, first.id, new.id).await;
        assert_eq!(world.only_delivery(new.id).await.id, new.deliveries[0].id);
        world.reopen().await;
    }
    // The key is still that of the first, and the other copy can be delivered too.
    assert_eq!(world.expect_duplicate(world.again(&first)).await.original, first.id);
    world.accept(made_of(&world, first.id, 1)).await;
}

pub async fn concurrent_deliver_anyway_requests_create_one_event(mut world: World) {
    let first = seen_three_times(&mut world).await;
    let mut wishes = JoinSet::new();
    for _ in 0..16 {
        let (store, event) = (world.store(), made_of(&world, first.id, 1));
        wishes
            .spawn(async move { (event.id, store.admit([event].into()).await.unwrap().remove(0)) });
    }
    let answers = wishes.join_all().await;

    let (made, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|(_, told)| matches!(told, AdmitResult::Accepted { .. }));
    assert_eq!(made.len(), 1);
    let expected = AdmitResult::DeliveredBefore(made[0].0);
    assert!(refused.iter().all(|(_, told)| *told == expected), "{refused:?}");
    assert_eq!(world.counts().events, 2);
}

pub async fn deliver_anyway_of_unknown_duplicate_is_refused(mut world: World) {
    let first = seen_three_times(&mut world).await;
    for (event, n) in [(first.id, 0), (first.id, 3), (world.id(), 1)] {
        let told = world.admit(vec![made_of(&world, event, n)]).await;
        assert!(matches!(told, Err(StoreError::Refused(_))), "{told:?}");
    }
    assert_eq!(world.counts().events, 1);
}

pub async fn link_to_delivered_duplicate_survives_body_pruning(mut world: World) {
    let keep = RetentionSpec { bodies: Some(HumanDuration(SECOND)), ..RetentionSpec::default() };
    world.keep(world.shop, keep).await;
    let first = seen_three_times(&mut world).await;
    let new = made_of(&world, first.id, 2);
    world.accept(new.clone()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(60 * SECOND);

    world.prune_all(Duration::from_secs(86_400)).await;

    let found = copy(&world, first.id, 2).await;
    assert!(found.original.is_none() && found.duplicate.body.is_none());
    assert!(found.duplicate.bytes_differ);
    assert_eq!(found.duplicate.delivered_as, Some(new.id));
}
