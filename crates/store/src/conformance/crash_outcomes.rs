//! Crash outcomes: a message that may have been sent is not sent again after a crash.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    store::{AttemptRecord, ConfigChange, NextStep, SettleResult, Settlement},
};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass, ScheduleReason};
use surehook_types::time::Timestamp;

use super::{
    StoreFixture,
    decisions::decision_kinds,
    fixture::{held_claim, other_claim},
};

const MINUTE: Duration = Duration::from_secs(60);
const DEAD_AMBIGUOUS: NextStep = NextStep::Dead(DeadReason::Ambiguous);

/// Records a crash outcome, which must succeed.
async fn record(fixture: &StoreFixture, outcome: Settlement) {
    assert_eq!(fixture.record_crash_outcome(outcome).await.unwrap(), SettleResult::Recorded);
}

pub async fn crash_applies_the_crash_outcome(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let (started_at, due_at) = (fixture.now, fixture.now + MINUTE * 10);
    record(&fixture, fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(due_at))).await;
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::InFlight],
        "nothing has happened yet"
    );
    fixture.wait(MINUTE);

    fixture.reopen().await;

    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Scheduled, 1));
    let attempts = fixture.delivery_detail(row.id).await.attempts;
    let attempt = &attempts[0].attempt;
    assert_eq!((attempt.number, attempt.started_at, attempt.status), (1, started_at, None));
    assert_eq!(
        (attempt.failure, attempt.class),
        (Some(AttemptFailure::Interrupted), Some(FailureClass::Ambiguous))
    );
    assert_eq!(
        attempts[0].next,
        Some(NextStep::RetryAt(due_at)),
        "the time is that of the crash outcome"
    );
    assert_eq!(attempts[0].schedule_reason, Some(ScheduleReason::StatusAwaited));
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::OutcomeUnknown]);
}

pub async fn crash_outcome_restarts_the_wait_for_a_status_after_downtime(
    mut fixture: StoreFixture,
) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let outcome =
        fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(fixture.now + MINUTE * 10));
    let wait = MINUTE * 10 - outcome.attempt.took;
    record(&fixture, outcome).await;
    fixture.wait(MINUTE * 60);
    let started_at = fixture.now;

    fixture.reopen().await;

    // No status could be received during the downtime.
    let due_at = fixture.only_delivery(event).await.due_at.unwrap();
    assert_eq!(due_at, started_at + wait);
    assert!(fixture.claim(fixture.crm, 10).await.is_empty(), "not due before its time");
    fixture.now = fixture.now.max(due_at);
    assert_eq!(fixture.claim_one(fixture.crm).await.attempts, 1);
}

pub async fn abandoned_claim_applies_the_crash_outcome(mut fixture: StoreFixture) {
    let first = fixture.event_with_key("k");
    let event = fixture.accept(first.clone()).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    record(&fixture, fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await;

    fixture.wait(MINUTE);
    let ended_at = fixture.now;
    fixture.abandon_claim(&claimed).await;

    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Dead, Some(DeadReason::Ambiguous)));
    assert_eq!((row.attempts, row.ended_at), (1, Some(ended_at)));
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::OutcomeUnknown]);
    let late = fixture.settlement(&claimed, NextStep::Succeeded);
    assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost);
    let counts = fixture.counts().await;
    assert_eq!((counts.attempts, counts.dead[&DeadReason::Ambiguous].pending), (1, 1));
    // It may have arrived: a user decides whether it is sent again, not a duplicate.
    assert!(fixture.expect_duplicate(fixture.repeat_of(&first)).await.revived.is_empty());
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn settlement_removes_the_crash_outcome(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    record(&fixture, fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await;
    fixture.finish(&claimed, NextStep::RetryAt(fixture.now)).await;
    fixture.claim_one(fixture.crm).await;

    fixture.reopen().await;

    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Pending, 1));
}

pub async fn release_removes_the_crash_outcome(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    record(&fixture, fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await;
    fixture.release(vec![held_claim(&claimed)], fixture.now).await.unwrap();
    fixture.claim_one(fixture.crm).await;

    fixture.reopen().await;

    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Pending, 0));
}

pub async fn crash_outcome_needs_the_current_claim(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let good = fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS);
    let other = Settlement { proof: other_claim(&claimed), ..good.clone() };
    let unknown = Settlement { delivery: fixture.new_id(), ..good };

    for outcome in [other, unknown] {
        assert_eq!(fixture.record_crash_outcome(outcome).await.unwrap(), SettleResult::ClaimLost);
    }

    fixture.reopen().await;
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Pending]);
}

