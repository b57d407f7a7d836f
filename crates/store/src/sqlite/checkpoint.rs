//! Checkpoints: copies the write-ahead log into the database file, next to the writer.
//!
//! SQLite would do this during some commits, and delay all callers waiting for them by about ten
//! milliseconds. So a separate thread copies most of the log, and the writer copies the small rest
//! between two commits. It must be the writer: the log is reset only if nothing is left to copy
//! when a transaction begins.
//!
//! With little traffic the thread copies the log every few seconds, so that little depends on the log
//! alone; when the store is closed, the writer copies all of it. Between copies the thread syncs the
//! commit mark, a file with the number of the last commit.
//!
//! A copy that fails for lack of space, or because of a reader, is tried again. Any other error is
//! final: pages that SQLite counts as copied may not be on disk, and a later copy would let the log
//! overwrite the only good ones. The log itself is intact; the next start copies all of it again.

use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, Result, config::DbConfig};
use tokio::sync::watch;

use super::{commit_mark::MarkFile, reserve::SpaceReserve, schema};

/// Log size in pages at which copying starts: 32 MiB, or 16 MiB in a file with small pages. Three
/// times as many made no measurable difference.
const START_PAGES: usize = 4000;
/// The same while the disk is full and the reserved space must last.
const TIGHT_START_PAGES: usize = 64;
/// The log is copied at least this often, however small it is.
const COPY_INTERVAL: Duration = Duration::from_secs(5);
/// How often the commit mark is synced.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// Pages that the writer may copy itself without a noticeable delay.
const REMAINING_PAGES_MAX: usize = 400;
/// Rounds of copying before the rest is left to the writer, however large it is.
const ROUNDS_MAX: usize = 5;
/// Pause after a failed copy, and after one that a reader blocked.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const READER_PAUSE: Duration = Duration::from_millis(50);

/// The thread that copies next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckpointTurn {
    /// There is little to copy.
    Idle,
    Thread,
    /// The writer copies the rest.
    Writer,
    Closed,
}

struct CheckpointState {
    turn: Mutex<CheckpointTurn>,
    changed: Condvar,
    /// Pages in the log after the last commit.
    pages: AtomicUsize,
    is_disk_full: AtomicBool,
    /// Commits since the start.
    commits: AtomicUsize,
    mark: Option<Arc<MarkFile>>,
    /// The error after which nothing may be copied any more.
    failed: watch::Sender<Option<String>>,
}

impl CheckpointState {
    fn turn(&self) -> MutexGuard<'_, CheckpointTurn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, reason: String) {
        self.failed.send_replace(Some(reason));
        self.hand_over(CheckpointTurn::Closed);
    }

    /// Passes the turn on, unless the checkpointer is closed.
    fn hand_over(&self, to: CheckpointTurn) {
        let mut turn = self.turn();
        if *turn != CheckpointTurn::Closed {
            *turn = to;
            self.changed.notify_one();
        }
    }

    /// Waits for `pause`, or until the checkpointer is closed, and returns the turn to `Idle`.
    fn pause(&self, pause: Duration) {
        let is_open = |turn: &mut CheckpointTurn| *turn != CheckpointTurn::Closed;
        drop(self.changed.wait_timeout_while(self.turn(), pause, is_open));
        self.hand_over(CheckpointTurn::Idle);
    }
}

