//! Key conflicts: other bodies under a known key, and the same signed bytes under another key.
//!
//! No body that was accepted is dropped: it is the body of an event, or of a stored duplicate.

use std::time::Duration;

use surehook_core::{
    event::{ConflictPolicy, DedupKeyClaim, DuplicateReason, NewEvent},
    retention::RetentionSpec,
    store::{AdmitResult, EventFilter, NextStep, PageRequest},
};
use surehook_types::{ids::EventId, time::HumanDuration};
use surehook_webhooks::key::{KeyNamespace, KeyOrigin};

use super::{
    StoreFixture,
    fixture::{WINDOW, payload},
};

/// An event whose key is a guess.
fn guessed_event(fixture: &StoreFixture, key: &str, body: &str) -> NewEvent {
    let claim = DedupKeyClaim {
        origin: KeyOrigin::Guessed,
        on_conflict: Some(ConflictPolicy::Accept),
        ..fixture.key_claim(key)
    };
    NewEvent { key: Some(claim), payload: payload(body.as_bytes()), ..fixture.new_event() }
}

/// An event whose key is explicit.
fn explicit_event(fixture: &StoreFixture, key: &str, body: &str) -> NewEvent {
    NewEvent { payload: payload(body.as_bytes()), ..fixture.event_with_key(key) }
}

/// An event that claims its signed bytes too, and is accepted with other bytes under its key.
fn signed_event(fixture: &StoreFixture, key: &str, body: &str) -> NewEvent {
    let event = guessed_event(fixture, key, body);
    let signed_bytes = Some(fixture.signed_bytes(event.source, &event.payload));
    NewEvent { signed_bytes, ..event }
}

/// Admits an event that must be new; returns the event that it is in conflict with.
async fn accept_in_conflict(fixture: &StoreFixture, event: NewEvent) -> Option<EventId> {
    let admitted = fixture.admit_one(event).await;
    let AdmitResult::Accepted { key_conflict, .. } = admitted else {
        panic!("expected a new event, got {admitted:?}")
    };
    key_conflict
}

pub async fn other_body_under_a_key_that_refuses_it_is_not_stored(mut fixture: StoreFixture) {
    let refusing = |fixture: &StoreFixture, key: &str, body: &str| NewEvent {
        refuses_other_body: true,
        ..signed_event(fixture, key, body)
    };
    let first = refusing(&fixture, "t1", "paid");
    fixture.accept(first.clone()).await;

    for _ in 0..2 {
        for forged in ["forged", "forged again"] {
            let forged = fixture.admit_one(refusing(&fixture, "t1", forged)).await;
            assert_eq!(forged, AdmitResult::OtherBody(first.id));
        }
        let again = fixture.expect_duplicate(refusing(&fixture, "t1", "paid")).await;
        assert_eq!((again.original, again.bytes_differ), (first.id, false));
        let retried = fixture.expect_duplicate(refusing(&fixture, "t2", "paid")).await;
        assert_eq!(retried.reason, DuplicateReason::SameSignedBytes);
        fixture.reopen().await;
    }
}

pub async fn another_body_under_a_guessed_key_is_a_new_event(mut fixture: StoreFixture) {
    let created = guessed_event(&fixture, "order-1", "created");
    let paid = guessed_event(&fixture, "order-1", "paid");
    let refunded = guessed_event(&fixture, "order-1", "refunded");
    assert_eq!(accept_in_conflict(&fixture, created.clone()).await, None);

    assert_eq!(accept_in_conflict(&fixture, paid.clone()).await, Some(created.id));
    assert_eq!(accept_in_conflict(&fixture, refunded.clone()).await, Some(paid.id));

    fixture.reopen().await;
    for (event, conflict) in
        [(&created, None), (&paid, Some(created.id)), (&refunded, Some(paid.id))]
    {
        let detail = fixture.event_detail(event.id).await;
        assert_eq!(detail.event.key_conflict, conflict);
        assert_eq!(detail.event.key_origin, Some(KeyOrigin::Guessed));
        assert_eq!(detail.event.key.as_deref(), Some("order-1"));
        assert_eq!(detail.deliveries.len(), 1);
        assert_eq!(fixture.find_body(event.id).await.unwrap().as_ref(), Some(&event.payload));
    }
    let counts = fixture.counts().await;
    assert_eq!((counts.events, counts.key_conflicts, counts.duplicates), (3, 2, 0));
}

