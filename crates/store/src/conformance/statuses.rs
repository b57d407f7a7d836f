//! Status updates about sent messages move the delivery, once and in the commit that stores them.
//!
//! The later cases are about deliveries that were given up, replayed or lost when the status or a
//! late response shows that the message was sent.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    event::{NewEvent, ProviderStatus, StatusUpdate},
    store::{
        AdmitResult, ClaimedDelivery, ConfirmedDelivery, NextStep, REPLAY_INTERVAL, ReplayResult,
        SentMessage, SettleResult, Settlement,
    },
};
use surehook_retry::{DeadReason, ScheduleReason};
use surehook_types::ids::{DeliveryId, EventId};

use super::{
    StoreFixture,
    decisions::decision_kinds,
    fixture::{held_claim, other_claim},
    replay_jobs::{STEP_LIMIT, advance, all, create_and_select, report, retry},
};

const MINUTE: Duration = Duration::from_secs(60);
const DEAD_UNRECOVERABLE: NextStep = NextStep::Dead(DeadReason::Unrecoverable);
const DEAD_AMBIGUOUS: NextStep = NextStep::Dead(DeadReason::Ambiguous);

/// A status about the message that `event` sent to the CRM.
fn status_event(fixture: &StoreFixture, event: EventId, status: ProviderStatus) -> NewEvent {
    let update = StatusUpdate {
        event,
        destination: fixture.crm,
        at: fixture.now,
        sent_id: Some("wamid.1".to_owned()),
        status,
    };
    NewEvent { deliveries: Vec::new(), status_update: Some(update), ..fixture.new_event() }
}

/// Admits a status and returns the delivery that it changed.
pub(super) async fn send_status(
    fixture: &StoreFixture,
    event: EventId,
    status: ProviderStatus,
) -> Option<ConfirmedDelivery> {
    let admitted = fixture.admit_one(status_event(fixture, event, status)).await;
    let AdmitResult::Accepted { confirmed, .. } = admitted else { panic!("{admitted:?}") };
    confirmed
}

/// An event whose first attempt was ambiguous; its retry is due in ten minutes.
async fn ambiguous_event(fixture: &StoreFixture) -> EventId {
    let (event, claimed) = fixture.accept_and_claim().await;
    let settlement =
        fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(fixture.now + MINUTE * 10));
    assert_eq!(fixture.settle(settlement).await.unwrap(), SettleResult::Recorded);
    event
}

pub async fn sent_status_ends_an_ambiguous_delivery(mut fixture: StoreFixture) {
    let event = ambiguous_event(&fixture).await;
    fixture.wait(MINUTE);
    let delivery = fixture.only_delivery(event).await.id;
    let at = fixture.now;

    let changed = send_status(&fixture, event, ProviderStatus::Sent).await;

    let destination = fixture.crm;
    let expected =
        ConfirmedDelivery { delivery, event, destination, attempts: 1, next: NextStep::Succeeded };
    assert_eq!(changed, Some(expected));
    fixture.reopen().await;
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.ended_at, row.due_at), (DeliveryStatus::Succeeded, Some(at), None));
    assert_eq!(row.sent_id.as_deref(), Some("wamid.1"));
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::Confirmed]);
    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::Succeeded).await,
            fixture.count_deliveries(DeliveryStatus::Scheduled).await
        ),
        (1, 0)
    );
    fixture.wait(MINUTE * 60);
    assert!(fixture.claim(fixture.crm, 10).await.is_empty(), "it is not sent again");
}

pub async fn failed_status_makes_an_ambiguous_delivery_dead(fixture: StoreFixture) {
    let event = ambiguous_event(&fixture).await;

    let changed = send_status(&fixture, event, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).await;

    assert_eq!(changed.map(|changed| changed.next), Some(DEAD_UNRECOVERABLE));
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Dead, Some(DeadReason::Unrecoverable)));
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::Refuted]);
    let dead = fixture.counts().await.dead[&DeadReason::Unrecoverable];
    assert_eq!((dead.total, dead.pending), (1, 1));
}

