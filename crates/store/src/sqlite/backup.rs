//! A copy of the whole database as it was at one moment, made while the gateway goes on.
//!
//! One read transaction holds that moment for as long as the copying takes. It keeps the writer
//! from nothing; it only keeps the log from beginning anew, so the log grows by what is written
//! meanwhile. The copy gets its name last: a file under that name is whole and was checked.

use std::{
    fs::{self, File},
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

use super::{
    DATABASE, OpenError, folder,
    inspect::{self, open_existing, schema_version},
};

/// Pages that are copied between two looks at whether to go on: 4 MiB.
const STEP_PAGES: i32 = 1024;

/// What is in a database, enough to see that two hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseContents {
    /// Events.
    pub events: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Deliveries that have not ended; they are due when a gateway starts on this.
    pub waiting: u64,
    /// Of these, the ones that were being tried at that moment.
    pub in_flight: u64,
    /// The version of the schema.
    pub schema: usize,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// SQLite could not copy or read.
    #[error("the database cannot be copied: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is damaged.
    #[error("{} is damaged: {fault}", path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The copy does not hold what the original holds.
    #[error("the copy does not hold what the original does: {0:?} instead of {1:?}")]
    ContentsDiffer(Box<DatabaseContents>, Box<DatabaseContents>),
    /// Whoever asked for it has stopped it.
    #[error("stopped before the copy was whole; nothing was left behind")]
    Stopped,
}

/// Copies the database in `data` to `to`, which must not be there yet in name: it is written
/// under another one, synced and checked first. `progress` hears pages done and pages in all,
/// and may stop it.
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
        // Nothing is left of a copy that is not whole; the first error is the one to tell.
        let _gone = fs::remove_file(&part);
    }
    result
}

fn copy_to(
    data: &Path,
    part: &Path,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<DatabaseContents, BackupError> {
    let file_error = |source| BackupError::File { path: part.to_owned(), source };
    let source = open_existing(&data.join(DATABASE))?;
    // The first read fixes the moment; all that follow see the same one until the end.
    source.execute_batch("BEGIN")?;
    let expected = count_contents(&source)?;
    create_private_file(part).map_err(file_error)?;
    let mut copy = Connection::open(part)?;
    // Nobody sees the copy before it is whole and synced, so a journal for it would be waste.
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    copy_pages(&source, &mut copy, progress)?;
    // One file that can be carried away: without this it would still want a log beside it.
    copy.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    copy.close().map_err(|(_, error)| error)?;
    File::open(part).and_then(|file| file.sync_all()).map_err(file_error)?;
    let found = check_database(part)?;
    if found != expected {
        return Err(BackupError::ContentsDiffer(Box::new(found), Box::new(expected)));
    }
    Ok(found)
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

/// Checks a database that nobody has open, and says what is in it. Leaves nothing beside it.
pub fn check_database(file: &Path) -> Result<DatabaseContents, BackupError> {
    if !file.is_file() {
        return Err(OpenError::Missing(file.to_owned()).into());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    super::schema::check_application_id(&connection, file)?;
    let faults = inspect::faults(&connection)?;
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
        in_flight: count("SELECT count(*) FROM deliveries WHERE lease_until IS NOT NULL")?,
        schema: schema_version(connection)?,
    })
}

/// The same name with something after it.
fn with_suffix(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

/// What is inside are other people's messages: only the owner may look.
pub(super) fn create_private_file(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Gives a synced file its name, so that the name survives a power cut too.
pub(super) fn rename_durably(part: &Path, to: &Path) -> io::Result<()> {
    fs::rename(part, to)?;
    match to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => folder::sync_folder(parent),
        None => folder::sync_folder(Path::new(".")),
    }
}
