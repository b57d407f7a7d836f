//! A process with other nodes beside it: it runs only the lanes that it owns and the duties that it leads.

use std::time::Duration;

use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{Duty, NodeLease},
};
use surehook_store::conformance::{GrantedOwnership, StoreFault::Refused};

use crate::support::{TestEngine, wait_for};

/// Renewed every 20 ms.
const SHORT: NodeLease = NodeLease::For(Duration::from_millis(60));
/// Long enough for a test, and renewed often.
const LASTING: NodeLease = NodeLease::For(Duration::from_secs(30));
/// A lease that has ended when it begins.
const ENDED: NodeLease = NodeLease::For(Duration::ZERO);

#[tokio::test]
async fn deliveries_of_a_lane_owned_elsewhere_wait_in_the_store() {
    let test = TestEngine::start_with(GrantedOwnership { lease: SHORT, ..everything() }).await;
    let withheld_lanes = vec![test.destination];
    test.store.grant(GrantedOwnership { lease: SHORT, withheld_lanes, ..everything() });
    // A change makes the node ask for its lanes.
    test.reload().await;

    test.receive("a").await.unwrap();

    assert_eq!(test.deliveries().await[0].status, DeliveryStatus::Pending);
    assert_eq!(test.engine.owned_lanes(), 0);

    test.store.grant(GrantedOwnership { lease: SHORT, ..everything() });
    let deliveries = test.wait_until_all_ended().await;
    assert_eq!(deliveries[0].status, DeliveryStatus::Succeeded);
}

#[tokio::test]
async fn nothing_starts_after_the_lease_has_ended_without_a_renewal() {
    let test = TestEngine::start_with(GrantedOwnership { lease: ENDED, ..everything() }).await;

    test.receive("a").await.unwrap();

    assert_eq!(test.deliveries().await[0].status, DeliveryStatus::Pending, "nothing is claimed");
    let before = test.store.calls("renew_node");
    wait_for(async || (test.store.calls("renew_node") > before + 2).then_some(())).await;
    assert_eq!(test.deliveries().await[0].status, DeliveryStatus::Pending);
    assert_eq!(test.store.calls("claim_due"), 0);

    test.store.grant(GrantedOwnership { lease: SHORT, ..everything() });
    assert_eq!(test.wait_until_all_ended().await[0].status, DeliveryStatus::Succeeded);
}

#[tokio::test]
async fn expired_node_registers_again_and_delivers() {
    let test = TestEngine::start_with(GrantedOwnership { lease: SHORT, ..everything() }).await;
    test.store.fail_next("renew_node", [Refused]);
    test.store.end_lease();

    wait_for(async || (test.store.calls("register_node") == 2).then_some(())).await;

    test.receive("a").await.unwrap();
    assert_eq!(test.wait_until_all_ended().await[0].status, DeliveryStatus::Succeeded);
}

#[tokio::test]
async fn duties_run_only_while_this_node_leads_them() {
    let duties = vec![Duty::RollUp];
    let ownership = GrantedOwnership { lease: SHORT, duties, ..everything() };
    let test = TestEngine::start_with(ownership).await;
    let others = [
        "prune",
        "cancel_for_deleted_destinations",
        "list_unfinished_replays",
        "list_due_callbacks",
    ];

    wait_for(async || (test.store.calls("roll_up") > 0).then_some(())).await;
    let before = test.store.calls("renew_node");
    wait_for(async || (test.store.calls("renew_node") > before + 2).then_some(())).await;
    assert!(others.iter().all(|method| test.store.calls(method) == 0));

    test.store.grant(GrantedOwnership { lease: LASTING, ..everything() });
    wait_for(async || others.iter().all(|method| test.store.calls(method) > 0).then_some(())).await;
}

#[tokio::test]
async fn stopping_node_gives_back_what_it_owns() {
    let test = TestEngine::start().await;

    test.engine.stop(Duration::from_secs(5)).await;

    assert_eq!(test.store.calls("remove_node"), 1);
}

fn everything() -> GrantedOwnership {
    GrantedOwnership::default()
}
