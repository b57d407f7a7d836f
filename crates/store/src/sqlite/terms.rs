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

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::{Connection, params};
use surehook_core::{
    attribute::{Attributes, EventKind, Term},
    ids::EventId,
};
use uuid::Uuid;

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
/// As many entries as fit on a page of the file together with what the row has beside them.
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
        let mut terms = Vec::with_capacity(TERMS_USUAL * Term::BYTES);
        terms_of(kind, attributes).for_each(|term| terms.extend_from_slice(&term.to_bytes()));
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

// The fresh ones are few.
const FRESH_WITH_TERM: &str = "
    SELECT event_id FROM terms_fresh
     WHERE event_id < ?2 AND event_id >= ?3 AND instr(terms, ?1) > 0
     ORDER BY event_id DESC LIMIT ?4";
const SEGMENTS: &str = "
    SELECT id, max_event FROM term_segments
     WHERE max_event >= ?2 AND min_event < ?1 ORDER BY max_event DESC";
const BLOCKS_BEFORE: &str = "
    SELECT entries FROM term_blocks WHERE segment = ?1 AND first < ?2 ORDER BY first DESC";

/// The events that may have a term, before the id `top` and from `bottom` on, newest first and at
/// most so many.
pub(super) fn events_with_term(
    connection: &Connection,
    term: Term,
    range: [[u8; 16]; 2],
    limit: usize,
) -> rusqlite::Result<Vec<EventId>> {
    let [top, bottom] = range;
    // Fresh ones first: what is folded meanwhile is found twice, not missed.
    let fresh = connection
        .prepare_cached(FRESH_WITH_TERM)?
        .query_map(params![term.to_bytes(), top, bottom, limit], |row| id(row, 0))?
        .collect::<Result<_, _>>()?;
    let mut found = [(term, fresh)];
    look_into_segments(connection, &mut found, range, limit)?;
    let [(_, found)] = found;
    Ok(found.into_iter().rev().take(limit).collect())
}

const ALL_RANGE: [[u8; 16]; 2] = [[0xff; 16], [0; 16]];
const FRESH: &str = "
    SELECT event_id, terms FROM terms_fresh WHERE event_id < ?1 ORDER BY event_id DESC";

/// The events that may have each of these terms, newest first and of each at most so many. The fresh
/// ones are looked at once for all of them.
pub(super) fn events_with_each_term(
    connection: &Connection,
    terms: &[Term],
    limit: usize,
) -> rusqlite::Result<HashMap<Term, Vec<EventId>>> {
    let mut fresh: HashMap<Term, BTreeSet<EventId>, ahash::RandomState> =
        terms.iter().map(|term| (*term, BTreeSet::new())).collect();
    let mut statement = connection.prepare_cached(FRESH)?;
    let mut rows = statement.query(params![ALL_RANGE[0]])?;
    while let Some(row) = rows.next()? {
        let (terms, _) = row.get_ref(1)?.as_blob()?.as_chunks::<{ Term::BYTES }>();
        for term in terms {
            let of_term = fresh.get_mut(&Term::from_bytes(*term));
            if let Some(events) = of_term.filter(|events| events.len() < limit) {
                events.insert(id(row, 0)?);
            }
        }
    }
    // In the order of the segments, so that neighbours are read together.
    let mut found: Vec<_> = fresh.into_iter().collect();
    found.sort_unstable_by_key(|(term, _)| *term);
    look_into_segments(connection, &mut found, ALL_RANGE, limit)?;
    let newest = |found: BTreeSet<EventId>| found.into_iter().rev().take(limit).collect();
    Ok(found.into_iter().map(|(term, found)| (term, newest(found))).collect())
}

/// Adds what the segments have of each term, newest first, until there is enough.
fn look_into_segments(
    connection: &Connection,
    wanted: &mut [(Term, BTreeSet<EventId>)],
    [top, bottom]: [[u8; 16]; 2],
    limit: usize,
) -> rusqlite::Result<()> {
    let mut segments = connection.prepare_cached(SEGMENTS)?;
    let mut segments = segments.query(params![top, bottom])?;
    while let Some(row) = segments.next()? {
        let (segment, newest): (i64, EventId) = (row.get(0)?, id(row, 1)?);
        let mut is_over = true;
        for (term, found) in &mut *wanted {
            let is_enough = limit.checked_sub(1).and_then(|last| found.iter().rev().nth(last));
            if is_enough.is_some_and(|last| *last > newest) {
                continue;
            }
            is_over = false;
            let between = (entry(*term, bottom), entry(*term, top));
            look_into(connection, segment, between, limit, found)?;
        }
        if is_over {
            break;
        }
    }
    Ok(())
}

