//! What may have been sent is not sent again by a crash: a will says what holds instead.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::{
        AttemptFailure, DeadReason, FailureClass, LeaseToken, ScheduleReason, state::DeliveryStatus,
    },
    store::{AttemptRecord, ConfigChange, NextStep, SettleResult, Settlement},
    time::Timestamp,
};

use super::{World, decisions::kinds, samples::held, world::LEASE};

const MINUTE: Duration = Duration::from_secs(60);
const PARKED: NextStep = NextStep::Dead(DeadReason::Ambiguous);

/// Leaves a will that must be taken.
async fn leave(world: &World, will: Settlement) {
    assert_eq!(world.record_crash_outcome(will).await.unwrap(), SettleResult::Recorded);
}

pub async fn crash_applies_the_crash_outcome(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let (started_at, due_at) = (world.now, world.now + MINUTE * 10);
    leave(&world, world.will(&claimed, NextStep::RetryAt(due_at))).await;
    assert_eq!(world.statuses(event).await, [DeliveryStatus::InFlight], "nothing has happened yet");
    world.wait(MINUTE);

    world.die().await;

    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Scheduled, 1));
    let attempts = world.delivery_detail(row.id).await.attempts;
    let made = &attempts[0].attempt;
    assert_eq!((made.number, made.started_at, made.status), (1, started_at, None));
    assert_eq!(
        (made.failure, made.class),
        (Some(AttemptFailure::Interrupted), Some(FailureClass::Ambiguous))
    );
    assert_eq!(attempts[0].next, Some(NextStep::RetryAt(due_at)), "the time is that of the will");
    assert_eq!(attempts[0].schedule_reason, Some(ScheduleReason::StatusAwaited));
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::OutcomeUnknown]);
}

pub async fn crash_outcome_restarts_the_wait_for_a_status_after_downtime(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let will = world.will(&claimed, NextStep::RetryAt(world.now + MINUTE * 10));
    let wait = MINUTE * 10 - will.attempt.took;
    leave(&world, will).await;
    world.wait(MINUTE * 60);
    let started_at = world.now;

    world.die().await;

    // Nobody could tell us of it while we were down.
    let due_at = world.only_delivery(event).await.due_at.unwrap();
    if world.is_sole_owner() {
        assert_eq!(due_at, started_at + wait);
        assert!(world.claim(world.crm, 10).await.is_empty(), "it is not due before its time");
    }
    world.now = world.now.max(due_at);
    assert_eq!(world.claim_one(world.crm).await.attempts, 1);
}

pub async fn expired_lease_applies_the_crash_outcome(mut world: World) {
    let first = world.keyed("k");
    let event = world.accept(first.clone()).await;
    let claimed = world.claim_one(world.crm).await;
    leave(&world, world.will(&claimed, PARKED)).await;

    assert!(world.release_expired(world.now).await.unwrap().is_empty(), "the lease holds");
    world.wait(LEASE);
    let ended_at = world.now;
    assert_eq!(world.release_expired(ended_at).await.unwrap(), [world.crm]);

    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Dead, Some(DeadReason::Ambiguous)));
    assert_eq!((row.attempts, row.ended_at), (1, Some(ended_at)));
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::OutcomeUnknown]);
    let late = world.settlement(&claimed, NextStep::Succeeded);
    assert_eq!(world.settle(late).await.unwrap(), SettleResult::LeaseLost);
    let counts = world.counts();
    assert_eq!((counts.attempts, counts.dead[&DeadReason::Ambiguous].pending), (1, 1));
    // It may have arrived: whether it is sent again is for a person to say, not for a duplicate.
    assert!(world.expect_duplicate(world.again(&first)).await.revived.is_empty());
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn settlement_removes_the_crash_outcome(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    leave(&world, world.will(&claimed, PARKED)).await;
    world.finish(&claimed, NextStep::RetryAt(world.now)).await;
    world.claim_one(world.crm).await;

    world.die().await;

    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Pending, 1));
}

pub async fn release_removes_the_crash_outcome(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    leave(&world, world.will(&claimed, PARKED)).await;
    world.release(vec![held(&claimed)], world.now).await.unwrap();
    world.claim_one(world.crm).await;

    world.die().await;

    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Pending, 0));
}

pub async fn crash_outcome_needs_the_current_lease_token(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let good = world.will(&claimed, PARKED);
    let other_token = Settlement { token: LeaseToken(-1), ..good.clone() };
    let unknown = Settlement { delivery: world.id(), ..good };

    for will in [other_token, unknown] {
        assert_eq!(world.record_crash_outcome(will).await.unwrap(), SettleResult::LeaseLost);
    }

    world.die().await;
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Pending]);
}

