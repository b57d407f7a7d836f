//! Counts by time: exact, and there when what they count is not.

use std::time::Duration;

use surehook_core::{
    delivery::DeadReason,
    event::NewEvent,
    ids::{DestinationId, SourceId},
    retention::RetentionSpec,
    rollup::{BucketWidth, RollupCounts, RollupMetric, RollupQuery, RollupSubject},
    store::{ConfigChange, NextStep},
    time::{HumanDuration, Timestamp},
};

use super::World;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn buckets(
    world: &World,
    subject: RollupSubject,
    width: BucketWidth,
) -> Vec<(Timestamp, RollupCounts)> {
    let (since, until) = (Timestamp::from_millis(0), world.now + DAY);
    world.rollups(RollupQuery { subject, width, since, until }).await.unwrap()
}

async fn sum(world: &World, subject: RollupSubject, width: BucketWidth) -> RollupCounts {
    let mut sum = RollupCounts::default();
    buckets(world, subject, width).await.iter().for_each(|(_, tally)| sum.merge(tally));
    sum
}

fn source(id: SourceId) -> RollupSubject {
    RollupSubject::Source(Some(id))
}

fn destination(id: DestinationId) -> RollupSubject {
    RollupSubject::Destination(Some(id))
}

/// Sorts all that was counted into its buckets.
async fn roll_up(world: &World) {
    while world.roll_up().await.unwrap() {}
}

pub async fn received_events_are_counted_per_source_and_time_bucket(mut world: World) {
    let start = BucketWidth::Hour.start(world.now);
    world.accept(world.arrival()).await;
    let keyed = world.keyed_for_both("k");
    world.accept(keyed.clone()).await;
    world.expect_duplicate(world.again(&keyed)).await;

    for _restarted in [false, true] {
        let shop = buckets(&world, source(world.shop), BucketWidth::TenSeconds).await;
        assert_eq!(shop.len(), 1, "{shop:?}");
        assert_eq!(shop[0].0, start);
        let counts = [RollupMetric::Accepted, RollupMetric::NoKey, RollupMetric::Duplicates];
        assert_eq!(counts.map(|count| shop[0].1.get(count)), [2, 1, 1]);
        roll_up(&world).await;
        world.reopen().await;
    }
}

pub async fn attempts_are_counted_per_destination_and_time_bucket(mut world: World) {
    let start = BucketWidth::Hour.start(world.now);
    world.accept(world.keyed_for_both("k")).await;
    world.wait(SECOND * 12);
    world.finish_due(world.mail, NextStep::RetryAt(world.now)).await;
    world.wait(SECOND * 50);
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::PayloadError)).await;

    for _restarted in [false, true] {
        let mail = buckets(&world, destination(world.mail), BucketWidth::TenSeconds).await;
        let seen: Vec<_> = mail
            .iter()
            .map(|(at, tally)| {
                (at.since(start).as_secs(), tally.get(RollupMetric::Succeeded), tally.failed())
            })
            .collect();
        assert_eq!(seen, [(10, 0, 1), (60, 1, 0)]);
        assert!(mail[0].1.latency.is_empty(), "only a success has arrived");
        let latency = mail[1].1.latency.percentile(50).unwrap();
        assert!(latency.abs_diff(SECOND * 62) <= SECOND * 8, "{latency:?}");
        let crm = sum(&world, destination(world.crm), BucketWidth::Hour).await;
        let ends =
            [RollupMetric::Permanent, RollupMetric::DeadPayloadError].map(|count| crm.get(count));
        assert_eq!((ends, crm.attempts(), crm.dead()), ([1, 1], 1, 1));
        assert_eq!(crm.attempt_time.count(), 1);
        roll_up(&world).await;
        world.reopen().await;
    }
}

pub async fn totals_are_equal_at_every_bucket_width(mut world: World) {
    for number in 0..40 {
        world.wait(SECOND * 7);
        let from = if number % 3 == 0 { world.bank } else { world.shop };
        world.accept(NewEvent { source: from, ..world.arrival() }).await;
        world.finish_due(world.crm, NextStep::Succeeded).await;
        if number % 5 == 0 {
            world.roll_up().await.unwrap();
        }
    }
    for subject in
        [RollupSubject::Source(None), source(world.bank), RollupSubject::Destination(None)]
    {
        let fine = sum(&world, subject, BucketWidth::TenSeconds).await;
        assert_ne!(fine, RollupCounts::default());
        for width in [BucketWidth::Minute, BucketWidth::Hour] {
            assert_eq!(sum(&world, subject, width).await, fine, "{subject:?} {width:?}");
        }
    }
    let fine = buckets(&world, RollupSubject::Source(None), BucketWidth::TenSeconds).await;
    let minutes = buckets(&world, RollupSubject::Source(None), BucketWidth::Minute).await;
    assert!(fine.len() > minutes.len() && minutes.len() > 3);
    assert!(minutes.is_sorted_by_key(|(at, _)| *at));
    for (at, tally) in minutes {
        let within = fine.iter().filter(|(start, _)| BucketWidth::Minute.start(*start) == at);
        let parts: u64 = within.map(|(_, part)| part.get(RollupMetric::Accepted)).sum();
        assert_eq!(parts, tally.get(RollupMetric::Accepted));
    }
}

