//! Settling an attempt: recorded once, only with the current claim.

use std::time::Duration;

use surehook_core::{
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    event::NewEvent,
    store::{AttemptRecord, AttemptRow, ConfigChange, NextStep, SettleResult, Settlement},
};
use surehook_guard::timing::AttemptTiming;
use surehook_retry::{AttemptFailure, DeadReason, FailureClass, ScheduleReason};
use tokio::task::JoinSet;

use super::{
    StoreFixture,
    fixture::{held_claim, other_claim},
};

const SECOND: Duration = Duration::from_secs(1);

pub async fn success_ends_the_delivery(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    fixture.wait(SECOND);

    fixture.finish(&claimed, NextStep::Succeeded).await;

    let stored = fixture.only_delivery(event).await;
    assert_eq!((stored.status, stored.attempts), (DeliveryStatus::Succeeded, 1));
    assert_eq!((stored.ended_at, stored.due_at, stored.reason), (Some(fixture.now), None, None));
    fixture.abandon_claim(&claimed).await;
    assert!(fixture.claim(fixture.crm, 9).await.is_empty());
}

pub async fn retry_schedules_the_delivery_at_the_given_time(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let due_at = fixture.now + SECOND * 7;

    fixture.finish_due(fixture.crm, NextStep::RetryAt(due_at)).await;

    let stored = fixture.only_delivery(event).await;
    assert_eq!((stored.status, stored.attempts), (DeliveryStatus::Scheduled, 1));
    assert_eq!((stored.due_at, stored.ended_at, stored.reason), (Some(due_at), None, None));
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(due_at));
}

pub async fn dead_delivery_stores_its_reason(fixture: StoreFixture) {
    for reason in DeadReason::ALL {
        let event = fixture.accept(fixture.new_event()).await;

        fixture.finish_due(fixture.crm, NextStep::Dead(reason)).await;

        let stored = fixture.only_delivery(event).await;
        assert_eq!((stored.status, stored.reason), (DeliveryStatus::Dead, Some(reason)));
        assert_eq!((stored.ended_at, stored.due_at), (Some(fixture.now), None));
    }
    assert!(fixture.claim(fixture.crm, 9).await.is_empty());
}

pub async fn lost_claim_settles_nothing(mut fixture: StoreFixture) {
    let (event, stale) = fixture.accept_and_claim().await;
    fixture.wait(SECOND);
    fixture.abandon_claim(&stale).await;
    let late = fixture.settlement(&stale, NextStep::Dead(DeadReason::Expired));

    // Before and after another claim.
    assert_eq!(fixture.settle(late.clone()).await.unwrap(), SettleResult::ClaimLost);
    let current = fixture.claim_one(fixture.crm).await;
    assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost);

    let stored = fixture.only_delivery(event).await;
    assert_eq!(
        (stored.status, stored.attempts, stored.reason),
        (DeliveryStatus::InFlight, 0, None)
    );
    assert!(fixture.delivery_detail(stored.id).await.attempts.is_empty());
    fixture.finish(&current, NextStep::Succeeded).await;
    assert_eq!(fixture.counts().await.attempts, 1);
}

pub async fn second_settlement_under_a_claim_is_rejected(fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let first = fixture.settlement(&claimed, NextStep::RetryAt(fixture.now + SECOND));
    let second = fixture.settlement(&claimed, NextStep::Succeeded);

    assert_eq!(fixture.settle(first).await.unwrap(), SettleResult::Recorded);
    assert_eq!(fixture.settle(second).await.unwrap(), SettleResult::ClaimLost);

    let stored = fixture.only_delivery(event).await;
    assert_eq!((stored.status, stored.attempts), (DeliveryStatus::Scheduled, 1));
}

