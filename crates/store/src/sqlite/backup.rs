//! Backup: a consistent copy of the whole database, made while the gateway runs.
//!
//! One read transaction holds the snapshot while it is copied. It does not block the writer; it
//! only keeps the log from being reset, so the log grows meanwhile. The copy gets its final name
//! last: a file of that name is complete and was checked.

use std::{
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

use super::{
    DATABASE, OpenError, commit_mark, folder,
    inspect::{self, CheckDepth, open_existing},
    schema::{self, read_schema_version},
    start_check,
};

/// Pages copied between two progress reports: 4 MiB.
const STEP_PAGES: i32 = 1024;

/// Counts that show whether two databases hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseContents {
    pub events: u64,
    pub deliveries: u64,
    /// Deliveries that have not ended; due when a gateway starts on this database.
    pub waiting: u64,
    /// Those of `waiting` that were being attempted at the time of the snapshot.
    pub in_flight: u64,
    /// Schema version.
    pub schema: usize,
}

/// Why no backup was made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot copy the database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is damaged: {fault}", path.display())]
    Damaged { path: PathBuf, fault: String },
    #[error("the copy differs from the original: {0:?} instead of {1:?}")]
    ContentsDiffer(Box<DatabaseContents>, Box<DatabaseContents>),
    /// The caller stopped it.
    #[error("stopped before the copy was complete; no file was written")]
    Stopped,
}

/// Copies the database in `data` to the file `to`. The copy is written to a temporary name, synced
/// and checked before it is renamed. `progress` gets the copied and the total pages, and can stop
/// it.
pub fn backup(
    data: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<DatabaseContents, BackupError> {
    let part = with_suffix(to, "part");
    let result = copy_to(data, &part, progress).and_then(|contents| {
        rename_durably(&part, to)
            .map_err(|source| BackupError::File { path: to.to_owned(), source })?;
        Ok(contents)
    });
    if result.is_err() {
        // A partial copy is useless; the first error is the one to report.
        let _gone = fs::remove_file(&part);
    }
    result
}

/// Copies a database that this process has open, even if its files have lost their names.
pub(super) fn copy_open(source: &Connection, to: &Path) -> Result<(), BackupError> {
    let part = with_suffix(to, "part");
    if !source.is_autocommit() {
        source.execute_batch("ROLLBACK")?;
    }
    source.execute_batch("BEGIN")?;
    write_copy(source, &part, &mut |_, _| ControlFlow::Continue(()))?;
    rename_durably(&part, to).map_err(|source| BackupError::File { path: to.to_owned(), source })
}

fn copy_to(
    data: &Path,
    part: &Path,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<DatabaseContents, BackupError> {
    // Before the snapshot, so that the snapshot of an intact database is never behind.
    let mark = start_check::check_files(data)?;
    let source = open_existing(&data.join(DATABASE))?;
    // The first read fixes the snapshot for the whole transaction.
    source.execute_batch("BEGIN")?;
    let position = commit_mark::read_position(&source)?;
    start_check::check_position(data, mark, position)?;
    write_copy(&source, part, progress)
}

/// Copies the snapshot of a transaction that has begun.
fn write_copy(
    source: &Connection,
    part: &Path,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<DatabaseContents, BackupError> {
    let file_error = |source| BackupError::File { path: part.to_owned(), source };
    let expected = count_contents(source)?;
    let file = folder::create_private_file(part).map_err(file_error)?;
    let mut copy = open_without_links(part)?;
    // The copy is used only once it is complete and synced, so it needs no journal.
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    copy_pages(source, &mut copy, progress)?;
    // From here on the copy has commits of its own, so its numbers belong to a new epoch.
    if commit_mark::read_position(&copy)?.is_some() {
        commit_mark::begin_epoch(&copy)?;
    }
    // Makes the copy a single file: otherwise it would expect a log next to it.
    copy.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    copy.close().map_err(|(_, error)| error)?;
    file.sync_all().map_err(file_error)?;
    let found = check_database(part)?;
    if found != expected {
        return Err(BackupError::ContentsDiffer(Box::new(found), Box::new(expected)));
    }
    Ok(found)
}

/// Opens an existing file that must not be a link; the folders that lead to it may be.
fn open_without_links(file: &Path) -> Result<Connection, BackupError> {
    let file_error = |source| BackupError::File { path: file.to_owned(), source };
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().map_err(file_error)?;
    let path = folder.join(file.file_name().unwrap_or_default());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    Ok(Connection::open_with_flags(path, flags)?)
}

fn copy_pages(
    source: &Connection,
    copy: &mut Connection,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(), BackupError> {
    let backup = Backup::new(source, copy)?;
    loop {
        let step = backup.step(STEP_PAGES)?;
        let now = backup.progress();
        let total = u64::try_from(now.pagecount).unwrap_or(0);
        let left = u64::try_from(now.remaining).unwrap_or(0);
        if progress(total - left.min(total), total).is_break() {
            return Err(BackupError::Stopped);
        }
        if step == StepResult::Done {
            return Ok(());
        }
    }
}

/// Checks a database that no process has open, and returns its counts. Leaves no side files.
pub fn check_database(file: &Path) -> Result<DatabaseContents, BackupError> {
    if !file.is_file() {
        return Err(OpenError::Missing(file.to_owned()).into());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    schema::check_application_id(&connection, file)?;
    let faults = inspect::find_faults(&connection, CheckDepth::Quick)?;
    match faults.first() {
        Some(fault) => Err(BackupError::Damaged { path: file.to_owned(), fault: fault.clone() }),
        None => count_contents(&connection),
    }
}

fn count_contents(connection: &Connection) -> Result<DatabaseContents, BackupError> {
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get(0));
    Ok(DatabaseContents {
        events: count("SELECT count(*) FROM events")?,
        deliveries: count("SELECT count(*) FROM deliveries")?,
        waiting: count("SELECT count(*) FROM deliveries WHERE ended_at IS NULL")?,
        in_flight: count("SELECT count(*) FROM deliveries WHERE lane_epoch IS NOT NULL")?,
        schema: read_schema_version(connection)?,
    })
}

fn with_suffix(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

/// Renames a synced file so that the new name survives a power failure.
pub(super) fn rename_durably(part: &Path, to: &Path) -> io::Result<()> {
    fs::rename(part, to)?;
    match to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => folder::sync_folder(parent),
        None => folder::sync_folder(Path::new(".")),
    }
}
