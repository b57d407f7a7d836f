use super::*;

fn position(number: i64) -> CommitPosition {
    CommitPosition { epoch: 7, number }
}

fn content(folder: &Path) -> MarkContent {
    MarkReading::read(folder).unwrap().content().unwrap()
}

fn open(folder: &Path, position: CommitPosition) -> CommitMark {
    CommitMark::open(folder, MarkReading::read(folder).unwrap(), position).unwrap()
}

#[test]
fn mark_holds_the_last_commit_across_reopening() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(MarkReading::read(folder.path()).unwrap(), MarkReading::Missing);

    let mut mark = open(folder.path(), position(3));
    mark.advance();
    mark.advance();
    drop(mark);

    assert_eq!(content(folder.path()).position, position(5));
    assert!(!content(folder.path()).is_closed);
    let mut mark = open(folder.path(), position(5));
    mark.close();
    assert!(content(folder.path()).is_closed);
    drop(open(folder.path(), position(5)));
    assert!(!content(folder.path()).is_closed);
}

#[test]
fn damaged_slot_leaves_the_mark_one_write_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut mark = open(folder.path(), position(0));
    for _ in 0..4 {
        mark.advance();
    }
    let path = folder.path().join(COMMIT_MARK);
    let good = fs::read(&path).unwrap();

    for bit in 0..SLOT_BYTES * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(content(folder.path()).position, position(3), "bit {bit}");
    }

    fs::write(&path, vec![0; good.len()]).unwrap();
    assert_eq!(MarkReading::read(folder.path()).unwrap(), MarkReading::Unreadable);
    fs::write(&path, &good[..20]).unwrap();
    assert_eq!(MarkReading::read(folder.path()).unwrap(), MarkReading::Unreadable);
}

#[test]
fn mark_of_another_epoch_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut mark = open(folder.path(), position(90));
    mark.advance();

    let other = CommitPosition { epoch: 8, number: 1 };
    drop(open(folder.path(), other));

    assert_eq!(content(folder.path()).position, other);
}
