use super::*;

#[test]
fn removed_and_replaced_files_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (database, log) =
        (folder.path().join("surehook.db"), folder.path().join("surehook.db-wal"));
    for (case, path) in [("database", &database), ("log", &log)] {
        fs::write(&database, "a").unwrap();
        fs::write(&log, "b").unwrap();
        let mut watch = FileWatch::new(&database, Timestamp::from_millis(0), None);
        assert_eq!(watch.find_loss(true), None, "case: {case}");

        let aside = folder.path().join("aside");
        fs::rename(path, &aside).unwrap();
        assert!(watch.find_loss(true).unwrap().contains("removed"), "case: {case}");
        fs::write(path, "another file").unwrap();
        assert!(watch.find_loss(true).unwrap().contains("replaced"), "case: {case}");
        fs::rename(&aside, path).unwrap();
        assert_eq!(watch.find_loss(true), None, "case: {case}");
    }
}

#[test]
fn files_are_not_checked_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("surehook.db");
    fs::write(&database, "a").unwrap();
    let mut watch = FileWatch::new(&database, Timestamp::from_millis(0), None);
    watch.checked_at = Instant::now() + Duration::from_secs(60);
    fs::remove_file(&database).unwrap();

    assert_eq!(watch.find_loss(false), None);
    watch.checked_at = Instant::now() - CHECK_INTERVAL;
    assert!(watch.find_loss(false).is_some());
}