pub async fn each_accepted_body_is_a_duplicate_of_its_own_event(mut fixture: StoreFixture) {
    let bodies = ["a", "b", "c", "d"];
    let mut events = Vec::new();
    for body in bodies {
        let event = guessed_event(&fixture, "k", body);
        fixture.accept(event.clone()).await;
        events.push(event);
    }
    for _ in 0..2 {
        for event in &events {
            let duplicate = fixture.expect_duplicate(fixture.repeat_of(event)).await;
            assert_eq!((duplicate.original, duplicate.bytes_differ), (event.id, false));
        }
        fixture.reopen().await;
    }
    assert_eq!(fixture.counts().await.events, 4);
}

pub async fn each_body_is_known_until_its_own_window_ends(mut fixture: StoreFixture) {
    let first = guessed_event(&fixture, "k", "first");
    fixture.accept(first.clone()).await;
    fixture.wait(WINDOW / 2);
    let second = guessed_event(&fixture, "k", "second");
    fixture.accept(second.clone()).await;

    fixture.wait(WINDOW / 2);

    // The window of the first has ended, that of the second has not.
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&second)).await.original, second.id);
    let again = fixture.repeat_of(&first);
    assert_eq!(accept_in_conflict(&fixture, again.clone()).await, Some(second.id));
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.original, again.id);
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&second)).await.original, second.id);
}

pub async fn explicit_key_with_too_many_bodies_is_a_new_event(mut fixture: StoreFixture) {
    const BODIES: usize = 150;
    let first = explicit_event(&fixture, "k", "0");
    fixture.accept(first.clone()).await;
    let mut events = vec![first.clone()];
    for number in 1..BODIES {
        let event = explicit_event(&fixture, "k", &number.to_string());
        match fixture.admit_one(event.clone()).await {
            AdmitResult::Accepted { key_conflict, .. } => {
                assert_eq!(key_conflict, events.last().map(|event| event.id));
                events.push(event);
            }
            AdmitResult::Duplicate(duplicate) => assert!(duplicate.bytes_differ),
            other @ (AdmitResult::DeliveredBefore(_)
            | AdmitResult::SourceGone
            | AdmitResult::OtherBody(_)) => panic!("{other:?}"),
        }
    }
    assert!(events.len() > 1, "an event has no room for all bodies");

    fixture.reopen().await;
    let mut stored = Vec::new();
    for event in &events {
        let duplicate = fixture.expect_duplicate(fixture.repeat_of(event)).await;
        assert_eq!((duplicate.original, duplicate.bytes_differ), (event.id, false));
        let detail = fixture.event_detail(event.id).await;
        stored.push(event.payload.body.clone());
        stored.extend(detail.duplicates.into_iter().filter_map(|duplicate| duplicate.body));
    }
    let mut stored: Vec<usize> =
        stored.iter().map(|body| std::str::from_utf8(body).unwrap().parse().unwrap()).collect();
    stored.sort_unstable();
    assert_eq!(stored, (0..BODIES).collect::<Vec<_>>(), "every body is stored once");
}

pub async fn another_body_of_an_event_without_body_is_a_new_event(mut fixture: StoreFixture) {
    let short_retention = RetentionSpec {
        bodies: Some(HumanDuration::from_secs(1)),
        attempts: Some(HumanDuration::from_secs(1)),
        ..RetentionSpec::default()
    };
    fixture.set_retention(fixture.shop, short_retention).await;
    let first = explicit_event(&fixture, "k", "first");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.prune_all(Duration::from_secs(30 * 86_400)).await.bodies, 1);

    let other = explicit_event(&fixture, "k", "other");
    assert_eq!(accept_in_conflict(&fixture, other.clone()).await, Some(first.id));

    assert_eq!(fixture.find_body(other.id).await.unwrap(), Some(other.payload.clone()));
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.original, first.id);
}

pub async fn message_with_known_key_is_never_a_new_event(fixture: StoreFixture) {
    let message = |body: &str| {
        let event = explicit_event(&fixture, "k", body);
        let claim = event.key.clone().map(|claim| DedupKeyClaim { on_conflict: None, ..claim });
        NewEvent { key: claim, ..event }
    };
    let first = message("first");
    fixture.accept(first.clone()).await;

    for number in 0..150 {
        let again = message(&number.to_string());
        assert_eq!(fixture.expect_duplicate(again).await.original, first.id);
    }
}

