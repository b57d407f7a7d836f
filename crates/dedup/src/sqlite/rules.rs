//! The rules as functions over a connection, for use inside your own transactions.
//!
//! Each function changes at most one row by at most one statement, so a failed one leaves nothing half
//! done. Two that run at the same time must be serialized by the caller: run them in a write
//! transaction (`BEGIN IMMEDIATE`). The values of requests must have been checked
//! ([`ClaimRequest::check`], [`CompletionRequest::check`], [`check_lease`](crate::claim::check_lease)).

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::Type};
use surehook_types::{rng::Rng, time::Timestamp};

use crate::{
    StoreEpoch,
    claim::{
        Claim, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
        Fingerprint,
    },
    record::{ClaimRecord, RecordState, decide_claim},
};

/// The tables. Running it again changes nothing.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS surehook_dedup_claims (
    id           INTEGER PRIMARY KEY,
    namespace    TEXT NOT NULL,
    name         TEXT NOT NULL,
    state        INTEGER NOT NULL, -- 0 in progress, 1 completed, 2 released
    token        BLOB NOT NULL,
    fence        INTEGER NOT NULL,
    fingerprint  BLOB,
    operation    BLOB NOT NULL,
    started_at   INTEGER NOT NULL,
    lease_until  INTEGER,
    completed_at INTEGER,
    expires_at   INTEGER NOT NULL,
    result       BLOB,
    CONSTRAINT columns_fit_the_state CHECK (
        (state = 0 AND lease_until IS NOT NULL AND completed_at IS NULL AND result IS NULL)
     OR (state = 1 AND lease_until IS NULL AND completed_at IS NOT NULL AND result IS NOT NULL)
     OR (state = 2 AND lease_until IS NULL AND completed_at IS NULL AND result IS NULL))
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS surehook_dedup_claims_key
    ON surehook_dedup_claims (namespace, name);
CREATE INDEX IF NOT EXISTS surehook_dedup_claims_expiry ON surehook_dedup_claims (expires_at);
CREATE TABLE IF NOT EXISTS surehook_dedup_epoch (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    epoch BLOB NOT NULL
) STRICT;
";

/// Maximum number of rows of one [`list`].
pub const LIST_MAX: usize = 1000;

const IN_PROGRESS: i64 = 0;
const COMPLETED: i64 = 1;
const RELEASED: i64 = 2;

/// Creates the tables and the epoch if they are missing.
pub fn create_tables(connection: &Connection, rng: &dyn Rng) -> rusqlite::Result<()> {
    connection.execute_batch(SCHEMA)?;
    let epoch = rng.next_u128().to_be_bytes();
    connection.execute(
        "INSERT OR IGNORE INTO surehook_dedup_epoch (id, epoch) VALUES (1, ?1)",
        [epoch],
    )?;
    Ok(())
}

/// Reads the epoch of the file.
pub fn epoch(connection: &Connection) -> rusqlite::Result<StoreEpoch> {
    let mut statement =
        connection.prepare_cached("SELECT epoch FROM surehook_dedup_epoch WHERE id = 1")?;
    statement.query_row([], |row| row.get(0).map(StoreEpoch::from_bytes))
}

/// Begins a new epoch, after a restore.
pub fn renew_epoch(connection: &Connection, rng: &dyn Rng) -> rusqlite::Result<StoreEpoch> {
    let epoch = rng.next_u128().to_be_bytes();
    connection.execute("UPDATE surehook_dedup_epoch SET epoch = ?1 WHERE id = 1", [epoch])?;
    Ok(StoreEpoch::from_bytes(epoch))
}

const FIND: &str = "
    SELECT state, token, fence, fingerprint, operation, started_at, lease_until, completed_at,
           expires_at, result, id
      FROM surehook_dedup_claims WHERE namespace = ?1 AND name = ?2";

/// A record with its row.
struct StoredRecord {
    id: i64,
    record: ClaimRecord,
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
    let state = match row.get::<_, i64>(0)? {
        IN_PROGRESS => RecordState::InProgress { lease_until: time(row, 6)? },
        COMPLETED => RecordState::Completed {
            completed_at: time(row, 7)?,
            result: Bytes::from(row.get::<_, Vec<u8>>(9)?),
        },
        RELEASED => RecordState::Released,
        other => {
            let reason = format!("unknown state {other}").into();
            return Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, reason));
        }
    };
    let record = ClaimRecord {
        state,
        token: ClaimToken::from_bytes(row.get(1)?),
        fence: row.get(2)?,
        fingerprint: row.get::<_, Option<[u8; 32]>>(3)?.map(Fingerprint::from_bytes),
        operation: ClaimOperation { id: row.get(4)?, started_at: time(row, 5)? },
        expires_at: time(row, 8)?,
    };
    Ok(StoredRecord { id: row.get(10)?, record })
}

