//! Sums that are exact, whatever happened in between.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::{DeadReason, LeaseToken, state::DeliveryStatus},
    event::NewEvent,
    store::{
        DeadReasonCount, DeliveryFilter, EventFilter, NextStep, PageRequest, SettleResult,
        Settlement, StoreCounts,
    },
};
use tokio::task::JoinSet;

use super::{
    World,
    samples::{held, without_zeros},
    world::LEASE,
};

fn by_status<const N: usize>(pairs: [(DeliveryStatus, u64); N]) -> BTreeMap<DeliveryStatus, u64> {
    pairs.into()
}

pub async fn every_step_is_counted_once(mut world: World) {
    use DeliveryStatus::{Dead, InFlight, Pending, Scheduled, Succeeded};
    let counted = |world: &World| without_zeros(world.counts());
    assert_eq!(counted(&world), StoreCounts::default());

    world.accept(world.arrival()).await;
    let keyed = world.keyed_for_both("k");
    world.accept(keyed.clone()).await;
    world.expect_duplicate(world.again(&keyed)).await;
    let expected = StoreCounts {
        events: 2,
        no_key: 1,
        duplicates: 1,
        by_status: by_status([(Pending, 3)]),
        ..StoreCounts::default()
    };
    assert_eq!(counted(&world), expected);

    let claimed = world.claim(world.crm, 2).await;
    assert_eq!(counted(&world).by_status, by_status([(Pending, 1), (InFlight, 2)]));
    world.finish(&claimed[0], NextStep::RetryAt(world.now)).await;
    world.release(vec![held(&claimed[1])], world.now).await.unwrap();
    assert_eq!(counted(&world).by_status, by_status([(Pending, 2), (Scheduled, 1)]));

    world.claim(world.crm, 2).await;
    assert_eq!(counted(&world).by_status, by_status([(Pending, 1), (InFlight, 2)]));
    world.wait(LEASE);
    world.release_expired(world.now).await.unwrap();
    assert_eq!(counted(&world).by_status, by_status([(Pending, 3)]));

    let claimed = world.claim(world.crm, 2).await;
    world.finish(&claimed[0], NextStep::Succeeded).await;
    world.finish(&claimed[1], NextStep::Dead(DeadReason::MaxRetries)).await;
    let expected = StoreCounts {
        attempts: 3,
        retries: 1,
        by_status: by_status([(Pending, 1), (Succeeded, 1), (Dead, 1)]),
        dead: [(DeadReason::MaxRetries, DeadReasonCount { total: 1, pending: 1 })].into(),
        ..expected
    };
    assert_eq!(counted(&world), expected);
}

pub async fn rejected_steps_are_not_counted(world: World) {
    let keyed = world.keyed("k");
    let known = world.accept(keyed.clone()).await;
    let claimed = world.claim_one(world.crm).await;
    let before = world.counts();

    let bad = NewEvent { id: known, ..world.arrival() };
    let request = vec![world.arrival(), world.again(&keyed), bad];
    assert!(world.admit(request).await.is_err());
    let good = world.settlement(&claimed, NextStep::Dead(DeadReason::Expired));
    let lost = Settlement { token: LeaseToken(-1), ..good };
    assert_eq!(world.settle(lost).await.unwrap(), SettleResult::LeaseLost);
    world.replay(claimed.id, world.id(), world.now).await.unwrap();
    world.renew(vec![held(&claimed)], world.now + LEASE).await.unwrap();

    assert_eq!(world.counts(), before);
}

pub async fn dead_deliveries_are_counted_by_reason(mut world: World) {
    for (times, reason) in (1..).zip(DeadReason::ALL) {
        for _ in 0..times {
            world.accept(world.arrival()).await;
        }
        world.finish_due(world.crm, NextStep::Dead(reason)).await;
    }
    let dead = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..DeliveryFilter::default() };
    let page = PageRequest { after: None, limit: 4 };
    world.wait(Duration::from_secs(1));
    // The newest four died of the last reason, which six have.
    for row in world.deliveries(dead, page).await.unwrap().rows {
        world.replay(row.id, world.id(), world.now).await.unwrap();
    }

    let counts = without_zeros(world.counts());

    for (total, reason) in (1..).zip(DeadReason::ALL) {
        let pending = if total == 6 { 2 } else { total };
        assert_eq!(counts.dead[&reason], DeadReasonCount { total, pending }, "{reason:?}");
    }
    assert_eq!(counts.by_status[&DeliveryStatus::Dead], 17);
}

pub async fn counts_survive_restart(mut world: World) {
    let keyed = world.keyed_for_both("k");
    world.accept(keyed.clone()).await;
    world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::PayloadError)).await;
    world.finish_due(world.mail, NextStep::RetryAt(world.now)).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.expect_duplicate(world.again(&keyed)).await;
    let before = without_zeros(world.counts());

    world.reopen().await;

    assert_eq!(without_zeros(world.counts()), before);
    assert_eq!((before.retries, before.duplicates, before.no_key), (1, 1, 1));
}

pub async fn counts_match_the_lists_after_concurrent_work(mut world: World) {
    let mut tasks = JoinSet::new();
    for worker in 0..6 {
        let events: Vec<NewEvent> =
            (0..25).map(|n| world.keyed_for_both(&format!("k{}", n % 20))).collect();
        let (store, now, crm) = (world.store(), world.now, world.crm);
        let lease = world.lease();
        let ends =
            [NextStep::Succeeded, NextStep::RetryAt(now), NextStep::Dead(DeadReason::MaxRetries)];
        let settlements: Vec<_> = (0..200).map(|_| world.id()).collect();
        let mut ids = settlements.into_iter();
        tasks.spawn(async move {
            for event in events {
                store.admit([event].into()).await.unwrap();
                for claimed in store.claim_due(crm, now, lease, 2).await.unwrap().claimed {
                    let next = ends[(worker + claimed.attempts as usize) % 3];
                    let settlement = Settlement {
                        sent: None,
                        delivery: claimed.id,
                        destination: claimed.destination,
                        created_at: claimed.created_at,
                        token: claimed.lease.token,
                        at: now,
                        attempt: super::samples::attempt(ids.next().unwrap(), &claimed, now, next),
                        ordered: false,
                        next,
                        schedule_reason: None,
                    };
                    assert_eq!(store.settle(settlement).await.unwrap(), SettleResult::Recorded);
                }
            }
        });
    }
    tasks.join_all().await;

    for _restarted in [false, true] {
        let counts = without_zeros(world.counts());
        let everything = PageRequest { after: None, limit: 1000 };
        let rows = world.deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
        let mut listed = BTreeMap::new();
        for row in &rows {
            *listed.entry(row.status).or_default() += 1;
        }
        let attempts: u32 = rows.iter().map(|row| row.attempts).sum();
        let retries: u32 = rows.iter().map(|row| row.attempts.saturating_sub(1)).sum();
        assert_eq!(counts.by_status, listed);
        assert_eq!((counts.attempts, counts.retries), (attempts.into(), retries.into()));
        let page = PageRequest { after: None, limit: 1000 };
        let events = world.events(EventFilter::default(), page).await.unwrap().rows;
        let duplicates: u64 = events.iter().map(|event| event.duplicates).sum();
        assert_eq!((counts.events, counts.duplicates), (20, 130));
        assert_eq!((events.len(), duplicates), (20, 130));
        world.reopen().await;
    }
}
