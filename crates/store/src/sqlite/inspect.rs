//! Read-only access to a data folder, whether or not a gateway runs on it.
//!
//! Takes no lock and changes nothing. SQLite may leave its two side files (`-wal`, `-shm`) behind;
//! the next start reuses them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, Result};
use surehook_core::clock::StoredClock;
use surehook_types::time::Timestamp;

use super::{
    DATABASE, OpenError, SqliteStore,
    cache::StoreCache,
    commit_mark, folder,
    nodes::LocalNodes,
    read_pool::ReadPool,
    schema::{self, MIGRATIONS, read_schema_version},
    sealing::{self, DataKeys},
    secret_key::{self, SecretKey, SecretKeyId},
    start_check,
    writer::Writer,
};
use crate::steps::{clock, counts};

impl SqliteStore {
    /// Opens the store in `data` for reading. Every write is refused.
    pub fn open_read_only(data: &Path, secret_key: Option<&SecretKey>) -> Result<Self, OpenError> {
        let file = data.join(DATABASE);
        let connection = open_existing(&file)?;
        let (found, known) = (read_schema_version(&connection)?, MIGRATIONS.len());
        if found != known {
            return Err(OpenError::wrong_version(found, known));
        }
        let data_keys = match sealing::needed_key(&connection)? {
            Some(key_id) => {
                let secret_key = secret_key::find(data, secret_key, key_id)?;
                DataKeys::load(&connection, &secret_key)?
            }
            None => None,
        };
        // The migration and the first key are two commits; a crash may be in between.
        let data_keys = data_keys.ok_or(OpenError::Older { found: found - 1, known })?;
        let cache = Arc::new(StoreCache::new(1));
        let counts = counts::load(&connection)?;
        cache.change_counts(|cached| *cached = counts);
        Ok(Self {
            writer: Writer::closed(),
            readers: ReadPool::new(&file),
            cache,
            quarantine_sources: Arc::default(),
            data_keys: Arc::new(data_keys),
            nodes: LocalNodes::new(Timestamp::default()),
            file,
        })
    }
}

pub(super) fn open_existing(file: &Path) -> Result<Connection, OpenError> {
    if !file.is_file() {
        return Err(OpenError::Missing(file.to_owned()));
    }
    let connection = schema::open_reader(file)?;
    schema::check_application_id(&connection, file)?;
    Ok(connection)
}

/// The state of a data folder.
#[derive(Clone, Debug)]
pub struct FolderInspection {
    pub file: PathBuf,
    pub schema_version: usize,
    /// The schema version that this program supports.
    pub known_schema_version: usize,
    /// Messages of `PRAGMA quick_check`; empty if the database is intact.
    pub faults: Vec<String>,
    pub database_bytes: u64,
    pub wal_bytes: u64,
    /// The last stored time and the time of the newest event.
    pub clock: StoredClock,
    /// The secret key that its secrets are encrypted with; `None` if an older version wrote them, in
    /// plain text.
    pub needed_key: Option<SecretKeyId>,
    /// Whether old copies of secrets may be left in unused space of the file.
    pub has_plain_remains: bool,
    /// Whether a process has the folder open.
    pub is_in_use: bool,
    /// Whether a restore into the folder was interrupted.
    pub is_restore_interrupted: bool,
}

/// Faults reported of a damaged database: one is enough to act on.
const FAULTS_MAX: usize = 10;

/// Checks the database in `data` and reports its state. A database that has lost acknowledged commits
/// is an error.
pub fn inspect(data: &Path) -> Result<FolderInspection, OpenError> {
    let file = data.join(DATABASE);
    // Read first: a commit in between must not make the mark look ahead of the database.
    let mark = start_check::check_files(data)?;
    let connection = open_existing(&file)?;
    start_check::check_position(data, mark, commit_mark::read_position(&connection)?)?;
    let file_bytes = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    Ok(FolderInspection {
        schema_version: read_schema_version(&connection)?,
        known_schema_version: MIGRATIONS.len(),
        faults: find_faults(&connection, CheckDepth::Quick)?,
        database_bytes: file_bytes(&file),
        wal_bytes: file_bytes(&file.with_extension("db-wal")),
        // An older schema may lack the tables.
        clock: clock::load(&connection).unwrap_or_default(),
        needed_key: sealing::needed_key(&connection)?,
        has_plain_remains: sealing::has_plain_remains(&connection)?,
        is_in_use: folder::is_locked(data),
        is_restore_interrupted: folder::is_restore_interrupted(data),
        file,
    })
}

/// How much of a database is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckDepth {
    /// Structures and constraints.
    Quick,
    /// Also that each index has exactly the rows of its table.
    Full,
}

/// Faults that SQLite finds in a database.
pub(super) fn find_faults(connection: &Connection, depth: CheckDepth) -> Result<Vec<String>> {
    let pragma = match depth {
        CheckDepth::Quick => "quick_check",
        CheckDepth::Full => "integrity_check",
    };
    let mut check = connection.prepare(&format!("PRAGMA {pragma}({FAULTS_MAX})"))?;
    let lines: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}