pub async fn range_includes_its_start_and_excludes_its_end(mut world: World) {
    let first = BucketWidth::TenSeconds.start(world.now);
    for _ in 0..4 {
        world.accept(world.arrival()).await;
        world.wait(SECOND * 10);
    }
    for is_rolled_up in [false, true] {
        let query = RollupQuery {
            subject: RollupSubject::Source(None),
            width: BucketWidth::TenSeconds,
            since: first + SECOND * 10,
            until: first + SECOND * 30,
        };
        let starts: Vec<_> =
            world.rollups(query).await.unwrap().into_iter().map(|(at, _)| at).collect();
        assert_eq!(starts, [first + SECOND * 10, first + SECOND * 20], "{is_rolled_up}");
        roll_up(&world).await;
    }
    let nobody = source(world.id());
    assert!(buckets(&world, nobody, BucketWidth::Hour).await.is_empty());
}

pub async fn rejected_steps_are_not_counted_in_rollups(world: World) {
    let known = world.accept(world.keyed("k")).await;
    let claimed = world.claim_one(world.crm).await;
    let before = (
        sum(&world, RollupSubject::Source(None), BucketWidth::Hour).await,
        sum(&world, RollupSubject::Destination(None), BucketWidth::Hour).await,
    );

    let bad = NewEvent { id: known, ..world.arrival() };
    assert!(world.admit(vec![world.arrival(), bad]).await.is_err());
    let mut lost = world.settlement(&claimed, NextStep::Dead(DeadReason::Expired));
    lost.token.0 += 1;
    world.settle(lost).await.unwrap();

    let after = (
        sum(&world, RollupSubject::Source(None), BucketWidth::Hour).await,
        sum(&world, RollupSubject::Destination(None), BucketWidth::Hour).await,
    );
    assert_eq!(after, before);
}

pub async fn rollups_outlive_pruned_events_and_deleted_configuration(mut world: World) {
    let brief =
        RetentionSpec { events: Some(HumanDuration::from_secs(60)), ..RetentionSpec::default() };
    world.keep(world.shop, brief).await;
    for _ in 0..5 {
        world.accept(world.arrival()).await;
    }
    world.finish_due(world.crm, NextStep::Succeeded).await;
    let before = sum(&world, RollupSubject::Destination(None), BucketWidth::Hour).await;
    let gone =
        vec![ConfigChange::DeleteSource(world.shop), ConfigChange::DeleteDestination(world.crm)];
    world.change(gone, world.now).await.unwrap();
    roll_up(&world).await;

    world.wait(BucketWidth::TenSeconds.retention());
    assert_eq!(world.prune_all(DAY).await.events, 5);
    for width in BucketWidth::ALL {
        assert_eq!(
            sum(&world, RollupSubject::Source(None), width).await.get(RollupMetric::Accepted),
            5
        );
        assert_eq!(sum(&world, RollupSubject::Destination(None), width).await, before);
    }
}

pub async fn finest_buckets_are_pruned_first(mut world: World) {
    world.accept(world.arrival()).await;
    roll_up(&world).await;
    for (width, next) in [
        (BucketWidth::TenSeconds, Some(BucketWidth::Minute)),
        (BucketWidth::Minute, Some(BucketWidth::Hour)),
        (BucketWidth::Hour, None),
    ] {
        world.wait(width.prune_after() + SECOND * 3600);
        world.prune_all(DAY * 3650).await;
        assert!(buckets(&world, RollupSubject::Source(None), width).await.is_empty(), "{width:?}");
        if let Some(next) = next {
            assert_eq!(
                sum(&world, RollupSubject::Source(None), next).await.get(RollupMetric::Accepted),
                1
            );
        }
    }
}

pub async fn expired_buckets_are_pruned_in_slices(mut world: World) {
    const MANY: usize = 600;
    for _ in 0..MANY {
        world.accept(world.arrival()).await;
        world.wait(SECOND * 10);
    }
    roll_up(&world).await;
    world.wait(BucketWidth::TenSeconds.prune_after());
    let width = BucketWidth::TenSeconds;
    assert_eq!(buckets(&world, RollupSubject::Source(None), width).await.len(), MANY);

    let first = world.prune(DAY * 3650, world.now).await.unwrap();

    let left = buckets(&world, RollupSubject::Source(None), width).await.len();
    assert!(first.more && left > 0 && left < MANY, "{left} left: {first:?}");
    world.prune_all(DAY * 3650).await;
    assert!(buckets(&world, RollupSubject::Source(None), width).await.is_empty());
    let hours = sum(&world, RollupSubject::Source(None), BucketWidth::Hour).await;
    assert_eq!(hours.get(RollupMetric::Accepted), u64::try_from(MANY).unwrap());
}

pub async fn duplicates_answered_from_memory_are_counted_in_rollups(mut world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    let key = first.key.as_ref().unwrap().key.clone();
    let mut recalled = 0;
    for _ in 0..20 {
        let said = world.find_committed(world.shop, &key, &first.payload.fingerprint, world.now);
        recalled += u64::from(said.is_some());
    }
    world.reopen().await;

    let seen =
        sum(&world, source(world.shop), BucketWidth::Hour).await.get(RollupMetric::Duplicates);
    assert_eq!((seen, world.counts().duplicates), (recalled, recalled));
}
