//! Counts by time: exact, and kept after the counted events are pruned.

use std::time::Duration;

use surehook_core::{
    event::NewEvent,
    retention::RetentionSpec,
    rollup::{
        BucketWidth, DestinationRollup, FailureMark, RollupCounts, RollupMetric, RollupQuery,
        RollupSubject,
    },
    store::{ConfigChange, NextStep},
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DestinationId, SourceId},
    time::{HumanDuration, Timestamp},
};

use super::StoreFixture;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn buckets(
    fixture: &StoreFixture,
    subject: RollupSubject,
    width: BucketWidth,
) -> Vec<(Timestamp, RollupCounts)> {
    let (since, until) = (Timestamp::from_millis(0), fixture.now + DAY);
    fixture.list_rollups(RollupQuery { subject, width, since, until }).await.unwrap()
}

async fn sum(fixture: &StoreFixture, subject: RollupSubject, width: BucketWidth) -> RollupCounts {
    let mut sum = RollupCounts::default();
    buckets(fixture, subject, width).await.iter().for_each(|(_, tally)| sum.merge(tally));
    sum
}

fn source_subject(id: SourceId) -> RollupSubject {
    RollupSubject::Source(Some(id))
}

fn destination_subject(id: DestinationId) -> RollupSubject {
    RollupSubject::Destination(Some(id))
}

/// Moves all new counts into their buckets.
async fn roll_up(fixture: &StoreFixture) {
    while fixture.roll_up().await.unwrap() {}
}

pub async fn received_events_are_counted_per_source_and_time_bucket(mut fixture: StoreFixture) {
    let start = BucketWidth::Hour.start(fixture.now);
    fixture.accept(fixture.new_event()).await;
    let keyed = fixture.event_for_both("k");
    fixture.accept(keyed.clone()).await;
    fixture.expect_duplicate(fixture.repeat_of(&keyed)).await;

    for _restarted in [false, true] {
        let shop = buckets(&fixture, source_subject(fixture.shop), BucketWidth::TenSeconds).await;
        assert_eq!(shop.len(), 1, "{shop:?}");
        assert_eq!(shop[0].0, start);
        let counts = [RollupMetric::Accepted, RollupMetric::NoKey, RollupMetric::Duplicates];
        assert_eq!(counts.map(|count| shop[0].1.get(count)), [2, 1, 1]);
        roll_up(&fixture).await;
        fixture.reopen().await;
    }
}

pub async fn attempts_are_counted_per_destination_and_time_bucket(mut fixture: StoreFixture) {
    let start = BucketWidth::Hour.start(fixture.now);
    fixture.accept(fixture.event_for_both("k")).await;
    fixture.wait(SECOND * 12);
    fixture.finish_due(fixture.mail, NextStep::RetryAt(fixture.now)).await;
    fixture.wait(SECOND * 50);
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::PayloadError)).await;

    for _restarted in [false, true] {
        let mail =
            buckets(&fixture, destination_subject(fixture.mail), BucketWidth::TenSeconds).await;
        let seen: Vec<_> = mail
            .iter()
            .map(|(at, tally)| {
                (
                    at.since(start).as_secs(),
                    tally.get(RollupMetric::Succeeded),
                    tally.failed_attempts(),
                )
            })
            .collect();
        assert_eq!(seen, [(10, 0, 1), (60, 1, 0)]);
        assert!(mail[0].1.latency.is_empty(), "only a success has a latency");
        let latency = mail[1].1.latency.percentile(50).unwrap();
        assert!(latency.abs_diff(SECOND * 62) <= SECOND * 8, "{latency:?}");
        let crm = sum(&fixture, destination_subject(fixture.crm), BucketWidth::Hour).await;
        let ends =
            [RollupMetric::Permanent, RollupMetric::DeadPayloadError].map(|count| crm.get(count));
        assert_eq!((ends, crm.attempts(), crm.dead_deliveries()), ([1, 1], 1, 1));
        assert_eq!(crm.attempt_time.count(), 1);
        roll_up(&fixture).await;
        fixture.reopen().await;
    }
}

