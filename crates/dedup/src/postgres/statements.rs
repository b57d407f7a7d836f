//! The rules in SQL.
//!
//! Every step is one statement in a transaction of its own, and safe under `READ COMMITTED`: what it
//! decides is checked again on the row that it locks. All times are by the clock of the database, one
//! for the whole statement. The conformance suite holds this to the same behavior as `record.rs`.

use tokio_postgres::{Client, Error, Statement};

/// The `state` of a claim whose holder has not completed or released it.
pub(super) const IN_PROGRESS: i16 = 0;

/// Number of the advisory lock under which the tables are created: "sure" and "dedp".
const SETUP_LOCK: i64 = 0x7375_7265_6465_6470;

/// Tables and epoch. The lock keeps two processes that start together from creating them twice.
pub(super) fn setup_script(epoch_hex: &str) -> String {
    format!(
        "
        BEGIN;
        SELECT pg_advisory_xact_lock({SETUP_LOCK});
        CREATE TABLE IF NOT EXISTS surehook_dedup_claims (
            namespace    text COLLATE \"C\" NOT NULL,
            name         text COLLATE \"C\" NOT NULL,
            state        smallint NOT NULL, -- 0 in progress, 1 completed, 2 released
            token        bytea NOT NULL,
            fence        bigint NOT NULL,
            fingerprint  bytea,
            operation    bytea NOT NULL,
            started_at   bigint NOT NULL,
            lease_until  bigint,
            completed_at bigint,
            expires_at   bigint NOT NULL,
            result       bytea,
            PRIMARY KEY (namespace, name),
            CONSTRAINT columns_fit_the_state CHECK (
                (state = 0 AND lease_until IS NOT NULL AND completed_at IS NULL AND result IS NULL)
             OR (state = 1 AND lease_until IS NULL AND completed_at IS NOT NULL AND result IS NOT NULL)
             OR (state = 2 AND lease_until IS NULL AND completed_at IS NULL AND result IS NULL))
        );
        CREATE INDEX IF NOT EXISTS surehook_dedup_claims_expiry
            ON surehook_dedup_claims (expires_at);
        CREATE TABLE IF NOT EXISTS surehook_dedup_epoch (
            id    smallint PRIMARY KEY CHECK (id = 1),
            epoch bytea NOT NULL
        );
        INSERT INTO surehook_dedup_epoch (id, epoch) VALUES (1, '\\x{epoch_hex}')
            ON CONFLICT DO NOTHING;
        COMMIT;"
    )
}

/// Settings of a session. A role that may lose commits would break the promise of every answer; one
/// that waits for standbys is left as it is.
///
/// Each execution is planned again: a plan that was cached while the table was empty would be used
/// for as long as the session lives, and gets slower with every key (measured: 7,000 instead of 17,000
/// keys a second after five seconds).
pub(super) fn session_script(timeout_millis: u128) -> String {
    format!(
        "SET statement_timeout = {timeout_millis};
         SET default_transaction_isolation = 'read committed';
         SET plan_cache_mode = force_custom_plan;
         SELECT set_config('synchronous_commit', 'on', false)
          WHERE current_setting('synchronous_commit') = 'off';"
    )
}

const NOW: &str = "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint";
const NOW_MICROS: &str = "floor(extract(epoch FROM statement_timestamp()) * 1000000)::bigint";

/// Whether the row `c` settles a claim with `fingerprint`: it is not free for it.
fn settles(fingerprint: &str) -> String {
    format!(
        "(c.expires_at > {NOW} AND c.state <> 2 AND (
            c.state = 1 OR c.lease_until > {NOW} OR coalesce(c.fingerprint <> {fingerprint}, false)))"
    )
}

