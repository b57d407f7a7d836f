//! Keys of the idempotency service and of API requests; see `surehook_core::idempotency`.
//!
//! The rules are those of `surehook_dedup`, inside the writer's transactions. Triggers
//! keep the counts per namespace (migration 0029).

use std::time::Duration;

use surehook_core::{
    idempotency::{
        API_KEYS_MAX, API_NAMESPACE_PREFIX, ClaimContext, ClaimDetail, ClaimFilter, ClaimRow,
        ClaimStep, ClaimStepResult, ClaimTotals, KeyLimit, NAMESPACES_LISTED_MAX, NamespaceCounts,
        StoredClaimStatus, is_api_key,
    },
    store::PageRequest,
};
use surehook_dedup::{
    Claim, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
};
use surehook_types::{rng::Rng, time::Timestamp};

use super::row::{corrupt_value, time};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// The rules of `surehook_dedup` for claims, which has the statements of each database.
pub(crate) trait ClaimRules: SqlConnection {
    fn claim(&self, request: &ClaimRequest, now: Timestamp, rng: &dyn Rng) -> Result<Claim>;

    fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
        now: Timestamp,
    ) -> Result<ClaimUpdate>;

    fn complete(&self, request: &CompletionRequest, now: Timestamp) -> Result<ClaimUpdate>;

    fn release(&self, key: &ClaimKey, token: ClaimToken, now: Timestamp) -> Result<ClaimUpdate>;

    /// Removes up to `max` expired keys; returns how many.
    fn prune(&self, now: Timestamp, max: usize) -> Result<usize>;
}

const PRUNED_AT_ONCE: usize = 256;
/// Each claim removes this many expired keys, so that they cannot outgrow the pruning.
const PRUNED_PER_CLAIM: usize = 2;

/// Whether a step stores a new key of the service. Keys of API requests belong to work that has its
/// own rules on a full disk.
pub(crate) fn is_growth(step: &ClaimStep) -> bool {
    match step {
        ClaimStep::Claim(request) => !is_api_key(&request.key),
        ClaimStep::Extend { .. } | ClaimStep::Complete(_) | ClaimStep::Release { .. } => false,
    }
}

/// Implements `IdempotencyStore::run_claim_steps`.
pub(crate) fn run_steps(
    connection: &impl ClaimRules,
    steps: &[ClaimStep],
    context: &ClaimContext,
) -> Result<Vec<ClaimStepResult>> {
    let claims = steps.iter().filter(|step| matches!(step, ClaimStep::Claim(_))).count();
    if claims > 0 {
        connection.prune(context.as_of, claims * PRUNED_PER_CLAIM)?;
    }
    steps.iter().map(|step| run_step(connection, step, context)).collect()
}

const END_LEASE: &str = "
    UPDATE surehook_dedup_claims SET lease_until = ?3
     WHERE namespace = ?1 AND name = ?2 AND state = 0";

fn run_step(
    connection: &impl ClaimRules,
    step: &ClaimStep,
    context: &ClaimContext,
) -> Result<ClaimStepResult> {
    let now = context.as_of;
    // What is stored lives from the later of the two times.
    let longer = context.counted_from.since(now);
    match step {
        ClaimStep::Claim(request) => {
            if let Some(limit) = find_limit(connection, &request.key, context)? {
                return Ok(ClaimStepResult::Full(limit));
            }
            let request = &ClaimRequest { ttl: request.ttl + longer, ..request.clone() };
            let claim = connection.claim(request, now, &*context.rng)?;
            if matches!(claim, Claim::InProgress { .. }) && is_api_key(&request.key) {
                // Only the process that holds the folder executes API requests, and it asks for a key
                // again only when it is not running: the lease is of a clock that went back.
                let values = params![request.key.namespace(), request.key.name(), now.as_millis()];
                connection.run(END_LEASE, values)?;
                return connection.claim(request, now, &*context.rng).map(ClaimStepResult::Claim);
            }
            Ok(ClaimStepResult::Claim(claim))
        }
        ClaimStep::Extend { key, token, lease } => {
            connection.extend(key, *token, *lease, now).map(ClaimStepResult::Update)
        }
        ClaimStep::Complete(request) => {
            let request = &CompletionRequest { ttl: request.ttl + longer, ..request.clone() };
            connection.complete(request, now).map(ClaimStepResult::Update)
        }
        ClaimStep::Release { key, token } => {
            release(connection, key, *token, now).map(ClaimStepResult::Update)
        }
    }
}

