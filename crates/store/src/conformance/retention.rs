//! Retention: what is pruned after its time (events, keys, bodies, attempts), and what is never pruned.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{DedupKeyClaim, NewDeliveryBody, NewEvent},
    replay::{ReplayItemOutcome, ReplaySpec, ReplayState, SkipReason},
    retention::RetentionSpec,
    store::{
        CancelResult, ConfigChange, JoinRequest, JoinResult, NextStep, PruneReport, ReplayResult,
    },
    sync::SyncResult,
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, EventId},
    time::HumanDuration,
};

use super::{
    StoreFixture,
    fixture::{WINDOW, payload},
    replay_jobs::{
        DEAD, STEP_LIMIT, advance, all, create_and_select, ended, missing, report, resend, retry,
    },
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
const TICK: Duration = Duration::from_millis(1);

pub async fn expired_ended_event_is_pruned_with_all_its_rows(mut fixture: StoreFixture) {
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;
    fixture.expect_duplicate(fixture.repeat_of(&first)).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    let replayed =
        fixture.replay(first.deliveries[0].id, fixture.new_id(), fixture.now).await.unwrap();
    let ReplayResult::Created { delivery: replay_id, .. } = replayed else {
        panic!("{replayed:?}")
    };
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    fixture.wait(SECOND);

    let pruned = fixture.prune(Duration::ZERO, fixture.now).await.unwrap();

    assert_eq!(pruned, PruneReport { events: 1, keys: 0, ..PruneReport::default() });
    fixture.reopen().await;
    assert!(fixture.find_event(first.id).await.unwrap().is_none());
    assert!(fixture.find_body(first.id).await.unwrap().is_none());
    for delivery in [first.deliveries[0].id, first.deliveries[1].id, replay_id] {
        assert!(fixture.find_delivery(delivery).await.unwrap().is_none());
    }
    let result = fixture.replay(replay_id, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(result, ReplayResult::NotFound);
}

pub async fn pruned_events_stay_in_totals_only(mut fixture: StoreFixture) {
    for n in 0..2 {
        let event = fixture.event_for_both(&format!("k{n}"));
        fixture.accept(event.clone()).await;
        fixture.expect_duplicate(fixture.repeat_of(&event)).await;
    }
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.wait(SECOND);

    fixture.prune(Duration::ZERO, fixture.now).await.unwrap();

    let counts = fixture.counts().await;
    assert!(counts.by_status.values().all(|count| *count == 0), "{counts:?}");
    let dead = counts.dead[&DeadReason::MaxRetries];
    assert_eq!((dead.total, dead.pending), (2, 0));
    assert_eq!((counts.events, counts.attempts, counts.duplicates), (2, 4, 2));
}

pub async fn event_with_unfinished_delivery_is_not_pruned(mut fixture: StoreFixture) {
    let events: Vec<NewEvent> = (0..3).map(|n| fixture.event_for_both(&format!("k{n}"))).collect();
    fixture.admit(events.clone()).await.unwrap();
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    let claimed = fixture.claim(fixture.crm, 2).await;
    fixture.finish(&claimed[0], NextStep::RetryAt(fixture.now + SECOND)).await;
    fixture.wait(Duration::from_secs(86_400 * 365));

    let pruned = fixture.prune(Duration::ZERO, fixture.now).await.unwrap();

    assert_eq!(pruned.events, 0);
    let expected = [DeliveryStatus::Scheduled, DeliveryStatus::InFlight, DeliveryStatus::Pending];
    for (event, status) in events.iter().zip(expected) {
        assert_eq!(fixture.delivery_statuses(event.id).await, [status, DeliveryStatus::Succeeded]);
        assert_eq!(fixture.find_body(event.id).await.unwrap(), Some(event.payload.clone()));
    }
    // Checking it repeatedly does not change that.
    for _ in 0..3 {
        fixture.wait(DAY);
        assert_eq!(fixture.prune_all(Duration::ZERO).await.events, 0);
    }
    fixture.finish(&claimed[1], NextStep::Succeeded).await;
    fixture.wait(DAY);
    assert_eq!(fixture.prune(Duration::ZERO, fixture.now).await.unwrap().events, 1);
}

pub async fn event_is_pruned_only_after_the_exact_retention_time(mut fixture: StoreFixture) {
    let without_deliveries =
        |fixture: &StoreFixture| NewEvent { deliveries: Vec::new(), ..fixture.new_event() };
    let early = fixture.accept(without_deliveries(&fixture)).await;
    fixture.wait(TICK);
    let late = fixture.accept(without_deliveries(&fixture)).await;

    assert_eq!(fixture.prune(TICK, fixture.now).await.unwrap().events, 0);
    assert_eq!(fixture.prune(Duration::ZERO, fixture.now).await.unwrap().events, 1);

    assert!(fixture.find_event(early).await.unwrap().is_none());
    assert!(fixture.find_event(late).await.unwrap().is_some());
}

pub async fn key_is_still_known_after_its_event_is_pruned(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::Expired)).await;
    fixture.wait(SECOND);
    assert_eq!(fixture.prune(Duration::ZERO, fixture.now).await.unwrap().events, 1);

    fixture.reopen().await;
    let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;

    assert_eq!(duplicate.original, first.id);
    assert!(duplicate.revived.is_empty(), "there is no body to send");
    assert_eq!(fixture.counts().await.duplicates, 1);
    fixture.wait(WINDOW);
    fixture.accept(fixture.repeat_of(&first)).await;
}

