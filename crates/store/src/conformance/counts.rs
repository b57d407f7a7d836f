//! Counters are exact after every step.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::NewEvent,
    store::{
        ClaimedDelivery, DeadReasonCount, DeliveryFilter, NextStep, SettleResult, Settlement,
        StoreCounts,
    },
};
use surehook_retry::DeadReason;
use tokio::task::JoinSet;

use super::{
    StoreFixture,
    fixture::{first_page, held_claim, other_claim, without_zeros},
};

fn by_status<const N: usize>(pairs: [(DeliveryStatus, u64); N]) -> BTreeMap<DeliveryStatus, u64> {
    pairs.into()
}

#[expect(clippy::cognitive_complexity, reason = "steps of one history, one after the other")]
pub async fn every_step_is_counted_once(fixture: StoreFixture) {
    use DeliveryStatus::{Dead, InFlight, Pending, Scheduled, Succeeded};
    let counted = async |fixture: &StoreFixture| without_zeros(fixture.counts().await);
    assert_eq!(counted(&fixture).await, StoreCounts::default());

    fixture.accept(fixture.new_event()).await;
    let keyed = fixture.event_for_both("k");
    fixture.accept(keyed.clone()).await;
    fixture.expect_duplicate(fixture.repeat_of(&keyed)).await;
    let expected = StoreCounts {
        events: 2,
        no_key: 1,
        duplicates: 1,
        by_status: by_status([(Pending, 3)]),
        ..StoreCounts::default()
    };
    assert_eq!(counted(&fixture).await, expected);

    let claimed = fixture.claim(fixture.crm, 2).await;
    assert_eq!(counted(&fixture).await.by_status, by_status([(Pending, 1), (InFlight, 2)]));
    fixture.finish(&claimed[0], NextStep::RetryAt(fixture.now)).await;
    fixture.release(vec![held_claim(&claimed[1])], fixture.now).await.unwrap();
    assert_eq!(counted(&fixture).await.by_status, by_status([(Pending, 2), (Scheduled, 1)]));

    let lost = fixture.claim(fixture.crm, 2).await;
    assert_eq!(counted(&fixture).await.by_status, by_status([(Pending, 1), (InFlight, 2)]));
    fixture.abandon_claim(&lost[0]).await;
    fixture.abandon_claim(&lost[1]).await;
    assert_eq!(counted(&fixture).await.by_status, by_status([(Pending, 3)]));

    let claimed = fixture.claim(fixture.crm, 2).await;
    fixture.finish(&claimed[0], NextStep::Succeeded).await;
    fixture.finish(&claimed[1], NextStep::Dead(DeadReason::MaxRetries)).await;
    let expected = StoreCounts {
        attempts: 3,
        retries: 1,
        by_status: by_status([(Pending, 1), (Succeeded, 1), (Dead, 1)]),
        dead: [(DeadReason::MaxRetries, DeadReasonCount { total: 1, pending: 1 })].into(),
        ..expected
    };
    assert_eq!(counted(&fixture).await, expected);
}

pub async fn rejected_steps_are_not_counted(fixture: StoreFixture) {
    let keyed = fixture.event_with_key("k");
    let existing = fixture.accept(keyed.clone()).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    let before = fixture.counts().await;

    let bad = NewEvent { id: existing, ..fixture.new_event() };
    let request = vec![fixture.new_event(), fixture.repeat_of(&keyed), bad];
    assert!(fixture.admit(request).await.is_err());
    let good = fixture.settlement(&claimed, NextStep::Dead(DeadReason::Expired));
    let lost = Settlement { proof: other_claim(&claimed), ..good };
    assert_eq!(fixture.settle(lost).await.unwrap(), SettleResult::ClaimLost);
    fixture.replay(claimed.id, fixture.new_id(), fixture.now).await.unwrap();
    fixture.abandon_claim(&ClaimedDelivery { proof: other_claim(&claimed), ..claimed }).await;

    assert_eq!(fixture.counts().await, before);
}

