//! A fixed-length, evenly distributed digest of a key, for indexes.

use std::fmt;

use sha2::{Digest, Sha256};
use surehook_types::ids::SourceId;

use super::DedupKey;

/// Keeps values of different origin apart, so that a value in a header is never taken for the same value
/// in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyNamespace {
    /// Values of the body, and keys that name their provider. Their digests are those of versions
    /// without namespaces.
    #[default]
    Body,
    /// Values of a header that a key rule names.
    Header,
}

/// The first half of the SHA-256 of a source and a key. Collisions do not occur in practice: finding
/// one on purpose takes about 2^64 tries, and the attacker would have to own both keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(u128);

impl KeyDigest {
    /// The digest of a key, or of an ordering key, in the namespace of bodies.
    pub fn of(source: SourceId, key: &DedupKey) -> Self {
        // The source id always has 16 bytes, so no other pair gives the same input.
        Self::hash(source.uuid().as_bytes(), [key.as_str().as_bytes()])
    }

    /// The digest of a key in a namespace.
    pub fn in_namespace(source: SourceId, namespace: KeyNamespace, key: &DedupKey) -> Self {
        match namespace {
            KeyNamespace::Body => Self::of(source, key),
            // A key contains no zero byte, so no key of another namespace gives the same input.
            KeyNamespace::Header => {
                Self::hash(source.uuid().as_bytes(), [b"\0header\0", key.as_str().as_bytes()])
            }
        }
    }

    /// Stands for this key together with one of the bodies that were received under it.
    #[must_use]
    pub fn with_body(self, short_fingerprint: [u8; 8]) -> Self {
        Self::hash(&self.to_bytes(), [&b"\0body\0"[..], &short_fingerprint])
    }

    /// Stands for the signed content of a request: its fingerprint, the position of the event in the
    /// request, and the kind of the event.
    pub fn of_signed_bytes(
        source: SourceId,
        fingerprint: &[u8; 32],
        position: usize,
        kind: &str,
    ) -> Self {
        let position = (position as u64).to_be_bytes();
        Self::hash(
            source.uuid().as_bytes(),
            [&b"\0signed\0"[..], fingerprint, &position, kind.as_bytes()],
        )
    }

    fn hash<const N: usize>(scope: &[u8; 16], parts: [&[u8]; N]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(scope);
        parts.iter().for_each(|part| hasher.update(part));
        let sha256: [u8; 32] = hasher.finalize().into();
        Self::from_bytes(std::array::from_fn(|index| sha256[index]))
    }

    /// The stored form; its byte order is the numeric order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// From the stored form.
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
    fn namespaces_bodies_and_signed_bytes_give_different_digests() {
        let source = SourceId::from_uuid(Uuid::from_u128(1));
        let key = DedupKey::new("a").unwrap();
        let body = KeyDigest::in_namespace(source, KeyNamespace::Body, &key);
        let header = KeyDigest::in_namespace(source, KeyNamespace::Header, &key);
        let signed = |position, kind| KeyDigest::of_signed_bytes(source, &[7; 32], position, kind);
        let all = [
            body,
            header,
            body.with_body([1; 8]),
            body.with_body([2; 8]),
            header.with_body([1; 8]),
            signed(0, ""),
            signed(1, ""),
            signed(0, "push"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().skip(index + 1).all(|other| one != other), "{index}");
        }
        assert_eq!(body, digest(1, "a"));
    }

    #[test]
    fn digest_is_stable_across_versions_and_machines() {
        // printf '\0%.0s' {1..15} | cat - <(printf '\1abc') | sha256sum
        let expected = "KeyDigest(6bd3a516e74196e1d6eecad7e08f100a)";
        assert_eq!(format!("{:?}", digest(1, "abc")), expected);
        assert_eq!(KeyDigest::from_bytes(digest(1, "abc").to_bytes()), digest(1, "abc"));
    }
}