pub async fn settling_the_same_attempt_again_returns_the_first_result(mut fixture: StoreFixture) {
    for next in [
        NextStep::RetryAt(fixture.now),
        NextStep::Dead(DeadReason::MaxRetries),
        NextStep::Succeeded,
    ] {
        let (event, claimed) = fixture.accept_and_claim().await;
        let settlement = fixture.settlement(&claimed, next);
        assert_eq!(fixture.settle(settlement.clone()).await.unwrap(), SettleResult::Recorded);
        let (attempts, before) =
            (fixture.counts().await.attempts, fixture.only_delivery(event).await);
        // Also while the next attempt runs.
        let claimed_again = fixture.claim(fixture.crm, 1).await;

        assert_eq!(fixture.settle(settlement.clone()).await.unwrap(), SettleResult::Recorded);

        let after = fixture.only_delivery(event).await;
        assert_eq!((fixture.counts().await.attempts, after.attempts), (attempts, before.attempts));
        if claimed_again.is_empty() {
            assert_eq!((after.status, after.due_at), (before.status, before.due_at));
        } else {
            assert_eq!(after.status, DeliveryStatus::InFlight);
            fixture.finish(&claimed_again[0], NextStep::Succeeded).await;
        }
        fixture.wait(SECOND);
    }
}

pub async fn concurrent_settlements_are_recorded_once(fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let ends = [
        NextStep::Succeeded,
        NextStep::Dead(DeadReason::Ambiguous),
        NextStep::RetryAt(fixture.now),
    ];
    let mut tasks = JoinSet::new();
    for next in ends.into_iter().cycle().take(21) {
        let (store, settlement) = (fixture.store(), fixture.settlement(&claimed, next));
        tasks.spawn(async move { store.settle(vec![settlement]).await.unwrap() });
    }

    let results = tasks.join_all().await.concat();

    assert_eq!(results.iter().filter(|settled| **settled == SettleResult::Recorded).count(), 1);
    let stored = fixture.only_delivery(event).await;
    assert_eq!(fixture.delivery_detail(stored.id).await.attempts.len(), 1);
    assert_eq!((stored.attempts, fixture.counts().await.attempts), (1, 1));
}

pub async fn settlements_of_one_call_are_decided_one_by_one(mut fixture: StoreFixture) {
    let ordered = [fixture.ordered_event("k"), fixture.ordered_event("k")];
    fixture.admit(ordered.to_vec()).await.unwrap();
    fixture.accept(fixture.new_event()).await;
    fixture.wait(SECOND);
    let claimed = fixture.claim(fixture.crm, 9).await;
    assert_eq!(claimed.len(), 2, "the second of the ordering key is held");
    let first = fixture.settlement(&claimed[0], NextStep::Succeeded);
    let second = fixture.settlement(&claimed[1], NextStep::RetryAt(fixture.now + SECOND));
    let unknown = Settlement { delivery: fixture.new_id(), ..first.clone() };
    let twice = fixture.settlement(&claimed[0], NextStep::Dead(DeadReason::Expired));

    let batch = vec![unknown, first.clone(), second, twice, first];
    let results = fixture.store().settle(batch).await.unwrap();

    let (lost, recorded) = (SettleResult::ClaimLost, SettleResult::Recorded);
    assert_eq!(results, [lost, recorded, recorded, lost, recorded]);
    let status = [DeliveryStatus::Succeeded, DeliveryStatus::Scheduled];
    for (claimed, status) in claimed.iter().zip(status) {
        assert_eq!(fixture.delivery_detail(claimed.id).await.delivery.status, status);
    }
    assert_eq!(fixture.counts().await.attempts, 2);
    assert_eq!(fixture.claim_one(fixture.crm).await.event, ordered[1].id, "its turn has come");
    assert!(fixture.store().settle(Vec::new()).await.unwrap().is_empty());
}

pub async fn settling_an_unknown_or_cancelled_delivery_is_a_lost_claim(fixture: StoreFixture) {
    let (first, claimed) = fixture.accept_and_claim().await;
    let good = fixture.settlement(&claimed, NextStep::Succeeded);
    let unknown = Settlement { delivery: fixture.new_id(), ..good.clone() };
    let other = Settlement { proof: other_claim(&claimed), ..good.clone() };
    let older = ClaimProof { epoch: LaneEpoch(claimed.proof.epoch.0 - 1), ..claimed.proof };
    let older = Settlement { proof: older, ..good.clone() };

    assert_eq!(fixture.settle(unknown).await.unwrap(), SettleResult::ClaimLost);
    assert_eq!(fixture.settle(other).await.unwrap(), SettleResult::ClaimLost);
    assert_eq!(
        fixture.settle(older).await.unwrap(),
        SettleResult::ClaimLost,
        "of an earlier owner"
    );
    assert_eq!(fixture.delivery_statuses(first).await, [DeliveryStatus::InFlight]);

    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    assert_eq!(fixture.settle(good).await.unwrap(), SettleResult::ClaimLost);
    assert_eq!(fixture.delivery_statuses(first).await, [DeliveryStatus::Cancelled]);
}

