//! A fast tier in front of a durable backend.
//!
//! The durable backend alone decides: every claim is granted by it, and every step goes to it. The
//! fast tier keeps completions that the durable one has committed, and only ever answers "completed".
//!
//! - An entry counts only if it has the current **epoch** of the durable store, has not expired, and fits
//!   the fingerprint. Everything else is a miss: an error, an entry of another type, garbage, a server
//!   that is loading, read-only, out of memory or elsewhere.
//! - A look-up may take [`LOOKUP_BUDGET`]; then the durable backend is asked. A tier that keeps failing is
//!   not asked for half a second at a time.
//! - The first duplicate of a key is answered by the durable backend, and remembered then: only that
//!   answer says what is really stored.
//!
//! So losing the fast tier costs speed and nothing else.

mod breaker;
mod completion;
mod memory_tier;
#[cfg(feature = "redis")]
mod redis_tier;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use surehook_types::time::{Clock, Timestamp};
use tokio::sync::Semaphore;

use self::breaker::TierBreaker;
#[cfg(feature = "redis")]
pub use self::redis_tier::RedisFastTier;
pub use self::{completion::CachedCompletion, memory_tier::MemoryFastTier};
use crate::{
    Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletedClaim, CompletionRequest,
    DedupError, DedupLock, DurableDedupLock, StoreEpoch, WallClock,
};

/// How long a look-up in the fast tier may take.
pub const LOOKUP_BUDGET: Duration = Duration::from_millis(5);
/// How long an epoch that was read is used before it is read again. If the durable store is replaced by
/// its backup while this process runs, entries of the old store are used for at most this long.
pub const EPOCH_MAX_AGE: Duration = Duration::from_secs(1);
/// Completions that are being remembered; further ones are not.
const STORES_MAX: usize = 64;

/// Keeps completions that a durable store has committed. It may forget any of them at any time.
#[async_trait]
pub trait FastTier: Send + Sync + 'static {
    /// Finds a completion. Whatever cannot be read is a miss or an error, which count the same.
    async fn find(&self, key: &ClaimKey) -> Result<Option<CachedCompletion>, DedupError>;

    /// Remembers a completion for at most `ttl`.
    async fn store(
        &self,
        key: &ClaimKey,
        completion: CachedCompletion,
        ttl: Duration,
    ) -> Result<(), DedupError>;
}

/// How often a [`TwoTierDedupLock`] was answered by which tier, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Claims that the fast tier answered.
    pub hits: u64,
    /// Claims that the durable backend answered.
    pub durable: u64,
    /// Look-ups that failed or took too long.
    pub failures: u64,
    /// Claims for which the fast tier was not asked, because it keeps failing.
    pub skipped: u64,
}

#[derive(Debug, Default)]
struct TierCounters {
    hits: AtomicU64,
    durable: AtomicU64,
    failures: AtomicU64,
    skipped: AtomicU64,
}

/// An epoch and when it was read, by the process clock.
#[derive(Clone, Copy, Debug)]
struct ReadEpoch {
    epoch: StoreEpoch,
    at: Duration,
}

/// A [`DedupLock`] that answers known completions from a fast tier and everything else from a durable
/// backend. See the [module](self).
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use surehook_dedup::{MemoryFastTier, SqliteDedupConfig, SqliteDedupLock, TwoTierDedupLock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("dedup.db");
/// let durable = SqliteDedupLock::open(SqliteDedupConfig::new(path))?;
/// let lock = TwoTierDedupLock::new(MemoryFastTier::new(64 * 1024 * 1024), durable);
/// # Ok(())
/// # }
/// # main().unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct TwoTierDedupLock<Fast, Durable> {
    fast: Arc<Fast>,
    durable: Durable,
    clock: Arc<dyn Clock>,
    breaker: Arc<TierBreaker>,
    epoch: Mutex<Option<ReadEpoch>>,
    stores: Arc<Semaphore>,
    counters: TierCounters,
}

impl<Fast: FastTier, Durable: DurableDedupLock> TwoTierDedupLock<Fast, Durable> {
    /// Puts a fast tier in front of a durable backend.
    pub fn new(fast: Fast, durable: Durable) -> Self {
        Self::with_clock(fast, durable, Arc::new(WallClock))
    }

    /// With a given clock. Machines that share a fast tier need clocks that agree: an entry counts
    /// until its time by the clock of the one that asks.
    pub fn with_clock(fast: Fast, durable: Durable, clock: Arc<dyn Clock>) -> Self {
        Self {
            fast: Arc::new(fast),
            durable,
            clock,
            breaker: Arc::default(),
            epoch: Mutex::new(None),
            stores: Arc::new(Semaphore::new(STORES_MAX)),
            counters: TierCounters::default(),
        }
    }

