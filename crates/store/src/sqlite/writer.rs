//! The one writer: a thread that turns whatever waits into a single transaction.
//!
//! While a commit is being synced, new jobs gather; the next transaction takes all of them. Under
//! load the batches grow by themselves and the cost of an fsync is shared, and a small one waits a
//! moment for more; with little traffic a job is committed at once. Nobody is answered before the
//! commit that holds its work.
//!
//! When something goes wrong:
//! - **One job's statement is refused**: the batch is rolled back and each of its jobs runs again in
//!   a transaction of its own, so that only the culprit fails.
//! - **The disk is full**: the batch is rolled back, everybody in it is told so, the next batch tries
//!   again. Nothing needs a restart.
//! - **Any other I/O error**: it is not known whether the batch is on the disk, and after a failed
//!   fsync the kernel may pretend that it is. The store takes no more work and the process must end;
//!   what the disk holds is found out when it starts again.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode};
use surehook_core::{
    ids::{DestinationId, EventId, SourceId},
    key::KeyDigest,
    store::StoreError,
    time::Timestamp,
};
use tokio::sync::{oneshot, watch};

use super::{
    admit, awaited,
    checkpoint::{self, Checkpointer},
    configure,
    counts::{self, Delta},
    deliver,
    fresh::Fresh,
    memory::{Memory, Remembered},
    prepared::Prepared,
    prune::Sweep,
    terms::FreshTerms,
};

/// Jobs in one transaction. More would make the first ones wait without saving much.
const BATCH_MAX: usize = 1024;
/// A commit has a price of its own, however few jobs it has. So after a batch of [`BUSY_FROM`] jobs, when
/// more are sure to come, the next one waits for as many as the last one had, up to this, but not for long. With more,
/// or for longer, the processors have nothing to do meanwhile (docs/decisions/0002).
const GATHERED_MAX: usize = 64;
const GATHERED_FOR: Duration = Duration::from_millis(1);
const BUSY_FROM: usize = 16;
/// Sightings of duplicates are written this often: the count may be late, never an answer.
const SIGHTINGS_EVERY: Duration = Duration::from_millis(200);

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";

/// A transaction that is being put together.
pub(super) struct Tx<'a, 'c> {
    pub(super) connection: &'c Connection,
    /// The same connection, for what runs for every event.
    pub(super) sql: &'a mut Prepared<'c>,
    pub(super) names: &'a mut Names,
    pub(super) fresh: &'a mut Fresh,
    pub(super) terms: &'a mut FreshTerms,
    pub(super) sweep: &'a mut Sweep,
    pub(super) doubts: &'a mut Doubts,
    pub(super) delta: &'a mut Delta,
    after: &'a mut Vec<After>,
}

/// Whether there may be wills, statuses that wait to be heard, and deliveries that wait for a status:
/// who sends no messages shall not look for them. Once there was one there may always be another;
/// after a rollback too many are looked for, not too few. Opening the file leaves none of the first
/// two.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    pub(super) wills: bool,
    pub(super) said: bool,
    pub(super) awaited: bool,
}

/// What is done once the transaction is committed, and only then.
enum After {
    Remember(KeyDigest, Remembered),
    Forget(KeyDigest),
}

impl Tx<'_, '_> {
    pub(super) fn remember(&mut self, key: KeyDigest, known: Remembered) {
        self.after.push(After::Remember(key, known));
    }

    pub(super) fn forget(&mut self, key: KeyDigest) {
        self.after.push(After::Forget(key));
    }
}

/// Row numbers of the live sources and destinations: ids stay out of the large tables.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) sources: HashMap<SourceId, i64>,
    pub(super) destinations: HashMap<DestinationId, i64>,
}

