//! What events are found by, on its way into its index.
//!
//! A term falls on a random place of an index, so that each would make a commit write a page of its
//! own. So the terms of a new event are first one appended row of `terms_fresh`. When enough have
//! gathered they are *folded*: sorted, cut into blocks of a page each, and written as a *segment*, a few
//! blocks with every commit that brings new ones. Then their rows are removed, event by event.
//!
//! Segments are never changed. Each holds the terms of some time, so that a search asks the newest
//! first and stops when it has enough, and a segment goes when none of its events is left. Until then it
//! may name events that are gone: whoever searches looks at the event itself.
//!
//! Terms are in the file from the commit that stores their event, in one table or in both. Whoever
//! searches looks into both, first at the fresh ones; memory holds only what is to be folded.

mod find;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use rusqlite::{Connection, params};
use surehook_core::{
    attribute::{Attributes, EventKind, Term},
    ids::EventId,
};

pub(super) use self::find::{events_with_each_term, events_with_term};
use super::{
    prepared::Prepared,
    row::{blob, id},
};

/// Terms folded beside each new one. More than one, or it would never end.
const FOLDED_PER_NEW: usize = 2;
/// Folded rows that are removed with one commit, at least, and beside each new term.
const CLEARED_PER_COMMIT: usize = 256;
const CLEARED_PER_NEW: usize = 4;
/// Terms that an event has, mostly.
const TERMS_USUAL: usize = 8;
/// Bytes of an entry of a block: a term and an event.
const ENTRY_BYTES: usize = Term::BYTES + 16;
/// As many entries as fit on half a page of the file together with what the row has beside them; on a
/// whole one where pages are small.
const BLOCK_ENTRIES: usize = 160;

/// What an event is about, as it is written. Made before the writer's turn, which others wait for.
#[derive(Debug, Default)]
pub(super) struct About {
    /// The attributes; `None` if there are none.
    pub(super) attributes: Option<String>,
    /// Each term after the other.
    terms: Vec<u8>,
}

impl About {
    pub(super) fn of(kind: Option<&EventKind>, attributes: &Attributes) -> Self {
        let mut terms = Vec::new();
        for term in terms_of(kind, attributes) {
            // Most events have none, or several.
            if terms.is_empty() {
                terms.reserve(TERMS_USUAL * Term::BYTES);
            }
            terms.extend_from_slice(&term.to_bytes());
        }
        let attributes = (!attributes.is_empty()).then(|| attributes.to_json());
        Self { attributes, terms }
    }
}

/// A part of the fresh terms, on its way into a segment.
#[derive(Debug)]
struct Fold {
    segment: i64,
    /// In the order of the segment.
    entries: Vec<(Term, EventId)>,
    /// How many of them are written.
    done: usize,
    /// Whose they are, in order.
    events: Vec<EventId>,
    /// How many of them have no row in `terms_fresh` any more.
    cleared: usize,
}

/// What the transaction at hand did, to be made good or undone with it.
#[derive(Debug, Default)]
struct Doing {
    added: usize,
    folded: usize,
    cleared: usize,
    erased: Vec<EventId>,
}

/// The terms that are not in a segment yet. Only the writer has them.
pub(super) struct FreshTerms {
    fold_at: usize,
    gathered: Vec<(Term, EventId)>,
    /// No event whose terms are gathered has a smaller id.
    earliest: Option<EventId>,
    fold: Option<Fold>,
    next_segment: i64,
    /// Events whose terms were removed before they were folded, and must not come back.
    erased: HashSet<EventId, ahash::RandomState>,
    doing: Doing,
}

const LOAD: &str = "SELECT event_id, terms FROM terms_fresh";
// A run ended while it wrote them; their terms are still fresh.
const DROP_UNFINISHED: &str = "
    DELETE FROM term_blocks WHERE segment IN (SELECT id FROM term_segments WHERE NOT is_whole);
    DELETE FROM term_segments WHERE NOT is_whole;";
