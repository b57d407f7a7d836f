//! Files that are removed, moved or replaced while the gateway runs.
//!
//! SQLite does not notice: it keeps writing to the open files, which no longer have a name, and all of
//! it is gone when the process ends. So the writer compares the files at their paths with those that
//! it opened, every second and before the first batch after a pause. What is still open is then copied
//! to a new file, which holds everything acknowledged.

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use surehook_types::time::Timestamp;

use super::{
    backup::{self, BackupError},
    folder,
    secret_key::{SECRET_KEY_FILE, SecretKey},
    start_check::RESCUED_PREFIX,
};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Which file a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn read(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}

/// The database and its log, as they were opened.
#[derive(Debug)]
pub(super) struct FileWatch {
    files: Vec<(PathBuf, FileIdentity)>,
    folder: PathBuf,
    checked_at: Instant,
    started_at: Timestamp,
    started: Instant,
    /// The secret key, if its file is in the folder and can be lost with it.
    folder_key: Option<SecretKey>,
}

impl FileWatch {
    /// Called once the writer has both files open.
    pub(super) fn new(database: &Path, now: Timestamp, folder_key: Option<SecretKey>) -> Self {
        let paths = [database.to_owned(), database.with_extension("db-wal")];
        let files = paths.into_iter().filter_map(|path| {
            let identity = FileIdentity::read(&path).ok()?;
            Some((path, identity))
        });
        Self {
            files: files.collect(),
            folder: database.parent().map(Path::to_owned).unwrap_or_default(),
            checked_at: Instant::now(),
            started_at: now,
            started: Instant::now(),
            folder_key,
        }
    }

    pub(super) fn next_check_in(&self) -> Duration {
        CHECK_INTERVAL.saturating_sub(self.checked_at.elapsed())
    }

    /// What happened to the files, if they are not those that were opened. Looks at most once in
    /// [`CHECK_INTERVAL`], unless `is_due_now`.
    pub(super) fn find_loss(&mut self, is_due_now: bool) -> Option<String> {
        if !is_due_now && !self.next_check_in().is_zero() {
            return None;
        }
        self.checked_at = Instant::now();
        self.files.iter().find_map(|(path, opened)| match FileIdentity::read(path) {
            Ok(found) if found == *opened => None,
            Ok(_) => Some(format!("{} was replaced while the gateway was running", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!(
                "{} was removed or moved while the gateway was running",
                path.display()
            )),
            // No proof that the file is gone.
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "could not check the file");
                None
            }
        })
    }

    /// Copies the open database to `rescued-<time>.db` in the data folder, or beside it.
    pub(super) fn rescue(&self, connection: &Connection) -> Result<PathBuf, BackupError> {
        let now = self.started_at + self.started.elapsed();
        let name = format!("{RESCUED_PREFIX}{}.db", now.as_millis());
        let inside = self.folder.join(&name);
        let created = match folder::create_private_folder(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        };
        let copied = created
            .map_err(|source| BackupError::File { path: self.folder.clone(), source })
            .and_then(|()| backup::copy_open(connection, &inside));
        match copied {
            Ok(()) => {
                self.rescue_key(&self.folder.join(SECRET_KEY_FILE));
                Ok(inside)
            }
            Err(error) => {
                tracing::error!(%error, file = %inside.display(), "could not write the rescue file");
                let beside = self.folder.parent().unwrap_or(Path::new(".")).join(&name);
                self.rescue_key(&beside.with_extension("key"));
                backup::copy_open(connection, &beside).map(|()| beside)
            }
        }
    }

    /// Writes the secret key again if its file was lost too: without it the copy could not be opened.
    fn rescue_key(&self, file: &Path) {
        let Some(key) = self.folder_key.as_ref().filter(|_| !file.exists()) else { return };
        match key.create_file(file) {
            Ok(()) => tracing::warn!(file = %file.display(), "wrote the secret key again"),
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "could not write the secret key");
            }
        }
    }
}
