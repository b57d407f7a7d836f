//! A full disk: nothing is acknowledged that is not stored, and no restart is needed afterwards.

use std::{
    path::Path,
    process::Command,
    sync::{Arc, mpsc},
    time::Duration,
};

use async_trait::async_trait;
use surehook_core::{
    event::NewEvent,
    store::{AdminStore, NextStep, Store},
};
use surehook_store::{
    SqliteOptions, SqliteStore,
    conformance::{StoreFixture, StoreHarness},
};
use surehook_types::{ids::EventId, store_error::StoreError, time::Timestamp};

use crate::{
    child_process,
    harness::{assert_consistent, fixture_in, open},
};

/// A harness whose store is shared with the test, which sets its size limit.
struct SharedStoreHarness(Arc<SqliteStore>);

#[async_trait]
impl StoreHarness for SharedStoreHarness {
    async fn open(&self, _: Timestamp) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }
}

fn large(fixture: &StoreFixture, number: usize) -> NewEvent {
    let mut event = fixture.event_with_key(&format!("k{number}"));
    let body: Vec<u8> = event.payload.body.iter().copied().cycle().take(16 * 1024).collect();
    event.payload.fingerprint = surehook_webhooks::key::fingerprint(&body);
    event.payload.body = body.into();
    event
}

/// Admits events until the disk is full and returns the acknowledged ones.
async fn fill(fixture: &StoreFixture) -> Vec<EventId> {
    let mut acknowledged = Vec::new();
    for number in 0..10_000 {
        let event = large(fixture, number);
        let id = event.id;
        match fixture.admit(vec![event]).await {
            Ok(_) => acknowledged.push(id),
            Err(StoreError::Full) => return acknowledged,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never filled up");
}

/// Checks the store while the disk is full, and that it recovers when there is space again.
async fn check_recovery(
    fixture: &StoreFixture,
    mut acknowledged: Vec<EventId>,
    free_space: impl AsyncFnOnce(),
) {
    assert!(fixture.health().is_disk_full && fixture.health().failure.is_none());
    let refused = large(fixture, 5000);
    assert!(matches!(fixture.admit(vec![refused.clone()]).await, Err(StoreError::Full)));
    assert!(fixture.find_event(refused.id).await.unwrap().is_none());

    free_space().await;

    // The sender's retry is accepted: the refused request stored no key.
    acknowledged.push(fixture.accept(fixture.repeat_of(&refused)).await);
    assert!(!fixture.health().is_disk_full);
    for event in acknowledged {
        assert!(fixture.find_body(event).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn store_is_full_until_its_file_may_grow() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(folder.path()));
    let fixture = StoreFixture::new(SharedStoreHarness(Arc::clone(&store))).await;
    fixture.accept(large(&fixture, 4000)).await;
    store.limit_pages(1).await.unwrap();

    let acknowledged = fill(&fixture).await;

    check_recovery(&fixture, acknowledged, async || store.limit_pages(1_000_000).await.unwrap())
        .await;
    drop((fixture, store));
    assert_consistent(folder.path()).await;
}

#[tokio::test]
async fn full_store_closes_with_unwritten_sightings() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(folder.path()));
    let fixture = StoreFixture::new(SharedStoreHarness(Arc::clone(&store))).await;
    let events: Vec<NewEvent> =
        (0..400).map(|n| fixture.event_with_key(&format!("s{n}"))).collect();
    fixture.admit(events.clone()).await.unwrap();
    store.limit_pages(1).await.unwrap();
    fill(&fixture).await;
    for _ in 0..16 {
        for event in &events {
            let key = event.key.as_ref().unwrap();
            fixture
                .find_committed(event.source, key, &event.payload.fingerprint, fixture.now)
                .unwrap();
        }
    }

    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        drop((fixture, store));
        let _ignored = ended.send(());
    });

    assert!(end.recv_timeout(Duration::from_secs(20)).is_ok(), "the store does not close");
    assert_consistent(folder.path()).await;
}

/// A file system of four megabytes in a user namespace, which needs no privileges.
const SMALL_DISK: &str =
    "mount -t tmpfs -o size=4m tmpfs \"$SUREHOOK_TEST_CHILD_FOLDER\" && exec \"$@\"";
const NAMESPACE: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

