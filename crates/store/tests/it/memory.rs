//! What the embedded store answers from memory, and how much it lets wait.

use surehook_core::{
    ids::SourceId,
    store::{AdminStore, ConfigChange, DeliveryStore, IngestStore, StoreError},
};
use surehook_store::{SqliteOptions, SqliteStore, conformance::World};

use crate::harness::{NOW, SqliteHarness};

#[tokio::test]
async fn committed_key_is_found_in_memory() {
    let world = World::new(SqliteHarness::new()).await;
    let event = world.keyed("k");
    let key = event.key.clone().unwrap().key;
    let recall = || world.find_committed(world.shop, &key, &event.payload.fingerprint, world.now);
    assert_eq!(recall(), None);

    world.accept(event.clone()).await;

    assert_eq!(recall(), Some(event.id));
}

#[tokio::test]
async fn duplicate_after_restart_puts_its_key_into_memory() {
    let mut world = World::new(SqliteHarness::new()).await;
    let event = world.keyed("k");
    let key = event.key.clone().unwrap().key;
    world.accept(event.clone()).await;
    world.reopen().await;
    let recall = |world: &World| {
        world.find_committed(world.shop, &key, &event.payload.fingerprint, world.now)
    };
    assert_eq!(recall(&world), None);

    world.expect_duplicate(world.again(&event)).await;

    assert_eq!(recall(&world), Some(event.id));
}

#[tokio::test]
async fn full_write_queue_refuses_only_new_events() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { queue_max: 0, ..SqliteOptions::new(folder.path()) };
    let store = SqliteStore::open(&options, NOW).unwrap();

    let admitted = store.admit([].into()).await;

    assert!(matches!(admitted, Err(StoreError::Overloaded)), "{admitted:?}");
    // What makes room must always be possible.
    store.release_expired(NOW).await.unwrap();
    store.change(vec![ConfigChange::DeleteSource(SourceId::new(NOW, 1))], NOW).await.unwrap();
    assert_eq!(store.health().failed, None);
}