pub async fn totals_are_equal_at_every_bucket_width(mut fixture: StoreFixture) {
    for number in 0..40 {
        fixture.wait(SECOND * 7);
        let from = if number % 3 == 0 { fixture.bank } else { fixture.shop };
        fixture.accept(NewEvent { source: from, ..fixture.new_event() }).await;
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        if number % 5 == 0 {
            fixture.roll_up().await.unwrap();
        }
    }
    for subject in [
        RollupSubject::Source(None),
        source_subject(fixture.bank),
        RollupSubject::Destination(None),
    ] {
        let fine = sum(&fixture, subject, BucketWidth::TenSeconds).await;
        assert_ne!(fine, RollupCounts::default());
        for width in [BucketWidth::Minute, BucketWidth::Hour] {
            assert_eq!(sum(&fixture, subject, width).await, fine, "{subject:?} {width:?}");
        }
    }
    let fine = buckets(&fixture, RollupSubject::Source(None), BucketWidth::TenSeconds).await;
    let minutes = buckets(&fixture, RollupSubject::Source(None), BucketWidth::Minute).await;
    assert!(fine.len() > minutes.len() && minutes.len() > 3);
    assert!(minutes.is_sorted_by_key(|(at, _)| *at));
    for (at, tally) in minutes {
        let within = fine.iter().filter(|(start, _)| BucketWidth::Minute.start(*start) == at);
        let parts: u64 = within.map(|(_, part)| part.get(RollupMetric::Accepted)).sum();
        assert_eq!(parts, tally.get(RollupMetric::Accepted));
    }
}

pub async fn range_includes_its_start_and_excludes_its_end(mut fixture: StoreFixture) {
    let first = BucketWidth::TenSeconds.start(fixture.now);
    for _ in 0..4 {
        fixture.accept(fixture.new_event()).await;
        fixture.wait(SECOND * 10);
    }
    for is_rolled_up in [false, true] {
        let query = RollupQuery {
            subject: RollupSubject::Source(None),
            width: BucketWidth::TenSeconds,
            since: first + SECOND * 10,
            until: first + SECOND * 30,
        };
        let starts: Vec<_> =
            fixture.list_rollups(query).await.unwrap().into_iter().map(|(at, _)| at).collect();
        assert_eq!(starts, [first + SECOND * 10, first + SECOND * 20], "{is_rolled_up}");
        roll_up(&fixture).await;
    }
    let unknown = source_subject(fixture.new_id());
    assert!(buckets(&fixture, unknown, BucketWidth::Hour).await.is_empty());
}

pub async fn rejected_steps_are_not_counted_in_rollups(fixture: StoreFixture) {
    let existing = fixture.accept(fixture.event_with_key("k")).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    let before = (
        sum(&fixture, RollupSubject::Source(None), BucketWidth::Hour).await,
        sum(&fixture, RollupSubject::Destination(None), BucketWidth::Hour).await,
    );

    let bad = NewEvent { id: existing, ..fixture.new_event() };
    assert!(fixture.admit(vec![fixture.new_event(), bad]).await.is_err());
    let mut lost = fixture.settlement(&claimed, NextStep::Dead(DeadReason::Expired));
    lost.proof.number += 1;
    fixture.settle(lost).await.unwrap();

    let after = (
        sum(&fixture, RollupSubject::Source(None), BucketWidth::Hour).await,
        sum(&fixture, RollupSubject::Destination(None), BucketWidth::Hour).await,
    );
    assert_eq!(after, before);
}

pub async fn rollups_outlive_pruned_events_and_deleted_configuration(mut fixture: StoreFixture) {
    let brief =
        RetentionSpec { events: Some(HumanDuration::from_secs(60)), ..RetentionSpec::default() };
    fixture.set_retention(fixture.shop, brief).await;
    for _ in 0..5 {
        fixture.accept(fixture.new_event()).await;
    }
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let before = sum(&fixture, RollupSubject::Destination(None), BucketWidth::Hour).await;
    let deletions = vec![
        ConfigChange::DeleteSource(fixture.shop),
        ConfigChange::DeleteDestination(fixture.crm),
    ];
    fixture.change(deletions, fixture.now).await.unwrap();
    roll_up(&fixture).await;

    fixture.wait(BucketWidth::TenSeconds.retention());
    assert_eq!(fixture.prune_all(DAY).await.events, 5);
    for width in BucketWidth::ALL {
        assert_eq!(
            sum(&fixture, RollupSubject::Source(None), width).await.get(RollupMetric::Accepted),
            5
        );
        assert_eq!(sum(&fixture, RollupSubject::Destination(None), width).await, before);
    }
}

pub async fn finest_buckets_are_pruned_first(mut fixture: StoreFixture) {
    fixture.accept(fixture.new_event()).await;
    roll_up(&fixture).await;
    for (width, next) in [
        (BucketWidth::TenSeconds, Some(BucketWidth::Minute)),
        (BucketWidth::Minute, Some(BucketWidth::Hour)),
        (BucketWidth::Hour, None),
    ] {
        fixture.wait(width.prune_after() + SECOND * 3600);
        fixture.prune_all(DAY * 3650).await;
        assert!(
            buckets(&fixture, RollupSubject::Source(None), width).await.is_empty(),
            "{width:?}"
        );
        if let Some(next) = next {
            assert_eq!(
                sum(&fixture, RollupSubject::Source(None), next).await.get(RollupMetric::Accepted),
                1
            );
        }
    }
}

