//! Quarantine: refused requests that are stored completely.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use surehook_core::{
    quarantine::{
        QUARANTINE_REQUESTS_MAX, QUARANTINE_SHARES, QuarantineResult, QuarantinedRequest,
    },
    store::PageRequest,
};
use surehook_guard::address::address_bucket;
use surehook_types::{
    ids::{RequestId, SourceId},
    time::Timestamp,
};

use super::row::{blob, id, time};
use crate::{
    sealing::{DataKeys, QuarantinedHead},
    sql::{Result, SqlConnection, SqlParameter, SqlRow, params},
};

const PER_SLICE: usize = 200;

const FIND_SAME: &str = "SELECT id FROM quarantine WHERE source_id = ?1 AND fingerprint = ?2";

// The headers of the latest request are kept: they have its signature and timestamp.
const UPSERT: &str = "
    INSERT INTO quarantine (id, source_id, fingerprint, received_at, seen_at, times, code, method,
                            path, query, remote, headers, body_bytes, body, sender)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
    ON CONFLICT (source_id, fingerprint) DO UPDATE SET
        seen_at = excluded.seen_at, times = quarantine.times + excluded.times, code = excluded.code,
        remote = excluded.remote, headers = excluded.headers
     WHERE quarantine.is_stranger = 1 OR excluded.code NOT IN ('missing_signature', 'missing_credentials')
    RETURNING id";

// An unsigned request with the same bytes must not replace the signature.
const COUNT_AGAIN: &str = "
    UPDATE quarantine SET times = times + ?3 WHERE source_id = ?1 AND fingerprint = ?2
    RETURNING id";

/// Implements `QuarantineStore::quarantine`.
pub(crate) fn insert(
    connection: &impl SqlConnection,
    keys: &DataKeys,
    request: &QuarantinedRequest,
    bytes_max: u64,
) -> Result<QuarantineResult> {
    let fingerprint = request.fingerprint();
    // Sealed for the row that it gets into.
    let values = params![blob(request.source), fingerprint];
    let row = connection.find_one(FIND_SAME, values, |row| row.get(0))?.unwrap_or(blob(request.id));
    let head = QuarantinedHead {
        path: request.path.clone(),
        query: request.query.clone(),
        headers: request.headers.clone(),
    };
    let sender = sender_of(&request.remote);
    let values = params![
        blob(request.id),
        blob(request.source),
        fingerprint,
        request.received_at.as_millis(),
        request.seen_at.as_millis(),
        request.times,
        request.code,
        request.method,
        "",
        None::<String>,
        request.remote,
        head.seal(keys, row)?,
        request.body_bytes,
        request.body.as_deref().unwrap_or_default(),
        sender,
    ];
    let stored = match connection.find_one(UPSERT, values, |row| id(row, 0))? {
        Some(stored) => stored,
        None => {
            let values = params![blob(request.source), fingerprint, request.times];
            connection.read_one(COUNT_AGAIN, values, |row| id(row, 0))?
        }
    };
    evict(connection, request.source, stored, bytes_max)
}

/// The address under which limits count a sender.
pub(crate) fn sender_of(remote: &str) -> String {
    match remote.parse() {
        Ok(address) => address_bucket(address).to_string(),
        Err(_) => remote.to_owned(),
    }
}

// A stranger is a request without credentials: `is_stranger` follows from its code. It never displaces
// a request with credentials.
const NEWEST: &str = "SELECT sender, is_stranger FROM quarantine WHERE id = ?1";

// Two statements, so that each uses its index.
const HEAVIEST: [&str; 2] = [
    "SELECT sender FROM quarantine_senders WHERE source_id = ?1 AND many > ?2
      ORDER BY many DESC LIMIT 1",
    "SELECT sender FROM quarantine_senders WHERE source_id = ?1 AND bytes > ?2
      ORDER BY bytes DESC LIMIT 1",
];

const OLDEST_STRANGER: &str = "
    SELECT id FROM quarantine WHERE source_id = ?1 AND is_stranger = 1 AND id <> ?2 ORDER BY id LIMIT 1";

const OLDEST_OF_SENDER: &str = "
    SELECT id FROM quarantine
     WHERE source_id = ?1 AND sender = ?3 AND id <> ?2 AND (is_stranger = 1 OR ?4 = 0)
     ORDER BY is_stranger DESC, id LIMIT 1";

/// Removes requests of a source beyond its limits, in the order of `QuarantineStore::quarantine`.
fn evict(
    connection: &impl SqlConnection,
    source: SourceId,
    newest: RequestId,
    bytes_max: u64,
) -> Result<QuarantineResult> {
    let mut stored = QuarantineResult { id: Some(newest), evicted: 0 };
    while is_over_limit(connection, source, bytes_max)? {
        match find_displaced(connection, source, newest, bytes_max)? {
            Some(displaced) => {
                remove(connection, displaced)?;
                stored.evicted += 1;
            }
            None => {
                remove(connection, newest)?;
                return Ok(QuarantineResult { id: None, ..stored });
            }
        }
    }
    Ok(stored)
}