/// The writer's handle to the thread. Dropping it ends the thread.
pub(super) struct Checkpointer {
    state: Arc<CheckpointState>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread and disables the automatic checkpoints of `writer`.
    pub(super) fn start(
        file: &Path,
        writer: &mut Connection,
        mark: Option<Arc<MarkFile>>,
    ) -> Result<Self> {
        let state = Arc::new(CheckpointState {
            turn: Mutex::new(CheckpointTurn::Idle),
            changed: Condvar::new(),
            pages: AtomicUsize::new(0),
            is_disk_full: AtomicBool::new(false),
            commits: AtomicUsize::new(0),
            mark,
            failed: watch::Sender::new(None),
        });
        writer.pragma_update(None, "wal_autocheckpoint", 0)?;
        writer.wal_hook(Some({
            let state = Arc::clone(&state);
            move |_: &mut rusqlite::hooks::Wal, pages| {
                state.pages.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                state.commits.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }))?;
        let connection = schema::open_checkpointer(file)?;
        let thread = std::thread::Builder::new()
            .name("surehook-copier".to_owned())
            .spawn({
                let state = Arc::clone(&state);
                move || run(&connection, &state)
            })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Set once the thread has ended by itself.
    pub(super) fn failure(&self) -> watch::Receiver<Option<String>> {
        self.state.failed.subscribe()
    }

    /// Whether a copy failed because the disk is full, since the last call.
    pub(super) fn take_disk_full(&self) -> bool {
        self.state.is_disk_full.swap(false, Ordering::Relaxed)
    }

    /// Called after each commit, once all callers have their answer. An error means that the store
    /// has failed.
    ///
    /// The log is kept so short that it fits into the reserve, and shorter while that is in use. Where
    /// the thread is too slow for that and the disk nearly full, the writer copies it.
    pub(super) fn after_commit(
        &self,
        writer: &Connection,
        reserve: &SpaceReserve,
    ) -> Result<(), String> {
        let start_pages = match reserve.log_pages_max() {
            Some(_) if reserve.is_released() => TIGHT_START_PAGES,
            Some(pages) => pages.clamp(TIGHT_START_PAGES, START_PAGES),
            None => START_PAGES,
        };
        if reserve.must_shorten_log(self.state.pages.load(Ordering::Relaxed)) {
            self.reuse_log(writer);
        }
        let turn = *self.state.turn();
        match turn {
            CheckpointTurn::Idle if self.state.pages.load(Ordering::Relaxed) >= start_pages => {
                self.state.hand_over(CheckpointTurn::Thread);
            }
            CheckpointTurn::Writer => {
                match checkpoint(writer) {
                    Ok(_) => {}
                    Err(error) if is_retryable(&error) => {
                        tracing::warn!(%error, "could not checkpoint the rest of the log; trying again");
                    }
                    Err(error) => return Err(error.to_string()),
                }
                self.state.hand_over(CheckpointTurn::Idle);
            }
            CheckpointTurn::Idle | CheckpointTurn::Thread => {}
            CheckpointTurn::Closed => {
                if let Some(reason) = self.state.failed.borrow().clone() {
                    return Err(reason);
                }
            }
        }
        Ok(())
    }

    /// Copies the whole log, so that the next commit uses its space again; returns whether it will. For
    /// a disk that is nearly full: the log may grow faster than the thread copies it.
    pub(super) fn reuse_log(&self, writer: &Connection) -> bool {
        if self.state.pages.load(Ordering::Relaxed) == 0 {
            return false;
        }
        match writer.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)) {
            Ok(true) => false,
            Ok(false) => {
                self.state.pages.store(0, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "could not copy the log on a nearly full disk; trying again");
                let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
                self.state.is_disk_full.fetch_or(is_full, Ordering::Relaxed);
                false
            }
        }
    }

    /// Ends the thread and copies the whole log, so that the database is complete without it. Called
    /// when the store is closed; a reader that still needs the log is waited for, but not long. Returns
    /// whether the database is in order, with or without its log.
    pub(super) fn finish(&mut self, writer: &Connection) -> bool {
        self.stop();
        if self.state.failed.borrow().is_some() {
            disable_checkpoint_on_close(writer);
            return false;
        }
        let copied = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        match copied {
            Ok(false) => true,
            Ok(true) => {
                tracing::warn!("a reader still needs the log; the next start copies it");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "could not copy the log; the next start copies it");
                disable_checkpoint_on_close(writer);
                is_retryable(&error)
            }
        }
    }

    fn stop(&mut self) {
        self.state.hand_over(CheckpointTurn::Closed);
        if let Some(thread) = self.thread.take() {
            // The thread holds nothing that could be lost.
            let _panicked = thread.join();
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reports a thread that ends without being closed, also by a panic: nothing would copy the log any
/// more, and it would grow until the disk is full.
struct ThreadEndGuard<'s>(&'s CheckpointState);

impl Drop for ThreadEndGuard<'_> {
    fn drop(&mut self) {
        let is_closed = *self.0.turn() == CheckpointTurn::Closed;
        if !is_closed {
            self.0.fail("the checkpoint thread has ended unexpectedly".to_owned());
        }
    }
}

fn run(connection: &Connection, state: &CheckpointState) {
    let _guard = ThreadEndGuard(state);
    let mut copied = CopiedState { commits: 0, at: Instant::now() };
    while let Some(is_due_by_size) = wait_until_due(state, &mut copied) {
        let commits = state.commits.load(Ordering::Relaxed);
        let result = if is_due_by_size {
            checkpoint_most(connection, state)
        } else {
            checkpoint(connection).map(|_| CheckpointTurn::Idle)
        };
        copied = CopiedState { commits, at: Instant::now() };
        let is_disk_full = result
            .as_ref()
            .is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DiskFull));
        state.is_disk_full.fetch_or(is_disk_full, Ordering::Relaxed);
        match result {
            // Nothing to hand over: the turn was not taken.
            Ok(CheckpointTurn::Idle) if !is_due_by_size => {}
            Ok(CheckpointTurn::Idle) => state.pause(READER_PAUSE),
            Ok(next) => state.hand_over(next),
            Err(error) if is_retryable(&error) => {
                tracing::warn!(%error, "could not checkpoint the log; trying again");
                state.pause(RETRY_PAUSE);
            }
            Err(error) => return state.fail(error.to_string()),
        }
    }
}

