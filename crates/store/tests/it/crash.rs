//! Processes that are killed, and disks that fail, under load.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    store::{AdminStore, NextStep},
};
use surehook_store::conformance::StoreFixture;
use surehook_types::{ids::EventId, store_error::StoreError};
use tokio::task::JoinSet;

use crate::{
    child_process,
    harness::{assert_consistent, fixture_in, open},
};

/// Every event must be stored and delivered.
async fn assert_delivered(folder: &Path, acknowledged: &[EventId]) {
    let store = open(folder);
    for event in acknowledged {
        let detail = store.find_event(*event).await.unwrap();
        let detail = detail.unwrap_or_else(|| panic!("{event} was acknowledged and is lost"));
        assert_eq!(detail.deliveries[0].status, DeliveryStatus::Succeeded, "{event}");
        assert!(store.find_body(*event).await.unwrap().is_some());
    }
}

/// Admits an event whose delivery is claimed at creation, and settles it as succeeded.
async fn admit_and_deliver(fixture: &StoreFixture, key: &str) -> Result<EventId, StoreError> {
    let deliveries =
        vec![NewDelivery { claim: Some(fixture.new_claim()), ..fixture.delivery_to(fixture.crm) }];
    let event = NewEvent { deliveries, ..fixture.event_with_key(key) };
    fixture.admit(vec![event.clone()]).await?;
    let claimed = StoreFixture::claimed_at_creation(&event);
    fixture.settle(fixture.settlement(&claimed, NextStep::Succeeded)).await?;
    Ok(event.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_copy_under_load_holds_every_acknowledged_event() {
    let (folder, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = Arc::new(fixture_in(folder.path()).await);
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for worker in 0..8 {
        let (fixture, acknowledged, sender) =
            (Arc::clone(&fixture), Arc::clone(&acknowledged), sender.clone());
        tasks.spawn(async move {
            for round in 0.. {
                let event =
                    admit_and_deliver(&fixture, &format!("{worker}-{round}")).await.unwrap();
                acknowledged.lock().unwrap().push(event);
                sender.send(()).unwrap();
            }
        });
    }
    for _ in 0..400 {
        receiver.recv().await.unwrap();
    }

    let before_the_copy = acknowledged.lock().unwrap().clone();
    // If the log was started again meanwhile, the two files are not of one moment.
    let read_salts =
        || std::fs::read(folder.path().join("surehook.db-wal")).unwrap()[..32].to_vec();
    loop {
        let salts = read_salts();
        for file in ["surehook.db", "surehook.db-wal", "secret.key"] {
            std::fs::copy(folder.path().join(file), image.path().join(file)).unwrap();
        }
        if read_salts() == salts {
            break;
        }
    }

    tasks.shutdown().await;
    assert!(before_the_copy.len() >= 400);
    assert_delivered(image.path(), &before_the_copy).await;
    assert_consistent(image.path()).await;
}

#[tokio::test]
async fn killed_process_loses_no_acknowledged_event() {
    if let Some(folder) = child_process::child_folder() {
        let fixture = fixture_in(folder).await;
        for round in 0.. {
            let event = admit_and_deliver(&fixture, &format!("k{round}")).await.unwrap();
            child_process::report(&event.to_string());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "crash::killed_process_loses_no_acknowledged_event";
    let mut child = child_process::start(name, folder.path().as_os_str(), &[]);

    let mut lines = child_process::reported_lines(child.stdout.take().unwrap());
    let mut acknowledged: Vec<String> = lines.by_ref().take(300).collect();
    child.kill().unwrap();
    acknowledged.extend(lines);
    child.wait().unwrap();

    // The last line may be incomplete.
    let ids: Vec<EventId> = acknowledged.iter().filter_map(|text| text.parse().ok()).collect();
    assert!(ids.len() >= 300, "{acknowledged:?}");
    assert_delivered(folder.path(), &ids).await;
    assert_consistent(folder.path()).await;
}

/// No file may grow beyond 4 MB; a write beyond fails with an error, not with a signal.
const SMALL_FILES: &str = "trap '' XFSZ; ulimit -f 8192; exec \"$@\"";

#[tokio::test]
async fn nothing_is_acknowledged_after_a_disk_error() {
    if let Some(folder) = child_process::child_folder() {
        return write_until_the_disk_fails(folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "crash::nothing_is_acknowledged_after_a_disk_error";
    let wrapper = ["sh", "-c", SMALL_FILES, "sh"];
    let mut child = child_process::start(name, folder.path().as_os_str(), &wrapper);

    let lines: Vec<String> = child_process::reported_lines(child.stdout.take().unwrap()).collect();

    assert!(child.wait().unwrap().success(), "{lines:?}");
    let ids: Vec<EventId> = lines.iter().filter_map(|text| text.parse().ok()).collect();
    assert!(ids.len() > 10, "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("failed"));
    assert_delivered(folder.path(), &ids).await;
    assert_consistent(folder.path()).await;
}

async fn write_until_the_disk_fails(folder: std::path::PathBuf) {
    let fixture = fixture_in(folder).await;
    let mut round = 0;
    let error = loop {
        match admit_and_deliver(&fixture, &format!("k{round}")).await {
            Ok(event) => child_process::report(&event.to_string()),
            Err(error) => break error,
        }
        round += 1;
    };
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
    assert!(fixture.health().failure.is_some());
    let timeout = Duration::from_secs(20);
    assert!(!tokio::time::timeout(timeout, fixture.wait_for_failure()).await.unwrap().is_empty());
    for _ in 0..3 {
        let after = admit_and_deliver(&fixture, "after").await;
        assert!(matches!(after, Err(StoreError::Failed(_))), "{after:?}");
    }
    child_process::report("failed");
}
