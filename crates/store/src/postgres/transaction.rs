//! The transaction of a step that runs while no other transaction of the project writes.

use std::{cell::RefCell, collections::HashMap, ops::ControlFlow, time::Duration};

use surehook_core::{
    delivery::{LaneEpoch, state::DeliveryStatus},
    event::Payload,
};
use surehook_dedup::{Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest};
use surehook_types::{
    ids::{DestinationId, EventId, SourceId},
    rng::Rng,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{Attributes, EventKind, SearchTerm},
    key::KeyDigest,
};
use tokio_postgres::types::{ToSql, Type};

use super::{
    admit::slices,
    claim_rules,
    connection::{PgConnection, PostgresDialect},
};
use crate::{
    sql::{Result, SqlConnection, SqlParameter, SqlRow, params},
    steps::{
        PresenceHints, StepTransaction,
        counts::CountChanges,
        event_terms::{EventTerms, event_search_terms},
        idempotency::ClaimRules,
        ingest::IngestTransaction,
        keys::{KeyEntry, ShortFingerprint},
        prune::{KeyPruneReport, OldEvent, PruneProgress, PruneTransaction},
        row::{blob, id, status, time},
    },
};

/// Hints that allow for rows in every table: other nodes write them too.
fn any_rows() -> PresenceHints {
    PresenceHints {
        crash_outcomes: true,
        stored_statuses: true,
        awaited_statuses: true,
        callbacks: true,
    }
}

/// A transaction, with what its steps collect until the commit.
pub(super) struct PgTransaction<'a> {
    connection: PgConnection<'a>,
    counts: CountChanges,
    hints: PresenceHints,
    /// Row numbers that were found.
    sources: RefCell<HashMap<SourceId, Option<i64>>>,
    destinations: RefCell<HashMap<DestinationId, Option<i64>>>,
    progress: PruneProgress,
}

impl<'a> PgTransaction<'a> {
    pub(super) fn new(connection: PgConnection<'a>, progress: PruneProgress) -> Self {
        Self {
            connection,
            counts: CountChanges::default(),
            hints: any_rows(),
            sources: RefCell::default(),
            destinations: RefCell::default(),
            progress,
        }
    }

    /// Writes what the steps counted, as the last statement of the transaction; returns where retention
    /// is.
    pub(super) fn finish(self) -> Result<PruneProgress> {
        write_counts(&self.connection, &self.counts)?;
        Ok(self.progress)
    }
}

const APPEND_COUNTS: &str = "
    WITH f AS (INSERT INTO rollup_facts (facts) SELECT $1::bytea WHERE $1::bytea IS NOT NULL)
    INSERT INTO count_facts (names, amounts) SELECT $2::text[], $3::bigint[]
     WHERE cardinality($2::text[]) > 0";

/// Appends what a transaction counted, in total and by time.
pub(super) fn write_counts(connection: &PgConnection<'_>, counts: &CountChanges) -> Result<()> {
    let facts = counts.rollups.to_facts();
    let (names, amounts): (Vec<String>, Vec<i64>) = counts.changed_counters().unzip();
    if facts.is_none() && names.is_empty() {
        return Ok(());
    }
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&facts, Type::BYTEA), (&names, Type::TEXT_ARRAY), (&amounts, Type::INT8_ARRAY)];
    connection.query_arrays(APPEND_COUNTS, &values)?;
    Ok(())
}

const MERGE_COUNTS: &str = "
    WITH merged AS (
        DELETE FROM count_facts
         WHERE seq <= (SELECT max(seq)
                         FROM (SELECT seq FROM count_facts ORDER BY seq LIMIT 10000) AS slice)
        RETURNING names, amounts
    )
    INSERT INTO totals AS t (name, value)
    SELECT u.name, CAST(sum(u.amount) AS bigint)
      FROM merged m CROSS JOIN LATERAL unnest(m.names, m.amounts) AS u (name, amount)
     GROUP BY u.name ORDER BY u.name
    ON CONFLICT (name) DO UPDATE SET value = t.value + excluded.value";

/// Adds what transactions counted to the totals. None writes meanwhile, so no number is given and not
/// committed.
pub(super) fn merge_counts(connection: &impl SqlConnection) -> Result<()> {
    connection.run(MERGE_COUNTS, &[]).map(drop)
}

