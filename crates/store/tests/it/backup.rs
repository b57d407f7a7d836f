//! Reading beside the writer, backups while it writes, and restoring them.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use surehook_core::store::{AdminStore as _, ConfigVersion, EventFilter, PageRequest};
use surehook_store::{
    OpenError, SqliteOptions, SqliteStore, backup, check_database,
    conformance::StoreFixture,
    inspect, restore,
    sqlite::{BackupError, RestoreError},
};
use surehook_types::store_error::StoreError;

use crate::harness::{NOW, fixture_in, open, open_file};

fn continue_backup(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A fixture in `folder`.
async fn fixture(folder: &Path) -> StoreFixture {
    fixture_in(folder).await
}

async fn events(store: &SqliteStore) -> usize {
    let page = PageRequest { after: None, limit: 1000 };
    store.list_events(EventFilter::default(), page).await.unwrap().rows.len()
}

#[tokio::test]
async fn read_only_store_sees_every_commit_and_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture(folder.path()).await;
    fixture.accept(fixture.new_event()).await;

    let reader = SqliteStore::open_read_only(folder.path(), None).unwrap();
    let first = events(&reader).await;
    fixture.accept(fixture.new_event()).await;
    let second = events(&reader).await;
    let written = reader.change(Vec::new(), ConfigVersion::default(), NOW).await;

    assert_eq!((first, second), (1, 2));
    assert!(matches!(written, Err(StoreError::Failed(_))), "{written:?}");
    assert_eq!(reader.counts().await.unwrap().events, 1, "counts are those of the time of opening");
    let inspection = inspect(folder.path()).unwrap();
    assert!(
        inspection.is_in_use
            && inspection.faults.is_empty()
            && inspection.clock.newest_event.is_some(),
        "{inspection:?}"
    );
    // A reader takes no lock: the next writer can start beside it.
    fixture.reopen().await;
}

#[test]
fn read_only_open_of_missing_older_or_newer_database_explains_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = SqliteStore::open_read_only(folder.path(), None).unwrap_err();
    drop(open(folder.path()));
    let file = open_file(folder.path());
    let version: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let at = |version: i64| {
        file.pragma_update(None, "user_version", version).unwrap();
        SqliteStore::open_read_only(folder.path(), None)
    };

    let (older, newer) = (at(version - 1).unwrap_err(), at(version + 1).unwrap_err());

    assert!(matches!(missing, OpenError::Missing(_)), "{missing:?}");
    assert!(older.to_string().contains("surehook serve"), "{older}");
    assert!(matches!(newer, OpenError::Newer { .. }), "{newer:?}");
    assert!(at(version).is_ok());
    assert!(!inspect(folder.path()).unwrap().is_in_use);
}

#[tokio::test]
async fn backup_is_one_consistent_file() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture(folder.path()).await;
    for _ in 0..50 {
        fixture.accept(fixture.new_event()).await;
    }
    fixture.claim_due(fixture.crm, fixture.now, fixture.new_claim(), 3).await.unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");

    let made = backup(folder.path(), &copy, &mut continue_backup).unwrap();
    fixture.accept(fixture.new_event()).await;

    assert_eq!((made.events, made.waiting, made.in_flight), (50, 50, 3));
    assert_eq!(files(copies.path()), ["copy.db"]);
    assert_eq!(check_database(&copy).unwrap(), made);
    assert_eq!(files(copies.path()), ["copy.db"], "checking a backup leaves no other file");
    // Deliveries in flight are due again after the restore.
    let place = copies.path().join("data");
    restore(&copy, &place, false, NOW).unwrap();
    let refused = SqliteStore::open(&SqliteOptions::new(&place), NOW).unwrap_err();
    assert!(matches!(refused, OpenError::SecretKeyMissing { .. }), "no key in a backup: {refused}");
    fs::copy(folder.path().join("secret.key"), place.join("secret.key")).unwrap();
    let restored = Arc::new(open(&place));
    assert_eq!(events(&restored).await, 50);
    assert_eq!(
        restored.counts().await.unwrap().by_status
            [&surehook_core::delivery::state::DeliveryStatus::Pending],
        50
    );
}

