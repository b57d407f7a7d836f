//! A fixed-length, evenly distributed digest of a key, for indexes.

use std::fmt;

use sha2::{Digest, Sha256};
use surehook_types::ids::SourceId;

use super::DedupKey;

/// The first half of the SHA-256 of a source and a key. Collisions do not occur in practice: finding
/// one on purpose takes about 2^64 tries, and the attacker would have to own both keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(u128);

impl KeyDigest {
    pub fn of(source: SourceId, key: &DedupKey) -> Self {
        let mut hasher = Sha256::new();
        // The source id always has 16 bytes, so no other pair gives the same input.
        hasher.update(source.uuid().as_bytes());
        hasher.update(key.as_str());
        let whole: [u8; 32] = hasher.finalize().into();
        Self::from_bytes(std::array::from_fn(|index| whole[index]))
    }

    /// The stored form; its byte order is the numeric order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The low half, enough for hash tables and filters.
    pub fn half(self) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "only the low half is wanted")]
        let half = self.0 as u64;
        half
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyDigest({:032x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn digest(source: u128, key: &str) -> KeyDigest {
        let source = SourceId::from_uuid(Uuid::from_u128(source));
        KeyDigest::of(source, &DedupKey::new(key).unwrap())
    }

    #[test]
    fn digest_depends_on_source_and_key() {
        let all = [digest(1, "a"), digest(1, "b"), digest(2, "a"), digest(1, "A"), digest(1, "a ")];
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().skip(index + 1).all(|other| one != other));
        }
        assert_eq!(digest(1, "a"), digest(1, "a"));
    }

    #[test]
    fn digest_is_stable_across_versions_and_machines() {
        // printf '\0%.0s' {1..15} | cat - <(printf '\1abc') | sha256sum
        let expected = "KeyDigest(6bd3a516e74196e1d6eecad7e08f100a)";
        assert_eq!(format!("{:?}", digest(1, "abc")), expected);
        assert_eq!(KeyDigest::from_bytes(digest(1, "abc").to_bytes()), digest(1, "abc"));
    }
}
