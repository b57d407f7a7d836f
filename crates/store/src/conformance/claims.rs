//! Claims: which caller holds a delivery, and for how long.

use std::{collections::BTreeSet, time::Duration};

use surehook_core::{
    delivery::{ClaimProof, state::DeliveryStatus},
    event::NewEvent,
    store::{
        AbandonedClaim, ClaimedDelivery, HeldClaim, NextStep, SettleResult, Settlement,
        WaitingCount,
    },
};
use surehook_retry::FailureClass;
use surehook_types::ids::{DeliveryId, DestinationId};
use tokio::task::JoinSet;

use super::{StoreFixture, fixture::held_claim};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);

fn ids(claimed: &[ClaimedDelivery]) -> Vec<DeliveryId> {
    claimed.iter().map(|claimed| claimed.id).collect()
}

/// Admits events for the CRM and returns their deliveries in order of creation.
async fn admit_events(fixture: &StoreFixture, count: usize) -> Vec<DeliveryId> {
    let events: Vec<NewEvent> = (0..count).map(|_| fixture.new_event()).collect();
    let ids = events.iter().map(|event| event.deliveries[0].id).collect();
    fixture.admit(events).await.unwrap();
    ids
}

pub async fn due_deliveries_are_claimed_oldest_due_first(mut fixture: StoreFixture) {
    let created = admit_events(&fixture, 4).await;
    // Attempted once and due again in another order than they were created.
    for (claimed, wait) in fixture.claim(fixture.crm, 4).await.iter().zip([40, 10, 30, 20]) {
        fixture.finish(claimed, NextStep::RetryAt(fixture.now + SECOND * wait)).await;
    }
    fixture.wait(SECOND * 35);
    let newer = admit_events(&fixture, 2).await;
    fixture.wait(SECOND * 5);

    let claimed = fixture.claim(fixture.crm, 9).await;

    assert_eq!(ids(&claimed), [created[1], created[3], created[2], newer[0], newer[1], created[0]]);
}

pub async fn claim_returns_at_most_its_limit(fixture: StoreFixture) {
    let created = admit_events(&fixture, 5).await;

    assert!(fixture.claim(fixture.crm, 0).await.is_empty());
    assert_eq!(ids(&fixture.claim(fixture.crm, 2).await), created[..2]);
    assert_eq!(ids(&fixture.claim(fixture.crm, 2).await), created[2..4]);
    assert_eq!(ids(&fixture.claim(fixture.crm, 2).await), created[4..]);
    assert!(fixture.claim(fixture.crm, 2).await.is_empty());
}

pub async fn delivery_is_not_claimed_before_it_is_due(mut fixture: StoreFixture) {
    admit_events(&fixture, 1).await;
    let due_at = fixture.now + SECOND * 10;
    fixture.finish_due(fixture.crm, NextStep::RetryAt(due_at)).await;

    fixture.wait(SECOND * 10 - TICK);
    assert!(fixture.claim(fixture.crm, 9).await.is_empty());

    fixture.wait(TICK);
    assert_eq!(fixture.claim(fixture.crm, 9).await.len(), 1);
}

pub async fn claim_returns_deliveries_of_one_destination(fixture: StoreFixture) {
    let event = fixture.event_for_both("k");
    fixture.accept(event.clone()).await;
    let nowhere: DestinationId = fixture.new_id();

    assert!(fixture.claim(nowhere, 9).await.is_empty());
    let claimed = fixture.claim_one(fixture.mail).await;

    assert_eq!((claimed.destination, claimed.id), (fixture.mail, event.deliveries[1].id));
    assert_eq!(
        fixture.delivery_statuses(event.id).await,
        [DeliveryStatus::Pending, DeliveryStatus::InFlight]
    );
}

pub async fn claim_returns_all_fields_needed_to_send(mut fixture: StoreFixture) {
    let event = fixture.event_with_key("k");
    fixture.accept(event.clone()).await;
    let first = fixture.claim_one(fixture.crm).await;
    let throttled = fixture.settlement(&first, NextStep::RetryAt(fixture.now + SECOND));
    let mut attempt = throttled.attempt.clone();
    attempt.class = Some(FailureClass::Throttled);
    fixture.settle(Settlement { attempt, ..throttled }).await.unwrap();
    fixture.wait(SECOND);
    let proof = fixture.new_claim();

    let claimed =
        fixture.claim_due(fixture.crm, fixture.now, proof, 9).await.unwrap().claimed.remove(0);

    assert_eq!((claimed.id, claimed.event), (event.deliveries[0].id, event.id));
    assert_eq!((claimed.destination, claimed.proof), (fixture.crm, proof));
    assert_eq!((claimed.attempts, claimed.throttled), (1, 1));
    assert_eq!((claimed.created_at, claimed.received_at), (event.received_at, event.received_at));
    assert_eq!(claimed.payload, event.payload);
    assert_eq!(claimed.source.as_str(), "shop");
    assert_eq!(claimed.key, event.key.map(|claim| claim.key));
    let stored = fixture.only_delivery(event.id).await;
    assert_eq!(
        (stored.status, stored.due_at, stored.attempts),
        (DeliveryStatus::InFlight, None, 1)
    );
}

