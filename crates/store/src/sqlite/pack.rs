//! Keys one after the other in the bytes of one row: those that one commit added, in the order in which
//! they came, or those of a block of the index, in their own order.

use std::ops::Range;

use surehook_core::{ids::EventId, key::KeyDigest, time::Timestamp};
use uuid::Uuid;

use super::memory::{BodyMark, Remembered};

/// Digest, event, mark of the body, time of expiry.
const KEY_BYTES: usize = 16 + 16 + 8 + 8;

type Entry = [u8; KEY_BYTES];

/// Adds a key to those of a pack.
pub(super) fn add(pack: &mut Vec<u8>, key: KeyDigest, known: Remembered) {
    pack.reserve(KEY_BYTES);
    pack.extend_from_slice(&key.to_bytes());
    pack.extend_from_slice(known.event.uuid().as_bytes());
    pack.extend_from_slice(&known.body.to_bytes());
    pack.extend_from_slice(&known.expires_at.as_millis().to_be_bytes());
}

fn entries(pack: &[u8]) -> &[Entry] {
    pack.as_chunks().0
}

fn digest(entry: &Entry) -> KeyDigest {
    KeyDigest::from_bytes(std::array::from_fn(|index| entry[index]))
}

fn known(entry: &Entry) -> Remembered {
    Remembered {
        event: EventId::from_uuid(Uuid::from_bytes(std::array::from_fn(|index| entry[16 + index]))),
        body: BodyMark::from_bytes(std::array::from_fn(|index| entry[32 + index])),
        expires_at: Timestamp::from_millis(i64::from_be_bytes(std::array::from_fn(|index| {
            entry[40 + index]
        }))),
    }
}

/// How many keys a pack has.
pub(super) fn len(pack: &[u8]) -> usize {
    pack.len() / KEY_BYTES
}

/// The keys of a pack.
pub(super) fn keys(pack: &[u8]) -> impl Iterator<Item = (KeyDigest, Remembered)> + '_ {
    entries(pack).iter().map(|entry| (digest(entry), known(entry)))
}

/// The digest of the key at a place of a pack, if there is one.
pub(super) fn digest_at(pack: &[u8], index: usize) -> Option<KeyDigest> {
    entries(pack).get(index).map(digest)
}

/// Some keys of a pack, as a pack; it ends where this one does.
pub(super) fn range(pack: &[u8], range: Range<usize>) -> &[u8] {
    let end = range.end.min(len(pack));
    &pack[range.start * KEY_BYTES..end * KEY_BYTES]
}

/// The keys of a pack that are to stay.
pub(super) fn filtered(
    pack: &[u8],
    mut stays: impl FnMut(KeyDigest, Remembered) -> bool,
) -> Vec<u8> {
    let mut left = Vec::with_capacity(pack.len());
    for entry in entries(pack).iter().filter(|entry| stays(digest(entry), known(entry))) {
        left.extend_from_slice(entry);
    }
    left
}

/// What a pack whose keys are in order knows of one.
pub(super) fn find(pack: &[u8], key: KeyDigest) -> Option<Remembered> {
    let entries = entries(pack);
    let index = entries.binary_search_by_key(&key, digest).ok()?;
    Some(known(&entries[index]))
}

/// A pack whose keys are in order, with new ones, which are in order as well. One that is there already
/// is replaced.
pub(super) fn merged(pack: &[u8], new: &[(KeyDigest, Remembered)]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(pack.len() + new.len() * KEY_BYTES);
    let mut rest = entries(pack);
    for (key, known) in new {
        let (before, from) = rest.split_at(rest.partition_point(|entry| digest(entry) < *key));
        merged.extend_from_slice(before.as_flattened());
        let is_there = from.first().is_some_and(|entry| digest(entry) == *key);
        rest = &from[usize::from(is_there)..];
        add(&mut merged, *key, *known);
    }
    merged.extend_from_slice(rest.as_flattened());
    merged
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(number: u128, expires_at: i64) -> (KeyDigest, Remembered) {
        let known = Remembered {
            event: EventId::new(Timestamp::from_millis(7), number),
            body: BodyMark::of(&[(number % 256) as u8; 32]),
            expires_at: Timestamp::from_millis(expires_at),
        };
        (KeyDigest::from_bytes(number.to_be_bytes()), known)
    }

    fn pack(all: impl IntoIterator<Item = (KeyDigest, Remembered)>) -> Vec<u8> {
        let mut pack = Vec::new();
        all.into_iter().for_each(|(key, known)| add(&mut pack, key, known));
        pack
    }

    #[test]
    fn what_is_packed_is_unpacked_in_its_order() {
        let times = [0, 1, -1, i64::MAX, i64::MIN];
        let all: Vec<_> = times.into_iter().zip(0_u128..).map(|(at, n)| entry(9 - n, at)).collect();
        let packed = pack(all.clone());
        assert_eq!(keys(&packed).collect::<Vec<_>>(), all);
        assert_eq!((len(&packed), keys(&[]).count()), (5, 0));
        assert_eq!(digest_at(&packed, 4), Some(all[4].0));
        assert_eq!(digest_at(&packed, 5), None);
        assert_eq!(keys(range(&packed, 1..3)).collect::<Vec<_>>(), all[1..3]);
        assert_eq!(keys(range(&packed, 3..9)).collect::<Vec<_>>(), all[3..]);

        let left = filtered(&packed, |key, known| key != all[0].0 && known != all[3].1);
        assert_eq!(keys(&left).collect::<Vec<_>>(), [all[1], all[2], all[4]]);
    }

    proptest! {
        #[test]
        fn a_merge_is_the_merge_of_two_maps(
            old in prop::collection::btree_map(0_u128..60, 0_i64..9, 0..40),
            new in prop::collection::btree_map(0_u128..60, 10_i64..19, 0..40),
        ) {
            let sorted = |map: &BTreeMap<u128, i64>| -> Vec<_> {
                map.iter().map(|(number, at)| entry(*number, *at)).collect()
            };
            let merged = merged(&pack(sorted(&old)), &sorted(&new));
            let mut expected = old;
            expected.extend(new);
            prop_assert_eq!(keys(&merged).collect::<Vec<_>>(), sorted(&expected));
            for number in 0..60 {
                let at = expected.get(&number).copied();
                let found = find(&merged, entry(number, 0).0);
                prop_assert_eq!(found, at.map(|at| entry(number, at).1));
            }
        }
    }
}