const NEXT_SEGMENT: &str = "SELECT coalesce(max(id), 0) + 1 FROM term_segments";
const INSERT: &str = "INSERT INTO terms_fresh (event_id, terms) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM terms_fresh WHERE event_id = ?1";
const DELETE_BETWEEN: &str = "DELETE FROM terms_fresh WHERE event_id BETWEEN ?1 AND ?2";
const BEGIN_SEGMENT: &str = "
    INSERT INTO term_segments (id, min_event, max_event, is_whole) VALUES (?1, ?2, ?3, 0)";
const END_SEGMENT: &str = "UPDATE term_segments SET is_whole = 1 WHERE id = ?1";
const INSERT_BLOCK: &str = "
    INSERT INTO term_blocks (segment, first, entries) VALUES (?1, ?2, ?3)";

impl FreshTerms {
    /// Reads what an earlier run had not folded yet.
    pub(super) fn load(connection: &Connection, fold_at: usize) -> rusqlite::Result<Self> {
        connection.execute_batch(DROP_UNFINISHED)?;
        let next_segment = connection.query_row(NEXT_SEGMENT, [], |row| row.get(0))?;
        let mut gathered = Vec::new();
        let mut statement = connection.prepare(LOAD)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (event, terms): (EventId, Vec<u8>) = (id(row, 0)?, row.get(1)?);
            gathered.extend(entries(event, &terms));
        }
        Ok(Self {
            fold_at,
            earliest: gathered.iter().map(|(_, event)| *event).min(),
            gathered,
            fold: None,
            next_segment,
            erased: HashSet::default(),
            doing: Doing::default(),
        })
    }

    /// Takes the terms of a new event; one without any costs nothing.
    pub(super) fn insert(
        &mut self,
        sql: &mut Prepared<'_>,
        event: EventId,
        about: &About,
    ) -> rusqlite::Result<()> {
        if about.terms.is_empty() {
            return Ok(());
        }
        let before = self.gathered.len();
        self.gathered.extend(entries(event, &about.terms));
        self.doing.added += self.gathered.len() - before;
        self.earliest = Some(self.earliest.map_or(event, |earliest| earliest.min(event)));
        sql.get(INSERT)?.execute(params![blob(event), about.terms])?;
        Ok(())
    }

    /// Forgets the terms of an event that are not in a segment yet; says how many rows that took. Those
    /// in a segment stay until it goes.
    pub(super) fn remove(
        &mut self,
        connection: &Connection,
        event: EventId,
        (kind, attributes): (Option<&EventKind>, &Attributes),
    ) -> rusqlite::Result<usize> {
        if terms_of(kind, attributes).next().is_none() {
            return Ok(0);
        }
        let removed = connection.prepare_cached(DELETE)?.execute(params![blob(event)])?;
        if removed > 0 && self.erased.insert(event) {
            self.doing.erased.push(event);
        }
        Ok(removed)
    }

    /// Folds a few terms, in step with those that the transaction added.
    pub(super) fn fold(&mut self, sql: &mut Prepared<'_>) -> rusqlite::Result<()> {
        let Some(fold) = &self.fold else { return Ok(()) };
        let left = &fold.entries[fold.done..];
        if left.is_empty() {
            let left = &fold.events[fold.cleared..];
            let limit = CLEARED_PER_COMMIT.max(CLEARED_PER_NEW * self.doing.added);
            self.doing.cleared = left.len().min(limit);
            return clear(sql, &left[..self.doing.cleared], self.earliest);
        }
        let blocks = (self.doing.added * FOLDED_PER_NEW).div_ceil(BLOCK_ENTRIES);
        self.doing.folded = left.len().min(blocks * BLOCK_ENTRIES);
        if self.doing.folded == 0 {
            return Ok(());
        }
        if fold.done == 0 {
            let [min, max] =
                [fold.events.first(), fold.events.last()].map(|id| id.copied().map(blob));
            sql.get(BEGIN_SEGMENT)?.execute(params![fold.segment, min, max])?;
        }
        for block in left[..self.doing.folded].chunks(BLOCK_ENTRIES) {
            let mut bytes = Vec::with_capacity(BLOCK_ENTRIES * ENTRY_BYTES);
            for (term, event) in block {
                if self.erased.is_empty() || !self.erased.contains(event) {
                    bytes.extend_from_slice(&entry(*term, blob(*event)));
                }
            }
            if let Some(first) = bytes.first_chunk::<ENTRY_BYTES>() {
                sql.get(INSERT_BLOCK)?.execute(params![fold.segment, &first[..], bytes])?;
            }
        }
        if self.doing.folded == left.len() {
            sql.get(END_SEGMENT)?.execute(params![fold.segment])?;
        }
        Ok(())
    }

    /// The transaction is in the file.
    pub(super) fn committed(&mut self) {
        let doing = std::mem::take(&mut self.doing);
        if let Some(fold) = &mut self.fold {
            fold.done += doing.folded;
            fold.cleared += doing.cleared;
            if fold.cleared == fold.events.len() {
                let events = std::mem::take(&mut fold.events);
                self.erased.retain(|event| events.binary_search(event).is_err());
                self.fold = None;
            }
        }
        if self.fold.is_none() && self.gathered.len() >= self.fold_at {
            self.fold = Some(begin(self.next_segment, std::mem::take(&mut self.gathered)));
            self.next_segment += 1;
            self.earliest = None;
        }
    }

    /// The transaction did not happen, and so did nothing of what it changed here.
    pub(super) fn rolled_back(&mut self) {
        let doing = std::mem::take(&mut self.doing);
        self.gathered.truncate(self.gathered.len() - doing.added);
        for event in doing.erased {
            self.erased.remove(&event);
        }
    }
}