pub async fn failed_status_can_bring_the_next_attempt_forward(fixture: StoreFixture) {
    let event = ambiguous_event(&fixture).await;
    let soon = NextStep::RetryAt(fixture.now);

    let changed = send_status(&fixture, event, ProviderStatus::Failed(soon)).await;

    assert_eq!(changed.map(|changed| changed.next), Some(soon));
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::Refuted]);
    assert_eq!(fixture.claim_one(fixture.crm).await.event, event);
}

pub async fn status_for_a_delivery_never_attempted_is_ignored(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let unknown = fixture.new_id();
    for status in [ProviderStatus::Sent, ProviderStatus::Failed(DEAD_UNRECOVERABLE)] {
        assert_eq!(send_status(&fixture, event, status).await, None);
        assert_eq!(send_status(&fixture, unknown, status).await, None);
    }
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Pending]);
}

/// A status received during an attempt proves that the message was sent.
pub async fn status_received_during_a_lost_first_attempt_is_applied(mut fixture: StoreFixture) {
    for (status, expected) in [
        (ProviderStatus::Sent, DeliveryStatus::Succeeded),
        (ProviderStatus::Failed(DEAD_UNRECOVERABLE), DeliveryStatus::Dead),
    ] {
        let (event, _) = status_during_attempt(&fixture, status).await;

        fixture.reopen().await;

        let row = fixture.only_delivery(event).await;
        assert_eq!((row.status, row.attempts), (expected, 0));
        assert!(fixture.claim(fixture.crm, 9).await.is_empty());
    }
}

pub async fn status_for_an_ended_delivery_is_ignored(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    assert_eq!(
        send_status(&fixture, event, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).await,
        None
    );
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);

    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, DEAD_UNRECOVERABLE).await;
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn duplicate_status_is_applied_once(fixture: StoreFixture) {
    let event = ambiguous_event(&fixture).await;
    let status = ProviderStatus::Failed(NextStep::RetryAt(fixture.now + MINUTE));
    let first =
        NewEvent { key: Some(fixture.key_claim("s-1")), ..status_event(&fixture, event, status) };
    fixture.accept(first.clone()).await;

    let status_update =
        status_event(&fixture, event, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).status_update;
    fixture.expect_duplicate(NewEvent { status_update, ..fixture.repeat_of(&first) }).await;

    assert_eq!(fixture.only_delivery(event).await.due_at, Some(fixture.now + MINUTE));
    assert_eq!(decision_kinds(&fixture, event).await.len(), 1);
}

/// An event with a claimed delivery that receives a status during the attempt.
async fn status_during_attempt(
    fixture: &StoreFixture,
    status: ProviderStatus,
) -> (EventId, ClaimedDelivery) {
    let (event, claimed) = fixture.accept_and_claim().await;
    assert_eq!(send_status(fixture, event, status).await, None);
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::InFlight]);
    (event, claimed)
}

pub async fn status_during_an_ambiguous_attempt_decides_its_outcome(fixture: StoreFixture) {
    let retry_later = NextStep::RetryAt(fixture.now + MINUTE);
    for (status, next, expected) in [
        (ProviderStatus::Sent, retry_later, DeliveryStatus::Succeeded),
        (ProviderStatus::Sent, DEAD_AMBIGUOUS, DeliveryStatus::Succeeded),
        (ProviderStatus::Failed(DEAD_UNRECOVERABLE), retry_later, DeliveryStatus::Dead),
        (ProviderStatus::Failed(retry_later), DEAD_AMBIGUOUS, DeliveryStatus::Scheduled),
    ] {
        let (event, claimed) = status_during_attempt(&fixture, status).await;

        let settled = fixture.settle(fixture.ambiguous_settlement(&claimed, next)).await.unwrap();

        assert_eq!(settled, SettleResult::Overruled(status.next_step()));
        let row = fixture.only_delivery(event).await;
        assert_eq!((row.status, row.attempts), (expected, 1));
        assert_eq!(row.sent_id.as_deref(), Some("wamid.1"));
        let attempts = fixture.delivery_detail(row.id).await.attempts;
        assert_eq!(attempts[0].next, Some(status.next_step()));
        let schedule_reason = status.next_step().due_at().map(|_| ScheduleReason::StatusFailed);
        assert_eq!(
            attempts[0].schedule_reason, schedule_reason,
            "the status overrules the attempt"
        );
        assert_eq!(decision_kinds(&fixture, event).await.len(), 1);
    }
}