    /// The durable backend.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Which tier answered how often.
    pub fn counts(&self) -> TierCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TierCounts {
            hits: read(&self.counters.hits),
            durable: read(&self.counters.durable),
            failures: read(&self.counters.failures),
            skipped: read(&self.counters.skipped),
        }
    }

    /// Whether the fast tier keeps failing and is left alone.
    pub fn is_fast_tier_skipped(&self) -> bool {
        self.breaker.is_open()
    }

    fn known_epoch(&self) -> Option<StoreEpoch> {
        let known = (*self.epoch.lock().unwrap_or_else(PoisonError::into_inner))?;
        let age = self.clock.elapsed().saturating_sub(known.at);
        (age < EPOCH_MAX_AGE).then_some(known.epoch)
    }

    fn set_epoch(&self, epoch: Option<ReadEpoch>) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = epoch;
    }

    /// The epoch, read again if it was read too long ago.
    async fn current_epoch(&self) -> Option<StoreEpoch> {
        if let Some(epoch) = self.known_epoch() {
            return Some(epoch);
        }
        // The time before it is asked for: it may change while the answer is under way.
        let at = self.clock.elapsed();
        let epoch = self.durable.epoch().await.ok()?;
        self.set_epoch(Some(ReadEpoch { epoch, at }));
        Some(epoch)
    }

    /// The completion that the fast tier has, if it is valid.
    async fn find_completed(&self, request: &ClaimRequest) -> Option<CompletedClaim> {
        let epoch = self.current_epoch().await?;
        let cached = self.look_up(&request.key).await?;
        let now = self.clock.now();
        let fits = match (&cached.fingerprint, &request.fingerprint) {
            // Without one, only the durable store knows whether the stored claim has another.
            (None, Some(_)) => false,
            (Some(stored), Some(asked)) => stored == asked,
            (_, None) => true,
        };
        let is_valid = cached.epoch == epoch && now < cached.expires_at && fits;
        is_valid.then(|| CompletedClaim {
            expires_in: cached.expires_at.since(now),
            ..cached.completed
        })
    }

    async fn look_up(&self, key: &ClaimKey) -> Option<CachedCompletion> {
        if !self.breaker.permits(self.clock.elapsed()) {
            self.counters.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let found = tokio::time::timeout(LOOKUP_BUDGET, self.fast.find(key)).await;
        let answer = found.ok().and_then(Result::ok);
        self.breaker.record(answer.is_some(), self.clock.elapsed());
        if answer.is_none() {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
        }
        answer.flatten()
    }

    /// Remembers what the durable store answered, in the background.
    fn remember(
        &self,
        request: &ClaimRequest,
        completed: &CompletedClaim,
        epoch: StoreEpoch,
        asked_at: Timestamp,
    ) {
        let Ok(permit) = self.stores.clone().try_acquire_owned() else { return };
        if self.breaker.is_open() {
            return;
        }
        let completion = CachedCompletion {
            epoch,
            fingerprint: request.fingerprint,
            expires_at: asked_at + completed.expires_in,
            completed: completed.clone(),
        };
        let (fast, breaker, clock) = (self.fast.clone(), self.breaker.clone(), self.clock.clone());
        let (key, ttl) = (request.key.clone(), completed.expires_in);
        tokio::spawn(async move {
            let stored =
                tokio::time::timeout(STORE_BUDGET, fast.store(&key, completion, ttl)).await;
            if !stored.is_ok_and(|result| result.is_ok()) {
                breaker.record(false, clock.elapsed());
            }
            drop(permit);
        });
    }

    /// Forgets the epoch after a failure: the durable store may come back as its own backup.
    fn check_answer<T>(&self, answer: Result<T, DedupError>) -> Result<T, DedupError> {
        if matches!(answer, Err(DedupError::Unavailable(_))) {
            self.set_epoch(None);
        }
        answer
    }
}

/// Longer than a look-up: nothing waits for it.
const STORE_BUDGET: Duration = Duration::from_millis(100);

#[async_trait]
impl<Fast: FastTier, Durable: DurableDedupLock> DedupLock for TwoTierDedupLock<Fast, Durable> {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        request.check()?;
        if let Some(completed) = self.find_completed(&request).await {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Claim::Completed(completed));
        }
        self.counters.durable.fetch_add(1, Ordering::Relaxed);
        // What is committed now was committed in this epoch or in a later one. If it is a later one, the
        // entry is ignored, which is safe.
        let (epoch, asked_at) = (self.known_epoch(), self.clock.now());
        let claim = self.check_answer(self.durable.claim(request.clone()).await)?;
        if let (Claim::Completed(completed), Some(epoch)) = (&claim, epoch) {
            self.remember(&request, completed, epoch, asked_at);
        }
        Ok(claim)
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        self.check_answer(self.durable.extend(key, token, lease).await)
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        self.check_answer(self.durable.complete(request).await)
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        self.check_answer(self.durable.release(key, token).await)
    }

    /// One batch for the durable backend: looking each up first would cost more than it saves.
    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        self.durable.claim_many(requests).await
    }

    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        self.durable.complete_many(requests).await
    }
}
