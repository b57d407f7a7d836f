//! Admitting events: stored once, completely and durably.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{DuplicateId, NewDelivery, NewEvent},
    store::{AdmitResult, EVENT_DUPLICATE_BYTES_MAX, NextStep},
};
use surehook_types::{ids::EventId, store_error::StoreError};
use tokio::task::JoinSet;

use super::{
    StoreFixture,
    fixture::{WINDOW, payload},
};

const TICK: Duration = Duration::from_millis(1);

pub async fn accepted_event_is_stored_with_all_fields(mut fixture: StoreFixture) {
    let event = fixture.event_with_key("k");

    fixture.accept(event.clone()).await;

    for _restarted in [false, true] {
        let detail = fixture.event_detail(event.id).await;
        let row = detail.event;
        assert_eq!((row.request_id, row.source), (event.request_id, fixture.shop));
        assert_eq!((row.key.as_deref(), row.received_at), (Some("k"), event.received_at));
        assert_eq!(row.body_bytes, u64::try_from(event.payload.body.len()).unwrap());
        assert_eq!((row.duplicates, row.last_duplicate_at), (0, None));
        assert_eq!(detail.head.as_ref(), Some(&*event.payload.head));
        assert_eq!(detail.fingerprint, event.payload.fingerprint);
        assert_eq!(fixture.find_body(event.id).await.unwrap(), Some(event.payload.clone()));
        fixture.reopen().await;
    }
}

pub async fn accepted_event_is_stored_with_its_deliveries(mut fixture: StoreFixture) {
    let event = fixture.event_for_both("k");

    fixture.accept(event.clone()).await;

    for _restarted in [false, true] {
        let deliveries = fixture.event_detail(event.id).await.deliveries;
        assert_eq!(deliveries.len(), 2);
        for (planned, stored) in event.deliveries.iter().zip(&deliveries) {
            assert_eq!((stored.id, stored.event), (planned.id, event.id));
            assert_eq!(stored.destination, planned.destination);
            assert_eq!((stored.status, stored.attempts), (DeliveryStatus::Pending, 0));
            assert_eq!((stored.created_at, stored.ended_at), (event.received_at, None));
            assert_eq!(stored.due_at, Some(event.received_at));
            assert_eq!((stored.replay_of, stored.replayed_by), (None, None));
        }
        fixture.reopen().await;
    }
}

pub async fn body_is_stored_and_claimed_byte_for_byte(fixture: StoreFixture) {
    let every_byte: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    for body in [&b""[..], b"\0", b"\xff\xfe\r\n", b"{\"a\": 1 }\n", &every_byte] {
        let event = NewEvent { payload: payload(body), ..fixture.new_event() };

        fixture.accept(event.clone()).await;

        assert_eq!(fixture.find_body(event.id).await.unwrap(), Some(event.payload));
        assert_eq!(&fixture.claim_one(fixture.crm).await.payload.body[..], body);
    }
}

pub async fn delivery_claimed_at_creation_is_in_flight(fixture: StoreFixture) {
    let claim = Some(fixture.new_claim());
    let delivery = NewDelivery { claim, ..fixture.delivery_to(fixture.crm) };
    let new = NewEvent { deliveries: vec![delivery], ..fixture.new_event() };
    let event = fixture.accept(new.clone()).await;

    let stored = fixture.only_delivery(event).await;

    assert_eq!(
        (stored.status, stored.due_at, stored.attempts),
        (DeliveryStatus::InFlight, None, 0)
    );
    assert!(fixture.claim(fixture.crm, 9).await.is_empty());
    fixture.finish(&StoreFixture::claimed_at_creation(&new), NextStep::Succeeded).await;
}

pub async fn event_without_deliveries_is_accepted(fixture: StoreFixture) {
    let event =
        fixture.accept(NewEvent { deliveries: Vec::new(), ..fixture.event_with_key("k") }).await;

    assert!(fixture.event_detail(event).await.deliveries.is_empty());
    assert_eq!(fixture.expect_duplicate(fixture.event_with_key("k")).await.original, event);
}