pub async fn last_recorded_crash_outcome_is_applied(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    leave(&world, world.will(&claimed, PARKED)).await;
    let due_at = world.now + MINUTE;
    leave(&world, world.will(&claimed, NextStep::RetryAt(due_at))).await;

    world.die().await;

    assert_eq!(world.only_delivery(event).await.due_at, Some(due_at));
}

pub async fn crash_outcome_with_a_response_is_rejected(world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;

    let answered = world.settlement(&claimed, NextStep::Succeeded);
    assert!(world.record_crash_outcome(answered).await.is_err());

    assert_eq!(world.statuses(event).await, [DeliveryStatus::InFlight]);
    world.finish(&claimed, NextStep::Succeeded).await;
}

pub async fn crash_outcome_that_ends_the_first_makes_the_next_due(mut world: World) {
    world.accept(world.in_line("c-1")).await;
    let second = world.accept(world.in_line("c-1")).await;
    let claimed = world.claim_one(world.crm).await;
    leave(&world, world.will(&claimed, PARKED)).await;
    assert_eq!(world.statuses(second).await, [DeliveryStatus::Held]);

    world.die().await;

    assert_eq!(world.statuses(second).await, [DeliveryStatus::Pending]);
    assert_eq!(world.claim_one(world.crm).await.event, second);
}

pub async fn deleting_a_destination_removes_the_crash_outcome(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    leave(&world, world.will(&claimed, PARKED)).await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    let late = world.will(&claimed, PARKED);
    assert_eq!(world.record_crash_outcome(late).await.unwrap(), SettleResult::LeaseLost);
    world.die().await;

    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Cancelled, 0));
}

pub async fn all_crash_outcomes_are_applied_after_a_crash(mut world: World) {
    let mut expected = Vec::new();
    for number in 0..20 {
        let event = world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        let next = match number % 3 {
            0 => NextStep::RetryAt(Timestamp::from_millis(world.now.as_millis() + number)),
            1 => PARKED,
            _ => NextStep::Succeeded,
        };
        if number % 2 == 0 {
            leave(&world, world.will(&claimed, next)).await;
        }
        let status = match next {
            _ if number % 2 == 1 => DeliveryStatus::Pending,
            NextStep::RetryAt(_) => DeliveryStatus::Scheduled,
            NextStep::Dead(_) => DeliveryStatus::Dead,
            NextStep::Succeeded => DeliveryStatus::Succeeded,
        };
        expected.push((event, status));
    }

    world.die().await;

    for (event, status) in expected {
        assert_eq!(world.statuses(event).await, [status]);
    }
    assert_eq!((world.counts().attempts, world.count(DeliveryStatus::InFlight)), (10, 0));
}

pub async fn ambiguous_delivery_waits_again_for_a_status_after_restart(mut world: World) {
    // As long as it would have waited from the end of its attempt, and so long at most.
    let (ten, month) = (MINUTE * 10, MINUTE * 60 * 24 * 30);
    let mut expected = Vec::new();
    for (wait, is_known) in [(ten, false), (month, false), (ten, true)] {
        let event = world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        let due_at = world.now + wait;
        let settlement = match is_known {
            true => world.settlement(&claimed, NextStep::RetryAt(due_at)),
            false => world.will(&claimed, NextStep::RetryAt(due_at)),
        };
        let AttemptRecord { started_at, took, .. } = settlement.attempt;
        let span = due_at.since(started_at + took);
        world.settle(settlement).await.unwrap();
        expected.push((event, due_at, (!is_known).then_some(span)));
    }
    // One that was tried again, and failed, waits for no word any more.
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.settle(world.will(&claimed, NextStep::RetryAt(world.now))).await.unwrap();
    let claimed = world.claim_one(world.crm).await;
    let due_at = world.now + MINUTE;
    world.finish(&claimed, NextStep::RetryAt(due_at)).await;
    expected.push((event, due_at, None));
    for downtime in [MINUTE * 60, MINUTE] {
        world.wait(downtime);

        world.reopen().await;

        for (event, due_at, span) in &expected {
            let week = MINUTE * 60 * 24 * 7;
            let anew = span.map(|span| world.now + span.min(week));
            let anew = anew.filter(|_| world.is_sole_owner()).unwrap_or(*due_at);
            assert_eq!(world.only_delivery(*event).await.due_at, Some(anew.max(*due_at)));
        }
    }
}
