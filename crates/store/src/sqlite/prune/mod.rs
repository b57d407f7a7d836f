//! Retention, one bounded slice at a time, so that it never holds up an answer for long.
//!
//! A round goes through all sources. The events of each are walked in the order of their ids, which
//! is that of time, up to the border of their span: once for the events themselves, and once each
//! for bodies and attempts where these go earlier. A cursor in the file says how far each walk has
//! come, so no event is looked at twice; when nothing is due, a walk is one look into an index.
//!
//! What a walk has to leave behind, because it is still owed or is dead, stands in `prune_later` with
//! the time at which it is looked at again. So does an event that comes in behind a cursor, or is
//! replayed there. Every event is thus in front of a cursor, dealt with, or in that list.

mod keys;
mod later;

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use surehook_core::{
    ids::EventId,
    quarantine::QUARANTINE_RETENTION,
    retention::{EventStanding, ExpiredParts, RetentionPolicy, RetentionSpec},
    store::PruneReport,
    time::Timestamp,
};

use super::{
    erase, media, quarantine, refused,
    rollups::{self, Subject},
    row::{blob, id, time},
    sends, terms,
    writer::Tx,
};

pub(super) use self::later::look_later_if_passed;

/// Events, attempts and looks into an index in a slice. At no more than 50 µs each it stays far
/// below what a sender notices.
const LOOKS_PER_SLICE: usize = 200;
/// Bytes of bodies in a slice: a large one is spread over pages that are all read to be freed.
const BYTES_PER_SLICE: u64 = 8 << 20;
/// While only keys are left to be looked at, which may take minutes, rounds have this in between.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(1);

/// What is left of a slice.
struct Budget {
    looks: usize,
    bytes: u64,
}

impl Budget {
    fn look(&mut self, many: usize) {
        self.looks = self.looks.saturating_sub(many);
    }

    fn free(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(&self) -> bool {
        self.looks == 0 || self.bytes == 0
    }
}

/// How far a round has come. None of it has to be right after a rollback: the cursors are in the
/// file, a source that is passed over has its turn in the next round, and of events that come in
/// behind a cursor too many are noted, not too few.
#[derive(Debug)]
pub(super) struct Sweep {
    /// No cursor is beyond this.
    reached: EventId,
    /// Row numbers of the source and the destination that were dealt with last.
    source: i64,
    destination: i64,
    /// When the last round was through.
    through_at: Timestamp,
    /// The place in the index of keys to go on from.
    keys: Option<i64>,
}

impl Sweep {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let reached: Option<[u8; 16]> =
            connection
                .query_row("SELECT max(event_id) FROM prune_cursors", [], |row| row.get(0))?;
        let reached = EventId::from_uuid(uuid::Uuid::from_bytes(reached.unwrap_or_default()));
        let through_at = Timestamp::default();
        Ok(Self { reached, source: 0, destination: 0, through_at, keys: None })
    }
}

/// See `AdminStore::prune`.
pub(super) fn prune(
    tx: &mut Tx<'_, '_>,
    events_kept: Duration,
    now: Timestamp,
) -> rusqlite::Result<PruneReport> {
    let mut slice = Slice {
        events_kept,
        now,
        budget: Budget { looks: LOOKS_PER_SLICE, bytes: BYTES_PER_SLICE },
        pruned: PruneReport::default(),
    };
    let is_all_seen = slice.look_again(tx)?;
    let is_through = slice.go_round(tx)?;
    let (keys, more_keys) = keys::prune(tx, now)?;
    refused::prune(tx, now - events_kept)?;
    quarantine::prune(tx, now - events_kept.min(QUARANTINE_RETENTION))?;
    let more_files = media::prune(tx, now)?;
    if slice.pruned.events > 0 || is_through {
        terms::drop_idle_segments(tx.connection)?;
    }
    let more = !is_all_seen || !is_through || more_keys || more_files;
    Ok(PruneReport { keys, more, ..slice.pruned })
}

/// What a walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Events,
    Bodies,
    Attempts,
}

impl What {
    /// Events first: what goes as a whole needs no walk for its parts.
    const ALL: [Self; 3] = [Self::Events, Self::Bodies, Self::Attempts];

    fn word(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Bodies => "bodies",
            Self::Attempts => "attempts",
        }
    }

    fn span(self, keep: &RetentionPolicy) -> Duration {
        match self {
            Self::Events => keep.events,
            Self::Bodies => keep.bodies,
            Self::Attempts => keep.attempts,
        }
    }

    /// Whether there is something to do that does not happen with the event anyway.
    fn is_needed(self, keep: &RetentionPolicy) -> bool {
        self == Self::Events || self.span(keep) < keep.events
    }

    fn is_due(self, due: ExpiredParts) -> bool {
        match self {
            Self::Events => due.event,
            Self::Bodies => due.body,
            Self::Attempts => due.attempts,
        }
    }
}

