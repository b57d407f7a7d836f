//! Duplicates: answered from memory, reviving dead deliveries, looked up and delivered anyway.
//!
//! A store may always answer `None` from memory. So the cases about `find_committed` check only what
//! must never be returned; that the SQLite store does remember is tested in `tests/it`.

use std::time::Duration;

use serde_json::json;
use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    event::{DuplicateId, NewEvent},
    retention::RetentionSpec,
    store::{AdmitResult, ConfigChange, DuplicateDetail, NextStep},
};
use surehook_retry::DeadReason;
use surehook_types::{ids::EventId, store_error::StoreError, time::HumanDuration};
use tokio::task::JoinSet;

use super::{
    StoreFixture,
    fixture::{WINDOW, payload},
};

fn find_in_memory(fixture: &StoreFixture, event: &NewEvent) -> Option<EventId> {
    let key = event.key.as_ref().unwrap();
    fixture.find_committed(event.source, key, &event.payload.fingerprint, fixture.now)
}

pub async fn find_committed_returns_only_committed_events(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    assert_eq!(find_in_memory(&fixture, &first), None, "the event is not stored yet");
    fixture.accept(first.clone()).await;

    let other_source = NewEvent { source: fixture.bank, ..first.clone() };
    let other_bytes = NewEvent { payload: payload(b"other"), ..first.clone() };

    assert!([None, Some(first.id)].contains(&find_in_memory(&fixture, &first)));
    assert_eq!(find_in_memory(&fixture, &other_source), None);
    // A different body must be recorded in the database.
    assert_eq!(find_in_memory(&fixture, &other_bytes), None);
    fixture.wait(WINDOW);
    assert_eq!(find_in_memory(&fixture, &first), None, "its window has ended");
    let second = fixture.repeat_of(&first);
    fixture.accept(second.clone()).await;
    assert!([None, Some(second.id)].contains(&find_in_memory(&fixture, &first)));
}

pub async fn find_committed_ignores_events_of_a_refused_request(fixture: StoreFixture) {
    let existing = fixture.accept(fixture.new_event()).await;
    let good = fixture.event_with_key("k");
    let bad = NewEvent { id: existing, ..fixture.new_event() };

    assert!(fixture.admit(vec![good.clone(), bad]).await.is_err());

    assert_eq!(find_in_memory(&fixture, &good), None);
}

pub async fn find_committed_ignores_events_with_a_dead_delivery(fixture: StoreFixture) {
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;

    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::Unrecoverable)).await;

    assert_eq!(find_in_memory(&fixture, &first), None);
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    assert_eq!(find_in_memory(&fixture, &first), None);
}

pub async fn find_committed_still_ignores_a_dead_event_after_a_duplicate(fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::Unrecoverable)).await;
    let copy = NewEvent { revive_dead: false, ..fixture.repeat_of(&first) };

    fixture.expect_duplicate(copy).await;

    assert_eq!(find_in_memory(&fixture, &first), None);
    let dead = fixture.only_delivery(first.id).await.id;
    fixture.replay_now(dead).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::Unrecoverable)).await;
    assert_eq!(find_in_memory(&fixture, &first), None, "the replay died too");
}

pub async fn duplicates_answered_from_memory_are_counted(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    let mut received = 0;
    for _ in 0..40 {
        fixture.wait(Duration::from_millis(1));
        if let Some(original) = find_in_memory(&fixture, &first) {
            assert_eq!(original, first.id);
        } else {
            fixture.expect_duplicate(fixture.repeat_of(&first)).await;
        }
        received += 1;
    }

    // The counts may be written late while the store is open; after closing they are on disk.
    fixture.reopen().await;

    assert_eq!(fixture.counts().await.duplicates, received);
    let event = fixture.event_detail(first.id).await.event;
    assert_eq!((event.duplicates, event.last_duplicate_at), (received, Some(fixture.now)));
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Pending).await, 1);
}

const DEAD: NextStep = NextStep::Dead(DeadReason::MaxRetries);

