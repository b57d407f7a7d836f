//! Saved lane states and their effect on statuses, and deliveries that users cancel.

use std::time::Duration;

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    lane::{BacklogDrain, LanePause, SavedLaneState},
    store::{
        CancelResult, ClaimedDelivery, ConfigChange, DeliveryFilter, EventDeliveryFilter,
        EventFilter, NextStep,
    },
};
use surehook_retry::{DeadReason, circuit::CircuitState};
use surehook_types::ids::{DeliveryId, EventId};

use super::{
    StoreFixture,
    fixture::{destination_spec, first_page, held_claim, read_pages},
};

fn paused(fixture: &StoreFixture) -> SavedLaneState {
    let reason = Some("maintenance".to_owned());
    SavedLaneState {
        paused: Some(LanePause { at: fixture.now, reason, automatic: false }),
        ..SavedLaneState::default()
    }
}

pub async fn delayed_delivery_is_due_after_the_delay(mut fixture: StoreFixture) {
    let delay = Duration::from_secs(5);
    let deliveries = vec![NewDelivery { delay, ..fixture.delivery_to(fixture.crm) }];
    let event = fixture.accept(NewEvent { deliveries, ..fixture.new_event() }).await;
    let due_at = fixture.now + delay;
    assert_eq!(fixture.only_delivery(event).await.due_at, Some(due_at));
    assert!(fixture.claim(fixture.crm, 10).await.is_empty());
    fixture.wait(delay);
    // A replay is not delayed.
    fixture.finish(&fixture.claim_one(fixture.crm).await, NextStep::Succeeded).await;
    let old = fixture.only_delivery(event).await.id;
    fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();
    fixture.claim_one(fixture.crm).await;
}

pub async fn saved_lane_state_is_read_back_after_restart(mut fixture: StoreFixture) {
    let until = fixture.now + Duration::from_secs(60);
    let circuits = [
        CircuitState::Open { until, openings: 3 },
        CircuitState::HalfOpen { openings: 2 },
        CircuitState::Ramp { openings: 1 },
        CircuitState::Closed,
    ];
    for circuit in circuits {
        let saved = SavedLaneState {
            circuit,
            cool_until: Some(until),
            drain: Some(BacklogDrain { rate: "100/s burst 3".parse().unwrap(), until }),
            ..paused(&fixture)
        };
        fixture.save_lane(fixture.crm, saved.clone()).await.unwrap();
        fixture.reopen().await;
        let stored = fixture.load_lanes().await.unwrap();
        assert_eq!(stored.into_iter().collect::<Vec<_>>(), [(fixture.crm, saved)]);
    }
    fixture.save_lane(fixture.crm, SavedLaneState::default()).await.unwrap();
    assert!(fixture.load_lanes().await.unwrap().is_empty());
}

pub async fn lane_state_of_deleted_destination_is_removed(fixture: StoreFixture) {
    fixture.save_lane(fixture.crm, paused(&fixture)).await.unwrap();
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    assert!(fixture.load_lanes().await.unwrap().is_empty());
    fixture.save_lane(fixture.crm, paused(&fixture)).await.unwrap();
    let again = vec![ConfigChange::PutDestination(fixture.crm, destination_spec("crm"))];
    fixture.change(again, fixture.now).await.unwrap();
    assert!(fixture.load_lanes().await.unwrap().is_empty());
}

/// The deliveries with a status, newest first.
async fn listed(fixture: &StoreFixture, status: DeliveryStatus) -> Vec<DeliveryId> {
    let filter = DeliveryFilter { status: Some(status), ..DeliveryFilter::default() };
    let page = first_page(100);
    let rows = fixture.list_deliveries(filter, page).await.unwrap().rows;
    assert!(rows.iter().all(|row| row.status == status));
    rows.iter().map(|row| row.id).collect()
}

async fn assert_lists_match_counts(fixture: &StoreFixture) {
    let mut counts = fixture.counts().await;
    counts.move_to_held(&fixture.count_held().await.unwrap());
    for status in DeliveryStatus::ALL {
        let count = counts.by_status.get(&status).copied().unwrap_or_default();
        let listed = listed(fixture, status).await;
        assert_eq!(u64::try_from(listed.len()).unwrap(), count, "{status:?}");
    }
}

