//! A data folder as the source or the target of a migration; see [`crate::migrate`].
//!
//! As the source it is read beside the gateway that runs on it, in short transactions, so that the log does
//! not grow. As the target it is locked from the beginning, and a row of `meta` keeps a gateway from
//! opening it until it is complete.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, OptionalExtension as _, Statement, ToSql, params,
    types::{ToSqlOutput, ValueRef},
};
use surehook_types::{ids::EventId, time::Timestamp};
use surehook_webhooks::key::KeyDigest;
use uuid::Uuid;

use super::{
    DATABASE, OpenError, SecretKey, SqliteOptions, SqliteStore,
    cache::{KeyEntry, ShortFingerprint},
    folder, inspect,
    key_index::{self, BlockSlice},
    prepared::{CachedStatements, PreparedStatements},
    recent_keys,
    schema::{self, MIGRATIONS, read_schema_version},
    sealing::{self, DataKeys},
    search_terms, secret_key, start_check,
};
use crate::{
    migrate::{
        CopiedRange, KeyValue, MigrateError, MigrateResult, MigrationSide, MovedRow, Page,
        PageLimit, RangeWrite, RowKey, RowSum, Span, Table, TableStorage, seal_row, unseal_row,
    },
    sql::{SqlConnection, SqlError, SqlRow, SqlValue},
    steps::row::blob,
};

/// Row of `meta` of a database that is the target of an unfinished migration: the source.
const MIGRATION_TARGET: &str = "migration_target";
/// Row of `meta` of a database that was moved: where to.
const MOVED_TO: &str = "moved_to";

fn read_mark(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    if !connection.table_exists(None, "meta")? {
        return Ok(None);
    }
    let find = "SELECT value FROM meta WHERE name = ?1";
    connection.query_row(find, [name], |row| row.get(0)).optional()
}

/// Refuses a database that was moved elsewhere, or that is the target of an unfinished migration.
pub(super) fn check_marks(connection: &Connection, folder: &Path) -> Result<(), OpenError> {
    if read_mark(connection, MIGRATION_TARGET)?.is_some() {
        return Err(OpenError::MigrationUnfinished(folder.to_owned()));
    }
    match read_mark(connection, MOVED_TO)? {
        Some(to) => Err(OpenError::Moved { folder: folder.to_owned(), to }),
        None => Ok(()),
    }
}

/// Forgets that a database was moved, because its owner insists to use it. Returns where it was moved to.
pub fn forget_move(data: &Path) -> Result<Option<String>, OpenError> {
    let _lock = folder::lock(data)?;
    let file = data.join(DATABASE);
    if !file.is_file() {
        return Ok(None);
    }
    let mark = start_check::check_files(data)?;
    let connection = start_check::open_checked(data, mark)?;
    let moved_to = read_mark(&connection, MOVED_TO)?;
    if moved_to.is_some() {
        connection.execute("DELETE FROM meta WHERE name = ?1", [MOVED_TO])?;
    }
    Ok(moved_to)
}

/// The numbers of a database that belong to its commit mark.
const NUMBERS: &str = "
    SELECT name, value FROM counters
     WHERE value <> 0 AND name NOT IN ('commit_epoch', 'commit_number')";
const RESET_NUMBERS: &str = "
    UPDATE counters SET value = 0 WHERE name NOT IN ('commit_epoch', 'commit_number')";
const SET_NUMBER: &str = "
    INSERT INTO counters (name, value) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const CREATE_RANGES: &str = "
    CREATE TABLE IF NOT EXISTS migration_ranges (
        table_name  TEXT NOT NULL,
        last_key    BLOB NOT NULL,
        hour        INTEGER,
        row_count   INTEGER NOT NULL,
        checksum    BLOB NOT NULL,
        is_verified INTEGER NOT NULL,
        PRIMARY KEY (table_name, last_key)
    ) STRICT, WITHOUT ROWID";
