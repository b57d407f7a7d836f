//! Restore: replaces the database by a backup. A crash at any point leaves the old database, the
//! new one, or a folder marked as being restored.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use surehook_types::time::Timestamp;

use super::{
    DATABASE, OpenError,
    backup::{BackupError, DatabaseContents, check_database, rename_durably},
    commit_mark::COMMIT_MARK,
    folder::{self, RESTORE_MARKER},
    schema::MIGRATIONS,
};

#[derive(Clone, Debug)]
pub struct RestoreReport {
    pub contents: DatabaseContents,
    /// The folder that the previous database was moved to.
    pub previous_moved_to: Option<PathBuf>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The folder already has a database.
    #[error("{} already contains a database", .0.display())]
    Occupied(PathBuf),
    /// The file is a live database, not a backup.
    #[error(
        "{} is incomplete without the log next to it; copy it with `surehook backup --data` of its folder",
        .0.display()
    )]
    HasWal(PathBuf),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The files of a database, which are moved together: SQLite would apply the log to another database
/// beside it, and the commit mark would refuse another database.
const FILES: [&str; 4] = [DATABASE, "surehook.db-wal", "surehook.db-shm", COMMIT_MARK];

/// Restores the backup `from` into the folder `data`. With `replace`, an existing database is moved
/// to a subfolder; without, it is an error.
pub fn restore(
    from: &Path,
    data: &Path,
    replace: bool,
    now: Timestamp,
) -> Result<RestoreReport, RestoreError> {
    // A copy of the file alone would lack what is in its log.
    let log = PathBuf::from(format!("{}-wal", from.display()));
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(RestoreError::HasWal(from.to_owned()));
    }
    let contents = check_database(from)?;
    if contents.schema > MIGRATIONS.len() {
        return Err(OpenError::wrong_version(contents.schema, MIGRATIONS.len()).into());
    }
    let _lock = folder::lock(data)?;
    let interrupted = find_interrupted(data);
    let has_files = FILES.iter().any(|name| data.join(name).exists());
    let has_database = data.join(DATABASE).exists() || data.join("surehook.db-wal").exists();
    // An interrupted restore was allowed to replace the database.
    if has_database && !replace && interrupted.is_none() {
        return Err(RestoreError::Occupied(data.to_owned()));
    }
    let copy = data.join("surehook.db.restoring");
    match copy_file(from, &copy).and_then(|()| Ok(check_database(&copy)?)) {
        Ok(copied) if copied == contents => {}
        Ok(copied) => {
            let error = BackupError::ContentsDiffer(Box::new(copied), Box::new(contents));
            return Err(remove_copy(&copy, error.into()));
        }
        Err(error) => return Err(remove_copy(&copy, error)),
    }
    let previous =
        interrupted.or_else(|| has_files.then(|| format!("{PREVIOUS_PREFIX}{}", now.as_millis())));
    swap_files(data, Some(&copy), previous.as_deref())
        .map_err(|source| RestoreError::File { path: data.to_owned(), source })?;
    Ok(RestoreReport { contents, previous_moved_to: previous.map(|previous| data.join(previous)) })
}

/// Replaces the database by `file`, or removes it if there is none; returns the folder that the old
/// files were moved to. The caller holds the lock.
pub(super) fn replace_database(
    data: &Path,
    file: Option<&Path>,
    now: Timestamp,
) -> Result<PathBuf, RestoreError> {
    let file_error = |source| RestoreError::File { path: data.to_owned(), source };
    if let Some(file) = file {
        File::open(file).and_then(|file| file.sync_all()).map_err(file_error)?;
    }
    let previous = format!("{PREVIOUS_PREFIX}{}", now.as_millis());
    swap_files(data, file, Some(&previous)).map_err(file_error)?;
    Ok(data.join(previous))
}

/// Prefix of the subfolder that a database is moved to.
pub(super) const PREVIOUS_PREFIX: &str = "replaced-";

/// The subfolder of an interrupted restore, if it got as far as naming it.
fn find_interrupted(data: &Path) -> Option<String> {
    let previous = fs::read_to_string(data.join(RESTORE_MARKER)).ok()?;
    let number = previous.strip_prefix(PREVIOUS_PREFIX)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(previous)
}

fn remove_copy(copy: &Path, error: RestoreError) -> RestoreError {
    // The first error is the one to report.
    let _best_effort = fs::remove_file(copy);
    error
}

fn copy_file(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let copy = || {
        let mut source = File::open(from)?;
        let mut target = folder::create_private_file(to)?;
        io::copy(&mut source, &mut target)?;
        target.sync_all()
    };
    copy().map_err(|source| RestoreError::File { path: to.to_owned(), source })
}

/// Moves the files of the database to the subfolder `previous`, and `file` into its place.
///
/// The marker exists from before the old files move until the new one is in place: a gateway
/// started in between would find no database and create an empty one. It names the subfolder, so
/// that the next restore moves the remaining files there: a log is useless without its database.
fn swap_files(data: &Path, file: Option<&Path>, previous: Option<&str>) -> io::Result<()> {
    let marker = data.join(RESTORE_MARKER);
    let is_resumed = find_interrupted(data).is_some();
    if !is_resumed {
        let mut marker = folder::create_private_file(&marker)?;
        marker.write_all(previous.unwrap_or_default().as_bytes())?;
        marker.sync_all()?;
        folder::sync_folder(data)?;
    }
    if let Some(previous) = previous {
        move_previous(data, &data.join(previous), is_resumed)?;
    }
    if let Some(file) = file {
        rename_durably(file, &data.join(DATABASE))?;
    }
    fs::remove_file(&marker)?;
    folder::sync_folder(data)
}

/// Moves the old files; if an earlier restore `is_resumed`, the remaining ones.
fn move_previous(data: &Path, previous: &Path, is_resumed: bool) -> io::Result<()> {
    // The subfolder of another restore is not touched.
    if !is_resumed || !previous.is_dir() {
        folder::create_private_folder(previous)?;
    }
    // The database moves first and the new one comes last: if both exist, all files have moved, and
    // those in `data` belong to the interrupted restore.
    let have_all_moved = previous.join(DATABASE).exists() && data.join(DATABASE).exists();
    for name in FILES {
        let file = data.join(name);
        let result = match have_all_moved {
            true => fs::remove_file(&file),
            false => fs::rename(&file, previous.join(name)),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    folder::sync_folder(previous)
}