pub async fn duplicate_revives_an_event_whose_deliveries_are_all_dead(mut fixture: StoreFixture) {
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.finish_due(fixture.mail, DEAD).await;

    let mut revived = fixture.expect_duplicate(fixture.repeat_of(&first)).await.revived;

    revived.sort();
    assert_eq!(revived, [fixture.crm, fixture.mail]);
    fixture.reopen().await;
    let deliveries = fixture.event_detail(first.id).await.deliveries;
    assert_eq!(deliveries.len(), 4);
    for old in &first.deliveries {
        let old_delivery = deliveries.iter().find(|delivery| delivery.id == old.id).unwrap();
        let replay = deliveries.iter().find(|replay| replay.replay_of == Some(old.id)).unwrap();
        assert_eq!(
            (old_delivery.status, old_delivery.replayed_by),
            (DeliveryStatus::Replayed, Some(replay.id))
        );
        assert_eq!((replay.status, replay.due_at), (DeliveryStatus::Pending, Some(fixture.now)));
        assert_eq!((replay.destination, replay.attempts), (old.destination, 0));
    }
    let claimed = fixture.claim_one(fixture.mail).await;
    assert_eq!((claimed.event, claimed.payload), (first.id, first.payload));
}

pub async fn duplicate_revives_nothing_while_one_delivery_is_not_dead(fixture: StoreFixture) {
    let later = NextStep::RetryAt(fixture.now + Duration::from_secs(900));
    for (status, next) in [
        (DeliveryStatus::Pending, None),
        (DeliveryStatus::Scheduled, Some(later)),
        (DeliveryStatus::Succeeded, Some(NextStep::Succeeded)),
    ] {
        let first = fixture.event_for_both(status.as_str());
        fixture.accept(first.clone()).await;
        fixture.finish_due(fixture.crm, DEAD).await;
        if let Some(next) = next {
            fixture.finish_due(fixture.mail, next).await;
        }

        let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;

        assert!(duplicate.revived.is_empty(), "case: {status:?}");
        let statuses = fixture.delivery_statuses(first.id).await;
        assert_eq!(statuses, [DeliveryStatus::Dead, status], "case: {status:?}");
        fixture.claim(fixture.mail, 9).await;
    }
    let in_flight = fixture.event_for_both("in flight");
    fixture.accept(in_flight.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.claim_one(fixture.mail).await;
    assert!(fixture.expect_duplicate(fixture.repeat_of(&in_flight)).await.revived.is_empty());
}

pub async fn duplicate_revives_nothing_if_the_source_disables_it(fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    let copy = NewEvent { revive_dead: false, ..fixture.repeat_of(&first) };

    let duplicate = fixture.expect_duplicate(copy).await;

    assert!(duplicate.revived.is_empty());
    assert_eq!(fixture.delivery_statuses(first.id).await, [DeliveryStatus::Dead]);
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), None);
}

pub async fn ambiguous_dead_delivery_is_not_revived(fixture: StoreFixture) {
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::Ambiguous)).await;
    fixture.finish_due(fixture.mail, DEAD).await;

    let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;

    assert_eq!(duplicate.revived, [fixture.mail], "the other delivery is revived");
    assert!(fixture.claim(fixture.crm, 9).await.is_empty());
    assert_eq!(fixture.counts().await.dead[&DeadReason::Ambiguous].pending, 1);
}

pub async fn concurrent_duplicates_revive_once(fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, copy) = (fixture.store(), fixture.repeat_of(&first));
        tasks.spawn(async move { store.admit([copy].into()).await.unwrap().remove(0) });
    }

    let result = tasks.join_all().await;

    let revived = result.iter().filter(
        |result| matches!(result, AdmitResult::Duplicate(duplicate) if !duplicate.revived.is_empty()),
    );
    assert_eq!(revived.count(), 1);
    assert_eq!(
        fixture.delivery_statuses(first.id).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Pending]
    );
}

