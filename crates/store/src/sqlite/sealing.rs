//! Encryption of what contains secrets: specs of sources and destinations, and the heads of quarantined
//! requests.
//!
//! Values are sealed with a random data key (AES-256-GCM). The data key is stored in the database,
//! encrypted with the secret key, which is not. The table, the column, the id of the row and the id of
//! the key are authenticated with each value, so a sealed value is refused in any other place.
//!
//! [`DataKeys::open`] runs at each start, before the writer. The first time it also encrypts what an
//! earlier version stored in plain text, and removes all old copies of it from the files.

#[cfg(test)]
mod tests;

use std::path::Path;

use data_encoding::BASE64;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom as _, SystemRandom},
};
use rusqlite::{
    Connection, Error, OptionalExtension as _, Result, functions::FunctionFlags, params,
};
use serde_json::{Map, Value};
use surehook_core::{event::HeaderBlock, source::SourceSpec};
use surehook_types::time::Timestamp;

use super::{
    OpenError,
    prepared::CachedStatements as _,
    row::corrupt_value,
    secret_key::{self, SecretKey, SecretKeyId},
};

const DATA_KEY_BYTES: usize = 32;
const KEY_ID_BYTES: usize = 8;

/// First byte of a sealed value: the format.
const FORMAT: u8 = 1;

/// Files up to this size are rewritten at the start that encrypts them: some seconds. For larger ones
/// `surehook secret-key rotate` does it.
const REWRITE_BYTES_MAX: u64 = 1 << 30;
/// Up to this size the rewriting needs no temporary file.
const REWRITE_IN_MEMORY_MAX: u64 = 64 << 20;

/// Fields of a source that SQL reads; not secret.
const PLAIN_FIELDS: [&str; 3] = ["redact", "retention", "strip_secrets"];
const SEALED_FIELD: &str = "sealed";

/// Where a sealed value belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealedPlace {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
    pub(super) row: [u8; 16],
}

impl SealedPlace {
    pub(crate) fn source(row: [u8; 16]) -> Self {
        Self { table: "sources", column: "spec", row }
    }

    pub(crate) fn destination(row: [u8; 16]) -> Self {
        Self { table: "destinations", column: "spec", row }
    }

    pub(crate) fn quarantined(row: [u8; 16]) -> Self {
        Self { table: "quarantine", column: "headers", row }
    }

    /// Unambiguous: names contain no zero byte, and the rest has fixed lengths.
    fn authenticated(self, key: [u8; KEY_ID_BYTES]) -> Vec<u8> {
        [self.table.as_bytes(), b"\0", self.column.as_bytes(), b"\0", &key, &self.row].concat()
    }
}

/// A key with its id. Few values are encrypted with one key, so random nonces do not repeat.
struct DataKey {
    id: [u8; KEY_ID_BYTES],
    key: LessSafeKey,
}

impl DataKey {
    fn new(id: [u8; KEY_ID_BYTES], bytes: &[u8; DATA_KEY_BYTES]) -> Result<Self> {
        let key =
            UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| failure("the key is invalid"))?;
        Ok(Self { id, key: LessSafeKey::new(key) })
    }
}

/// The keys that a database encrypts with.
pub(crate) struct DataKeys {
    current: DataKey,
}

impl std::fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKeys(•••)")
    }
}

fn failure(what: &str) -> Error {
    Error::ToSqlConversionFailure(what.into())
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| failure("the system gives no random bytes"))?;
    Ok(bytes)
}

/// Nonce, then the encrypted bytes with their tag.
fn encrypt(key: &LessSafeKey, authenticated: &[u8], plain: &[u8]) -> Result<Vec<u8>> {
    let nonce: [u8; NONCE_LEN] = random()?;
    let mut bytes = plain.to_vec();
    key.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(authenticated),
        &mut bytes,
    )
    .map_err(|_| failure("the value is too long to be encrypted"))?;
    Ok([&nonce[..], &bytes].concat())
}

/// `None` if the bytes were not encrypted with this key for this place.
fn decrypt(key: &LessSafeKey, authenticated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, bytes) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut bytes = bytes.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = key.open_in_place(nonce, Aad::from(authenticated), &mut bytes).ok()?;
    Some(plain.to_vec())
}

impl DataKeys {
    pub(crate) fn seal(&self, place: SealedPlace, plain: &[u8]) -> Result<Vec<u8>> {
        let DataKey { id, key } = &self.current;
        let sealed = encrypt(key, &place.authenticated(*id), plain)?;
        Ok([&[FORMAT][..], id, &sealed].concat())
    }