fn find(connection: &Connection, key: &ClaimKey) -> rusqlite::Result<Option<StoredRecord>> {
    let mut statement = connection.prepare_cached(FIND)?;
    statement.query_row([key.namespace(), key.name()], read_record).optional()
}

const UPSERT: &str = "
    INSERT INTO surehook_dedup_claims (namespace, name, state, token, fence, fingerprint,
           operation, started_at, lease_until, expires_at)
    VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (namespace, name) DO UPDATE SET
           state = 0, token = ?3, fence = ?4, fingerprint = ?5, operation = ?6, started_at = ?7,
           lease_until = ?8, completed_at = NULL, expires_at = ?9, result = NULL";

/// Implements [`DedupLock::claim`](crate::DedupLock::claim).
pub fn claim(
    connection: &Connection,
    request: &ClaimRequest,
    now: Timestamp,
    rng: &dyn Rng,
) -> rusqlite::Result<Claim> {
    let existing = find(connection, &request.key)?;
    let decision = decide_claim(existing.as_ref().map(|stored| &stored.record), request, now, rng);
    if let Some(record) = decision.write {
        let lease_until = now + request.lease;
        connection.prepare_cached(UPSERT)?.execute(params![
            request.key.namespace(),
            request.key.name(),
            record.token.as_bytes(),
            record.fence,
            record.fingerprint.map(|fingerprint| *fingerprint.as_bytes()),
            record.operation.id,
            record.operation.started_at.as_millis(),
            lease_until.as_millis(),
            record.expires_at.as_millis(),
        ])?;
    }
    Ok(decision.claim)
}

const EXTEND: &str = "
    UPDATE surehook_dedup_claims SET lease_until = ?2, expires_at = ?3 WHERE id = ?1";

/// Implements [`DedupLock::extend`](crate::DedupLock::extend).
pub fn extend(
    connection: &Connection,
    key: &ClaimKey,
    token: ClaimToken,
    lease: Duration,
    now: Timestamp,
) -> rusqlite::Result<ClaimUpdate> {
    let Some(StoredRecord { id, mut record }) = find(connection, key)? else {
        return Ok(ClaimUpdate::StaleToken);
    };
    let update = record.extend(token, lease, now);
    if update.is_applied() {
        let values = params![id, (now + lease).as_millis(), record.expires_at.as_millis()];
        connection.prepare_cached(EXTEND)?.execute(values)?;
    }
    Ok(update)
}

const COMPLETE: &str = "
    UPDATE surehook_dedup_claims
       SET state = 1, lease_until = NULL, completed_at = ?2, expires_at = ?3, result = ?4
     WHERE id = ?1 AND state = 0";

/// Implements [`DedupLock::complete`](crate::DedupLock::complete).
pub fn complete(
    connection: &Connection,
    request: &CompletionRequest,
    now: Timestamp,
) -> rusqlite::Result<ClaimUpdate> {
    let Some(StoredRecord { id, mut record }) = find(connection, &request.key)? else {
        return Ok(ClaimUpdate::StaleToken);
    };
    let update = record.complete(request, now);
    if update.is_applied() {
        // Changes nothing if it was completed before.
        connection.prepare_cached(COMPLETE)?.execute(params![
            id,
            now.as_millis(),
            record.expires_at.as_millis(),
            request.result.as_ref(),
        ])?;
    }
    Ok(update)
}

const RELEASE: &str = "
    UPDATE surehook_dedup_claims SET state = 2, lease_until = NULL, fingerprint = NULL
     WHERE id = ?1";

/// Implements [`DedupLock::release`](crate::DedupLock::release).
pub fn release(
    connection: &Connection,
    key: &ClaimKey,
    token: ClaimToken,
    now: Timestamp,
) -> rusqlite::Result<ClaimUpdate> {
    let Some(StoredRecord { id, mut record }) = find(connection, key)? else {
        return Ok(ClaimUpdate::StaleToken);
    };
    let update = record.release(token, now);
    if update.is_applied() {
        connection.prepare_cached(RELEASE)?.execute([id])?;
    }
    Ok(update)
}