/// One delivery in each waiting status and some in others, all to the CRM except the last.
async fn create_mixed_deliveries(fixture: &StoreFixture) {
    for next in [
        NextStep::RetryAt(fixture.now + Duration::from_secs(60)),
        NextStep::Succeeded,
        NextStep::Dead(DeadReason::MaxRetries),
    ] {
        fixture.accept(fixture.new_event()).await;
        fixture.finish(&fixture.claim_one(fixture.crm).await, next).await;
    }
    fixture.accept(fixture.new_event()).await;
    fixture.claim_one(fixture.crm).await;
    fixture.accept(fixture.ordered_event("c-1")).await;
    fixture.accept(fixture.ordered_event("c-1")).await;
    let deliveries = vec![fixture.delivery_to(fixture.mail)];
    fixture.accept(NewEvent { deliveries, ..fixture.new_event() }).await;
}

async fn assert_events_are_filtered_by_shown_status(fixture: &StoreFixture, held: EventId) {
    assert_eq!(fixture.delivery_statuses(held).await, [DeliveryStatus::Held]);
    for (status, count) in
        [(DeliveryStatus::Held, 3), (DeliveryStatus::Pending, 1), (DeliveryStatus::Scheduled, 0)]
    {
        let filter = EventFilter {
            delivery_filter: EventDeliveryFilter {
                status: Some(status),
                ..EventDeliveryFilter::default()
            },
            ..EventFilter::default()
        };
        let page = first_page(100);
        assert_eq!(
            fixture.list_events(filter, page).await.unwrap().rows.len(),
            count,
            "{status:?}"
        );
    }
}

async fn assert_shown_as_held(fixture: StoreFixture, state: SavedLaneState) {
    create_mixed_deliveries(&fixture).await;
    assert_lists_match_counts(&fixture).await;
    let waiting = [
        listed(&fixture, DeliveryStatus::Pending).await,
        listed(&fixture, DeliveryStatus::Scheduled).await,
    ];
    assert_eq!((waiting[0].len(), waiting[1].len()), (2, 1));

    fixture.save_lane(fixture.crm, state).await.unwrap();

    assert_lists_match_counts(&fixture).await;
    let elsewhere = &waiting[0][..1];
    assert_eq!(
        listed(&fixture, DeliveryStatus::Pending).await,
        elsewhere,
        "deliveries to the other destination"
    );
    assert_eq!(listed(&fixture, DeliveryStatus::Held).await.len(), 3);
    let held = fixture.delivery_detail(waiting[1][0]).await.delivery;
    assert_eq!(
        (held.status, held.due_at.is_some()),
        (DeliveryStatus::Held, true),
        "the due time is kept"
    );
    assert_events_are_filtered_by_shown_status(&fixture, held.event).await;

    fixture.save_lane(fixture.crm, SavedLaneState::default()).await.unwrap();
    assert_lists_match_counts(&fixture).await;
    assert_eq!(listed(&fixture, DeliveryStatus::Pending).await, waiting[0]);
}

pub async fn waiting_deliveries_of_paused_destination_are_shown_as_held(fixture: StoreFixture) {
    let state = paused(&fixture);
    assert_shown_as_held(fixture, state).await;
}

