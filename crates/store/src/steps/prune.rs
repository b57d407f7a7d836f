//! Retention: removes expired events, bodies, attempts, keys and counts in small slices, so that no
//! write waits long.
//!
//! A round visits all sources. The events of each are walked in id order, which is time order, up to
//! the cutoff: once for the events, and once each for bodies and attempts if these expire earlier. A
//! cursor on disk marks how far each walk has come, so no event is visited twice; when nothing has
//! expired, a walk is one index lookup.
//!
//! Events that a walk must skip (unfinished or dead) are *deferred*: listed in `prune_later` with the
//! time of the next try. So are events inserted or replayed behind a cursor. Every event is thus ahead
//! of a cursor, done, or deferred.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use serde::Deserialize;
use surehook_core::{
    delivery::state::DeliveryStatus,
    quarantine::QUARANTINE_RETENTION,
    retention::{EventProgress, ExpiredParts, RetentionPolicy, RetentionSpec},
    rollup::BucketWidth,
    store::PruneReport,
};
use surehook_types::{ids::EventId, time::Timestamp};
use surehook_webhooks::attribute::{Attributes, EventKind};

use super::{
    StepTransaction, callbacks, dead_letter_groups, media, quarantine, refused,
    rollups::{self, SubjectSeq},
    row::{blob, id, json, reason, status, time},
    sent_messages,
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// A transaction of retention: what each database keeps in its own way.
pub(crate) trait PruneTransaction: StepTransaction {
    /// The steps of a slice: removed events and attempts, and index lookups.
    const STEPS_PER_SLICE: usize;
    /// The number of events that are one step where [`Self::erase_ended`] removes them.
    const ENDED_EVENTS_PER_STEP: usize;

    fn progress(&mut self) -> &mut PruneProgress;

    /// A walk has passed this event; see [`StepTransaction::defer_pruning`].
    fn raise_max_cursor(&mut self, event: EventId);

    /// Removes a slice of expired keys; returns how many, and whether there may be more.
    fn prune_keys(&mut self, now: Timestamp) -> Result<KeyPruneReport>;

    /// Whether a walk over the keys has begun and continues in a later slice.
    fn is_walking_keys(&self) -> bool;

    /// Removes the search terms of an event that is removed; returns the number of deleted rows.
    fn remove_terms(
        &mut self,
        event: EventId,
        kind: Option<&EventKind>,
        attributes: &Attributes,
    ) -> Result<usize>;

    /// Removes what is left of search terms after events were removed.
    fn remove_unused_terms(&mut self) -> Result<()>;

    /// Removes events whose deliveries have all ended, none of them dead, with everything that belongs to
    /// them; returns the number of deleted rows of search terms, each of which takes a step.
    fn erase_ended(&mut self, events: &[OldEvent]) -> Result<usize>
    where
        Self: Sized,
    {
        let mut term_rows = 0;
        for event in events {
            term_rows += erase_event(self, event.id, event.payload)?.term_rows;
        }
        Ok(term_rows)
    }
}

/// What a slice removed of the expired keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPruneReport {
    pub(crate) removed: usize,
    pub(crate) more: bool,
}

/// Bytes of bodies removed by a slice: all pages of a large body must be read to free them.
const BYTES_PER_SLICE: u64 = 8 << 20;
/// Pause between two rounds while the walk over all keys, which may take minutes, continues.
const ROUND_PAUSE: Duration = Duration::from_secs(1);

/// The work that a slice may still do.
struct SliceBudget {
    steps: usize,
    bytes: u64,
    /// Events that are removed together and are no step yet.
    ended_events: usize,
}

impl SliceBudget {
    fn spend_steps(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    fn spend_ended_event(&mut self, events_per_step: usize) {
        self.ended_events += 1;
        if self.ended_events >= events_per_step {
            self.ended_events = 0;
            self.spend_steps(1);
        }
    }

    fn spend_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(&self) -> bool {
        self.steps == 0 || self.bytes == 0
    }
}

/// The progress of a round. It may be wrong after a rollback, or if another node continues: the cursors
/// are on disk, and a source that is skipped is visited in the next round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PruneProgress {
    /// Row numbers of the last source and destination that are done.
    source: i64,
    destination: i64,
    round_ended_at: Timestamp,
}