impl SqlConnection for PgTransaction<'_> {
    type Dialect = PostgresDialect;

    fn run(&self, sql: &str, values: &[&dyn SqlParameter]) -> Result<usize> {
        self.connection.run(sql, values)
    }

    fn read_while(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnMut(&dyn SqlRow) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.connection.read_while(sql, values, read)
    }

    fn read_snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        read(self)
    }

    fn find_one<T>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> Result<T>,
    ) -> Result<Option<T>> {
        self.connection.find_one(sql, values, read)
    }

    fn read_all<T, C: Default + Extend<T>>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnMut(&dyn SqlRow) -> Result<T>,
    ) -> Result<C> {
        self.connection.read_all(sql, values, read)
    }
}

const SOURCE_SEQ: &str = "SELECT seq FROM sources WHERE id = ?1 AND deleted_at IS NULL";
const DESTINATION_SEQ: &str = "SELECT seq FROM destinations WHERE id = ?1 AND deleted_at IS NULL";
const IS_CURRENT_EPOCH: &str =
    "SELECT 1 FROM lane_owners WHERE destination = ?1 AND epoch = ?2 AND node IS NOT NULL";

// Most events are ahead of all cursors.
const DEFER_IF_PASSED: &str = "
    INSERT INTO prune_later (event_id, look_at)
    SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM prune_cursors WHERE event_id >= ?1)
    ON CONFLICT (event_id) DO UPDATE SET look_at = excluded.look_at";

impl StepTransaction for PgTransaction<'_> {
    fn run_prepared(&mut self, sql: &'static str, values: &[&dyn SqlParameter]) -> Result<usize> {
        self.run(sql, values)
    }

    fn find_prepared<T>(
        &mut self,
        sql: &'static str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> Result<T>,
    ) -> Result<Option<T>> {
        self.find_one(sql, values, read)
    }

    fn counts(&mut self) -> &mut CountChanges {
        &mut self.counts
    }

    fn hints(&self) -> &PresenceHints {
        &self.hints
    }

    fn hints_mut(&mut self) -> &mut PresenceHints {
        &mut self.hints
    }

    fn source_seq(&self, source: SourceId) -> Result<Option<i64>> {
        if let Some(known) = self.sources.borrow().get(&source) {
            return Ok(*known);
        }
        let found = self.find_one(SOURCE_SEQ, params![blob(source)], |row| row.get(0))?;
        self.sources.borrow_mut().insert(source, found);
        Ok(found)
    }

    fn destination_seq(&self, destination: DestinationId) -> Result<Option<i64>> {
        if let Some(known) = self.destinations.borrow().get(&destination) {
            return Ok(*known);
        }
        let found = self.find_one(DESTINATION_SEQ, params![blob(destination)], |row| row.get(0))?;
        self.destinations.borrow_mut().insert(destination, found);
        Ok(found)
    }

    fn reload_row_numbers(&mut self) -> Result<()> {
        self.sources.borrow_mut().clear();
        self.destinations.borrow_mut().clear();
        Ok(())
    }

    fn is_current_epoch(&self, destination: i64, epoch: LaneEpoch) -> Result<bool> {
        self.exists(IS_CURRENT_EPOCH, params![destination, epoch.0])
    }

    fn defer_pruning(&mut self, event: EventId, now: Timestamp) -> Result<()> {
        self.run(DEFER_IF_PASSED, params![blob(event), now.as_millis()])?;
        Ok(())
    }

    /// This store has no cache of keys: a delivery may die on another node.
    fn uncache_key(&mut self, _key: KeyDigest) {}
}

const FIND_KEY: &str =
    "SELECT event_id, body, expires_at FROM keys WHERE digest = ?1 AND expires_at > ?2";