pub async fn same_signed_bytes_under_another_key_are_a_duplicate(mut fixture: StoreFixture) {
    let first = signed_event(&fixture, "id-1", "body");
    fixture.accept(first.clone()).await;

    fixture.reopen().await;
    for number in 2..8 {
        let replayed = signed_event(&fixture, &format!("id-{number}"), "body");
        let duplicate = fixture.expect_duplicate(replayed).await;
        assert_eq!(duplicate.original, first.id);
        assert_eq!(duplicate.reason, DuplicateReason::SameSignedBytes);
        assert!(!duplicate.bytes_differ);
    }

    // The replays have not taken the keys of later events.
    for number in 2..8 {
        let genuine = signed_event(&fixture, &format!("id-{number}"), &number.to_string());
        assert_eq!(accept_in_conflict(&fixture, genuine).await, None);
    }
    let duplicates = fixture.event_detail(first.id).await.duplicates;
    assert_eq!(duplicates.len(), 6);
    assert!(
        duplicates.iter().all(|duplicate| duplicate.reason == DuplicateReason::SameSignedBytes)
    );
    let again = fixture.expect_duplicate(fixture.repeat_of(&first)).await;
    assert_eq!(again.reason, DuplicateReason::SameKey);
}

pub async fn signed_bytes_without_key_are_a_duplicate(mut fixture: StoreFixture) {
    let first = NewEvent { key: None, ..signed_event(&fixture, "k", "body") };
    fixture.accept(first.clone()).await;

    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.original, first.id);
    assert_eq!(
        fixture.expect_duplicate(signed_event(&fixture, "k", "body")).await.original,
        first.id
    );

    fixture.wait(WINDOW);
    fixture.accept(fixture.repeat_of(&first)).await;
}

pub async fn other_signed_bytes_under_a_known_key_are_accepted(fixture: StoreFixture) {
    // Replayed under the id of an event that has not arrived yet.
    let early = signed_event(&fixture, "id-2", "first");
    fixture.accept(early.clone()).await;

    let genuine = signed_event(&fixture, "id-2", "second");
    assert_eq!(accept_in_conflict(&fixture, genuine.clone()).await, Some(early.id));

    let late = signed_event(&fixture, "id-1", "first");
    assert_eq!(fixture.expect_duplicate(late).await.original, early.id);
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&genuine)).await.original, genuine.id);
}

pub async fn same_key_in_another_namespace_is_not_a_duplicate(fixture: StoreFixture) {
    let in_body = fixture.event_with_key("order-3");
    let claim = DedupKeyClaim { namespace: KeyNamespace::Header, ..fixture.key_claim("order-3") };
    let in_header = NewEvent { key: Some(claim), ..fixture.new_event() };
    fixture.accept(in_header.clone()).await;

    assert_eq!(accept_in_conflict(&fixture, in_body.clone()).await, None);

    for event in [&in_body, &in_header] {
        assert_eq!(fixture.expect_duplicate(fixture.repeat_of(event)).await.original, event.id);
    }
    let filter = EventFilter { key: Some("order-3".to_owned()), ..EventFilter::default() };
    let page = PageRequest { after: None, limit: 10 };
    let events = fixture.list_events(filter, page).await.unwrap();
    assert_eq!(events.rows.len(), 2, "a key is found in each namespace");
}

pub async fn key_conflicts_are_listed_and_found_by_key(fixture: StoreFixture) {
    let first = guessed_event(&fixture, "k", "1");
    let second = guessed_event(&fixture, "k", "2");
    let third = guessed_event(&fixture, "k", "3");
    for event in [&first, &second, &third] {
        fixture.accept(event.clone()).await;
    }
    let other = fixture.accept(fixture.new_event()).await;

    let all = || EventFilter::default();
    let cases = [
        (
            "by key",
            EventFilter { key: Some("k".to_owned()), ..all() },
            vec![third.id, second.id, first.id],
        ),
        ("with", EventFilter { key_conflict: Some(true), ..all() }, vec![third.id, second.id]),
        ("without", EventFilter { key_conflict: Some(false), ..all() }, vec![other, first.id]),
        (
            "by key, with",
            EventFilter { key: Some("k".to_owned()), key_conflict: Some(true), ..all() },
            vec![third.id, second.id],
        ),
        (
            "of another source",
            EventFilter { key_conflict: Some(true), source: Some(fixture.bank), ..all() },
            vec![],
        ),
    ];
    for (name, filter, expected) in cases {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = PageRequest { after, limit: 1 };
            let listed = fixture.list_events(filter.clone(), page).await.unwrap();
            found.extend(listed.rows.iter().map(|row| row.id));
            after = listed.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "case: {name}");
    }
}
