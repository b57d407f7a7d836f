//! SQLite stores in temporary folders.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{AdminStore, DeliveryFilter, EventFilter, PageRequest, Store},
};
use surehook_store::{
    SqliteOptions, SqliteStore,
    conformance::{StoreFixture, StoreHarness},
};
use surehook_types::time::Timestamp;
use tempfile::TempDir;

/// The time of all tests.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A folder that is removed with the test, or one that the test owns.
pub(crate) struct SqliteHarness {
    options: SqliteOptions,
    _temporary: Option<TempDir>,
}

impl SqliteHarness {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { options: SqliteOptions::new(folder.path()), _temporary: Some(folder) }
    }

    pub(crate) fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { options: SqliteOptions::new(folder), _temporary: None }
    }

    /// Recent keys are merged at once.
    pub(crate) fn with_immediate_merge() -> Self {
        Self::new().merging_at(2)
    }

    /// A merge takes several commits, so that other steps happen in between.
    pub(crate) fn with_slow_merge() -> Self {
        Self::new().merging_at(8)
    }

    /// Recent keys are merged after this many, not after many thousands.
    pub(crate) fn merging_at(mut self, keys: usize) -> Self {
        self.options.merge_keys_at = keys;
        self
    }
}

#[async_trait]
impl StoreHarness for SqliteHarness {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.options, now).unwrap())
    }
}

/// A fixture whose store is in `folder`.
pub(crate) async fn fixture_in(folder: impl Into<PathBuf>) -> StoreFixture {
    StoreFixture::new(SqliteHarness::in_folder(folder)).await
}

/// Opens the store in `folder`, which must succeed.
pub(crate) fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(folder), NOW).unwrap()
}

/// Opens the database file in `folder` without the store.
pub(crate) fn open_file(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("surehook.db")).unwrap()
}

/// Asserts that the database is intact and that the counters match the rows.
pub(crate) async fn assert_consistent(folder: &Path) {
    let store = open(folder);
    let everything = PageRequest { after: None, limit: 1_000_000 };
    let events = store.list_events(EventFilter::default(), everything).await.unwrap().rows;
    let everything = PageRequest { after: None, limit: 1_000_000 };
    let deliveries =
        store.list_deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
    let counts = store.counts().await.unwrap();
    drop(store);
    assert_eq!(counts.events, u64::try_from(events.len()).unwrap());
    for status in DeliveryStatus::ALL {
        let listed = deliveries.iter().filter(|delivery| delivery.status == status).count();
        let counted = counts.by_status.get(&status).copied().unwrap_or_default();
        assert_eq!(counted, u64::try_from(listed).unwrap(), "{status:?}");
    }
    let result: String =
        open_file(folder).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(result, "ok");
}