const RANGES: &str = "
    SELECT last_key, hour, row_count, checksum, is_verified FROM migration_ranges
     WHERE table_name = ?1";
const PUT_RANGE: &str = "
    INSERT OR REPLACE INTO migration_ranges
           (table_name, last_key, hour, row_count, checksum, is_verified)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Blocks of a level of the key index that are read at once.
const BLOCKS_READ: usize = 100;

pub(crate) struct SqliteSide {
    folder: PathBuf,
    connection: Connection,
    keys: Option<DataKeys>,
    secret_key: Option<SecretKey>,
    /// The keys that are not in the index yet, as of the start of the pass.
    recent_keys: BTreeMap<KeyDigest, KeyEntry>,
    /// Keeps everyone else from the folder.
    lock: Option<File>,
    /// A dry run without a target.
    is_missing: bool,
}

impl SqliteSide {
    /// Opens a folder for reading, also while a gateway uses it.
    pub(crate) fn open_source(
        data: &Path,
        secret_key: Option<&SecretKey>,
    ) -> Result<Self, OpenError> {
        let connection = inspect::open_existing(&data.join(DATABASE))?;
        if folder::is_restore_interrupted(data) {
            return Err(OpenError::RestoreInterrupted(data.to_owned()));
        }
        if read_mark(&connection, MIGRATION_TARGET)?.is_some() {
            return Err(OpenError::MigrationUnfinished(data.to_owned()));
        }
        let keys = load_keys(&connection, data, secret_key)?;
        Ok(Self {
            folder: absolute(data),
            connection,
            keys: Some(keys),
            secret_key: secret_key.cloned(),
            recent_keys: BTreeMap::new(),
            lock: None,
            is_missing: false,
        })
    }