const TOKEN: &str =
    "SELECT token FROM surehook_dedup_claims WHERE namespace = ?1 AND name = ?2 AND state = 0";
const REMOVE: &str =
    "DELETE FROM surehook_dedup_claims WHERE namespace = ?1 AND name = ?2 AND state = 2";

fn release(
    connection: &impl ClaimRules,
    key: &ClaimKey,
    token: Option<ClaimToken>,
    now: Timestamp,
) -> Result<ClaimUpdate> {
    let values = params![key.namespace(), key.name()];
    let current = |row: &dyn SqlRow| row.get(0).map(ClaimToken::from_bytes);
    let token = match token {
        Some(token) => Some(token),
        None => connection.find_one(TOKEN, values, current)?,
    };
    let Some(token) = token else { return Ok(ClaimUpdate::StaleToken) };
    let update = connection.release(key, token, now)?;
    // The fence of an API request is of no use to anyone.
    if update.is_applied() && is_api_key(key) {
        connection.run(REMOVE, values)?;
    }
    Ok(update)
}

const KEYS: &str = "SELECT keys FROM claim_counts WHERE namespace = ?1";
/// The row that counts the keys of all namespaces of the service.
const ALL_NAMESPACES: &str = "";
const EXISTS: &str = "SELECT 1 FROM surehook_dedup_claims WHERE namespace = ?1 AND name = ?2";

/// The limit that a new key would exceed; keys that are stored may always be claimed.
fn find_limit(
    connection: &impl SqlConnection,
    key: &ClaimKey,
    context: &ClaimContext,
) -> Result<Option<KeyLimit>> {
    let count = |namespace: &str| -> Result<u64> {
        Ok(connection.find_one(KEYS, params![namespace], |row| row.get(0))?.unwrap_or(0))
    };
    let limits = context.limits;
    let reached = if is_api_key(key) {
        (count(API_NAMESPACE_PREFIX)? >= API_KEYS_MAX).then_some(KeyLimit::ApiKeys)
    } else if count(key.namespace())? >= limits.per_namespace {
        Some(KeyLimit::PerNamespace(limits.per_namespace))
    } else {
        (count(ALL_NAMESPACES)? >= limits.total).then_some(KeyLimit::Total(limits.total))
    };
    let Some(limit) = reached else { return Ok(None) };
    let exists = connection.exists(EXISTS, params![key.namespace(), key.name()])?;
    Ok((!exists).then_some(limit))
}

// The keys of API requests are not part of the list.
const LIST: &str = "
    SELECT namespace, name, state, fence, operation, started_at, lease_until, completed_at,
           expires_at, length(result)
      FROM surehook_dedup_claims
     WHERE (namespace, name) > (?1, ?2) AND expires_at > ?3
       AND substr(namespace, 1, 4) <> 'api:'
     ORDER BY namespace, name LIMIT ?4";
const LIST_NAMESPACE: &str = "
    SELECT namespace, name, state, fence, operation, started_at, lease_until, completed_at,
           expires_at, length(result)
      FROM surehook_dedup_claims
     WHERE namespace = ?1 AND name > ?2 AND name >= ?3 AND name < ?4
       AND expires_at > ?5
     ORDER BY name LIMIT ?6";

/// Implements `IdempotencyStore::list_claims`.
pub(crate) fn list(
    connection: &impl SqlConnection,
    filter: &ClaimFilter,
    page: &PageRequest<ClaimKey>,
    as_of: Timestamp,
) -> Result<Vec<ClaimRow>> {
    let after = page.after.as_ref();
    let name = after.map_or("", ClaimKey::name);
    let (at, read) = (as_of.as_millis(), |row: &dyn SqlRow| read_row(row, as_of));
    match filter {
        ClaimFilter::Namespace { namespace, key_prefix } => {
            // No text that begins with the prefix comes after this one.
            let end = format!("{key_prefix}{}", char::MAX);
            let values = params![namespace, name, key_prefix, end, at, page.limit];
            connection.read_all(LIST_NAMESPACE, values, read)
        }
        ClaimFilter::All => {
            let namespace = after.map_or("", ClaimKey::namespace);
            connection.read_all(LIST, params![namespace, name, at, page.limit], read)
        }
    }
}