pub async fn duplicate_reports_the_original_and_stores_only_a_sighting(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.wait(Duration::from_secs(5));
    let copy = fixture.repeat_of(&first);

    let duplicate = fixture.expect_duplicate(copy.clone()).await;

    assert_eq!(duplicate.original, first.id);
    assert!(!duplicate.bytes_differ);
    assert!(duplicate.revived.is_empty());
    assert!(fixture.find_event(copy.id).await.unwrap().is_none());
    assert!(fixture.find_delivery(copy.deliveries[0].id).await.unwrap().is_none());
    let detail = fixture.event_detail(first.id).await;
    assert_eq!((detail.event.duplicates, detail.event.last_duplicate_at), (1, Some(fixture.now)));
    assert_eq!(detail.deliveries.len(), 1);
    assert_eq!(detail.duplicates.len(), 1);
    assert_eq!(detail.duplicates[0].seen_at, fixture.now);
    assert!(!detail.duplicates[0].bytes_differ);
    assert_eq!(detail.duplicates[0].body, None);
}

pub async fn same_key_from_another_source_is_a_new_event(fixture: StoreFixture) {
    let from_shop = fixture.accept(fixture.event_with_key("k")).await;
    let from_bank =
        fixture.accept(NewEvent { source: fixture.bank, ..fixture.event_with_key("k") }).await;

    let again = NewEvent { source: fixture.bank, ..fixture.event_with_key("k") };

    assert_ne!(from_shop, from_bank);
    assert_eq!(fixture.expect_duplicate(again).await.original, from_bank);
}

pub async fn keys_that_differ_in_one_byte_are_different_keys(fixture: StoreFixture) {
    // Case, width, composition and surrounding space make a different key.
    for key in ["a", "A", "ａ", "a ", " a", "\u{e9}", "e\u{301}", "1", "1.0", "%", "_"] {
        fixture.accept(fixture.event_with_key(key)).await;
    }
    assert_eq!(fixture.counts().await.events, 11);
}

pub async fn key_is_accepted_again_after_the_dedup_window(mut fixture: StoreFixture) {
    let first = fixture.accept(fixture.event_with_key("k")).await;
    fixture.wait(WINDOW - TICK);
    assert_eq!(fixture.expect_duplicate(fixture.event_with_key("k")).await.original, first);

    fixture.wait(TICK);
    let second = fixture.accept(fixture.event_with_key("k")).await;

    assert_eq!(fixture.expect_duplicate(fixture.event_with_key("k")).await.original, second);
    assert_eq!(fixture.event_detail(first).await.event.duplicates, 1);
}

pub async fn duplicate_does_not_extend_the_dedup_window(mut fixture: StoreFixture) {
    fixture.accept(fixture.event_with_key("k")).await;
    fixture.wait(WINDOW / 2);
    fixture.expect_duplicate(fixture.event_with_key("k")).await;

    fixture.wait(WINDOW / 2);

    fixture.accept(fixture.event_with_key("k")).await;
}

pub async fn event_without_key_is_never_a_duplicate(fixture: StoreFixture) {
    let first = fixture.new_event();
    fixture.accept(first.clone()).await;

    let copy = fixture.accept(fixture.repeat_of(&first)).await;

    assert_eq!(fixture.find_body(copy).await.unwrap(), Some(first.payload));
    assert_eq!(fixture.counts().await.no_key, 2);
}