pub async fn attempts_are_numbered_and_stored_with_all_fields(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let mut expected: Vec<AttemptRow> = Vec::new();
    for (number, failure) in (1..).zip(AttemptFailure::ALL) {
        let claimed = fixture.claim_one(fixture.crm).await;
        assert_eq!(claimed.attempts, number - 1);
        let next = NextStep::RetryAt(fixture.now + SECOND);
        let settlement = fixture.settlement(&claimed, next);
        let schedule_reason = Some(ScheduleReason::ALL[expected.len() % ScheduleReason::ALL.len()]);
        // Every timing is present and absent once, each in its own field.
        let stage = |bit: u32| {
            (number & bit != 0).then(|| Duration::from_millis(u64::from(number * 10 + bit)))
        };
        let timing = AttemptTiming {
            dns: stage(1),
            connect: stage(2),
            tls: stage(4),
            first_byte: stage(8),
            reused: (number > 2).then_some(number % 2 == 0),
        };
        let attempt = AttemptRecord {
            timing,
            status: None,
            failure: Some(failure),
            class: Some(FailureClass::ALL[expected.len() % FailureClass::ALL.len()]),
            detail: Some(format!("try {number}: größer")),
            response: Vec::new(),
            ..settlement.attempt.clone()
        };
        expected.push(AttemptRow {
            delivery: claimed.id,
            attempt: attempt.clone(),
            next: Some(next),
            schedule_reason,
        });
        fixture.settle(Settlement { attempt, schedule_reason, ..settlement }).await.unwrap();
        fixture.wait(SECOND);
    }
    let claimed = fixture.claim_one(fixture.crm).await;
    let last = fixture.settlement(&claimed, NextStep::Succeeded);
    let (attempt, next) = (last.attempt.clone(), Some(NextStep::Succeeded));
    expected.push(AttemptRow { delivery: claimed.id, attempt, next, schedule_reason: None });
    fixture.settle(last).await.unwrap();

    let stored = fixture.delivery_detail(fixture.only_delivery(event).await.id).await;

    assert_eq!(usize::try_from(stored.delivery.attempts), Ok(AttemptFailure::ALL.len() + 1));
    assert_eq!(stored.attempts, expected);
}

pub async fn throttled_attempts_are_counted_separately(mut fixture: StoreFixture) {
    fixture.accept(fixture.new_event()).await;
    for class in [FailureClass::Throttled, FailureClass::Transient, FailureClass::Throttled] {
        let claimed = fixture.claim_one(fixture.crm).await;
        let mut settlement = fixture.settlement(&claimed, NextStep::RetryAt(fixture.now));
        settlement.attempt.class = Some(class);
        fixture.settle(settlement).await.unwrap();
        fixture.wait(SECOND);
    }

    let claimed = fixture.claim_one(fixture.crm).await;

    assert_eq!((claimed.attempts, claimed.throttled), (3, 2));
    fixture.release(vec![held_claim(&claimed)], fixture.now).await.unwrap();
    let again = fixture.claim_one(fixture.crm).await;
    assert_eq!((again.attempts, again.throttled), (3, 2));
}

pub async fn settlements_survive_restart(mut fixture: StoreFixture) {
    let events: Vec<NewEvent> = (0..3).map(|_| fixture.new_event()).collect();
    fixture.admit(events.clone()).await.unwrap();
    let due_at = fixture.now + SECOND;
    let ends =
        [NextStep::Succeeded, NextStep::RetryAt(due_at), NextStep::Dead(DeadReason::PayloadError)];
    for (claimed, next) in fixture.claim(fixture.crm, 3).await.iter().zip(ends) {
        fixture.finish(claimed, next).await;
    }

    fixture.reopen().await;

    let statuses = [DeliveryStatus::Succeeded, DeliveryStatus::Scheduled, DeliveryStatus::Dead];
    for (event, status) in events.iter().zip(statuses) {
        let stored = fixture.only_delivery(event.id).await;
        assert_eq!((stored.status, stored.attempts), (status, 1));
        assert_eq!(fixture.delivery_detail(stored.id).await.attempts.len(), 1);
    }
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(due_at));
}
