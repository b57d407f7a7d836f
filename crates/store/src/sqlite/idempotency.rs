//! Answers that are kept with an `Idempotency-Key`; see `surehook_core::idempotency`.

use rusqlite::{OptionalExtension, Row, params};
use surehook_core::{
    idempotency::{
        IdempotencyClaim, IdempotencyKey, IdempotentRequest, KEY_RETENTION, KEYS_MAX,
        StoredResponse,
    },
    time::Timestamp,
};

use super::{
    row::{corrupt, time},
    writer::Tx,
};

/// Rows that one step removes.
const FORGOTTEN_AT_ONCE: usize = 256;

struct Found {
    request: [u8; 32],
    wish: IdempotentRequest,
    answer: Option<StoredResponse>,
}

const FIND: &str = "
    SELECT request, seed, created_at, status, headers, body FROM idempotency_results
     WHERE scope = ?1 AND key = ?2";

fn found(row: &Row<'_>) -> rusqlite::Result<Found> {
    let status: Option<u16> = row.get(3)?;
    let answer = match status {
        None => None,
        Some(status) => {
            let headers: String = row.get(4)?;
            let headers = serde_json::from_str(&headers).map_err(|e| corrupt(4, &e.to_string()))?;
            Some(StoredResponse { status, headers, body: row.get(5)? })
        }
    };
    Ok(Found {
        request: row.get(0)?,
        wish: IdempotentRequest { at: time(row, 2)?, seed: row.get(1)? },
        answer,
    })
}

// The two ends of the primary key: nothing is counted.
const SPREAD: &str = "
    SELECT coalesce((SELECT max(seq) FROM idempotency_results)
                    - (SELECT min(seq) FROM idempotency_results) + 1, 0)";

const CLAIM: &str = "
    INSERT INTO idempotency_results (scope, key, request, seed, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5)";

/// See `IdempotencyStore::claim_key`.
pub(super) fn claim(
    tx: &mut Tx<'_, '_>,
    key: &IdempotencyKey,
    request: &[u8; 32],
    wish: IdempotentRequest,
) -> rusqlite::Result<IdempotencyClaim> {
    let before = wish.at - KEY_RETENTION;
    let known = tx
        .connection
        .prepare_cached(FIND)?
        .query_row(params![key.scope, key.key], found)
        .optional()?;
    match known {
        Some(known) if known.wish.at <= before => remove(tx, key)?,
        Some(known) if known.request != *request => return Ok(IdempotencyClaim::OtherRequest),
        Some(Found { answer: Some(answer), .. }) => return Ok(IdempotencyClaim::Answered(answer)),
        Some(Found { answer: None, wish, .. }) => return Ok(IdempotencyClaim::Pending(wish)),
        None => {}
    }
    // Whoever adds removes: the table shrinks by itself however fast it grows.
    forget(tx, before)?;
    let spread: u64 = tx.connection.prepare_cached(SPREAD)?.query_row([], |row| row.get(0))?;
    if spread >= KEYS_MAX {
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

fn remove(tx: &Tx<'_, '_>, key: &IdempotencyKey) -> rusqlite::Result<()> {
    tx.connection
        .prepare_cached("DELETE FROM idempotency_results WHERE scope = ?1 AND key = ?2")?
        .execute(params![key.scope, key.key])?;
    Ok(())
}

const KEEP: &str = "
    UPDATE idempotency_results SET status = ?3, headers = ?4, body = ?5
     WHERE scope = ?1 AND key = ?2";

/// See `IdempotencyStore::keep_answer`.
pub(super) fn keep(
    tx: &mut Tx<'_, '_>,
    key: &IdempotencyKey,
    answer: &StoredResponse,
) -> rusqlite::Result<()> {
    let headers = serde_json::to_string(&answer.headers)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let values = params![key.scope, key.key, answer.status, headers, answer.body];
    tx.connection.prepare_cached(KEEP)?.execute(values)?;
    Ok(())
}

const GIVE_BACK: &str = "
    DELETE FROM idempotency_results WHERE scope = ?1 AND key = ?2 AND status IS NULL";

/// See `IdempotencyStore::give_key_back`.
pub(super) fn give_back(tx: &mut Tx<'_, '_>, key: &IdempotencyKey) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(GIVE_BACK)?.execute(params![key.scope, key.key])?;
    Ok(())
}

// The oldest rows stand first; the first that is too young ends the slice, give or take a step of
// the clock.
const FORGET: &str = "
    DELETE FROM idempotency_results WHERE seq IN (
        SELECT seq FROM (SELECT seq, created_at FROM idempotency_results ORDER BY seq LIMIT ?2)
         WHERE created_at <= ?1)";

/// See `IdempotencyStore::forget_keys`.
pub(super) fn forget(tx: &mut Tx<'_, '_>, before: Timestamp) -> rusqlite::Result<usize> {
    let values = params![before.as_millis(), FORGOTTEN_AT_ONCE];
    tx.connection.prepare_cached(FORGET)?.execute(values)
}