pub async fn dead_deliveries_are_counted_by_reason(mut fixture: StoreFixture) {
    for (times, reason) in (1..).zip(DeadReason::ALL) {
        for _ in 0..times {
            fixture.accept(fixture.new_event()).await;
        }
        fixture.finish_due(fixture.crm, NextStep::Dead(reason)).await;
    }
    let dead = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..DeliveryFilter::default() };
    let page = first_page(4);
    fixture.wait(Duration::from_secs(1));
    // The newest four died for the last reason, which six deliveries have.
    for row in fixture.list_deliveries(dead, page).await.unwrap().rows {
        fixture.replay(row.id, fixture.new_id(), fixture.now).await.unwrap();
    }

    let counts = without_zeros(fixture.counts().await);

    for (total, reason) in (1..).zip(DeadReason::ALL) {
        let pending = if total == 6 { 2 } else { total };
        assert_eq!(counts.dead[&reason], DeadReasonCount { total, pending }, "{reason:?}");
    }
    assert_eq!(counts.by_status[&DeliveryStatus::Dead], 17);
}

pub async fn counts_survive_restart(mut fixture: StoreFixture) {
    let keyed = fixture.event_for_both("k");
    fixture.accept(keyed.clone()).await;
    fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::PayloadError)).await;
    fixture.finish_due(fixture.mail, NextStep::RetryAt(fixture.now)).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.expect_duplicate(fixture.repeat_of(&keyed)).await;
    let before = without_zeros(fixture.counts().await);

    fixture.reopen().await;

    assert_eq!(without_zeros(fixture.counts().await), before);
    assert_eq!((before.retries, before.duplicates, before.no_key), (1, 1, 1));
}

pub async fn counts_match_the_lists_after_concurrent_work(mut fixture: StoreFixture) {
    let mut tasks = JoinSet::new();
    for worker in 0..6 {
        let events: Vec<NewEvent> =
            (0..25).map(|n| fixture.event_for_both(&format!("k{}", n % 20))).collect();
        let (store, now, crm) = (fixture.store(), fixture.now, fixture.crm);
        let proof = fixture.new_claim();
        let ends =
            [NextStep::Succeeded, NextStep::RetryAt(now), NextStep::Dead(DeadReason::MaxRetries)];
        let attempt_ids: Vec<_> = (0..200).map(|_| fixture.new_id()).collect();
        let mut ids = attempt_ids.into_iter();
        tasks.spawn(async move {
            for event in events {
                store.admit([event].into()).await.unwrap();
                for claimed in store.claim_due(crm, now, proof, 2).await.unwrap().claimed {
                    let next = ends[(worker + claimed.attempts as usize) % 3];
                    let settlement = Settlement {
                        sent: None,
                        delivery: claimed.id,
                        destination: claimed.destination,
                        created_at: claimed.created_at,
                        proof,
                        at: now,
                        attempt: super::fixture::next_attempt(
                            ids.next().unwrap(),
                            &claimed,
                            now,
                            next,
                        ),
                        ordered: false,
                        next,
                        schedule_reason: None,
                    };
                    assert_eq!(
                        store.settle(vec![settlement]).await.unwrap(),
                        [SettleResult::Recorded]
                    );
                }
            }
        });
    }
    tasks.join_all().await;

    for _restarted in [false, true] {
        let counts = without_zeros(fixture.counts().await);
        let everything = first_page(1000);
        let rows =
            fixture.list_deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
        let mut listed = BTreeMap::new();
        for row in &rows {
            *listed.entry(row.status).or_default() += 1;
        }
        let attempts: u32 = rows.iter().map(|row| row.attempts).sum();
        let retries: u32 = rows.iter().map(|row| row.attempts.saturating_sub(1)).sum();
        assert_eq!(counts.by_status, listed);
        assert_eq!((counts.attempts, counts.retries), (attempts.into(), retries.into()));
        let events = fixture.all_events().await;
        let duplicates: u64 = events.iter().map(|event| event.duplicates).sum();
        assert_eq!((counts.events, counts.duplicates), (20, 130));
        assert_eq!((events.len(), duplicates), (20, 130));
        fixture.reopen().await;
    }
}
