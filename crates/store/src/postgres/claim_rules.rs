//! The rules of `surehook-dedup` for keys, inside the transactions of the store.
//!
//! Two of these must not run at the same time; the transactions see to that.

use std::time::Duration;

use bytes::Bytes;
use surehook_dedup::{
    Claim, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
    Fingerprint,
    record::{ClaimRecord, RecordState, decide_claim},
};
use surehook_types::{rng::Rng, time::Timestamp};

use crate::{
    sql::{Result, SqlConnection, SqlRow, params},
    steps::row::{corrupt_value, time},
};

const FIND: &str = "
    SELECT state, token, fence, fingerprint, operation, started_at, lease_until, completed_at,
           expires_at, result
      FROM surehook_dedup_claims WHERE namespace = ?1 AND name = ?2";

fn read_record(row: &dyn SqlRow) -> Result<ClaimRecord> {
    let state = match row.get::<i64>(0)? {
        0 => RecordState::InProgress { lease_until: time(row, 6)? },
        1 => RecordState::Completed { completed_at: time(row, 7)?, result: row.get::<Bytes>(9)? },
        2 => RecordState::Released,
        other => return Err(corrupt_value(0, &format!("unknown state {other}"))),
    };
    Ok(ClaimRecord {
        state,
        token: ClaimToken::from_bytes(row.get(1)?),
        fence: row.get(2)?,
        fingerprint: row.get::<Option<[u8; 32]>>(3)?.map(Fingerprint::from_bytes),
        operation: ClaimOperation { id: row.get(4)?, started_at: time(row, 5)? },
        expires_at: time(row, 8)?,
    })
}

fn find(connection: &impl SqlConnection, key: &ClaimKey) -> Result<Option<ClaimRecord>> {
    connection.find_one(FIND, params![key.namespace(), key.name()], read_record)
}

const UPSERT: &str = "
    INSERT INTO surehook_dedup_claims (namespace, name, state, token, fence, fingerprint,
           operation, started_at, lease_until, expires_at)
    VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (namespace, name) DO UPDATE SET
           state = 0, token = excluded.token, fence = excluded.fence,
           fingerprint = excluded.fingerprint, operation = excluded.operation,
           started_at = excluded.started_at, lease_until = excluded.lease_until,
           completed_at = NULL, expires_at = excluded.expires_at, result = NULL";

pub(super) fn claim(
    connection: &impl SqlConnection,
    request: &ClaimRequest,
    now: Timestamp,
    rng: &dyn Rng,
) -> Result<Claim> {
    let known = find(connection, &request.key)?;
    let decision = decide_claim(known.as_ref(), request, now, rng);
    if let Some(record) = decision.write {
        connection.run(
            UPSERT,
            params![
                request.key.namespace(),
                request.key.name(),
                *record.token.as_bytes(),
                record.fence,
                record.fingerprint.map(|fingerprint| *fingerprint.as_bytes()),
                record.operation.id,
                record.operation.started_at.as_millis(),
                (now + request.lease).as_millis(),
                record.expires_at.as_millis(),
            ],
        )?;
    }
    Ok(decision.claim)
}

const EXTEND: &str = "
    UPDATE surehook_dedup_claims SET lease_until = ?3, expires_at = ?4
     WHERE namespace = ?1 AND name = ?2";

pub(super) fn extend(
    connection: &impl SqlConnection,
    key: &ClaimKey,
    token: ClaimToken,
    lease: Duration,
    now: Timestamp,
) -> Result<ClaimUpdate> {
    let Some(mut record) = find(connection, key)? else { return Ok(ClaimUpdate::StaleToken) };
    let update = record.extend(token, lease, now);
    if update.is_applied() {
        let (lease_until, expires_at) = ((now + lease).as_millis(), record.expires_at.as_millis());
        connection.run(EXTEND, params![key.namespace(), key.name(), lease_until, expires_at])?;
    }
    Ok(update)
}

const COMPLETE: &str = "
    UPDATE surehook_dedup_claims
       SET state = 1, lease_until = NULL, completed_at = ?3, expires_at = ?4, result = ?5
     WHERE namespace = ?1 AND name = ?2 AND state = 0";

pub(super) fn complete(
    connection: &impl SqlConnection,
    request: &CompletionRequest,
    now: Timestamp,
) -> Result<ClaimUpdate> {
    let key = &request.key;
    let Some(mut record) = find(connection, key)? else { return Ok(ClaimUpdate::StaleToken) };
    let update = record.complete(request, now);
    if update.is_applied() {
        // Changes nothing if it was completed before.
        connection.run(
            COMPLETE,
            params![
                key.namespace(),
                key.name(),
                now.as_millis(),
                record.expires_at.as_millis(),
                &request.result[..],
            ],
        )?;
    }
    Ok(update)
}

const RELEASE: &str = "
    UPDATE surehook_dedup_claims SET state = 2, lease_until = NULL, fingerprint = NULL
     WHERE namespace = ?1 AND name = ?2";

pub(super) fn release(
    connection: &impl SqlConnection,
    key: &ClaimKey,
    token: ClaimToken,
    now: Timestamp,
) -> Result<ClaimUpdate> {
    let Some(mut record) = find(connection, key)? else { return Ok(ClaimUpdate::StaleToken) };
    let update = record.release(token, now);
    if update.is_applied() {
        connection.run(RELEASE, params![key.namespace(), key.name()])?;
    }
    Ok(update)
}

const PRUNE: &str = "
    DELETE FROM surehook_dedup_claims WHERE (namespace, name) IN (
           SELECT namespace, name FROM surehook_dedup_claims
            WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";

/// Forgets at most `max` keys whose ttl has ended; returns how many.
pub(super) fn prune(connection: &impl SqlConnection, now: Timestamp, max: usize) -> Result<usize> {
    connection.run(PRUNE, params![now.as_millis(), max])
}