/// Implements `AdminStore::prune`.
pub(crate) fn prune_slice<T: PruneTransaction>(
    tx: &mut T,
    event_retention: Duration,
    now: Timestamp,
) -> Result<PruneReport> {
    let steps_per_slice = T::STEPS_PER_SLICE;
    let mut slice = PruneSlice {
        event_retention,
        now,
        budget: SliceBudget { steps: steps_per_slice, bytes: BYTES_PER_SLICE, ended_events: 0 },
        deferred_max: steps_per_slice / 2,
        pruned: PruneReport::default(),
    };
    let deferred_done = slice.prune_deferred(tx)?;
    let round_done = slice.continue_round(tx)?;
    let keys = tx.prune_keys(now)?;
    refused::prune(tx, now - event_retention)?;
    quarantine::prune(tx, now - event_retention.min(QUARANTINE_RETENTION))?;
    let more_files = media::prune(tx, now)?;
    if slice.pruned.events > 0 || round_done {
        tx.remove_unused_terms()?;
    }
    let more = !deferred_done || !round_done || keys.more || more_files;
    Ok(PruneReport { keys: keys.removed, more, ..slice.pruned })
}

/// The parts that a scan of a source's events removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PruneTarget {
    Events,
    Bodies,
    Attempts,
}

impl PruneTarget {
    /// Events first: an event that is removed needs no walk for its parts.
    const ALL: [Self; 3] = [Self::Events, Self::Bodies, Self::Attempts];

    fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Bodies => "bodies",
            Self::Attempts => "attempts",
        }
    }

    fn retention(self, policy: &RetentionPolicy) -> Duration {
        match self {
            Self::Events => policy.events,
            Self::Bodies => policy.bodies,
            Self::Attempts => policy.attempts,
        }
    }

    /// Whether this expires before the event itself.
    fn is_needed(self, policy: &RetentionPolicy) -> bool {
        self == Self::Events || self.retention(policy) < policy.events
    }

    fn is_expired(self, expired: ExpiredParts) -> bool {
        match self {
            Self::Events => expired.event,
            Self::Bodies => expired.body,
            Self::Attempts => expired.attempts,
        }
    }
}

pub(crate) struct OldEvent {
    pub(crate) id: EventId,
    pub(crate) payload: Option<i64>,
    body_bytes: u64,
    /// Of the transformed bodies of its deliveries.
    derived_bytes: u64,
    received_at: Timestamp,
    progress: EventProgress,
}

/// Columns of [`OldEvent`], from `events e`. Of its deliveries the least finished one decides.
macro_rules! old_event_columns {
    () => {
        "e.id, e.payload, e.body_bytes, e.received_at,
         (SELECT max(CASE WHEN d.ended_at IS NULL THEN 2 WHEN d.state = 'dead' THEN 1 ELSE 0 END)
            FROM deliveries d WHERE d.event_id = e.id),
         (SELECT CAST(coalesce(sum(length(b.body)), 0) AS bigint)
            FROM deliveries d CROSS JOIN delivery_bodies b
           WHERE d.event_id = e.id AND b.delivery_id = d.id)"
    };
}

fn read_old_event(row: &dyn SqlRow, first: usize) -> Result<OldEvent> {
    let progress = match row.get::<Option<i64>>(first + 4)? {
        None | Some(0) => EventProgress::Ended,
        Some(1) => EventProgress::Dead,
        Some(_) => EventProgress::Pending,
    };
    Ok(OldEvent {
        id: id(row, first)?,
        payload: row.get(first + 1)?,
        body_bytes: row.get(first + 2)?,
        derived_bytes: row.get(first + 5)?,
        received_at: time(row, first + 3)?,
        progress,
    })
}

const SOURCE_AFTER: &str = "
    SELECT seq, spec FROM sources WHERE seq > ?1 ORDER BY seq LIMIT 1";
const DESTINATION_AFTER: &str = "SELECT seq FROM destinations WHERE seq > ?1 ORDER BY seq LIMIT 1";

// INDEXED BY: a walk by the primary key would visit the events of all sources.
const NEXT_OF_SOURCE: &str = concat!(
    "SELECT ",
    old_event_columns!(),
    " FROM events e INDEXED BY events_by_source
       WHERE e.source = ?1 AND e.id > ?2 AND e.id < ?3 ORDER BY e.id LIMIT ?4"
);

const CURSOR: &str = "SELECT event_id FROM prune_cursors WHERE source = ?1 AND what = ?2";
const MOVE_CURSOR: &str = "
    INSERT INTO prune_cursors (source, what, event_id) VALUES (?1, ?2, ?3)
    ON CONFLICT (source, what) DO UPDATE SET event_id = excluded.event_id";
