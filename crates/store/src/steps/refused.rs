//! Sampled refused requests.

use std::collections::HashMap;

use bytes::Bytes;
use surehook_core::{
    event::HeaderBlock,
    refused::{RefusedFilter, RefusedRequest, SAMPLE_PROTECTED, SAMPLES_MAX},
    store::PageRequest,
};
use surehook_types::{ids::RequestId, time::Timestamp};

use super::{
    list::IdRange,
    quarantine::sender_of,
    row::{blob, id, time},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const PER_SLICE: usize = 200;

const INSERT: &str = "
    INSERT INTO refused_requests
           (id, source, at, code, status, method, path, query, remote, headers, body_bytes, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

// The source may be NULL.
const SAMPLES: &str = "
    SELECT id, at, remote FROM refused_requests WHERE source IS NOT DISTINCT FROM ?1 AND code = ?2 ORDER BY id";

/// A stored sample, as far as it matters for which of them is dropped.
struct SampleRow {
    id: RequestId,
    at: Timestamp,
    sender: String,
}

/// Implements `AdminStore::store_refused`.
pub(crate) fn insert(connection: &impl SqlConnection, refused: &[RefusedRequest]) -> Result<()> {
    for request in refused {
        connection.run(
            INSERT,
            params![
                blob(request.id),
                request.source,
                request.at.as_millis(),
                request.code,
                request.status,
                request.method,
                request.path,
                request.query,
                request.remote,
                request.headers.as_bytes(),
                request.body_bytes,
                request.body.as_deref(),
            ],
        )?;
        let values = params![request.source, request.code];
        let mut samples: Vec<SampleRow> = connection.read_all(SAMPLES, values, |row| {
            let remote: String = row.get(2)?;
            Ok(SampleRow { id: id(row, 0)?, at: time(row, 1)?, sender: sender_of(&remote) })
        })?;
        while samples.len() > SAMPLES_MAX {
            let Some(dropped) = find_dropped(&samples) else { break };
            let sql = "DELETE FROM refused_requests WHERE id = ?1";
            connection.run(sql, params![blob(samples.remove(dropped).id)])?;
        }
    }
    Ok(())
}

/// Which of the samples, oldest first, is dropped: the oldest of the sender that has the most. If all
/// have equally many, the newest one, unless the oldest one is no longer protected.
fn find_dropped(samples: &[SampleRow]) -> Option<usize> {
    let newest = samples.last()?;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for sample in samples {
        *counts.entry(sample.sender.as_str()).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let has_most = |sender: &str| counts.get(sender) == Some(&most);
    // Of several senders that have the most, the one that sent last loses.
    let loser = samples.iter().rev().find(|sample| has_most(&sample.sender))?;
    if most > 1 {
        return samples.iter().position(|sample| sample.sender == loser.sender);
    }
    let is_protected = newest.at.since(samples.first()?.at) < SAMPLE_PROTECTED;
    Some(if is_protected { samples.len() - 1 } else { 0 })
}

const COLUMNS: &str =
    "id, source, at, code, status, method, path, query, remote, headers, body_bytes, body";

fn read_request(row: &dyn SqlRow) -> Result<RefusedRequest> {
    Ok(RefusedRequest {
        id: id(row, 0)?,
        source: row.get(1)?,
        at: time(row, 2)?,
        code: row.get(3)?,
        status: row.get(4)?,
        method: row.get(5)?,
        path: row.get(6)?,
        query: row.get(7)?,
        remote: row.get(8)?,
        headers: HeaderBlock::from_bytes(row.get(9)?),
        body_bytes: row.get(10)?,
        body: row.get::<Option<Vec<u8>>>(11)?.map(Bytes::from),
    })
}

/// Implements `AdminStore::list_refused`. The whole table is small.
pub(crate) fn list(
    connection: &impl SqlConnection,
    filter: &RefusedFilter,
    page: PageRequest<RequestId>,
) -> Result<Vec<RefusedRequest>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM refused_requests
          WHERE id < ?1 AND id >= ?5 AND (source = ?3 OR ?3 IS NULL) AND (code = ?4 OR ?4 IS NULL)
          ORDER BY id DESC LIMIT ?2"
    );
    let range = IdRange::new(page.after, filter.since, filter.until);
    let values = params![range.top, page.limit, filter.source, filter.code, range.bottom];
    connection.read_all(&sql, values, read_request)
}

/// Implements `AdminStore::find_refused`.
pub(crate) fn find(
    connection: &impl SqlConnection,
    request: RequestId,
) -> Result<Option<RefusedRequest>> {
    let sql = format!("SELECT {COLUMNS} FROM refused_requests WHERE id = ?1");
    connection.find_one(&sql, params![blob(request)], read_request)
}

/// Removes a slice of the requests received before a time.
pub(crate) fn prune(connection: &impl SqlConnection, before: Timestamp) -> Result<usize> {
    let sql = "DELETE FROM refused_requests WHERE id IN
                   (SELECT id FROM refused_requests WHERE id < ?1 ORDER BY id LIMIT ?2)";
    connection.run(sql, params![blob(RequestId::new(before, 0)), PER_SLICE])
}