/// More deliveries than a page reads, so that the store must use another query than for a few.
pub async fn thousands_of_held_deliveries_are_listed_page_by_page(mut fixture: StoreFixture) {
    const MANY: usize = 10_050;
    let to_mail = vec![fixture.delivery_to(fixture.mail)];
    fixture.accept(NewEvent { deliveries: to_mail, ..fixture.new_event() }).await;
    for _ in 0..MANY / 50 {
        fixture.wait(Duration::from_millis(1));
        fixture.admit((0..50).map(|_| fixture.new_event()).collect()).await.unwrap();
    }
    let all = async |status| {
        let filter = DeliveryFilter { status: Some(status), ..DeliveryFilter::default() };
        let rows =
            read_pages(1000, async |page| fixture.list_deliveries(filter.clone(), page).await)
                .await;
        assert!(rows.iter().all(|row| row.status == status));
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let waiting = all(DeliveryStatus::Pending).await;
    assert_eq!(waiting.len(), MANY + 1);

    fixture.save_lane(fixture.crm, paused(&fixture)).await.unwrap();

    assert_eq!(all(DeliveryStatus::Held).await, waiting[..MANY]);
    assert_eq!(all(DeliveryStatus::Pending).await, waiting[MANY..]);
}

pub async fn waiting_deliveries_with_open_circuit_are_shown_as_held(fixture: StoreFixture) {
    let circuit = CircuitState::Open { until: fixture.now, openings: 1 };
    assert_shown_as_held(fixture, SavedLaneState { circuit, ..SavedLaneState::default() }).await;
}

pub async fn waiting_delivery_can_be_cancelled(fixture: StoreFixture) {
    create_mixed_deliveries(&fixture).await;
    let mut waiting = Vec::new();
    for status in [DeliveryStatus::Held, DeliveryStatus::Pending, DeliveryStatus::Scheduled] {
        waiting.extend(listed(&fixture, status).await);
    }
    assert_eq!(waiting.len(), 4);
    for id in waiting {
        let cancelled = fixture.cancel(id, fixture.now).await.unwrap();
        assert!(matches!(cancelled, CancelResult::Done { .. }), "{cancelled:?}");
        let row = fixture.delivery_detail(id).await.delivery;
        assert_eq!((row.status, row.ended_at), (DeliveryStatus::Cancelled, Some(fixture.now)));
    }
    assert_lists_match_counts(&fixture).await;
    assert!(fixture.claim(fixture.crm, 10).await.is_empty());
}

pub async fn in_flight_or_ended_delivery_cannot_be_cancelled(fixture: StoreFixture) {
    create_mixed_deliveries(&fixture).await;
    let waiting = fixture.claim(fixture.mail, 1).await[0].id;
    let again = fixture.cancel(waiting, fixture.now).await.unwrap();
    assert_eq!(again, CancelResult::NotCancellable(DeliveryStatus::InFlight));
    for status in [DeliveryStatus::Succeeded, DeliveryStatus::Dead] {
        let id = listed(&fixture, status).await[0];
        let refused = fixture.cancel(id, fixture.now).await.unwrap();
        assert_eq!(refused, CancelResult::NotCancellable(status));
    }
    assert_eq!(
        fixture.cancel(fixture.new_id(), fixture.now).await.unwrap(),
        CancelResult::NotFound
    );
    assert_lists_match_counts(&fixture).await;
}

async fn claim_next(fixture: &StoreFixture) -> Vec<ClaimedDelivery> {
    fixture.claim_next(fixture.crm, fixture.now, fixture.new_claim()).await.unwrap().claimed
}

pub async fn claim_next_returns_the_next_retry_before_it_is_due(fixture: StoreFixture) {
    assert!(claim_next(&fixture).await.is_empty());
    for seconds in [60, 30] {
        let (_, claimed) = fixture.accept_and_claim().await;
        let again_at = fixture.now + Duration::from_secs(seconds);
        fixture.finish(&claimed, NextStep::RetryAt(again_at)).await;
    }
    let claimed = claim_next(&fixture).await.remove(0);
    assert_eq!(
        (claimed.attempts, fixture.count_deliveries(DeliveryStatus::InFlight).await),
        (1, 1)
    );
    fixture.finish(&claimed, NextStep::Succeeded).await;
    let left = fixture.find_next_due(fixture.crm).await.unwrap();
    assert_eq!(left, Some(fixture.now + Duration::from_secs(60)));
}

pub async fn claim_next_skips_delayed_and_ambiguous_deliveries(mut fixture: StoreFixture) {
    // It may have arrived, and a status may confirm that.
    let (ambiguous, claimed) = fixture.accept_and_claim().await;
    let retry_later = NextStep::RetryAt(fixture.now + Duration::from_secs(600));
    fixture.settle(fixture.ambiguous_settlement(&claimed, retry_later)).await.unwrap();
    // A delivery with a delay.
    let delivery =
        NewDelivery { delay: Duration::from_secs(300), ..fixture.delivery_to(fixture.crm) };
    let delayed = NewEvent { deliveries: vec![delivery], ..fixture.new_event() };
    let delayed = fixture.accept(delayed).await;

    assert!(claim_next(&fixture).await.is_empty());
    let (failed, claimed) = fixture.accept_and_claim().await;
    fixture.finish(&claimed, NextStep::RetryAt(fixture.now + Duration::from_secs(3600))).await;
    // A delivery that a lane released for later can still be claimed.
    let (released_for_later, claimed) = fixture.accept_and_claim().await;
    let later = fixture.now + Duration::from_secs(3000);
    fixture.release(vec![held_claim(&claimed)], later).await.unwrap();
    assert_eq!(claim_next(&fixture).await.remove(0).event, released_for_later);
    let mut order = vec![claim_next(&fixture).await.remove(0).event];
    fixture.wait(Duration::from_secs(600));
    for _ in 0..2 {
        order.push(claim_next(&fixture).await.remove(0).event);
    }

    assert_eq!(order, [failed, delayed, ambiguous]);
}