pub async fn last_recorded_crash_outcome_is_applied(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    record(&fixture, fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await;
    let due_at = fixture.now + MINUTE;
    record(&fixture, fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(due_at))).await;

    fixture.reopen().await;

    assert_eq!(fixture.only_delivery(event).await.due_at, Some(due_at));
}

pub async fn crash_outcome_with_a_response_is_rejected(fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;

    let with_response = fixture.settlement(&claimed, NextStep::Succeeded);
    assert!(fixture.record_crash_outcome(with_response).await.is_err());

    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::InFlight]);
    fixture.finish(&claimed, NextStep::Succeeded).await;
}

pub async fn crash_outcome_that_ends_the_first_makes_the_next_due(mut fixture: StoreFixture) {
    fixture.accept(fixture.ordered_event("c-1")).await;
    let second = fixture.accept(fixture.ordered_event("c-1")).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    record(&fixture, fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await;
    assert_eq!(fixture.delivery_statuses(second).await, [DeliveryStatus::Held]);

    fixture.reopen().await;

    assert_eq!(fixture.delivery_statuses(second).await, [DeliveryStatus::Pending]);
    assert_eq!(fixture.claim_one(fixture.crm).await.event, second);
}

pub async fn deleting_a_destination_removes_the_crash_outcome(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    record(&fixture, fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    let late = fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS);
    assert_eq!(fixture.record_crash_outcome(late).await.unwrap(), SettleResult::ClaimLost);
    fixture.reopen().await;

    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Cancelled, 0));
}

pub async fn all_crash_outcomes_are_applied_after_a_crash(mut fixture: StoreFixture) {
    let mut expected = Vec::new();
    for number in 0..20 {
        let (event, claimed) = fixture.accept_and_claim().await;
        let next = match number % 3 {
            0 => NextStep::RetryAt(Timestamp::from_millis(fixture.now.as_millis() + number)),
            1 => DEAD_AMBIGUOUS,
            _ => NextStep::Succeeded,
        };
        if number % 2 == 0 {
            record(&fixture, fixture.ambiguous_settlement(&claimed, next)).await;
        }
        let status = match next {
            _ if number % 2 == 1 => DeliveryStatus::Pending,
            NextStep::RetryAt(_) => DeliveryStatus::Scheduled,
            NextStep::Dead(_) => DeliveryStatus::Dead,
            NextStep::Succeeded => DeliveryStatus::Succeeded,
        };
        expected.push((event, status));
    }

    fixture.reopen().await;

    for (event, status) in expected {
        assert_eq!(fixture.delivery_statuses(event).await, [status]);
    }
    assert_eq!(
        (fixture.counts().await.attempts, fixture.count_deliveries(DeliveryStatus::InFlight).await),
        (10, 0)
    );
}

pub async fn ambiguous_delivery_waits_again_for_a_status_after_restart(mut fixture: StoreFixture) {
    // The wait is as long as it was from the end of the attempt, and a week at most.
    let (ten, month) = (MINUTE * 10, MINUTE * 60 * 24 * 30);
    let mut expected = Vec::new();
    for (wait, is_known) in [(ten, false), (month, false), (ten, true)] {
        let (event, claimed) = fixture.accept_and_claim().await;
        let due_at = fixture.now + wait;
        let settlement = match is_known {
            true => fixture.settlement(&claimed, NextStep::RetryAt(due_at)),
            false => fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(due_at)),
        };
        let AttemptRecord { started_at, took, .. } = settlement.attempt;
        let wait = due_at.since(started_at + took);
        fixture.settle(settlement).await.unwrap();
        expected.push((event, due_at, (!is_known).then_some(wait)));
    }
    // After a clear failure of the next attempt the delivery no longer waits for a status.
    let (event, claimed) = fixture.accept_and_claim().await;
    fixture
        .settle(fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(fixture.now)))
        .await
        .unwrap();
    let claimed = fixture.claim_one(fixture.crm).await;
    let due_at = fixture.now + MINUTE;
    fixture.finish(&claimed, NextStep::RetryAt(due_at)).await;
    expected.push((event, due_at, None));
    for downtime in [MINUTE * 60, MINUTE] {
        fixture.wait(downtime);

        fixture.reopen().await;

        for (event, due_at, wait) in &expected {
            let week = MINUTE * 60 * 24 * 7;
            let restarted = wait.map(|wait| fixture.now + wait.min(week));
            let restarted = restarted.unwrap_or(*due_at);
            assert_eq!(fixture.only_delivery(*event).await.due_at, Some(restarted.max(*due_at)));
        }
    }
}