const DROP_CURSOR: &str = "DELETE FROM prune_cursors WHERE source = ?1 AND what = ?2";

/// The last event that a walk has visited; zero if it has not started.
fn read_cursor(
    connection: &impl SqlConnection,
    source: i64,
    target: PruneTarget,
) -> Result<[u8; 16]> {
    let found = connection.find_one(CURSOR, params![source, target.as_str()], |row| row.get(0))?;
    Ok(found.unwrap_or_default())
}

const KEEP_FOREVER: RetentionPolicy = RetentionPolicy {
    events: Duration::MAX,
    bodies: Duration::MAX,
    attempts: Duration::MAX,
    dead_letters: Duration::MAX,
};

/// The field of a stored spec that retention reads; it is not sealed.
#[derive(Deserialize)]
struct RetentionField {
    retention: Option<RetentionSpec>,
}

struct PruneSlice {
    event_retention: Duration,
    now: Timestamp,
    budget: SliceBudget,
    /// Deferred events that are tried again: the rest of the budget is for the walks.
    deferred_max: usize,
    pruned: PruneReport,
}

impl PruneSlice {
    /// Reads the row number and retention of a source, which may be deleted.
    fn read_retention(&self, row: &dyn SqlRow) -> Result<(i64, RetentionPolicy)> {
        let source = row.get(0)?;
        let policy = match json::<RetentionField>(row, 1) {
            Ok(spec) => spec.retention.unwrap_or_default().resolve(self.event_retention),
            Err(error) => {
                tracing::error!(source, %error, "cannot read the retention of a source; keeping all its data");
                KEEP_FOREVER
            }
        };
        Ok((source, policy))
    }

    /// Continues the round; returns whether it is complete.
    fn continue_round(&mut self, tx: &mut impl PruneTransaction) -> Result<bool> {
        if tx.is_walking_keys() && self.now < tx.progress().round_ended_at + ROUND_PAUSE {
            return Ok(true);
        }
        let is_done = self.prune_sources(tx)? && self.prune_destinations(tx)?;
        if is_done {
            *tx.progress() = PruneProgress { round_ended_at: self.now, ..PruneProgress::default() };
        }
        Ok(is_done)
    }

    /// Returns whether all sources are done.
    fn prune_sources(&mut self, tx: &mut impl PruneTransaction) -> Result<bool> {
        loop {
            if self.budget.is_spent() {
                return Ok(false);
            }
            let after = tx.progress().source;
            let next = tx.find_one(SOURCE_AFTER, params![after], |row| self.read_retention(row))?;
            let Some((source, policy)) = next else { return Ok(true) };
            for target in PruneTarget::ALL {
                if target.is_needed(&policy) {
                    if !self.prune_source(tx, source, &policy, target)? {
                        return Ok(false);
                    }
                } else {
                    // If this walk is needed again later, it must start from the first event.
                    self.budget.spend_steps(1);
                    tx.run(DROP_CURSOR, params![source, target.as_str()])?;
                }
            }
            if !self.prune_rollups(tx, SubjectSeq::Source(source))? {
                return Ok(false);
            }
            tx.progress().source = source;
        }
    }

    /// The same for destinations, which only have counts.
    fn prune_destinations(&mut self, tx: &mut impl PruneTransaction) -> Result<bool> {
        loop {
            if self.budget.is_spent() {
                return Ok(false);
            }
            let after = tx.progress().destination;
            let next: Option<i64> =
                tx.find_one(DESTINATION_AFTER, params![after], |row| row.get(0))?;
            let Some(destination) = next else { return Ok(true) };
            if !self.prune_rollups(tx, SubjectSeq::Destination(destination))? {
                return Ok(false);
            }
            sent_messages::prune_days(tx, destination, self.now)?;
            tx.progress().destination = destination;
        }
    }

    /// Removes expired counts of a source or destination; returns whether that were all.
    fn prune_rollups(
        &mut self,
        connection: &impl SqlConnection,
        subject: SubjectSeq,
    ) -> Result<bool> {
        // At least one, or a walk that always spends the budget would block this forever.
        let limit = self.budget.steps.max(1);
        let removed = rollups::prune_buckets(connection, subject, self.now, limit)?;
        self.budget.spend_steps(BucketWidth::ALL.len() + removed);
        Ok(removed < limit)
    }

