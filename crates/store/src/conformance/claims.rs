//! Who holds a delivery, and for how long.

use std::{collections::BTreeSet, time::Duration};

use surehook_core::{
    delivery::{FailureClass, Lease, LeaseToken, state::DeliveryStatus},
    event::NewEvent,
    ids::{DeliveryId, DestinationId},
    store::{ClaimedDelivery, HeldClaim, NextStep, Settlement},
};
use tokio::task::JoinSet;

use super::{World, samples::held, world::LEASE};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);

fn ids(claimed: &[ClaimedDelivery]) -> Vec<DeliveryId> {
    claimed.iter().map(|claimed| claimed.id).collect()
}

/// Events for the CRM that wait; gives back their deliveries in order of birth.
async fn waiting(world: &World, many: usize) -> Vec<DeliveryId> {
    let events: Vec<NewEvent> = (0..many).map(|_| world.arrival()).collect();
    let ids = events.iter().map(|event| event.deliveries[0].id).collect();
    world.admit(events).await.unwrap();
    ids
}

pub async fn due_deliveries_are_claimed_oldest_due_first(mut world: World) {
    let born = waiting(&world, 4).await;
    // Tried once and due again in another order than they were born.
    for (claimed, wait) in world.claim(world.crm, 4).await.iter().zip([40, 10, 30, 20]) {
        world.finish(claimed, NextStep::RetryAt(world.now + SECOND * wait)).await;
    }
    world.wait(SECOND * 35);
    let fresh = waiting(&world, 2).await;
    world.wait(SECOND * 5);

    let claimed = world.claim(world.crm, 9).await;

    assert_eq!(ids(&claimed), [born[1], born[3], born[2], fresh[0], fresh[1], born[0]]);
}

pub async fn claim_returns_at_most_its_limit(world: World) {
    let born = waiting(&world, 5).await;

    assert!(world.claim(world.crm, 0).await.is_empty());
    assert_eq!(ids(&world.claim(world.crm, 2).await), born[..2]);
    assert_eq!(ids(&world.claim(world.crm, 2).await), born[2..4]);
    assert_eq!(ids(&world.claim(world.crm, 2).await), born[4..]);
    assert!(world.claim(world.crm, 2).await.is_empty());
}

pub async fn delivery_is_not_claimed_before_it_is_due(mut world: World) {
    waiting(&world, 1).await;
    let due_at = world.now + SECOND * 10;
    world.finish_due(world.crm, NextStep::RetryAt(due_at)).await;

    world.wait(SECOND * 10 - TICK);
    assert!(world.claim(world.crm, 9).await.is_empty());

    world.wait(TICK);
    assert_eq!(world.claim(world.crm, 9).await.len(), 1);
}

pub async fn claim_returns_deliveries_of_one_destination(world: World) {
    let event = world.keyed_for_both("k");
    world.accept(event.clone()).await;
    let nowhere: DestinationId = world.id();

    assert!(world.claim(nowhere, 9).await.is_empty());
    let claimed = world.claim_one(world.mail).await;

    assert_eq!((claimed.destination, claimed.id), (world.mail, event.deliveries[1].id));
    assert_eq!(world.statuses(event.id).await, [DeliveryStatus::Pending, DeliveryStatus::InFlight]);
}

pub async fn claim_returns_all_fields_needed_to_send(mut world: World) {
    let event = world.keyed("k");
    world.accept(event.clone()).await;
    let first = world.claim_one(world.crm).await;
    let throttled = world.settlement(&first, NextStep::RetryAt(world.now + SECOND));
    let mut attempt = throttled.attempt.clone();
    attempt.class = Some(FailureClass::Throttled);
    world.settle(Settlement { attempt, ..throttled }).await.unwrap();
    world.wait(SECOND);
    let lease = world.lease();

    let claimed = world.claim_due(world.crm, world.now, lease, 9).await.unwrap().claimed.remove(0);

    assert_eq!((claimed.id, claimed.event), (event.deliveries[0].id, event.id));
    assert_eq!((claimed.destination, claimed.lease), (world.crm, lease));
    assert_eq!((claimed.attempts, claimed.throttled), (1, 1));
    assert_eq!((claimed.created_at, claimed.received_at), (event.received_at, event.received_at));
    assert_eq!(claimed.payload, event.payload);
    assert_eq!(claimed.source.as_str(), "shop");
    assert_eq!(claimed.key, event.key.map(|claim| claim.key));
    let kept = world.only_delivery(event.id).await;
    assert_eq!((kept.status, kept.due_at, kept.attempts), (DeliveryStatus::InFlight, None, 1));
}

