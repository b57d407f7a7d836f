//! The data key of a database file, and its first encryption; see [`crate::sealing`].
//!
//! The data key is stored in the database, encrypted with the secret key, which is not.
//! [`DataKeys::open`] runs at each start, before the writer. The first time it also encrypts what an
//! earlier version stored in plain text, and removes all old copies of it from the files.

#[cfg(test)]
mod tests;

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Result, functions::FunctionFlags, params};
use surehook_core::{event::HeaderBlock, source::SourceSpec};
use surehook_types::time::Timestamp;

use super::{
    OpenError,
    prepared::CachedStatements as _,
    secret_key::{self, SecretKey, SecretKeyId},
};
pub(super) use crate::sealing::{DataKeys, SealedPlace};
use crate::sealing::{KEY_ID_BYTES, QuarantinedHead, WrappedDataKey, failure};

/// Files up to this size are rewritten at the start that encrypts them: some seconds. For larger ones
/// `surehook secret-key rotate` does it.
const REWRITE_BYTES_MAX: u64 = 1 << 30;
/// Up to this size the rewriting needs no temporary file.
const REWRITE_IN_MEMORY_MAX: u64 = 64 << 20;

/// The id of the secret key that a database needs; `None` if it has no data keys yet.
pub(super) fn needed_key(connection: &Connection) -> Result<Option<SecretKeyId>> {
    if !connection.table_exists(None, "data_keys")? {
        return Ok(None);
    }
    let needed = connection
        .query_row("SELECT wrapped_by FROM data_keys", [], |row| row.get(0))
        .optional()?;
    Ok(needed.map(SecretKeyId::from_bytes))
}

/// Finds the secret key of a database. Called before anything is changed, so that a wrong key changes
/// nothing.
pub(super) fn find_secret_key(
    connection: &Connection,
    folder: &Path,
    configured: Option<&SecretKey>,
) -> Result<SecretKey, OpenError> {
    match needed_key(connection)? {
        Some(needed) => secret_key::find(folder, configured, needed),
        None => secret_key::find_or_create(folder, configured),
    }
}

/// Creates a random data key and stores it, encrypted with the secret key.
fn create_key(connection: &Connection, secret_key: &SecretKey, now: Timestamp) -> Result<DataKeys> {
    let (keys, WrappedDataKey { id, wrapped, by }) = DataKeys::generate(secret_key)?;
    connection.execute(
        "INSERT INTO data_keys (id, wrapped, wrapped_by, created_at) VALUES (?1, ?2, ?3, ?4)",
        params![id, wrapped, by.to_bytes(), now.as_millis()],
    )?;
    Ok(keys)
}

impl DataKeys {
    /// Reads the data key of a database; `None` if it has none yet.
    pub(crate) fn load(
        connection: &Connection,
        secret_key: &SecretKey,
    ) -> Result<Option<Self>, OpenError> {
        let sql = "SELECT id, wrapped FROM data_keys";
        let row = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((id, wrapped)): Option<([u8; KEY_ID_BYTES], Vec<u8>)> = row else {
            return Ok(None);
        };
        let stored = WrappedDataKey { id, wrapped, by: secret_key.id() };
        match Self::unwrap(secret_key, &stored)? {
            Some(keys) => Ok(Some(keys)),
            None => Err(OpenError::Damaged("its data key is damaged".to_owned())),
        }
    }

    /// Reads the data key. The first time creates it and encrypts everything in the same transaction.
    pub(crate) fn open(
        connection: &mut Connection,
        secret_key: &SecretKey,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let keys = match Self::load(connection, secret_key)? {
            Some(keys) => keys,
            None => replace_keys(connection, None, secret_key, now)?,
        };
        if has_plain_remains(connection)? {
            remove_remains_at_start(connection, &keys);
        }
        Ok(keys)
    }

    /// Encrypts everything with a new data key under `new`. One transaction: after a crash the old or
    /// the new key opens the database.
    pub(crate) fn rotate(
        self,
        connection: &mut Connection,
        new: &SecretKey,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        replace_keys(connection, Some(&self), new, now)
    }

    /// Removes what an earlier state left in the files: plain text, and values under earlier keys.
    pub(crate) fn remove_remains(&self, connection: &mut Connection) -> Result<()> {
        if has_plain_remains(connection)? {
            remove_plain_remains(connection, self)?;
        }
        truncate_log(connection)
    }
}

/// Creates a data key and seals everything with it. `old` is `None` if it is stored in plain text.
fn replace_keys(
    connection: &mut Connection,
    old: Option<&DataKeys>,
    secret_key: &SecretKey,
    now: Timestamp,
) -> Result<DataKeys, OpenError> {
    // Overwrites what is replaced, in the file as in the log.
    connection.pragma_update(None, "secure_delete", "ON")?;
    let tx = connection.transaction()?;
    tx.execute("DELETE FROM data_keys", [])?;
    let keys = create_key(&tx, secret_key, now)?;
    let specs = reseal_specs(&tx, old, &keys, "sources", SealedPlace::source)?
        + reseal_specs(&tx, old, &keys, "destinations", SealedPlace::destination)?;
    reseal_quarantine(&tx, old, &keys)?;
    if old.is_none() && specs > 0 {
        tx.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, '1')", [PLAIN_REMAINS])?;
    }
    count_commit(&tx)?;
    tx.commit()?;
    connection.pragma_update(None, "secure_delete", "OFF")?;
    Ok(keys)
}

/// The writer counts its commits in the same way; see `commit_mark`.
fn count_commit(connection: &Connection) -> Result<()> {
    let count = "UPDATE counters SET value = value + 1 WHERE name = 'commit_number'";
    connection.execute(count, [])?;
    Ok(())
}