pub async fn claimed_delivery_is_not_claimed_again(mut fixture: StoreFixture) {
    admit_events(&fixture, 3).await;
    fixture.claim(fixture.crm, 3).await;

    assert!(fixture.claim(fixture.crm, 3).await.is_empty());
    // However long it takes: a claim has no time.
    fixture.wait(SECOND * 86_400);
    assert!(fixture.claim(fixture.crm, 3).await.is_empty());
}

pub async fn concurrent_claims_never_return_the_same_delivery(fixture: StoreFixture) {
    const MANY: usize = 200;
    admit_events(&fixture, MANY).await;
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (store, destination, now) = (fixture.store(), fixture.crm, fixture.now);
        let proof = ClaimProof { number: 1000 + number, ..fixture.new_claim() };
        tasks.spawn(async move {
            let mut claimed_ids = Vec::new();
            loop {
                let claimed = store.claim_due(destination, now, proof, 7).await.unwrap().claimed;
                if claimed.is_empty() {
                    return claimed_ids;
                }
                claimed_ids.extend(ids(&claimed));
            }
        });
    }

    let all: Vec<DeliveryId> = tasks.join_all().await.into_iter().flatten().collect();

    assert_eq!(all.len(), MANY);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), MANY, "a delivery was claimed twice");
    assert_eq!(fixture.count_deliveries(DeliveryStatus::InFlight).await, 200);
}

pub async fn released_delivery_is_due_now_without_an_attempt(mut fixture: StoreFixture) {
    let created = admit_events(&fixture, 2).await;
    let claimed = fixture.claim(fixture.crm, 2).await;
    fixture.wait(SECOND);

    fixture.release(claimed.iter().map(held_claim).collect(), fixture.now).await.unwrap();

    let detail = fixture.delivery_detail(created[0]).await;
    assert_eq!((detail.delivery.status, detail.delivery.attempts), (DeliveryStatus::Pending, 0));
    assert_eq!(detail.delivery.due_at, Some(fixture.now));
    assert!(detail.attempts.is_empty());
    assert_eq!(ids(&fixture.claim(fixture.crm, 9).await), created);
}

pub async fn delivery_released_for_later_is_due_then_without_an_attempt(mut fixture: StoreFixture) {
    let (event, claimed) = fixture.accept_and_claim().await;
    let due_at = fixture.now + Duration::from_secs(60);

    fixture.release(vec![held_claim(&claimed)], due_at).await.unwrap();

    assert!(fixture.claim(fixture.crm, 10).await.is_empty(), "not yet");
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(due_at));
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.due_at, row.attempts), (DeliveryStatus::Pending, Some(due_at), 0));
    fixture.reopen().await;
    fixture.now = due_at;
    assert_eq!(fixture.claim_one(fixture.crm).await.attempts, 0);
}

pub async fn lost_claim_releases_nothing(mut fixture: StoreFixture) {
    let created = admit_events(&fixture, 1).await;
    let stale = fixture.claim_one(fixture.crm).await;
    fixture.release(vec![held_claim(&stale)], fixture.now).await.unwrap();
    let current = fixture.claim_one(fixture.crm).await;

    let unknown = HeldClaim { delivery: fixture.new_id(), proof: current.proof };
    fixture.release(vec![held_claim(&stale), unknown], fixture.now).await.unwrap();

    assert_eq!(fixture.delivery_detail(created[0]).await.delivery.status, DeliveryStatus::InFlight);
    fixture.wait(SECOND);
    fixture.finish(&current, NextStep::Succeeded).await;
}

pub async fn abandoned_claim_makes_the_delivery_due(mut fixture: StoreFixture) {
    let created = admit_events(&fixture, 3).await;
    let claimed = fixture.claim(fixture.crm, 2).await;
    let (now, due_at) = (fixture.now, fixture.now + SECOND * 60);
    let (destination, proof) = (fixture.crm, claimed[0].proof);
    let claim = AbandonedClaim { destination, proof, delivery: Some(claimed[0].id), due_at };

    fixture.abandon(vec![claim], now).await.unwrap();
    // The same again, as after an unknown outcome, and one that has ended.
    fixture.finish(&claimed[1], NextStep::RetryAt(now + SECOND)).await;
    let ended = AbandonedClaim { delivery: Some(claimed[1].id), ..claim };
    fixture.abandon(vec![claim, ended], now).await.unwrap();

    let detail = fixture.delivery_detail(created[0]).await;
    assert_eq!((detail.delivery.status, detail.delivery.attempts), (DeliveryStatus::Pending, 0));
    assert_eq!(detail.delivery.due_at, Some(due_at));
    assert!(detail.attempts.is_empty());
    let detail = fixture.delivery_detail(created[1]).await;
    assert_eq!(detail.delivery.due_at, Some(now + SECOND));
    let late = fixture.settlement(&claimed[0], NextStep::Succeeded);
    assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost);
    fixture.wait(SECOND * 60);
    assert_eq!(fixture.claim(fixture.crm, 9).await.len(), 3);
}