pub async fn clear_response_overrules_a_status(fixture: StoreFixture) {
    let retry_later = NextStep::RetryAt(fixture.now + MINUTE);
    for (status, next) in [
        (ProviderStatus::Failed(DEAD_UNRECOVERABLE), NextStep::Succeeded),
        (ProviderStatus::Failed(DEAD_UNRECOVERABLE), retry_later),
        (ProviderStatus::Sent, NextStep::Succeeded),
    ] {
        let (event, claimed) = status_during_attempt(&fixture, status).await;
        fixture.finish(&claimed, next).await;
        assert!(decision_kinds(&fixture, event).await.is_empty(), "{status:?} {next:?}");
    }
}

pub async fn sent_status_during_a_failed_attempt_prevents_a_retry(fixture: StoreFixture) {
    // The message of the previous attempt may be the one that arrived, whatever the response to this
    // attempt was.
    for next in [NextStep::RetryAt(fixture.now + MINUTE), DEAD_UNRECOVERABLE] {
        let (event, claimed) = status_during_attempt(&fixture, ProviderStatus::Sent).await;

        let failed = fixture.settlement(&claimed, next);
        assert_eq!(
            fixture.settle(failed).await.unwrap(),
            SettleResult::Overruled(NextStep::Succeeded)
        );

        assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);
    }
}

pub async fn failed_status_after_a_sent_status_is_ignored(fixture: StoreFixture) {
    let (event, claimed) = status_during_attempt(&fixture, ProviderStatus::Sent).await;
    send_status(&fixture, event, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).await;

    fixture.settle(fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await.unwrap();

    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn crash_outcome_is_overruled_by_a_status(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    fixture
        .record_crash_outcome(fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS))
        .await
        .unwrap();
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);

    fixture.reopen().await;

    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Succeeded, 1));
    let mut recorded = decision_kinds(&fixture, event).await;
    recorded.sort();
    assert_eq!(recorded, [EventDecisionKind::OutcomeUnknown, EventDecisionKind::Confirmed]);
}

pub async fn status_received_in_flight_is_applied_on_release(mut fixture: StoreFixture) {
    for crashes in [false, true] {
        let event = ambiguous_event(&fixture).await;
        fixture.wait(MINUTE * 10);
        let claimed = fixture.claim_one(fixture.crm).await;
        assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);
        let at = fixture.now;

        if crashes {
            fixture.wait(MINUTE);
            fixture.reopen().await;
        } else {
            fixture.release(vec![held_claim(&claimed)], fixture.now + MINUTE).await.unwrap();
        }

        let row = fixture.only_delivery(event).await;
        assert_eq!((row.status, row.attempts), (DeliveryStatus::Succeeded, 1));
        assert_eq!(row.ended_at, Some(at));
    }
}

pub async fn lost_claim_does_not_consume_a_status(fixture: StoreFixture) {
    let (event, claimed) = status_during_attempt(&fixture, ProviderStatus::Sent).await;
    let good = fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS);
    let lost = Settlement { proof: other_claim(&claimed), ..good.clone() };

    assert_eq!(fixture.settle(lost).await.unwrap(), SettleResult::ClaimLost);

    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::InFlight]);
    assert_eq!(fixture.settle(good).await.unwrap(), SettleResult::Overruled(NextStep::Succeeded));
}

pub async fn status_about_an_earlier_delivery_is_ignored(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let sent = Some(SentMessage { id: Some("wamid.1".to_owned()), day: 1 });
    let settlement = Settlement { sent, ..fixture.settlement(&claimed, NextStep::Succeeded) };
    fixture.settle(settlement).await.unwrap();
    fixture.wait(REPLAY_INTERVAL);
    fixture.replay_now(claimed.id).await;
    let reclaimed = fixture.claim_one(fixture.crm).await;

    // A status of the first message says nothing about the second.
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);
    let retry_later = NextStep::RetryAt(fixture.now + MINUTE);
    assert_eq!(
        fixture.settle(fixture.ambiguous_settlement(&reclaimed, retry_later)).await.unwrap(),
        SettleResult::Recorded
    );
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);

    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Scheduled]
    );
}