pub async fn request_with_one_invalid_event_stores_nothing(mut fixture: StoreFixture) {
    let existing = fixture.accept(fixture.new_event()).await;
    let good = fixture.event_with_key("k");
    let with_known_id = NewEvent { id: existing, ..fixture.new_event() };

    let refused = fixture.admit(vec![good.clone(), fixture.new_event(), with_known_id]).await;

    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert!(fixture.find_event(good.id).await.unwrap().is_none());
    assert!(fixture.find_delivery(good.deliveries[0].id).await.unwrap().is_none());
    fixture.reopen().await;
    assert_eq!(all_events(&fixture).await, [existing]);
    // The key was not stored either: the sender's retry must not be taken for a duplicate.
    fixture.accept(fixture.event_with_key("k")).await;
}

pub async fn repeated_key_within_one_request_is_a_duplicate(fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    let other = NewEvent { payload: payload(b"other bytes"), ..fixture.repeat_of(&first) };
    let request =
        vec![first.clone(), fixture.event_with_key("l"), fixture.repeat_of(&first), other];

    let admitted = fixture.admit(request).await.unwrap();

    let results: Vec<_> = admitted
        .iter()
        .map(|admitted| match admitted {
            AdmitResult::Duplicate(duplicate) => Some((duplicate.original, duplicate.bytes_differ)),
            AdmitResult::Accepted { .. }
            | AdmitResult::DeliveredBefore(_)
            | AdmitResult::SourceGone
            | AdmitResult::OtherBody(_) => None,
        })
        .collect();
    assert_eq!(results, [None, None, Some((first.id, false)), Some((first.id, true))]);
    assert_eq!(fixture.event_detail(first.id).await.event.duplicates, 2);
}

pub async fn refused_request_does_not_affect_concurrent_requests(fixture: StoreFixture) {
    let existing = fixture.accept(fixture.new_event()).await;
    // Sent concurrently, so that a store that commits in batches has them in one batch.
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let is_bad = number % 10 == 5;
        let mut event = fixture.event_with_key(&format!("k{number}"));
        if is_bad {
            event.id = existing;
        }
        let store = fixture.store();
        tasks.spawn(async move { (event.id, is_bad, store.admit([event].into()).await) });
    }
    let mut accepted = vec![existing];
    while let Some(task) = tasks.join_next().await {
        let (id, is_bad, admitted) = task.unwrap();
        assert_eq!(admitted.is_err(), is_bad, "{admitted:?}");
        if !is_bad {
            accepted.push(id);
        }
    }
    accepted.sort();
    accepted.reverse();
    assert_eq!(all_events(&fixture).await, accepted);
    assert_eq!(fixture.counts().await.events, 37);
}

pub async fn concurrent_events_with_one_key_are_accepted_once(fixture: StoreFixture) {
    const COPIES: usize = 50;
    let originals: Vec<NewEvent> =
        (0..12).map(|n| fixture.event_with_key(&format!("k{n}"))).collect();
    let mut tasks = JoinSet::new();
    for _ in 0..COPIES {
        let copies: Vec<NewEvent> =
            originals.iter().map(|event| fixture.repeat_of(event)).collect();
        let store = fixture.store();
        tasks.spawn(async move {
            let mut results = Vec::new();
            for copy in copies {
                let key = copy.key.clone().unwrap().key;
                let id = copy.id;
                results.push((key, id, store.admit([copy].into()).await.unwrap().remove(0)));
            }
            results
        });
    }
    let results: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();

    let accepted: BTreeMap<_, EventId> = results
        .iter()
        .filter(|(_, _, admitted)| matches!(admitted, AdmitResult::Accepted { .. }))
        .map(|(key, id, _)| (key.clone(), *id))
        .collect();
    let times = results
        .iter()
        .filter(|(_, _, admitted)| matches!(admitted, AdmitResult::Accepted { .. }))
        .count();
    assert_eq!((accepted.len(), times), (originals.len(), originals.len()));
    for (key, _, admitted) in &results {
        if let AdmitResult::Duplicate(duplicate) = admitted {
            assert_eq!(duplicate.original, accepted[key]);
        }
    }
    for event in accepted.values() {
        let seen = fixture.event_detail(*event).await.event.duplicates;
        assert_eq!(usize::try_from(seen).unwrap(), COPIES - 1);
    }
}