#[tokio::test]
async fn stopped_backup_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture(folder.path()).await;
    fixture.accept(fixture.new_event()).await;
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");

    let stopped = backup(folder.path(), &copy, &mut |_, _| ControlFlow::Break(()));

    assert!(matches!(stopped, Err(BackupError::Stopped)), "{stopped:?}");
    assert_eq!(files(copies.path()), Vec::<String>::new());
}

#[tokio::test]
async fn restore_removes_the_old_log_and_keeps_the_old_database() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy.db"));
    let fixture = fixture(&data).await;
    fixture.accept(fixture.new_event()).await;
    backup(&data, &copy, &mut continue_backup).unwrap();
    for _ in 0..20 {
        fixture.accept(fixture.new_event()).await;
    }
    // A reader keeps the log when the writer closes.
    let reader = SqliteStore::open_read_only(&data, None).unwrap();
    assert_eq!(events(&reader).await, 21);
    let running = restore(&copy, &data, true, NOW).unwrap_err();
    drop(fixture);

    let occupied = restore(&copy, &data, false, NOW).unwrap_err();
    let restored = restore(&copy, &data, true, NOW).unwrap();

    assert!(matches!(running, RestoreError::Open(OpenError::Locked(_))), "{running:?}");
    assert!(matches!(occupied, RestoreError::Occupied(_)), "{occupied:?}");
    assert!(!data.join("surehook.db-wal").exists());
    assert_eq!(events(&open(&data)).await, 1);
    assert!(inspect(&data).unwrap().faults.is_empty());
    let aside = restored.previous_moved_to.unwrap();
    assert_eq!(events(&SqliteStore::open_read_only(&aside, None).unwrap()).await, 21);
}

/// A folder whose database has 21 events, 20 of them only in its log; and a backup with one event.
async fn create_with_log(folder: &Path) -> (PathBuf, PathBuf) {
    let (running, data, copy) =
        (folder.join("running"), folder.join("data"), folder.join("copy.db"));
    let fixture = fixture(&running).await;
    fixture.accept(fixture.new_event()).await;
    backup(&running, &copy, &mut continue_backup).unwrap();
    for _ in 0..20 {
        fixture.accept(fixture.new_event()).await;
    }
    // The files as a killed process leaves them.
    fs::create_dir(&data).unwrap();
    for name in ["surehook.db", "surehook.db-wal", "secret.key"] {
        fs::copy(running.join(name), data.join(name)).unwrap();
    }
    (data, copy)
}

#[tokio::test]
async fn restore_after_an_interrupted_restore_keeps_the_old_database_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    // Progress of the interrupted restore: old files moved, and new file in place.
    for (case, moved, is_in_place) in [
        ("nothing moved", &[][..], false),
        ("the database moved", &["surehook.db"], false),
        ("all moved", &["surehook.db", "surehook.db-wal"], false),
        ("new database in place", &["surehook.db", "surehook.db-wal"], true),
    ] {
        let place = folder.path().join(case);
        fs::create_dir(&place).unwrap();
        let (data, copy) = create_with_log(&place).await;
        let aside = data.join("replaced-1");
        fs::write(data.join("restore-in-progress"), "replaced-1").unwrap();
        fs::create_dir(&aside).unwrap();
        for name in moved {
            fs::rename(data.join(name), aside.join(name)).unwrap();
        }
        if is_in_place {
            fs::copy(&copy, data.join("surehook.db")).unwrap();
        }

        // The interrupted restore was already allowed to replace the old database.
        let restored = restore(&copy, &data, false, NOW).unwrap();

        assert_eq!(restored.previous_moved_to.as_deref(), Some(&*aside), "case: {case}");
        assert!(!data.join("surehook.db-wal").exists(), "case: {case}");
        assert_eq!(events(&open(&data)).await, 1, "case: {case}");
        assert_eq!(events(&open(&aside)).await, 21, "case: {case}");
    }
}

#[tokio::test]
async fn restore_refuses_a_database_file_that_has_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let (data, _) = create_with_log(folder.path()).await;
    let place = folder.path().join("place");

    let refused = restore(&data.join("surehook.db"), &place, false, NOW).unwrap_err();

    assert!(matches!(refused, RestoreError::HasWal(_)), "{refused:?}");
    assert!(refused.to_string().contains("surehook backup"), "{refused}");
    assert!(!place.exists());
}
