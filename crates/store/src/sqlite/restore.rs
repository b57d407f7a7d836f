//! Puts a backup in the place of a database, so that a kill at any line leaves either the old one,
//! or the new one, or a folder that says of itself that it is neither.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use surehook_core::time::Timestamp;

use super::{
    DATABASE, OpenError,
    backup::{BackupError, DatabaseContents, check_database, create_private_file, rename_durably},
    folder::{self, RESTORE_MARKER},
    schema::MIGRATIONS,
};

/// What a restore did.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// What the folder holds now.
    pub contents: DatabaseContents,
    /// Where the database that was there is now.
    pub previous_moved_to: Option<PathBuf>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder or the file cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backup cannot be read, or not be written.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// There is a database already.
    #[error("{} holds a database already", .0.display())]
    Occupied(PathBuf),
    /// It is the database of a gateway, not a backup of it.
    #[error(
        "{} has a log beside it and is not whole without; make a copy with `surehook backup --data` of its folder",
        .0.display()
    )]
    HasWal(PathBuf),
    /// A file could not be written or moved.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The files that make up a database. The log goes with it: beside another one it would be taken
/// for that one's, and its pages written over good ones.
const FILES: [&str; 3] = [DATABASE, "surehook.db-wal", "surehook.db-shm"];

/// Puts the backup `from` into the folder `data`. With `replace` a database that is there is moved
/// into a folder beside it; without, it is an error.
pub fn restore(
    from: &Path,
    data: &Path,
    replace: bool,
    now: Timestamp,
) -> Result<RestoreReport, RestoreError> {
    // A copy of the file alone would leave behind what is in its log.
    let log = PathBuf::from(format!("{}-wal", from.display()));
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(RestoreError::HasWal(from.to_owned()));
    }
    let contents = check_database(from)?;
    if contents.schema > MIGRATIONS.len() {
        return Err(OpenError::wrong_version(contents.schema, MIGRATIONS.len()).into());
    }
    let _lock = folder::lock(data)?;
    let interrupted = interrupted(data);
    let has_database = FILES.iter().any(|name| data.join(name).exists());
    // Whoever began to replace it has said that it may be replaced.
    if has_database && !replace && interrupted.is_none() {
        return Err(RestoreError::Occupied(data.to_owned()));
    }
    let part = data.join("surehook.db.restoring");
    let copied = copy_file(from, &part).and_then(|()| Ok(check_database(&part)?));
    match copied {
        Ok(found) if found == contents => {}
        Ok(found) => {
            let differs = BackupError::ContentsDiffer(Box::new(found), Box::new(contents));
            return Err(remove_part(&part, differs.into()));
        }
        Err(error) => return Err(remove_part(&part, error)),
    }
    let previous = interrupted
        .or_else(|| has_database.then(|| format!("{PREVIOUS_PREFIX}{}", now.as_millis())));
    swap_files(data, &part, previous.as_deref())
        .map_err(|source| RestoreError::File { path: data.to_owned(), source })?;
    Ok(RestoreReport { contents, previous_moved_to: previous.map(|previous| data.join(previous)) })
}

/// How the folder begins into which a database is moved.
const PREVIOUS_PREFIX: &str = "replaced-";

/// Where an earlier restore that did not end was moving the database, if it had come so far as to
/// say it.
fn interrupted(data: &Path) -> Option<String> {
    let previous = fs::read_to_string(data.join(RESTORE_MARKER)).ok()?;
    let number = previous.strip_prefix(PREVIOUS_PREFIX)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(previous)
}

fn remove_part(part: &Path, error: RestoreError) -> RestoreError {
    // The first error is the one to tell.
    let _gone = fs::remove_file(part);
    error
}

fn copy_file(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let copied = || {
        let mut source = File::open(from)?;
        let mut target = create_private_file(to)?;
        io::copy(&mut source, &mut target)?;
        target.sync_all()
    };
    copied().map_err(|source| RestoreError::File { path: to.to_owned(), source })
}

/// The mark is there from before the old files move until the new one stands: a gateway that is
/// started in between would find no database, and begin an empty one. It says where they move, so
/// that the next restore moves the rest there: a log without its database is worth nothing.
fn swap_files(data: &Path, part: &Path, previous: Option<&str>) -> io::Result<()> {
    let mark = data.join(RESTORE_MARKER);
    let is_resumed = interrupted(data).is_some();
    if !is_resumed {
        let mut mark = File::create(&mark)?;
        mark.write_all(previous.unwrap_or_default().as_bytes())?;
        mark.sync_all()?;
        folder::sync_folder(data)?;
    }
    if let Some(previous) = previous {
        previous_moved_to(data, &data.join(previous), is_resumed)?;
    }
    rename_durably(part, &data.join(DATABASE))?;
    fs::remove_file(&mark)?;
    folder::sync_folder(data)
}

/// Moves the old files; or, if an earlier restore `is_resumed`, what is left of them.
fn previous_moved_to(data: &Path, previous: &Path, is_resumed: bool) -> io::Result<()> {
    // A folder that is not of this restore is not touched.
    if !is_resumed || !previous.is_dir() {
        fs::create_dir(previous)?;
    }
    // The database moves first and the new one comes last: with both there, all has moved, and what
    // is here is the earlier restore's.
    let is_moved = previous.join(DATABASE).exists() && data.join(DATABASE).exists();
    for name in FILES {
        let file = data.join(name);
        let gone =
            if is_moved { fs::remove_file(&file) } else { fs::rename(&file, previous.join(name)) };
        match gone {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            gone => gone?,
        }
    }
    folder::sync_folder(previous)
}