/// Something that waits to be written.
trait Job: Send {
    fn run(&mut self, tx: &mut Tx<'_, '_>) -> rusqlite::Result<()>;
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Call<F, T> {
    step: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Job for Call<F, T>
where
    F: FnMut(&mut Tx<'_, '_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, tx: &mut Tx<'_, '_>) -> rusqlite::Result<()> {
        self.value = Some((self.step)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { step, value, reply } = *self;
        // First, so that what it shares with whoever waits is freed there: memory that one thread takes
        // and another gives back costs both of them more.
        drop(step);
        let silent = || StoreError::Refused("the step gave no answer".to_owned());
        let answer = outcome.and_then(|()| value.ok_or_else(silent));
        // A caller that no longer waits has lost interest, not the work: it is committed.
        let _gone = reply.send(answer);
    }
}

#[derive(Default)]
struct Waiting {
    jobs: Vec<Box<dyn Job>>,
    /// The writer sleeps until there are so many jobs; 0 while it works.
    wanted: usize,
    sightings: bool,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic elsewhere cannot leave the list half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the writer does, for everybody to see.
#[derive(Clone, Debug, Default)]
struct Condition {
    full: bool,
    failed: Option<String>,
}

/// The handle to the writer thread. Dropping it waits until all that was asked is written.
pub(super) struct Writer {
    queue: Arc<Queue>,
    queue_max: usize,
    condition: watch::Receiver<Condition>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread, after what an earlier process held when it ended is dealt with.
    pub(super) fn start(
        desk: Desk,
        memory: Arc<Memory>,
        queue_max: usize,
        now: Timestamp,
    ) -> rusqlite::Result<Self> {
        let mut names = configure::load_names(&desk.connection)?;
        let mut fresh = Fresh::load(&desk.connection, &desk.file, desk.fold_at)?;
        memory.share_fresh(fresh.keys());
        let mut terms = FreshTerms::load(&desk.connection, desk.fold_at)?;
        let mut sweep = Sweep::load(&desk.connection)?;
        let known = (&mut names, &mut fresh, &mut terms, &mut sweep);
        let doubts = recover(&desk.connection, now, known)?;
        let counts = counts::load(&desk.connection)?;
        memory.change_counts(|shown| *shown = counts);
        let queue = Arc::new(Queue::default());
        let (tell, condition) = watch::channel(Condition::default());
        let Desk { connection, checkpointer, lock, .. } = desk;
        let thread = std::thread::Builder::new()
            .name("surehook-writer".to_owned())
            .spawn({
                let queue = Arc::clone(&queue);
                move || {
                    // Declared in this order, so that the file is closed before the lock is freed.
                    let _lock = lock;
                    let connection = connection;
                    let scribe = Scribe {
                        connection: &connection,
                        sql: Prepared::new(&connection),
                        checkpointer,
                        memory,
                        names,
                        fresh,
                        terms,
                        sweep,
                        doubts,
                        delta: Delta::default(),
                        after: Vec::new(),
                        tell,
                        sightings_written: Instant::now(),
                        last_batch: 0,
                    };
                    scribe.run(&queue);
                }
            })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        Ok(Self { queue, queue_max, condition, thread: Some(thread) })
    }

    /// A writer that takes no work, for whoever only looks.
    pub(super) fn none() -> Self {
        let queue = Queue::default();
        queue.lock().closed = true;
        let (_, condition) = watch::channel(Condition::default());
        Self { queue: Arc::new(queue), queue_max: 0, condition, thread: None }
    }

    /// Runs `step` within the next transaction; answers once that is committed.
    pub(super) async fn write<T, F>(&self, step: F) -> Result<T, StoreError>
    where
        F: FnMut(&mut Tx<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.push(step, usize::MAX)?.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Like [`Self::write`], but refuses when too much waits already.
    pub(super) async fn admit<T, F>(&self, step: F) -> Result<T, StoreError>
    where
        F: FnMut(&mut Tx<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.push(step, self.queue_max)?.await.unwrap_or_else(|_| Err(self.gone()))
    }

    fn push<T, F>(
        &self,
        step: F,
        limit: usize,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        F: FnMut(&mut Tx<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Call { step, value: None, reply });
        let mut waiting = self.queue.lock();
        if waiting.closed {
            drop(waiting);
            return Err(self.gone());
        }
        if waiting.jobs.len() >= limit {
            return Err(StoreError::Overloaded);
        }
        waiting.jobs.push(job);
        let is_awaited = waiting.jobs.len() == waiting.wanted;
        drop(waiting);
        if is_awaited {
            self.queue.changed.notify_one();
        }
        Ok(answer)
    }

    pub(super) fn wake_for_sightings(&self) {
        let mut waiting = self.queue.lock();
        if !waiting.sightings {
            waiting.sightings = true;
            self.queue.changed.notify_one();
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.lock().jobs.len()
    }

    pub(super) fn condition(&self) -> (bool, Option<String>) {
        let condition = self.condition.borrow();
        (condition.full, condition.failed.clone())
    }

    pub(super) async fn failure(&self) -> String {
        let mut condition = self.condition.clone();
        match condition.wait_for(|condition| condition.failed.is_some()).await {
            Ok(condition) => condition.failed.clone().unwrap_or_default(),
            Err(_) => "the writer thread has ended".to_owned(),
        }
    }

    fn gone(&self) -> StoreError {
        let failed = self.condition.borrow().failed.clone();
        StoreError::Failed(failed.unwrap_or_else(|| "the store is closed".to_owned()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has already failed everybody who waited for it.
            let _panicked = thread.join();
        }
    }
}

/// What the writer works with, and alone.
pub(super) struct Desk {
    pub(super) connection: Connection,
    pub(super) checkpointer: Checkpointer,
    pub(super) file: PathBuf,
    pub(super) fold_at: usize,
    /// The lock on the folder, held as long as the thread runs.
    pub(super) lock: File,
}

/// The thread's own things.
struct Scribe<'c> {
    connection: &'c Connection,
    sql: Prepared<'c>,
    checkpointer: Checkpointer,
    memory: Arc<Memory>,
    names: Names,
    fresh: Fresh,
    terms: FreshTerms,
    sweep: Sweep,
    doubts: Doubts,
    delta: Delta,
    after: Vec<After>,
    tell: watch::Sender<Condition>,
    sightings_written: Instant,
    /// How many jobs the last transaction had.
    last_batch: usize,
}

impl Scribe<'_> {
    fn run(mut self, queue: &Queue) {
        loop {
            let (jobs, closing) = self.next_batch(queue);
            let last = closing && jobs.is_empty();
            if last && !self.memory.has_sightings() {
                return;
            }
            self.write_batch(jobs, closing);
            if self.tell.borrow().failed.is_some() {
                return Self::refuse_all(queue, &self.tell.borrow());
            }
            // Sightings that cannot be written now, on a full disk, must not hold up the end.
            if last {
                return;
            }
        }
    }

    fn next_batch(&mut self, queue: &Queue) -> (Vec<Box<dyn Job>>, bool) {
        let mut waiting = queue.lock();
        if self.last_batch >= BUSY_FROM {
            waiting = gather(queue, waiting, self.last_batch.min(GATHERED_MAX));
        }
        while waiting.jobs.is_empty() && !waiting.closed {
            waiting.wanted = 1;
            waiting = if waiting.sightings {
                let left = SIGHTINGS_EVERY.saturating_sub(self.sightings_written.elapsed());
                if left.is_zero() {
                    break;
                }
                let (waiting, _) = queue
                    .changed
                    .wait_timeout(waiting, left)
                    .unwrap_or_else(PoisonError::into_inner);
                waiting
            } else {
                queue.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner)
            };
        }
        waiting.wanted = 0;
        if self.sightings_written.elapsed() >= SIGHTINGS_EVERY || waiting.closed {
            waiting.sightings = false;
        }
        let take = waiting.jobs.len().min(BATCH_MAX);
        self.last_batch = take;
        let rest = waiting.jobs.split_off(take);
        (std::mem::replace(&mut waiting.jobs, rest), waiting.closed)
    }

    /// Everybody who still waits learns why nothing comes.
    fn refuse_all(queue: &Queue, condition: &Condition) {
        let mut waiting = queue.lock();
        waiting.closed = true;
        let why = condition.failed.clone().unwrap_or_default();
        for job in waiting.jobs.drain(..) {
            job.answer(Err(StoreError::Failed(why.clone())));
        }
    }

    fn write_batch(&mut self, mut jobs: Vec<Box<dyn Job>>, closing: bool) {
        match self.try_batch(&mut jobs, closing) {
            Ok(()) => {
                self.tell_full(false);
                answer_all(jobs, &Ok(()));
                if let Err(why) = self.checkpointer.after_commit(self.connection) {
                    self.fail(why);
                }
            }
            Err(Trouble::Job(error)) if jobs.len() == 1 => {
                answer_all(jobs, &Err(StoreError::Refused(error.to_string())));
            }
            // One of many was refused: alone, each is judged for itself.
            Err(Trouble::Job(_)) => {
                for job in jobs {
                    // After a failure that leaves the disk unknown nothing more is tried.
                    let failed = self.tell.borrow().failed.clone();
                    match failed {
                        None => self.write_batch(vec![job], false),
                        Some(why) => job.answer(Err(StoreError::Failed(why))),
                    }
                }
            }
            Err(Trouble::Full) => {
                self.tell_full(true);
                answer_all(jobs, &Err(StoreError::Full));
            }
            Err(Trouble::Failed(error)) => {
                let why = error.to_string();
                self.fail(why.clone());
                answer_all(jobs, &Err(StoreError::Failed(why)));
            }
        }
    }

    /// It is not known what is on the disk. Nothing is written any more, not even when the file is
    /// closed.
    fn fail(&self, why: String) {
        tracing::error!(error = %why, "the store failed; the process must end");
        checkpoint::never_copy_again(self.connection);
        self.tell.send_modify(|condition| condition.failed = Some(why));
    }

    fn try_batch(&mut self, jobs: &mut [Box<dyn Job>], closing: bool) -> Result<(), Trouble> {
        self.delta.clear();
        self.after.clear();
        let sightings_due = closing || self.sightings_written.elapsed() >= SIGHTINGS_EVERY;
        let sightings =
            if sightings_due { self.memory.take_sightings() } else { HashMap::default() };
        let written = self.transact(jobs, &sightings);
        if let Err(error) = written {
            self.memory.put_sightings_back(sightings);
            if !self.connection.is_autocommit() {
                // If even this fails, the next BEGIN will, and says why.
                let _rolled_back = self.connection.execute_batch("ROLLBACK");
            }
            self.fresh.rolled_back();
            self.terms.rolled_back();
            // What a rolled back configuration change did to the names must go as well.
            self.names = configure::load_names(self.connection).map_err(Trouble::from)?;
            return Err(error.into());
        }
        if sightings_due {
            self.sightings_written = Instant::now();
        }
        self.remember_what_is_committed();
        Ok(())
    }

    fn transact(
        &mut self,
        jobs: &mut [Box<dyn Job>],
        sightings: &HashMap<EventId, super::memory::Sighting>,
    ) -> rusqlite::Result<()> {
        self.sql.get(BEGIN)?.execute([])?;
        let mut tx = Tx {
            connection: self.connection,
            sql: &mut self.sql,
            names: &mut self.names,
            fresh: &mut self.fresh,
            terms: &mut self.terms,
            sweep: &mut self.sweep,
            doubts: &mut self.doubts,
            delta: &mut self.delta,
            after: &mut self.after,
        };
        for job in jobs {
            job.run(&mut tx)?;
        }
        admit::write_sightings(&mut tx, sightings)?;
        self.fresh.write(&mut self.sql)?;
        self.terms.fold(&mut self.sql)?;
        self.delta.write(self.connection)?;
        self.sql.get(COMMIT)?.execute([])?;
        Ok(())
    }

    fn remember_what_is_committed(&mut self) {
        self.fresh.committed();
        self.terms.committed();
        self.memory.change_counts(|counts| self.delta.apply(counts));
        for after in self.after.drain(..) {
            match after {
                After::Remember(key, known) => self.memory.remember(key, known),
                After::Forget(key) => self.memory.forget(key),
            }
        }
    }

    fn tell_full(&self, full: bool) {
        if self.tell.borrow().full != full {
            if full {
                tracing::error!("the disk is full; nothing is accepted until there is room");
            } else {
                tracing::info!("the disk has room again");
            }
            self.tell.send_modify(|condition| condition.full = full);
        }
    }
}

/// Waits until so many jobs are there, or for as long as they may take.
fn gather<'q>(
    queue: &'q Queue,
    mut waiting: MutexGuard<'q, Waiting>,
    enough: usize,
) -> MutexGuard<'q, Waiting> {
    waiting.wanted = enough;
    let is_small = |waiting: &mut Waiting| waiting.jobs.len() < enough && !waiting.closed;
    let (waiting, _) = queue
        .changed
        .wait_timeout_while(waiting, GATHERED_FOR, is_small)
        .unwrap_or_else(PoisonError::into_inner);
    waiting
}

/// What the writer knows of the file.
type Known<'a> = (&'a mut Names, &'a mut Fresh, &'a mut FreshTerms, &'a mut Sweep);

/// Deals with what an earlier process held when it ended, in a transaction of its own. Nothing is in
/// memory yet that would have to follow.
fn recover(
    connection: &Connection,
    now: Timestamp,
    (names, fresh, terms, sweep): Known<'_>,
) -> rusqlite::Result<Doubts> {
    let mut sql = Prepared::new(connection);
    let (mut delta, mut after) = (Delta::default(), Vec::new());
    let mut doubts = Doubts { wills: true, said: true, awaited: true };
    sql.get(BEGIN)?.execute([])?;
    let mut tx = Tx {
        connection,
        sql: &mut sql,
        names,
        fresh,
        terms,
        sweep,
        doubts: &mut doubts,
        delta: &mut delta,
        after: &mut after,
    };
    let recovered = deliver::recover(&mut tx, now)?;
    let awaited = awaited::wait_anew(connection, now)?;
    delta.write(connection)?;
    sql.get(COMMIT)?.execute([])?;
    if recovered > 0 {
        tracing::info!(recovered, "dealt with deliveries that an earlier run left in flight");
    }
    Ok(Doubts { awaited, ..Doubts::default() })
}

fn answer_all(jobs: Vec<Box<dyn Job>>, outcome: &Result<(), StoreError>) {
    for job in jobs {
        job.answer(outcome.clone());
    }
}

/// Why a batch was not committed, by what follows.
enum Trouble {
    Job(rusqlite::Error),
    Full,
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => Self::Full,
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