    /// Opens a folder to be filled, and creates it if it does not exist.
    pub(crate) fn open_target(
        data: &Path,
        secret_key: Option<&SecretKey>,
        now: Timestamp,
        is_dry_run: bool,
    ) -> Result<Self, OpenError> {
        let file = data.join(DATABASE);
        if is_dry_run && file.is_file() {
            let connection = inspect::open_existing(&file)?;
            check_moved(&connection, data)?;
            return Self::new_target(data, connection, secret_key, None, false);
        }
        if is_dry_run {
            let connection = Connection::open_in_memory()?;
            return Self::new_target(data, connection, secret_key, None, true);
        }
        let is_unfinished = file.is_file()
            && read_mark(&inspect::open_existing(&file)?, MIGRATION_TARGET)?.is_some();
        if !is_unfinished {
            // An empty store with its keys, as every other one begins.
            let secret_key = secret_key.cloned();
            let options = SqliteOptions { secret_key, ..SqliteOptions::new(data) };
            drop(SqliteStore::open(&options, now)?);
        }
        let lock = folder::lock(data)?;
        let mark = start_check::check_files(data)?;
        let connection = start_check::open_checked(data, mark)?;
        let connection = schema::prepare_writer(connection, &file)?;
        // What was copied and not synced is copied again after a power failure. Rows refer to others that
        // come later.
        connection.execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = OFF; PRAGMA cache_size = -65536;",
        )?;
        Self::new_target(data, connection, secret_key, Some(lock), false)
    }

    fn new_target(
        data: &Path,
        connection: Connection,
        secret_key: Option<&SecretKey>,
        lock: Option<File>,
        is_missing: bool,
    ) -> Result<Self, OpenError> {
        let keys = match is_missing {
            true => None,
            false => Some(load_keys(&connection, data, secret_key)?),
        };
        Ok(Self {
            folder: absolute(data),
            connection,
            keys,
            secret_key: secret_key.cloned(),
            recent_keys: BTreeMap::new(),
            lock,
            is_missing,
        })
    }

    fn keys(&self) -> Result<&DataKeys, SqlError> {
        self.keys.as_ref().ok_or(SqlError::RowMissing)
    }

    /// Reads keys from the batches and both levels of the index. A key that is in several of them has the
    /// later entry in the first one.
    fn read_keys(&mut self, span: Span<'_>, limit: PageLimit) -> MigrateResult<Page> {
        let snapshot = self.connection.unchecked_transaction()?;
        if span.after.is_none() {
            self.recent_keys.clear();
            recent_keys::read_batches(&snapshot, |_, key, entry| {
                self.recent_keys.insert(key, entry);
            })?;
        }
        let after = span.after.map(to_digest).transpose()?;
        let through = span.through.map(to_digest).transpose()?;
        let is_inside = |key: &KeyDigest| {
            after.is_none_or(|after| *key > after) && through.is_none_or(|through| *key <= through)
        };
        let mut page = Page::new(limit);
        // Where the next blocks begin; all keys up to it are in the page.
        let mut from = after.unwrap_or(KeyDigest::from_bytes([0; 16]));
        let mut read_through: Option<KeyDigest> = after;
        loop {
            let mut found: BTreeMap<KeyDigest, KeyEntry> = BTreeMap::new();
            let mut end: Option<KeyDigest> = None;
            for level in key_index::LEVELS.into_iter().rev() {
                let BlockSlice { blocks, next } =
                    level.read_blocks_containing(&snapshot, from, BLOCKS_READ)?;
                let mut last = None;
                for (_, block) in &blocks {
                    for (key, entry) in key_index::batch_keys(block) {
                        found.insert(key, entry);
                        last = Some(key);
                    }
                }
                // There may be more of this level behind its last key.
                if next.is_some() {
                    end = [end, last].into_iter().flatten().min();
                }
            }
            let is_next = |key: &KeyDigest| {
                is_inside(key)
                    && read_through.is_none_or(|read| *key > read)
                    && end.is_none_or(|end| *key <= end)
            };
            found.extend(
                self.recent_keys
                    .range(from..)
                    .map(|(key, entry)| (*key, *entry))
                    .take_while(|(key, _)| end.is_none_or(|end| *key <= end)),
            );
            for (key, KeyEntry { event, body, expires_at }) in found {
                if !is_next(&key) {
                    continue;
                }
                let (digest, event, body) = (key.to_bytes(), blob(event), body.to_bytes());
                let values = [
                    SqlValue::Blob(&digest),
                    SqlValue::Blob(&event),
                    SqlValue::Blob(&body),
                    SqlValue::Integer(expires_at.as_millis()),
                ];
                let row = MovedRow::new(values.into_iter().map(Ok), values.len())?;
                if page.push(row).is_break() {
                    return Ok(page);
                }
            }
            match end {
                Some(end) if through.is_none_or(|through| end < through) => {
                    (from, read_through) = (end, Some(end));
                }
                Some(_) | None => return Ok(page),
            }
        }
    }
}

/// The same name from wherever it is opened.
fn absolute(data: &Path) -> PathBuf {
    data.canonicalize().or_else(|_| std::path::absolute(data)).unwrap_or_else(|_| data.to_owned())
}

/// The data keys of a database of this version.
fn load_keys(
    connection: &Connection,
    data: &Path,
    secret_key: Option<&SecretKey>,
) -> Result<DataKeys, OpenError> {
    let (found, known) = (read_schema_version(connection)?, MIGRATIONS.len());
    if found != known {
        return Err(OpenError::wrong_version(found, known));
    }
    let older = || OpenError::Older { found: found - 1, known };
    let key_id = sealing::needed_key(connection)?.ok_or_else(older)?;
    let secret_key = secret_key::find(data, secret_key, key_id)?;
    DataKeys::load(connection, &secret_key)?.ok_or_else(older)
}

fn check_moved(connection: &Connection, folder: &Path) -> Result<(), OpenError> {
    match read_mark(connection, MOVED_TO)? {
        Some(to) => Err(OpenError::Moved { folder: folder.to_owned(), to }),
        None => Ok(()),
    }
}

