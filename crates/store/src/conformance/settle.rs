//! The end of an attempt: recorded once, by who holds the claim.

use std::time::Duration;

use surehook_core::{
    delivery::{
        AttemptFailure, AttemptTiming, DeadReason, FailureClass, LeaseToken, ScheduleReason,
        state::DeliveryStatus,
    },
    event::NewEvent,
    store::{AttemptRecord, AttemptRow, ConfigChange, NextStep, SettleResult, Settlement},
};
use tokio::task::JoinSet;

use super::{World, samples::held, world::LEASE};

const SECOND: Duration = Duration::from_secs(1);

pub async fn success_ends_the_delivery(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.wait(SECOND);

    world.finish(&claimed, NextStep::Succeeded).await;

    let kept = world.only_delivery(event).await;
    assert_eq!((kept.status, kept.attempts), (DeliveryStatus::Succeeded, 1));
    assert_eq!((kept.ended_at, kept.due_at, kept.reason), (Some(world.now), None, None));
    world.wait(LEASE * 2);
    assert!(world.release_expired(world.now).await.unwrap().is_empty());
    assert!(world.claim(world.crm, 9).await.is_empty());
}

pub async fn retry_schedules_the_delivery_at_the_given_time(world: World) {
    let event = world.accept(world.arrival()).await;
    let due_at = world.now + SECOND * 7;

    world.finish_due(world.crm, NextStep::RetryAt(due_at)).await;

    let kept = world.only_delivery(event).await;
    assert_eq!((kept.status, kept.attempts), (DeliveryStatus::Scheduled, 1));
    assert_eq!((kept.due_at, kept.ended_at, kept.reason), (Some(due_at), None, None));
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(due_at));
}

pub async fn dead_delivery_stores_its_reason(world: World) {
    for reason in DeadReason::ALL {
        let event = world.accept(world.arrival()).await;

        world.finish_due(world.crm, NextStep::Dead(reason)).await;

        let kept = world.only_delivery(event).await;
        assert_eq!((kept.status, kept.reason), (DeliveryStatus::Dead, Some(reason)));
        assert_eq!((kept.ended_at, kept.due_at), (Some(world.now), None));
    }
    assert!(world.claim(world.crm, 9).await.is_empty());
}

pub async fn stale_lease_token_settles_nothing(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let stale = world.claim_one(world.crm).await;
    world.wait(LEASE);
    world.release_expired(world.now).await.unwrap();
    let late = world.settlement(&stale, NextStep::Dead(DeadReason::Expired));

    // Before anybody else has it, and after.
    assert_eq!(world.settle(late.clone()).await.unwrap(), SettleResult::LeaseLost);
    let current = world.claim_one(world.crm).await;
    assert_eq!(world.settle(late).await.unwrap(), SettleResult::LeaseLost);

    let kept = world.only_delivery(event).await;
    assert_eq!((kept.status, kept.attempts, kept.reason), (DeliveryStatus::InFlight, 0, None));
    assert!(world.delivery_detail(kept.id).await.attempts.is_empty());
    world.finish(&current, NextStep::Succeeded).await;
    assert_eq!(world.counts().attempts, 1);
}

pub async fn second_settlement_of_an_attempt_is_rejected(world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let first = world.settlement(&claimed, NextStep::RetryAt(world.now + SECOND));
    let second = world.settlement(&claimed, NextStep::Succeeded);

    assert_eq!(world.settle(first.clone()).await.unwrap(), SettleResult::Recorded);
    assert_eq!(world.settle(first).await.unwrap(), SettleResult::LeaseLost);
    assert_eq!(world.settle(second).await.unwrap(), SettleResult::LeaseLost);

    let kept = world.only_delivery(event).await;
    assert_eq!((kept.status, kept.attempts), (DeliveryStatus::Scheduled, 1));
}

pub async fn concurrent_settlements_are_recorded_once(world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let ends =
        [NextStep::Succeeded, NextStep::Dead(DeadReason::Ambiguous), NextStep::RetryAt(world.now)];
    let mut tasks = JoinSet::new();
    for next in ends.into_iter().cycle().take(21) {
        let (store, settlement) = (world.store(), world.settlement(&claimed, next));
        tasks.spawn(async move { store.settle(settlement).await.unwrap() });
    }

    let told = tasks.join_all().await;

    assert_eq!(told.iter().filter(|settled| **settled == SettleResult::Recorded).count(), 1);
    let kept = world.only_delivery(event).await;
    assert_eq!(world.delivery_detail(kept.id).await.attempts.len(), 1);
    assert_eq!((kept.attempts, world.counts().attempts), (1, 1));
}