pub async fn lost_claim_abandons_nothing(fixture: StoreFixture) {
    admit_events(&fixture, 1).await;
    let lost = fixture.claim_one(fixture.crm).await;
    fixture.release(vec![held_claim(&lost)], fixture.now).await.unwrap();
    let current = fixture.claim_one(fixture.crm).await;

    fixture.abandon_claim(&lost).await;

    fixture.finish(&current, NextStep::Succeeded).await;
}

pub async fn claims_of_unknown_outcome_are_abandoned_by_their_proof(fixture: StoreFixture) {
    let events: Vec<NewEvent> = (0..3).map(|n| fixture.event_for_both(&n.to_string())).collect();
    fixture.admit(events).await.unwrap();
    let (now, proof) = (fixture.now, fixture.new_claim());
    let claim_with = async |destination, limit| {
        fixture.claim_due(destination, now, proof, limit).await.unwrap().claimed
    };
    let first = claim_with(fixture.crm, 2).await;
    let elsewhere = claim_with(fixture.mail, 1).await;
    let other = fixture.claim_one(fixture.crm).await;
    fixture.finish(&first[0], NextStep::Succeeded).await;
    let (destination, due_at) = (fixture.crm, now);

    let unknown = AbandonedClaim { destination, proof, delivery: None, due_at };
    fixture.abandon(vec![unknown], now).await.unwrap();

    assert_eq!(ids(&fixture.claim(fixture.crm, 9).await), [first[1].id]);
    fixture.finish(&elsewhere[0], NextStep::Succeeded).await;
    fixture.finish(&other, NextStep::Succeeded).await;
}

pub async fn deliveries_in_flight_at_a_crash_are_due_after_restart(mut fixture: StoreFixture) {
    let created = admit_events(&fixture, 2).await;
    let claimed = fixture.claim(fixture.crm, 2).await;
    fixture.wait(SECOND);

    fixture.reopen().await;

    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::Pending).await,
            fixture.count_deliveries(DeliveryStatus::InFlight).await
        ),
        (2, 0)
    );
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(fixture.now));
    let again = fixture.claim(fixture.crm, 9).await;
    assert_eq!(ids(&again), created);
    assert_eq!(again[0].attempts, 0);
    let late = fixture.settle(fixture.settlement(&claimed[0], NextStep::Succeeded)).await.unwrap();
    assert_eq!(late, SettleResult::ClaimLost);
}

pub async fn next_due_is_the_earliest_waiting_delivery(mut fixture: StoreFixture) {
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), None);
    admit_events(&fixture, 3).await;
    let start = fixture.now;
    let claimed = fixture.claim(fixture.crm, 2).await;
    fixture.finish(&claimed[0], NextStep::RetryAt(start + SECOND * 9)).await;
    fixture.finish(&claimed[1], NextStep::RetryAt(start + SECOND * 5)).await;
    fixture.wait(SECOND);

    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(start));
    fixture.claim_one(fixture.crm).await;

    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), Some(start + SECOND * 5));
    assert_eq!(fixture.find_next_due(fixture.mail).await.unwrap(), None);
}

pub async fn oldest_due_reports_the_oldest_overdue_delivery_per_destination(
    mut fixture: StoreFixture,
) {
    let start = fixture.now;
    fixture.accept(fixture.event_for_both("k")).await;
    fixture.wait(SECOND);
    admit_events(&fixture, 1).await;
    fixture.finish_due(fixture.mail, NextStep::RetryAt(start + SECOND * 9)).await;

    let oldest = fixture.find_oldest_due(fixture.now).await.unwrap();
    let later = fixture.find_oldest_due(start + SECOND * 9).await.unwrap();

    assert_eq!(oldest.into_iter().collect::<Vec<_>>(), [(fixture.crm, start)]);
    let late = [(fixture.crm, start), (fixture.mail, start + SECOND * 9)];
    assert_eq!(later.into_iter().collect::<Vec<_>>(), late);
}

pub async fn waiting_deliveries_are_counted_per_destination_up_to_the_limit(
    mut fixture: StoreFixture,
) {
    let start = fixture.now;
    admit_events(&fixture, 4).await;
    fixture.accept(fixture.ordered_event("a")).await;
    fixture.accept(fixture.ordered_event("a")).await;
    let claimed = fixture.claim(fixture.crm, 2).await;
    fixture.finish(&claimed[0], NextStep::RetryAt(start + SECOND * 60)).await;
    fixture.wait(SECOND);

    let count = async |limit| fixture.count_waiting(fixture.now, limit).await.unwrap();
    let all = count(100).await;
    // One is in flight, one is to be retried later, and the second of the ordering key is held.
    let crm = WaitingCount { waiting: 5, due: 3 };
    let expected = [(fixture.crm, crm), (fixture.mail, WaitingCount::default())];
    assert_eq!(all, expected.into_iter().collect());
    let limited = count(2).await;
    assert_eq!(limited[&fixture.crm], WaitingCount { waiting: 3, due: 2 });
}
