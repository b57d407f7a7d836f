use surehook_types::ids::SourceId;
use surehook_webhooks::key::DedupKey;

use super::*;
use crate::sqlite::cache::ShortFingerprint;

const NOW: Timestamp = Timestamp::from_millis(0);
const FOREVER: Timestamp = Timestamp::from_millis(i64::MAX);

fn digest(key: &str) -> KeyDigest {
    let source = SourceId::new(Timestamp::from_millis(1), 1);
    KeyDigest::of(source, &DedupKey::new(key).unwrap())
}

fn insert(recent: &mut RecentKeys, sql: &mut PreparedStatements<'_>, key: &str) {
    let event = EventId::new(Timestamp::from_millis(1), 1);
    let entry = KeyEntry { event, body: ShortFingerprint::of(&[0; 32]), expires_at: FOREVER };
    recent.insert(sql, digest(key), entry).unwrap();
}

#[test]
fn rolled_back_merge_loses_no_later_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let mut sql = PreparedStatements::new(&connection);
    let mut recent = RecentKeys::load(&connection, &file, 4).unwrap();

    // The commit that starts a merge fails, as it does on a full disk.
    connection.execute_batch("BEGIN").unwrap();
    ["a", "b", "c", "d"].iter().for_each(|key| insert(&mut recent, &mut sql, key));
    recent.write_and_merge(&connection, &mut sql).unwrap();
    connection.execute_batch("ROLLBACK").unwrap();
    recent.on_rollback();
    // Too few to start another merge, enough to finish the one that was rolled back.
    let late: Vec<String> = (0..3).map(|number| format!("late-{number}")).collect();
    for key in &late {
        connection.execute_batch("BEGIN").unwrap();
        insert(&mut recent, &mut sql, key);
        recent.write_and_merge(&connection, &mut sql).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        recent.on_commit();
    }

    let reloaded = RecentKeys::load(&connection, &file, 4).unwrap();
    for key in &late {
        let is_indexed = key_index::remove_from_index(&mut sql, digest(key)).unwrap();
        assert!(is_indexed || reloaded.find(digest(key), NOW).is_some());
    }
    assert!(reloaded.find(digest("a"), NOW).is_none());
}

#[test]
fn readers_find_a_key_in_memory_until_it_is_in_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let mut sql = PreparedStatements::new(&connection);
    let mut recent = RecentKeys::load(&connection, &file, 4).unwrap();
    let shared = recent.shared_map();
    let all: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    let in_index =
        |key: &str| key_index::find_read_only(&connection, digest(key)).unwrap().is_some();

    for (count, key) in all.iter().enumerate() {
        connection.execute_batch("BEGIN").unwrap();
        insert(&mut recent, &mut sql, key);
        recent.write_and_merge(&connection, &mut sql).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        recent.on_commit();
        for inserted in &all[..=count] {
            let is_found = shared.find_event(digest(inserted)).is_some() || in_index(inserted);
            assert!(is_found, "case: {inserted}");
        }
    }
    assert!(in_index("key-0") && shared.find_event(digest("key-0")).is_none());
    let reloaded = RecentKeys::load(&connection, &file, 4).unwrap().shared_map();
    assert!(all.iter().all(|key| reloaded.find_event(digest(key)).is_some() || in_index(key)));
}

