//! A fast tier in the memory of this process.

use std::time::Duration;

use async_trait::async_trait;
use quick_cache::{Weighter, sync::Cache};

use super::{CachedCompletion, FastTier};
use crate::{ClaimKey, DedupError};

/// Bytes of an entry besides its key and result.
const ENTRY_BYTES: u64 = 256;

#[derive(Clone, Debug)]
struct EntryWeight;

impl Weighter<ClaimKey, CachedCompletion> for EntryWeight {
    fn weight(&self, key: &ClaimKey, completion: &CachedCompletion) -> u64 {
        let bytes = key.namespace().len() + key.name().len() + completion.completed.result.len();
        ENTRY_BYTES + bytes as u64
    }
}

/// A [`FastTier`] in the memory of this process, which evicts the least used entries.
#[derive(Debug)]
pub struct MemoryFastTier {
    cache: Cache<ClaimKey, CachedCompletion, EntryWeight>,
}

impl MemoryFastTier {
    /// A tier of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        let entries = usize::try_from(bytes_max / (ENTRY_BYTES * 2)).unwrap_or(usize::MAX);
        Self { cache: Cache::with_weighter(entries, bytes_max, EntryWeight) }
    }
}

#[async_trait]
impl FastTier for MemoryFastTier {
    async fn find(&self, key: &ClaimKey) -> Result<Option<CachedCompletion>, DedupError> {
        Ok(self.cache.get(key))
    }

    async fn store(
        &self,
        key: &ClaimKey,
        completion: CachedCompletion,
        _: Duration,
    ) -> Result<(), DedupError> {
        self.cache.insert(key.clone(), completion);
        Ok(())
    }
}