fn to_digest(key: &RowKey) -> Result<KeyDigest, SqlError> {
    let [KeyValue::Blob(digest)] = &key[..] else { return Err(SqlError::RowMissing) };
    let digest = <[u8; 16]>::try_from(&digest[..]).map_err(|_| SqlError::RowMissing)?;
    Ok(KeyDigest::from_bytes(digest))
}

/// The key and entry of a row of `keys`.
fn to_entry(row: &MovedRow) -> Result<(KeyDigest, KeyEntry), SqlError> {
    let bytes = |column| match row.value(column) {
        SqlValue::Blob(bytes) => Ok(bytes.to_vec()),
        SqlValue::Null | SqlValue::Integer(_) | SqlValue::Text(_) => Err(SqlError::RowMissing),
    };
    let SqlValue::Integer(expires_at) = row.value(3) else { return Err(SqlError::RowMissing) };
    let event: [u8; 16] = bytes(1)?.try_into().map_err(|_| SqlError::RowMissing)?;
    let body: [u8; 8] = bytes(2)?.try_into().map_err(|_| SqlError::RowMissing)?;
    let entry = KeyEntry {
        event: EventId::from_uuid(Uuid::from_bytes(event)),
        body: ShortFingerprint::from_bytes(body),
        expires_at: Timestamp::from_millis(expires_at),
    };
    Ok((to_digest(&row.key(1)?)?, entry))
}

/// A value as rusqlite binds it.
struct BoundValue<'a>(SqlValue<'a>);

/// A copied range as it is stored.
struct RangeRow {
    last: Vec<u8>,
    hour: Option<i64>,
    rows: i64,
    checksum: [u8; 16],
    is_verified: bool,
}

impl ToSql for BoundValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Integer(integer) => ValueRef::Integer(integer),
            SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
            SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn execute<'v>(
    statement: &mut Statement<'_>,
    values: impl Iterator<Item = SqlValue<'v>>,
) -> rusqlite::Result<usize> {
    for (index, value) in values.enumerate() {
        statement.raw_bind_parameter(index + 1, BoundValue(value))?;
    }
    statement.raw_execute()
}

fn delete_rows<'r>(
    connection: &Connection,
    table: &Table,
    rows: impl Iterator<Item = &'r MovedRow>,
) -> MigrateResult<()> {
    if table.storage == TableStorage::Keys {
        let mut sql = PreparedStatements::new(connection);
        for row in rows {
            key_index::remove_from_index(&mut sql, to_entry(row)?.0)?;
        }
        return Ok(());
    }
    let mut delete = connection.prepare_cached(&table.delete())?;
    for row in rows {
        execute(&mut delete, row.values().take(table.key_columns))?;
    }
    Ok(())
}

fn put_rows<'r>(
    connection: &Connection,
    keys: &DataKeys,
    table: &Table,
    rows: impl Iterator<Item = &'r MovedRow>,
    is_new: bool,
) -> MigrateResult<()> {
    match table.storage {
        TableStorage::Table => {
            let places: Vec<String> =
                (1..=table.columns.len()).map(|place| format!("?{place}")).collect();
            let mut put = connection.prepare_cached(&format!(
                "INSERT INTO {} ({}) VALUES ({}) {}",
                table.name,
                table.column_list(),
                places.join(", "),
                if is_new { String::new() } else { table.on_conflict() }
            ))?;
            for row in rows {
                match table.sealed {
                    Some(_) => execute(&mut put, seal_row(keys, table, row)?.values())?,
                    None => execute(&mut put, row.values())?,
                };
            }
        }
        TableStorage::Keys => {
            let mut sql = PreparedStatements::new(connection);
            let entries: Result<Vec<_>, SqlError> = rows.map(to_entry).collect();
            let entries = entries?;
            key_index::merge_sorted_keys(&mut sql, &key_index::OLD, &entries)?;
        }
        TableStorage::Numbers => {
            let mut set = connection.prepare_cached(SET_NUMBER)?;
            for row in rows {
                execute(&mut set, row.values())?;
            }
        }
    }
    Ok(())
}

