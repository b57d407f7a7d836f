use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::sqlite::schema::{self, query_plan};

fn keyed_entry(number: u128, expires_at: i64) -> (KeyDigest, KeyEntry) {
    let entry = KeyEntry {
        event: EventId::new(Timestamp::from_millis(7), number),
        body: ShortFingerprint::of(&[(number % 256) as u8; 32]),
        expires_at: Timestamp::from_millis(expires_at),
    };
    (KeyDigest::from_bytes(number.to_be_bytes()), entry)
}

fn encode_batch(all: impl IntoIterator<Item = (KeyDigest, KeyEntry)>) -> Vec<u8> {
    let mut batch = Vec::new();
    all.into_iter().for_each(|(key, entry)| push_key(&mut batch, key, entry));
    batch
}

#[test]
fn encoded_keys_are_decoded_in_order() {
    let times = [0, 1, -1, i64::MAX, i64::MIN];
    let all: Vec<_> =
        times.into_iter().zip(0_u128..).map(|(at, n)| keyed_entry(9 - n, at)).collect();
    let encoded = encode_batch(all.clone());
    assert_eq!(batch_keys(&encoded).collect::<Vec<_>>(), all);
    assert_eq!((count_keys(&encoded), batch_keys(&[]).count()), (5, 0));
    assert_eq!(digest_at(&encoded, 4), Some(all[4].0));
    assert_eq!(digest_at(&encoded, 5), None);
    assert_eq!(batch_keys(batch_range(&encoded, 1..3)).collect::<Vec<_>>(), all[1..3]);
    assert_eq!(batch_keys(batch_range(&encoded, 3..9)).collect::<Vec<_>>(), all[3..]);

    let retained = retain_keys(&encoded, |key, entry| key != all[0].0 && entry != all[3].1);
    assert_eq!(batch_keys(&retained).collect::<Vec<_>>(), [all[1], all[2], all[4]]);
}

fn entry(expires_at: i64) -> KeyEntry {
    let event = EventId::new(Timestamp::from_millis(1), 1);
    let expires_at = Timestamp::from_millis(expires_at);
    KeyEntry { event, body: ShortFingerprint::of(&[0; 32]), expires_at }
}

/// Inserts sorted keys into the index.
pub(in super::super) fn insert_sorted_keys(connection: &Connection, keys: &[KeyDigest]) {
    let all: Vec<_> = keys.iter().map(|key| (*key, entry(i64::MAX))).collect();
    insert_sorted_entries(&mut PreparedStatements::new(connection), &all);
}

fn insert_sorted_entries(sql: &mut PreparedStatements<'_>, keys: &[(KeyDigest, KeyEntry)]) {
    merge_sorted_keys(sql, &OLD, keys).unwrap();
}

/// Reads all keys of the index; asserts that each block is sorted, within its range and not too large.
fn read_checked_index(connection: &Connection) -> BTreeMap<KeyDigest, KeyEntry> {
    let BlockSlice { blocks, next } = read_blocks(connection, &OLD, i64::MIN, 1_000_000).unwrap();
    assert_eq!(next, None);
    let ends = blocks.iter().skip(1).map(|(first, _)| Some(*first)).chain([None]);
    let mut all = BTreeMap::new();
    for ((first, keys), end) in blocks.iter().zip(ends) {
        let digests: Vec<KeyDigest> = batch_keys(keys).map(|(key, _)| key).collect();
        assert!(digests.is_sorted_by(|one, next| one < next));
        let belongs = |key: &KeyDigest| {
            key_position(*key) >= *first && end.is_none_or(|e| key_position(*key) < e)
        };
        assert!(digests.iter().all(belongs));
        let positions = digests
            .windows(2)
            .filter(|pair| key_position(pair[0]) != key_position(pair[1]))
            .count()
            + 1;
        assert!(
            digests.len() <= BLOCK_KEYS_MAX || positions < digests.len(),
            "{} keys",
            digests.len()
        );
        all.extend(batch_keys(keys));
    }
    all
}

/// Few positions with many keys each, at both ends of the range and in the middle.
fn any_key() -> impl Strategy<Value = KeyDigest> {
    let high = prop_oneof![
        0_u64..4,
        u64::MAX - 3..=u64::MAX,
        (1 << 63) - 2..(1 << 63) + 2_u64,
        any::<u64>()
    ];
    let key = |(high, low): (u64, u64)| u128::from(high) << 64 | u128::from(low);
    (high, 0_u64..40).prop_map(move |both| KeyDigest::from_bytes(key(both).to_be_bytes()))
}