pub async fn revived_delivery_that_dies_is_revived_again(fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    for round in 1..4 {
        fixture.finish_due(fixture.crm, DEAD).await;

        let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;

        assert_eq!(duplicate.revived, [fixture.crm], "round {round}");
        assert_eq!(fixture.event_detail(first.id).await.deliveries.len(), round + 1);
    }
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Replayed).await, 3);
    assert_eq!(fixture.counts().await.dead[&DeadReason::MaxRetries].total, 3);
    assert_eq!(fixture.counts().await.dead[&DeadReason::MaxRetries].pending, 0);
}

pub async fn delivery_to_deleted_destination_is_not_revived(fixture: StoreFixture) {
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.finish_due(fixture.mail, DEAD).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;

    assert_eq!(duplicate.revived, [fixture.mail]);
    let statuses = fixture.delivery_statuses(first.id).await;
    assert_eq!(statuses.iter().filter(|status| **status == DeliveryStatus::Dead).count(), 1);
}

const SECOND: Duration = Duration::from_secs(1);

/// An event that was received again with the same body, and then with another.
async fn event_with_two_duplicates(fixture: &mut StoreFixture) -> NewEvent {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.wait(SECOND);
    fixture.expect_duplicate(fixture.repeat_of(&first)).await;
    fixture.wait(SECOND);
    let other = NewEvent { payload: payload(b"other bytes"), ..fixture.repeat_of(&first) };
    assert!(fixture.expect_duplicate(other).await.bytes_differ);
    first
}

async fn find_duplicate(fixture: &StoreFixture, event: EventId, n: u32) -> DuplicateDetail {
    fixture.find_duplicate(DuplicateId { event, n }).await.unwrap().unwrap()
}

/// The event created when a duplicate is delivered anyway.
fn event_from_duplicate(fixture: &StoreFixture, event: EventId, n: u32) -> NewEvent {
    NewEvent { from_duplicate: Some(DuplicateId { event, n }), ..fixture.new_event() }
}

pub async fn duplicate_is_found_by_event_and_number(mut fixture: StoreFixture) {
    let first = event_with_two_duplicates(&mut fixture).await;

    fixture.reopen().await;

    for (n, expected) in [(1, None), (2, Some(&b"other bytes"[..]))] {
        let detail = find_duplicate(&fixture, first.id, n).await;
        assert_eq!((detail.event.id, detail.duplicate.n), (first.id, n));
        assert_eq!(detail.original, Some(first.payload.clone()));
        assert_eq!(detail.duplicate.seen_at, first.received_at + SECOND * n);
        assert_eq!(detail.duplicate.bytes_differ, expected.is_some());
        assert_eq!(detail.duplicate.body.as_deref(), expected);
        assert_eq!(detail.duplicate.delivered_as, None);
    }
    let listed = fixture.event_detail(first.id).await.duplicates;
    assert_eq!(listed.iter().map(|row| row.n).collect::<Vec<_>>(), [1, 2]);
    for (event, n) in [(first.id, 0), (first.id, 3), (first.id, u32::MAX), (fixture.new_id(), 1)] {
        assert!(
            fixture.find_duplicate(DuplicateId { event, n }).await.unwrap().is_none(),
            "case: {n}"
        );
    }
}

/// Duplicates answered from memory are written late. They must not change numbers that users have seen.
pub async fn duplicate_number_never_changes(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    let seen_before = fixture.now + SECOND;
    fixture.wait(2 * SECOND);
    let other = NewEvent { payload: payload(b"other bytes"), ..fixture.repeat_of(&first) };
    fixture.expect_duplicate(other).await;
    let key = first.key.clone().unwrap();
    let is_answered_from_memory = fixture
        .find_committed(first.source, &key, &first.payload.fingerprint, seen_before)
        .is_some();

    fixture.reopen().await;

    assert!(find_duplicate(&fixture, first.id, 1).await.duplicate.bytes_differ);
    let listed = fixture.event_detail(first.id).await.duplicates;
    let expected: &[u32] = if is_answered_from_memory { &[2, 1] } else { &[1] };
    assert_eq!(listed.iter().map(|row| row.n).collect::<Vec<_>>(), expected);
}

