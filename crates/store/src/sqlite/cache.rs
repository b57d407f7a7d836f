//! State in memory: keys of committed events, unwritten sightings of duplicates, counts.
//!
//! The key cache can prove that an event is stored, never that it is not. A key enters only after
//! the commit that stored its event, and is removed when a delivery of the event dies: a duplicate
//! of a dead event must reach the database, where it can revive it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use quick_cache::sync::Cache;
use surehook_core::store::StoreCounts;
use surehook_types::{
    ids::{EventId, SourceId},
    time::Timestamp,
};
use surehook_webhooks::key::KeyDigest;

use super::recent_keys::RecentKeyMap;
pub(super) use crate::steps::{
    duplicates::DuplicateSightings,
    keys::{KeyEntry, ShortFingerprint},
};

/// Number of sightings between two writes whose times are stored; the count is always exact.
const SIGHTING_TIMES_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct StoreCache {
    keys: Cache<KeyDigest, KeyEntry>,
    sightings: Mutex<HashMap<EventId, DuplicateSightings>>,
    counts: Mutex<StoreCounts>,
    /// Unset in a store that is opened read-only.
    recent_keys: OnceLock<RecentKeyMap>,
}

/// A panic while a lock is held cannot leave these half changed in a way that matters.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoreCache {
    pub(super) fn new(keys_remembered: usize) -> Self {
        Self {
            keys: Cache::new(keys_remembered),
            sightings: Mutex::default(),
            counts: Mutex::default(),
            recent_keys: OnceLock::new(),
        }
    }

    pub(super) fn find_committed(
        &self,
        source: SourceId,
        key: KeyDigest,
        fingerprint: &[u8; 32],
        seen_at: Timestamp,
    ) -> Option<EventId> {
        let entry = self.keys.get(&key)?;
        if entry.expires_at <= seen_at || entry.body != ShortFingerprint::of(fingerprint) {
            return None;
        }
        let mut sightings = lock(&self.sightings);
        let sighting = sightings.entry(entry.event).or_default();
        sighting.source = Some(source);
        sighting.count += 1;
        sighting.last = sighting.last.max(seen_at);
        if sighting.times.len() < SIGHTING_TIMES_MAX {
            sighting.times.push(seen_at);
        }
        Some(entry.event)
    }

    pub(super) fn insert_key(&self, key: KeyDigest, entry: KeyEntry) {
        self.keys.insert(key, entry);
    }

    pub(super) fn remove_key(&self, key: KeyDigest) {
        self.keys.remove(&key);
    }

    pub(super) fn take_sightings(&self) -> HashMap<EventId, DuplicateSightings> {
        std::mem::take(&mut *lock(&self.sightings))
    }

    pub(super) fn restore_sightings(&self, unwritten: HashMap<EventId, DuplicateSightings>) {
        let mut sightings = lock(&self.sightings);
        for (event, sighting) in unwritten {
            let entry = sightings.entry(event).or_default();
            entry.source = sighting.source;
            entry.count += sighting.count;
            entry.last = entry.last.max(sighting.last);
            entry.times.splice(0..0, sighting.times);
            entry.times.truncate(SIGHTING_TIMES_MAX);
        }
    }

    pub(super) fn has_sightings(&self) -> bool {
        !lock(&self.sightings).is_empty()
    }

    pub(super) fn share_recent_keys(&self, keys: RecentKeyMap) {
        // There is one writer, which starts once.
        let _ = self.recent_keys.set(keys);
    }

    pub(super) fn recent_keys(&self) -> Option<RecentKeyMap> {
        self.recent_keys.get().cloned()
    }

    pub(super) fn counts(&self) -> StoreCounts {
        lock(&self.counts).clone()
    }

    pub(super) fn change_counts(&self, change: impl FnOnce(&mut StoreCounts)) {
        change(&mut lock(&self.counts));
    }
}