pub async fn event_stays_after_its_key_expires(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.wait(WINDOW);

    let pruned = fixture.prune(fixture.now.since(first.received_at), fixture.now).await.unwrap();

    assert_eq!(pruned, PruneReport { events: 0, keys: 1, ..PruneReport::default() });
    assert_eq!(fixture.event_detail(first.id).await.event.key.as_deref(), Some("k"));
    let second = fixture.accept(fixture.repeat_of(&first)).await;
    assert_eq!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.original, second);
}

pub async fn expired_key_is_pruned_without_its_event(mut fixture: StoreFixture) {
    let brief = DedupKeyClaim { expires_at: fixture.now + SECOND, ..fixture.key_claim("brief") };
    fixture.accept(NewEvent { key: Some(brief), ..fixture.new_event() }).await;
    let long = fixture.accept(fixture.event_with_key("long")).await;

    fixture.wait(SECOND - TICK);
    assert_eq!(fixture.prune(SECOND, fixture.now).await.unwrap(), PruneReport::default());
    fixture.wait(TICK);
    let pruned = fixture.prune(SECOND * 2, fixture.now).await.unwrap();

    assert_eq!(pruned, PruneReport { events: 0, keys: 1, ..PruneReport::default() });
    assert_eq!(fixture.expect_duplicate(fixture.event_with_key("long")).await.original, long);
}

pub async fn pruning_in_slices_ends_when_nothing_is_left(mut fixture: StoreFixture) {
    const MANY: usize = 1200;
    let events: Vec<NewEvent> = (0..MANY)
        .map(|n| NewEvent { deliveries: Vec::new(), ..fixture.event_with_key(&format!("k{n}")) })
        .collect();
    fixture.admit(events).await.unwrap();
    let kept = fixture.accept(fixture.new_event()).await;
    fixture.wait(WINDOW);

    let mut all = PruneReport::default();
    let mut slices = 0;
    loop {
        let pruned = fixture.prune(Duration::ZERO, fixture.now).await.unwrap();
        all.events += pruned.events;
        all.keys += pruned.keys;
        slices += 1;
        if !pruned.more {
            break;
        }
    }

    assert_eq!(all, PruneReport { events: MANY, keys: MANY, ..PruneReport::default() });
    assert!(slices > 1, "a slice is bounded");
    let left = fixture.all_events().await;
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [kept]);
}

