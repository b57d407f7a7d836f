//! What is kept of lanes, what follows from it, and deliveries that people stop.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::{NewDelivery, NewEvent},
    ids::{DeliveryId, EventId},
    lane::{BacklogDrain, CircuitState, LanePause, SavedLaneState},
    store::{
        CancelResult, ClaimedDelivery, ConfigChange, DeliveryFilter, EventDeliveryFilter,
        EventFilter, NextStep, PageRequest,
    },
};

use super::{
    World,
    samples::{destination, held},
};

fn paused(world: &World) -> SavedLaneState {
    let reason = Some("somebody moves house".to_owned());
    SavedLaneState {
        paused: Some(LanePause { at: world.now, reason, automatic: false }),
        ..SavedLaneState::default()
    }
}

pub async fn delayed_delivery_is_due_after_the_delay(mut world: World) {
    let delay = Duration::from_secs(5);
    let deliveries = vec![NewDelivery { delay, ..world.to(world.crm) }];
    let event = world.accept(NewEvent { deliveries, ..world.arrival() }).await;
    let due_at = world.now + delay;
    assert_eq!(world.only_delivery(event).await.due_at, Some(due_at));
    assert!(world.claim(world.crm, 10).await.is_empty());
    world.wait(delay);
    // A replay was asked for by somebody who wants it now.
    world.finish(&world.claim_one(world.crm).await, NextStep::Succeeded).await;
    let old = world.only_delivery(event).await.id;
    world.replay(old, world.id(), world.now).await.unwrap();
    world.claim_one(world.crm).await;
}

pub async fn saved_lane_state_is_read_back_after_restart(mut world: World) {
    let until = world.now + Duration::from_secs(60);
    let circuits = [
        CircuitState::Open { until, times: 3 },
        CircuitState::HalfOpen { times: 2 },
        CircuitState::Ramp { times: 1 },
        CircuitState::Closed,
    ];
    for circuit in circuits {
        let said = SavedLaneState {
            circuit,
            cool_until: Some(until),
            drain: Some(BacklogDrain { rate: "100/s burst 3".parse().unwrap(), until }),
            ..paused(&world)
        };
        world.save_lane(world.crm, said.clone()).await.unwrap();
        world.reopen().await;
        let kept = world.lanes().await.unwrap();
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(world.crm, said)]);
    }
    world.save_lane(world.crm, SavedLaneState::default()).await.unwrap();
    assert!(world.lanes().await.unwrap().is_empty());
}

pub async fn lane_state_of_deleted_destination_is_removed(world: World) {
    world.save_lane(world.crm, paused(&world)).await.unwrap();
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    assert!(world.lanes().await.unwrap().is_empty());
    world.save_lane(world.crm, paused(&world)).await.unwrap();
    let again = vec![ConfigChange::PutDestination(world.crm, destination("crm"))];
    world.change(again, world.now).await.unwrap();
    assert!(world.lanes().await.unwrap().is_empty());
}

/// The ids with a status, newest first.
async fn listed(world: &World, status: DeliveryStatus) -> Vec<DeliveryId> {
    let filter = DeliveryFilter { status: Some(status), ..DeliveryFilter::default() };
    let page = PageRequest { after: None, limit: 100 };
    let rows = world.deliveries(filter, page).await.unwrap().rows;
    assert!(rows.iter().all(|row| row.status == status));
    rows.iter().map(|row| row.id).collect()
}

async fn lists_and_counts_agree(world: &World) {
    let mut counts = world.counts();
    counts.move_to_held(&world.count_held().await.unwrap());
    for status in DeliveryStatus::ALL {
        let many = counts.by_status.get(&status).copied().unwrap_or_default();
        let listed = listed(world, status).await;
        assert_eq!(u64::try_from(listed.len()).unwrap(), many, "{status:?}");
    }
}

