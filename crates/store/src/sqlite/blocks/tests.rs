//! What is merged, cut, taken out and found again.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use surehook_core::ids::EventId;

use super::*;
use crate::sqlite::{
    memory::BodyMark,
    schema::{self, plan},
};

fn known(expires_at: i64) -> Remembered {
    let event = EventId::new(Timestamp::from_millis(1), 1);
    let expires_at = Timestamp::from_millis(expires_at);
    Remembered { event, body: BodyMark::of(&[0; 32]), expires_at }
}

/// Puts keys, which are in order, into the index.
pub(in super::super) fn fold(connection: &Connection, keys: &[KeyDigest]) {
    let all: Vec<_> = keys.iter().map(|key| (*key, known(i64::MAX))).collect();
    fold_known(&mut Prepared::new(connection), &all);
}

fn fold_known(sql: &mut Prepared<'_>, mut rest: &[(KeyDigest, Remembered)]) {
    while let Some((key, _)) = rest.first() {
        let block = Block::of(sql, *key).unwrap();
        let keys: Vec<KeyDigest> = rest.iter().map(|(key, _)| *key).collect();
        let (new, later) = rest.split_at(block.share(&keys));
        block.merge(sql, new).unwrap();
        rest = later;
    }
}

/// That each block has only what belongs to it, in order, and not too much; all keys of the index.
fn examine(connection: &Connection) -> BTreeMap<KeyDigest, Remembered> {
    let (blocks, next) = slice(connection, i64::MIN, 1_000_000).unwrap();
    assert_eq!(next, None);
    let ends = blocks.iter().skip(1).map(|(first, _)| Some(*first)).chain([None]);
    let mut all = BTreeMap::new();
    for ((first, keys), end) in blocks.iter().zip(ends) {
        let digests: Vec<KeyDigest> = pack::keys(keys).map(|(key, _)| key).collect();
        assert!(digests.is_sorted_by(|one, next| one < next));
        let belongs =
            |key: &KeyDigest| place(*key) >= *first && end.is_none_or(|e| place(*key) < e);
        assert!(digests.iter().all(belongs));
        let places = digests.windows(2).filter(|pair| place(pair[0]) != place(pair[1])).count() + 1;
        assert!(digests.len() <= KEYS_MAX || places < digests.len(), "{} keys", digests.len());
        all.extend(pack::keys(keys));
    }
    all
}

/// Few places and many keys in each, at the ends of what there is and in the middle.
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

/// An index without a key.
fn empty() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let table = "CREATE TABLE key_blocks (first INTEGER PRIMARY KEY, keys BLOB NOT NULL) STRICT";
    connection.execute_batch(table).unwrap();
    connection
}

