//! Replay jobs whose rows were changed outside the store.

use std::{collections::BTreeMap, path::Path};

use surehook_core::replay::{
    AdvanceReport, NewReplay, ReplayAction, ReplayFilter, ReplayItemOutcome, ReplayRate,
    ReplaySpec, ReplayState, ReplayStore as _, SelectionReport, SkipReason,
};
use surehook_store::SqliteStore;
use surehook_types::ids::{DestinationId, Id, IdKind, ReplayId};
use uuid::Uuid;

use crate::harness::{NOW, open, open_file};

fn id<K: IdKind>(number: u128) -> Id<K> {
    Id::from_uuid(Uuid::from_u128(number))
}

const SOURCE: &str = "INSERT INTO sources VALUES (1, ?1, 'shop', '{}', 1, 1, NULL)";
const CRM: &str = "INSERT INTO destinations VALUES (1, ?1, 'crm', '{}', 1, 1, NULL)";
const MAIL: &str = "INSERT INTO destinations VALUES (2, ?1, 'mail', '{}', 1, 1, NULL)";
const PAYLOAD: &str =
    "INSERT INTO payloads (path, remote, headers, body) VALUES ('/', '-', x'', x'')";
const EVENT: &str = "
    INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint, payload)
    VALUES (?1, ?1, 1, 1, 0, zeroblob(32), 1)";
const DEAD_DELIVERY: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, ended_at, reason)
    VALUES (?1, ?1, 1, 'dead', 'ingest', 1, 1, 'expired')";

/// Three events of one source: dead for the first destination, never sent to the second.
fn insert_events(folder: &Path) {
    drop(open(folder));
    let file = open_file(folder);
    let execute = |sql: &str, number: u128| file.execute(sql, [number.to_be_bytes()]).unwrap();
    execute(SOURCE, 1);
    execute(CRM, 2);
    execute(MAIL, 3);
    file.execute(PAYLOAD, []).unwrap();
    for number in 10..13 {
        execute(EVENT, number);
        execute(DEAD_DELIVERY, number);
    }
    let sums = "INSERT INTO counters VALUES ('status:dead', 3), ('dead:expired', 3)";
    file.execute(sums, []).unwrap();
}

/// Creates a job and completes its selection.
async fn create_selected_job(
    store: &SqliteStore,
    action: ReplayAction,
    to: Option<DestinationId>,
) -> ReplayId {
    let job = id(99);
    let filter = ReplayFilter { source: Some(id(1)), ..ReplayFilter::default() };
    let spec = ReplaySpec { action, filter, to, rate: ReplayRate::default(), note: None };
    store.create_replay(NewReplay { id: job, spec, created_at: NOW }).await.unwrap();
    assert_eq!(
        store.select_replay(job).await.unwrap(),
        SelectionReport::InState(ReplayState::Running)
    );
    job
}

async fn advance(store: &SqliteStore, job: ReplayId) -> AdvanceReport {
    store.advance_replay(job, 100, 100, NOW).await.unwrap().unwrap()
}

fn skipped(reason: SkipReason, count: u64) -> BTreeMap<ReplayItemOutcome, u64> {
    BTreeMap::from([(ReplayItemOutcome::Skipped(reason), count)])
}

#[tokio::test]
async fn job_skips_events_without_a_stored_body() {
    for (action, to) in
        [(ReplayAction::RetryFailed, None), (ReplayAction::SendMissing, Some(id(3)))]
    {
        let folder = tempfile::tempdir().unwrap();
        insert_events(folder.path());
        let store = open(folder.path());
        let job = create_selected_job(&store, action, to).await;
        open_file(folder.path()).execute("UPDATE events SET payload = NULL", []).unwrap();

        let step = advance(&store, job).await;

        assert_eq!(
            (step.state, step.outcomes),
            (ReplayState::Done, skipped(SkipReason::BodyGone, 3))
        );
    }
}

#[tokio::test]
async fn send_missing_job_skips_events_that_have_a_delivery() {
    let folder = tempfile::tempdir().unwrap();
    insert_events(folder.path());
    let store = open(folder.path());
    let job = create_selected_job(&store, ReplayAction::SendMissing, Some(id(3))).await;
    let move_one = "UPDATE deliveries SET destination = 2 WHERE id = ?1";
    open_file(folder.path()).execute(move_one, [11u128.to_be_bytes()]).unwrap();

    let step = advance(&store, job).await;

    assert_eq!(step.outcomes, skipped(SkipReason::Present, 1));
    assert_eq!(step.dispatched, BTreeMap::from([(id(3), 2)]));
}

#[tokio::test]
async fn deliveries_removed_before_they_were_counted_are_skipped_as_gone() {
    let folder = tempfile::tempdir().unwrap();
    insert_events(folder.path());
    let store = open(folder.path());
    let job = create_selected_job(&store, ReplayAction::RetryFailed, None).await;
    assert_eq!(advance(&store, job).await.open, 3);
    open_file(folder.path()).execute("DELETE FROM deliveries WHERE state = 'pending'", []).unwrap();

    let step = advance(&store, job).await;

    assert_eq!(
        (step.state, step.outcomes),
        (ReplayState::Done, skipped(SkipReason::DeliveryGone, 3))
    );
    let progress = store.find_replay(job).await.unwrap().unwrap().progress();
    assert_eq!((progress.dispatched(), progress.skipped()), (3, 3));
}
