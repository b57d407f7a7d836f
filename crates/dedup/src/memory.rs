//! Claims in the memory of this process: sharded by key, and bounded.
//!
//! For one process whose duplicates need not survive a restart, for tests, and as the fast tier of two.
//! Records are dropped only when their ttl has ended. If there is no room, the answer is
//! [`DedupError::Full`], never a wrong one.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

use crate::{
    DedupError, DedupLock, ThreadRandom, WallClock,
    claim::{
        Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest, check_lease,
    },
    record::{ClaimRecord, RecordState, decide_claim},
};

/// Enough that two threads rarely need the same shard.
const SHARDS: usize = 64;
/// Expired records of its shard that each claim removes, so that they do not pile up.
const PRUNED_PER_CLAIM: usize = 2;

/// Limits of a [`MemoryDedupLock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Maximum number of keys.
    pub keys_max: usize,
    /// Maximum size of all results together, in bytes.
    pub result_bytes_max: usize,
}

/// A million keys, 256 MiB of results.
impl Default for MemoryLimits {
    fn default() -> Self {
        Self { keys_max: 1_000_000, result_bytes_max: 256 * 1024 * 1024 }
    }
}

/// A [`DedupLock`] in the memory of this process. A restart forgets everything.
#[derive(Debug)]
pub struct MemoryDedupLock {
    shards: Vec<Mutex<ShardState>>,
    hasher: RandomState,
    limits: MemoryLimits,
    keys: AtomicUsize,
    result_bytes: AtomicUsize,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl Default for MemoryDedupLock {
    fn default() -> Self {
        Self::new(MemoryLimits::default())
    }
}

#[derive(Debug, Default)]
struct ShardState {
    records: HashMap<Arc<ClaimKey>, ClaimRecord>,
    by_expiry: BTreeSet<(Timestamp, Arc<ClaimKey>)>,
}

impl ShardState {
    fn write(&mut self, key: Arc<ClaimKey>, record: ClaimRecord) {
        let expires_at = record.expires_at;
        if let Some(old) = self.records.insert(key.clone(), record)
            && old.expires_at != expires_at
        {
            self.by_expiry.remove(&(old.expires_at, key.clone()));
        }
        self.by_expiry.insert((expires_at, key));
    }

    /// Removes the record that expires next, if it has expired.
    fn remove_expired(&mut self, now: Timestamp) -> Option<ClaimRecord> {
        if self.by_expiry.first()?.0 > now {
            return None;
        }
        let (_, key) = self.by_expiry.pop_first()?;
        self.records.remove(&key)
    }
}

fn stored_bytes(record: &ClaimRecord) -> usize {
    match &record.state {
        RecordState::Completed { result, .. } => result.len(),
        RecordState::InProgress { .. } | RecordState::Released => 0,
    }
}

impl MemoryDedupLock {
    /// An empty lock with the clock of the machine.
    pub fn new(limits: MemoryLimits) -> Self {
        Self::with_clock_and_rng(limits, Arc::new(WallClock), Arc::new(ThreadRandom))
    }

    /// An empty lock with a given clock and given random numbers.
    pub fn with_clock_and_rng(
        limits: MemoryLimits,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            limits,
            keys: AtomicUsize::new(0),
            result_bytes: AtomicUsize::new(0),
            clock,
            rng,
        }
    }

    /// How many keys are remembered, including expired ones that are not yet removed.
    pub fn key_count(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// How many bytes of results are remembered.
    pub fn result_bytes(&self) -> usize {
        self.result_bytes.load(Ordering::Relaxed)
    }

    /// Forgets what has expired; returns how many keys. Claims also do this a little at a time.
    pub fn prune(&self) -> usize {
        let now = self.clock.now();
        self.shards.iter().map(|shard| self.prune_shard(&mut lock(shard), now, usize::MAX)).sum()
    }

    fn prune_shard(&self, shard: &mut ShardState, now: Timestamp, max: usize) -> usize {
        let mut removed = 0;
        while removed < max
            && let Some(record) = shard.remove_expired(now)
        {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            self.result_bytes.fetch_sub(stored_bytes(&record), Ordering::Relaxed);
            removed += 1;
        }
        removed
    }

    fn shard(&self, key: &ClaimKey) -> MutexGuard<'_, ShardState> {
        // The remainder is below the number of shards.
        let index = self.hasher.hash_one(key) % SHARDS as u64;
        lock(&self.shards[usize::try_from(index).unwrap_or(0)])
    }