#[test]
fn expired_key_is_removed_from_its_batch_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let mut sql = PreparedStatements::new(&connection);
    let mut recent = RecentKeys::load(&connection, &file, 100).unwrap();
    let claim = |recent: &mut RecentKeys, sql: &mut PreparedStatements<'_>, key: &str, until| {
        let event = EventId::new(Timestamp::from_millis(1), 1);
        let expires_at = Timestamp::from_millis(until);
        let entry = KeyEntry { event, body: ShortFingerprint::of(&[0; 32]), expires_at };
        recent.insert(sql, digest(key), entry).unwrap();
    };
    let stored_keys = || {
        let mut found = Vec::new();
        read_batches(&connection, |number, key, _| found.push((number, key))).unwrap();
        found
    };

    for (key, until) in [("a", 10), ("b", 20), ("c", 10)] {
        claim(&mut recent, &mut sql, key, until);
    }
    recent.write_and_merge(&connection, &mut sql).unwrap();
    recent.on_commit();
    // A key is claimed again: the old entry goes, the new one is in the new batch.
    claim(&mut recent, &mut sql, "a", 30);
    recent.write_and_merge(&connection, &mut sql).unwrap();
    recent.on_commit();
    assert_eq!(stored_keys(), [(1, digest("b")), (1, digest("c")), (2, digest("a"))]);

    let prune = |recent: &mut RecentKeys, sql: &mut PreparedStatements<'_>, now| {
        let pruned = recent.prune_expired(sql, Timestamp::from_millis(now), 100).unwrap();
        recent.write_and_merge(&connection, sql).unwrap();
        recent.on_commit();
        pruned
    };
    assert_eq!(prune(&mut recent, &mut sql, 10), 1);
    assert_eq!(stored_keys(), [(1, digest("b")), (2, digest("a"))]);
    let mut reloaded = RecentKeys::load(&connection, &file, 100).unwrap();
    assert_eq!(prune(&mut reloaded, &mut sql, 10), 0);
    // Keys of the current transaction are pruned as well.
    claim(&mut reloaded, &mut sql, "d", 20);
    assert_eq!(prune(&mut reloaded, &mut sql, 20), 2);
    assert_eq!(stored_keys(), [(2, digest("a"))]);
}

/// A store whose keys are merged from `merge_at` on.
struct MergingStore<'c> {
    connection: &'c Connection,
    sql: PreparedStatements<'c>,
    recent: RecentKeys,
}

impl MergingStore<'_> {
    /// Commits some keys, numbered from `first` on.
    fn commit_keys(&mut self, first: usize, count: usize) {
        self.connection.execute_batch("BEGIN").unwrap();
        for number in first..first + count {
            insert(&mut self.recent, &mut self.sql, &format!("key-{number}"));
        }
        self.recent.write_and_merge(self.connection, &mut self.sql).unwrap();
        self.connection.execute_batch("COMMIT").unwrap();
        self.recent.on_commit();
    }

    fn keys_in_batches(&self) -> usize {
        let sql = "SELECT coalesce(sum(length(keys)), 0) / 48 FROM key_packs";
        self.connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn batches_are_removed_when_every_range_is_merged_and_lose_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let recent = RecentKeys::load(&connection, &file, 400).unwrap();
    let mut store =
        MergingStore { connection: &connection, sql: PreparedStatements::new(&connection), recent };
    // Keys are moved to the old level as soon as the index has been read.
    store.recent.filter.scan.as_mut().unwrap().thread.take().unwrap().join().unwrap();
    let mut most_in_batches = 0;

    for commit in 0..600 {
        store.commit_keys(commit * 10, 10);
        assert!(store.recent.map.lock().len() <= 420, "after commit {commit}");
        most_in_batches = most_in_batches.max(store.keys_in_batches());
    }

    assert!(most_in_batches < 1500, "{most_in_batches} keys wait in batches");
    let [young, old] = key_index::LEVELS.map(|level| {
        let slice = key_index::read_blocks(&connection, level, i64::MIN, 1000).unwrap();
        slice.blocks.iter().map(|(_, keys)| keys.len() / 48).sum::<usize>()
    });
    assert!(young <= YOUNG_FACTOR * 400 + 500 && old > 1000, "{young} keys are young, {old} old");
    // A process that starts now finds every key, and loads those of an interrupted merge at most again.
    let reloaded = RecentKeys::load(&connection, &file, 400).unwrap();
    let loaded = reloaded.map.lock().len();
    assert!(loaded <= store.recent.map.lock().len() + 60, "{loaded} keys are loaded");
    for number in 0..6000 {
        let key = digest(&format!("key-{number}"));
        let is_recent = reloaded.find(key, NOW).is_some();
        assert!(is_recent || key_index::find_in_index(&mut store.sql, key).unwrap().is_some());
    }
}

#[test]
fn batches_after_a_start_are_never_taken_for_merged_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    for range in 0..KEY_RANGES {
        connection.execute("INSERT INTO key_ranges VALUES (?1, 500)", [range]).unwrap();
    }
    let recent = RecentKeys::load(&connection, &file, 400).unwrap();
    let mut store =
        MergingStore { connection: &connection, sql: PreparedStatements::new(&connection), recent };

    store.commit_keys(0, 3);

    let reloaded = RecentKeys::load(&connection, &file, 400).unwrap();
    assert!((0..3).all(|number| reloaded.find(digest(&format!("key-{number}")), NOW).is_some()));
}

