//! The writer: one thread that commits all queued jobs in one transaction.
//!
//! While a commit is being synced, new jobs queue up; the next transaction takes all of them. Under
//! load the batches grow and share the cost of an fsync; with little traffic a job is committed at
//! once. No caller gets its answer before the commit that holds its work. On errors:
//! - **A job's statement fails**: the batch is rolled back and each of its jobs runs again in its own
//!   transaction, so that only the failing job fails.
//! - **The disk is full**: the batch is rolled back and the reserved space is released (`reserve`). What
//!   would store something new fails with `Full` until there is space again; the rest is tried again.
//! - **The files are removed, moved or replaced**: what is still open is copied to a rescue file, and
//!   the store takes no more work; see `rescue`.
//! - **Any other I/O error**: whether the batch is on disk is unknown, and after a failed fsync the kernel
//!   may pretend that it is. The store takes no more work; the process must be restarted.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    ops::{ControlFlow, Deref},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, Result};
use surehook_core::{delivery::LaneEpoch, event::Payload};
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest, sqlite::rules,
};
use surehook_types::{
    ids::{DestinationId, EventId, SourceId},
    rng::Rng,
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{Attributes, EventKind},
    key::KeyDigest,
};
use tokio::sync::{oneshot, watch};

use super::{
    cache::{KeyEntry, StoreCache},
    checkpoint::{self, Checkpointer},
    commit_mark::{CommitMark, STORE_NUMBER},
    connection::{self, SqliteDialect},
    key_index,
    prepared::PreparedStatements,
    prune_state::{self, PruneState},
    recent_keys::RecentKeys,
    rescue::FileWatch,
    reserve::SpaceReserve,
    search_terms::{self, RecentTerms},
    secret_key::SecretKey,
};
use crate::{
    sql::{self, SqlConnection, SqlParameter, SqlRow},
    steps::{
        PresenceHints, StepTransaction, awaited_statuses, callbacks,
        claims::{self, EndedEpochs},
        configure::{self, RowNumbers},
        counts::{self, CountChanges},
        duplicates::{self, DuplicateSightings},
        event_terms::EventTerms,
        idempotency::ClaimRules,
        ingest::IngestTransaction,
        lanes,
        prune::{self, KeyPruneReport, PruneProgress, PruneTransaction},
    },
};

/// Jobs in one transaction. More would make the first ones wait without saving much.
const BATCH_MAX: usize = 1024;
/// A commit has a fixed cost. So after a batch of at least [`BUSY_BATCH_MIN`] jobs, the next one waits
/// for as many jobs as the last one had, up to `GATHER_MAX` and for at most `GATHER_TIMEOUT`. Larger
/// values leave the processors idle in the meantime (docs/decisions/0002).
const GATHER_MAX: usize = 64;
const GATHER_TIMEOUT: Duration = Duration::from_millis(1);
const BUSY_BATCH_MIN: usize = 16;
/// Sightings of duplicates are written this often: their count may be late, an answer never.
const SIGHTINGS_INTERVAL: Duration = Duration::from_millis(200);

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";

/// The transaction that jobs write into, with the writer's state.
pub(super) struct WriteTransaction<'a, 'c> {
    pub(super) connection: &'c Connection,
    /// On the same connection, for the statements that run for every event.
    pub(super) sql: &'a mut PreparedStatements<'c>,
    pub(super) row_numbers: &'a mut RowNumbers,
    pub(super) recent_keys: &'a mut RecentKeys,
    pub(super) recent_terms: &'a mut RecentTerms,
    pub(super) prune_state: &'a mut PruneState,
    pub(super) hints: &'a mut PresenceHints,
    pub(super) counts: &'a mut CountChanges,
    /// The epoch of all lanes: this process owns them as long as it has the file open.
    pub(super) epoch: LaneEpoch,
    cache_updates: &'a mut Vec<CacheUpdate>,
}

/// A change to the cache, made only after the commit.
enum CacheUpdate {
    InsertKey(KeyDigest, KeyEntry),
    RemoveKey(KeyDigest),
}

impl Deref for WriteTransaction<'_, '_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl SqlConnection for WriteTransaction<'_, '_> {
    type Dialect = SqliteDialect;