pub async fn duplicate_with_different_body_is_reported_and_its_body_stored(
    mut fixture: StoreFixture,
) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    let other = NewEvent { payload: payload(b"not the same"), ..fixture.repeat_of(&first) };

    assert!(fixture.expect_duplicate(other).await.bytes_differ);
    assert!(!fixture.expect_duplicate(fixture.repeat_of(&first)).await.bytes_differ);

    fixture.reopen().await;
    let detail = fixture.event_detail(first.id).await;
    let stored: Vec<_> =
        detail.duplicates.iter().map(|seen| (seen.bytes_differ, seen.body.as_deref())).collect();
    assert_eq!(stored, [(true, Some(&b"not the same"[..])), (false, None)]);
    assert_eq!(fixture.find_body(first.id).await.unwrap(), Some(first.payload));
}

pub async fn event_detail_omits_duplicate_bodies_above_the_size_limit(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    let bodies = [vec![b'a'; EVENT_DUPLICATE_BYTES_MAX], b"b".to_vec(), Vec::new()];
    for body in &bodies {
        fixture.wait(TICK);
        let other = NewEvent { payload: payload(body), ..fixture.repeat_of(&first) };
        fixture.expect_duplicate(other).await;
    }

    let detail = fixture.event_detail(first.id).await;

    let results: Vec<_> = detail
        .duplicates
        .iter()
        .map(|seen| (seen.n, seen.bytes_differ, seen.body.is_some(), seen.body_left_out))
        .collect();
    assert_eq!(results, [(1, true, true, false), (2, true, false, true), (3, true, true, false)]);
    let copy = DuplicateId { event: first.id, n: 2 };
    let alone = fixture.find_duplicate(copy).await.unwrap().unwrap().duplicate;
    assert_eq!(alone.body.as_deref(), Some(&b"b"[..]), "a single duplicate shows its body");
}

pub async fn duplicate_count_is_unlimited_but_stored_sightings_are_bounded(
    mut fixture: StoreFixture,
) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;

    for _ in 0..130 {
        fixture.wait(TICK);
        fixture.expect_duplicate(fixture.repeat_of(&first)).await;
    }

    let detail = fixture.event_detail(first.id).await;
    assert_eq!((detail.event.duplicates, detail.event.last_duplicate_at), (130, Some(fixture.now)));
    // The number of stored sightings is bounded; the first ones are stored, in order.
    let times: Vec<_> = detail.duplicates.iter().map(|seen| seen.seen_at).collect();
    let first_ones: Vec<_> =
        (1..).map(|n| first.received_at + TICK * n).take(times.len()).collect();
    assert!((10..130).contains(&times.len()), "{} are stored", times.len());
    assert_eq!(times, first_ones);
    // Many equal repeats do not displace one that differs.
    let other = NewEvent { payload: payload(b"other bytes"), ..fixture.repeat_of(&first) };
    fixture.expect_duplicate(other).await;
    let last = fixture.event_detail(first.id).await.duplicates.pop().unwrap();
    assert_eq!(last.body.as_deref(), Some(&b"other bytes"[..]));
}

pub async fn keys_survive_restart(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    let claim = Some(fixture.new_claim());
    let deliveries = vec![NewDelivery { claim, ..fixture.delivery_to(fixture.crm) }];
    fixture.accept(NewEvent { deliveries, ..first.clone() }).await;
    fixture.expect_duplicate(fixture.repeat_of(&first)).await;

    fixture.reopen().await;

    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.original, first.id);
    assert_eq!(fixture.event_detail(first.id).await.event.duplicates, 2);
}

async fn all_events(fixture: &StoreFixture) -> Vec<EventId> {
    let rows = fixture.all_events().await;
    rows.iter().map(|row| row.id).collect()
}