pub async fn event_with_an_open_replay_is_not_pruned(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(SECOND);
    let old = fixture.only_delivery(event).await.id;
    fixture.replay_now(old).await;

    assert_eq!(fixture.prune(Duration::ZERO, fixture.now).await.unwrap().events, 0);
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    fixture.wait(SECOND);

    assert_eq!(fixture.prune(Duration::ZERO, fixture.now).await.unwrap().events, 1);
    assert!(fixture.counts().await.by_status.values().all(|count| *count == 0));
}

/// Retention setting of the server.
const SERVER_RETENTION: Duration = Duration::from_secs(30 * 86_400);

fn days(days: u64) -> Option<HumanDuration> {
    Some(HumanDuration::from_secs(days * 86_400))
}

fn bodies_7_attempts_14_days() -> RetentionSpec {
    RetentionSpec { bodies: days(7), attempts: days(14), ..RetentionSpec::default() }
}

/// Whether the body is stored, and the number of stored attempts over all deliveries.
async fn remaining_parts(fixture: &StoreFixture, event: EventId) -> (bool, usize) {
    let body = fixture.find_body(event).await.unwrap().is_some();
    let detail = fixture.event_detail(event).await;
    assert_eq!(detail.event.body_removed, !body);
    assert_eq!(detail.head.is_some(), body, "the head is pruned with the body");
    let mut attempts = 0;
    for delivery in detail.deliveries {
        attempts += fixture.delivery_detail(delivery.id).await.attempts.len();
    }
    (body, attempts)
}

async fn replay(fixture: &StoreFixture, old: DeliveryId) -> ReplayResult {
    fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap()
}

pub async fn body_is_pruned_before_its_event_and_metadata_stays(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, bodies_7_attempts_14_days()).await;
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;
    let differing = NewEvent { payload: payload(b"other"), ..fixture.repeat_of(&first) };
    fixture.expect_duplicate(differing).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;

    fixture.wait(DAY * 7);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 0, "not before the exact time");
    fixture.wait(SECOND);
    let pruned = fixture.prune_all(SERVER_RETENTION).await;

    assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 1, 0));
    fixture.reopen().await;
    assert_eq!(remaining_parts(&fixture, first.id).await, (false, 2));
    let detail = fixture.event_detail(first.id).await;
    let facts = (detail.fingerprint, detail.event.body_bytes, detail.event.key.as_deref());
    let body_bytes = first.payload.body.len() as u64;
    assert_eq!(facts, (first.payload.fingerprint, body_bytes, Some("k")));
    let duplicate = &detail.duplicates[0];
    assert!(
        duplicate.bytes_differ && duplicate.body.is_none(),
        "bytes_differ is kept: {duplicate:?}"
    );
    assert_eq!(replay(&fixture, first.deliveries[0].id).await, ReplayResult::BodyRemoved);
    assert_eq!(fixture.delivery_statuses(first.id).await, [DeliveryStatus::Succeeded; 2]);
}

pub async fn attempts_are_pruned_and_their_counts_stay(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, bodies_7_attempts_14_days()).await;
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::RetryAt(fixture.now)).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;

    fixture.wait(DAY * 14 + SECOND);
    let pruned = fixture.prune_all(SERVER_RETENTION).await;

    assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 1, 2));
    assert_eq!(remaining_parts(&fixture, event).await, (false, 0));
    let delivery = fixture.only_delivery(event).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Succeeded, 2));
    let counts = fixture.counts().await;
    assert_eq!((counts.attempts, counts.retries), (2, 1));
    fixture.wait(DAY * 16);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.events, 1);
    assert!(fixture.find_event(event).await.unwrap().is_none());
}

pub async fn each_source_has_its_own_retention(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, bodies_7_attempts_14_days()).await;
    let brief = RetentionSpec { events: days(2), ..RetentionSpec::default() };
    fixture.set_retention(fixture.bank, brief).await;
    let from_shop = fixture.accept(fixture.new_event()).await;
    let from_bank = fixture.accept(NewEvent { source: fixture.bank, ..fixture.new_event() }).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;

    fixture.wait(DAY * 2 + SECOND);
    let pruned = fixture.prune_all(SERVER_RETENTION).await;

    assert_eq!(pruned, PruneReport { events: 1, ..PruneReport::default() });
    assert!(fixture.find_event(from_bank).await.unwrap().is_none());
    assert_eq!(remaining_parts(&fixture, from_shop).await, (true, 1));
    // A deleted source keeps its last retention setting.
    fixture.apply(ConfigChange::DeleteSource(fixture.shop)).await;
    fixture.wait(DAY * 5);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 1);
}