fn reseal_specs(
    connection: &Connection,
    old: Option<&DataKeys>,
    new: &DataKeys,
    table: &str,
    place: fn([u8; 16]) -> SealedPlace,
) -> Result<usize> {
    let rows: Vec<([u8; 16], String)> =
        connection.read_all(&format!("SELECT id, spec FROM {table}"), [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    for (id, stored) in &rows {
        let spec = match old {
            Some(old) => old.unseal_spec(place(*id), stored)?,
            None => stored.clone(),
        };
        let sealed = new.seal_spec(place(*id), &spec)?;
        let update = format!("UPDATE {table} SET spec = ?2 WHERE id = ?1");
        connection.execute(&update, params![id, sealed])?;
    }
    Ok(rows.len())
}

fn reseal_quarantine(
    connection: &Connection,
    old: Option<&DataKeys>,
    new: &DataKeys,
) -> Result<()> {
    let ids: Vec<[u8; 16]> =
        connection.read_all("SELECT id FROM quarantine", [], |row| row.get(0))?;
    for id in ids {
        let find = "SELECT path, query, headers FROM quarantine WHERE id = ?1";
        let head = connection.query_row(find, params![id], |row| match old {
            Some(old) => Ok(QuarantinedHead::unseal(old, id, &row.get::<_, Vec<u8>>(2)?)?),
            None => Ok(QuarantinedHead {
                path: row.get(0)?,
                query: row.get(1)?,
                headers: HeaderBlock::from_bytes(row.get(2)?),
            }),
        })?;
        let update = "UPDATE quarantine SET path = '', query = NULL, headers = ?2 WHERE id = ?1";
        connection.execute(update, params![id, head.seal(new, id)?])?;
    }
    Ok(())
}

/// Row of `meta` while old copies of secrets may be in unused space of the file, or in stored requests.
const PLAIN_REMAINS: &str = "plain_text_remains";

pub(super) fn has_plain_remains(connection: &Connection) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM meta WHERE name = ?1)";
    connection.query_row(sql, [PLAIN_REMAINS], |row| row.get(0))
}

fn remove_remains_at_start(connection: &mut Connection, keys: &DataKeys) {
    let bytes = match database_bytes(connection) {
        Ok(bytes) if bytes <= REWRITE_BYTES_MAX => bytes,
        Ok(bytes) => {
            tracing::warn!(
                bytes,
                "secrets are encrypted now, but old copies may be left in unused space of the database, \
                 which is too large to be rewritten at a start; stop the gateway and run \
                 `surehook secret-key rotate`"
            );
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "could not find the size of the database");
            return;
        }
    };
    tracing::info!(bytes, "removing old copies of secrets from the database");
    match remove_plain_remains(connection, keys) {
        Ok(()) => tracing::info!(
            "secrets are encrypted; backups, `rescued-` and `replaced-` copies from before still contain \
             them in plain text"
        ),
        // Tried again at the next start.
        Err(error) => tracing::warn!(
            %error,
            "secrets are encrypted, but their old copies could not be removed from unused space of the \
             database; this is tried again at the next start"
        ),
    }
}

fn database_bytes(connection: &Connection) -> Result<u64> {
    let pages: u64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page_bytes: u64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    Ok(pages.saturating_mul(page_bytes))
}

/// Masks the secrets that stored requests carry, and rewrites the file without unused space.
fn remove_plain_remains(connection: &mut Connection, keys: &DataKeys) -> Result<()> {
    let tx = connection.transaction()?;
    mask_stored_requests(&tx, keys)?;
    count_commit(&tx)?;
    tx.commit()?;
    let in_memory = database_bytes(connection)? <= REWRITE_IN_MEMORY_MAX;
    connection.pragma_update(None, "temp_store", if in_memory { "MEMORY" } else { "FILE" })?;
    connection.execute_batch("VACUUM")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    truncate_log(connection)?;
    // Only now: until here it is done again after a crash.
    let tx = connection.transaction()?;
    tx.execute("DELETE FROM meta WHERE name = ?1", [PLAIN_REMAINS])?;
    count_commit(&tx)?;
    tx.commit()
}

/// The log holds the old pages until it is truncated.
fn truncate_log(connection: &Connection) -> Result<()> {
    let is_busy: bool =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        return Err(
            failure("another process reads the database; the log cannot be truncated").into()
        );
    }
    Ok(())
}

/// Masks the header with the source's own secret in stored requests, as is done for new ones.
fn mask_stored_requests(connection: &Connection, keys: &DataKeys) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("mask_headers", 2, flags, |call| {
        let headers = HeaderBlock::from_bytes(call.get(0)?);
        let names = call.get_raw(1).as_str()?;
        let is_secret = |name: &str| names.split(' ').any(|secret| secret == name);
        Ok(headers.with_masked(is_secret).as_bytes().to_vec())
    })?;
    let sources: Vec<(i64, [u8; 16], String)> =
        connection.read_all("SELECT seq, id, spec FROM sources", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    for (seq, id, stored) in sources {
        let spec = keys.unseal_spec(SealedPlace::source(id), &stored)?;
        // A source that no longer parses cannot accept requests either.
        let Ok(spec) = serde_json::from_str::<SourceSpec>(&spec) else { continue };
        let headers = spec.credential_headers();
        if !headers.is_empty() {
            connection.execute(
                "UPDATE payloads SET headers = mask_headers(headers, ?2)
                  WHERE seq IN (SELECT payload FROM events WHERE source = ?1)
                    AND headers <> mask_headers(headers, ?2)",
                params![seq, headers.join(" ")],
            )?;
        }
    }
    connection.remove_function("mask_headers", 2)
}
