use super::*;
use crate::sqlite::commit_mark::CommitMark;

const fn position(epoch: i64, number: i64) -> CommitPosition {
    CommitPosition { epoch, number }
}

fn reading(folder: &Path, epoch: i64, number: i64) -> MarkReading {
    drop(CommitMark::open(folder, MarkReading::Missing, position(epoch, number)).unwrap());
    MarkReading::read(folder).unwrap()
}

#[test]
fn database_behind_its_mark_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mark = reading(folder.path(), 7, 100);
    let check = |stored| check_position(folder.path(), mark, stored);

    assert!(check(Some(position(7, 100))).is_ok());
    // After a power failure the mark may be behind.
    assert!(check(Some(position(7, 130))).is_ok());
    for (stored, lost) in [(Some(position(7, 99)), 1), (Some(position(7, 0)), 100), (None, 101)] {
        let refused = check(stored);
        let is_refused =
            matches!(refused, Err(OpenError::CommitsMissing { missing, .. }) if missing == lost);
        assert!(is_refused, "{stored:?}: {refused:?}");
    }
    assert!(matches!(check(Some(position(8, 100))), Err(OpenError::DatabaseReplaced(_))));
}

#[test]
fn database_without_a_readable_mark_is_not_refused() {
    let folder = Path::new("data");
    for mark in [MarkReading::Missing, MarkReading::Unreadable] {
        for stored in [None, Some(position(7, 3))] {
            assert!(check_position(folder, mark, stored).is_ok(), "{mark:?} {stored:?}");
        }
    }
}
