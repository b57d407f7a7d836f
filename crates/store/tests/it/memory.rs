//! What the SQLite store answers from memory, and the limit of its write queue.

use surehook_core::store::{AdminStore, ConfigChange, ConfigVersion, DeliveryStore, IngestStore};
use surehook_store::{SqliteOptions, SqliteStore, conformance::StoreFixture};
use surehook_types::{ids::SourceId, store_error::StoreError};

use crate::harness::{NOW, SqliteHarness};

#[tokio::test]
async fn committed_key_is_found_in_memory() {
    let fixture = StoreFixture::new(SqliteHarness::new()).await;
    let event = fixture.event_with_key("k");
    let key = event.key.clone().unwrap();
    let find_in_memory =
        || fixture.find_committed(fixture.shop, &key, &event.payload.fingerprint, fixture.now);
    assert_eq!(find_in_memory(), None);

    fixture.accept(event.clone()).await;

    assert_eq!(find_in_memory(), Some(event.id));
}

#[tokio::test]
async fn duplicate_after_restart_puts_its_key_into_memory() {
    let mut fixture = StoreFixture::new(SqliteHarness::new()).await;
    let event = fixture.event_with_key("k");
    let key = event.key.clone().unwrap();
    fixture.accept(event.clone()).await;
    fixture.reopen().await;
    let find_in_memory = |fixture: &StoreFixture| {
        fixture.find_committed(fixture.shop, &key, &event.payload.fingerprint, fixture.now)
    };
    assert_eq!(find_in_memory(&fixture), None);

    fixture.expect_duplicate(fixture.repeat_of(&event)).await;

    assert_eq!(find_in_memory(&fixture), Some(event.id));
}

#[tokio::test]
async fn full_write_queue_refuses_only_new_events() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { queue_max: 0, ..SqliteOptions::new(folder.path()) };
    let store = SqliteStore::open(&options, NOW).unwrap();

    let admitted = store.admit([].into()).await;

    assert!(matches!(admitted, Err(StoreError::Overloaded)), "{admitted:?}");
    // Steps that free space must always be possible.
    store.abandon(Vec::new(), NOW).await.unwrap();
    let delete = vec![ConfigChange::DeleteSource(SourceId::new(NOW, 1))];
    store.change(delete, ConfigVersion::default(), NOW).await.unwrap();
    assert_eq!(store.health().failure, None);
}