pub async fn status_that_ends_a_delivery_makes_the_next_of_its_ordering_queue_due(
    fixture: StoreFixture,
) {
    for status in [ProviderStatus::Sent, ProviderStatus::Failed(DEAD_UNRECOVERABLE)] {
        let first = fixture.accept(fixture.ordered_event("c-1")).await;
        let second = fixture.accept(fixture.ordered_event("c-1")).await;
        let claimed = fixture.claim_one(fixture.crm).await;
        let retry_later = NextStep::RetryAt(fixture.now + MINUTE);
        fixture.settle(fixture.ambiguous_settlement(&claimed, retry_later)).await.unwrap();
        assert_eq!(fixture.delivery_statuses(second).await, [DeliveryStatus::Held]);

        send_status(&fixture, first, status).await;

        let next = fixture.claim_one(fixture.crm).await;
        assert_eq!(next.event, second);
        fixture.finish(&next, NextStep::Succeeded).await;
    }
}

/// The stored status is older than the next delivery, which must not be due before it was created.
pub async fn next_delivery_is_not_due_before_its_creation(mut fixture: StoreFixture) {
    let first = fixture.accept(fixture.ordered_event("c-1")).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(send_status(&fixture, first, ProviderStatus::Sent).await, None);
    fixture.wait(MINUTE);
    let second = fixture.accept(fixture.ordered_event("c-1")).await;

    fixture.release(vec![held_claim(&claimed)], fixture.now).await.unwrap();

    let row = fixture.only_delivery(second).await;
    assert_eq!((row.status, row.due_at), (DeliveryStatus::Pending, Some(row.created_at)));
}

/// Accepts an event whose delivery dies because its outcome is ambiguous.
async fn accept_and_die_ambiguous(
    fixture: &StoreFixture,
    event: NewEvent,
) -> (EventId, DeliveryId) {
    let event = fixture.accept(event).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(
        fixture.settle(fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await.unwrap(),
        SettleResult::Recorded
    );
    (event, claimed.id)
}

pub async fn sent_status_turns_an_ambiguous_dead_delivery_into_a_success(
    mut fixture: StoreFixture,
) {
    let (event, delivery) = accept_and_die_ambiguous(&fixture, fixture.new_event()).await;
    fixture.wait(MINUTE);

    let changed = send_status(&fixture, event, ProviderStatus::Sent).await.unwrap();

    assert_eq!((changed.delivery, changed.next), (delivery, NextStep::Succeeded));
    let ended_at = fixture.now;
    fixture.reopen().await;
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Succeeded, None));
    assert_eq!((row.ended_at, row.sent_id.as_deref()), (Some(ended_at), Some("wamid.1")));
    assert_eq!(decision_kinds(&fixture, event).await, [EventDecisionKind::Confirmed]);
    let dead = fixture.counts().await.dead[&DeadReason::Ambiguous];
    assert_eq!((dead.total, dead.pending), (1, 0), "it was dead once and is not dead now");
    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::Succeeded).await,
            fixture.count_deliveries(DeliveryStatus::Dead).await
        ),
        (1, 0)
    );
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None, "applied once");
}

pub async fn failed_status_leaves_an_ambiguous_dead_delivery_dead(fixture: StoreFixture) {
    let (event, _) = accept_and_die_ambiguous(&fixture, fixture.new_event()).await;
    for next in [DEAD_UNRECOVERABLE, NextStep::RetryAt(fixture.now)] {
        assert_eq!(send_status(&fixture, event, ProviderStatus::Failed(next)).await, None);
    }
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Dead, Some(DeadReason::Ambiguous)));
}

pub async fn late_success_of_an_earlier_delivery_does_not_advance_the_ordering_queue(
    fixture: StoreFixture,
) {
    let (first, _) = accept_and_die_ambiguous(&fixture, fixture.ordered_event("c-1")).await;
    let second = fixture.accept(fixture.ordered_event("c-1")).await;
    let third = fixture.accept(fixture.ordered_event("c-1")).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    assert_eq!(claimed.event, second);

    send_status(&fixture, first, ProviderStatus::Sent).await.unwrap();

    assert_eq!(fixture.delivery_statuses(third).await, [DeliveryStatus::Held]);
    assert_eq!(fixture.delivery_statuses(second).await, [DeliveryStatus::InFlight]);
}