pub async fn claimed_delivery_is_not_claimed_again(mut world: World) {
    waiting(&world, 3).await;
    world.claim(world.crm, 3).await;

    assert!(world.claim(world.crm, 3).await.is_empty());
    // Nor after its time: somebody has to say that it ran out.
    world.wait(LEASE * 2);
    assert!(world.claim(world.crm, 3).await.is_empty());
}

pub async fn concurrent_claims_never_return_the_same_delivery(world: World) {
    const MANY: usize = 200;
    waiting(&world, MANY).await;
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (store, destination, now) = (world.store(), world.crm, world.now);
        let lease = Lease { token: LeaseToken(1000 + number), until: now + LEASE };
        tasks.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let claimed = store.claim_due(destination, now, lease, 7).await.unwrap().claimed;
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(ids(&claimed));
            }
        });
    }

    let all: Vec<DeliveryId> = tasks.join_all().await.into_iter().flatten().collect();

    assert_eq!(all.len(), MANY);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), MANY, "one was claimed twice");
    assert_eq!(world.count(DeliveryStatus::InFlight), 200);
}

pub async fn released_delivery_is_due_now_without_an_attempt(mut world: World) {
    let born = waiting(&world, 2).await;
    let claimed = world.claim(world.crm, 2).await;
    world.wait(SECOND);

    world.release(claimed.iter().map(held).collect(), world.now).await.unwrap();

    let detail = world.delivery_detail(born[0]).await;
    assert_eq!((detail.delivery.status, detail.delivery.attempts), (DeliveryStatus::Pending, 0));
    assert_eq!(detail.delivery.due_at, Some(world.now));
    assert!(detail.attempts.is_empty());
    assert_eq!(ids(&world.claim(world.crm, 9).await), born);
}

pub async fn delivery_released_for_later_is_due_then_without_an_attempt(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let due_at = world.now + Duration::from_secs(60);

    world.release(vec![held(&claimed)], due_at).await.unwrap();

    assert!(world.claim(world.crm, 10).await.is_empty(), "not yet");
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(due_at));
    let row = world.only_delivery(event).await;
    assert_eq!((row.status, row.due_at, row.attempts), (DeliveryStatus::Pending, Some(due_at), 0));
    world.reopen().await;
    world.now = due_at;
    assert_eq!(world.claim_one(world.crm).await.attempts, 0);
}

pub async fn stale_lease_token_releases_nothing(mut world: World) {
    let born = waiting(&world, 1).await;
    let stale = world.claim_one(world.crm).await;
    world.release(vec![held(&stale)], world.now).await.unwrap();
    let current = world.claim_one(world.crm).await;

    let unknown = HeldClaim { delivery: world.id(), token: current.lease.token };
    world.release(vec![held(&stale), unknown], world.now).await.unwrap();

    assert_eq!(world.delivery_detail(born[0]).await.delivery.status, DeliveryStatus::InFlight);
    world.wait(SECOND);
    world.finish(&current, NextStep::Succeeded).await;
}

pub async fn expired_lease_makes_the_delivery_due(mut world: World) {
    let events = [world.keyed_for_both("a"), world.keyed_for_both("b")];
    world.admit(events.to_vec()).await.unwrap();
    world.claim(world.crm, 2).await;
    world.wait(SECOND);
    world.claim(world.mail, 1).await;

    let expires_at = world.now - SECOND + LEASE;
    assert!(world.release_expired(expires_at - TICK).await.unwrap().is_empty());
    assert_eq!(world.release_expired(expires_at).await.unwrap(), [world.crm]);
    assert!(world.release_expired(expires_at).await.unwrap().is_empty());

    let status = world.statuses(events[0].id).await;
    assert_eq!(status, [DeliveryStatus::Pending, DeliveryStatus::InFlight]);
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(expires_at));
    world.wait(LEASE);
    assert_eq!(world.claim(world.crm, 9).await.len(), 2);
}

