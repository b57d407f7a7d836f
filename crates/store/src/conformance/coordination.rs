//! Owners of lanes and leaders of duties: what an earlier one does has no effect.

use std::time::Duration;

use surehook_core::{
    decision::NotRoutedReason,
    delivery::state::DeliveryStatus,
    lane::{LanePause, SavedLaneState},
    store::{AbandonedClaim, Duty, NextStep, SettleResult},
};
use surehook_retry::DeadReason;
use surehook_types::ids::NodeId;

use super::{StoreFixture, fixture::held_claim};

pub async fn epoch_of_a_lane_grows_with_each_owner(mut fixture: StoreFixture) {
    let mut last = fixture.epoch;
    for _ in 0..3 {
        fixture.reopen().await;
        assert!(fixture.epoch > last, "{:?} after {last:?}", fixture.epoch);
        last = fixture.epoch;
    }
    let node: NodeId = fixture.new_id();
    fixture.register_node(node).await.unwrap();
    assert!(fixture.renew_node(node).await.unwrap().is_some());
    let first = fixture.acquire_lanes(node, vec![fixture.crm]).await.unwrap();
    let again = fixture.acquire_lanes(node, vec![fixture.crm]).await.unwrap();
    assert_eq!(again, first, "the owner stays, and so does the epoch");
}

pub async fn claim_under_an_outdated_epoch_claims_nothing(mut fixture: StoreFixture) {
    fixture.accept(fixture.new_event()).await;
    let outdated = fixture.new_claim();
    fixture.reopen().await;

    let (destination, now) = (fixture.crm, fixture.now);
    let due = fixture.claim_due(destination, now, outdated, 9).await.unwrap();
    let next = fixture.claim_next(destination, now, outdated).await.unwrap();

    assert!(due.claimed.is_empty() && next.claimed.is_empty());
    assert_eq!(fixture.claim(destination, 9).await.len(), 1);
}

pub async fn claims_of_an_earlier_owner_change_nothing(mut fixture: StoreFixture) {
    let (event, lost) = fixture.accept_and_claim().await;
    fixture.reopen().await;
    let current = fixture.claim_one(fixture.crm).await;
    let now = fixture.now + Duration::from_secs(1);

    let outcome = fixture.ambiguous_settlement(&lost, NextStep::Dead(DeadReason::Ambiguous));
    let recorded = fixture.record_crash_outcome(outcome.clone()).await.unwrap();
    let settled = fixture.settle(outcome).await.unwrap();
    fixture.release(vec![held_claim(&lost)], now).await.unwrap();
    let cancelled =
        fixture.cancel_claimed(held_claim(&lost), NotRoutedReason::FilterFalse, now).await.unwrap();
    let (destination, proof) = (fixture.crm, lost.proof);
    for delivery in [Some(lost.id), None] {
        let claim = AbandonedClaim { destination, proof, delivery, due_at: now };
        fixture.abandon(vec![claim], now).await.unwrap();
    }

    assert_eq!((recorded, settled), (SettleResult::ClaimLost, SettleResult::ClaimLost));
    assert!(!cancelled);
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::InFlight, 0));
    fixture.finish(&current, NextStep::Succeeded).await;
}

pub async fn state_saved_by_an_earlier_owner_is_ignored(mut fixture: StoreFixture) {
    let outdated = fixture.epoch;
    fixture.reopen().await;
    let paused = LanePause { at: fixture.now, reason: None, automatic: false };
    let state = SavedLaneState { paused: Some(paused), ..SavedLaneState::default() };
    let store = fixture.store();

    store.save_lane(fixture.crm, outdated, state.clone()).await.unwrap();

    assert!(fixture.load_lanes().await.unwrap().is_empty());
    fixture.save_lane(fixture.crm, state).await.unwrap();
    assert_eq!(fixture.load_lanes().await.unwrap().len(), 1);
}

pub async fn duty_is_led_under_a_term_that_grows_with_each_leader(mut fixture: StoreFixture) {
    let mut last = None;
    for _ in 0..2 {
        let node: NodeId = fixture.new_id();
        fixture.register_node(node).await.unwrap();
        let led = fixture.lead_duties(node, Duty::ALL.to_vec()).await.unwrap();
        let again = fixture.lead_duties(node, Duty::ALL.to_vec()).await.unwrap();

        assert_eq!(led.iter().map(|led| led.duty).collect::<Vec<_>>(), Duty::ALL);
        assert_eq!(again, led, "the leader stays, and so does the term");
        assert!(last < Some(led[0].term), "{last:?}");
        last = Some(led[0].term);
        fixture.remove_node(node).await.unwrap();
        fixture.reopen().await;
    }
}
