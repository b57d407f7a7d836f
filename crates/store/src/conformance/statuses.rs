//! What a status says of a message that we sent moves the delivery, once and in the same step.

use std::time::Duration;

use surehook_core::{
    decision::EventDecisionKind,
    delivery::{DeadReason, ScheduleReason, state::DeliveryStatus},
    event::{NewEvent, ProviderStatus, StatusUpdate},
    ids::EventId,
    store::{
        AdmitResult, ClaimedDelivery, ConfirmedDelivery, NextStep, REPLAY_INTERVAL, ReplayResult,
        SentMessage, SettleResult, Settlement,
    },
};

use super::{World, decisions::kinds, samples::held};

const MINUTE: Duration = Duration::from_secs(60);
const REFUSED: NextStep = NextStep::Dead(DeadReason::Unrecoverable);
const PARKED: NextStep = NextStep::Dead(DeadReason::Ambiguous);

/// A status about what `event` sent to the CRM.
fn status(world: &World, event: EventId, said: ProviderStatus) -> NewEvent {
    let told = StatusUpdate {
        event,
        destination: world.crm,
        at: world.now,
        sent_id: Some("wamid.1".to_owned()),
        status: said,
    };
    NewEvent { deliveries: Vec::new(), status_update: Some(told), ..world.arrival() }
}

/// Admits a status; says what it moved.
pub(super) async fn tell(
    world: &World,
    event: EventId,
    said: ProviderStatus,
) -> Option<ConfirmedDelivery> {
    let admitted = world.admit_one(status(world, event, said)).await;
    let AdmitResult::Accepted { confirmed, .. } = admitted else { panic!("{admitted:?}") };
    confirmed
}

/// An event of which nobody knows whether its first attempt arrived; waits for ten minutes.
async fn in_doubt(world: &World) -> EventId {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let settlement = world.will(&claimed, NextStep::RetryAt(world.now + MINUTE * 10));
    assert_eq!(world.settle(settlement).await.unwrap(), SettleResult::Recorded);
    event
}

pub async fn sent_status_ends_an_ambiguous_delivery(mut world: World) {
    let event = in_doubt(&world).await;
    world.wait(MINUTE);
    let delivery = world.only_delivery(event).await.id;
    let at = world.now;

    let moved = tell(&world, event, ProviderStatus::Sent).await;

    let destination = world.crm;
    let expected =
        ConfirmedDelivery { delivery, event, destination, attempts: 1, next: NextStep::Succeeded };
    assert_eq!(moved, Some(expected));
    world.reopen().await;
    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.ended_at, row.due_at), (DeliveryStatus::Succeeded, Some(at), None));
    assert_eq!(row.sent_id.as_deref(), Some("wamid.1"));
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::Confirmed]);
    assert_eq!(
        (world.count(DeliveryStatus::Succeeded), world.count(DeliveryStatus::Scheduled)),
        (1, 0)
    );
    world.wait(MINUTE * 60);
    assert!(world.claim(world.crm, 10).await.is_empty(), "it is not sent again");
}

pub async fn failed_status_makes_an_ambiguous_delivery_dead(world: World) {
    let event = in_doubt(&world).await;

    let moved = tell(&world, event, ProviderStatus::Failed(REFUSED)).await;

    assert_eq!(moved.map(|moved| moved.next), Some(REFUSED));
    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.reason), (DeliveryStatus::Dead, Some(DeadReason::Unrecoverable)));
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::Refuted]);
    let dead = world.counts().dead[&DeadReason::Unrecoverable];
    assert_eq!((dead.total, dead.pending), (1, 1));
}

pub async fn failed_status_can_bring_the_next_attempt_forward(world: World) {
    let event = in_doubt(&world).await;
    let soon = NextStep::RetryAt(world.now);

    let moved = tell(&world, event, ProviderStatus::Failed(soon)).await;

    assert_eq!(moved.map(|moved| moved.next), Some(soon));
    assert_eq!(kinds(&world, event).await, [EventDecisionKind::Refuted]);
    assert_eq!(world.claim_one(world.crm).await.event, event);
}

pub async fn status_for_a_delivery_never_attempted_is_ignored(world: World) {
    let event = world.accept(world.arrival()).await;
    let unknown = world.id();
    for said in [ProviderStatus::Sent, ProviderStatus::Failed(REFUSED)] {
        assert_eq!(tell(&world, event, said).await, None);
        assert_eq!(tell(&world, unknown, said).await, None);
    }
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Pending]);
}

