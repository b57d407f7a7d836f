//! Taking events in: stored once, whole, and for good.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::{Lease, state::DeliveryStatus},
    event::{DuplicateId, NewDelivery, NewEvent},
    ids::EventId,
    store::{AdmitResult, EVENT_DUPLICATE_BYTES_MAX, EventFilter, PageRequest, StoreError},
};
use tokio::task::JoinSet;

use super::{World, samples::payload, world::WINDOW};

const TICK: Duration = Duration::from_millis(1);

pub async fn accepted_event_is_stored_with_all_fields(mut world: World) {
    let event = world.keyed("k");

    world.accept(event.clone()).await;

    for _restarted in [false, true] {
        let detail = world.detail(event.id).await;
        let row = detail.event;
        assert_eq!((row.request_id, row.source), (event.request_id, world.shop));
        assert_eq!((row.key.as_deref(), row.received_at), (Some("k"), event.received_at));
        assert_eq!(row.body_bytes, u64::try_from(event.payload.body.len()).unwrap());
        assert_eq!((row.duplicates, row.last_duplicate_at), (0, None));
        assert_eq!(detail.head.as_ref(), Some(&*event.payload.head));
        assert_eq!(detail.fingerprint, event.payload.fingerprint);
        assert_eq!(world.body(event.id).await.unwrap(), Some(event.payload.clone()));
        world.reopen().await;
    }
}

pub async fn accepted_event_is_stored_with_its_deliveries(mut world: World) {
    let event = world.keyed_for_both("k");

    world.accept(event.clone()).await;

    for _restarted in [false, true] {
        let deliveries = world.detail(event.id).await.deliveries;
        assert_eq!(deliveries.len(), 2);
        for (owed, kept) in event.deliveries.iter().zip(&deliveries) {
            assert_eq!((kept.id, kept.event), (owed.id, event.id));
            assert_eq!(kept.destination, owed.destination);
            assert_eq!((kept.status, kept.attempts), (DeliveryStatus::Pending, 0));
            assert_eq!((kept.created_at, kept.ended_at), (event.received_at, None));
            assert_eq!(kept.due_at, Some(event.received_at));
            assert_eq!((kept.replay_of, kept.replayed_by), (None, None));
        }
        world.reopen().await;
    }
}

pub async fn body_is_stored_and_claimed_byte_for_byte(world: World) {
    let every_byte: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    for body in [&b""[..], b"\0", b"\xff\xfe\r\n", b"{\"a\": 1 }\n", &every_byte] {
        let event = NewEvent { payload: payload(body), ..world.arrival() };

        world.accept(event.clone()).await;

        assert_eq!(world.body(event.id).await.unwrap(), Some(event.payload));
        assert_eq!(&world.claim_one(world.crm).await.payload.body[..], body);
    }
}

pub async fn delivery_claimed_at_creation_is_in_flight(world: World) {
    let lease = world.lease();
    let delivery = NewDelivery { claim: Some(lease), ..world.to(world.crm) };
    let event = world.accept(NewEvent { deliveries: vec![delivery], ..world.arrival() }).await;

    let kept = world.only_delivery(event).await;

    assert_eq!((kept.status, kept.due_at, kept.attempts), (DeliveryStatus::InFlight, None, 0));
    assert!(world.claim(world.crm, 9).await.is_empty());
    assert_eq!(world.release_expired(lease.until).await.unwrap(), [world.crm]);
}

pub async fn event_without_deliveries_is_accepted(world: World) {
    let event = world.accept(NewEvent { deliveries: Vec::new(), ..world.keyed("k") }).await;

    assert!(world.detail(event).await.deliveries.is_empty());
    assert_eq!(world.expect_duplicate(world.keyed("k")).await.original, event);
}

pub async fn duplicate_reports_the_original_and_stores_only_a_sighting(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.wait(Duration::from_secs(5));
    let copy = world.again(&first);

    let duplicate = world.expect_duplicate(copy.clone()).await;

    assert_eq!(duplicate.original, first.id);
    assert!(!duplicate.bytes_differ);
    assert!(duplicate.revived.is_empty());
    assert!(world.event(copy.id).await.unwrap().is_none());
    assert!(world.delivery(copy.deliveries[0].id).await.unwrap().is_none());
    let detail = world.detail(first.id).await;
    assert_eq!((detail.event.duplicates, detail.event.last_duplicate_at), (1, Some(world.now)));
    assert_eq!(detail.deliveries.len(), 1);
    assert_eq!(detail.duplicates.len(), 1);
    assert_eq!(detail.duplicates[0].seen_at, world.now);
    assert!(!detail.duplicates[0].bytes_differ);
    assert_eq!(detail.duplicates[0].body, None);
}

