//! Responses stored for an `Idempotency-Key`; see `surehook_core::idempotency`.

use rusqlite::{OptionalExtension, Row, params};
use surehook_core::idempotency::{
    IdempotencyClaim, IdempotencyKey, IdempotentRequest, KEY_RETENTION, KEYS_MAX, StoredResponse,
};
use surehook_types::time::Timestamp;

use super::{
    row::{corrupt_value, time},
    writer::WriteTransaction,
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

fn read_key(row: &Row<'_>) -> rusqlite::Result<StoredKey> {
    let status: Option<u16> = row.get(3)?;
    let answer = match status {
        None => None,
        Some(status) => {
            let headers: String = row.get(4)?;
            let headers =
                serde_json::from_str(&headers).map_err(|e| corrupt_value(4, &e.to_string()))?;
            Some(StoredResponse { status, headers, body: row.get(5)? })
        }
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

const CLAIM: &str = "
    INSERT INTO idempotency_results (scope, key, request, seed, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5)";

/// Implements `IdempotencyStore::claim_key`.
pub(super) fn claim_key(
    tx: &mut WriteTransaction<'_, '_>,
    key: &IdempotencyKey,
    request: &[u8; 32],
    wish: IdempotentRequest,
) -> rusqlite::Result<IdempotencyClaim> {
    let before = wish.at - KEY_RETENTION;
    let known = tx
        .connection
        .prepare_cached(FIND)?
        .query_row(params![key.scope, key.key], read_key)
        .optional()?;
    match known {
        Some(known) if known.wish.at <= before => remove_key(tx, key)?,
        Some(known) if known.request != *request => return Ok(IdempotencyClaim::OtherRequest),
        Some(StoredKey { answer: Some(answer), .. }) => {
            return Ok(IdempotencyClaim::Answered(answer));
        }
        Some(StoredKey { answer: None, wish, .. }) => return Ok(IdempotencyClaim::Pending(wish)),
        None => {}
    }
    // Every insert prunes, so that the table cannot outgrow the pruning.
    prune_keys(tx, before)?;
    let span: u64 = tx.connection.prepare_cached(SEQ_SPAN)?.query_row([], |row| row.get(0))?;
    if span >= KEYS_MAX {
        return Ok(IdempotencyClaim::Full);
    }
    tx.connection.prepare_cached(CLAIM)?.execute(params![
        key.scope,
        key.key,
        request,
        wish.seed,
        wish.at.as_millis()
    ])?;
    Ok(IdempotencyClaim::Pending(wish))
}

fn remove_key(tx: &WriteTransaction<'_, '_>, key: &IdempotencyKey) -> rusqlite::Result<()> {
    tx.connection
        .prepare_cached("DELETE FROM idempotency_results WHERE scope = ?1 AND key = ?2")?
        .execute(params![key.scope, key.key])?;
    Ok(())
}

const STORE_RESPONSE: &str = "
    UPDATE idempotency_results SET status = ?3, headers = ?4, body = ?5
     WHERE scope = ?1 AND key = ?2";

/// Implements `IdempotencyStore::store_response`.
pub(super) fn store_response(
    tx: &mut WriteTransaction<'_, '_>,
    key: &IdempotencyKey,
    answer: &StoredResponse,
) -> rusqlite::Result<()> {
    let headers = serde_json::to_string(&answer.headers)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let values = params![key.scope, key.key, answer.status, headers, answer.body];
    tx.connection.prepare_cached(STORE_RESPONSE)?.execute(values)?;
    Ok(())
}

const RELEASE_KEY: &str = "
    DELETE FROM idempotency_results WHERE scope = ?1 AND key = ?2 AND status IS NULL";

/// Implements `IdempotencyStore::release_key`.
pub(super) fn release_key(
    tx: &mut WriteTransaction<'_, '_>,
    key: &IdempotencyKey,
) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(RELEASE_KEY)?.execute(params![key.scope, key.key])?;
    Ok(())
}

// The oldest rows come first; the clock may have gone back, so this can miss a few.
const PRUNE: &str = "
    DELETE FROM idempotency_results WHERE seq IN (
        SELECT seq FROM (SELECT seq, created_at FROM idempotency_results ORDER BY seq LIMIT ?2)
         WHERE created_at <= ?1)";

/// Implements `IdempotencyStore::prune_idempotency_keys`.
pub(super) fn prune_keys(
    tx: &mut WriteTransaction<'_, '_>,
    before: Timestamp,
) -> rusqlite::Result<usize> {
    let values = params![before.as_millis(), PRUNED_AT_ONCE];
    tx.connection.prepare_cached(PRUNE)?.execute(values)
}