const PUT_KEY: &str = "
    INSERT INTO keys (digest, event_id, body, expires_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (digest) DO UPDATE
       SET event_id = excluded.event_id, body = excluded.body, expires_at = excluded.expires_at";
const INSERT_PAYLOAD: &str = "
    INSERT INTO payloads (path, query, remote, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)
    RETURNING seq";
const INSERT_TERM: &str =
    "INSERT INTO terms (term, event_id) VALUES (?1, ?2) ON CONFLICT (term, event_id) DO NOTHING";
const HAS_OLD_KEYS: &str = "SELECT 1 FROM key_namespaces";
const IS_OLD_KEY: &str = "SELECT 1 FROM key_namespaces WHERE since > ?1";

pub(super) fn read_key(row: &dyn SqlRow, first: usize) -> Result<KeyEntry> {
    Ok(KeyEntry {
        event: id(row, first)?,
        body: ShortFingerprint::from_bytes(row.get(first + 1)?),
        expires_at: time(row, first + 2)?,
    })
}

impl IngestTransaction for PgTransaction<'_> {
    fn find_key(&mut self, key: KeyDigest, now: Timestamp) -> Result<Option<KeyEntry>> {
        self.find_one(FIND_KEY, params![key.to_bytes(), now.as_millis()], |row| read_key(row, 0))
    }

    fn put_key(&mut self, key: KeyDigest, entry: KeyEntry) -> Result<()> {
        let KeyEntry { event, body, expires_at } = entry;
        let values = params![key.to_bytes(), blob(event), body.to_bytes(), expires_at.as_millis()];
        self.run(PUT_KEY, values)?;
        Ok(())
    }

    /// See [`StepTransaction::uncache_key`].
    fn cache_key(&mut self, _key: KeyDigest, _entry: KeyEntry) {}

    fn has_keys_from_before_namespaces(&self) -> Result<bool> {
        self.exists(HAS_OLD_KEYS, params![])
    }

    fn is_from_before_namespaces(&self, event: EventId) -> Result<bool> {
        self.exists(IS_OLD_KEY, params![event.created_at().as_millis()])
    }

    fn insert_payload(&mut self, payload: &Payload) -> Result<i64> {
        let head = &payload.head;
        let (headers, body) = (head.headers.as_bytes(), &payload.body[..]);
        let values = params![head.path, head.query, &*head.remote, headers, body];
        self.read_one(INSERT_PAYLOAD, values, |row| row.get(0))
    }

    fn insert_terms(&mut self, event: EventId, terms: &EventTerms) -> Result<()> {
        for term in terms.terms.chunks(SearchTerm::BYTES) {
            self.run(INSERT_TERM, params![term, blob(event)])?;
        }
        Ok(())
    }
}

// By the place of the row: the index by expiry has no order.
const PRUNE_KEYS: &str = "
    DELETE FROM keys WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM keys WHERE expires_at <= ?1 LIMIT ?2))";
const KEYS_PER_SLICE: usize = 2000;
const REMOVE_TERM: &str = "DELETE FROM terms WHERE term = ?1 AND event_id = ?2";

