//! What is folded, undone, forgotten and found again.

use surehook_core::{ids::SourceId, key::DedupKey};

use super::*;
use crate::sqlite::{memory::BodyMark, schema};

const NOW: Timestamp = Timestamp::from_millis(0);
const FOREVER: Timestamp = Timestamp::from_millis(i64::MAX);

fn digest(key: &str) -> KeyDigest {
    let source = SourceId::new(Timestamp::from_millis(1), 1);
    KeyDigest::of(source, &DedupKey::new(key).unwrap())
}

fn insert(fresh: &mut Fresh, sql: &mut Prepared<'_>, key: &str) {
    let event = EventId::new(Timestamp::from_millis(1), 1);
    let known = Remembered { event, body: BodyMark::of(&[0; 32]), expires_at: FOREVER };
    fresh.insert(sql, digest(key), known).unwrap();
}

#[test]
fn a_fold_that_is_undone_takes_no_later_key_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let mut sql = Prepared::new(&connection);
    let mut fresh = Fresh::load(&connection, &file, 4).unwrap();

    // The commit that begins a fold fails, as it does on a full disk.
    connection.execute_batch("BEGIN").unwrap();
    ["a", "b", "c", "d"].iter().for_each(|key| insert(&mut fresh, &mut sql, key));
    fresh.write(&mut sql).unwrap();
    connection.execute_batch("ROLLBACK").unwrap();
    fresh.rolled_back();
    // Too few to begin another fold, enough to end the one that was undone.
    let late: Vec<String> = (0..3).map(|number| format!("late-{number}")).collect();
    for key in &late {
        connection.execute_batch("BEGIN").unwrap();
        insert(&mut fresh, &mut sql, key);
        fresh.write(&mut sql).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        fresh.committed();
    }

    let again = Fresh::load(&connection, &file, 4).unwrap();
    for key in &late {
        let folded = blocks::remove(&mut sql, digest(key)).unwrap();
        assert!(folded || again.find(digest(key), NOW).is_some());
    }
    assert!(again.find(digest("a"), NOW).is_none());
}

#[test]
fn a_key_is_found_by_whoever_looks_until_it_is_in_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let mut sql = Prepared::new(&connection);
    let mut fresh = Fresh::load(&connection, &file, 4).unwrap();
    let shared = fresh.keys();
    let all: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    let in_index = |key: &str| blocks::look_up(&connection, digest(key)).unwrap().is_some();

    for (many, key) in all.iter().enumerate() {
        connection.execute_batch("BEGIN").unwrap();
        insert(&mut fresh, &mut sql, key);
        fresh.write(&mut sql).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        fresh.committed();
        for known in &all[..=many] {
            assert!(shared.event(digest(known)).is_some() || in_index(known), "case: {known}");
        }
    }
    assert!(in_index("key-0") && shared.event(digest("key-0")).is_none());
    let again = Fresh::load(&connection, &file, 4).unwrap().keys();
    assert!(all.iter().all(|key| again.event(digest(key)).is_some() || in_index(key)));
}
#[test]
fn a_key_whose_time_has_passed_leaves_its_pack_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let mut sql = Prepared::new(&connection);
    let mut fresh = Fresh::load(&connection, &file, 100).unwrap();
    let claim = |fresh: &mut Fresh, sql: &mut Prepared<'_>, key: &str, until| {
        let event = EventId::new(Timestamp::from_millis(1), 1);
        let expires_at = Timestamp::from_millis(until);
        let known = Remembered { event, body: BodyMark::of(&[0; 32]), expires_at };
        fresh.insert(sql, digest(key), known).unwrap();
    };
    let packed = || {
        let mut found = Vec::new();
        read_packs(&connection, |number, key, _| found.push((number, key))).unwrap();
        found
    };

    for (key, until) in [("a", 10), ("b", 20), ("c", 10)] {
        claim(&mut fresh, &mut sql, key, until);
    }
    fresh.write(&mut sql).unwrap();
    fresh.committed();
    // One is taken anew: the old one goes, the new one is in a pack of its own.
    claim(&mut fresh, &mut sql, "a", 30);
    fresh.write(&mut sql).unwrap();
    fresh.committed();
    assert_eq!(packed(), [(1, digest("b")), (1, digest("c")), (2, digest("a"))]);

    let prune = |fresh: &mut Fresh, sql: &mut Prepared<'_>, now| {
        let pruned = fresh.prune(sql, Timestamp::from_millis(now), 100).unwrap();
        fresh.write(sql).unwrap();
        fresh.committed();
        pruned
    };
    assert_eq!(prune(&mut fresh, &mut sql, 10), 1);
    assert_eq!(packed(), [(1, digest("b")), (2, digest("a"))]);
    let mut again = Fresh::load(&connection, &file, 100).unwrap();
    assert_eq!(prune(&mut again, &mut sql, 10), 0);
    // Also what the transaction at hand has taken.
    claim(&mut again, &mut sql, "d", 20);
    assert_eq!(prune(&mut again, &mut sql, 20), 2);
    assert_eq!(packed(), [(2, digest("a"))]);
}