/// A status that comes during an attempt proves that it went out, whatever was recorded of it.
pub async fn status_received_during_a_lost_first_attempt_is_applied(mut world: World) {
    for (said, expected) in [
        (ProviderStatus::Sent, DeliveryStatus::Succeeded),
        (ProviderStatus::Failed(REFUSED), DeliveryStatus::Dead),
    ] {
        let (event, _) = told_during_an_attempt(&world, said).await;

        world.die().await;

        let row = world.only_delivery(event).await;
        assert_eq!((row.status, row.attempts), (expected, 0));
        assert!(world.claim(world.crm, 9).await.is_empty());
    }
}

pub async fn status_for_an_ended_delivery_is_ignored(world: World) {
    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    assert_eq!(tell(&world, event, ProviderStatus::Failed(REFUSED)).await, None);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);

    let event = world.accept(world.arrival()).await;
    world.finish_due(world.crm, REFUSED).await;
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Dead]);
}

pub async fn duplicate_status_is_applied_once(world: World) {
    let event = in_doubt(&world).await;
    let said = ProviderStatus::Failed(NextStep::RetryAt(world.now + MINUTE));
    let first = NewEvent { key: Some(world.key("s-1")), ..status(&world, event, said) };
    world.accept(first.clone()).await;

    let status_update = status(&world, event, ProviderStatus::Failed(REFUSED)).status_update;
    world.expect_duplicate(NewEvent { status_update, ..world.again(&first) }).await;

    assert_eq!(world.only_delivery(event).await.due_at, Some(world.now + MINUTE));
    assert_eq!(kinds(&world, event).await.len(), 1);
}

/// The event, and the claim on it, while a status comes.
async fn told_during_an_attempt(world: &World, said: ProviderStatus) -> (EventId, ClaimedDelivery) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(tell(world, event, said).await, None);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::InFlight]);
    (event, claimed)
}

pub async fn status_during_an_ambiguous_attempt_decides_its_outcome(world: World) {
    let waits = NextStep::RetryAt(world.now + MINUTE);
    for (said, next, expected) in [
        (ProviderStatus::Sent, waits, DeliveryStatus::Succeeded),
        (ProviderStatus::Sent, PARKED, DeliveryStatus::Succeeded),
        (ProviderStatus::Failed(REFUSED), waits, DeliveryStatus::Dead),
        (ProviderStatus::Failed(waits), PARKED, DeliveryStatus::Scheduled),
    ] {
        let (event, claimed) = told_during_an_attempt(&world, said).await;

        let settled = world.settle(world.will(&claimed, next)).await.unwrap();

        assert_eq!(settled, SettleResult::Overruled(said.next_step()));
        let row = world.only_delivery(event).await;
        assert_eq!((row.status, row.attempts), (expected, 1));
        assert_eq!(row.sent_id.as_deref(), Some("wamid.1"));
        let told = world.delivery_detail(row.id).await.attempts;
        assert_eq!(told[0].next, Some(said.next_step()));
        let schedule_reason = said.next_step().due_at().map(|_| ScheduleReason::StatusFailed);
        assert_eq!(told[0].schedule_reason, schedule_reason, "not what the attempt alone came to");
        assert_eq!(kinds(&world, event).await.len(), 1);
    }
}

pub async fn clear_response_overrules_a_status(world: World) {
    let waits = NextStep::RetryAt(world.now + MINUTE);
    for (said, next) in [
        (ProviderStatus::Failed(REFUSED), NextStep::Succeeded),
        (ProviderStatus::Failed(REFUSED), waits),
        (ProviderStatus::Sent, NextStep::Succeeded),
    ] {
        let (event, claimed) = told_during_an_attempt(&world, said).await;
        world.finish(&claimed, next).await;
        assert!(kinds(&world, event).await.is_empty(), "{said:?} {next:?}");
    }
}

pub async fn sent_status_during_a_failed_attempt_prevents_a_retry(world: World) {
    // The one before this attempt may be what arrived; whatever this one was told, the message is
    // there.
    for next in [NextStep::RetryAt(world.now + MINUTE), REFUSED] {
        let (event, claimed) = told_during_an_attempt(&world, ProviderStatus::Sent).await;

        let failed = world.settlement(&claimed, next);
        assert_eq!(
            world.settle(failed).await.unwrap(),
            SettleResult::Overruled(NextStep::Succeeded)
        );

        assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
    }
}