    /// Continues a walk through the events of a source; returns whether the cutoff is reached.
    fn prune_source<T: PruneTransaction>(
        &mut self,
        tx: &mut T,
        source: i64,
        policy: &RetentionPolicy,
        target: PruneTarget,
    ) -> Result<bool> {
        // Ids begin with their time.
        let cutoff = EventId::new(self.now - target.retention(policy), 0);
        let after = read_cursor(tx, source, target)?;
        let limit = match target {
            PruneTarget::Events => self.budget.steps * T::ENDED_EVENTS_PER_STEP,
            PruneTarget::Bodies | PruneTarget::Attempts => self.budget.steps,
        };
        let values = params![source, after, blob(cutoff), limit];
        let events: Vec<OldEvent> =
            tx.read_all(NEXT_OF_SOURCE, values, |row| read_old_event(row, 0))?;
        self.budget.spend_steps(1);
        let mut is_done = events.len() < limit;
        let (mut last, mut ended) = (None, Vec::new());
        for event in events {
            if self.budget.is_spent() {
                is_done = false;
                break;
            }
            last = Some(event.id);
            let expired = policy.expired_parts(event.received_at, event.progress, self.now);
            if expired.event && event.progress == EventProgress::Ended {
                self.budget.spend_ended_event(T::ENDED_EVENTS_PER_STEP);
                self.budget.spend_bytes(event.body_bytes + event.derived_bytes);
                ended.push(event);
                // Where nothing is gained by waiting, each is counted before the next one.
                if T::ENDED_EVENTS_PER_STEP == 1 {
                    self.erase_ended(tx, &ended)?;
                    ended.clear();
                }
            } else {
                self.prune_event(tx, &event, policy, target)?;
            }
        }
        self.erase_ended(tx, &ended)?;
        if let Some(last) = last {
            tx.run(MOVE_CURSOR, params![source, target.as_str(), blob(last)])?;
            tx.raise_max_cursor(last);
        }
        Ok(is_done)
    }

    /// Removes events whose deliveries have all ended.
    fn erase_ended(&mut self, tx: &mut impl PruneTransaction, events: &[OldEvent]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        self.pruned.events += events.len();
        let term_rows = tx.erase_ended(events)?;
        self.budget.spend_steps(term_rows);
        Ok(())
    }

    /// Removes the target of the walk from an event, or defers the event.
    fn prune_event(
        &mut self,
        tx: &mut impl PruneTransaction,
        event: &OldEvent,
        policy: &RetentionPolicy,
        target: PruneTarget,
    ) -> Result<()> {
        let expired = policy.expired_parts(event.received_at, event.progress, self.now);
        if !target.is_expired(expired) {
            self.budget.spend_steps(1);
            return self.defer(tx, event);
        }
        let removed = ExpiredParts {
            event: expired.event,
            body: target == PruneTarget::Bodies,
            attempts: target == PruneTarget::Attempts,
        };
        self.erase(tx, event, removed)
    }

    fn erase(
        &mut self,
        tx: &mut impl PruneTransaction,
        event: &OldEvent,
        expired: ExpiredParts,
    ) -> Result<()> {
        self.budget.spend_steps(1);
        if expired.event {
            self.pruned.events += 1;
            let erased = erase_event(tx, event.id, event.payload)?;
            self.budget.spend_bytes(event.body_bytes + erased.derived_bytes);
            self.budget.spend_steps(erased.term_rows);
            return Ok(());
        }
        if let Some(payload) = event.payload.filter(|_| expired.body) {
            self.pruned.bodies += 1;
            let derived_bytes = erase_body(tx, event.id, payload)?;
            self.budget.spend_bytes(event.body_bytes + derived_bytes);
        }
        if expired.attempts {
            let attempts = tx.run(ERASE_ATTEMPTS, params![blob(event.id)])?;
            self.pruned.attempts += attempts;
            self.budget.spend_steps(attempts);
        }
        Ok(())
    }
}

/// A deferred event is tried again after a tenth of its age, within these bounds.
const DEFER_AGE_DIVISOR: u32 = 10;
const DEFER_MIN: Duration = Duration::from_secs(1);
const DEFER_MAX: Duration = Duration::from_secs(86_400);

const DUE_DEFERRED: &str = concat!(
    "SELECT l.event_id, e.source, ",
    old_event_columns!(),
    " FROM prune_later l LEFT JOIN events e ON e.id = l.event_id
       WHERE l.look_at <= ?1 ORDER BY l.look_at LIMIT ?2"
);

const SOURCE: &str = "SELECT seq, spec FROM sources WHERE seq = ?1";