#[test]
fn each_range_gathers_keys_while_the_others_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let recent = RecentKeys::load(&connection, &file, 1600).unwrap();
    let mut store =
        MergingStore { connection: &connection, sql: PreparedStatements::new(&connection), recent };
    let (mut merges, mut keys, mut last_range) = (0, 0, None);

    for commit in 0..2000 {
        store.commit_keys(commit * 10, 10);
        let merge = store.recent.merge.as_ref();
        // The first thousand commits fill the ranges.
        if let Some(merge) = merge.filter(|merge| commit > 1000 && last_range != Some(merge.range))
        {
            (merges, keys, last_range) = (merges + 1, keys + merge.keys.len(), Some(merge.range));
        }
    }

    // An even share of the recent keys would be a hundred.
    assert!(merges > 10 && keys / merges > 160, "{keys} keys in {merges} merges");
}

fn indexed_digest(source: u128, key: usize) -> KeyDigest {
    let source = SourceId::new(Timestamp::from_millis(0), source << 64);
    KeyDigest::of(source, &DedupKey::new(&key.to_string()).unwrap())
}

/// Waits for the running scan.
fn finish_scan(filter: &mut KeyFilter) {
    if let Some(thread) = filter.scan.as_mut().and_then(|scan| scan.thread.take()) {
        thread.join().unwrap();
    }
    let _young_keys = filter.poll_scan();
    assert!(filter.scan.is_none() && filter.bloom.is_some());
}

fn write_index(folder: &Path, keys: std::ops::Range<usize>) -> PathBuf {
    let file = folder.join("surehook.db");
    let connection = schema::open_writer(&file).unwrap();
    let tx = connection.unchecked_transaction().unwrap();
    let mut sorted: Vec<KeyDigest> = keys.map(|key| indexed_digest(1, key)).collect();
    sorted.sort_unstable();
    key_index::tests::insert_sorted_keys(&tx, &sorted);
    tx.commit().unwrap();
    file
}

#[test]
fn indexed_keys_are_never_excluded_and_most_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut filter = KeyFilter::start(&write_index(folder.path(), 0..12_000));
    assert!(
        !filter.excludes(indexed_digest(2, 0)),
        "nothing is excluded before the index was read"
    );

    finish_scan(&mut filter);

    assert!((0..12_000).all(|key| !filter.excludes(indexed_digest(1, key))));
    let excluded = (0..12_000).filter(|key| filter.excludes(indexed_digest(2, *key))).count();
    assert!(excluded > 11_000, "{excluded} of 12,000 are excluded");
}

#[test]
fn keys_added_during_the_scan_are_not_excluded() {
    let folder = tempfile::tempdir().unwrap();
    let mut filter = KeyFilter::start(&write_index(folder.path(), 0..10));
    filter.add(indexed_digest(2, 0));

    finish_scan(&mut filter);
    filter.add(indexed_digest(2, 1));

    assert!(!filter.excludes(indexed_digest(2, 0)) && !filter.excludes(indexed_digest(2, 1)));
}

#[test]
fn full_filter_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let mut filter = KeyFilter::start(&write_index(folder.path(), 0..10));
    finish_scan(&mut filter);
    filter.bloom.as_mut().unwrap().capacity = 10;
    filter.add(indexed_digest(2, 0));

    assert_eq!(filter.poll_scan(), None);
    finish_scan(&mut filter);

    assert_eq!(filter.bloom.as_ref().unwrap().capacity, CAPACITY_MIN);
    assert!(!filter.excludes(indexed_digest(1, 7)));
}

#[test]
fn full_filter_has_few_false_positives() {
    let mut bloom = BloomFilter::with_capacity(100_000);
    (0..100_000).for_each(|key| bloom.insert(indexed_digest(1, key).half()));

    assert!((0..100_000).all(|key| bloom.may_contain(indexed_digest(1, key).half())));
    let false_positives =
        (100_000..200_000).filter(|key| bloom.may_contain(indexed_digest(1, *key).half()));
    let false_positives = false_positives.count();
    assert!(
        false_positives < 3_000,
        "{false_positives} of 100,000 are reported though they were never inserted"
    );
}
