//! What callers do when it is unknown whether the store committed their operation.

use surehook_core::{
    delivery::state::DeliveryStatus,
    idempotency::IdempotentRequest,
    replay::{ReplayAction, ReplayFilter, ReplayRate, ReplaySpec, ReplayState, ReplayStore as _},
    store::AdminStore as _,
};
use surehook_engine::{ConfigChangeError, LaneError};
use surehook_store::conformance::StoreFault::{UnknownCommitted, UnknownNotCommitted};
use surehook_types::store_error::StoreError;

use crate::support::{TestEngine, put_source, wait_for};

#[tokio::test]
async fn request_of_unknown_outcome_is_refused_and_its_repetition_stored_once() {
    let test = TestEngine::start().await;
    for (key, fault, is_stored) in
        [("a", UnknownCommitted, true), ("b", UnknownNotCommitted, false)]
    {
        test.store.fail_next("admit", [fault]);

        let refused = test.receive(key).await.unwrap_err();
        let repeated = test.receive(key).await.unwrap();

        assert_eq!(refused.code(), "outcome_unknown");
        assert_eq!(repeated.received[0].duplicate, is_stored, "{fault:?}");
    }
    assert_eq!(test.store.counts().await.unwrap().events, 2);
    // The event stored with an unknown outcome is delivered, too, although no lane received it.
    let deliveries = test.wait_until_all_ended().await;
    assert_eq!((deliveries.len(), test.engine.inbox().deliveries().len()), (2, 2));
}

#[tokio::test]
async fn settlement_of_unknown_outcome_is_tried_until_it_is_recorded() {
    let test = TestEngine::start().await;
    test.store.fail_next("settle", [UnknownNotCommitted, UnknownCommitted, UnknownNotCommitted]);

    test.receive("a").await.unwrap();
    let deliveries = test.wait_until_all_ended().await;
    wait_for(async || (test.store.faults_left("settle") == 0).then_some(())).await;
    test.engine.stop(std::time::Duration::from_secs(5)).await;

    assert_eq!(deliveries.len(), 1);
    assert_eq!((deliveries[0].status, deliveries[0].attempts), (DeliveryStatus::Succeeded, 1));
    assert_eq!(test.store.counts().await.unwrap().attempts, 1);
    assert_eq!(test.engine.inbox().deliveries().len(), 1);
    let metrics = test.engine.telemetry().render();
    assert!(metrics.contains("surehook_leases_lost_total 0"), "{metrics}");
}

#[tokio::test]
async fn pause_of_unknown_outcome_is_refused_and_does_not_stay_in_the_store() {
    let test = TestEngine::start().await;
    test.store.fail_next("save_lane", [UnknownCommitted]);

    let paused = test.engine.pause(test.destination, None).await;

    assert!(matches!(paused, Err(LaneError::Store(StoreError::Unknown(_)))), "{paused:?}");
    wait_for(async || (!test.is_paused_in_the_store().await).then_some(())).await;
    test.engine.pause(test.destination, None).await.unwrap();
    assert!(test.is_paused_in_the_store().await);
}

#[tokio::test]
async fn configuration_change_of_unknown_outcome_is_refused_and_applied_if_it_was_stored() {
    let test = TestEngine::start().await;
    for (name, fault, is_stored) in
        [("a", UnknownCommitted, true), ("b", UnknownNotCommitted, false)]
    {
        test.store.fail_next("change", [fault]);

        let changed =
            test.engine.change::<_, ConfigChangeError>(|_| Ok((vec![put_source(name)], ())));

        let error = changed.await.unwrap_err();
        assert!(matches!(error, ConfigChangeError::Store(StoreError::Unknown(_))), "{error:?}");
        assert_eq!(test.engine.source(name).is_ok(), is_stored);
    }
}

#[tokio::test]
async fn replay_job_of_unknown_outcome_runs_if_it_was_created() {
    let test = TestEngine::start().await;
    test.receive("a").await.unwrap();
    test.wait_until_all_ended().await;
    let request = IdempotentRequest { at: test.engine.clock().now(), seed: [7; 16] };
    let spec = ReplaySpec {
        action: ReplayAction::ForceResend,
        filter: ReplayFilter::default(),
        to: None,
        rate: ReplayRate::default(),
        note: None,
    };
    // Of the steps, too: each is tried again.
    test.store.fail_next("create_replay", [UnknownCommitted]);
    test.store.fail_next("select_replay", [UnknownCommitted]);
    test.store.fail_next("advance_replay", [UnknownCommitted, UnknownNotCommitted]);

    let created = test.engine.create_replay(request, spec.clone()).await;

    assert!(matches!(created, Err(StoreError::Unknown(_))), "{created:?}");
    let is_done = async || {
        let job = test.store.find_replay(request.id("")).await.unwrap().unwrap();
        (job.state == ReplayState::Done).then_some(job)
    };
    let job = wait_for(is_done).await;
    assert_eq!(job.progress().selected, 1);
    assert_eq!(test.deliveries().await.len(), 2);
    assert_eq!(test.engine.create_replay(request, spec).await.unwrap(), Ok(job.id));
}