const FIND: &str = "
    SELECT namespace, name, state, fence, operation, started_at, lease_until, completed_at,
           expires_at, length(result), result
      FROM surehook_dedup_claims WHERE namespace = ?1 AND name = ?2 AND expires_at > ?3";

/// Implements `IdempotencyStore::find_claim`.
pub(crate) fn find(
    connection: &impl SqlConnection,
    key: &ClaimKey,
    as_of: Timestamp,
) -> Result<Option<ClaimDetail>> {
    let values = params![key.namespace(), key.name(), as_of.as_millis()];
    connection.find_one(FIND, values, |row| {
        let result: Option<Vec<u8>> = row.get(10)?;
        Ok(ClaimDetail { row: read_row(row, as_of)?, result: result.map(Into::into) })
    })
}

fn read_row(row: &dyn SqlRow, as_of: Timestamp) -> Result<ClaimRow> {
    let key = ClaimKey::new(&row.get::<String>(0)?, &row.get::<String>(1)?);
    let status = match row.get::<i64>(2)? {
        0 => {
            let lease_until = time(row, 6)?;
            match as_of < lease_until {
                true => StoredClaimStatus::InProgress { lease_until },
                false => StoredClaimStatus::Abandoned { lease_until },
            }
        }
        1 => {
            StoredClaimStatus::Completed { completed_at: time(row, 7)?, result_bytes: row.get(9)? }
        }
        _ => StoredClaimStatus::Released,
    };
    Ok(ClaimRow {
        key: key.map_err(|error| corrupt_value(0, &error.to_string()))?,
        status,
        fence: row.get(3)?,
        operation: ClaimOperation { id: row.get(4)?, started_at: time(row, 5)? },
        expires_at: time(row, 8)?,
    })
}

// Abandoned keys are counted by their index; all other counts are stored.
const COUNT: &str = "
    WITH abandoned AS (
        SELECT namespace, count(*) AS count FROM surehook_dedup_claims
         WHERE state = 0 AND lease_until <= ?1 GROUP BY namespace)
    SELECT namespace, keys - completed - released - coalesce(abandoned.count, 0),
           coalesce(abandoned.count, 0), completed, released, result_bytes
      FROM claim_counts LEFT JOIN abandoned USING (namespace)
     WHERE namespace NOT IN ('', 'api:') AND keys > 0
     ORDER BY namespace LIMIT ?2";

/// Implements `IdempotencyStore::count_claims`.
pub(crate) fn count(
    connection: &impl SqlConnection,
    as_of: Timestamp,
) -> Result<Vec<NamespaceCounts>> {
    connection.read_all(COUNT, params![as_of.as_millis(), NAMESPACES_LISTED_MAX], |row| {
        Ok(NamespaceCounts {
            namespace: row.get(0)?,
            in_progress: row.get(1)?,
            abandoned: row.get(2)?,
            completed: row.get(3)?,
            released: row.get(4)?,
            result_bytes: row.get(5)?,
        })
    })
}

const COUNT_ALL: &str = "
    SELECT coalesce((SELECT keys FROM claim_counts WHERE namespace = ''), 0),
           (SELECT count(*) FROM surehook_dedup_claims
             WHERE state = 0 AND lease_until > ?1),
           coalesce((SELECT keys FROM claim_counts WHERE namespace = 'api:'), 0)";

/// Implements `IdempotencyStore::count_all_claims`.
pub(crate) fn count_all(connection: &impl SqlConnection, as_of: Timestamp) -> Result<ClaimTotals> {
    connection.read_one(COUNT_ALL, params![as_of.as_millis()], |row| {
        Ok(ClaimTotals { keys: row.get(0)?, in_progress: row.get(1)?, api_keys: row.get(2)? })
    })
}

const REMOVE_EMPTY_COUNTS: &str = "DELETE FROM claim_counts WHERE keys = 0 AND namespace <> ''";

/// Implements `IdempotencyStore::prune_claims`.
pub(crate) fn prune(connection: &impl ClaimRules, as_of: Timestamp) -> Result<usize> {
    let pruned = connection.prune(as_of, PRUNED_AT_ONCE)?;
    if pruned == 0 {
        connection.run(REMOVE_EMPTY_COUNTS, params![])?;
    }
    Ok(pruned)
}