pub async fn same_key_from_another_source_is_a_new_event(world: World) {
    let of_the_shop = world.accept(world.keyed("k")).await;
    let of_the_bank = world.accept(NewEvent { source: world.bank, ..world.keyed("k") }).await;

    let again = NewEvent { source: world.bank, ..world.keyed("k") };

    assert_ne!(of_the_shop, of_the_bank);
    assert_eq!(world.expect_duplicate(again).await.original, of_the_bank);
}

pub async fn keys_that_differ_in_one_byte_are_different_keys(world: World) {
    // Case, width, composition and surrounding space all make another key.
    for key in ["a", "A", "ａ", "a ", " a", "\u{e9}", "e\u{301}", "1", "1.0", "%", "_"] {
        world.accept(world.keyed(key)).await;
    }
    assert_eq!(world.counts().events, 11);
}

pub async fn key_is_accepted_again_after_the_dedup_window(mut world: World) {
    let first = world.accept(world.keyed("k")).await;
    world.wait(WINDOW - TICK);
    assert_eq!(world.expect_duplicate(world.keyed("k")).await.original, first);

    world.wait(TICK);
    let second = world.accept(world.keyed("k")).await;

    assert_eq!(world.expect_duplicate(world.keyed("k")).await.original, second);
    assert_eq!(world.detail(first).await.event.duplicates, 1);
}

pub async fn duplicate_does_not_extend_the_dedup_window(mut world: World) {
    world.accept(world.keyed("k")).await;
    world.wait(WINDOW / 2);
    world.expect_duplicate(world.keyed("k")).await;

    world.wait(WINDOW / 2);

    world.accept(world.keyed("k")).await;
}

pub async fn event_without_key_is_never_a_duplicate(world: World) {
    let first = world.arrival();
    world.accept(first.clone()).await;

    let copy = world.accept(world.again(&first)).await;

    assert_eq!(world.body(copy).await.unwrap(), Some(first.payload));
    assert_eq!(world.counts().no_key, 2);
}

pub async fn request_with_one_invalid_event_stores_nothing(mut world: World) {
    let known = world.accept(world.arrival()).await;
    let good = world.keyed("k");
    let its_id_is_taken = NewEvent { id: known, ..world.arrival() };

    let refused = world.admit(vec![good.clone(), world.arrival(), its_id_is_taken]).await;

    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert!(world.event(good.id).await.unwrap().is_none());
    assert!(world.delivery(good.deliveries[0].id).await.unwrap().is_none());
    world.reopen().await;
    assert_eq!(all_events(&world).await, [known]);
    // The key was not taken either: a claim that failed must not swallow the sender's retry.
    world.accept(world.keyed("k")).await;
}

pub async fn repeated_key_within_one_request_is_a_duplicate(world: World) {
    let first = world.keyed("k");
    let other = NewEvent { payload: payload(b"other bytes"), ..world.again(&first) };
    let request = vec![first.clone(), world.keyed("l"), world.again(&first), other];

    let admitted = world.admit(request).await.unwrap();

    let told: Vec<_> = admitted
        .iter()
        .map(|admitted| match admitted {
            AdmitResult::Duplicate(duplicate) => Some((duplicate.original, duplicate.bytes_differ)),
            AdmitResult::Accepted { .. }
            | AdmitResult::DeliveredBefore(_)
            | AdmitResult::SourceGone => None,
        })
        .collect();
    assert_eq!(told, [None, None, Some((first.id, false)), Some((first.id, true))]);
    assert_eq!(world.detail(first.id).await.event.duplicates, 2);
}

pub async fn refused_request_does_not_affect_concurrent_requests(world: World) {
    let known = world.accept(world.arrival()).await;
    // Asked at the same time, so that a store that commits many together has them together.
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let is_bad = number % 10 == 5;
        let mut event = world.keyed(&format!("k{number}"));
        if is_bad {
            event.id = known;
        }
        let store = world.store();
        tasks.spawn(async move { (event.id, is_bad, store.admit([event].into()).await) });
    }
    let mut accepted = vec![known];
    while let Some(done) = tasks.join_next().await {
        let (id, bad, admitted) = done.unwrap();
        assert_eq!(admitted.is_err(), bad, "{admitted:?}");
        if !bad {
            accepted.push(id);
        }
    }
    accepted.sort();
    accepted.reverse();
    assert_eq!(all_events(&world).await, accepted);
    assert_eq!(world.counts().events, 37);
}

