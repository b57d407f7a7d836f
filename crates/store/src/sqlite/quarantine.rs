//! Quarantine: refused requests that are stored completely.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use surehook_core::{
    event::HeaderBlock,
    quarantine::{QUARANTINE_REQUESTS_MAX, QuarantineResult, QuarantinedRequest},
    store::PageRequest,
};
use surehook_types::{
    ids::{RequestId, SourceId},
    time::Timestamp,
};

use super::{
    row::{blob, id, time},
    writer::WriteTransaction,
};

const PER_SLICE: usize = 200;

// The headers of the latest request are kept: they have its signature and timestamp.
const UPSERT: &str = "
    INSERT INTO quarantine (id, source_id, fingerprint, received_at, seen_at, times, code, method,
                            path, query, remote, headers, body_bytes, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (source_id, fingerprint) DO UPDATE SET
        seen_at = excluded.seen_at, times = times + excluded.times, code = excluded.code,
        remote = excluded.remote, headers = excluded.headers
     WHERE is_stranger OR excluded.code NOT IN ('missing_signature', 'missing_credentials')
    RETURNING id";

// An unsigned request with the same bytes must not replace the signature.
const COUNT_AGAIN: &str = "
    UPDATE quarantine SET times = times + ?3 WHERE source_id = ?1 AND fingerprint = ?2
    RETURNING id";

/// Implements `QuarantineStore::quarantine`.
pub(super) fn insert(
    tx: &mut WriteTransaction<'_, '_>,
    request: &QuarantinedRequest,
    bytes_max: u64,
) -> rusqlite::Result<QuarantineResult> {
    let fingerprint = request.fingerprint();
    let mut upsert = tx.connection.prepare_cached(UPSERT)?;
    let stored: Option<RequestId> = upsert
        .query_row(
            params![
                blob(request.id),
                blob(request.source),
                fingerprint,
                request.received_at.as_millis(),
                request.seen_at.as_millis(),
                request.times,
                request.code,
                request.method,
                request.path,
                request.query,
                request.remote,
                request.headers.as_bytes(),
                request.body_bytes,
                request.body.as_deref().unwrap_or_default(),
            ],
            |row| id(row, 0),
        )
        .optional()?;
    let stored = match stored {
        Some(stored) => stored,
        None => tx
            .connection
            .prepare_cached(COUNT_AGAIN)?
            .query_row(params![blob(request.source), fingerprint, request.times], |row| {
                id(row, 0)
            })?,
    };
    evict(tx, request.source, stored, bytes_max)
}

const EVICT_OLDEST: &str = "
    DELETE FROM quarantine WHERE id =
        (SELECT id FROM quarantine WHERE source_id = ?1 AND (id <> ?2 OR is_stranger)
          ORDER BY is_stranger DESC, id LIMIT 1)
    RETURNING id";

/// Removes requests of a source beyond its limits: unsigned ones first, then the oldest. The newest
/// one stays, unless it is unsigned and would displace a signed one.
fn evict(
    tx: &WriteTransaction<'_, '_>,
    source: SourceId,
    newest: RequestId,
    bytes_max: u64,
) -> rusqlite::Result<QuarantineResult> {
    let mut stored = QuarantineResult { id: Some(newest), pushed_out: 0 };
    while is_over_limit(tx.connection, source, bytes_max)? {
        let mut evict = tx.connection.prepare_cached(EVICT_OLDEST)?;
        let removed: Option<RequestId> =
            evict.query_row(params![blob(source), blob(newest)], |row| id(row, 0)).optional()?;
        match removed {
            None => break,
            Some(removed) if removed == newest => stored.id = None,
            Some(_) => stored.pushed_out += 1,
        }
    }
    Ok(stored)
}

fn is_over_limit(
    connection: &Connection,
    source: SourceId,
    bytes_max: u64,
) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT many > ?2 OR bytes > ?3 FROM quarantine_totals WHERE source_id = ?1",
        )?
        .query_row(params![blob(source), QUARANTINE_REQUESTS_MAX, bytes_max], |row| row.get(0))
}

const COLUMNS: &str = "id, source_id, received_at, seen_at, times, code, method, path, query, \
                       remote, headers, body_bytes";

