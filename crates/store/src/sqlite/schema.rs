//! Opens the file: settings required for durability, and forward-only migrations.

#[cfg(test)]
mod tests;

use std::path::Path;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, Result, config::DbConfig, functions::FunctionFlags,
};
use surehook_types::ids::SourceId;
use surehook_webhooks::key::{DedupKey, KeyDigest};
use uuid::Uuid;

use super::{OpenError, dead_letter_functions, key_index};

/// All migrations in order. A released one is never edited.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_events_and_deliveries.sql"),
    include_str!("../../migrations/sqlite/0002_keys_by_digest.sql"),
    include_str!("../../migrations/sqlite/0003_decisions.sql"),
    include_str!("../../migrations/sqlite/0004_replay_jobs.sql"),
    include_str!("../../migrations/sqlite/0005_lanes.sql"),
    include_str!("../../migrations/sqlite/0006_idempotency_results.sql"),
    include_str!("../../migrations/sqlite/0007_retention_and_rollups.sql"),
    include_str!("../../migrations/sqlite/0008_token_roles.sql"),
    include_str!("../../migrations/sqlite/0009_search_attributes.sql"),
    include_str!("../../migrations/sqlite/0010_token_headers.sql"),
    include_str!("../../migrations/sqlite/0011_quarantine.sql"),
    include_str!("../../migrations/sqlite/0012_quarantine_bounds.sql"),
    include_str!("../../migrations/sqlite/0013_sends.sql"),
    include_str!("../../migrations/sqlite/0014_media.sql"),
    include_str!("../../migrations/sqlite/0015_awaited.sql"),
    include_str!("../../migrations/sqlite/0016_sessions.sql"),
    include_str!("../../migrations/sqlite/0017_dead_groups.sql"),
    include_str!("../../migrations/sqlite/0018_delivered_anyway.sql"),
    include_str!("../../migrations/sqlite/0019_attempt_timings.sql"),
    include_str!("../../migrations/sqlite/0020_media_uses.sql"),
    include_str!("../../migrations/sqlite/0021_key_packs.sql"),
    include_str!("../../migrations/sqlite/0022_key_blocks.sql"),
    include_str!("../../migrations/sqlite/0023_lenient_sources.sql"),
    include_str!("../../migrations/sqlite/0024_failed_filters.sql"),
    include_str!("../../migrations/sqlite/0025_quarantine_senders.sql"),
    include_str!("../../migrations/sqlite/0026_key_conflicts.sql"),
    include_str!("../../migrations/sqlite/0027_data_keys.sql"),
    include_str!("../../migrations/sqlite/0028_duplicate_fingerprints.sql"),
    include_str!("../../migrations/sqlite/0029_idempotency_claims.sql"),
    include_str!("../../migrations/sqlite/0030_callbacks.sql"),
    include_str!("../../migrations/sqlite/0031_lane_epochs.sql"),
    include_str!("../../migrations/sqlite/0032_key_ranges.sql"),
    include_str!("../../migrations/sqlite/0033_young_keys.sql"),
    include_str!("../../migrations/sqlite/0034_login_links.sql"),
];

/// "srhk": distinguishes our files from others.
const APPLICATION_ID: i32 = 0x7372_686b;

/// In older versions, two connections could corrupt the log when one of them reset it.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Opens the database for the writer, without changing it: not even when it is closed again.
pub(super) fn open_unchanged(file: &Path) -> Result<Connection, OpenError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(OpenError::OldSqlite(rusqlite::version()));
    }
    let connection = Connection::open(file)?;
    set_checkpoint_on_close(&connection, false)?;
    Ok(connection)
}

/// Whether SQLite copies the log into the database when the last connection is closed.
pub(super) fn set_checkpoint_on_close(connection: &Connection, is_on: bool) -> Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !is_on)?;
    Ok(())
}

/// Opens the connection of the writer on a database that needs no check.
#[cfg(test)]
pub(super) fn open_writer(file: &Path) -> Result<Connection, OpenError> {
    let connection = open_unchanged(file)?;
    check_application_id(&connection, file)?;
    set_checkpoint_on_close(&connection, true)?;
    prepare_writer(connection, file)
}

/// Applies the settings of the writer and migrates the schema.
pub(super) fn prepare_writer(
    mut connection: Connection,
    file: &Path,
) -> Result<Connection, OpenError> {
    // FULL: the log is synced at every commit, as the answer 200 promises.
    // mmap off: an I/O error on a mapped page would raise a signal instead of an error.
    // A small cache: SQLite scans all of it in most commits, and the system caches the pages as
    // well.
    // Large pages: fewer writes per event and body. Applies to new files only.
    connection.execute_batch(
        "PRAGMA page_size = 8192;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA mmap_size = 0;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA busy_timeout = 5000;
         PRAGMA cache_size = -8192;
         PRAGMA journal_size_limit = 67108864;",
    )?;
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::WalUnsupported(file.to_owned()));
    }
    migrate(&mut connection)?;
    // Only now: a migration may sort more than fits into memory.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Opens the connection that copies the log; see `checkpoint`.
pub(super) fn open_checkpointer(file: &Path) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA mmap_size = 0;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -64;",
    )?;
    Ok(connection)
}

pub(super) fn open_reader(file: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.execute_batch(
        "PRAGMA query_only = ON;
         PRAGMA mmap_size = 0;
         PRAGMA busy_timeout = 5000;
         PRAGMA cache_size = -8192;",
    )?;
    Ok(connection)
}

pub(super) fn check_application_id(connection: &Connection, file: &Path) -> Result<(), OpenError> {
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| open_error(error, file))?;
    let owner: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if tables > 0 && owner != APPLICATION_ID {
        return Err(OpenError::Foreign(file.to_owned()));
    }
    Ok(())
}

/// Only a file that is not a database at all is foreign. A damaged one, or one that cannot be read, may
/// well be ours.
fn open_error(error: rusqlite::Error, file: &Path) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign(file.to_owned()),
        _ => error.into(),
    }
}

pub(super) fn read_schema_version(connection: &Connection) -> Result<usize> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let (found, known) = (read_schema_version(connection)?, MIGRATIONS.len());
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    add_functions(connection)?;
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(found) {
        // Each in its own transaction: after a failure the previous version is still usable.
        let tx = connection.transaction()?;
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "user_version", index + 1)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.commit()?;
    }
    Ok(())
}

/// Gives a file the schema of an earlier version.
#[cfg(test)]
pub(super) fn migrate_up_to(connection: &Connection, version: usize) {
    add_functions(connection).unwrap();
    MIGRATIONS[..version].iter().for_each(|sql| connection.execute_batch(sql).unwrap());
    connection.pragma_update(None, "user_version", version).unwrap();
    connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
}

/// SQL functions that the migrations use.
fn add_functions(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("key_digest", 2, flags, |call| {
        let source = SourceId::from_uuid(Uuid::from_bytes(call.get(0)?));
        let key = DedupKey::new(call.get_raw(1).as_str()?);
        Ok(key.map(|key| KeyDigest::of(source, &key).to_bytes()))
    })?;
    connection.create_scalar_function("key_place", 1, flags, |call| {
        Ok(key_index::key_position(KeyDigest::from_bytes(call.get(0)?)))
    })?;
    dead_letter_functions::add_functions(connection)
}

/// The query plan of a statement in an empty database.
#[cfg(test)]
pub(crate) fn query_plan(sql: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let connection = open_writer(&folder.path().join("a.db")).unwrap();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for index in 1..=explain.parameter_count() {
        explain.raw_bind_parameter(index, 1).unwrap();
    }
    let mut rows = explain.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}
