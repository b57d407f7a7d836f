//! The new keys of one commit as the bytes of one row.

use std::collections::HashSet;

use surehook_core::{ids::EventId, key::KeyDigest, time::Timestamp};
use uuid::Uuid;

use super::memory::{BodyMark, Remembered};

/// Digest, event, mark of the body, time of expiry.
const KEY_BYTES: usize = 16 + 16 + 8 + 8;

/// Adds a key to those of a pack.
pub(super) fn add(pack: &mut Vec<u8>, key: KeyDigest, known: Remembered) {
    pack.reserve(KEY_BYTES);
    pack.extend_from_slice(&key.to_bytes());
    pack.extend_from_slice(known.event.uuid().as_bytes());
    pack.extend_from_slice(&known.body.to_bytes());
    pack.extend_from_slice(&known.expires_at.as_millis().to_be_bytes());
}

/// The keys of a pack, in the order in which they came.
pub(super) fn keys(pack: &[u8]) -> impl Iterator<Item = (KeyDigest, Remembered)> + '_ {
    pack.chunks_exact(KEY_BYTES).map_while(|bytes| {
        let (digest, rest) = bytes.split_first_chunk::<16>()?;
        let (event, rest) = rest.split_first_chunk::<16>()?;
        let (body, rest) = rest.split_first_chunk::<8>()?;
        let known = Remembered {
            event: EventId::from_uuid(Uuid::from_bytes(*event)),
            body: BodyMark::from_bytes(*body),
            expires_at: Timestamp::from_millis(i64::from_be_bytes(*rest.first_chunk()?)),
        };
        Some((KeyDigest::from_bytes(*digest), known))
    })
}

/// The same pack without some of its keys.
pub(super) fn without(pack: &[u8], gone: &HashSet<KeyDigest>) -> Vec<u8> {
    let mut left = Vec::with_capacity(pack.len());
    keys(pack)
        .filter(|(key, _)| !gone.contains(key))
        .for_each(|(key, known)| add(&mut left, key, known));
    left
}

#[cfg(test)]
mod tests {
    use surehook_core::{ids::SourceId, key::DedupKey};

    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_in_its_order() {
        let source = SourceId::new(Timestamp::from_millis(1), 1);
        let all: Vec<(KeyDigest, Remembered)> = [0, 1, -1, i64::MAX, i64::MIN]
            .into_iter()
            .enumerate()
            .map(|(number, expires_at)| {
                let key = DedupKey::new(&format!("key-{number}")).unwrap();
                let known = Remembered {
                    event: EventId::new(Timestamp::from_millis(7), number as u128),
                    body: BodyMark::of(&[u8::try_from(number).unwrap(); 32]),
                    expires_at: Timestamp::from_millis(expires_at),
                };
                (KeyDigest::of(source, &key), known)
            })
            .collect();
        let mut pack = Vec::new();
        for (key, known) in &all {
            add(&mut pack, *key, *known);
        }
        assert_eq!(keys(&pack).collect::<Vec<_>>(), all);
        assert_eq!(keys(&[]).count(), 0);

        let gone = HashSet::from([all[0].0, all[3].0]);
        let left: Vec<_> = keys(&without(&pack, &gone)).collect();
        assert_eq!(left, [all[1], all[2], all[4]]);
        assert!(without(&pack, &all.iter().map(|(key, _)| *key).collect()).is_empty());
    }
}
