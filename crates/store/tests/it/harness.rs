//! A folder that holds an embedded store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{AdminStore, DeliveryFilter, EventFilter, PageRequest, Store},
    time::Timestamp,
};
use surehook_store::{SqliteOptions, SqliteStore, conformance::Harness};
use tempfile::TempDir;

/// When the tests take place.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A folder of its own, gone with the test; or one that somebody else takes care of.
pub(crate) enum SqliteHarness {
    Own(TempDir),
    /// Its new keys go into their index after a few of them, not after many thousands.
    Folding(TempDir, usize),
    Lent(PathBuf),
    LentFolding(PathBuf, usize),
}

impl SqliteHarness {
    pub(crate) fn new() -> Self {
        Self::Own(tempfile::tempdir().unwrap())
    }

    /// Keys are folded at once.
    pub(crate) fn folding() -> Self {
        Self::Folding(tempfile::tempdir().unwrap(), 2)
    }

    /// Folding takes several commits, so that much can happen in between.
    pub(crate) fn folding_slowly() -> Self {
        Self::Folding(tempfile::tempdir().unwrap(), 8)
    }
}

impl SqliteHarness {
    pub(crate) fn folding_slowly_in(folder: &Path) -> Self {
        Self::LentFolding(folder.to_owned(), 8)
    }
}

#[async_trait]
impl Harness for SqliteHarness {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        let options = match self {
            Self::Own(folder) => SqliteOptions::new(folder.path()),
            Self::Folding(folder, merge_keys_at) => {
                SqliteOptions { merge_keys_at: *merge_keys_at, ..SqliteOptions::new(folder.path()) }
            }
            Self::Lent(folder) => SqliteOptions::new(folder),
            Self::LentFolding(folder, merge_keys_at) => {
                SqliteOptions { merge_keys_at: *merge_keys_at, ..SqliteOptions::new(folder) }
            }
        };
        Arc::new(SqliteStore::open(&options, now).unwrap())
    }

    fn is_sole_owner(&self) -> bool {
        true
    }
}

/// Opens the store in `folder`, which must work.
pub(crate) fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(folder), NOW).unwrap()
}

/// Opens the file in `folder` behind the store's back.
pub(crate) fn open_file(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("surehook.db")).unwrap()
}

/// That the file is sound, and that the sums say what the rows say.
pub(crate) async fn assert_sound(folder: &Path) {
    let store = open(folder);
    let everything = PageRequest { after: None, limit: 1_000_000 };
    let events = store.events(EventFilter::default(), everything).await.unwrap().rows;
    let everything = PageRequest { after: None, limit: 1_000_000 };
    let deliveries = store.deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
    let counts = store.counts();
    drop(store);
    assert_eq!(counts.events, u64::try_from(events.len()).unwrap());
    for status in DeliveryStatus::ALL {
        let listed = deliveries.iter().filter(|delivery| delivery.status == status).count();
        let counted = counts.by_status.get(&status).copied().unwrap_or_default();
        assert_eq!(counted, u64::try_from(listed).unwrap(), "{status:?}");
    }
    let verdict: String =
        open_file(folder).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