pub async fn failed_status_after_a_sent_status_is_ignored(world: World) {
    let (event, claimed) = told_during_an_attempt(&world, ProviderStatus::Sent).await;
    tell(&world, event, ProviderStatus::Failed(REFUSED)).await;

    world.settle(world.will(&claimed, PARKED)).await.unwrap();

    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn crash_outcome_is_overruled_by_a_status(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.record_crash_outcome(world.will(&claimed, PARKED)).await.unwrap();
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);

    world.die().await;

    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Succeeded, 1));
    let mut told = kinds(&world, event).await;
    told.sort();
    assert_eq!(told, [EventDecisionKind::OutcomeUnknown, EventDecisionKind::Confirmed]);
}

pub async fn status_received_in_flight_is_applied_on_release(mut world: World) {
    for dies in [false, true] {
        let event = in_doubt(&world).await;
        world.wait(MINUTE * 10);
        let claimed = world.claim_one(world.crm).await;
        assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);
        let at = world.now;

        if dies {
            world.wait(MINUTE);
            world.die().await;
        } else {
            world.release(vec![held(&claimed)], world.now + MINUTE).await.unwrap();
        }

        let row = world.only_delivery(event).await;
        assert_eq!((row.status, row.attempts), (DeliveryStatus::Succeeded, 1));
        assert_eq!(row.ended_at, Some(at));
    }
}

pub async fn lost_claim_does_not_consume_a_status(world: World) {
    let (event, claimed) = told_during_an_attempt(&world, ProviderStatus::Sent).await;
    let good = world.will(&claimed, PARKED);
    let lost = Settlement { token: surehook_core::delivery::LeaseToken(-1), ..good.clone() };

    assert_eq!(world.settle(lost).await.unwrap(), SettleResult::LeaseLost);

    assert_eq!(world.statuses(event).await, [DeliveryStatus::InFlight]);
    assert_eq!(world.settle(good).await.unwrap(), SettleResult::Overruled(NextStep::Succeeded));
}

pub async fn status_about_an_earlier_delivery_is_ignored(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let sent = Some(SentMessage { id: Some("wamid.1".to_owned()), day: 1 });
    let settlement = Settlement { sent, ..world.settlement(&claimed, NextStep::Succeeded) };
    world.settle(settlement).await.unwrap();
    world.wait(REPLAY_INTERVAL);
    let replayed = world.replay(claimed.id, world.id(), world.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
    let again = world.claim_one(world.crm).await;

    // That the first message was read says nothing about the second.
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);
    let waits = NextStep::RetryAt(world.now + MINUTE);
    assert_eq!(world.settle(world.will(&again, waits)).await.unwrap(), SettleResult::Recorded);
    assert_eq!(tell(&world, event, ProviderStatus::Sent).await, None);

    assert_eq!(world.statuses(event).await, [DeliveryStatus::Replayed, DeliveryStatus::Scheduled]);
}

pub async fn status_that_ends_the_first_makes_the_next_due(world: World) {
    for said in [ProviderStatus::Sent, ProviderStatus::Failed(REFUSED)] {
        let first = world.accept(world.in_line("c-1")).await;
        let second = world.accept(world.in_line("c-1")).await;
        let claimed = world.claim_one(world.crm).await;
        let waits = NextStep::RetryAt(world.now + MINUTE);
        world.settle(world.will(&claimed, waits)).await.unwrap();
        assert_eq!(world.statuses(second).await, [DeliveryStatus::Held]);

        tell(&world, first, said).await;

        let called = world.claim_one(world.crm).await;
        assert_eq!(called.event, second);
        world.finish(&called, NextStep::Succeeded).await;
    }
}

/// What is heard late was said early: whoever is called by it came after that, and is not due before.
pub async fn next_delivery_is_not_due_before_its_creation(mut world: World) {
    let first = world.accept(world.in_line("c-1")).await;
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(tell(&world, first, ProviderStatus::Sent).await, None);
    world.wait(MINUTE);
    let second = world.accept(world.in_line("c-1")).await;

    world.release(vec![held(&claimed)], world.now).await.unwrap();

    let row = world.only_delivery(second).await;
    assert_eq!((row.status, row.due_at), (DeliveryStatus::Pending, Some(row.created_at)));
}
