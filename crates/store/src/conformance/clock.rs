//! The saved clock, and keys and waits that were written while the wall clock was wrong.

use std::time::Duration;

use surehook_core::{
    clock::SavedClock,
    event::{DedupKeyClaim, NewDelivery, NewEvent},
    lane::SavedLaneState,
    store::{AdmitResult, NextStep},
};
use surehook_retry::circuit::CircuitState;

use super::StoreFixture;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

pub async fn saved_clock_is_read_back_after_restart(mut fixture: StoreFixture) {
    assert_eq!(fixture.load_clock().await.unwrap().saved, None);
    fixture.accept(fixture.new_event()).await;
    let saved = SavedClock { trusted: fixture.now, wall: fixture.now + DAY, machine: None };
    fixture.save_clock(saved.clone()).await.unwrap();
    fixture.reopen().await;
    let stored = fixture.load_clock().await.unwrap();
    assert_eq!((stored.saved, stored.newest_event), (Some(saved), Some(fixture.now)));
}

pub async fn waits_written_by_a_clock_ahead_are_shortened(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    fixture.finish(&claimed, NextStep::RetryAt(fixture.now + 5 * SECOND)).await;
    let corrected = fixture.now - DAY;
    // A step of zero: how far the clock was ahead is unknown, so the whole delay starts again.
    assert_eq!(fixture.shorten_waits(corrected, Duration::ZERO).await.unwrap(), 1);
    let due_at = fixture.only_delivery(event).await.due_at.unwrap();
    assert!(due_at <= corrected + 5 * SECOND, "{due_at}");

    let lane = SavedLaneState {
        circuit: CircuitState::Open { until: fixture.now + 10 * SECOND, openings: 1 },
        cool_until: Some(fixture.now + 20 * SECOND),
        ..SavedLaneState::default()
    };
    fixture.save_lane(fixture.crm, lane).await.unwrap();
    fixture.shorten_waits(corrected, DAY).await.unwrap();
    let lane = fixture.load_lanes().await.unwrap()[&fixture.crm].clone();
    assert_eq!(lane.circuit, CircuitState::Open { until: corrected + 10 * SECOND, openings: 1 });
    assert_eq!(lane.cool_until, Some(corrected + 20 * SECOND));
}

pub async fn delay_of_a_first_attempt_is_shortened_and_a_chosen_time_stays(
    mut fixture: StoreFixture,
) {
    let delay = 5 * SECOND;
    let delayed = vec![NewDelivery { delay, ..fixture.delivery_to(fixture.crm) }];
    let delayed = fixture.accept(NewEvent { deliveries: delayed, ..fixture.new_event() }).await;
    fixture.shorten_waits(fixture.now - DAY, DAY).await.unwrap();
    assert_eq!(fixture.only_delivery(delayed).await.due_at, Some(fixture.now - DAY + delay));

    // A delay longer than the step was chosen by a person.
    let (chosen_for, delay) = (fixture.now + 9 * DAY, 9 * DAY);
    let chosen = vec![NewDelivery { delay, ..fixture.delivery_to(fixture.crm) }];
    let chosen = fixture.accept(NewEvent { deliveries: chosen, ..fixture.new_event() }).await;
    fixture.wait(SECOND);
    fixture.shorten_waits(fixture.now, DAY).await.unwrap();
    assert_eq!(fixture.only_delivery(chosen).await.due_at, Some(chosen_for));
}

pub async fn key_does_not_expire_by_a_clock_in_doubt(mut fixture: StoreFixture) {
    let first = NewEvent { key: Some(fixture.key_claim("a")), ..fixture.new_event() };
    fixture.accept(first).await;
    let trusted = fixture.now;
    fixture.wait(60 * DAY);
    let claim = DedupKeyClaim { as_of: trusted, ..fixture.key_claim("a") };
    let repeated = NewEvent { key: Some(claim), ..fixture.new_event() };
    let admitted = fixture.admit([repeated].into()).await.unwrap();
    assert!(matches!(admitted[0], AdmitResult::Duplicate(_)), "{admitted:?}");
}

pub async fn key_claimed_by_a_clock_ahead_lasts_one_more_window(mut fixture: StoreFixture) {
    // The window of the key is one second.
    let event_by_clock_ahead = |fixture: &StoreFixture, ahead: Duration| {
        let expires_at = fixture.now + ahead + SECOND;
        let claim = DedupKeyClaim { expires_at, ..fixture.key_claim("a") };
        NewEvent { key: Some(claim), ..fixture.new_event() }
    };
    fixture.accept(event_by_clock_ahead(&fixture, 3650 * DAY)).await;
    let admitted =
        fixture.admit([event_by_clock_ahead(&fixture, Duration::ZERO)].into()).await.unwrap();
    assert!(matches!(admitted[0], AdmitResult::Duplicate(_)), "{admitted:?}");
    fixture.wait(SECOND);
    fixture.accept(event_by_clock_ahead(&fixture, Duration::ZERO)).await;
}

pub async fn shortened_key_does_not_come_back_when_it_is_pruned(mut fixture: StoreFixture) {
    let claim = |fixture: &StoreFixture, window: Duration| {
        let expires_at = fixture.now + window;
        let claim = DedupKeyClaim { expires_at, ..fixture.key_claim("a") };
        NewEvent { key: Some(claim), ..fixture.new_event() }
    };
    // Enough other keys to move this one through all the places where keys are kept.
    let others = async |fixture: &StoreFixture, from: usize| {
        for number in from..from + 60 {
            fixture.accept(fixture.event_with_key(&format!("other-{number}"))).await;
        }
    };
    fixture.accept(claim(&fixture, 3650 * DAY)).await;
    others(&fixture, 0).await;
    let admitted = fixture.admit_one(claim(&fixture, SECOND)).await;
    assert!(matches!(admitted, AdmitResult::Duplicate(_)), "{admitted:?}");
    others(&fixture, 60).await;
    fixture.wait(SECOND);

    fixture.prune_all(3650 * DAY).await;

    fixture.accept(claim(&fixture, SECOND)).await;
}
