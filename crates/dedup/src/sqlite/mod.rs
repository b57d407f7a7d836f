//! Claims in a SQLite file.
//!
//! [`SqliteDedupLock`] owns a file: one thread writes, all steps that wait are one transaction, and each
//! is answered after `COMMIT` has synced the log. Several processes may use one file. A program that has
//! a SQLite file of its own calls the [`rules`] inside its own transactions instead.

pub mod rules;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use rusqlite::Connection;
use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

use self::writer::{WriteQueue, start_writer};
use crate::{
    DedupError, DedupLock, DurableDedupLock, StoreEpoch, ThreadRandom, WallClock, check_batch,
    claim::{
        Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest, check_lease,
    },
};

/// How a [`SqliteDedupLock`] opens its file.
#[derive(Clone, Debug)]
pub struct SqliteDedupConfig {
    path: PathBuf,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl SqliteDedupConfig {
    /// A file that is created if it is missing.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            busy_timeout: Duration::from_secs(5),
            clock: Arc::new(WallClock),
            rng: Arc::new(ThreadRandom),
        }
    }

    /// How long a step waits for the write lock of another process; 5 s unless set.
    #[must_use]
    pub fn busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// The clock that leases and ttls are measured with. Default: the wall clock of the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The source of tokens and ids. Default: the random numbers of the process.
    #[must_use]
    pub fn rng(mut self, rng: Arc<dyn Rng>) -> Self {
        self.rng = rng;
        self
    }
}

/// A [`DedupLock`] in a SQLite file.
///
/// - **Durable**: `Ok` means that the step is in a synced commit (WAL, `synchronous = FULL`).
/// - Processes on one machine may share the file; their clocks are the same one. The file must not be on
///   a network file system.
/// - Expired keys are removed a few at a time with each transaction that grants a claim.
/// - After an I/O error every call fails, because what is on the disk is unknown: open the file again.
/// - After a restore from a backup, call [`renew_epoch`](DurableDedupLock::renew_epoch).
///
/// The thread ends when the last clone is dropped and its queue is done.
///
/// ```
/// use std::time::Duration;
/// use surehook_dedup::{Claim, ClaimKey, ClaimRequest, DedupLock, SqliteDedupConfig, SqliteDedupLock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("dedup.db");
/// let lock = SqliteDedupLock::open(SqliteDedupConfig::new(path))?;
/// let request = ClaimRequest {
///     key: ClaimKey::new("orders", "4711")?,
///     fingerprint: None,
///     lease: Duration::from_secs(30),
///     ttl: Duration::from_secs(3600),
/// };
/// assert!(matches!(lock.claim(request.clone()).await?, Claim::Claimed(_)));
/// assert!(matches!(lock.claim(request).await?, Claim::InProgress { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteDedupLock {
    queue: WriteQueue,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl SqliteDedupLock {
    /// Opens the file and starts the writer thread. Blocks while the file is opened.
    pub fn open(config: SqliteDedupConfig) -> Result<Self, DedupError> {
        let SqliteDedupConfig { path, busy_timeout, clock, rng } = config;
        let connection = writer::open_connection(&path, busy_timeout, &*rng)
            .map_err(|error| open_error(&path, &error))?;
        let queue = start_writer(connection, clock.clone());
        Ok(Self { queue, clock, rng })
    }

    /// Forgets at most `max` keys whose ttl has ended; returns how many.
    pub async fn prune(&self, max: usize) -> Result<usize, DedupError> {
        let now = self.clock.now();
        self.queue.run(move |connection| rules::prune(connection, now, max)).await
    }

    /// Runs a step with the time at which it is executed, not queued.
    async fn step<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Connection, Timestamp, &dyn Rng) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DedupError> {
        let (clock, rng) = (self.clock.clone(), self.rng.clone());
        self.queue.run(move |connection| step(connection, clock.now(), &*rng)).await
    }
}

fn open_error(path: &Path, error: &rusqlite::Error) -> DedupError {
    DedupError::Unavailable(format!("cannot open {}: {error}", path.display()))
}

#[async_trait]
impl DedupLock for SqliteDedupLock {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        request.check()?;
        self.step(move |connection, now, rng| rules::claim(connection, &request, now, rng)).await
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        check_lease(lease)?;
        let key = key.clone();
        self.step(move |connection, now, _| rules::extend(connection, &key, token, lease, now))
            .await
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        request.check()?;
        self.step(move |connection, now, _| rules::complete(connection, &request, now)).await
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        let key = key.clone();
        self.step(move |connection, now, _| rules::release(connection, &key, token, now)).await
    }

    /// One transaction for all.
    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        let count = requests.len();
        if let Err(error) = check_batch(count) {
            return vec![Err(error); count];
        }
        let run = self.step(move |connection, now, rng| {
            let claim = |request: ClaimRequest| match request.check() {
                Ok(()) => rules::claim(connection, &request, now, rng).map(Ok),
                Err(error) => Ok(Err(error)),
            };
            requests.into_iter().map(claim).collect()
        });
        run.await.unwrap_or_else(|error| vec![Err(error); count])
    }

    /// One transaction for all.
    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        let count = requests.len();
        if let Err(error) = check_batch(count) {
            return vec![Err(error); count];
        }
        let run = self.step(move |connection, now, _| {
            let complete = |request: CompletionRequest| match request.check() {
                Ok(()) => rules::complete(connection, &request, now).map(Ok),
                Err(error) => Ok(Err(error)),
            };
            requests.into_iter().map(complete).collect()
        });
        run.await.unwrap_or_else(|error| vec![Err(error); count])
    }
}

#[async_trait]
impl DurableDedupLock for SqliteDedupLock {
    async fn epoch(&self) -> Result<StoreEpoch, DedupError> {
        self.queue.run(rules::epoch).await
    }

    async fn renew_epoch(&self) -> Result<StoreEpoch, DedupError> {
        self.step(|connection, _, rng| rules::renew_epoch(connection, rng)).await
    }
}