    fn run(&self, sql: &str, values: &[&dyn SqlParameter]) -> sql::Result<usize> {
        self.connection.run(sql, values)
    }

    fn read_while(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnMut(&dyn SqlRow) -> sql::Result<ControlFlow<()>>,
    ) -> sql::Result<()> {
        self.connection.read_while(sql, values, read)
    }

    /// The only transaction that writes sees one state.
    fn read_snapshot<T>(&self, read: impl FnOnce(&Self) -> sql::Result<T>) -> sql::Result<T> {
        read(self)
    }
}

impl StepTransaction for WriteTransaction<'_, '_> {
    fn run_prepared(
        &mut self,
        sql: &'static str,
        values: &[&dyn SqlParameter],
    ) -> sql::Result<usize> {
        connection::debug_assert_portable(sql);
        Ok(self.sql.get(sql)?.execute(connection::bind(values))?)
    }

    fn find_prepared<T>(
        &mut self,
        sql: &'static str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> sql::Result<T>,
    ) -> sql::Result<Option<T>> {
        connection::debug_assert_portable(sql);
        let mut rows = self.sql.get(sql)?.query(connection::bind(values))?;
        rows.next()?.map(|row| read(row)).transpose()
    }

    fn counts(&mut self) -> &mut CountChanges {
        self.counts
    }

    fn hints(&self) -> &PresenceHints {
        self.hints
    }

    fn hints_mut(&mut self) -> &mut PresenceHints {
        self.hints
    }

    fn source_seq(&self, source: SourceId) -> sql::Result<Option<i64>> {
        Ok(self.row_numbers.sources.get(&source).copied())
    }

    fn destination_seq(&self, destination: DestinationId) -> sql::Result<Option<i64>> {
        Ok(self.row_numbers.destinations.get(&destination).copied())
    }

    fn reload_row_numbers(&mut self) -> sql::Result<()> {
        *self.row_numbers = configure::load_row_numbers(self.connection)?;
        Ok(())
    }

    /// This process owns all lanes.
    fn is_current_epoch(&self, _destination: i64, epoch: LaneEpoch) -> sql::Result<bool> {
        Ok(epoch == self.epoch)
    }

    fn defer_pruning(&mut self, event: EventId, now: Timestamp) -> sql::Result<()> {
        match event <= self.prune_state.max_cursor {
            true => prune::defer_until(self, event, now),
            false => Ok(()),
        }
    }

    fn uncache_key(&mut self, key: KeyDigest) {
        self.cache_updates.push(CacheUpdate::RemoveKey(key));
    }
}

const INSERT_PAYLOAD: &str = "
    INSERT INTO payloads (path, query, remote, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)";

impl IngestTransaction for WriteTransaction<'_, '_> {
    fn find_key(&mut self, key: KeyDigest, now: Timestamp) -> sql::Result<Option<KeyEntry>> {
        if let Some(recent) = self.recent_keys.find(key, now) {
            return Ok(Some(recent));
        }
        if self.recent_keys.is_certainly_new(key) {
            return Ok(None);
        }
        let entry = key_index::find_in_index(self.sql, key)?;
        Ok(entry.filter(|entry| entry.expires_at > now))
    }

    fn put_key(&mut self, key: KeyDigest, entry: KeyEntry) -> sql::Result<()> {
        if !self.recent_keys.is_certainly_new(key) {
            key_index::remove_from_index(self.sql, key)?;
        }
        Ok(self.recent_keys.insert(self.sql, key, entry)?)
    }

    fn cache_key(&mut self, key: KeyDigest, entry: KeyEntry) {
        self.cache_updates.push(CacheUpdate::InsertKey(key, entry));
    }

    fn has_keys_from_before_namespaces(&self) -> sql::Result<bool> {
        Ok(self.recent_keys.has_keys_from_before_namespaces())
    }

    fn is_from_before_namespaces(&self, event: EventId) -> sql::Result<bool> {
        Ok(self.recent_keys.is_from_before_namespaces(event))
    }

    fn insert_payload(&mut self, payload: &Payload) -> sql::Result<i64> {
        let head = &payload.head;
        Ok(self.sql.get(INSERT_PAYLOAD)?.insert(rusqlite::params![
            head.path,
            head.query,
            head.remote,
            head.headers.as_bytes(),
            &payload.body[..],
        ])?)
    }