    fn reserve(&self, counter: &AtomicUsize, amount: usize, max: usize) -> bool {
        let reserve = || {
            counter
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                    used.checked_add(amount).filter(|sum| *sum <= max)
                })
                .is_ok()
        };
        reserve() || (self.prune() > 0 && reserve())
    }

    fn claim_now(&self, request: &ClaimRequest) -> Result<Claim, DedupError> {
        request.check()?;
        let now = self.clock.now();
        if let Some(claim) = self.claim_existing(request, now) {
            return Ok(claim);
        }
        // Outside of the shard's lock, because making room looks at all shards.
        if !self.reserve(&self.keys, 1, self.limits.keys_max) {
            return Err(DedupError::Full { limit: format!("{} keys", self.limits.keys_max) });
        }
        let mut shard = self.shard(&request.key);
        let existing = shard.records.get(&request.key);
        let existed = existing.is_some();
        let decision = decide_claim(existing, request, now, &*self.rng);
        // Another thread may have been quicker.
        if existed || decision.write.is_none() {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(record) = decision.write {
            self.replace(&mut shard, &request.key, record);
        }
        self.prune_shard(&mut shard, now, PRUNED_PER_CLAIM);
        Ok(decision.claim)
    }

    /// Claims a key that has a record, expired or not.
    fn claim_existing(&self, request: &ClaimRequest, now: Timestamp) -> Option<Claim> {
        let mut shard = self.shard(&request.key);
        let decision =
            decide_claim(Some(shard.records.get(&request.key)?), request, now, &*self.rng);
        if let Some(record) = decision.write {
            self.replace(&mut shard, &request.key, record);
        }
        self.prune_shard(&mut shard, now, PRUNED_PER_CLAIM);
        Some(decision.claim)
    }

    fn replace(&self, shard: &mut ShardState, key: &ClaimKey, record: ClaimRecord) {
        let existing = shard.records.get_key_value(key);
        let freed = existing.map_or(0, |(_, old)| stored_bytes(old));
        let key = existing.map_or_else(|| Arc::new(key.clone()), |(key, _)| key.clone());
        shard.write(key, record);
        self.result_bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    fn update(
        &self,
        key: &ClaimKey,
        change: impl FnOnce(&mut ClaimRecord, Timestamp) -> ClaimUpdate,
    ) -> ClaimUpdate {
        let now = self.clock.now();
        let mut shard = self.shard(key);
        let Some((key, record)) = shard.records.get_key_value(key) else {
            return ClaimUpdate::StaleToken;
        };
        let (key, mut record) = (key.clone(), record.clone());
        let update = change(&mut record, now);
        if update.is_applied() {
            shard.write(key, record);
        }
        update
    }

    fn complete_now(&self, request: &CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        request.check()?;
        let bytes = request.result.len();
        if !self.reserve(&self.result_bytes, bytes, self.limits.result_bytes_max) {
            let limit = format!("{} bytes of results", self.limits.result_bytes_max);
            return Err(DedupError::Full { limit });
        }
        let mut is_stored = false;
        let update = self.update(&request.key, |record, now| {
            let had_result = matches!(record.state, RecordState::Completed { .. });
            let update = record.complete(request, now);
            is_stored = update.is_applied() && !had_result;
            update
        });
        if !is_stored {
            self.result_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        Ok(update)
    }
}

fn lock(shard: &Mutex<ShardState>) -> MutexGuard<'_, ShardState> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl DedupLock for MemoryDedupLock {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        self.claim_now(&request)
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        check_lease(lease)?;
        Ok(self.update(key, |record, now| record.extend(token, lease, now)))
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        self.complete_now(&request)
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        Ok(self.update(key, |record, now| record.release(token, now)))
    }
}