pub async fn concurrent_events_with_one_key_are_accepted_once(world: World) {
    const COPIES: usize = 50;
    let originals: Vec<NewEvent> = (0..12).map(|n| world.keyed(&format!("k{n}"))).collect();
    let mut tasks = JoinSet::new();
    for _ in 0..COPIES {
        let copies: Vec<NewEvent> = originals.iter().map(|event| world.again(event)).collect();
        let store = world.store();
        tasks.spawn(async move {
            let mut told = Vec::new();
            for copy in copies {
                let key = copy.key.clone().unwrap().key;
                let id = copy.id;
                told.push((key, id, store.admit([copy].into()).await.unwrap().remove(0)));
            }
            told
        });
    }
    let told: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();

    let accepted: BTreeMap<_, EventId> = told
        .iter()
        .filter(|(_, _, admitted)| matches!(admitted, AdmitResult::Accepted { .. }))
        .map(|(key, id, _)| (key.clone(), *id))
        .collect();
    let times = told
        .iter()
        .filter(|(_, _, admitted)| matches!(admitted, AdmitResult::Accepted { .. }))
        .count();
    assert_eq!((accepted.len(), times), (originals.len(), originals.len()));
    for (key, _, admitted) in &told {
        if let AdmitResult::Duplicate(duplicate) = admitted {
            assert_eq!(duplicate.original, accepted[key]);
        }
    }
    for event in accepted.values() {
        let seen = world.detail(*event).await.event.duplicates;
        assert_eq!(usize::try_from(seen).unwrap(), COPIES - 1);
    }
}

pub async fn duplicate_with_different_body_is_reported_and_its_body_stored(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    let other = NewEvent { payload: payload(b"not the same"), ..world.again(&first) };

    assert!(world.expect_duplicate(other).await.bytes_differ);
    assert!(!world.expect_duplicate(world.again(&first)).await.bytes_differ);

    world.reopen().await;
    let detail = world.detail(first.id).await;
    let kept: Vec<_> =
        detail.duplicates.iter().map(|seen| (seen.bytes_differ, seen.body.as_deref())).collect();
    assert_eq!(kept, [(true, Some(&b"not the same"[..])), (false, None)]);
    assert_eq!(world.body(first.id).await.unwrap(), Some(first.payload));
}

pub async fn event_detail_omits_duplicate_bodies_above_the_size_limit(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    let bodies = [vec![b'a'; EVENT_DUPLICATE_BYTES_MAX], b"b".to_vec(), Vec::new()];
    for body in &bodies {
        world.wait(TICK);
        let other = NewEvent { payload: payload(body), ..world.again(&first) };
        world.expect_duplicate(other).await;
    }

    let detail = world.detail(first.id).await;

    let told: Vec<_> = detail
        .duplicates
        .iter()
        .map(|seen| (seen.n, seen.bytes_differ, seen.body.is_some(), seen.body_left_out))
        .collect();
    assert_eq!(told, [(1, true, true, false), (2, true, false, true), (3, true, true, false)]);
    let copy = DuplicateId { event: first.id, n: 2 };
    let alone = world.duplicate(copy).await.unwrap().unwrap().duplicate;
    assert_eq!(alone.body.as_deref(), Some(&b"b"[..]), "by itself, it is told");
}

pub async fn duplicate_count_is_unlimited_but_stored_sightings_are_bounded(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;

    for _ in 0..130 {
        world.wait(TICK);
        world.expect_duplicate(world.again(&first)).await;
    }

    let detail = world.detail(first.id).await;
    assert_eq!((detail.event.duplicates, detail.event.last_duplicate_at), (130, Some(world.now)));
    // How many times are kept is bounded; those that are kept are the first ones, in order.
    let times: Vec<_> = detail.duplicates.iter().map(|seen| seen.seen_at).collect();
    let first_ones: Vec<_> =
        (1..).map(|n| first.received_at + TICK * n).take(times.len()).collect();
    assert!((10..130).contains(&times.len()), "{} are kept", times.len());
    assert_eq!(times, first_ones);
    // Many harmless repeats do not hide one that differs.
    let other = NewEvent { payload: payload(b"other bytes"), ..world.again(&first) };
    world.expect_duplicate(other).await;
    let last = world.detail(first.id).await.duplicates.pop().unwrap();
    assert_eq!(last.body.as_deref(), Some(&b"other bytes"[..]));
}

pub async fn keys_survive_restart(mut world: World) {
    let first = world.keyed("k");
    let lease = Lease { until: world.now, ..world.lease() };
    let deliveries = vec![NewDelivery { claim: Some(lease), ..world.to(world.crm) }];
    world.accept(NewEvent { deliveries, ..first.clone() }).await;
    world.expect_duplicate(world.again(&first)).await;

    world.reopen().await;

    assert_eq!(world.expect_duplicate(world.again(&first)).await.original, first.id);
    assert_eq!(world.detail(first.id).await.event.duplicates, 2);
}

async fn all_events(world: &World) -> Vec<EventId> {
    let page = PageRequest { after: None, limit: 1000 };
    let rows = world.events(EventFilter::default(), page).await.unwrap().rows;
    rows.iter().map(|row| row.id).collect()
}
