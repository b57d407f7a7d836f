//! The data folder: accessible to its owner only, locked by the process that writes.
//!
//! It contains other people's messages, so modes are set explicitly: 0700 for the folder and 0600 for
//! the files, whatever the umask. A mode that allows more is changed; if that is not permitted, the store
//! is not opened.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use super::{OpenError, secret_key::SECRET_KEY_FILE};

const LOCK: &str = "lock";
/// Exists while the database in the folder is being replaced; see `restore`.
pub(super) const RESTORE_MARKER: &str = "restore-in-progress";

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The permissions of other users.
const OTHERS: u32 = 0o077;

/// Creates the folder if it does not exist, makes it private, and locks it against other writers.
pub(super) fn lock(folder: &Path) -> Result<File, OpenError> {
    let folder_error = |error| OpenError::Folder(folder.to_owned(), error);
    if !folder.is_dir() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(FOLDER_MODE).create(folder).map_err(folder_error)?;
    }
    make_private(folder, FOLDER_MODE)?;
    let path = folder.join(LOCK);
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(FILE_MODE);
    let lock = options.open(&path).map_err(folder_error)?;
    make_private(&path, FILE_MODE)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(OpenError::Locked(folder.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(folder_error(error)),
    }
}

/// Creates a folder for the owner only. Fails if it exists.
pub(super) fn create_private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(FOLDER_MODE).create(folder)
}

/// Creates the database file if it does not exist, and makes it and its side files private. SQLite
/// gives new side files the mode of the database.
pub(super) fn make_database_private(file: &Path) -> Result<(), OpenError> {
    let created =
        File::options().create(true).truncate(false).write(true).mode(FILE_MODE).open(file);
    created.map_err(|error| OpenError::Folder(file.to_owned(), error))?;
    for side in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{side}", file.display()));
        if side.is_empty() || path.exists() {
            make_private(&path, FILE_MODE)?;
        }
    }
    Ok(())
}

/// Makes the keys of the folder private.
pub(super) fn make_keys_private(folder: &Path) -> Result<(), OpenError> {
    let folder_error = |error| OpenError::Folder(folder.to_owned(), error);
    for entry in fs::read_dir(folder).map_err(folder_error)? {
        let path = entry.map_err(folder_error)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(SECRET_KEY_FILE) && path.is_file() {
            make_private(&path, FILE_MODE)?;
        }
    }
    Ok(())
}

/// Takes all permissions away from other users. Fails if the path stays accessible to them: it belongs
/// to another user, or its file system has no modes.
fn make_private(path: &Path, mode: u32) -> Result<(), OpenError> {
    let found = || fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
    let path_error = |error| OpenError::Folder(path.to_owned(), error);
    let before = found().map_err(path_error)?;
    if before == mode {
        return Ok(());
    }
    let changed = fs::set_permissions(path, Permissions::from_mode(mode));
    let after = found().map_err(path_error)?;
    if after & OTHERS != 0 {
        return Err(OpenError::NotPrivate { path: path.to_owned(), mode: after });
    }
    if changed.is_ok() && before & OTHERS != 0 {
        tracing::warn!(path = %path.display(), "was accessible to other users (mode {before:o}); changed to {mode:o}");
    }
    Ok(())
}

/// Creates a file for the owner only. Never opens a file that another user may have prepared: a file or
/// link of that name is removed first.
pub fn create_private_file(file: &Path) -> io::Result<File> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // `create_new` is O_EXCL.
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    options.create_new(true).write(true).mode(FILE_MODE).custom_flags(no_follow);
    let created = options.open(file)?;
    created.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(created)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folder_and_files_that_others_can_read_are_tightened() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        let file = folder.join("surehook.db");
        fs::create_dir(&folder).unwrap();
        let files = ["lock", "surehook.db", "surehook.db-wal", "surehook.db-shm"];
        for name in files {
            fs::write(folder.join(name), "").unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();

        let _lock = lock(&folder).unwrap();
        make_database_private(&file).unwrap();

        assert_eq!(mode(&folder), 0o700);
        for name in files {
            assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn private_file_replaces_a_link_and_does_not_write_through_it() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("copy.part"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();

        let created = create_private_file(&link).unwrap();
        fs::write(&link, "copy").unwrap();

        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(created.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