pub async fn unfinished_event_keeps_body_and_attempts(mut fixture: StoreFixture) {
    let brief = RetentionSpec { bodies: days(1), attempts: days(1), ..RetentionSpec::default() };
    fixture.set_retention(fixture.shop, brief).await;
    let event = fixture.event_for_both("k");
    fixture.accept(event.clone()).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.finish_due(fixture.crm, NextStep::RetryAt(fixture.now + DAY * 365)).await;

    for _ in 0..20 {
        fixture.wait(DAY * 10);
        let pruned = fixture.prune_all(SERVER_RETENTION).await;
        assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 0, 0));
        fixture.reopen().await;
    }
    assert_eq!(remaining_parts(&fixture, event.id).await, (true, 2));
    assert_eq!(fixture.find_body(event.id).await.unwrap(), Some(event.payload));
    fixture.wait(DAY * 165);
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.events, 0, "the delivery is in flight");
    fixture.finish(&claimed, NextStep::Succeeded).await;
    fixture.wait(DAY);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.events, 1);
}

pub async fn event_that_ends_late_loses_body_and_attempts(mut fixture: StoreFixture) {
    let attempts = RetentionSpec { attempts: days(1), ..RetentionSpec::default() };
    for (spec, expected) in [(bodies_for(1), (false, 2)), (attempts, (true, 0))] {
        fixture.set_retention(fixture.shop, spec).await;
        let event = fixture.accept(fixture.new_event()).await;
        fixture.finish_due(fixture.crm, NextStep::RetryAt(fixture.now)).await;
        for _checked_again in 0..4 {
            fixture.wait(DAY * 2);
            fixture.prune_all(SERVER_RETENTION).await;
            assert_eq!(remaining_parts(&fixture, event).await, (true, 1));
        }
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.wait(DAY);

        fixture.prune_all(SERVER_RETENTION).await;

        assert_eq!(remaining_parts(&fixture, event).await, expected, "case: {spec:?}");
    }
}

pub async fn dead_letter_keeps_body_and_attempts_for_replay(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, bodies_7_attempts_14_days()).await;
    let event = fixture.event_for_both("k");
    fixture.accept(event.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;

    fixture.wait(DAY * 20);
    let pruned = fixture.prune_all(SERVER_RETENTION).await;

    assert_eq!((pruned.bodies, pruned.attempts), (0, 0));
    assert_eq!(remaining_parts(&fixture, event.id).await, (true, 2));
    let replayed = replay(&fixture, event.deliveries[0].id).await;
    assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    // Without a dead delivery it is pruned like any other event of its age.
    fixture.wait(DAY);
    let pruned = fixture.prune_all(SERVER_RETENTION).await;
    assert_eq!((pruned.bodies, pruned.attempts), (1, 3));
    assert_eq!(remaining_parts(&fixture, event.id).await, (false, 0));
}

pub async fn dead_letter_retention_follows_the_source_setting(mut fixture: StoreFixture) {
    let spec = RetentionSpec { dead_letters: days(16), ..bodies_7_attempts_14_days() };
    fixture.set_retention(fixture.shop, spec).await;
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    let delivery = fixture.only_delivery(event).await.id;

    for (age, expected) in [(8, (true, 1)), (15, (true, 1)), (18, (false, 0))] {
        fixture.wait(
            DAY * age - fixture.now.since(fixture.event_detail(event).await.event.received_at),
        );
        fixture.prune_all(SERVER_RETENTION).await;
        assert_eq!(remaining_parts(&fixture, event).await, expected, "after {age} days");
    }
    assert_eq!(replay(&fixture, delivery).await, ReplayResult::BodyRemoved);
    assert_eq!(fixture.only_delivery(event).await.status, DeliveryStatus::Dead);
    assert_eq!(
        fixture.count_deliveries(DeliveryStatus::Dead).await,
        1,
        "it is still listed and counted"
    );
}

