//! Deliveries whose attempt ends without a result in the store become due again in the running process.

use std::sync::Arc;

use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{AdminStore as _, DeliveryRow},
};
use surehook_store::conformance::{
    GrantedOwnership,
    StoreFault::{Refused, UnknownCommitted, UnknownNotCommitted},
};

use crate::support::{PanickingRng, TestEngine, wait_for};

/// Waits until the newest delivery is due again, and not at once: it would fail again without a pause.
async fn wait_until_due_later(test: &TestEngine) -> DeliveryRow {
    wait_for(async || {
        let delivery = test.deliveries().await.remove(0);
        let is_later = delivery.due_at.is_some_and(|due_at| due_at > test.engine.clock().now());
        (delivery.status == DeliveryStatus::Pending && is_later).then_some(delivery)
    })
    .await
}

#[tokio::test]
async fn delivery_with_unwritable_result_is_due_again_later() {
    let test = TestEngine::start().await;
    test.store.fail_next("settle", [Refused]);
    // Also if that fails at first.
    test.store.fail_next("abandon", [Refused, UnknownNotCommitted]);

    test.receive("a").await.unwrap();

    let delivery = wait_until_due_later(&test).await;
    assert_eq!(delivery.attempts, 0);
    let decisions = test.store.find_event(delivery.event).await.unwrap().unwrap().decisions;
    assert_eq!(decisions.len(), 1, "{decisions:?}");
}

#[tokio::test]
async fn delivery_of_a_panicking_attempt_is_due_again_later() {
    let rng = Arc::new(PanickingRng::default());
    let ownership = GrantedOwnership::default();
    let test = TestEngine::start_to("http://unknown.test/", ownership, Arc::clone(&rng)).await;
    rng.arm();

    test.receive("a").await.unwrap();

    let delivery = wait_until_due_later(&test).await;
    assert_eq!(delivery.attempts, 0);
    // The lane delivers others.
    test.receive("b").await.unwrap();
    wait_for(async || {
        let newest = test.deliveries().await.remove(0);
        (newest.status == DeliveryStatus::Scheduled).then_some(())
    })
    .await;
}

#[tokio::test]
async fn deliveries_claimed_with_unknown_outcome_are_delivered() {
    let test = TestEngine::start().await;
    test.engine.pause(test.destination, None).await.unwrap();
    for key in ["a", "b", "c"] {
        test.receive(key).await.unwrap();
    }
    test.store.fail_next("claim_due", [UnknownCommitted, UnknownNotCommitted]);

    test.engine.resume(test.destination, None).await.unwrap();

    let deliveries = test.wait_until_all_ended().await;
    assert_eq!(deliveries.len(), 3);
    assert!(deliveries.iter().all(|delivery| delivery.attempts == 1), "{deliveries:?}");
    assert_eq!(test.engine.inbox().deliveries().len(), 3);
}