/// Removes the rows of these events, which are in order. Nothing else lies between them, unless an event
/// that is still to be folded has an earlier id than the last of them.
fn clear(
    sql: &mut Prepared<'_>,
    events: &[EventId],
    earliest: Option<EventId>,
) -> rusqlite::Result<()> {
    let [Some(first), Some(last)] = [events.first(), events.last()] else { return Ok(()) };
    if earliest.is_none_or(|earliest| earliest > *last) {
        sql.get(DELETE_BETWEEN)?.execute(params![blob(*first), blob(*last)])?;
        return Ok(());
    }
    for event in events {
        sql.get(DELETE)?.execute(params![blob(*event)])?;
    }
    Ok(())
}

fn begin(segment: i64, mut entries: Vec<(Term, EventId)>) -> Fold {
    let mut events: Vec<EventId> = entries.iter().map(|(_, event)| *event).collect();
    events.sort_unstable();
    events.dedup();
    entries.sort_unstable();
    Fold { segment, entries, done: 0, events, cleared: 0 }
}

/// The terms of a row of `terms_fresh`, each with its event.
fn entries(event: EventId, terms: &[u8]) -> impl Iterator<Item = (Term, EventId)> {
    let (terms, _) = terms.as_chunks::<{ Term::BYTES }>();
    terms.iter().map(move |term| (Term::from_bytes(*term), event))
}

fn entry(term: Term, event: [u8; 16]) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..Term::BYTES].copy_from_slice(&term.to_bytes());
    entry[Term::BYTES..].copy_from_slice(&event);
    entry
}

fn terms_of(kind: Option<&EventKind>, attributes: &Attributes) -> impl Iterator<Item = Term> {
    kind.map(EventKind::term).into_iter().chain(attributes.terms())
}

const IDLE_SEGMENTS: &str = "
    SELECT id FROM term_segments AS segment
     WHERE is_whole AND NOT EXISTS (
           SELECT 1 FROM events WHERE id BETWEEN segment.min_event AND segment.max_event)
     ORDER BY max_event LIMIT ?1";
/// Segments removed at once, at most; one is some megabytes.
const DROPPED_AT_ONCE: usize = 4;

/// Removes segments of which no event is left.
pub(super) fn drop_idle_segments(connection: &Connection) -> rusqlite::Result<()> {
    let idle: Vec<i64> = connection
        .prepare_cached(IDLE_SEGMENTS)?
        .query_map(params![DROPPED_AT_ONCE], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for segment in idle {
        for sql in [
            "DELETE FROM term_blocks WHERE segment = ?1",
            "DELETE FROM term_segments WHERE id = ?1",
        ] {
            connection.prepare_cached(sql)?.execute(params![segment])?;
        }
    }
    Ok(())
}
