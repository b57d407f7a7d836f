//! Repair: accepts the loss of commits after a damage, explicitly.
//!
//! Copies are made of the files: one of the database with its log, one of the database alone, because a
//! damaged log can make the database worse. The intact copy with more commits becomes the database. The
//! damaged files are moved to a subfolder as in a restore, never deleted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use surehook_types::time::Timestamp;

use super::{
    DATABASE, OpenError,
    commit_mark::{self, MarkReading},
    folder,
    inspect::{self, CheckDepth},
    restore::{self, RestoreError},
    schema, start_check,
};

/// The result of a repair.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// The fault of the database.
    pub fault: String,
    /// Commits that are missing for certain; `None` if unknown.
    pub missing_commits: Option<u64>,
    /// The folder that the damaged files were moved to.
    pub damaged_moved_to: PathBuf,
    /// Whether the next start begins with an empty database.
    pub is_empty: bool,
}

/// Why nothing was repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A rescued copy holds everything; accepting the loss would be wrong.
    #[error("{} holds everything that was acknowledged", .0.display())]
    HasRescued(PathBuf),
    #[error("no intact state can be made of the damaged files: {0}")]
    Unrepairable(String),
    #[error("cannot copy the damaged files in {}: {source}", folder.display())]
    Copy { folder: PathBuf, source: io::Error },
}

/// Repairs the database in `data`; returns `None` if nothing is wrong with it.
pub fn repair(data: &Path, now: Timestamp) -> Result<Option<RepairReport>, RepairError> {
    let _lock = folder::lock(data)?;
    if folder::is_restore_interrupted(data) {
        return Err(OpenError::RestoreInterrupted(data.to_owned()).into());
    }
    let check_result = start_check::check_files(data)
        .and_then(|mark| start_check::open_checked(data, mark).map(drop));
    let fault = match check_result {
        Ok(()) => return Ok(None),
        Err(fault) if fault.is_damage() => fault,
        Err(error) => return Err(error.into()),
    };
    if let Some(rescued) = start_check::find_rescued(data) {
        return Err(RepairError::HasRescued(rescued));
    }
    let mark = MarkReading::read(data).unwrap_or(MarkReading::Unreadable);
    let is_missing = matches!(fault, OpenError::DatabaseMissing(_));
    let work_folder = data.join("repairing");
    let best = if is_missing { None } else { Some(find_best_state(data, &work_folder)?) };
    let last_commit = best.as_ref().and_then(|state| state.last_commit_in_epoch_of(mark));
    let missing_commits = mark.content().and_then(|mark| {
        let last_commit = if is_missing { Some(0) } else { last_commit };
        Some(mark.position.number.saturating_sub(last_commit?).try_into().unwrap_or_default())
    });
    let damaged_moved_to =
        restore::replace_database(data, best.as_ref().map(|state| state.file.as_path()), now)?;
    // Copies that are no longer needed; a failure to remove them harms nothing.
    let _removed = fs::remove_dir_all(&work_folder);
    let fault = fault.to_string();
    Ok(Some(RepairReport { fault, missing_commits, damaged_moved_to, is_empty: is_missing }))
}

/// An intact copy of the database.
struct IntactState {
    file: PathBuf,
    position: Option<commit_mark::CommitPosition>,
}

impl IntactState {
    /// The number of the last commit, if it can be compared with that of the mark.
    fn last_commit_in_epoch_of(&self, mark: MarkReading) -> Option<i64> {
        let (mark, position) = (mark.content()?, self.position?);
        (mark.position.epoch == position.epoch).then_some(position.number)
    }
}

/// Makes copies of the files with and without the log, and returns the one with more commits.
fn find_best_state(data: &Path, work_folder: &Path) -> Result<IntactState, RepairError> {
    let copy_error = |source| RepairError::Copy { folder: data.to_owned(), source };
    if work_folder.exists() {
        fs::remove_dir_all(work_folder).map_err(copy_error)?;
    }
    folder::create_private_folder(work_folder).map_err(copy_error)?;
    let log = format!("{DATABASE}-wal");
    let candidates: [(&str, &[&str]); 2] =
        [("with-log", &[DATABASE, &log]), ("without-log", &[DATABASE])];
    let mut best: Option<IntactState> = None;
    let mut faults = Vec::new();
    for (name, files) in candidates {
        let folder = work_folder.join(name);
        folder::create_private_folder(&folder).map_err(copy_error)?;
        for file in files.iter().filter(|file| data.join(file).exists()) {
            fs::copy(data.join(file), folder.join(file)).map_err(copy_error)?;
        }
        match repair_copy(&folder.join(DATABASE)) {
            Ok(state) => {
                let number = |state: &IntactState| state.position.map(|position| position.number);
                if best.as_ref().is_none_or(|best| number(best) < number(&state)) {
                    best = Some(state);
                }
            }
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    best.ok_or_else(|| {
        // Copies only; the damaged files are untouched.
        let _removed = fs::remove_dir_all(work_folder);
        RepairError::Unrepairable(faults.join("; "))
    })
}

/// Rebuilds the indexes of a copy if they are damaged, and copies its log into it.
fn repair_copy(file: &Path) -> Result<IntactState, OpenError> {
    let connection = Connection::open(file)?;
    schema::check_application_id(&connection, file)?;
    if find_fault(&connection)?.is_some() {
        connection.execute_batch("REINDEX")?;
        if let Some(fault) = find_fault(&connection)? {
            return Err(OpenError::Damaged(fault));
        }
    }
    let position = commit_mark::read_position(&connection)?;
    if position.is_none() {
        return Err(OpenError::Damaged("the database holds nothing".to_owned()));
    }
    // Commits of the repaired database must not be compared with those that were lost.
    commit_mark::begin_epoch(&connection)?;
    // Makes the copy a single file.
    connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(IntactState { file: file.to_owned(), position })
}

fn find_fault(connection: &Connection) -> Result<Option<String>, OpenError> {
    Ok(inspect::find_faults(connection, CheckDepth::Full)?.into_iter().next())
}