pub async fn renewed_lease_expires_later(world: World) {
    waiting(&world, 2).await;
    let claimed = world.claim(world.crm, 2).await;
    let until = claimed[0].lease.until + LEASE;

    world.renew(vec![held(&claimed[0])], until).await.unwrap();

    assert_eq!(world.release_expired(until - TICK).await.unwrap(), [world.crm]);
    assert_eq!(
        (world.count(DeliveryStatus::InFlight), world.count(DeliveryStatus::Pending)),
        (1, 1)
    );
    assert_eq!(world.release_expired(until).await.unwrap(), [world.crm]);
    assert_eq!(world.count(DeliveryStatus::Pending), 2);
}

pub async fn lost_claim_cannot_be_renewed(world: World) {
    waiting(&world, 1).await;
    let lost = world.claim_one(world.crm).await;
    world.release(vec![held(&lost)], world.now).await.unwrap();
    let current = world.claim_one(world.crm).await;

    // Neither prolongs the new claim, nor cuts it short, nor takes it back.
    world.renew(vec![held(&lost)], world.now + LEASE * 9).await.unwrap();
    world.renew(vec![held(&lost)], world.now).await.unwrap();

    assert!(world.release_expired(current.lease.until - TICK).await.unwrap().is_empty());
    assert_eq!(world.release_expired(current.lease.until).await.unwrap(), [world.crm]);
}

pub async fn deliveries_in_flight_at_a_crash_are_due_after_restart(mut world: World) {
    let born = waiting(&world, 2).await;
    let claimed = world.claim(world.crm, 2).await;
    world.wait(SECOND);

    world.reopen().await;
    if !world.is_sole_owner() {
        world.wait(LEASE);
        assert_eq!(world.release_expired(world.now).await.unwrap(), [world.crm]);
    }

    assert_eq!(
        (world.count(DeliveryStatus::Pending), world.count(DeliveryStatus::InFlight)),
        (2, 0)
    );
    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(world.now));
    let again = world.claim(world.crm, 9).await;
    assert_eq!(ids(&again), born);
    assert_eq!(again[0].attempts, 0);
    let late = world.settle(world.settlement(&claimed[0], NextStep::Succeeded)).await.unwrap();
    assert_eq!(late, surehook_core::store::SettleResult::LeaseLost);
}

pub async fn next_due_is_the_earliest_waiting_delivery(mut world: World) {
    assert_eq!(world.next_due(world.crm).await.unwrap(), None);
    waiting(&world, 3).await;
    let start = world.now;
    let claimed = world.claim(world.crm, 2).await;
    world.finish(&claimed[0], NextStep::RetryAt(start + SECOND * 9)).await;
    world.finish(&claimed[1], NextStep::RetryAt(start + SECOND * 5)).await;
    world.wait(SECOND);

    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(start));
    world.claim_one(world.crm).await;

    assert_eq!(world.next_due(world.crm).await.unwrap(), Some(start + SECOND * 5));
    assert_eq!(world.next_due(world.mail).await.unwrap(), None);
}

pub async fn oldest_due_reports_the_oldest_overdue_delivery_per_destination(mut world: World) {
    let start = world.now;
    world.accept(world.keyed_for_both("k")).await;
    world.wait(SECOND);
    waiting(&world, 1).await;
    world.finish_due(world.mail, NextStep::RetryAt(start + SECOND * 9)).await;

    let oldest = world.oldest_due(world.now).await.unwrap();
    let later = world.oldest_due(start + SECOND * 9).await.unwrap();

    assert_eq!(oldest.into_iter().collect::<Vec<_>>(), [(world.crm, start)]);
    let late = [(world.crm, start), (world.mail, start + SECOND * 9)];
    assert_eq!(later.into_iter().collect::<Vec<_>>(), late);
}