/// The request that the newest one displaces; `None` if it displaces none.
fn find_displaced(
    connection: &impl SqlConnection,
    source: SourceId,
    newest: RequestId,
    bytes_max: u64,
) -> Result<Option<RequestId>> {
    let (newest_sender, is_stranger): (String, bool) =
        connection.read_one(NEWEST, params![blob(newest)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if !is_stranger {
        let values = params![blob(source), blob(newest)];
        let oldest = connection.find_one(OLDEST_STRANGER, values, |row| id(row, 0))?;
        if oldest.is_some() {
            return Ok(oldest);
        }
    }
    let mut senders = Vec::with_capacity(3);
    let shares = [QUARANTINE_REQUESTS_MAX, bytes_max].map(|max| max / QUARANTINE_SHARES);
    for (sql, share) in HEAVIEST.into_iter().zip(shares) {
        let values = params![blob(source), share];
        senders.extend(connection.find_one(sql, values, |row| row.get::<String>(0))?);
    }
    // A sender that is beyond its share displaces only its own requests.
    if senders.contains(&newest_sender) {
        senders.clear();
    }
    senders.push(newest_sender);
    for sender in senders {
        let values = params![blob(source), blob(newest), sender, is_stranger];
        let oldest = connection.find_one(OLDEST_OF_SENDER, values, |row| id(row, 0))?;
        if oldest.is_some() {
            return Ok(oldest);
        }
    }
    Ok(None)
}

fn is_over_limit(
    connection: &impl SqlConnection,
    source: SourceId,
    bytes_max: u64,
) -> Result<bool> {
    let sql = "SELECT many > ?2 OR bytes > ?3 FROM quarantine_totals WHERE source_id = ?1";
    let values = params![blob(source), QUARANTINE_REQUESTS_MAX, bytes_max];
    connection.read_one(sql, values, |row| row.get(0))
}

const COLUMNS: &str = "id, source_id, received_at, seen_at, times, code, method, headers, \
                       remote, body_bytes";

fn read_request(row: &dyn SqlRow, keys: &DataKeys) -> Result<QuarantinedRequest> {
    let head = QuarantinedHead::unseal(keys, row.get(0)?, row.bytes(7)?)?;
    Ok(QuarantinedRequest {
        id: id(row, 0)?,
        source: id(row, 1)?,
        received_at: time(row, 2)?,
        seen_at: time(row, 3)?,
        times: row.get(4)?,
        code: row.get(5)?,
        method: row.get(6)?,
        path: head.path,
        query: head.query,
        remote: row.get(8)?,
        headers: head.headers,
        body_bytes: row.get(9)?,
        body: None,
    })
}

/// Implements `QuarantineStore::list_quarantined`.
pub(crate) fn list(
    connection: &impl SqlConnection,
    keys: &DataKeys,
    source: Option<SourceId>,
    page: PageRequest<RequestId>,
) -> Result<Vec<QuarantinedRequest>> {
    let before = page.after.map_or([0xff; 16], blob);
    // Two statements, so that each uses its index.
    let source_condition = if source.is_some() { "source_id = ?3 AND" } else { "" };
    let sql = format!(
        "SELECT {COLUMNS} FROM quarantine WHERE {source_condition} id < ?1 ORDER BY id DESC LIMIT ?2"
    );
    let source = source.map(blob);
    let mut values: Vec<&dyn SqlParameter> = vec![&before, &page.limit];
    values.extend(source.as_ref().map(|source| source as &dyn SqlParameter));
    connection.read_all(&sql, &values, |row| read_request(row, keys))
}

/// Implements `QuarantineStore::list_quarantined_ids`.
pub(crate) fn list_oldest_first(
    connection: &impl SqlConnection,
    source: SourceId,
    page: PageRequest<RequestId>,
) -> Result<Vec<RequestId>> {
    let sql = "SELECT id FROM quarantine WHERE source_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    let values = params![blob(source), page.after.map_or([0; 16], blob), page.limit];
    connection.read_all(sql, values, |row| id(row, 0))
}

/// Implements `QuarantineStore::find_quarantined`.
pub(crate) fn find(
    connection: &impl SqlConnection,
    keys: &DataKeys,
    request: RequestId,
) -> Result<Option<QuarantinedRequest>> {
    let sql = format!("SELECT {COLUMNS}, body FROM quarantine WHERE id = ?1");
    connection.find_one(&sql, params![blob(request)], |row| {
        let body = row.get::<Vec<u8>>(10)?.into();
        Ok(QuarantinedRequest { body: Some(body), ..read_request(row, keys)? })
    })
}

/// Removes a request; returns whether it existed.
pub(crate) fn remove(connection: &impl SqlConnection, request: RequestId) -> Result<bool> {
    Ok(connection.run("DELETE FROM quarantine WHERE id = ?1", params![blob(request)])? > 0)
}

pub(crate) fn remove_by_fingerprint(
    connection: &impl SqlConnection,
    source: SourceId,
    fingerprint: [u8; 32],
) -> Result<()> {
    let sql = "DELETE FROM quarantine WHERE source_id = ?1 AND fingerprint = ?2";
    connection.run(sql, params![blob(source), fingerprint])?;
    Ok(())
}

/// The sources that have quarantined requests. A source may be listed in excess, which costs a
/// lookup, but must not be missing; so only the writer changes this.
#[derive(Debug, Default)]
pub(crate) struct QuarantineSources(RwLock<HashSet<SourceId>>);

impl QuarantineSources {
    pub(crate) fn contains(&self, source: SourceId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&source)
    }

    pub(crate) fn add(&self, source: SourceId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(source);
    }

    pub(crate) fn reload(&self, connection: &impl SqlConnection) -> Result<()> {
        let sql = "SELECT source_id FROM quarantine_totals WHERE many > 0";
        let sources = connection.read_all(sql, params![], |row| id(row, 0))?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = sources;
        Ok(())
    }
}

/// Removes a slice of the requests last seen before a time.
pub(crate) fn prune(connection: &impl SqlConnection, before: Timestamp) -> Result<usize> {
    let sql = "DELETE FROM quarantine WHERE id IN
                   (SELECT id FROM quarantine WHERE seen_at < ?1 ORDER BY seen_at LIMIT ?2)";
    connection.run(sql, params![before.as_millis(), PER_SLICE])
}
