//! The data folder: readable by its owner only, locked by the process that writes.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::OpenError;

const LOCK: &str = "lock";
/// Exists while the database in the folder is being replaced; see `restore`.
pub(super) const RESTORE_MARKER: &str = "restore-in-progress";

/// Creates the folder if it does not exist, and locks it against other writers.
pub(super) fn lock(folder: &Path) -> Result<File, OpenError> {
    let folder_error = |error| OpenError::Folder(folder.to_owned(), error);
    create_private_folder(folder).map_err(folder_error)?;
    let path = folder.join(LOCK);
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(folder_error)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(OpenError::Locked(folder.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(folder_error(error)),
    }
}

/// The folder contains other people's messages: only the owner may read it.
fn create_private_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Whether a process holds the lock. Uses a shared lock, so that two such checks do not block each
/// other.
pub(super) fn is_locked(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join(LOCK)) else { return false };
    matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
}

pub(super) fn is_restore_interrupted(folder: &Path) -> bool {
    folder.join(RESTORE_MARKER).exists()
}

/// Makes created, renamed and removed files in `folder` survive a power failure.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