    pub(crate) fn unseal(&self, place: SealedPlace, sealed: &[u8]) -> Result<Vec<u8>> {
        let DataKey { id, key } = &self.current;
        let plain = match sealed.split_first() {
            Some((&FORMAT, rest)) => rest
                .strip_prefix(&id[..])
                .and_then(|sealed| decrypt(key, &place.authenticated(*id), sealed)),
            Some(_) | None => None,
        };
        let SealedPlace { table, column, .. } = place;
        plain.ok_or_else(|| {
            let what = format!(
                "an encrypted value in {table}.{column} is damaged or belongs elsewhere; restore a backup"
            );
            corrupt_value(0, &what).into()
        })
    }

    /// A spec as it is stored: a JSON object with the sealed text and the fields that SQL reads.
    pub(crate) fn seal_spec(&self, place: SealedPlace, spec: &str) -> Result<String> {
        let sealed = BASE64.encode(&self.seal(place, spec.as_bytes())?);
        let mut stored = Map::from_iter([(SEALED_FIELD.to_owned(), Value::String(sealed))]);
        if let Ok(Value::Object(mut fields)) = serde_json::from_str(spec) {
            let plain = PLAIN_FIELDS.into_iter().filter_map(|name| fields.remove_entry(name));
            stored.extend(plain);
        }
        Ok(Value::Object(stored).to_string())
    }

    /// The text of a stored spec. One that is not sealed is refused: someone else wrote it.
    pub(crate) fn unseal_spec(&self, place: SealedPlace, stored: &str) -> Result<String> {
        let stored: Option<Value> = serde_json::from_str(stored).ok();
        let sealed = stored.as_ref().and_then(|stored| stored[SEALED_FIELD].as_str());
        let sealed = sealed.and_then(|text| BASE64.decode(text.as_bytes()).ok());
        let plain = self.unseal(place, &sealed.unwrap_or_default())?;
        String::from_utf8(plain).map_err(|_| corrupt_value(0, "a spec is not UTF-8").into())
    }
}

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

fn wrapping_place(id: [u8; KEY_ID_BYTES], by: SecretKeyId) -> Vec<u8> {
    [&b"data_keys\0wrapped\0"[..], &by.to_bytes(), &id].concat()
}

fn wrapping_key(secret_key: &SecretKey) -> Result<LessSafeKey> {
    Ok(DataKey::new([0; KEY_ID_BYTES], &secret_key.wrapping_key())?.key)
}

/// Creates a random data key and stores it, encrypted with the secret key.
fn create_key(connection: &Connection, secret_key: &SecretKey, now: Timestamp) -> Result<DataKeys> {
    let (id, bytes) = (random()?, random()?);
    let by = secret_key.id();
    let wrapped = encrypt(&wrapping_key(secret_key)?, &wrapping_place(id, by), &bytes)?;
    connection.execute(
        "INSERT INTO data_keys (id, wrapped, wrapped_by, created_at) VALUES (?1, ?2, ?3, ?4)",
        params![id, wrapped, by.to_bytes(), now.as_millis()],
    )?;
    Ok(DataKeys { current: DataKey::new(id, &bytes)? })
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
        let bytes =
            decrypt(&wrapping_key(secret_key)?, &wrapping_place(id, secret_key.id()), &wrapped);
        let bytes = bytes.and_then(|bytes| <[u8; DATA_KEY_BYTES]>::try_from(bytes).ok());
        let bytes =
            bytes.ok_or_else(|| OpenError::Damaged("its data key is damaged".to_owned()))?;
        Ok(Some(Self { current: DataKey::new(id, &bytes)? }))
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
            Some(old) => QuarantinedHead::unseal(old, id, &row.get::<_, Vec<u8>>(2)?),
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

/// The part of a quarantined request that has its credentials. They may be right: the request is kept
/// until the source is configured with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantinedHead {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderBlock,
}

impl QuarantinedHead {
    pub(crate) fn seal(&self, keys: &DataKeys, id: [u8; 16]) -> Result<Vec<u8>> {
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
        let query = self.query.as_deref();
        let plain = [
            &length(&self.path)[..],
            self.path.as_bytes(),
            &[u8::from(query.is_some())],
            &length(query.unwrap_or_default()),
            query.unwrap_or_default().as_bytes(),
            self.headers.as_bytes(),
        ];
        keys.seal(SealedPlace::quarantined(id), &plain.concat())
    }

    pub(crate) fn unseal(keys: &DataKeys, id: [u8; 16], sealed: &[u8]) -> Result<Self> {
        let plain = keys.unseal(SealedPlace::quarantined(id), sealed)?;
        Self::decode(&plain)
            .ok_or_else(|| corrupt_value(0, "a quarantined request is incomplete").into())
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (path, rest) = split_text(plain)?;
        let (has_query, rest) = rest.split_first()?;
        let (query, headers) = split_text(rest)?;
        let query = (*has_query == 1).then_some(query);
        Some(Self { path, query, headers: HeaderBlock::from_bytes(headers.to_vec()) })
    }
}

fn split_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
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
        return Err(failure("another process reads the database; the log cannot be truncated"));
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