#[derive(Clone, Debug)]
enum Step {
    Fold(BTreeMap<KeyDigest, i64>),
    Remove(KeyDigest),
    Sweep { now: i64, blocks_max: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let some = |sizes| prop::collection::btree_map(any_key(), 0_i64..100, sizes);
    prop_oneof![
        3 => some(0..300).prop_map(Step::Fold),
        1 => any_key().prop_map(Step::Remove),
        1 => (0_i64..100, 1_usize..5).prop_map(|(now, blocks_max)| Step::Sweep { now, blocks_max }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_index_is_a_map(steps in prop::collection::vec(any_step(), 1..12)) {
        let connection = empty();
        let mut sql = Prepared::new(&connection);
        let mut model: BTreeMap<KeyDigest, Remembered> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Fold(keys) => {
                    let new: Vec<_> = keys.into_iter().map(|(key, at)| (key, known(at))).collect();
                    fold_known(&mut sql, &new);
                    model.extend(new);
                }
                Step::Remove(key) => {
                    let expected = model.remove(&key).is_some();
                    prop_assert_eq!(remove(&mut sql, key).unwrap(), expected);
                }
                Step::Sweep { now, blocks_max } => {
                    let now = Timestamp::from_millis(now);
                    let (before, mut removed) = (model.len(), 0);
                    let mut next = Some(i64::MIN);
                    while let Some(from) = next {
                        let slice = (from, blocks_max);
                        let (many, then) = sweep(&connection, &mut sql, slice, now).unwrap();
                        removed += many;
                        next = then;
                    }
                    model.retain(|_, known| known.expires_at > now);
                    prop_assert_eq!(removed, before - model.len());
                }
            }
            prop_assert_eq!(&examine(&connection), &model);
        }
        for (key, known) in &model {
            prop_assert_eq!(find(&mut sql, *key).unwrap(), Some(*known));
            prop_assert_eq!(look_up(&connection, *key).unwrap(), Some(*known));
        }
    }

    #[test]
    fn whoever_reads_in_slices_misses_nothing_that_stays(
        before in prop::collection::btree_map(any_key(), 0_i64..100, 1..300),
        meanwhile in prop::collection::vec(any_step(), 1..12),
    ) {
        let connection = empty();
        let mut sql = Prepared::new(&connection);
        let before: Vec<_> = before.into_iter().map(|(key, at)| (key, known(at))).collect();
        fold_known(&mut sql, &before);
        let mut seen = BTreeSet::new();
        let (mut next, mut meanwhile) = (Some(i64::MIN), meanwhile.into_iter());
        while let Some(from) = next {
            let blocks;
            (blocks, next) = slice(&connection, from, 1).unwrap();
            seen.extend(blocks.iter().flat_map(|(_, keys)| pack::keys(keys)).map(|(key, _)| key));
            match meanwhile.next() {
                Some(Step::Fold(keys)) => {
                    let new: Vec<_> = keys.into_iter().map(|(key, at)| (key, known(at))).collect();
                    fold_known(&mut sql, &new);
                    // The filter is told of these.
                    seen.extend(new.into_iter().map(|(key, _)| key));
                }
                Some(Step::Remove(key)) => drop(remove(&mut sql, key).unwrap()),
                Some(Step::Sweep { now, .. }) => {
                    let now = Timestamp::from_millis(now);
                    sweep(&connection, &mut sql, (i64::MIN, 1_000_000), now).unwrap();
                }
                None => {}
            }
        }
        let stays = |key: &KeyDigest| look_up(&connection, *key).unwrap().is_some();
        prop_assert!(before.iter().all(|(key, _)| seen.contains(key) || !stays(key)));
    }

    #[test]
    fn places_sort_as_digests_do(one in any::<u128>(), other in any::<u128>()) {
        let [one, other] = [one, other].map(|number| KeyDigest::from_bytes(number.to_be_bytes()));
        prop_assert!(place(one) == place(other) || (place(one) < place(other)) == (one < other));
    }
}

#[test]
fn blocks_of_a_full_index_are_neither_many_nor_large() {
    let folder = tempfile::tempdir().unwrap();
    let connection = schema::open_writer(&folder.path().join("a.db")).unwrap();
    let scattered = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    for round in 0..4 {
        let numbers = (round * 1000..(round + 1) * 1000).map(scattered);
        let mut keys: Vec<_> = numbers.map(|n| KeyDigest::from_bytes(n.to_be_bytes())).collect();
        keys.sort_unstable();
        fold(&connection, &keys);
        let many = examine(&connection).len();
        let blocks = slice(&connection, i64::MIN, 1_000_000).unwrap().0;
        assert!(blocks.len() * KEYS_MAX / 2 <= many + KEYS_MAX, "{} blocks", blocks.len());
        let largest = blocks.iter().map(|(_, keys)| keys.len()).max().unwrap();
        assert!(largest < 4096 - 100, "a block of {largest} bytes does not fit on a small page");
    }
}

#[test]
fn no_look_reads_a_whole_table() {
    for sql in [BLOCK_OF, NEXT_AFTER, INSERT, REPLACE, DELETE, FROM] {
        let steps = plan(sql);
        assert!(steps.iter().all(|step| step.starts_with("SEARCH")), "{sql}: {steps:#?}");
    }
}
