//! The thread that owns the connection: all waiting steps in one transaction, answered after `COMMIT`.

use std::{
    fmt, io,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use surehook_types::{rng::Rng, time::Clock};
use tokio::sync::{mpsc, oneshot};

use super::rules;
use crate::DedupError;

/// Maximum number of queued steps; further callers wait until there is room.
const QUEUE_MAX: usize = 4096;
/// Maximum number of steps of one transaction.
const STEPS_PER_COMMIT: usize = 1024;
/// Number of expired keys that a transaction removes for each of its steps, so that they do not pile up.
const PRUNED_PER_STEP: usize = 2;
/// The version of the tables, in `user_version`.
const SCHEMA_VERSION: i64 = 1;

/// Runs a step in the transaction. Without a connection the step is not run, because the transaction failed.
type WriteJob = Box<dyn FnOnce(Option<&Connection>) -> JobOutcome + Send>;
/// Answers the caller, with the error if the transaction failed.
type WriteReply = Box<dyn FnOnce(Option<DedupError>) + Send>;

/// The outcome of a job before its transaction has ended.
struct JobOutcome {
    reply: WriteReply,
    /// Why the step failed; it changed nothing then.
    error: Option<rusqlite::Error>,
}

/// Hands steps to the writer thread.
#[derive(Clone)]
pub(super) struct WriteQueue(mpsc::Sender<WriteJob>);

impl fmt::Debug for WriteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteQueue")
    }
}

fn writer_stopped() -> DedupError {
    DedupError::Unavailable("the writer thread has stopped; open the file again".to_owned())
}

impl WriteQueue {
    /// Runs a step in a transaction; `Ok` means that it is committed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DedupError> {
        let (sender, receiver) = oneshot::channel();
        let job: WriteJob = Box::new(move |connection| {
            let (result, error) = match connection.map(step) {
                Some(Ok(value)) => (Ok(value), None),
                Some(Err(error)) => (Err(convert_error(&error)), Some(error)),
                None => (Err(writer_stopped()), None),
            };
            let reply: WriteReply = Box::new(move |failure| {
                let answer = match failure {
                    Some(error) => Err(error),
                    None => result,
                };
                // The caller may have gone away.
                drop(sender.send(answer));
            });
            JobOutcome { reply, error }
        });
        self.0.send(job).await.map_err(|_| writer_stopped())?;
        receiver.await.map_err(|_| writer_stopped())?
    }
}

fn convert_error(error: &rusqlite::Error) -> DedupError {
    let is_unreadable = matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
    );
    let text = error.to_string();
    if is_unreadable { DedupError::Corrupt(text) } else { DedupError::Unavailable(text) }
}

