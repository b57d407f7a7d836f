//! The end of a process in the middle of its work.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    ids::EventId,
    store::{AdminStore, NextStep, StoreError},
};
use surehook_store::conformance::World;
use tokio::task::JoinSet;

use crate::{
    child,
    harness::{SqliteHarness, assert_sound, open},
};

/// Every event must be there, and delivered.
async fn assert_delivered(folder: &Path, acknowledged: &[EventId]) {
    let store = open(folder);
    for event in acknowledged {
        let detail = store.event(*event).await.unwrap();
        let detail = detail.unwrap_or_else(|| panic!("{event} was acknowledged and is lost"));
        assert_eq!(detail.deliveries[0].status, DeliveryStatus::Succeeded, "{event}");
        assert!(store.body(*event).await.unwrap().is_some());
    }
}

/// Admits an event that is claimed at birth, and delivers it.
async fn take_and_deliver(world: &World, key: &str) -> Result<EventId, StoreError> {
    let deliveries = vec![NewDelivery { claim: Some(world.lease()), ..world.to(world.crm) }];
    let event = NewEvent { deliveries, ..world.keyed(key) };
    world.admit(vec![event.clone()]).await?;
    let claimed = World::claimed_at_birth(&event);
    world.settle(world.settlement(&claimed, NextStep::Succeeded)).await?;
    Ok(event.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_copy_under_load_holds_every_acknowledged_event() {
    let (folder, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = Arc::new(World::new(SqliteHarness::Lent(folder.path().to_owned())).await);
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let (enough, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for worker in 0..8 {
        let (world, acknowledged, enough) =
            (Arc::clone(&world), Arc::clone(&acknowledged), enough.clone());
        tasks.spawn(async move {
            for round in 0.. {
                let event = take_and_deliver(&world, &format!("{worker}-{round}")).await.unwrap();
                acknowledged.lock().unwrap().push(event);
                enough.send(()).unwrap();
            }
        });
    }
    for _ in 0..400 {
        heard.recv().await.unwrap();
    }

    let before_the_copy = acknowledged.lock().unwrap().clone();
    for file in ["surehook.db", "surehook.db-wal"] {
        std::fs::copy(folder.path().join(file), image.path().join(file)).unwrap();
    }

    tasks.shutdown().await;
    // The log was not copied back in between, or the two copies would not be of one moment.
    assert!(world.health().wal_bytes < 32_000_000);
    assert!(before_the_copy.len() >= 400);
    assert_delivered(image.path(), &before_the_copy).await;
    assert_sound(image.path()).await;
}

#[tokio::test]
async fn killed_process_loses_no_acknowledged_event() {
    if let Some(folder) = child::folder() {
        let world = World::new(SqliteHarness::Lent(folder)).await;
        for round in 0.. {
            let event = take_and_deliver(&world, &format!("k{round}")).await.unwrap();
            child::tell(&event.to_string());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "crash::killed_process_loses_no_acknowledged_event";
    let mut child = child::start(name, folder.path().as_os_str(), &[]);

    let mut told = child::told(child.stdout.take().unwrap());
    let mut acknowledged: Vec<String> = told.by_ref().take(300).collect();
    child.kill().unwrap();
    acknowledged.extend(told);
    child.wait().unwrap();

    // The last line may have been cut by the end.
    let ids: Vec<EventId> = acknowledged.iter().filter_map(|text| text.parse().ok()).collect();
    assert!(ids.len() >= 300, "{acknowledged:?}");
    assert_delivered(folder.path(), &ids).await;
    assert_sound(folder.path()).await;
}

/// No file may grow beyond 4 MB; what tries gets an error, not a signal.
const SMALL_FILES: &str = "trap '' XFSZ; ulimit -f 8192; exec \"$@\"";

#[tokio::test]
async fn nothing_is_acknowledged_after_a_disk_error() {
    if let Some(folder) = child::folder() {
        return until_the_disk_fails(folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "crash::nothing_is_acknowledged_after_a_disk_error";
    let wrapper = ["sh", "-c", SMALL_FILES, "sh"];
    let mut child = child::start(name, folder.path().as_os_str(), &wrapper);

    let told: Vec<String> = child::told(child.stdout.take().unwrap()).collect();

    assert!(child.wait().unwrap().success(), "{told:?}");
    let ids: Vec<EventId> = told.iter().filter_map(|text| text.parse().ok()).collect();
    assert!(ids.len() > 10, "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some("failed"));
    assert_delivered(folder.path(), &ids).await;
    assert_sound(folder.path()).await;
}

async fn until_the_disk_fails(folder: std::path::PathBuf) {
    let world = World::new(SqliteHarness::Lent(folder)).await;
    let mut round = 0;
    let error = loop {
        match take_and_deliver(&world, &format!("k{round}")).await {
            Ok(event) => child::tell(&event.to_string()),
            Err(error) => break error,
        }
        round += 1;
    };
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
    assert!(world.health().failed.is_some());
    let patience = Duration::from_secs(20);
    assert!(!tokio::time::timeout(patience, world.wait_for_failure()).await.unwrap().is_empty());
    for _ in 0..3 {
        let after = take_and_deliver(&world, "after").await;
        assert!(matches!(after, Err(StoreError::Failed(_))), "{after:?}");
    }
    child::tell("failed");
}