pub async fn duplicate_does_not_revive_an_event_without_body(mut fixture: StoreFixture) {
    let brief = RetentionSpec {
        bodies: Some(HumanDuration::from_secs(1)),
        attempts: Some(HumanDuration::from_secs(1)),
        dead_letters: Some(HumanDuration::from_secs(1)),
        ..RetentionSpec::default()
    };
    fixture.set_retention(fixture.shop, brief).await;
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.wait(SECOND * 2);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 1);

    let duplicate = fixture.expect_duplicate(fixture.repeat_of(&first)).await;

    assert!(!duplicate.bytes_differ && duplicate.revived.is_empty(), "{duplicate:?}");
    assert_eq!(fixture.delivery_statuses(first.id).await, [DeliveryStatus::Dead]);
}

fn bodies_for(body_days: u64) -> RetentionSpec {
    RetentionSpec { bodies: days(body_days), ..RetentionSpec::default() }
}

pub async fn retention_setting_can_be_changed_at_any_time(mut fixture: StoreFixture) {
    fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY * 8);

    for (spec, expected) in [(RetentionSpec::default(), 0), (bodies_for(9), 0), (bodies_for(7), 1)]
    {
        fixture.set_retention(fixture.shop, spec).await;
        assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, expected, "case: {spec:?}");
    }

    // Longer again: pruned bodies stay pruned, new ones are kept.
    fixture.set_retention(fixture.shop, bodies_for(20)).await;
    let second = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY * 10);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 0);
    assert_eq!(remaining_parts(&fixture, second).await, (true, 1));
}

pub async fn restored_retention_setting_prunes_events_skipped_before(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, bodies_for(7)).await;
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.wait(DAY * 8);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 0, "the delivery is dead");
    fixture.set_retention(fixture.shop, RetentionSpec::default()).await;
    fixture.wait(DAY);
    fixture.prune_all(SERVER_RETENTION).await;

    let dead_letters = days(7);
    fixture.set_retention(fixture.shop, RetentionSpec { dead_letters, ..bodies_for(7) }).await;
    fixture.wait(DAY);

    fixture.prune_all(SERVER_RETENTION).await;
    // A dead letter keeps its body as long as its attempts, which are kept as long as the event.
    assert_eq!(remaining_parts(&fixture, event).await, (true, 1));
    fixture
        .set_retention(
            fixture.shop,
            RetentionSpec { dead_letters, attempts: days(7), ..bodies_for(7) },
        )
        .await;
    fixture.wait(DAY);
    fixture.prune_all(SERVER_RETENTION).await;
    assert_eq!(remaining_parts(&fixture, event).await, (false, 0));
}

pub async fn event_committed_late_is_still_pruned(mut fixture: StoreFixture) {
    let brief = RetentionSpec { bodies: days(1), ..RetentionSpec::default() };
    fixture.set_retention(fixture.shop, brief).await;
    let without_deliveries =
        |fixture: &StoreFixture| NewEvent { deliveries: Vec::new(), ..fixture.new_event() };
    let late = without_deliveries(&fixture);
    fixture.wait(SECOND);
    fixture.accept(without_deliveries(&fixture)).await;
    fixture.wait(DAY * 2);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 1);

    for _restarted in [false, true] {
        let late = NewEvent { id: fixture.new_id(), received_at: late.received_at, ..late.clone() };
        // The id contains the time of receipt.
        let id = EventId::new(late.received_at, late.id.uuid().as_u128() << 48);
        fixture.accept(NewEvent { id, ..late }).await;
        assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 1);
        assert_eq!(remaining_parts(&fixture, id).await, (false, 0));
        fixture.reopen().await;
    }
}