pub async fn expired_buckets_are_pruned_in_slices(mut fixture: StoreFixture) {
    const MANY: usize = 600;
    for _ in 0..MANY {
        fixture.accept(fixture.new_event()).await;
        fixture.wait(SECOND * 10);
    }
    roll_up(&fixture).await;
    fixture.wait(BucketWidth::TenSeconds.prune_after());
    let width = BucketWidth::TenSeconds;
    assert_eq!(buckets(&fixture, RollupSubject::Source(None), width).await.len(), MANY);

    let first = fixture.prune(DAY * 3650, fixture.now).await.unwrap();

    let left = buckets(&fixture, RollupSubject::Source(None), width).await.len();
    assert!(first.more && left > 0 && left < MANY, "{left} left: {first:?}");
    fixture.prune_all(DAY * 3650).await;
    assert!(buckets(&fixture, RollupSubject::Source(None), width).await.is_empty());
    let hours = sum(&fixture, RollupSubject::Source(None), BucketWidth::Hour).await;
    assert_eq!(hours.get(RollupMetric::Accepted), u64::try_from(MANY).unwrap());
}

pub async fn duplicates_answered_from_memory_are_counted_in_rollups(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    fixture.accept(first.clone()).await;
    let key = first.key.clone().unwrap();
    let mut recalled = 0;
    for _ in 0..20 {
        let found =
            fixture.find_committed(fixture.shop, &key, &first.payload.fingerprint, fixture.now);
        recalled += u64::from(found.is_some());
    }
    fixture.reopen().await;

    let seen = sum(&fixture, source_subject(fixture.shop), BucketWidth::Hour)
        .await
        .get(RollupMetric::Duplicates);
    assert_eq!((seen, fixture.counts().await.duplicates), (recalled, recalled));
}

pub async fn rollups_of_all_destinations_are_those_of_each(mut fixture: StoreFixture) {
    for number in 0..12 {
        fixture.accept(fixture.event_for_both(&number.to_string())).await;
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        if number % 3 == 0 {
            fixture.finish_due(fixture.mail, NextStep::RetryAt(fixture.now + DAY)).await;
        }
        fixture.wait(SECOND * 25);
    }
    let since = BucketWidth::Minute.start(fixture.now - SECOND * 120);
    for is_rolled_up in [false, true] {
        for width in [BucketWidth::TenSeconds, BucketWidth::Minute] {
            let mut expected = Vec::new();
            for destination in [fixture.crm, fixture.mail] {
                let of_one = buckets(&fixture, destination_subject(destination), width).await;
                let recent = of_one.into_iter().filter(|(start, _)| *start >= since);
                expected.extend(recent.map(|(start, counts)| DestinationRollup {
                    destination,
                    start,
                    counts,
                }));
            }
            let mut found = fixture.list_destination_rollups(width, since).await.unwrap();
            let order = |rollup: &DestinationRollup| (rollup.destination, rollup.start);
            expected.sort_by_key(order);
            found.sort_by_key(order);
            assert!(!found.is_empty());
            assert_eq!(found, expected, "{width:?} {is_rolled_up}");
        }
        roll_up(&fixture).await;
    }
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    let found = fixture.list_destination_rollups(BucketWidth::Hour, since - DAY).await.unwrap();
    assert!(found.iter().all(|rollup| rollup.destination == fixture.mail), "{found:?}");
}

pub async fn last_failure_of_a_destination_is_kept_with_its_counts(mut fixture: StoreFixture) {
    fixture.accept(fixture.new_event()).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    fixture.finish(&claimed, NextStep::RetryAt(fixture.now)).await;
    fixture.wait(SECOND * 65);
    let again = fixture.claim_one(fixture.crm).await;
    let failed_at = fixture.now;
    fixture.finish(&again, NextStep::RetryAt(fixture.now)).await;
    fixture.wait(SECOND * 65);
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;

    let mark = FailureMark { at: failed_at, delivery: claimed.id, attempt: 2 };
    for _restarted in [false, true] {
        for width in BucketWidth::ALL {
            let subject = destination_subject(fixture.crm);
            assert_eq!(sum(&fixture, subject, width).await.last_failure, Some(mark), "{width:?}");
        }
        roll_up(&fixture).await;
        fixture.reopen().await;
    }
}