fn read_request(row: &Row<'_>) -> rusqlite::Result<QuarantinedRequest> {
    Ok(QuarantinedRequest {
        id: id(row, 0)?,
        source: id(row, 1)?,
        received_at: time(row, 2)?,
        seen_at: time(row, 3)?,
        times: row.get(4)?,
        code: row.get(5)?,
        method: row.get(6)?,
        path: row.get(7)?,
        query: row.get(8)?,
        remote: row.get(9)?,
        headers: HeaderBlock::from_bytes(row.get(10)?),
        body_bytes: row.get(11)?,
        body: None,
    })
}

/// Implements `QuarantineStore::list_quarantined`.
pub(super) fn list(
    connection: &Connection,
    source: Option<SourceId>,
    page: PageRequest<RequestId>,
) -> rusqlite::Result<Vec<QuarantinedRequest>> {
    let before = page.after.map_or([0xff; 16], blob);
    // Two statements, so that each uses its index.
    let of_one = if source.is_some() { "source_id = ?3 AND" } else { "?3 IS NULL AND" };
    let sql = format!(
        "SELECT {COLUMNS} FROM quarantine WHERE {of_one} id < ?1 ORDER BY id DESC LIMIT ?2"
    );
    connection
        .prepare_cached(&sql)?
        .query_map(params![before, page.limit, source.map(blob)], read_request)?
        .collect()
}

/// Implements `QuarantineStore::list_quarantined_ids`.
pub(super) fn list_oldest_first(
    connection: &Connection,
    source: SourceId,
    page: PageRequest<RequestId>,
) -> rusqlite::Result<Vec<RequestId>> {
    let after = page.after.map_or([0; 16], blob);
    connection
        .prepare_cached(
            "SELECT id FROM quarantine WHERE source_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
        )?
        .query_map(params![blob(source), after, page.limit], |row| id(row, 0))?
        .collect()
}

/// Implements `QuarantineStore::find_quarantined`.
pub(super) fn find(
    connection: &Connection,
    request: RequestId,
) -> rusqlite::Result<Option<QuarantinedRequest>> {
    let sql = format!("SELECT {COLUMNS}, body FROM quarantine WHERE id = ?1");
    let with_body = |row: &Row<'_>| {
        let body: Vec<u8> = row.get(12)?;
        Ok(QuarantinedRequest { body: Some(Bytes::from(body)), ..read_request(row)? })
    };
    connection.prepare_cached(&sql)?.query_row(params![blob(request)], with_body).optional()
}

/// Removes a request; returns whether it existed.
pub(super) fn remove(tx: &WriteTransaction<'_, '_>, request: RequestId) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM quarantine WHERE id = ?1";
    Ok(tx.connection.prepare_cached(sql)?.execute(params![blob(request)])? > 0)
}

pub(super) fn remove_by_fingerprint(
    tx: &WriteTransaction<'_, '_>,
    source: SourceId,
    fingerprint: [u8; 32],
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM quarantine WHERE source_id = ?1 AND fingerprint = ?2";
    tx.connection.prepare_cached(sql)?.execute(params![blob(source), fingerprint])?;
    Ok(())
}

/// The sources that have quarantined requests. A source may be listed in excess, which costs a
/// lookup, but must not be missing; so only the writer changes this.
#[derive(Debug, Default)]
pub(super) struct QuarantineSources(RwLock<HashSet<SourceId>>);

impl QuarantineSources {
    pub(super) fn contains(&self, source: SourceId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&source)
    }

    pub(super) fn add(&self, source: SourceId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(source);
    }

    pub(super) fn reload(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sources = connection
            .prepare_cached("SELECT source_id FROM quarantine_totals WHERE many > 0")?
            .query_map([], |row| id(row, 0))?
            .collect::<rusqlite::Result<_>>()?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = sources;
        Ok(())
    }
}

/// Removes a slice of the requests last seen before a time.
pub(super) fn prune(tx: &WriteTransaction<'_, '_>, before: Timestamp) -> rusqlite::Result<usize> {
    tx.connection
        .prepare_cached(
            "DELETE FROM quarantine WHERE id IN
                 (SELECT id FROM quarantine WHERE seen_at < ?1 ORDER BY seen_at LIMIT ?2)",
        )?
        .execute(params![before.as_millis(), PER_SLICE])
}