const PRUNE: &str = "
    DELETE FROM surehook_dedup_claims WHERE id IN (
        SELECT id FROM surehook_dedup_claims WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";

/// Forgets at most `max` keys whose ttl has ended; returns how many.
pub fn prune(connection: &Connection, now: Timestamp, max: usize) -> rusqlite::Result<usize> {
    connection.prepare_cached(PRUNE)?.execute(params![now.as_millis(), max])
}

/// The state of a listed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// Under a lease.
    InProgress {
        /// When the lease ends.
        lease_until: Timestamp,
    },
    /// The lease ended without a completion: the next claim is granted.
    Abandoned {
        /// When the lease ended.
        lease_until: Timestamp,
    },
    /// Done.
    Completed {
        /// When it was completed.
        completed_at: Timestamp,
        /// Size of the stored result.
        result_bytes: u64,
    },
    /// Given back; only its fence is remembered.
    Released,
}

/// A key of a [`list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedClaim {
    /// The key.
    pub key: ClaimKey,
    /// Its state at the time of the list.
    pub status: ClaimStatus,
    /// The fence of its last grant.
    pub fence: u64,
    /// The operation of its last grant.
    pub operation: ClaimOperation,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

const LIST: &str = "
    SELECT namespace, name, state, fence, operation, started_at, lease_until, completed_at,
           expires_at, length(result)
      FROM surehook_dedup_claims
     WHERE (namespace, name) > (?1, ?2) AND (?3 IS NULL OR namespace = ?3) AND expires_at > ?4
     ORDER BY namespace, name LIMIT ?5";

/// Lists at most [`LIST_MAX`] keys that are remembered, in their order after `after`: all of them, or
/// those of one namespace.
pub fn list(
    connection: &Connection,
    namespace: Option<&str>,
    after: Option<&ClaimKey>,
    now: Timestamp,
    max: usize,
) -> rusqlite::Result<Vec<ListedClaim>> {
    // Before the first key of the namespace.
    let (from_namespace, from_name) = match after {
        Some(key) => (key.namespace(), key.name()),
        None => (namespace.unwrap_or_default(), ""),
    };
    let values = params![from_namespace, from_name, namespace, now.as_millis(), max.min(LIST_MAX)];
    let mut statement = connection.prepare_cached(LIST)?;
    statement.query_map(values, |row| read_listed(row, now))?.collect()
}

fn read_listed(row: &Row<'_>, now: Timestamp) -> rusqlite::Result<ListedClaim> {
    let invalid = |error: crate::LimitError| {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into())
    };
    let key = ClaimKey::new(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?);
    let status = match row.get::<_, i64>(2)? {
        IN_PROGRESS => {
            let lease_until = time(row, 6)?;
            if now < lease_until {
                ClaimStatus::InProgress { lease_until }
            } else {
                ClaimStatus::Abandoned { lease_until }
            }
        }
        COMPLETED => {
            ClaimStatus::Completed { completed_at: time(row, 7)?, result_bytes: row.get(9)? }
        }
        _ => ClaimStatus::Released,
    };
    Ok(ListedClaim {
        key: key.map_err(invalid)?,
        status,
        fence: row.get(3)?,
        operation: ClaimOperation { id: row.get(4)?, started_at: time(row, 5)? },
        expires_at: time(row, 8)?,
    })
}

/// How many keys a namespace has in each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceStats {
    /// The namespace.
    pub namespace: String,
    /// Keys under a lease.
    pub in_progress: u64,
    /// Keys whose lease ended without a completion.
    pub abandoned: u64,
    /// Keys with a result.
    pub completed: u64,
    /// Keys that were given back and whose fence is remembered.
    pub released: u64,
    /// Bytes of all results.
    pub result_bytes: u64,
}

const STATS: &str = "
    SELECT namespace, sum(state = 0 AND lease_until > ?1), sum(state = 0 AND lease_until <= ?1),
           sum(state = 1), sum(state = 2), coalesce(sum(length(result)), 0)
      FROM surehook_dedup_claims
     WHERE expires_at > ?1 AND (?2 IS NULL OR namespace = ?2)
     GROUP BY namespace ORDER BY namespace";

/// Counts what is remembered, for all namespaces or one. Reads every key of those.
pub fn stats(
    connection: &Connection,
    namespace: Option<&str>,
    now: Timestamp,
) -> rusqlite::Result<Vec<NamespaceStats>> {
    let mut statement = connection.prepare_cached(STATS)?;
    let read = |row: &Row<'_>| {
        Ok(NamespaceStats {
            namespace: row.get(0)?,
            in_progress: row.get(1)?,
            abandoned: row.get(2)?,
            completed: row.get(3)?,
            released: row.get(4)?,
            result_bytes: row.get(5)?,
        })
    };
    statement.query_map(params![now.as_millis(), namespace], read)?.collect()
}
