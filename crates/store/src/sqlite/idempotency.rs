//! Responses stored for an `Idempotency-Key`; see `surehook_core::idempotency`.

use rusqlite::{Connection, Result, Row, params};
use surehook_core::idempotency::{
    IdempotencyClaim, IdempotencyKey, IdempotentRequest, KEY_RETENTION, KEYS_MAX, StoredResponse,
};
use surehook_types::time::Timestamp;

use super::{
    prepared::CachedStatements,
    row::{json, time, to_json},
};

const PRUNED_AT_ONCE: usize = 256;

struct StoredKey {
    request: [u8; 32],
    wish: IdempotentRequest,
    answer: Option<StoredResponse>,
}

const FIND: &str = "
    SELECT request, seed, created_at, status, headers, body FROM idempotency_results
     WHERE scope = ?1 AND key = ?2";

fn read_key(row: &Row<'_>) -> Result<StoredKey> {
    let answer = match row.get(3)? {
        None => None,
        Some(status) => Some(StoredResponse { status, headers: json(row, 4)?, body: row.get(5)? }),
    };
    Ok(StoredKey {
        request: row.get(0)?,
        wish: IdempotentRequest { at: time(row, 2)?, seed: row.get(1)? },
        answer,
    })
}

// From both ends of the primary key, without counting rows.
const SEQ_SPAN: &str = "
    SELECT coalesce((SELECT max(seq) FROM idempotency_results)
                    - (SELECT min(seq) FROM idempotency_results) + 1, 0)";

const REMOVE: &str = "DELETE FROM idempotency_results WHERE scope = ?1 AND key = ?2";
const CLAIM: &str = "
    INSERT INTO idempotency_results (scope, key, request, seed, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5)";

/// Implements `IdempotencyStore::claim_key`.
pub(super) fn claim_key(
    connection: &Connection,
    key: &IdempotencyKey,
    request: &[u8; 32],
    wish: IdempotentRequest,
    as_of: Timestamp,
) -> Result<IdempotencyClaim> {
    let before = as_of - KEY_RETENTION;
    match connection.find_one(FIND, params![key.scope, key.key], read_key)? {
        Some(known) if known.wish.at <= before => {
            connection.run(REMOVE, params![key.scope, key.key])?;
        }
        Some(known) if known.request != *request => return Ok(IdempotencyClaim::OtherRequest),
        Some(StoredKey { answer: Some(answer), .. }) => {
            return Ok(IdempotencyClaim::Answered(answer));
        }
        Some(StoredKey { answer: None, wish, .. }) => return Ok(IdempotencyClaim::Pending(wish)),
        None => {}
    }
    // Every insert prunes, so that the table cannot outgrow the pruning.
    prune_keys(connection, before)?;
    let span: u64 = connection.read_one(SEQ_SPAN, [], |row| row.get(0))?;
    if span >= KEYS_MAX {
        return Ok(IdempotencyClaim::Full);
    }
    let values = params![key.scope, key.key, request, wish.seed, wish.at.as_millis()];
    connection.run(CLAIM, values)?;
    Ok(IdempotencyClaim::Pending(wish))
}

const STORE_RESPONSE: &str = "
    UPDATE idempotency_results SET status = ?3, headers = ?4, body = ?5
     WHERE scope = ?1 AND key = ?2";

/// Implements `IdempotencyStore::store_response`.
pub(super) fn store_response(
    connection: &Connection,
    key: &IdempotencyKey,
    answer: &StoredResponse,
) -> Result<()> {
    let headers = to_json(&answer.headers)?;
    let values = params![key.scope, key.key, answer.status, headers, answer.body];
    connection.run(STORE_RESPONSE, values)?;
    Ok(())
}

const RELEASE_KEY: &str = "
    DELETE FROM idempotency_results WHERE scope = ?1 AND key = ?2 AND status IS NULL";

/// Implements `IdempotencyStore::release_key`.
pub(super) fn release_key(connection: &Connection, key: &IdempotencyKey) -> Result<()> {
    connection.run(RELEASE_KEY, params![key.scope, key.key])?;
    Ok(())
}

// The oldest rows come first; the clock may have gone back, so this can miss a few.
const PRUNE: &str = "
    DELETE FROM idempotency_results WHERE seq IN (
        SELECT seq FROM (SELECT seq, created_at FROM idempotency_results ORDER BY seq LIMIT ?2)
         WHERE created_at <= ?1)";

/// Implements `IdempotencyStore::prune_idempotency_keys`.
pub(super) fn prune_keys(connection: &Connection, before: Timestamp) -> Result<usize> {
    connection.run(PRUNE, params![before.as_millis(), PRUNED_AT_ONCE])
}
