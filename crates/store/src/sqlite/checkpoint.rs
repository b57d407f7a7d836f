//! Copies the log back into the database file, beside the writer.
//!
//! SQLite would do this within a commit every now and then, and everybody who waits for that commit
//! would wait for it too: some ten milliseconds of copying and syncing. So a thread of its own does
//! the copying, as often as needed until only little is left, and then the writer does that rest
//! between two commits. It must be the writer: the log begins anew only when nothing is left to
//! copy at the moment a transaction begins.
//!
//! A copy that fails costs nothing but room: what the log holds stays there, and the next try
//! copies it again.

use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::Connection;

use super::schema;

/// Pages in the log at which copying begins: 16 MiB. A longer log costs a little less work and makes
/// the slowest answers slower.
const BEGIN_AT: usize = 4000;
/// Pages that the writer may copy itself: about a millisecond.
const REST_MAX: usize = 400;
/// Rounds of copying before the rest is left to the writer, however much it is.
const ROUNDS_MAX: usize = 5;
/// The wait after a copy that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Nobody's: there is little to copy.
    Idle,
    /// The thread copies.
    Thread,
    /// The writer copies the rest.
    Writer,
    /// It is over.
    Closed,
}

struct Shared {
    turn: Mutex<Turn>,
    changed: Condvar,
    /// Pages in the log after the last commit.
    pages: AtomicUsize,
}

impl Shared {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the turn on, unless it is over.
    fn pass(&self, to: Turn) {
        let mut turn = self.turn();
        if *turn != Turn::Closed {
            *turn = to;
            self.changed.notify_one();
        }
    }
}

/// The writer's handle to the thread. Dropping it ends the thread.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread and takes the copying over from `writer`.
    pub(super) fn start(file: &Path, writer: &mut Connection) -> rusqlite::Result<Self> {
        let shared = Arc::new(Shared {
            turn: Mutex::new(Turn::Idle),
            changed: Condvar::new(),
            pages: AtomicUsize::new(0),
        });
        writer.pragma_update(None, "wal_autocheckpoint", 0)?;
        writer.wal_hook(Some({
            let shared = Arc::clone(&shared);
            move |_: &mut rusqlite::hooks::Wal, pages| {
                shared.pages.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }
        }))?;
        let connection = schema::open_copier(file)?;
        let thread = std::thread::Builder::new()
            .name("surehook-copier".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || run(&connection, &shared)
            })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// To be called after each commit, once everybody was answered.
    pub(super) fn after_commit(&self, writer: &Connection) {
        let turn = *self.shared.turn();
        match turn {
            Turn::Idle if self.shared.pages.load(Ordering::Relaxed) >= BEGIN_AT => {
                self.shared.pass(Turn::Thread);
            }
            Turn::Writer => {
                if let Err(error) = copy(writer) {
                    tracing::warn!(%error, "could not copy the rest of the log into the database");
                }
                self.shared.pass(Turn::Idle);
            }
            Turn::Idle | Turn::Thread | Turn::Closed => {}
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.pass(Turn::Closed);
        if let Some(thread) = self.thread.take() {
            // It holds nothing that could be lost.
            let _panicked = thread.join();
        }
    }
}

fn run(connection: &Connection, shared: &Shared) {
    loop {
        let mut turn = shared.turn();
        while !matches!(*turn, Turn::Thread | Turn::Closed) {
            turn = shared.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        if *turn == Turn::Closed {
            return;
        }
        drop(turn);
        match copy_most(connection, shared) {
            Ok(()) => shared.pass(Turn::Writer),
            Err(error) => {
                tracing::warn!(%error, "could not copy the log into the database; trying again");
                let turn = shared.turn();
                let is_open = |turn: &mut Turn| *turn != Turn::Closed;
                drop(shared.changed.wait_timeout_while(turn, PAUSE, is_open));
                shared.pass(Turn::Idle);
            }
        }
    }
}

/// Copies until little is left: the log grows meanwhile, but not as fast.
fn copy_most(connection: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    for _ in 0..ROUNDS_MAX {
        let copied = copy(connection)?;
        let pages = shared.pages.load(Ordering::Relaxed);
        if pages.saturating_sub(copied) <= REST_MAX || *shared.turn() == Turn::Closed {
            break;
        }
    }
    Ok(())
}

/// Copies what no reader still needs in the log; says how many of its pages are copied in all.
fn copy(connection: &Connection) -> rusqlite::Result<usize> {
    let copied: i64 =
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2))?;
    Ok(usize::try_from(copied).unwrap_or(0))
}
