//! Checks a data folder before the store is opened: is everything there that was acknowledged?
//!
//! Nothing is changed before the checks have passed. In particular SQLite deletes the log of a
//! database that is missing or empty, and copies the intact start of a damaged log into the database
//! when it closes it; both would destroy what could still be saved.

#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::{
    DATABASE, OpenError,
    commit_mark::{self, COMMIT_MARK, CommitPosition, MarkReading},
    inspect::{self, CheckDepth},
    schema,
};

/// Databases up to this size are checked completely at every start, indexes included: less than a
/// second.
const FULL_CHECK_BYTES: u64 = 64 << 20;
/// Databases up to this size are checked for damaged structures after a crash: some seconds. Larger
/// ones are not: a restart must not take minutes. `surehook doctor` checks them.
const QUICK_CHECK_BYTES: u64 = 1 << 30;

/// Prefix of a copy that was made when the files were removed while the gateway was running.
pub(super) const RESCUED_PREFIX: &str = "rescued-";

/// Reads the mark, and refuses a folder whose database is missing.
pub(super) fn check_files(folder: &Path) -> Result<MarkReading, OpenError> {
    let mark =
        MarkReading::read(folder).map_err(|error| OpenError::Folder(folder.to_owned(), error))?;
    let bytes = |name: &str| fs::metadata(folder.join(name)).map_or(0, |file| file.len());
    let had_database = mark != MarkReading::Missing
        || bytes(&format!("{DATABASE}-wal")) > 0
        || find_rescued(folder).is_some();
    if bytes(DATABASE) == 0 && had_database {
        return Err(OpenError::DatabaseMissing(folder.to_owned()));
    }
    Ok(mark)
}

/// The copy that was made when the files of the last run were lost, if there is one. A copy of an
/// earlier run is older than the commit mark.
pub fn find_rescued(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_rescued = |name: &String| name.starts_with(RESCUED_PREFIX) && name.ends_with(".db");
    let newest = folder.join(names.filter(is_rescued).max()?);
    let changed_at = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    (changed_at(&newest) >= changed_at(&folder.join(COMMIT_MARK))).then_some(newest)
}

/// Opens the database without changing it, and refuses it if acknowledged commits are missing or if
/// it is damaged.
pub(super) fn open_checked(folder: &Path, mark: MarkReading) -> Result<Connection, OpenError> {
    let file = folder.join(DATABASE);
    let connection = schema::open_unchanged(&file)?;
    let checked = check_database(&connection, folder, mark);
    match checked {
        Ok(()) => {
            schema::set_checkpoint_on_close(&connection, true)?;
            Ok(connection)
        }
        // With a mark beside it, the file was ours.
        Err(OpenError::Foreign(_)) if mark != MarkReading::Missing => {
            Err(OpenError::Damaged("its header is damaged".to_owned()))
        }
        Err(error) => Err(error),
    }
}

fn check_database(
    connection: &Connection,
    folder: &Path,
    mark: MarkReading,
) -> Result<(), OpenError> {
    schema::check_application_id(connection, &folder.join(DATABASE))?;
    let stored = commit_mark::read_position(connection)?;
    check_position(folder, mark, stored)?;
    let was_closed =
        mark.content().is_some_and(|mark| mark.is_closed && Some(mark.position) == stored);
    match find_structure_fault(connection, was_closed)? {
        Some(fault) => Err(OpenError::Damaged(fault)),
        None => Ok(()),
    }
}

/// Compares the position of a database with its mark. Without a readable mark there is nothing to
/// compare: a healthy folder is not refused for it.
pub(super) fn check_position(
    folder: &Path,
    mark: MarkReading,
    stored: Option<CommitPosition>,
) -> Result<(), OpenError> {
    let Some(mark) = mark.content() else { return Ok(()) };
    let found = match stored {
        Some(stored) if stored.epoch != mark.position.epoch => {
            return Err(OpenError::DatabaseReplaced(folder.to_owned()));
        }
        Some(stored) if stored.number >= mark.position.number => return Ok(()),
        Some(stored) => stored.number,
        // The log that held everything is gone: the first commit stored the epoch.
        None => -1,
    };
    let missing = u64::try_from(mark.position.number - found).unwrap_or_default();
    Err(OpenError::CommitsMissing { folder: folder.to_owned(), missing })
}

/// Checks as much as the size permits.
fn find_structure_fault(
    connection: &Connection,
    was_closed: bool,
) -> Result<Option<String>, OpenError> {
    let pages: u64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page_bytes: u64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let bytes = pages.saturating_mul(page_bytes);
    let depth = if bytes <= FULL_CHECK_BYTES {
        CheckDepth::Full
    } else if was_closed {
        return Ok(None);
    } else if bytes <= QUICK_CHECK_BYTES {
        CheckDepth::Quick
    } else {
        tracing::warn!(
            bytes,
            "the database is too large to be checked at a start after a crash; check it with `surehook doctor`"
        );
        return Ok(None);
    };
    Ok(inspect::find_faults(connection, depth)?.into_iter().next())
}