    fn insert_terms(&mut self, event: EventId, terms: &EventTerms) -> sql::Result<()> {
        Ok(self.recent_terms.insert(self.sql, event, terms)?)
    }
}

impl PruneTransaction for WriteTransaction<'_, '_> {
    /// At up to 50 µs each, a slice takes too little time for a sender to notice.
    const STEPS_PER_SLICE: usize = 200;
    const ENDED_EVENTS_PER_STEP: usize = 1;

    fn progress(&mut self) -> &mut PruneProgress {
        &mut self.prune_state.progress
    }

    fn raise_max_cursor(&mut self, event: EventId) {
        self.prune_state.max_cursor = self.prune_state.max_cursor.max(event);
    }

    fn prune_keys(&mut self, now: Timestamp) -> sql::Result<KeyPruneReport> {
        Ok(prune_state::prune_keys(self, now)?)
    }

    fn is_walking_keys(&self) -> bool {
        self.prune_state.next_key_position.is_some()
    }

    fn remove_terms(
        &mut self,
        event: EventId,
        kind: Option<&EventKind>,
        attributes: &Attributes,
    ) -> sql::Result<usize> {
        Ok(self.recent_terms.remove(self.connection, event, kind, attributes)?)
    }

    fn remove_unused_terms(&mut self) -> sql::Result<()> {
        Ok(search_terms::remove_unused_segments(self.connection)?)
    }
}

impl ClaimRules for WriteTransaction<'_, '_> {
    fn claim(&self, request: &ClaimRequest, now: Timestamp, rng: &dyn Rng) -> sql::Result<Claim> {
        Ok(rules::claim(self, request, now, rng)?)
    }

    fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
        now: Timestamp,
    ) -> sql::Result<ClaimUpdate> {
        Ok(rules::extend(self, key, token, lease, now)?)
    }

    fn complete(&self, request: &CompletionRequest, now: Timestamp) -> sql::Result<ClaimUpdate> {
        Ok(rules::complete(self, request, now)?)
    }

    fn release(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        now: Timestamp,
    ) -> sql::Result<ClaimUpdate> {
        Ok(rules::release(self, key, token, now)?)
    }

    fn prune(&self, now: Timestamp, max: usize) -> sql::Result<usize> {
        Ok(rules::prune(self, now, max)?)
    }
}