/// An event as retention sees it.
struct Old {
    id: EventId,
    payload: Option<i64>,
    body_bytes: u64,
    received_at: Timestamp,
    standing: EventStanding,
}

/// Columns of [`Old`], from `events e`: what weighs most among its deliveries decides.
macro_rules! old_columns {
    () => {
        "e.id, e.payload, e.body_bytes, e.received_at,
         (SELECT max(iif(d.ended_at IS NULL, 2, d.state = 'dead')) FROM deliveries d
           WHERE d.event_id = e.id)"
    };
}

use old_columns;

fn old(row: &Row<'_>, first: usize) -> rusqlite::Result<Old> {
    let standing = match row.get(first + 4)? {
        None | Some(0) => EventStanding::Ended,
        Some(1) => EventStanding::Dead,
        Some(_) => EventStanding::Owed,
    };
    Ok(Old {
        id: id(row, first)?,
        payload: row.get(first + 1)?,
        body_bytes: row.get(first + 2)?,
        received_at: time(row, first + 3)?,
        standing,
    })
}

const SOURCE_AFTER: &str = "
    SELECT seq, spec ->> '$.retention' FROM sources WHERE seq > ?1 ORDER BY seq LIMIT 1";
const DESTINATION_AFTER: &str = "SELECT seq FROM destinations WHERE seq > ?1 ORDER BY seq LIMIT 1";

// Named, because a walk by the primary key would look at the events of all sources.
const NEXT_OF_SOURCE: &str = concat!(
    "SELECT ",
    old_columns!(),
    " FROM events e INDEXED BY events_by_source
       WHERE e.source = ?1 AND e.id > ?2 AND e.id < ?3 ORDER BY e.id LIMIT ?4"
);

const CURSOR: &str = "SELECT event_id FROM prune_cursors WHERE source = ?1 AND what = ?2";
const MOVE_CURSOR: &str = "
    INSERT OR REPLACE INTO prune_cursors (source, what, event_id) VALUES (?1, ?2, ?3)";
const DROP_CURSOR: &str = "DELETE FROM prune_cursors WHERE source = ?1 AND what = ?2";

/// How far a walk has come; before all ids if it has not begun.
fn cursor(tx: &Tx<'_, '_>, source: i64, what: What) -> rusqlite::Result<[u8; 16]> {
    let found = tx
        .connection
        .prepare_cached(CURSOR)?
        .query_row(params![source, what.word()], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or_default())
}

const KEEP_ALL: RetentionPolicy = RetentionPolicy {
    events: Duration::MAX,
    bodies: Duration::MAX,
    attempts: Duration::MAX,
    dead_letters: Duration::MAX,
};

/// One slice at work.
struct Slice {
    events_kept: Duration,
    now: Timestamp,
    budget: Budget,
    pruned: PruneReport,
}

impl Slice {
    /// A source's row number and what it keeps for how long. A deleted one still has its say.
    fn keep(&self, row: &Row<'_>) -> rusqlite::Result<(i64, RetentionPolicy)> {
        let source = row.get(0)?;
        let spec = match row.get_ref(1)?.as_str_or_null()? {
            None => Ok(RetentionSpec::default()),
            Some(json) => serde_json::from_str(json),
        };
        let keep = spec.map(|spec: RetentionSpec| spec.keep(self.events_kept));
        Ok((
            source,
            keep.unwrap_or_else(|error| {
                tracing::error!(source, %error, "a source's retention cannot be read; it keeps all");
                KEEP_ALL
            }),
        ))
    }

    /// Goes on with the round; says whether it is through.
    fn go_round(&mut self, tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
        if tx.sweep.keys.is_some() && self.now < tx.sweep.through_at + BETWEEN_ROUNDS {
            return Ok(true);
        }
        let is_through = self.sweep_sources(tx)? && self.sweep_destinations(tx)?;
        if is_through {
            (tx.sweep.source, tx.sweep.destination) = (0, 0);
            tx.sweep.through_at = self.now;
        }
        Ok(is_through)
    }

    /// Says whether all sources have had their turn.
    fn sweep_sources(&mut self, tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
        loop {
            if self.budget.is_spent() {
                return Ok(false);
            }
            let next = tx
                .connection
                .prepare_cached(SOURCE_AFTER)?
                .query_row(params![tx.sweep.source], |row| self.keep(row))
                .optional()?;
            let Some((source, keep)) = next else { return Ok(true) };
            for what in What::ALL {
                if what.is_needed(&keep) {
                    if !self.walk(tx, source, &keep, what)? {
                        return Ok(false);
                    }
                } else {
                    // Should it be needed again, all that is there must be walked again.
                    self.budget.look(1);
                    tx.connection
                        .prepare_cached(DROP_CURSOR)?
                        .execute(params![source, what.word()])?;
                }
            }
            if !self.expire(tx, Subject::Source(source))? {
                return Ok(false);
            }
            tx.sweep.source = source;
        }
    }