const DEFER: &str = "
    INSERT INTO prune_later (event_id, look_at) VALUES (?1, ?2)
    ON CONFLICT (event_id) DO UPDATE SET look_at = excluded.look_at";
const REMOVE_DEFERRED: &str = "DELETE FROM prune_later WHERE event_id = ?1";

/// The id, and the source and event if it still exists.
type DeferredEvent = (EventId, Option<(i64, OldEvent)>);

/// The retention of a source and the cursors of its walks, in the order of [`PruneTarget::ALL`].
struct SourceRetention {
    policy: RetentionPolicy,
    cursors: [[u8; 16]; 3],
}

impl PruneSlice {
    /// Tries deferred events again; returns whether all that are due were tried.
    fn prune_deferred(&mut self, tx: &mut impl PruneTransaction) -> Result<bool> {
        let deferred = self.find_deferred(tx)?;
        let mut sources: HashMap<i64, SourceRetention> = HashMap::new();
        for (id, event) in &deferred {
            if self.budget.is_spent() {
                return Ok(false);
            }
            let is_done = match event {
                // The event was removed.
                None => true,
                Some((source, event)) => {
                    let retention = match sources.entry(*source) {
                        Entry::Occupied(entry) => entry.into_mut(),
                        Entry::Vacant(new) => new.insert(self.load_retention(tx, *source)?),
                    };
                    self.prune_all_expired(tx, event, retention)?
                }
            };
            if is_done {
                tx.run(REMOVE_DEFERRED, params![blob(*id)])?;
            }
        }
        Ok(deferred.len() < self.deferred_max)
    }

    fn find_deferred(&self, connection: &impl SqlConnection) -> Result<Vec<DeferredEvent>> {
        let values = params![self.now.as_millis(), self.deferred_max];
        connection.read_all(DUE_DEFERRED, values, |row| {
            let event = match row.get::<Option<i64>>(1)? {
                None => None,
                Some(source) => Some((source, read_old_event(row, 2)?)),
            };
            Ok((id(row, 0)?, event))
        })
    }

    fn load_retention(
        &self,
        connection: &impl SqlConnection,
        source: i64,
    ) -> Result<SourceRetention> {
        let (_, policy) =
            connection.read_one(SOURCE, params![source], |row| self.read_retention(row))?;
        let cursor = |target| read_cursor(connection, source, target);
        let [events, bodies, attempts] = PruneTarget::ALL.map(cursor);
        Ok(SourceRetention { policy, cursors: [events?, bodies?, attempts?] })
    }

    /// Removes all expired parts of an event; returns whether the walks will remove the rest.
    fn prune_all_expired(
        &mut self,
        tx: &mut impl PruneTransaction,
        event: &OldEvent,
        retention: &SourceRetention,
    ) -> Result<bool> {
        let expired = retention.policy.expired_parts(event.received_at, event.progress, self.now);
        self.erase(tx, event, expired)?;
        let [events, bodies, attempts] = retention.cursors.map(|cursor| blob(event.id) > cursor);
        let is_done =
            expired.event || (events && (bodies || expired.body) && (attempts || expired.attempts));
        if !is_done {
            self.defer(tx, event)?;
        }
        Ok(is_done)
    }

    fn defer(&self, connection: &impl SqlConnection, event: &OldEvent) -> Result<()> {
        let share = self.now.since(event.received_at) / DEFER_AGE_DIVISOR;
        let look_at = self.now + share.clamp(DEFER_MIN, DEFER_MAX);
        defer_until(connection, event.id, look_at)
    }
}

/// Defers an event, which the walks may have passed, until `look_at`.
pub(crate) fn defer_until(
    connection: &impl SqlConnection,
    event: EventId,
    look_at: Timestamp,
) -> Result<()> {
    connection.run(DEFER, params![blob(event), look_at.as_millis()])?;
    Ok(())
}

// `body_removed` keeps the fact that the duplicate differed.
const ERASE_DUPLICATE_BODIES: &str = "
    UPDATE duplicates SET body = NULL, body_removed = 1
     WHERE event_id = ?1 AND body IS NOT NULL";

const ERASE_PAYLOAD: &str = "DELETE FROM payloads WHERE seq = ?1";

const ERASE_DERIVED_BODIES: &str = "
    DELETE FROM delivery_bodies
     WHERE delivery_id IN (SELECT id FROM deliveries WHERE event_id = ?1)
    RETURNING coalesce(length(body), 0)";