#[tokio::test]
async fn full_disk_is_reported_and_recovered_from() {
    if let Some(folder) = child_process::child_folder() {
        return run_on_a_small_disk(&folder).await;
    }
    let [program, arguments @ ..] = NAMESPACE;
    let namespace_check = Command::new(program).args(arguments).arg("true").status();
    if !namespace_check.is_ok_and(|status| status.success()) {
        // Some machines forbid namespaces, and scripts/test reports that. The test above causes the
        // same error in another way.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wrapper = [&NAMESPACE[..], &["sh", "-c", SMALL_DISK, "sh"]].concat();
    let mut child = child_process::start(
        "full_disk::full_disk_is_reported_and_recovered_from",
        folder.path().as_os_str(),
        &wrapper,
    );
    let lines: Vec<String> = child_process::reported_lines(child.stdout.take().unwrap()).collect();

    assert!(child.wait().unwrap().success(), "the child failed after: {lines:?}");
    assert_eq!(lines, ["full", "recovered", "sound"]);
}

async fn run_on_a_small_disk(disk: &Path) {
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![1; 512 * 1024]).unwrap();
    let data = disk.join("data");
    let fixture = fixture_in(&data).await;

    let acknowledged = fill(&fixture).await;
    child_process::report("full");

    assert!(acknowledged.len() > 10);
    check_recovery(&fixture, acknowledged.clone(), async || {
        std::fs::remove_file(&ballast).unwrap();
    })
    .await;
    child_process::report("recovered");
    drop(fixture);
    let store = SqliteStore::open(&SqliteOptions::new(&data), crate::harness::NOW).unwrap();
    for event in acknowledged {
        assert!(store.find_event(event).await.unwrap().is_some());
    }
    drop(store);
    assert_consistent(&data).await;
    child_process::report("sound");
}

/// Rounds of the drill below.
const DRILLS: u32 = 50;

/// A file system with room for a log, and for a reserve that lasts for some hundred results.
const MEDIUM_DISK: &str =
    "mount -t tmpfs -o size=64m tmpfs \"$SUREHOOK_TEST_CHILD_FOLDER\" && exec \"$@\"";

#[tokio::test]
async fn full_disk_delivers_and_starts_from_the_reserve_and_recovers_each_time() {
    if let Some(folder) = child_process::child_folder() {
        return run_drills(&folder).await;
    }
    let [program, arguments @ ..] = NAMESPACE;
    let namespace_check = Command::new(program).args(arguments).arg("true").status();
    if !namespace_check.is_ok_and(|status| status.success()) {
        // As above: scripts/test reports it.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wrapper = [&NAMESPACE[..], &["sh", "-c", MEDIUM_DISK, "sh"]].concat();
    let mut child = child_process::start(
        "full_disk::full_disk_delivers_and_starts_from_the_reserve_and_recovers_each_time",
        folder.path().as_os_str(),
        &wrapper,
    );
    let lines: Vec<String> = child_process::reported_lines(child.stdout.take().unwrap()).collect();
    assert!(child.wait().unwrap().success(), "the child failed after: {lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("sound"), "{lines:?}");
}

#[expect(clippy::cognitive_complexity, reason = "one scenario, repeated")]
async fn run_drills(disk: &Path) {
    let (filler, data) = (disk.join("filler"), disk.join("data"));
    let mut fixture = fixture_in(&data).await;
    let mut starts_on_a_full_disk = 0;
    for round in 0..DRILLS {
        let mut accepted = Vec::new();
        for number in 0..20 {
            accepted.push(fixture.accept(large(&fixture, 6000 + number)).await);
        }
        // Another program fills the disk.
        let mut file = std::fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 64 * 1024]).is_ok() {}
        drop(file);
        accepted.extend(fill(&fixture).await);
        assert!(
            fixture.health().is_disk_full && fixture.health().failure.is_none(),
            "round {round}"
        );

        // What was accepted is delivered, and the results are recorded.
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.reopen().await;
        // Closing the store copied the log. In some rounds this frees enough to accept events again.
        let is_full = fixture.health().is_disk_full;
        starts_on_a_full_disk += u32::from(is_full);
        let event = large(&fixture, 5000);
        let answer = fixture.admit(vec![event.clone()]).await;
        assert!(!is_full || matches!(answer, Err(StoreError::Full)), "round {round}: {answer:?}");
        fixture.prune(Duration::from_secs(30 * 86_400), fixture.now).await.unwrap();

        std::fs::remove_file(&filler).unwrap();
        accepted.push(match answer {
            Ok(_) => event.id,
            Err(_) => fixture.accept(fixture.repeat_of(&event)).await,
        });
        assert!(!fixture.health().is_disk_full, "round {round}");
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        for event in accepted {
            assert!(fixture.find_body(event).await.unwrap().is_some(), "round {round}");
        }
        // Everything is removed again, so that the rounds are alike.
        fixture.wait(Duration::from_secs(90 * 86_400));
        fixture.prune_all(Duration::from_secs(30 * 86_400)).await;
        child_process::report(&format!("round {round}"));
    }
    assert!(starts_on_a_full_disk > DRILLS / 2, "{starts_on_a_full_disk} starts on a full disk");
    drop(fixture);
    assert!(surehook_store::inspect(&data).unwrap().faults.is_empty());
    child_process::report("sound");
}