impl PruneTransaction for PgTransaction<'_> {
    /// Each is a few round trips, while no other transaction writes.
    const STEPS_PER_SLICE: usize = 50;
    const ENDED_EVENTS_PER_STEP: usize = 20;

    fn progress(&mut self) -> &mut PruneProgress {
        &mut self.progress
    }

    /// The cursors are read from their table.
    fn raise_max_cursor(&mut self, _event: EventId) {}

    fn prune_keys(&mut self, now: Timestamp) -> Result<KeyPruneReport> {
        let removed = self.run(PRUNE_KEYS, params![now.as_millis(), KEYS_PER_SLICE])?;
        Ok(KeyPruneReport { removed, more: removed == KEYS_PER_SLICE })
    }

    fn is_walking_keys(&self) -> bool {
        false
    }

    fn remove_terms(
        &mut self,
        event: EventId,
        kind: Option<&EventKind>,
        attributes: &Attributes,
    ) -> Result<usize> {
        let mut removed = 0;
        for term in event_search_terms(kind, attributes) {
            removed += self.run(REMOVE_TERM, params![term.to_bytes(), blob(event)])?;
        }
        Ok(removed)
    }

    fn remove_unused_terms(&mut self) -> Result<()> {
        Ok(())
    }

    /// With two statements: what takes a round trip each stops all nodes for longer.
    fn erase_ended(&mut self, events: &[OldEvent]) -> Result<usize> {
        let ids: Vec<[u8; 16]> = events.iter().map(|event| blob(event.id)).collect();
        let payloads: Vec<Option<i64>> = events.iter().map(|event| event.payload).collect();
        let ids = slices(&ids);
        let (mut terms, mut term_events): (Vec<[u8; SearchTerm::BYTES]>, Vec<[u8; 16]>) =
            (Vec::new(), Vec::new());
        let searchable = self.connection.query_arrays(SEARCHABLE, &[(&ids, Type::BYTEA_ARRAY)])?;
        for row in &searchable {
            let row: &dyn SqlRow = row;
            let event: EventId = id(row, 0)?;
            // Unreadable attributes must not prevent the removal.
            let kind = row.optional_text(1)?.and_then(EventKind::new);
            let attributes = row.optional_text(2)?.map(Attributes::from_json);
            let attributes = attributes.and_then(std::result::Result::ok).unwrap_or_default();
            for term in event_search_terms(kind.as_ref(), &attributes) {
                terms.push(term.to_bytes());
                term_events.push(blob(event));
            }
        }
        let rows = self.connection.query_arrays(
            ERASE_ENDED,
            &[
                (&ids, Type::BYTEA_ARRAY),
                (&payloads, Type::INT8_ARRAY),
                (&slices(&terms), Type::BYTEA_ARRAY),
                (&slices(&term_events), Type::BYTEA_ARRAY),
            ],
        )?;
        for row in &rows {
            let row: &dyn SqlRow = row;
            let (from, deliveries): (DeliveryStatus, i64) = (status(row, 0)?, row.get(1)?);
            for _ in 0..deliveries {
                self.counts.count_move(Some(from), None);
            }
        }
        // All with one statement.
        Ok(0)
    }
}

const SEARCHABLE: &str = "
    SELECT id, kind, attributes FROM events
     WHERE id = ANY ($1::bytea[]) AND (kind IS NOT NULL OR attributes IS NOT NULL)";

const ERASE_ENDED: &str = "
    WITH u AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::bigint[]) AS u (id, payload)
    ), erased AS (
        DELETE FROM deliveries d USING u WHERE d.event_id = u.id RETURNING d.id, d.state
    ), of_deliveries AS (
        DELETE FROM attempts a USING erased WHERE a.delivery_id = erased.id
    ), bodies AS (
        DELETE FROM delivery_bodies b USING erased WHERE b.delivery_id = erased.id
    ), reports AS (
        DELETE FROM callbacks c USING erased WHERE c.delivery_id = erased.id
    ), sightings AS (
        DELETE FROM duplicates o USING u WHERE o.event_id = u.id
    ), conflicts AS (
        DELETE FROM key_conflicts k USING u WHERE k.event_id = u.id
    ), decided AS (
        DELETE FROM decisions o USING u WHERE o.event_id = u.id
    ), deferred AS (
        DELETE FROM prune_later l USING u WHERE l.event_id = u.id
    ), searchable AS (
        DELETE FROM terms t USING unnest($3::bytea[], $4::bytea[]) AS s (term, event_id)
         WHERE t.term = s.term AND t.event_id = s.event_id
    ), content AS (
        DELETE FROM payloads p USING u WHERE p.seq = u.payload
    ), events_erased AS (
        DELETE FROM events e USING u WHERE e.id = u.id
    )
    SELECT state, count(*) FROM erased GROUP BY state";

impl ClaimRules for PgTransaction<'_> {
    fn claim(&self, request: &ClaimRequest, now: Timestamp, rng: &dyn Rng) -> Result<Claim> {
        claim_rules::claim(self, request, now, rng)
    }

    fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
        now: Timestamp,
    ) -> Result<ClaimUpdate> {
        claim_rules::extend(self, key, token, lease, now)
    }

    fn complete(&self, request: &CompletionRequest, now: Timestamp) -> Result<ClaimUpdate> {
        claim_rules::complete(self, request, now)
    }

    fn release(&self, key: &ClaimKey, token: ClaimToken, now: Timestamp) -> Result<ClaimUpdate> {
        claim_rules::release(self, key, token, now)
    }

    fn prune(&self, now: Timestamp, max: usize) -> Result<usize> {
        claim_rules::prune(self, now, max)
    }
}