/// Opens the file with its settings and tables.
pub(super) fn open_connection(
    path: &Path,
    busy_timeout: Duration,
    rng: &dyn Rng,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy_timeout)?;
    // Another process that opens the file at the same time makes the switch to WAL fail at once,
    // whatever the timeout is.
    let started = Instant::now();
    while let Err(error) = prepare(&connection, rng) {
        if !is_busy(&error) || started.elapsed() >= busy_timeout {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the state of the file is unknown after this error.
fn is_fatal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

fn prepare(connection: &Connection, rng: &dyn Rng) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let created = create_tables(connection, rng);
    connection.execute_batch(if created.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    created
}

fn create_tables(connection: &Connection, rng: &dyn Rng) -> rusqlite::Result<()> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version > SCHEMA_VERSION {
        let text = format!("the file has version {version}, which needs a newer surehook-dedup");
        let error = io::Error::new(io::ErrorKind::Unsupported, text);
        return Err(rusqlite::Error::ToSqlConversionFailure(error.into()));
    }
    rules::create_tables(connection, rng)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Starts the thread. It ends when all queues are dropped.
pub(super) fn start_writer(connection: Connection, clock: Arc<dyn Clock>) -> WriteQueue {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let writer = WriterState { connection, clock, failure: None };
    // Without a thread the receiver is dropped, and every step fails with `writer_stopped`.
    let spawned = thread::Builder::new()
        .name("surehook-dedup".to_owned())
        .spawn(move || writer.run(receiver));
    drop(spawned);
    WriteQueue(sender)
}

struct WriterState {
    connection: Connection,
    clock: Arc<dyn Clock>,
    /// Set after an I/O error. The state of the file is unknown then: a later sync that succeeds proves
    /// nothing.
    failure: Option<DedupError>,
}

impl WriterState {
    fn run(mut self, mut queue: mpsc::Receiver<WriteJob>) {
        let mut jobs = Vec::new();
        while queue.blocking_recv_many(&mut jobs, STEPS_PER_COMMIT) > 0 {
            let mut replies = Vec::with_capacity(jobs.len());
            let mut jobs = jobs.drain(..);
            let outcome = match &self.failure {
                Some(failure) => Err(failure.clone()),
                None => self
                    .run_transaction(&mut jobs, &mut replies)
                    .map_err(|error| self.abort(&error)),
            };
            // Jobs that did not run are answered with the same error.
            replies.extend(jobs.map(|job| job(None).reply));
            let failure = outcome.err();
            for reply in replies {
                reply(failure.clone());
            }
        }
    }

    fn run_transaction(
        &self,
        jobs: &mut impl ExactSizeIterator<Item = WriteJob>,
        replies: &mut Vec<WriteReply>,
    ) -> rusqlite::Result<()> {
        let steps = jobs.len();
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let changes = self.connection.total_changes();
        for job in jobs {
            let JobOutcome { reply, error } = job(Some(&self.connection));
            replies.push(reply);
            // An error that ends the whole transaction: nothing may run outside of it.
            let has_ended = self.connection.is_autocommit();
            if has_ended || error.as_ref().is_some_and(is_fatal) {
                return Err(error.unwrap_or(rusqlite::Error::InvalidQuery));
            }
        }
        self.prune(changes, steps)?;
        self.connection.execute_batch("COMMIT")
    }

    /// Removes expired keys along with changes; a transaction without changes needs no sync.
    fn prune(&self, changes_before: u64, steps: usize) -> rusqlite::Result<()> {
        if self.connection.total_changes() == changes_before {
            return Ok(());
        }
        rules::prune(&self.connection, self.clock.now(), steps * PRUNED_PER_STEP).map(drop)
    }

    fn abort(&mut self, error: &rusqlite::Error) -> DedupError {
        if !self.connection.is_autocommit() {
            // If this fails, so does the next BEGIN.
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        if is_fatal(error) {
            let text = format!("{error}; the file must be opened again");
            self.failure = Some(DedupError::Unavailable(text));
        }
        convert_error(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, ClaimKey, ClaimRequest, ThreadRandom, WallClock};

    #[test]
    fn connection_syncs_every_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dedup.db");
        let connection = open_connection(&path, Duration::ZERO, &ThreadRandom).unwrap();
        let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0));
        assert_eq!(read("journal_mode").unwrap(), "wal");
        let level: i64 =
            connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(level, 2, "FULL");
    }

    fn request(number: usize) -> ClaimRequest {
        let name = format!("{number}-{}", "x".repeat(400));
        let key = ClaimKey::new("test", &name).unwrap();
        let (lease, ttl) = (Duration::from_secs(600), Duration::from_secs(1200));
        ClaimRequest { key, fingerprint: None, lease, ttl }
    }

    async fn claim(queue: &WriteQueue, number: usize) -> Result<Claim, DedupError> {
        let request = request(number);
        let now = WallClock.now();
        queue.run(move |connection| rules::claim(connection, &request, now, &ThreadRandom)).await
    }

    #[tokio::test]
    async fn full_file_fails_whole_batches_and_loses_no_answered_claim() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dedup.db");
        let connection = open_connection(&path, Duration::ZERO, &ThreadRandom).unwrap();
        let pages: u64 =
            connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |row: &rusqlite::Row<'_>| row.get::<_, u64>(0);
        connection.pragma_update_and_check(None, "max_page_count", pages + 20, limit).unwrap();
        let queue = start_writer(connection, Arc::new(WallClock));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..500 {
            let queue = queue.clone();
            tasks.spawn(async move { (number, claim(&queue, number).await) });
        }
        let (mut granted, mut failures) = (Vec::new(), 0);
        for (number, answer) in tasks.join_all().await {
            match answer {
                Ok(Claim::Claimed(_)) => granted.push(number),
                Err(DedupError::Unavailable(text)) => {
                    assert!(text.contains("full"), "{text}");
                    failures += 1;
                }
                other => panic!("{number}: {other:?}"),
            }
        }
        assert!(failures > 0);
        // Reading works, and what was not answered was not stored.
        let check = Connection::open(&path).unwrap();
        let rows: usize = check
            .query_row("SELECT count(*) FROM surehook_dedup_claims", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, granted.len());
        for number in granted {
            assert!(matches!(claim(&queue, number).await, Ok(Claim::InProgress { .. })));
        }
    }
}