/// One delivery in each of the states in which it may wait, and some in others; all to the CRM but
/// the last.
async fn a_mixed_lot(world: &World) {
    for next in [
        NextStep::RetryAt(world.now + Duration::from_secs(60)),
        NextStep::Succeeded,
        NextStep::Dead(DeadReason::MaxRetries),
    ] {
        world.accept(world.arrival()).await;
        world.finish(&world.claim_one(world.crm).await, next).await;
    }
    world.accept(world.arrival()).await;
    world.claim_one(world.crm).await;
    world.accept(world.in_line("c-1")).await;
    world.accept(world.in_line("c-1")).await;
    let deliveries = vec![world.to(world.mail)];
    world.accept(NewEvent { deliveries, ..world.arrival() }).await;
}

async fn events_are_found_by_what_is_shown(world: &World, held: EventId) {
    assert_eq!(world.statuses(held).await, [DeliveryStatus::Held]);
    for (status, many) in
        [(DeliveryStatus::Held, 3), (DeliveryStatus::Pending, 1), (DeliveryStatus::Scheduled, 0)]
    {
        let filter = EventFilter {
            delivery_filter: EventDeliveryFilter {
                status: Some(status),
                ..EventDeliveryFilter::default()
            },
            ..EventFilter::default()
        };
        let page = PageRequest { after: None, limit: 100 };
        assert_eq!(world.events(filter, page).await.unwrap().rows.len(), many, "{status:?}");
    }
}

async fn is_shown_as_held(world: World, state: SavedLaneState) {
    a_mixed_lot(&world).await;
    lists_and_counts_agree(&world).await;
    let waiting = [
        listed(&world, DeliveryStatus::Pending).await,
        listed(&world, DeliveryStatus::Scheduled).await,
    ];
    assert_eq!((waiting[0].len(), waiting[1].len()), (2, 1));

    world.save_lane(world.crm, state).await.unwrap();

    lists_and_counts_agree(&world).await;
    let elsewhere = &waiting[0][..1];
    assert_eq!(
        listed(&world, DeliveryStatus::Pending).await,
        elsewhere,
        "what goes to the other one"
    );
    assert_eq!(listed(&world, DeliveryStatus::Held).await.len(), 3);
    let shown = world.delivery_detail(waiting[1][0]).await.delivery;
    assert_eq!(
        (shown.status, shown.due_at.is_some()),
        (DeliveryStatus::Held, true),
        "the row stays"
    );
    events_are_found_by_what_is_shown(&world, shown.event).await;

    world.save_lane(world.crm, SavedLaneState::default()).await.unwrap();
    lists_and_counts_agree(&world).await;
    assert_eq!(listed(&world, DeliveryStatus::Pending).await, waiting[0]);
}

pub async fn waiting_deliveries_of_paused_destination_are_shown_as_held(world: World) {
    let state = paused(&world);
    is_shown_as_held(world, state).await;
}

/// More than a page looks at, so that the lists take another way than for a few.
pub async fn thousands_of_held_deliveries_are_listed_page_by_page(mut world: World) {
    const MANY: usize = 10_050;
    let to_mail = vec![world.to(world.mail)];
    world.accept(NewEvent { deliveries: to_mail, ..world.arrival() }).await;
    for _ in 0..MANY / 50 {
        world.wait(Duration::from_millis(1));
        world.admit((0..50).map(|_| world.arrival()).collect()).await.unwrap();
    }
    let all = |status| {
        let filter = DeliveryFilter { status: Some(status), ..DeliveryFilter::default() };
        let world = &world;
        async move {
            let (mut ids, mut after) = (Vec::new(), None);
            loop {
                let page = world
                    .deliveries(filter.clone(), PageRequest { after, limit: 1000 })
                    .await
                    .unwrap();
                assert!(page.rows.iter().all(|row| row.status == status));
                ids.extend(page.rows.iter().map(|row| row.id));
                after = page.next;
                if after.is_none() {
                    return ids;
                }
            }
        }
    };
    let waiting = all(DeliveryStatus::Pending).await;
    assert_eq!(waiting.len(), MANY + 1);

    world.save_lane(world.crm, paused(&world)).await.unwrap();

    assert_eq!(all(DeliveryStatus::Held).await, waiting[..MANY]);
    assert_eq!(all(DeliveryStatus::Pending).await, waiting[MANY..]);
}