async fn assert_linked_in_both_timelines(fixture: &StoreFixture, first: EventId, new: EventId) {
    for (event, other, kind) in [
        (first, new, EventDecisionKind::DeliveredAnyway),
        (new, first, EventDecisionKind::NotADuplicate),
    ] {
        let result = fixture.event_detail(event).await.decisions;
        assert_eq!((result.len(), result[0].kind), (1, kind));
        assert_eq!(result[0].detail, json!({ "event": other, "n": 2 }));
    }
}

#[expect(clippy::cognitive_complexity, reason = "steps of one history, one after the other")]
pub async fn duplicate_is_delivered_anyway_once(mut fixture: StoreFixture) {
    let first = event_with_two_duplicates(&mut fixture).await;
    let new = event_from_duplicate(&fixture, first.id, 2);

    fixture.accept(new.clone()).await;

    for _restarted in [false, true] {
        let again = fixture.admit_one(event_from_duplicate(&fixture, first.id, 2)).await;
        assert_eq!(again, AdmitResult::DeliveredBefore(new.id));
        assert_eq!(fixture.admit_one(new.clone()).await, AdmitResult::DeliveredBefore(new.id));
        assert_eq!(fixture.counts().await.events, 2);
        assert_eq!(
            find_duplicate(&fixture, first.id, 2).await.duplicate.delivered_as,
            Some(new.id)
        );
        assert_eq!(find_duplicate(&fixture, first.id, 1).await.duplicate.delivered_as, None);
        assert_linked_in_both_timelines(&fixture, first.id, new.id).await;
        assert_eq!(fixture.only_delivery(new.id).await.id, new.deliveries[0].id);
        fixture.reopen().await;
    }
    // The key still belongs to the first event, and the other duplicate can be delivered too.
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.original, first.id);
    fixture.accept(event_from_duplicate(&fixture, first.id, 1)).await;
}

pub async fn concurrent_deliver_anyway_requests_create_one_event(mut fixture: StoreFixture) {
    let first = event_with_two_duplicates(&mut fixture).await;
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (store, event) = (fixture.store(), event_from_duplicate(&fixture, first.id, 1));
        tasks
            .spawn(async move { (event.id, store.admit([event].into()).await.unwrap().remove(0)) });
    }
    let results = tasks.join_all().await;

    let (accepted, refused): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|(_, result)| matches!(result, AdmitResult::Accepted { .. }));
    assert_eq!(accepted.len(), 1);
    let expected = AdmitResult::DeliveredBefore(accepted[0].0);
    assert!(refused.iter().all(|(_, result)| *result == expected), "{refused:?}");
    assert_eq!(fixture.counts().await.events, 2);
}

pub async fn deliver_anyway_of_unknown_duplicate_is_refused(mut fixture: StoreFixture) {
    let first = event_with_two_duplicates(&mut fixture).await;
    for (event, n) in [(first.id, 0), (first.id, 3), (fixture.new_id(), 1)] {
        let result = fixture.admit(vec![event_from_duplicate(&fixture, event, n)]).await;
        assert!(matches!(result, Err(StoreError::Refused(_))), "{result:?}");
    }
    assert_eq!(fixture.counts().await.events, 1);
}

pub async fn link_to_delivered_duplicate_survives_body_pruning(mut fixture: StoreFixture) {
    let retention =
        RetentionSpec { bodies: Some(HumanDuration(SECOND)), ..RetentionSpec::default() };
    fixture.set_retention(fixture.shop, retention).await;
    let first = event_with_two_duplicates(&mut fixture).await;
    let new = event_from_duplicate(&fixture, first.id, 2);
    fixture.accept(new.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(60 * SECOND);

    fixture.prune_all(Duration::from_secs(86_400)).await;

    let detail = find_duplicate(&fixture, first.id, 2).await;
    assert!(detail.original.is_none() && detail.duplicate.body.is_none());
    assert!(detail.duplicate.bytes_differ);
    assert_eq!(detail.duplicate.delivered_as, Some(new.id));
}