/// Removes the transformed bodies of the deliveries of an event; returns their bytes.
fn erase_derived_bodies(connection: &impl SqlConnection, event: EventId) -> Result<u64> {
    let bytes: Vec<u64> =
        connection.read_all(ERASE_DERIVED_BODIES, params![blob(event)], |row| row.get::<u64>(0))?;
    Ok(bytes.iter().sum())
}

/// Removes the body of an event, the head of its request, the bodies of differing duplicates and the
/// transformed bodies; returns the bytes of the latter.
fn erase_body(connection: &impl SqlConnection, event: EventId, payload: i64) -> Result<u64> {
    let key = params![blob(event)];
    connection.run("UPDATE events SET payload = NULL WHERE id = ?1", key)?;
    connection.run(ERASE_DUPLICATE_BODIES, key)?;
    connection.run(ERASE_PAYLOAD, params![payload])?;
    erase_derived_bodies(connection, event)
}

const ERASE_ATTEMPTS: &str = "
    DELETE FROM attempts
     WHERE delivery_id IN (SELECT id FROM deliveries WHERE event_id = ?1)";

struct ErasedEvent {
    /// Bytes of transformed bodies.
    derived_bytes: u64,
    term_rows: usize,
}

const ERASE_EVENT: &str = "DELETE FROM events WHERE id = ?1 RETURNING kind, attributes";

/// Removes an event and everything that belongs to it.
fn erase_event(
    tx: &mut impl PruneTransaction,
    event: EventId,
    payload: Option<i64>,
) -> Result<ErasedEvent> {
    // Before the deliveries, by which they are found.
    let derived_bytes = erase_derived_bodies(tx, event)?;
    let sql = "SELECT id, state, reason FROM deliveries WHERE event_id = ?1";
    let read = |row: &dyn SqlRow| Ok((id(row, 0)?, status(row, 1)?, reason(row, 2)?));
    let deliveries: Vec<_> = tx.read_all(sql, params![blob(event)], read)?;
    for (delivery, status, reason) in deliveries {
        if let (DeliveryStatus::Dead, Some(reason)) = (status, reason) {
            dead_letter_groups::remove_delivery(tx, delivery, reason)?;
        }
        let key = params![blob(delivery)];
        tx.run("DELETE FROM attempts WHERE delivery_id = ?1", key)?;
        tx.run("DELETE FROM deliveries WHERE id = ?1", key)?;
        callbacks::remove(tx, delivery)?;
        tx.counts().count_move(Some(status), None);
    }
    let key = params![blob(event)];
    for sql in [
        "DELETE FROM duplicates WHERE event_id = ?1",
        "DELETE FROM key_conflicts WHERE event_id = ?1",
        "DELETE FROM decisions WHERE event_id = ?1",
        "DELETE FROM prune_later WHERE event_id = ?1",
    ] {
        tx.run(sql, key)?;
    }
    // Unreadable attributes must not prevent the removal.
    let (kind, attributes) = tx.read_one(ERASE_EVENT, key, |row| {
        let kind = row.optional_text(0)?.and_then(EventKind::new);
        let attributes = row.optional_text(1)?.map(Attributes::from_json);
        Ok((kind, attributes.and_then(Result::ok).unwrap_or_default()))
    })?;
    let term_rows = tx.remove_terms(event, kind.as_ref(), &attributes)?;
    if let Some(payload) = payload {
        tx.run(ERASE_PAYLOAD, params![payload])?;
    }
    Ok(ErasedEvent { derived_bytes, term_rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn no_step_of_a_round_scans_a_whole_table() {
        let statements = [
            ("next of source", NEXT_OF_SOURCE),
            ("source after", SOURCE_AFTER),
            ("destination after", DESTINATION_AFTER),
            ("cursor", CURSOR),
            ("next to look at", DUE_DEFERRED),
        ];
        for (name, sql) in statements {
            let steps = query_plan(sql);
            let is_bounded = |step: &String| {
                step.starts_with("SEARCH") || step.starts_with("CORRELATED SCALAR SUBQUERY")
            };
            assert!(!steps.is_empty() && steps.iter().all(is_bounded), "case: {name}: {steps:#?}");
        }
    }

    #[test]
    fn events_are_walked_by_source_and_time() {
        let steps = query_plan(NEXT_OF_SOURCE);
        let by_source = "SEARCH e USING INDEX events_by_source (source=? AND id>? AND id<?)";
        assert_eq!(steps[0], by_source);
        assert!(steps.iter().all(|step| !step.contains("TEMP B-TREE")), "{steps:#?}");
    }
}