/// Claims all keys that are free and returns the rows of the others. A key that is missing in the
/// answer was claimed by another transaction after this statement began: ask again.
///
/// The keys must be distinct. They are locked in their order, so that two batches cannot deadlock.
fn claim() -> String {
    let (is_settled, is_settled_now) = (settles("a.fingerprint"), settles("excluded.fingerprint"));
    // The holder of a live row let its lease run out: its operation continues.
    let is_resumed = format!("c.state = 0 AND c.expires_at > {NOW}");
    format!(
        "WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[],
                                 $6::bytea[], $7::bytea[])
                AS a (namespace, name, fingerprint, lease, ttl, token, operation)
        ), known AS MATERIALIZED (
            SELECT c.*, coalesce(c.fingerprint <> a.fingerprint, false) AS differs
              FROM asked a JOIN surehook_dedup_claims c
                ON c.namespace = a.namespace AND c.name = a.name
             WHERE {is_settled}
        ), granted AS (
            INSERT INTO surehook_dedup_claims AS c (namespace, name, state, token, fence,
                   fingerprint, operation, started_at, lease_until, expires_at)
            SELECT a.namespace, a.name, 0, a.token, {NOW_MICROS}, a.fingerprint, a.operation,
                   {NOW}, {NOW} + a.lease, {NOW} + a.ttl
              FROM asked a
             WHERE NOT EXISTS (SELECT FROM known k
                                WHERE k.namespace = a.namespace AND k.name = a.name)
             ORDER BY a.namespace COLLATE \"C\", a.name COLLATE \"C\"
            ON CONFLICT (namespace, name) DO UPDATE SET
                state = 0, token = excluded.token,
                fence = greatest(c.fence + 1, excluded.fence),
                fingerprint = CASE WHEN {is_resumed}
                    THEN coalesce(c.fingerprint, excluded.fingerprint)
                    ELSE excluded.fingerprint END,
                operation = CASE WHEN {is_resumed} THEN c.operation ELSE excluded.operation END,
                started_at = CASE WHEN {is_resumed} THEN c.started_at ELSE excluded.started_at END,
                lease_until = excluded.lease_until, expires_at = excluded.expires_at,
                completed_at = NULL, result = NULL
             WHERE NOT {is_settled_now}
            RETURNING c.namespace, c.name, c.fence, c.operation, c.started_at
        )
        SELECT namespace, name, true AS granted, 0::smallint AS state, false AS differs, fence,
               operation, started_at, 0::bigint AS lease_rest, 0::bigint AS completed_at,
               0::bigint AS expires_in, NULL::bytea AS result
          FROM granted
        UNION ALL
        SELECT namespace, name, false, state, differs, fence, operation, started_at,
               coalesce(lease_until - {NOW}, 0), coalesce(completed_at, 0),
               expires_at - {NOW}, result
          FROM known"
    )
}

fn extend() -> String {
    format!(
        "UPDATE surehook_dedup_claims
            SET lease_until = {NOW} + $4, expires_at = greatest(expires_at, {NOW} + $4)
          WHERE namespace = $1 AND name = $2 AND token = $3 AND state = 0 AND expires_at > {NOW}"
    )
}

fn release() -> String {
    format!(
        "UPDATE surehook_dedup_claims SET state = 2, lease_until = NULL, fingerprint = NULL
          WHERE namespace = $1 AND name = $2 AND token = $3 AND state = 0 AND expires_at > {NOW}"
    )
}

/// Completes all claims whose token is current and returns their keys. The rows are locked in the
/// order of their keys first.
fn complete() -> String {
    format!(
        "WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[])
                AS a (namespace, name, token, result, ttl)
        ), held AS MATERIALIZED (
            SELECT c.namespace, c.name
              FROM surehook_dedup_claims c JOIN asked a
                ON c.namespace = a.namespace AND c.name = a.name
             WHERE c.token = a.token AND c.state = 0 AND c.expires_at > {NOW}
             ORDER BY c.namespace, c.name FOR UPDATE OF c
        )
        UPDATE surehook_dedup_claims c
           SET state = 1, lease_until = NULL, completed_at = {NOW}, expires_at = {NOW} + a.ttl,
               result = a.result
          FROM asked a JOIN held h ON h.namespace = a.namespace AND h.name = a.name
         WHERE c.namespace = a.namespace AND c.name = a.name AND c.token = a.token AND c.state = 0
        RETURNING c.namespace, c.name"
    )
}

/// Which claims were completed with these tokens before.
fn find_completed() -> String {
    format!(
        "SELECT c.namespace, c.name
           FROM unnest($1::text[], $2::text[], $3::bytea[]) AS a (namespace, name, token)
           JOIN surehook_dedup_claims c ON c.namespace = a.namespace AND c.name = a.name
          WHERE c.token = a.token AND c.state = 1 AND c.expires_at > {NOW}"
    )
}

fn prune() -> String {
    format!(
        "DELETE FROM surehook_dedup_claims WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM surehook_dedup_claims WHERE expires_at <= {NOW}
             ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))"
    )
}

pub(super) const EPOCH: &str = "SELECT epoch FROM surehook_dedup_epoch WHERE id = 1";
pub(super) const RENEW_EPOCH: &str = "UPDATE surehook_dedup_epoch SET epoch = $1 WHERE id = 1";
/// Differs between two clusters, and after each promotion of a standby or recovery to a point in time.
pub(super) const TIMELINE: &str = "
    SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' ||
           left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// The prepared statements of a session.
#[derive(Debug)]
pub(super) struct PreparedSteps {
    pub(super) claim: Statement,
    pub(super) extend: Statement,
    pub(super) release: Statement,
    pub(super) complete: Statement,
    pub(super) find_completed: Statement,
    pub(super) prune: Statement,
}

impl PreparedSteps {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            claim: client.prepare(&claim()).await?,
            extend: client.prepare(&extend()).await?,
            release: client.prepare(&release()).await?,
            complete: client.prepare(&complete()).await?,
            find_completed: client.prepare(&find_completed()).await?,
            prune: client.prepare(&prune()).await?,
        })
    }
}