pub async fn replay_job_skips_a_delivery_that_succeeded_meanwhile(mut fixture: StoreFixture) {
    let (event, _) = accept_and_die_ambiguous(&fixture, fixture.new_event()).await;
    fixture.wait(MINUTE);
    let job = create_and_select(&fixture, retry(all())).await;
    send_status(&fixture, event, ProviderStatus::Sent).await.unwrap();

    let step = advance(&fixture, job, STEP_LIMIT).await;

    assert!(step.dispatched.is_empty());
    assert_eq!(report(&fixture, job).await.progress().skipped(), 1);
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn sent_status_of_the_replayed_delivery_ends_its_replay(mut fixture: StoreFixture) {
    let (event, old) = accept_and_die_ambiguous(&fixture, fixture.new_event()).await;
    fixture.wait(REPLAY_INTERVAL);
    let replay_id = fixture.new_id();
    let replayed = fixture.replay(old, replay_id, fixture.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
    // A failure of the old message is the reason for the replay.
    assert_eq!(
        send_status(&fixture, event, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).await,
        None
    );

    let changed = send_status(&fixture, event, ProviderStatus::Sent).await.unwrap();

    assert_eq!((changed.delivery, changed.next), (replay_id, NextStep::Succeeded));
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]
    );
    assert!(fixture.claim(fixture.crm, 9).await.is_empty());
}

pub async fn status_that_cannot_be_about_the_replayed_delivery_is_ignored(
    mut fixture: StoreFixture,
) {
    // The old message has another id, so the status is not about it.
    let (event, claimed) = fixture.accept_and_claim().await;
    let sent = Some(SentMessage { id: Some("wamid.0".to_owned()), day: 1 });
    fixture
        .settle(Settlement { sent, ..fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS) })
        .await
        .unwrap();
    fixture.wait(REPLAY_INTERVAL);
    fixture.replay(claimed.id, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;

    // The old message was refused, so it cannot have arrived.
    let (event, claimed) = fixture.accept_and_claim().await;
    fixture.finish(&claimed, DEAD_UNRECOVERABLE).await;
    fixture.wait(REPLAY_INTERVAL);
    fixture.replay(claimed.id, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(send_status(&fixture, event, ProviderStatus::Sent).await, None);
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Pending]
    );
}

/// The settlement of a successful attempt.
fn late_success(fixture: &StoreFixture, claimed: &ClaimedDelivery) -> Settlement {
    let sent = Some(SentMessage { id: Some("wamid.1".to_owned()), day: 1 });
    Settlement { sent, ..fixture.settlement(claimed, NextStep::Succeeded) }
}

pub async fn late_success_after_a_lost_claim_is_recorded(mut fixture: StoreFixture) {
    let retry_later = NextStep::RetryAt(fixture.now + MINUTE * 60);
    for outcome in [Some(retry_later), Some(DEAD_AMBIGUOUS), None] {
        let (event, claimed) = fixture.accept_and_claim().await;
        if let Some(next) = outcome {
            fixture
                .record_crash_outcome(fixture.ambiguous_settlement(&claimed, next))
                .await
                .unwrap();
        }
        fixture.wait(MINUTE);
        fixture.abandon_claim(&claimed).await;

        let late = late_success(&fixture, &claimed);
        let settled = fixture.settle(late.clone()).await.unwrap();

        assert_eq!(settled, SettleResult::Overruled(NextStep::Succeeded), "{outcome:?}");
        let row = fixture.only_delivery(event).await;
        assert_eq!(
            (row.status, row.sent_id.as_deref()),
            (DeliveryStatus::Succeeded, Some("wamid.1"))
        );
        assert!(decision_kinds(&fixture, event).await.contains(&EventDecisionKind::Confirmed));
        assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost, "applied once");
    }
}

pub async fn late_success_overrules_the_running_retry(mut fixture: StoreFixture) {
    let (event, lost) = fixture.accept_and_claim().await;
    fixture.wait(MINUTE);
    fixture.abandon_claim(&lost).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    let late = late_success(&fixture, &lost);
    assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost);
    let refused = fixture.settlement(&claimed, DEAD_UNRECOVERABLE);
    assert_eq!(
        fixture.settle(refused).await.unwrap(),
        SettleResult::Overruled(NextStep::Succeeded)
    );
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);
}