pub async fn attempts_of_a_replay_after_pruning_are_pruned(mut fixture: StoreFixture) {
    let brief = RetentionSpec { attempts: days(1), ..RetentionSpec::default() };
    fixture.set_retention(fixture.shop, brief).await;
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY * 2);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.attempts, 1);

    let old = fixture.only_delivery(event).await.id;
    assert!(matches!(replay(&fixture, old).await, ReplayResult::Created { .. }));
    fixture.prune_all(SERVER_RETENTION).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    assert_eq!(remaining_parts(&fixture, event).await, (true, 1));
    fixture.wait(DAY);

    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.attempts, 1);
    assert_eq!(remaining_parts(&fixture, event).await, (true, 0));
}

pub async fn pruning_slice_is_bounded(mut fixture: StoreFixture) {
    const MANY: usize = 700;
    let spec = RetentionSpec { bodies: days(1), attempts: days(2), ..RetentionSpec::default() };
    fixture.set_retention(fixture.shop, spec).await;
    let events: Vec<NewEvent> = (0..MANY).map(|_| fixture.new_event()).collect();
    fixture.admit(events).await.unwrap();
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY * 3);

    let mut slices = 0;
    let mut all = PruneReport::default();
    loop {
        let pruned = fixture.prune(SERVER_RETENTION, fixture.now).await.unwrap();
        assert!(pruned.bodies + pruned.attempts <= 400, "too many rows in one slice: {pruned:?}");
        all.bodies += pruned.bodies;
        all.attempts += pruned.attempts;
        slices += 1;
        if !pruned.more {
            break;
        }
        // A restart between two slices.
        if slices == 2 {
            fixture.reopen().await;
        }
    }

    assert_eq!((all.bodies, all.attempts), (MANY, MANY));
    assert!(slices > 3, "{slices} slices");
    fixture.wait(WINDOW);
    assert_eq!(
        fixture.prune_all(SERVER_RETENTION).await,
        PruneReport::default(),
        "nothing is pruned twice"
    );
}

pub async fn large_bodies_are_pruned_in_small_slices(mut fixture: StoreFixture) {
    const LARGE: usize = 5 << 20;
    fixture.set_retention(fixture.shop, bodies_for(1)).await;
    for _ in 0..4 {
        let large = payload(&vec![b'x'; LARGE]);
        fixture
            .accept(NewEvent { payload: large, deliveries: Vec::new(), ..fixture.new_event() })
            .await;
    }
    fixture.wait(DAY * 2);

    let first = fixture.prune(SERVER_RETENTION, fixture.now).await.unwrap();

    assert!(first.more && (1..4).contains(&first.bodies), "{first:?}");
    assert_eq!(first.bodies + fixture.prune_all(SERVER_RETENTION).await.bodies, 4);
}

fn one_day() -> Option<HumanDuration> {
    Some(HumanDuration::from_secs(86_400))
}

fn one_day_for_all_parts() -> RetentionSpec {
    let (bodies, attempts, dead_letters) = (one_day(), one_day(), one_day());
    RetentionSpec { bodies, attempts, dead_letters, ..RetentionSpec::default() }
}

fn one_day_for_attempts() -> RetentionSpec {
    RetentionSpec { attempts: one_day(), ..RetentionSpec::default() }
}

async fn count_attempts(fixture: &StoreFixture, event: EventId) -> usize {
    fixture.event_detail(event).await.attempts.len()
}

pub async fn held_delivery_keeps_its_event_whole(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, one_day_for_all_parts()).await;
    let (first, second) = (fixture.ordered_event("c-1"), fixture.ordered_event("c-1"));
    fixture.accept(first.clone()).await;
    fixture.accept(second.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::RetryAt(fixture.now + DAY * 365)).await;

    for _ in 0..3 {
        fixture.wait(DAY * 40);
        let pruned = fixture.prune_all(SERVER_RETENTION).await;
        assert_eq!((pruned.events, pruned.bodies, pruned.attempts), (0, 0, 0));
        fixture.reopen().await;
    }

    assert_eq!(fixture.delivery_statuses(second.id).await, [DeliveryStatus::Held]);
    assert_eq!(fixture.find_body(second.id).await.unwrap(), Some(second.payload.clone()));
    let cancelled = fixture.cancel(first.deliveries[0].id, fixture.now).await.unwrap();
    assert_eq!(cancelled, CancelResult::Done { destination: fixture.crm });
    fixture.wait(DAY);
    assert_eq!(
        fixture.prune_all(SERVER_RETENTION).await.events,
        1,
        "a cancelled delivery has ended"
    );
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!((claimed.id, claimed.payload), (second.deliveries[0].id, second.payload));
}

