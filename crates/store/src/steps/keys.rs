//! Dedup keys as they are stored: which event holds a key, with which body, and until when.

use surehook_types::{ids::EventId, time::Timestamp};

/// The first bytes of a body's fingerprint: enough to tell bodies with the same key apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortFingerprint([u8; 8]);

impl ShortFingerprint {
    pub(crate) fn of(fingerprint: &[u8; 32]) -> Self {
        Self(std::array::from_fn(|index| fingerprint[index]))
    }

    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

/// The event that holds a dedup key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) event: EventId,
    pub(crate) body: ShortFingerprint,
    pub(crate) expires_at: Timestamp,
}