    /// The same for destinations, which have nothing but counts.
    fn sweep_destinations(&mut self, tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
        loop {
            if self.budget.is_spent() {
                return Ok(false);
            }
            let next: Option<i64> = tx
                .connection
                .prepare_cached(DESTINATION_AFTER)?
                .query_row(params![tx.sweep.destination], |row| row.get(0))
                .optional()?;
            let Some(destination) = next else { return Ok(true) };
            if !self.expire(tx, Subject::Destination(destination))? {
                return Ok(false);
            }
            sends::expire(tx.connection, destination, self.now)?;
            tx.sweep.destination = destination;
        }
    }

    /// Removes old counts of a subject; says whether that were all.
    fn expire(&mut self, tx: &Tx<'_, '_>, subject: Subject) -> rusqlite::Result<bool> {
        // A walk before it may have left nothing, and this must go on by itself.
        let limit = self.budget.looks.max(1);
        let removed = rollups::expire(tx.connection, subject, self.now, limit)?;
        self.budget.look(surehook_core::rollup::BucketWidth::ALL.len() + removed);
        Ok(removed < limit)
    }

    /// Walks on through the events of a source; says whether the border is reached.
    fn walk(
        &mut self,
        tx: &mut Tx<'_, '_>,
        source: i64,
        keep: &RetentionPolicy,
        what: What,
    ) -> rusqlite::Result<bool> {
        // Ids begin with their time: the smallest id of that moment is the border.
        let border = EventId::new(self.now - what.span(keep), 0);
        let after = cursor(tx, source, what)?;
        let limit = self.budget.looks;
        let events: Vec<Old> = tx
            .connection
            .prepare_cached(NEXT_OF_SOURCE)?
            .query_map(params![source, after, blob(border), limit], |row| old(row, 0))?
            .collect::<Result<_, _>>()?;
        self.budget.look(1);
        let mut is_through = events.len() < limit;
        let mut last = None;
        for event in &events {
            if self.budget.is_spent() {
                is_through = false;
                break;
            }
            self.pass(tx, event, keep, what)?;
            last = Some(event.id);
        }
        if let Some(last) = last {
            tx.connection.prepare_cached(MOVE_CURSOR)?.execute(params![
                source,
                what.word(),
                blob(last)
            ])?;
            tx.sweep.reached = tx.sweep.reached.max(last);
        }
        Ok(is_through)
    }

    /// Does what the walk is for, or notes that it could not.
    fn pass(
        &mut self,
        tx: &mut Tx<'_, '_>,
        event: &Old,
        keep: &RetentionPolicy,
        what: What,
    ) -> rusqlite::Result<()> {
        let due = keep.due(event.received_at, event.standing, self.now);
        if !what.is_due(due) {
            self.budget.look(1);
            return self.look_later(tx, event);
        }
        let only = ExpiredParts {
            event: due.event,
            body: what == What::Bodies,
            attempts: what == What::Attempts,
        };
        self.erase(tx, event, only)
    }

    fn erase(
        &mut self,
        tx: &mut Tx<'_, '_>,
        event: &Old,
        due: ExpiredParts,
    ) -> rusqlite::Result<()> {
        self.budget.look(1);
        if due.event {
            self.pruned.events += 1;
            let erased = erase::event(tx, event.id, event.payload)?;
            self.budget.free(event.body_bytes + erased.made);
            self.budget.look(erased.terms);
            return Ok(());
        }
        if let Some(payload) = event.payload.filter(|_| due.body) {
            self.pruned.bodies += 1;
            let made = erase::body(tx, event.id, payload)?;
            self.budget.free(event.body_bytes + made);
        }
        if due.attempts {
            let attempts = erase::attempts(tx, event.id)?;
            self.pruned.attempts += attempts;
            self.budget.look(attempts);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{blocks, schema::plan},
        *,
    };

    #[test]
    fn no_step_of_a_round_reads_a_whole_table() {
        let statements = [
            ("next of source", NEXT_OF_SOURCE),
            ("source after", SOURCE_AFTER),
            ("destination after", DESTINATION_AFTER),
            ("cursor", CURSOR),
            ("next to look at", later::NEXT_TO_LOOK_AT),
            ("next keys", blocks::FROM),
        ];
        for (name, sql) in statements {
            let steps = plan(sql);
            let is_bounded = |step: &String| {
                step.starts_with("SEARCH") || step.starts_with("CORRELATED SCALAR SUBQUERY")
            };
            assert!(!steps.is_empty() && steps.iter().all(is_bounded), "case: {name}: {steps:#?}");
        }
    }

    #[test]
    fn events_are_walked_by_source_and_time() {
        let steps = plan(NEXT_OF_SOURCE);
        let by_source = "SEARCH e USING INDEX events_by_source (source=? AND id>? AND id<?)";
        assert_eq!(steps[0], by_source);
        assert!(steps.iter().all(|step| !step.contains("TEMP B-TREE")), "{steps:#?}");
    }
}