fn transformed_event(fixture: &StoreFixture, body: &[u8]) -> NewEvent {
    let event = fixture.new_event();
    let (delivery, body) = (event.deliveries[0].id, Some(Bytes::copy_from_slice(body)));
    NewEvent {
        bodies: vec![NewDeliveryBody {
            delivery,
            route: fixture.new_id(),
            body,
            filter_failed: false,
        }],
        ..event
    }
}

pub async fn transformed_body_is_pruned_with_the_body(mut fixture: StoreFixture) {
    fixture
        .set_retention(
            fixture.shop,
            RetentionSpec { bodies: one_day(), ..RetentionSpec::default() },
        )
        .await;
    let event = transformed_event(&fixture, b"{}");
    let delivery = event.deliveries[0].id;
    fixture.accept(event.clone()).await;
    fixture.wait(DAY * 2);
    fixture.prune_all(SERVER_RETENTION).await;
    assert_eq!(fixture.find_delivery_body(delivery).await.unwrap().unwrap().body, b"{}"[..]);
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(claimed.payload.body, b"{}"[..], "an unfinished delivery keeps its body");
    fixture.finish(&claimed, NextStep::Succeeded).await;
    fixture.wait(DAY);

    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 1);

    assert_eq!(fixture.find_delivery_body(delivery).await.unwrap(), None);
    assert!(fixture.event_detail(event.id).await.event.body_removed);
}

pub async fn large_transformed_bodies_are_pruned_in_small_slices(mut fixture: StoreFixture) {
    const LARGE: usize = 5 << 20;
    let bodies = RetentionSpec { bodies: one_day(), ..RetentionSpec::default() };
    // Pruned with their events, and pruned while their events stay.
    for spec in [RetentionSpec { events: one_day(), ..RetentionSpec::default() }, bodies] {
        fixture.set_retention(fixture.shop, spec).await;
        for _ in 0..4 {
            fixture.accept(transformed_event(&fixture, &vec![b'x'; LARGE])).await;
        }
        while fixture.count_deliveries(DeliveryStatus::Pending).await > 0 {
            fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        }
        fixture.wait(DAY * 2);

        let first = fixture.prune(SERVER_RETENTION, fixture.now).await.unwrap();

        let removed = first.bodies + first.events;
        assert!(first.more && (1..4).contains(&removed), "case: {spec:?}: {first:?}");
        let rest = fixture.prune_all(SERVER_RETENTION).await;
        assert_eq!(removed + rest.bodies + rest.events, 4, "case: {spec:?}: {rest:?}");
    }
}

pub async fn attempts_of_a_replay_job_after_pruning_are_pruned(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, one_day_for_attempts()).await;
    let specs: [fn(&StoreFixture) -> ReplaySpec; 2] =
        [|_| resend(all()), |fixture| missing(fixture.mail, all())];
    for spec in specs {
        let (event, _) = ended(&fixture, fixture.new_event(), NextStep::Succeeded).await;
        fixture.wait(DAY * 2);
        fixture.prune_all(SERVER_RETENTION).await;
        assert_eq!(count_attempts(&fixture, event).await, 0);

        let job = create_and_select(&fixture, spec(&fixture)).await;
        advance(&fixture, job, STEP_LIMIT).await;
        // Pruning has passed the event, and it is unfinished again.
        assert_eq!(fixture.prune_all(SERVER_RETENTION).await.attempts, 0);
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
        assert_eq!(count_attempts(&fixture, event).await, 1);
        assert_eq!(advance(&fixture, job, STEP_LIMIT).await.state, ReplayState::Done);
        fixture.wait(DAY);
        fixture.prune_all(SERVER_RETENTION).await;

        assert_eq!(count_attempts(&fixture, event).await, 0, "case: {:?}", spec(&fixture).action);
    }
}