/// Adds what a segment has between two entries of a term.
fn look_into(
    connection: &Connection,
    segment: i64,
    (from, before): ([u8; ENTRY_BYTES], [u8; ENTRY_BYTES]),
    limit: usize,
    found: &mut BTreeSet<EventId>,
) -> rusqlite::Result<()> {
    let mut blocks = connection.prepare_cached(BLOCKS_BEFORE)?;
    let mut blocks = blocks.query(params![segment, &before[..]])?;
    let mut many = 0;
    while let Some(row) = blocks.next()? {
        let block = row.get_ref(0)?.as_blob()?;
        let (entries, _) = block.as_chunks::<ENTRY_BYTES>();
        for entry in entries.iter().rev().filter(|entry| **entry < before) {
            if *entry < from || many == limit {
                return Ok(());
            }
            let mut event = [0; 16];
            event.copy_from_slice(&entry[Term::BYTES..]);
            found.insert(EventId::from_uuid(Uuid::from_bytes(event)));
            many += 1;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use surehook_core::{attribute::AttributeName, time::Timestamp};

    use super::*;
    use crate::sqlite::schema::{self, plan};

    fn event(number: u32) -> EventId {
        EventId::new(Timestamp::from_millis(1), u128::from(number) << 48)
    }

    fn insert(fresh: &mut FreshTerms, sql: &mut Prepared<'_>, number: u32) {
        let attributes = Attributes::default().with(AttributeName::MessageId, &number.to_string());
        fresh.insert(sql, event(number), &About::of(None, &attributes)).unwrap();
    }

    fn rows(connection: &Connection, table: &str) -> usize {
        let count = format!("SELECT count(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get(0)).unwrap()
    }

    /// A transaction with these new events that is committed, or is not.
    fn transact(
        connection: &Connection,
        fresh: &mut FreshTerms,
        numbers: std::ops::Range<u32>,
        is_committed: bool,
    ) {
        let mut sql = Prepared::new(connection);
        connection.execute_batch("BEGIN").unwrap();
        numbers.for_each(|number| insert(fresh, &mut sql, number));
        fresh.fold(&mut sql).unwrap();
        connection.execute_batch(if is_committed { "COMMIT" } else { "ROLLBACK" }).unwrap();
        if is_committed { fresh.committed() } else { fresh.rolled_back() }
    }

    /// The events that are found by the number of their message.
    fn found(connection: &Connection, number: u32) -> Vec<EventId> {
        let attributes = Attributes::default().with(AttributeName::MessageId, &number.to_string());
        let term = attributes.terms().next().unwrap();
        events_with_term(connection, term, [[0xff; 16], [0; 16]], 10).unwrap()
    }

    #[test]
    fn what_is_undone_in_the_middle_of_a_fold_is_neither_lost_nor_kept() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 400).unwrap();

        transact(&connection, &mut fresh, 0..400, true);
        // Each of these would write a block, or clear the rest.
        for number in 400..420 {
            transact(&connection, &mut fresh, number..number + 1, false);
            transact(&connection, &mut fresh, number..number + 1, true);
        }

        for number in 0..420 {
            assert_eq!(found(&connection, number), [event(number)], "case: {number}");
        }
        assert_eq!(rows(&connection, "term_blocks"), 3, "a fold has ended");
        assert_eq!(rows(&connection, "terms_fresh"), 20, "and its rows are gone");
        let again = FreshTerms::load(&connection, 400).unwrap();
        assert_eq!((again.gathered.len(), again.next_segment), (20, 2));
    }

    #[test]
    fn an_event_whose_id_comes_late_stays_until_it_is_folded() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 4).unwrap();
        for number in [10, 20, 30, 40] {
            transact(&connection, &mut fresh, number..number + 1, true);
        }
        // The first two write and end the segment, the third clears what is in it.
        for number in [25, 50, 60] {
            transact(&connection, &mut fresh, number..number + 1, true);
        }

        assert_eq!(rows(&connection, "terms_fresh"), 3);
        for number in [10, 20, 25, 30, 40, 50, 60] {
            assert_eq!(found(&connection, number), [event(number)], "case: {number}");
        }
        let again = FreshTerms::load(&connection, 4).unwrap();
        assert_eq!((again.gathered.len(), again.earliest), (3, Some(event(25))));
    }

    #[test]
    fn a_fold_that_was_cut_off_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 400).unwrap();
        transact(&connection, &mut fresh, 0..400, true);
        transact(&connection, &mut fresh, 400..401, true);
        assert_eq!(rows(&connection, "term_blocks"), 1);

        let mut fresh = FreshTerms::load(&connection, 400).unwrap();
        assert_eq!((rows(&connection, "term_blocks"), fresh.gathered.len()), (0, 401));
        (401..420).for_each(|number| transact(&connection, &mut fresh, number..number + 1, true));
        assert!((0..420).all(|number| found(&connection, number) == [event(number)]));
    }

    #[test]
    fn a_term_of_many_events_is_found_over_blocks_and_segments() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 500).unwrap();
        let kind = EventKind::new("message").unwrap();
        for number in 0..2_000 {
            let mut sql = Prepared::new(&connection);
            connection.execute_batch("BEGIN").unwrap();
            let about = About::of(Some(&kind), &Attributes::default());
            fresh.insert(&mut sql, event(number), &about).unwrap();
            fresh.fold(&mut sql).unwrap();
            connection.execute_batch("COMMIT").unwrap();
            fresh.committed();
        }

        assert!(rows(&connection, "term_segments") > 2);
        let newest_first: Vec<EventId> = (0..2_000).rev().map(event).collect();
        let mut top = [0xff; 16];
        for page in newest_first.chunks(300) {
            let found = events_with_term(&connection, kind.term(), [top, [0; 16]], 300).unwrap();
            assert_eq!(found, page);
            top = blob(*page.last().unwrap());
        }
        let range = [blob(event(1_500)), blob(event(1_490))];
        let found = events_with_term(&connection, kind.term(), range, 300).unwrap();
        assert_eq!(found, (1_490..1_500).rev().map(event).collect::<Vec<_>>());
    }

    #[test]
    fn terms_are_found_together_as_they_are_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 100).unwrap();
        let number =
            |number: u32| Attributes::default().with(AttributeName::MessageId, &number.to_string());
        // Each number of seven many times, over segments and what is fresh.
        for at in 0..500 {
            let mut sql = Prepared::new(&connection);
            connection.execute_batch("BEGIN").unwrap();
            fresh.insert(&mut sql, event(at), &About::of(None, &number(at % 7))).unwrap();
            fresh.fold(&mut sql).unwrap();
            connection.execute_batch("COMMIT").unwrap();
            fresh.committed();
        }
        assert!(rows(&connection, "term_segments") > 2 && rows(&connection, "terms_fresh") > 7);

        let terms: Vec<Term> = (0..9).map(|of| number(of).terms().next().unwrap()).collect();
        for limit in [0, 1, 10, 30, 1_000] {
            let together = events_with_each_term(&connection, &terms, limit).unwrap();
            for term in &terms {
                let alone = events_with_term(&connection, *term, ALL_RANGE, limit).unwrap();
                assert_eq!(together[term], alone, "case: {limit}");
            }
        }
    }

    #[test]
    fn a_removal_that_is_undone_does_not_hide_its_event() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 4).unwrap();
        transact(&connection, &mut fresh, 0..3, true);

        let attributes = Attributes::default().with(AttributeName::MessageId, "1");
        let remove = |fresh: &mut FreshTerms| {
            fresh.remove(&connection, event(1), (None, &attributes)).unwrap()
        };
        connection.execute_batch("BEGIN").unwrap();
        let undone = remove(&mut fresh);
        connection.execute_batch("ROLLBACK").unwrap();
        fresh.rolled_back();
        (3..9).for_each(|number| transact(&connection, &mut fresh, number..number + 1, true));

        assert_eq!((undone, found(&connection, 1)), (1, vec![event(1)]));
    }

    #[test]
    fn what_was_removed_while_it_was_fresh_is_not_folded() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 4).unwrap();
        transact(&connection, &mut fresh, 0..3, true);
        let attributes = Attributes::default().with(AttributeName::MessageId, "1");
        fresh.remove(&connection, event(1), (None, &attributes)).unwrap();
        fresh.committed();
        (3..9).for_each(|number| transact(&connection, &mut fresh, number..number + 1, true));

        assert_eq!((found(&connection, 1), found(&connection, 2)), (vec![], vec![event(2)]));
    }

    #[test]
    fn a_segment_goes_with_the_last_of_its_events() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 4).unwrap();
        (0..9).for_each(|number| transact(&connection, &mut fresh, number..number + 1, true));
        let segments = rows(&connection, "term_segments");
        assert!(segments > 0, "none of these events is in its table");

        drop_idle_segments(&connection).unwrap();
        assert_eq!(rows(&connection, "term_segments"), segments.saturating_sub(DROPPED_AT_ONCE));
    }

    #[test]
    fn a_search_reads_no_whole_table() {
        for sql in [FRESH_WITH_TERM, FRESH, SEGMENTS, BLOCKS_BEFORE] {
            let steps = plan(sql);
            let bounded = |step: &String| step.starts_with("SEARCH");
            assert!(!steps.is_empty() && steps.iter().all(bounded), "{sql}: {steps:#?}");
        }
    }
}
