//! The epoch of a durable store, which distinguishes it from an older copy of itself.

use std::fmt;

use async_trait::async_trait;
use data_encoding::HEXLOWER;

use crate::{DedupError, DedupLock};

/// Identifies one history of a durable store: a random id that is stored in it.
///
/// A store that is restored from a backup lacks what was completed since. A cache that still knows it
/// would answer "completed" for work whose result is lost, so every cached fact carries the epoch in
/// which it was true, and a restore begins a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreEpoch([u8; 16]);

impl StoreEpoch {
    /// An epoch from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the epoch.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for StoreEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreEpoch({})", HEXLOWER.encode(&self.0))
    }
}

/// A [`DedupLock`] whose completions survive a crash once they are answered.
#[async_trait]
pub trait DurableDedupLock: DedupLock {
    /// The current epoch of the store.
    async fn epoch(&self) -> Result<StoreEpoch, DedupError>;

    /// Begins a new epoch. Call it after a restore from a backup that the store cannot notice itself,
    /// before it is used again.
    async fn renew_epoch(&self) -> Result<StoreEpoch, DedupError>;
}