fn empty_index() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for table in ["key_blocks", "key_blocks_young"] {
        let columns = "(first INTEGER PRIMARY KEY, keys BLOB NOT NULL) STRICT";
        connection.execute_batch(&format!("CREATE TABLE {table} {columns}")).unwrap();
    }
    connection
}

#[derive(Clone, Debug)]
enum IndexStep {
    Merge(BTreeMap<KeyDigest, i64>),
    Remove(KeyDigest),
    PruneProgress { now: i64, blocks_max: usize },
}

fn any_index_step() -> impl Strategy<Value = IndexStep> {
    let some = |sizes| prop::collection::btree_map(any_key(), 0_i64..100, sizes);
    prop_oneof![
        3 => some(0..300).prop_map(IndexStep::Merge),
        1 => any_key().prop_map(IndexStep::Remove),
        1 => (0_i64..100, 1_usize..5).prop_map(|(now, blocks_max)| IndexStep::PruneProgress { now, blocks_max }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn index_behaves_as_a_map(steps in prop::collection::vec(any_index_step(), 1..12)) {
        let connection = empty_index();
        let mut sql = PreparedStatements::new(&connection);
        let mut model: BTreeMap<KeyDigest, KeyEntry> = BTreeMap::new();
        for step in steps {
            match step {
                IndexStep::Merge(keys) => {
                    let new: Vec<_> = keys.into_iter().map(|(key, at)| (key, entry(at))).collect();
                    insert_sorted_entries(&mut sql, &new);
                    model.extend(new);
                }
                IndexStep::Remove(key) => {
                    let expected = model.remove(&key).is_some();
                    prop_assert_eq!(remove_from_index(&mut sql, key).unwrap(), expected);
                }
                IndexStep::PruneProgress { now, blocks_max } => {
                    let now = Timestamp::from_millis(now);
                    let (before, mut removed) = (model.len(), 0);
                    let mut next = Some(i64::MIN);
                    while let Some(from) = next {
                        let (count, then) = prune_blocks(&connection, &mut sql, &OLD, from, blocks_max, now).unwrap();
                        removed += count;
                        next = then;
                    }
                    model.retain(|_, entry| entry.expires_at > now);
                    prop_assert_eq!(removed, before - model.len());
                }
            }
            prop_assert_eq!(&read_checked_index(&connection), &model);
        }
        for (key, entry) in &model {
            prop_assert_eq!(find_in_index(&mut sql, *key).unwrap(), Some(*entry));
            prop_assert_eq!(find_read_only(&connection, *key).unwrap(), Some(*entry));
        }
    }

    #[test]
    fn reading_in_slices_misses_no_key_that_stays(
        before in prop::collection::btree_map(any_key(), 0_i64..100, 1..300),
        meanwhile in prop::collection::vec(any_index_step(), 1..12),
    ) {
        let connection = empty_index();
        let mut sql = PreparedStatements::new(&connection);
        let before: Vec<_> = before.into_iter().map(|(key, at)| (key, entry(at))).collect();
        insert_sorted_entries(&mut sql, &before);
        let mut seen = BTreeSet::new();
        let (mut next, mut meanwhile) = (Some(i64::MIN), meanwhile.into_iter());
        while let Some(from) = next {
            let slice = read_blocks(&connection, &OLD, from, 1).unwrap();
            next = slice.next;
            seen.extend(slice.blocks.iter().flat_map(|(_, keys)| batch_keys(keys)).map(|(key, _)| key));
            match meanwhile.next() {
                Some(IndexStep::Merge(keys)) => {
                    let new: Vec<_> = keys.into_iter().map(|(key, at)| (key, entry(at))).collect();
                    insert_sorted_entries(&mut sql, &new);
                    // The filter learns of these keys through `KeyFilter::add`.
                    seen.extend(new.into_iter().map(|(key, _)| key));
                }
                Some(IndexStep::Remove(key)) => drop(remove_from_index(&mut sql, key).unwrap()),
                Some(IndexStep::PruneProgress { now, .. }) => {
                    let now = Timestamp::from_millis(now);
                    prune_blocks(&connection, &mut sql, &OLD, i64::MIN, 1_000_000, now).unwrap();
                }
                None => {}
            }
        }
        let is_present = |key: &KeyDigest| find_read_only(&connection, *key).unwrap().is_some();
        prop_assert!(before.iter().all(|(key, _)| seen.contains(key) || !is_present(key)));
    }

    #[test]
    fn moving_to_the_old_level_keeps_the_latest_entry_of_every_key(
        old in prop::collection::btree_map(any_key(), 0_i64..100, 0..300),
        young in prop::collection::btree_map(any_key(), 100_i64..200, 0..300),
        counts in prop::collection::vec(1_usize..200, 1..12),
    ) {
        let connection = empty_index();
        let mut sql = PreparedStatements::new(&connection);
        let [old, young] = [old, young].map(|keys| {
            keys.into_iter().map(|(key, at)| (key, entry(at))).collect::<Vec<_>>()
        });
        merge_sorted_keys(&mut sql, &OLD, &old).unwrap();
        merge_sorted_keys(&mut sql, &YOUNG, &young).unwrap();
        let latest: BTreeMap<_, _> = old.into_iter().chain(young.iter().copied()).collect();
        let (mut from, mut moved) = (Some(i64::MIN), 0);
        for count in counts.into_iter().cycle() {
            for (key, entry) in &latest {
                prop_assert_eq!(find_in_index(&mut sql, *key).unwrap(), Some(*entry));
            }
            let Some(position) = from else { break };
            let (some, next) = move_to_old(&connection, &mut sql, position, count).unwrap();
            from = next;
            moved += some;
        }
        prop_assert_eq!(moved, young.len());
        prop_assert_eq!(read_checked_index(&connection), latest);
    }

    #[test]
    fn positions_sort_as_digests_do(one in any::<u128>(), other in any::<u128>()) {
        let [one, other] = [one, other].map(|number| KeyDigest::from_bytes(number.to_be_bytes()));
        prop_assert!(key_position(one) == key_position(other) || (key_position(one) < key_position(other)) == (one < other));
    }
}

#[test]
fn blocks_of_a_full_index_are_neither_too_many_nor_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let connection = schema::open_writer(&folder.path().join("a.db")).unwrap();
    let scattered = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    for round in 0..4 {
        let numbers = (round * 1000..(round + 1) * 1000).map(scattered);
        let mut keys: Vec<_> = numbers.map(|n| KeyDigest::from_bytes(n.to_be_bytes())).collect();
        keys.sort_unstable();
        insert_sorted_keys(&connection, &keys);
        let count = read_checked_index(&connection).len();
        let blocks = read_blocks(&connection, &OLD, i64::MIN, 1_000_000).unwrap().blocks;
        assert!(
            blocks.len() * BLOCK_KEYS_MAX / 2 <= count + BLOCK_KEYS_MAX,
            "{} blocks",
            blocks.len()
        );
        let largest = blocks.iter().map(|(_, keys)| keys.len()).max().unwrap();
        assert!(largest < 4096 - 100, "a block of {largest} bytes does not fit on a small page");
    }
}

#[test]
fn no_statement_scans_the_whole_table() {
    for level in LEVELS {
        let IndexLevel { block_containing, next_block_start, insert, replace, delete, blocks_from } =
            *level;
        for sql in [block_containing, next_block_start, insert, replace, delete, blocks_from] {
            let steps = query_plan(sql);
            assert!(steps.iter().all(|step| step.starts_with("SEARCH")), "{sql}: {steps:#?}");
        }
    }
}

proptest! {
    #[test]
    fn merging_batches_equals_merging_maps(
        old in prop::collection::btree_map(0_u128..60, 0_i64..9, 0..40),
        new in prop::collection::btree_map(0_u128..60, 10_i64..19, 0..40),
    ) {
        let sorted = |map: &BTreeMap<u128, i64>| -> Vec<_> {
            map.iter().map(|(number, at)| keyed_entry(*number, *at)).collect()
        };
        let merged = merge_into_batch(&encode_batch(sorted(&old)), &sorted(&new));
        let mut expected = old;
        expected.extend(new);
        prop_assert_eq!(batch_keys(&merged).collect::<Vec<_>>(), sorted(&expected));
        for number in 0..60 {
            let at = expected.get(&number).copied();
            let found = find_in_batch(&merged, keyed_entry(number, 0).0);
            prop_assert_eq!(found, at.map(|at| keyed_entry(number, at).1));
        }
    }
}

#[test]
fn number_of_keys_is_estimated_from_the_first_blocks() {
    let scattered = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let estimate = |count: u128| {
        let connection = empty_index();
        let mut keys: Vec<_> =
            (1..=count).map(|n| KeyDigest::from_bytes(scattered(n).to_be_bytes())).collect();
        keys.sort_unstable();
        insert_sorted_keys(&connection, &keys);
        estimate_key_count(&connection, &OLD).unwrap()
    };
    assert_eq!([estimate(0), estimate(1), estimate(1000)], [0, 1, 1000]);
    // Far more than the blocks that are read.
    let estimated = estimate(100_000);
    assert!((95_000..105_000).contains(&estimated), "{estimated}");
}