pub async fn expired_lease_that_was_not_released_still_settles(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.wait(LEASE * 3);

    // Nobody else has it, and the attempt was made: it would be a pity to make it twice.
    world.finish(&claimed, NextStep::Succeeded).await;

    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn settling_an_unknown_or_cancelled_delivery_is_a_lost_lease(world: World) {
    let first = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let good = world.settlement(&claimed, NextStep::Succeeded);
    let unknown = Settlement { delivery: world.id(), ..good.clone() };
    let other_token = Settlement { token: LeaseToken(-1), ..good.clone() };

    assert_eq!(world.settle(unknown).await.unwrap(), SettleResult::LeaseLost);
    assert_eq!(world.settle(other_token).await.unwrap(), SettleResult::LeaseLost);
    assert_eq!(world.statuses(first).await, [DeliveryStatus::InFlight]);

    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    assert_eq!(world.settle(good).await.unwrap(), SettleResult::LeaseLost);
    assert_eq!(world.statuses(first).await, [DeliveryStatus::Cancelled]);
}

pub async fn attempts_are_numbered_and_stored_with_all_fields(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let mut expected: Vec<AttemptRow> = Vec::new();
    for (number, failure) in (1..).zip(AttemptFailure::ALL) {
        let claimed = world.claim_one(world.crm).await;
        assert_eq!(claimed.attempts, number - 1);
        let next = NextStep::RetryAt(world.now + SECOND);
        let settlement = world.settlement(&claimed, next);
        let schedule_reason = Some(ScheduleReason::ALL[expected.len() % ScheduleReason::ALL.len()]);
        // Every stage is there and is not, and each in its own place.
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
        world.settle(Settlement { attempt, schedule_reason, ..settlement }).await.unwrap();
        world.wait(SECOND);
    }
    let claimed = world.claim_one(world.crm).await;
    let last = world.settlement(&claimed, NextStep::Succeeded);
    let (attempt, next) = (last.attempt.clone(), Some(NextStep::Succeeded));
    expected.push(AttemptRow { delivery: claimed.id, attempt, next, schedule_reason: None });
    world.settle(last).await.unwrap();

    let kept = world.delivery_detail(world.only_delivery(event).await.id).await;

    assert_eq!(usize::try_from(kept.delivery.attempts), Ok(AttemptFailure::ALL.len() + 1));
    assert_eq!(kept.attempts, expected);
}

pub async fn throttled_attempts_are_counted_separately(mut world: World) {
    world.accept(world.arrival()).await;
    for class in [FailureClass::Throttled, FailureClass::Transient, FailureClass::Throttled] {
        let claimed = world.claim_one(world.crm).await;
        let mut settlement = world.settlement(&claimed, NextStep::RetryAt(world.now));
        settlement.attempt.class = Some(class);
        world.settle(settlement).await.unwrap();
        world.wait(SECOND);
    }

    let claimed = world.claim_one(world.crm).await;

    assert_eq!((claimed.attempts, claimed.throttled), (3, 2));
    world.release(vec![held(&claimed)], world.now).await.unwrap();
    let again = world.claim_one(world.crm).await;
    assert_eq!((again.attempts, again.throttled), (3, 2));
}

pub async fn settlements_survive_restart(mut world: World) {
    let events: Vec<NewEvent> = (0..3).map(|_| world.arrival()).collect();
    world.admit(events.clone()).await.unwrap();
    let due_at = world.now + SECOND;
    let ends =
        [NextStep::Succeeded, NextStep::RetryAt(due_at), NextStep::Dead(DeadReason::PayloadError)];
    for (claimed, next) in world.claim(world.crm, 3).await.iter().zip(ends) {
        world.finish(claimed, next).await;
    }

    world.reopen().await;

    let statuses = [DeliveryStatus::Succeeded, DeliveryStatus::Scheduled, DeliveryStatus::Dead];
    for (event, status) in events.iter().zip(statuses) {
        let kept = world.only_delivery(event.id).await;
        assert_eq!((kept.status, kept.attempts), (status, 1));
        assert_eq!(world.delivery_detail(kept.id).await.attempts.len(), 1);
    }
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(due_at));
}