pub async fn waiting_deliveries_with_open_circuit_are_shown_as_held(world: World) {
    let circuit = CircuitState::Open { until: world.now, times: 1 };
    is_shown_as_held(world, SavedLaneState { circuit, ..SavedLaneState::default() }).await;
}

pub async fn waiting_delivery_can_be_cancelled(world: World) {
    a_mixed_lot(&world).await;
    let mut waiting = Vec::new();
    for status in [DeliveryStatus::Held, DeliveryStatus::Pending, DeliveryStatus::Scheduled] {
        waiting.extend(listed(&world, status).await);
    }
    assert_eq!(waiting.len(), 4);
    for id in waiting {
        let cancelled = world.cancel(id, world.now).await.unwrap();
        assert!(matches!(cancelled, CancelResult::Done { .. }), "{cancelled:?}");
        let row = world.delivery_detail(id).await.delivery;
        assert_eq!((row.status, row.ended_at), (DeliveryStatus::Cancelled, Some(world.now)));
    }
    lists_and_counts_agree(&world).await;
    assert!(world.claim(world.crm, 10).await.is_empty());
}

pub async fn in_flight_or_ended_delivery_cannot_be_cancelled(world: World) {
    a_mixed_lot(&world).await;
    let waiting = world.claim(world.mail, 1).await[0].id;
    let again = world.cancel(waiting, world.now).await.unwrap();
    assert_eq!(again, CancelResult::NotCancellable(DeliveryStatus::InFlight));
    for status in [DeliveryStatus::Succeeded, DeliveryStatus::Dead] {
        let id = listed(&world, status).await[0];
        let refused = world.cancel(id, world.now).await.unwrap();
        assert_eq!(refused, CancelResult::NotCancellable(status));
    }
    assert_eq!(world.cancel(world.id(), world.now).await.unwrap(), CancelResult::NotFound);
    lists_and_counts_agree(&world).await;
}

async fn claim_next(world: &World) -> Vec<ClaimedDelivery> {
    world.claim_next(world.crm, world.now, world.lease()).await.unwrap().claimed
}

pub async fn claim_next_returns_the_next_retry_before_it_is_due(world: World) {
    assert!(claim_next(&world).await.is_empty());
    for seconds in [60, 30] {
        world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        let again_at = world.now + Duration::from_secs(seconds);
        world.finish(&claimed, NextStep::RetryAt(again_at)).await;
    }
    let claimed = claim_next(&world).await.remove(0);
    assert_eq!((claimed.attempts, world.count(DeliveryStatus::InFlight)), (1, 1));
    world.finish(&claimed, NextStep::Succeeded).await;
    let left = world.next_due(world.crm).await.unwrap();
    assert_eq!(left, Some(world.now + Duration::from_secs(60)));
}

pub async fn claim_next_skips_delayed_and_ambiguous_deliveries(mut world: World) {
    // It may have arrived, and a status may say so.
    let in_doubt = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let waits = NextStep::RetryAt(world.now + Duration::from_secs(600));
    world.settle(world.will(&claimed, waits)).await.unwrap();
    // Somebody wants it to go out later.
    let delivery = NewDelivery { delay: Duration::from_secs(300), ..world.to(world.crm) };
    let planned = NewEvent { deliveries: vec![delivery], ..world.arrival() };
    let planned = world.accept(planned).await;

    assert!(claim_next(&world).await.is_empty());
    let failed = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.finish(&claimed, NextStep::RetryAt(world.now + Duration::from_secs(3600))).await;
    // What a lane gave back for later, a person may still want to try.
    let put_off = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let later = world.now + Duration::from_secs(3000);
    world.release(vec![held(&claimed)], later).await.unwrap();
    assert_eq!(claim_next(&world).await.remove(0).event, put_off);
    let mut order = vec![claim_next(&world).await.remove(0).event];
    world.wait(Duration::from_secs(600));
    for _ in 0..2 {
        order.push(claim_next(&world).await.remove(0).event);
    }

    assert_eq!(order, [failed, planned, in_doubt]);
}
