//! The transaction of a step that runs while no other transaction of the project writes.

use std::{cell::RefCell, collections::HashMap, ops::ControlFlow, time::Duration};

use surehook_core::{delivery::LaneEpoch, event::Payload};
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

use super::{
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
        prune::{KeyPruneReport, PruneProgress, PruneTransaction},
        row::{blob, id, time},
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

    /// Writes what the steps counted, as the last statements of the transaction; returns where retention
    /// is.
    pub(super) fn finish(self, part: i64) -> Result<PruneProgress> {
        write_counts(&self.connection, &self.counts, part)?;
        Ok(self.progress)
    }
}

/// Adds changes to a part of the totals, and stores what was counted by time.
pub(super) fn write_counts(
    connection: &impl SqlConnection,
    counts: &CountChanges,
    part: i64,
) -> Result<()> {
    counts.rollups.insert(connection)?;
    let changes: Vec<(String, i64)> = counts.changed_counters().collect();
    if changes.is_empty() {
        return Ok(());
    }
    let rows = (0..changes.len()).map(|row| format!("(?1, ?{}, ?{})", 2 * row + 2, 2 * row + 3));
    let sql = format!(
        "INSERT INTO count_parts AS c (part, name, value) VALUES {}
         ON CONFLICT (part, name) DO UPDATE SET value = c.value + excluded.value",
        rows.collect::<Vec<_>>().join(", ")
    );
    let mut values: Vec<&dyn SqlParameter> = vec![&part];
    for (name, change) in &changes {
        values.extend([name as &dyn SqlParameter, change]);
    }
    connection.run(&sql, &values)?;
    Ok(())
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
    "SELECT 1 FROM lanes WHERE destination = ?1 AND epoch = ?2 AND node IS NOT NULL";

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
}

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