fn put_range(connection: &Connection, table: &Table, range: &CopiedRange) -> MigrateResult<()> {
    let CopiedRange { last, hour, sum, is_verified } = range;
    connection.prepare_cached(PUT_RANGE)?.execute(params![
        table.name,
        CopiedRange::encode_key(last)?,
        hour,
        i64::try_from(sum.rows).unwrap_or(i64::MAX),
        sum.checksum.to_be_bytes(),
        is_verified
    ])?;
    Ok(())
}

impl MigrationSide for SqliteSide {
    fn name(&self) -> String {
        format!("the data folder {}", self.folder.display())
    }

    fn id(&self) -> MigrateResult<String> {
        let id: Vec<u8> =
            self.connection.query_row("SELECT id FROM data_keys", [], |row| row.get(0))?;
        Ok(data_encoding::HEXLOWER.encode(&id))
    }

    fn read_page(
        &mut self,
        table: &Table,
        span: Span<'_>,
        limit: PageLimit,
    ) -> MigrateResult<Page> {
        let mut page = Page::new(limit);
        if self.is_missing {
            return Ok(page);
        }
        if table.storage == TableStorage::Keys {
            return self.read_keys(span, limit);
        }
        let (sql, values) = table.page_query(span, limit, NUMBERS);
        let (keys, checked) = (self.keys()?, table.checked_columns());
        self.connection.read_while(&sql, &values, |row: &dyn SqlRow| {
            let row = unseal_row(keys, table, MovedRow::read(row, checked)?)?;
            Ok(page.push(row))
        })?;
        Ok(page)
    }

    fn count_rows(&mut self, table: &Table) -> MigrateResult<u64> {
        let sql = match (table.storage, table.is_numbered) {
            (TableStorage::Keys, _) => {
                let mut keys = 0;
                for level in key_index::LEVELS {
                    keys += key_index::estimate_key_count(&self.connection, level)?;
                }
                recent_keys::read_batches(&self.connection, |_, _, _| keys += 1)?;
                return Ok(keys as u64);
            }
            (TableStorage::Numbers, _) => format!("SELECT count(*) FROM ({NUMBERS})"),
            (TableStorage::Table, true) => {
                format!("SELECT coalesce(max(seq) - min(seq) + 1, 0) FROM {}", table.name)
            }
            (TableStorage::Table, false) => format!("SELECT count(*) FROM {}", table.name),
        };
        Ok(self.connection.query_row(&sql, [], |row| row.get(0))?)
    }

    fn size_bytes(&mut self) -> MigrateResult<u64> {
        let size = |name: &str| fs::metadata(self.folder.join(name)).map_or(0, |meta| meta.len());
        Ok(size(DATABASE) + size("surehook.db-wal"))
    }