trait WriteJob: Send {
    /// Whether it stores something new, and is refused while the disk is full.
    fn is_growth(&self) -> bool;
    fn run(&mut self, tx: &mut WriteTransaction<'_, '_>) -> Result<()>;
    fn send_result(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct StepJob<F, T> {
    step: F,
    is_growth: bool,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> WriteJob for StepJob<F, T>
where
    F: FnMut(&mut WriteTransaction<'_, '_>) -> Result<T> + Send,
    T: Send,
{
    fn is_growth(&self) -> bool {
        self.is_growth
    }

    fn run(&mut self, tx: &mut WriteTransaction<'_, '_>) -> Result<()> {
        self.value = Some((self.step)(tx)?);
        Ok(())
    }

    fn send_result(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { step, is_growth: _, value, reply } = *self;
        // Before the reply, so that what the step shares with the caller is freed by the caller:
        // memory that is freed by another thread costs both more.
        drop(step);
        let missing = || StoreError::Refused("the write step returned no value".to_owned());
        let result = outcome.and_then(|()| value.ok_or_else(missing));
        // The caller may have stopped waiting; its work is committed all the same.
        let _receiver_dropped = reply.send(result);
    }
}

#[derive(Default)]
struct QueueState {
    jobs: Vec<Box<dyn WriteJob>>,
    /// The thread sleeps until there are this many jobs; 0 while it works.
    wake_at: usize,
    has_sightings: bool,
    is_closed: bool,
}

#[derive(Default)]
struct WriterQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

impl WriterQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // A panic elsewhere cannot leave the list half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct WriterHealth {
    pub(super) is_disk_full: bool,
    pub(super) failure: Option<String>,
    /// The files are lost and being copied; the process must not end yet.
    is_rescuing: bool,
}

/// The handle to the writer thread. Dropping it waits until all queued jobs are written.
pub(super) struct Writer {
    queue: Arc<WriterQueue>,
    queue_max: usize,
    epoch: LaneEpoch,
    health: watch::Receiver<WriterHealth>,
    checkpoint_failure: watch::Receiver<Option<String>>,
    /// Its sender is dropped when the thread has closed the file.
    open: watch::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("queued", &self.queue_len()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Releases the claims of the previous process, then starts the thread.
    pub(super) fn start(
        resources: WriterResources,
        cache: Arc<StoreCache>,
        queue_max: usize,
        now: Timestamp,
    ) -> Result<Self> {
        let WriterResources {
            connection,
            checkpointer,
            mark,
            file,
            merge_at,
            reserve,
            folder_key,
            lock,
        } = resources;
        let mut state = WriterState::load(&connection, &file, merge_at)?;
        cache.share_recent_keys(state.recent_keys.shared_map());
        recover(&connection, now, &mut state)?;
        let epoch = state.epoch;
        let counts = counts::load(&connection)?;
        cache.change_counts(|cached| *cached = counts);
        let checkpoint_failure = checkpointer.failure();
        let files = FileWatch::new(&file, now, folder_key);
        let queue = Arc::new(WriterQueue::default());
        let (open_sender, open) = watch::channel(());
        let (health_sender, health) = watch::channel(WriterHealth {
            is_disk_full: reserve.is_released(),
            ..WriterHealth::default()
        });
        let thread = std::thread::Builder::new()
            .name("surehook-writer".to_owned())
            .spawn({
                let queue = Arc::clone(&queue);
                move || {
                    // Declared in this order, so that the file is closed before the lock is released.
                    let _open = open_sender;
                    let _lock = lock;
                    let connection = connection;
                    let thread = WriterThread {
                        connection: &connection,
                        sql: PreparedStatements::new(&connection),
                        checkpointer,
                        reserve,
                        mark,
                        files,
                        cache,
                        state,
                        health: health_sender,
                        sightings_written_at: Instant::now(),
                        last_batch_len: 0,
                    };
                    thread.run(&queue);
                }
            })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        let thread = Some(thread);
        Ok(Self { queue, queue_max, epoch, health, checkpoint_failure, open, thread })
    }

    /// A writer that refuses all work, for a store that is opened read-only.
    pub(super) fn closed() -> Self {
        let queue = WriterQueue::default();
        queue.lock().is_closed = true;
        let (_, health) = watch::channel(WriterHealth::default());
        let (_, checkpoint_failure) = watch::channel(None);
        let (_, open) = watch::channel(());
        Self {
            queue: Arc::new(queue),
            queue_max: 0,
            epoch: LaneEpoch::default(),
            health,
            checkpoint_failure,
            open,
            thread: None,
        }
    }

    /// Runs `step` in the next transaction; returns once that is committed.
    pub(super) async fn write<T, E, F>(&self, step: F) -> Result<T, StoreError>
    where
        F: FnMut(&mut WriteTransaction<'_, '_>) -> Result<T, E> + Send + 'static,
        E: Into<rusqlite::Error>,
        T: Send + 'static,
    {
        self.enqueue(step, None)?.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    /// Like [`Self::write`] for what stores something new: fails with `Overloaded` when the queue is
    /// full, and with `Full` while the disk is.
    pub(super) async fn write_bounded<T, E, F>(&self, step: F) -> Result<T, StoreError>
    where
        F: FnMut(&mut WriteTransaction<'_, '_>) -> Result<T, E> + Send + 'static,
        E: Into<rusqlite::Error>,
        T: Send + 'static,
    {
        self.enqueue(step, Some(self.queue_max))?.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    fn enqueue<T, E, F>(
        &self,
        mut step: F,
        limit: Option<usize>,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        F: FnMut(&mut WriteTransaction<'_, '_>) -> Result<T, E> + Send + 'static,
        E: Into<rusqlite::Error>,
        T: Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let step = move |tx: &mut WriteTransaction<'_, '_>| step(tx).map_err(Into::into);
        let job = Box::new(StepJob { step, is_growth: limit.is_some(), value: None, reply });
        let mut state = self.queue.lock();
        if state.is_closed {
            drop(state);
            return Err(self.closed_error());
        }
        if limit.is_some_and(|limit| state.jobs.len() >= limit) {
            return Err(StoreError::Overloaded);
        }
        state.jobs.push(job);
        let should_wake = state.jobs.len() == state.wake_at;
        drop(state);
        if should_wake {
            self.queue.changed.notify_one();
        }
        Ok(result)
    }

    pub(super) fn wake_for_sightings(&self) {
        let mut state = self.queue.lock();
        if !state.has_sightings {
            state.has_sightings = true;
            self.queue.changed.notify_one();
        }
    }

    /// The epoch of all lanes.
    pub(super) fn epoch(&self) -> LaneEpoch {
        self.epoch
    }

    pub(super) fn queue_len(&self) -> usize {
        self.queue.lock().jobs.len()
    }

    pub(super) fn health(&self) -> WriterHealth {
        self.health.borrow().clone()
    }

    /// Waits until the store has failed; returns why.
    pub(super) async fn wait_for_failure(&self) -> String {
        let (mut health, mut checkpoints) = (self.health.clone(), self.checkpoint_failure.clone());
        let has_failed = |health: &WriterHealth| health.failure.is_some() && !health.is_rescuing;
        let writer = async {
            match health.wait_for(has_failed).await {
                Ok(health) => health.failure.clone().unwrap_or_default(),
                Err(_) => "the writer thread has ended".to_owned(),
            }
        };
        // The writer notices it only at its next commit.
        let checkpointer = async { checkpoints.wait_for(Option::is_some).await.ok()?.clone() };
        tokio::select! {
            reason = writer => reason,
            Some(reason) = checkpointer => reason,
        }
    }

    /// Closes the queue and waits until all queued jobs are written and the file is closed.
    pub(super) async fn close(&self) {
        self.close_queue();
        let mut open = self.open.clone();
        // An error is what is waited for: the sender is gone.
        while open.changed().await.is_ok() {}
    }

    fn close_queue(&self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_one();
    }

    fn closed_error(&self) -> StoreError {
        let failure = self.health.borrow().failure.clone();
        StoreError::Failed(failure.unwrap_or_else(|| "the store is closed".to_owned()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close_queue();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already failed all waiting callers.
            let _panicked = thread.join();
        }
    }
}

/// The resources that the writer thread starts with.
pub(super) struct WriterResources {
    pub(super) connection: Connection,
    pub(super) checkpointer: Checkpointer,
    pub(super) mark: Option<CommitMark>,
    pub(super) file: PathBuf,
    /// Implements `SqliteOptions::merge_keys_at`.
    pub(super) merge_at: usize,
    pub(super) reserve: SpaceReserve,
    /// The secret key, if its file is in the data folder.
    pub(super) folder_key: Option<SecretKey>,
    /// The lock on the folder, held as long as the thread runs.
    pub(super) lock: File,
}

/// The writer's state about the file, and the effects of the current transaction.
struct WriterState {
    row_numbers: RowNumbers,
    recent_keys: RecentKeys,
    recent_terms: RecentTerms,
    prune_state: PruneState,
    hints: PresenceHints,
    counts: CountChanges,
    epoch: LaneEpoch,
    cache_updates: Vec<CacheUpdate>,
}

impl WriterState {
    fn load(connection: &Connection, file: &Path, merge_at: usize) -> Result<Self> {
        Ok(Self {
            row_numbers: configure::load_row_numbers(connection)?,
            recent_keys: RecentKeys::load(connection, file, merge_at)?,
            recent_terms: RecentTerms::load(connection, merge_at.min(search_terms::MERGE_AT))?,
            prune_state: PruneState::load(connection)?,
            hints: PresenceHints::default(),
            counts: CountChanges::default(),
            epoch: LaneEpoch::default(),
            cache_updates: Vec::new(),
        })
    }

    fn transaction<'a, 'c>(
        &'a mut self,
        connection: &'c Connection,
        sql: &'a mut PreparedStatements<'c>,
    ) -> WriteTransaction<'a, 'c> {
        WriteTransaction {
            connection,
            sql,
            row_numbers: &mut self.row_numbers,
            recent_keys: &mut self.recent_keys,
            recent_terms: &mut self.recent_terms,
            prune_state: &mut self.prune_state,
            hints: &mut self.hints,
            counts: &mut self.counts,
            epoch: self.epoch,
            cache_updates: &mut self.cache_updates,
        }
    }
}

struct WriterThread<'c> {
    connection: &'c Connection,
    sql: PreparedStatements<'c>,
    checkpointer: Checkpointer,
    reserve: SpaceReserve,
    mark: Option<CommitMark>,
    files: FileWatch,
    cache: Arc<StoreCache>,
    state: WriterState,
    health: watch::Sender<WriterHealth>,
    sightings_written_at: Instant,
    /// How many jobs the last transaction had.
    last_batch_len: usize,
}

impl WriterThread<'_> {
    fn run(mut self, queue: &WriterQueue) {
        loop {
            let (jobs, is_closing) = self.next_batch(queue);
            if let Some(loss) = self.files.find_loss(is_closing) {
                return self.rescue(queue, jobs, &loss);
            }
            let is_last = is_closing && jobs.is_empty();
            // On a full disk an empty batch looks for free space.
            let has_work =
                !jobs.is_empty() || self.cache.has_sightings() || self.reserve.is_released();
            if has_work {
                self.write_batch(jobs, is_closing);
            }
            if self.health.borrow().failure.is_some() {
                return match self.files.find_loss(true) {
                    // The cause of the failure, and what is open may still be readable.
                    Some(loss) => self.rescue(queue, Vec::new(), &loss),
                    None => Self::fail_all(queue, &self.health.borrow()),
                };
            }
            // Sightings that cannot be written, on a full disk, must not prevent the end.
            if is_last {
                return self.finish();
            }
        }
    }

    /// Leaves a database that is complete without its log.
    fn finish(mut self) {
        if self.checkpointer.finish(self.connection)
            && let Some(mark) = &mut self.mark
        {
            mark.close();
        }
    }

    /// Copies everything acknowledged to a new file: the files are lost, but still open.
    fn rescue(self, queue: &WriterQueue, jobs: Vec<Box<dyn WriteJob>>, loss: &str) {
        tracing::error!("{loss}; no events are accepted, and the open database is copied");
        checkpoint::disable_checkpoint_on_close(self.connection);
        self.health.send_modify(|health| {
            health.failure = Some(loss.to_owned());
            health.is_rescuing = true;
        });
        answer_all(jobs, &Err(StoreError::Failed(loss.to_owned())));
        Self::fail_all(queue, &self.health.borrow());
        let outcome = match self.files.rescue(self.connection) {
            Ok(file) => format!(
                "{loss}; everything acknowledged is in {file}: restore it with `surehook restore {file} --force`",
                file = file.display()
            ),
            Err(error) => format!("{loss}; copying the open database failed: {error}"),
        };
        tracing::error!("{outcome}");
        self.health.send_modify(|health| {
            health.failure = Some(outcome);
            health.is_rescuing = false;
        });
    }

    fn next_batch(&mut self, queue: &WriterQueue) -> (Vec<Box<dyn WriteJob>>, bool) {
        let mut state = queue.lock();
        if self.last_batch_len >= BUSY_BATCH_MIN {
            state = wait_for_jobs(queue, state, self.last_batch_len.min(GATHER_MAX));
        }
        while state.jobs.is_empty() && !state.is_closed {
            state.wake_at = 1;
            let mut left = self.files.next_check_in();
            if state.has_sightings {
                let until_written =
                    SIGHTINGS_INTERVAL.saturating_sub(self.sightings_written_at.elapsed());
                left = left.min(until_written);
            }
            if left.is_zero() {
                break;
            }
            state =
                queue.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wake_at = 0;
        if self.sightings_written_at.elapsed() >= SIGHTINGS_INTERVAL || state.is_closed {
            state.has_sightings = false;
        }
        let take = state.jobs.len().min(BATCH_MAX);
        self.last_batch_len = take;
        let rest = state.jobs.split_off(take);
        (std::mem::replace(&mut state.jobs, rest), state.is_closed)
    }

    /// Closes the queue and fails all jobs in it.
    fn fail_all(queue: &WriterQueue, health: &WriterHealth) {
        let mut state = queue.lock();
        state.is_closed = true;
        let failure = health.failure.clone().unwrap_or_default();
        for job in state.jobs.drain(..) {
            job.send_result(Err(StoreError::Failed(failure.clone())));
        }
    }

    /// While the reserved space is in use, nothing new is stored.
    fn write_batch(&mut self, jobs: Vec<Box<dyn WriteJob>>, is_closing: bool) {
        let jobs = if self.reserve.restore() { jobs } else { refuse_growth(jobs) };
        self.write_jobs(jobs, is_closing);
    }

    fn write_jobs(&mut self, mut jobs: Vec<Box<dyn WriteJob>>, is_closing: bool) {
        match self.try_batch(&mut jobs, is_closing) {
            Ok(()) => {
                if self.checkpointer.take_disk_full() {
                    self.reserve.release();
                }
                self.set_disk_full(self.reserve.is_released());
                answer_all(jobs, &Ok(()));
                if let Err(error) = self.checkpointer.after_commit(self.connection, &self.reserve) {
                    self.fail(error);
                }
            }
            Err(BatchError::Job(error)) if jobs.len() == 1 => {
                answer_all(jobs, &Err(StoreError::Refused(error.to_string())));
            }
            // One of many failed: each runs again alone.
            Err(BatchError::Job(_)) => {
                for job in jobs {
                    // Once the state of the disk is unknown, nothing more is tried.
                    let failure = self.health.borrow().failure.clone();
                    match failure {
                        None => self.write_jobs(vec![job], false),
                        Some(failure) => job.send_result(Err(StoreError::Failed(failure))),
                    }
                }
            }
            Err(BatchError::DiskFull) => {
                self.set_disk_full(true);
                if self.reserve.release() || self.checkpointer.reuse_log(self.connection) {
                    self.write_jobs(refuse_growth(jobs), is_closing);
                } else {
                    answer_all(jobs, &Err(StoreError::Full));
                }
            }
            Err(BatchError::Failed(error)) => {
                let error = error.to_string();
                self.fail(error.clone());
                answer_all(jobs, &Err(StoreError::Failed(error)));
            }
        }
    }

    /// Stops all writing, even the checkpoint when the file is closed: what is on disk is unknown.
    fn fail(&self, error: String) {
        tracing::error!(%error, "the store failed and accepts no more writes; restart the process");
        checkpoint::disable_checkpoint_on_close(self.connection);
        self.health.send_modify(|health| health.failure = Some(error));
    }

    fn try_batch(
        &mut self,
        jobs: &mut [Box<dyn WriteJob>],
        is_closing: bool,
    ) -> Result<(), BatchError> {
        self.state.counts.clear();
        self.state.cache_updates.clear();
        let sightings_due = is_closing || self.sightings_written_at.elapsed() >= SIGHTINGS_INTERVAL;
        let sightings =
            if sightings_due { self.cache.take_sightings() } else { HashMap::default() };
        let is_changed = match self.run_transaction(jobs, &sightings) {
            Ok(is_changed) => is_changed,
            Err(error) => {
                self.cache.restore_sightings(sightings);
                if !self.connection.is_autocommit() {
                    // If this fails, the next BEGIN fails as well and reports the error.
                    let _rolled_back = self.connection.execute_batch("ROLLBACK");
                }
                self.state.recent_keys.on_rollback();
                self.state.recent_terms.on_rollback();
                // A configuration change that was rolled back may have changed the row numbers.
                self.state.row_numbers =
                    configure::load_row_numbers(self.connection).map_err(rusqlite::Error::from)?;
                return Err(error.into());
            }
        };
        if sightings_due {
            self.sightings_written_at = Instant::now();
        }
        if is_changed && let Some(mark) = &mut self.mark {
            mark.advance();
        }
        self.apply_committed();
        Ok(())
    }

    /// Returns whether anything was changed.
    fn run_transaction(
        &mut self,
        jobs: &mut [Box<dyn WriteJob>],
        sightings: &HashMap<EventId, DuplicateSightings>,
    ) -> Result<bool> {
        let changes = self.connection.total_changes();
        self.sql.get(BEGIN)?.execute([])?;
        let mut tx = self.state.transaction(self.connection, &mut self.sql);
        for job in jobs {
            job.run(&mut tx)?;
        }
        duplicates::write_sightings(&mut tx, sightings)?;
        self.state.recent_keys.write_and_merge(self.connection, &mut self.sql)?;
        self.state.recent_terms.merge_some(&mut self.sql)?;
        self.state.counts.write(self.connection)?;
        // A transaction without changes writes nothing, and must stay as cheap.
        let is_changed = self.connection.total_changes() != changes;
        if is_changed && let Some(mark) = &self.mark {
            self.sql.get(STORE_NUMBER)?.execute([mark.next_number()])?;
        }
        self.sql.get(COMMIT)?.execute([])?;
        Ok(is_changed)
    }

    fn apply_committed(&mut self) {
        self.state.recent_keys.on_commit();
        self.state.recent_terms.on_commit();
        self.cache.change_counts(|counts| self.state.counts.apply(counts));
        for update in self.state.cache_updates.drain(..) {
            match update {
                CacheUpdate::InsertKey(key, entry) => self.cache.insert_key(key, entry),
                CacheUpdate::RemoveKey(key) => self.cache.remove_key(key),
            }
        }
    }

    fn set_disk_full(&self, is_full: bool) {
        if self.health.borrow().is_disk_full != is_full {
            if is_full {
                tracing::error!("the disk is full; no events are accepted until space is freed");
            } else {
                tracing::info!("the disk has free space again; events are accepted");
            }
            self.health.send_modify(|health| health.is_disk_full = is_full);
        }
    }
}

/// Waits until `enough` jobs are queued, but no longer than [`GATHER_TIMEOUT`].
fn wait_for_jobs<'q>(
    queue: &'q WriterQueue,
    mut state: MutexGuard<'q, QueueState>,
    enough: usize,
) -> MutexGuard<'q, QueueState> {
    state.wake_at = enough;
    let is_small = |state: &mut QueueState| state.jobs.len() < enough && !state.is_closed;
    let (state, _) = queue
        .changed
        .wait_timeout_while(state, GATHER_TIMEOUT, is_small)
        .unwrap_or_else(PoisonError::into_inner);
    state
}

/// Begins a new epoch of all lanes, ends the claims of earlier ones and restarts the waits for statuses,
/// in one transaction. The caches are still empty, so they need no update.
fn recover(connection: &Connection, now: Timestamp, state: &mut WriterState) -> Result<()> {
    let mut sql = PreparedStatements::new(connection);
    // The tables may have rows of the previous process.
    let callbacks = callbacks::exist(connection)?;
    state.hints = PresenceHints {
        crash_outcomes: true,
        stored_statuses: true,
        awaited_statuses: true,
        callbacks,
    };
    sql.get(BEGIN)?.execute([])?;
    state.epoch = lanes::next_epoch(connection)?;
    let epoch = state.epoch;
    let mut tx = state.transaction(connection, &mut sql);
    let released = claims::end_epochs(&mut tx, EndedEpochs::before(epoch, None), now)?;
    let awaited_statuses = awaited_statuses::restart_waits(connection, None, now)?;
    state.counts.write(connection)?;
    sql.get(COMMIT)?.execute([])?;
    if released > 0 {
        tracing::info!(released, "released deliveries that the previous process left in flight");
    }
    state.hints = PresenceHints { awaited_statuses, callbacks, ..PresenceHints::default() };
    Ok(())
}

/// Answers what would store something new; returns the rest.
fn refuse_growth(jobs: Vec<Box<dyn WriteJob>>) -> Vec<Box<dyn WriteJob>> {
    let (growth, rest) = jobs.into_iter().partition(|job| job.is_growth());
    answer_all(growth, &Err(StoreError::Full));
    rest
}

fn answer_all(jobs: Vec<Box<dyn WriteJob>>, outcome: &Result<(), StoreError>) {
    for job in jobs {
        job.send_result(outcome.clone());
    }
}

/// Why a batch was not committed, by its consequence.
enum BatchError {
    Job(rusqlite::Error),
    DiskFull,
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for BatchError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                Self::DiskFull
            }
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OutOfMemory,
            ) => Self::Failed(error),
            _ => Self::Job(error),
        }
    }
}