/// The last copy made by the thread.
struct CopiedState {
    commits: usize,
    at: Instant,
}

/// Waits until the log is to be copied. `Some(true)`: it is large, and the thread has the turn.
/// `Some(false)`: the last copy is a while ago. `None`: the checkpointer is closed.
fn wait_until_due(state: &CheckpointState, copied: &mut CopiedState) -> Option<bool> {
    loop {
        let is_idle = |turn: &mut CheckpointTurn| {
            !matches!(*turn, CheckpointTurn::Thread | CheckpointTurn::Closed)
        };
        let waited = state.changed.wait_timeout_while(state.turn(), MARK_INTERVAL, is_idle);
        // The lock is released before anything is synced: the writer takes it after each commit.
        let turn = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if let Some(mark) = &state.mark {
            mark.sync();
        }
        match turn {
            CheckpointTurn::Closed => return None,
            CheckpointTurn::Thread => return Some(true),
            CheckpointTurn::Idle if copied.at.elapsed() >= COPY_INTERVAL => {
                if state.commits.load(Ordering::Relaxed) != copied.commits {
                    return Some(false);
                }
                copied.at = Instant::now();
            }
            CheckpointTurn::Idle | CheckpointTurn::Writer => {}
        }
    }
}

/// Whether a failed copy can be tried again: no page was counted as copied that is not.
fn is_retryable(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Copies until little is left: the log grows meanwhile, but more slowly. Returns who copies next.
fn checkpoint_most(connection: &Connection, state: &CheckpointState) -> Result<CheckpointTurn> {
    let mut before = None;
    for _ in 0..ROUNDS_MAX {
        let copied = checkpoint(connection)?;
        let rest = state.pages.load(Ordering::Relaxed).saturating_sub(copied);
        if rest <= REMAINING_PAGES_MAX || *state.turn() == CheckpointTurn::Closed {
            return Ok(CheckpointTurn::Writer);
        }
        if before == Some(copied) {
            // A reader still needs the rest, so the writer could not copy it either.
            return Ok(CheckpointTurn::Idle);
        }
        before = Some(copied);
    }
    Ok(CheckpointTurn::Writer)
}

/// Prevents the checkpoint that SQLite makes when the last connection is closed.
pub(super) fn disable_checkpoint_on_close(connection: &Connection) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::error!(%error, "could not disable the checkpoint on close");
    }
}

/// Copies what no reader needs any more; returns how many pages of the log are copied in total.
fn checkpoint(connection: &Connection) -> Result<usize> {
    let copied: i64 =
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2))?;
    Ok(usize::try_from(copied).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::{
        super::{
            cache::StoreCache,
            folder,
            writer::{Writer, WriterResources},
        },
        *,
    };

    #[tokio::test]
    async fn checkpoint_thread_that_panics_fails_the_idle_store() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder::lock(folder.path()).unwrap();
        let reserve = SpaceReserve::open(folder.path());
        let file = folder.path().join("a.db");
        let mut connection = schema::open_writer(&file).unwrap();
        let checkpointer = Checkpointer::start(&file, &mut connection, None).unwrap();
        let state = Arc::clone(&checkpointer.state);
        let writer = Writer::start(
            WriterResources {
                connection,
                checkpointer,
                mark: None,
                file,
                merge_at: 1000,
                reserve,
                folder_key: None,
                lock,
            },
            Arc::new(StoreCache::new(10)),
            10,
            Timestamp::from_millis(0),
        )
        .unwrap();

        let thread = std::thread::spawn(move || {
            let _guard = ThreadEndGuard(&state);
            panic!("killed by the test");
        });
        thread.join().unwrap_err();

        let reason = writer.wait_for_failure().await;
        assert!(reason.contains("checkpoint thread"), "{reason}");
    }

    #[test]
    fn closed_checkpoint_thread_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let mut writer = schema::open_writer(&file).unwrap();
        let checkpointer = Checkpointer::start(&file, &mut writer, None).unwrap();
        let failure = checkpointer.failure();

        drop(checkpointer);

        assert_eq!(*failure.borrow(), None);
    }
}