    fn take_over(&mut self, to: &str, now: Timestamp) -> MigrateResult<bool> {
        if self.moved_to()?.as_deref() != Some(to) {
            let secret_key = self.secret_key.clone();
            let options = SqliteOptions { secret_key, ..SqliteOptions::new(&self.folder) };
            // Applies what the last process has left behind, as every start does.
            match SqliteStore::open(&options, now) {
                Ok(store) => drop(store),
                Err(OpenError::Locked(_)) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        let lock = match folder::lock(&self.folder) {
            Ok(lock) => lock,
            Err(OpenError::Locked(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let in_flight = "SELECT EXISTS (SELECT 1 FROM deliveries WHERE lane_epoch IS NOT NULL)";
        if self.connection.query_row(in_flight, [], |row| row.get(0))? {
            // Another process has used the folder in between.
            return Ok(false);
        }
        self.lock = Some(lock);
        Ok(true)
    }

    fn moved_to(&self) -> MigrateResult<Option<String>> {
        Ok(read_mark(&self.connection, MOVED_TO)?)
    }

    fn mark_moved(&mut self, to: &str) -> MigrateResult<()> {
        let connection = Connection::open(self.folder.join(DATABASE))?;
        connection
            .execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)", [MOVED_TO, to])?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(())
    }

    fn unfinished_source(&mut self) -> MigrateResult<Option<String>> {
        Ok(read_mark(&self.connection, MIGRATION_TARGET)?)
    }

    fn begin(&mut self, source: &str) -> MigrateResult<()> {
        let tx = self.connection.unchecked_transaction()?;
        tx.execute_batch(CREATE_RANGES)?;
        tx.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", [MIGRATION_TARGET, source])?;
        Ok(tx.commit()?)
    }

    fn copied_ranges(&mut self, table: &Table) -> MigrateResult<Vec<CopiedRange>> {
        let rows: Vec<RangeRow> =
            CachedStatements::read_all(&self.connection, RANGES, [table.name], |row| {
                Ok(RangeRow {
                    last: row.get(0)?,
                    hour: row.get(1)?,
                    rows: row.get(2)?,
                    checksum: row.get(3)?,
                    is_verified: row.get(4)?,
                })
            })?;
        let read = |row: RangeRow| {
            let rows = u64::try_from(row.rows).unwrap_or_default();
            let sum = RowSum { rows, checksum: u128::from_be_bytes(row.checksum) };
            let last = CopiedRange::decode_key(row.last, table.key_columns)?;
            Ok(CopiedRange { last, hour: row.hour, sum, is_verified: row.is_verified })
        };
        rows.into_iter().map(read).collect()
    }

    fn write_range(&mut self, table: &Table, write: &RangeWrite<'_>) -> MigrateResult<()> {
        let tx = self.connection.unchecked_transaction()?;
        let written = &write.changes.written;
        let replaced = written.iter().filter_map(|(_, old)| old.as_ref());
        delete_rows(&tx, table, write.changes.removed.iter())?;
        if table.is_counted || table.storage == TableStorage::Keys {
            delete_rows(&tx, table, replaced)?;
        }
        put_rows(&tx, self.keys()?, table, written.iter().map(|(row, _)| row), write.is_new)?;
        // Terms of events that are gone stay: a search compares each event.
        search_terms::insert_segment(&tx, write.terms.added.clone())?;
        put_range(&tx, table, write.range)?;
        Ok(tx.commit()?)
    }

    fn replace_tables(
        &mut self,
        tables: &[&Table],
        read: &mut dyn FnMut(&Table, Option<&RowKey>) -> MigrateResult<Page>,
    ) -> MigrateResult<()> {
        let tx = self.connection.unchecked_transaction()?;
        for table in tables.iter().rev() {
            match table.storage {
                TableStorage::Numbers => tx.execute(RESET_NUMBERS, [])?,
                TableStorage::Table | TableStorage::Keys => tx.execute(&table.delete_all(), [])?,
            };
        }
        for table in tables {
            let mut after = None;
            loop {
                let page = read(table, after.as_ref())?;
                put_rows(&tx, self.keys()?, table, page.rows.iter(), true)?;
                let Some(last) = page.rows.last().filter(|_| !page.is_complete) else { break };
                after = Some(last.key(table.key_columns)?);
            }
        }
        Ok(tx.commit()?)
    }

    fn optimize(&mut self) -> MigrateResult<()> {
        Ok(())
    }

    fn complete(&mut self) -> MigrateResult<()> {
        search_terms::join_segments(&self.connection)?;
        let tx = self.connection.unchecked_transaction()?;
        tx.execute("DELETE FROM meta WHERE name = ?1", [MIGRATION_TARGET])?;
        tx.execute_batch("DROP TABLE migration_ranges")?;
        tx.commit()?;
        self.connection.execute_batch("PRAGMA synchronous = FULL")?;
        // Syncs the log, and copies it into the file.
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        folder::sync_folder(&self.folder)
            .map_err(|source| MigrateError::File { path: self.folder.clone(), source })
    }
}