pub async fn replay_job_skips_events_without_body(mut fixture: StoreFixture) {
    let (one, _) = ended(&fixture, fixture.new_event(), DEAD).await;
    let (other, _) = ended(&fixture, fixture.new_event(), NextStep::Succeeded).await;
    fixture.wait(DAY * 2);
    let jobs = [
        create_and_select(&fixture, retry(all())).await,
        create_and_select(&fixture, missing(fixture.mail, all())).await,
    ];
    fixture.set_retention(fixture.shop, one_day_for_all_parts()).await;
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.bodies, 2);

    for (job, skipped) in jobs.into_iter().zip([1, 2]) {
        let step = advance(&fixture, job, STEP_LIMIT).await;
        assert_eq!(
            step.outcomes,
            BTreeMap::from([(ReplayItemOutcome::Skipped(SkipReason::BodyGone), skipped)])
        );
        assert_eq!(report(&fixture, job).await.state, ReplayState::Done);
    }
    assert_eq!(fixture.delivery_statuses(one).await, [DeliveryStatus::Dead]);
    assert_eq!(fixture.delivery_statuses(other).await, [DeliveryStatus::Succeeded]);
}

pub async fn replay_job_counts_outcomes_after_attempts_are_pruned(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, one_day_for_attempts()).await;
    let (event, _) = ended(&fixture, fixture.new_event(), NextStep::Succeeded).await;
    fixture.wait(DAY * 2);
    let job = create_and_select(&fixture, resend(all())).await;
    advance(&fixture, job, STEP_LIMIT).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.attempts, 2);

    let step = advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!(step.outcomes, BTreeMap::from([(ReplayItemOutcome::Succeeded, 1)]));
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]
    );
}

async fn join_event(fixture: &StoreFixture, event: EventId) -> JoinResult {
    let (destination, request, now) = (fixture.crm, fixture.new_id(), fixture.now);
    fixture.join(JoinRequest { event, destination, request, revive: true, now }).await.unwrap()
}

pub async fn joining_sender_gets_the_result_after_attempts_are_pruned(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, one_day_for_all_parts()).await;
    let endings = [
        NextStep::Succeeded,
        NextStep::Dead(DeadReason::PayloadError),
        NextStep::Dead(DeadReason::MaxRetries),
    ];
    let mut events = Vec::new();
    for next in endings {
        events.push(ended(&fixture, fixture.new_event(), next).await.0);
    }
    fixture.wait(DAY * 2);
    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.attempts, 3);

    let bare = |next| JoinResult::Ended(SyncResult { next, class: None, response: Vec::new() });
    assert_eq!(join_event(&fixture, events[0]).await, bare(endings[0]));
    assert_eq!(join_event(&fixture, events[1]).await, bare(endings[1]));
    // A retry could succeed, but there is no body to send.
    assert_eq!(join_event(&fixture, events[2]).await, JoinResult::Expired);
    assert_eq!(fixture.delivery_statuses(events[2]).await, [DeliveryStatus::Dead]);
}

pub async fn attempts_of_a_delivery_revived_by_join_are_pruned(mut fixture: StoreFixture) {
    fixture.set_retention(fixture.shop, one_day_for_attempts()).await;
    let (event, _) = ended(&fixture, fixture.new_event(), DEAD).await;
    fixture.wait(DAY * 2);
    fixture.prune_all(SERVER_RETENTION).await;
    assert_eq!(count_attempts(&fixture, event).await, 1, "the delivery is dead");

    assert!(matches!(join_event(&fixture, event).await, JoinResult::InProgress { .. }));
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY);

    assert_eq!(fixture.prune_all(SERVER_RETENTION).await.attempts, 2);
    assert_eq!(count_attempts(&fixture, event).await, 0);
}
