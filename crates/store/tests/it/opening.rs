//! Opening and closing a data folder.

use std::os::unix::fs::PermissionsExt;

use surehook_core::store::{AdminStore, IngestStore};
use surehook_store::{OpenError, SqliteOptions, SqliteStore};

use crate::harness::{NOW, fixture_in, open, open_file};

fn try_open(folder: &std::path::Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(&SqliteOptions::new(folder), NOW)
}

#[test]
fn data_folder_is_opened_by_one_store_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());

    let second = try_open(folder.path());

    assert!(matches!(&second, Err(OpenError::Locked(path)) if path == folder.path()), "{second:?}");
    drop(first);
    // The lock file remains, but the lock is released.
    assert!(folder.path().join("lock").exists());
    open(folder.path());
}

#[test]
fn new_data_folder_is_private() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deep/data");

    open(&folder);

    for created in [&folder, &parent.path().join("deep")] {
        let mode = std::fs::metadata(created).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", created.display());
    }
}

#[test]
fn newer_schema_is_refused_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    open_file(folder.path()).pragma_update(None, "user_version", 99).unwrap();

    let refused = try_open(folder.path());

    assert!(matches!(refused, Err(OpenError::Newer { found: 99, .. })), "{refused:?}");
    let version: i64 = open_file(folder.path())
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 99);
}

#[test]
fn foreign_database_file_is_refused_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    open_file(folder.path()).execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = std::fs::read(folder.path().join("surehook.db")).unwrap();

    let refused = try_open(folder.path());

    assert!(matches!(refused, Err(OpenError::Foreign(_))), "{refused:?}");
    assert_eq!(std::fs::read(folder.path().join("surehook.db")).unwrap(), before);

    std::fs::write(folder.path().join("surehook.db"), "no database at all, just a text").unwrap();
    assert!(matches!(try_open(folder.path()), Err(OpenError::Foreign(_))));
}

#[test]
fn data_folder_that_is_a_file_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("data");
    std::fs::write(&file, "").unwrap();

    assert!(matches!(try_open(&file), Err(OpenError::Folder(..))));
}

#[tokio::test]
async fn closing_the_store_writes_all_queued_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_in(folder.path()).await;
    let event = fixture.new_event();
    {
        // The caller does not wait for the result.
        let store = fixture.store();
        let _timed_out = tokio::time::timeout(
            std::time::Duration::ZERO,
            IngestStore::admit(&*store, [event.clone()].into()),
        )
        .await;
    }

    fixture.reopen().await;

    assert!(AdminStore::find_event(&*fixture, event.id).await.unwrap().is_some());
}
