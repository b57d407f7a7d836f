//! Search terms of events (kind and attributes), and the index they are found by.
//!
//! A term belongs on a random page of an index, so writing it there directly would cost each commit a
//! page per term. Instead, the terms of a new event are appended as one row of `terms_fresh`. Once
//! enough are there they are *merged*: sorted, cut into blocks of a page each, and written as a
//! *segment*, a few blocks with every commit that adds terms. Then their rows are deleted.
//!
//! Segments are never changed; one is removed when none of its events is left. Until then it may name
//! events that are gone, so a search must check each event. Terms are on disk from the commit that
//! stores their event. Searches read the recent rows first, then the segments, newest first.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::{Connection, Result, params};
use surehook_types::ids::EventId;
use surehook_webhooks::attribute::{Attributes, EventKind, SearchTerm};
use uuid::Uuid;

use super::{
    list::IdRange,
    prepared::CachedStatements,
    prepared::PreparedStatements,
    row::{blob, id},
};
pub(super) use crate::steps::event_terms::EventTerms;
use crate::steps::event_terms::event_search_terms;

/// Number of new terms at which merging starts.
pub(super) const MERGE_AT: usize = 131_072;
/// Terms merged per new term. Must be more than one, or a merge would never finish.
const MERGED_PER_NEW: usize = 2;
/// Merged rows deleted per commit, at least, and per new term.
const ROWS_REMOVED_PER_COMMIT: usize = 256;
const ROWS_REMOVED_PER_NEW: usize = 4;
/// An encoded term and event id.
const TERM_ENTRY_BYTES: usize = SearchTerm::BYTES + 16;
/// As many entries as fit on half a page of the file (a whole one where pages are small), together
/// with the overhead of the row.
const BLOCK_ENTRIES_MAX: usize = 160;

/// A merge in progress: a segment being written.
#[derive(Debug)]
struct TermMerge {
    segment: i64,
    /// Sorted as the segment is.
    entries: Vec<(SearchTerm, EventId)>,
    /// How many entries are written.
    written: usize,
    /// The events of the entries, sorted.
    events: Vec<EventId>,
    /// How many of the events have no row in `terms_fresh` any more.
    rows_removed: usize,
}

/// Changes of the current transaction, kept to be applied on commit or undone on rollback.
#[derive(Debug, Default)]
struct TermChanges {
    added: usize,
    written: usize,
    rows_removed: usize,
    removed_events: Vec<EventId>,
}

/// The terms that are not in a segment yet, as the writer holds them.
pub(super) struct RecentTerms {
    merge_at: usize,
    unmerged: Vec<(SearchTerm, EventId)>,
    /// No event of `unmerged` has a smaller id.
    earliest_event: Option<EventId>,
    merge: Option<TermMerge>,
    next_segment: i64,
    /// Events removed before their terms were merged; these terms must not be written.
    removed_events: HashSet<EventId, ahash::RandomState>,
    changes: TermChanges,
}

const READ_ALL: &str = "SELECT event_id, terms FROM terms_fresh";
// The process ended while it wrote these segments; their terms are still in `terms_fresh`.
const DELETE_INCOMPLETE: &str = "
    DELETE FROM term_blocks WHERE segment IN (SELECT id FROM term_segments WHERE NOT is_whole);
    DELETE FROM term_segments WHERE NOT is_whole;";
const NEXT_SEGMENT: &str = "SELECT coalesce(max(id), 0) + 1 FROM term_segments";
const INSERT: &str = "INSERT INTO terms_fresh (event_id, terms) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM terms_fresh WHERE event_id = ?1";
const DELETE_BETWEEN: &str = "DELETE FROM terms_fresh WHERE event_id BETWEEN ?1 AND ?2";
const INSERT_SEGMENT: &str = "
    INSERT INTO term_segments (id, min_event, max_event, is_whole) VALUES (?1, ?2, ?3, 0)";
const COMPLETE_SEGMENT: &str = "UPDATE term_segments SET is_whole = 1 WHERE id = ?1";
const INSERT_BLOCK: &str = "
    INSERT INTO term_blocks (segment, first, entries) VALUES (?1, ?2, ?3)";

impl RecentTerms {
    /// Loads the terms that are not merged yet.
    pub(super) fn load(connection: &Connection, merge_at: usize) -> Result<Self> {
        connection.execute_batch(DELETE_INCOMPLETE)?;
        let next_segment = connection.query_row(NEXT_SEGMENT, [], |row| row.get(0))?;
        let mut unmerged = Vec::new();
        let mut statement = connection.prepare(READ_ALL)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (event, terms): (EventId, Vec<u8>) = (id(row, 0)?, row.get(1)?);
            unmerged.extend(decode_terms(event, &terms));
        }
        Ok(Self {
            merge_at,
            earliest_event: unmerged.iter().map(|(_, event)| *event).min(),
            unmerged,
            merge: None,
            next_segment,
            removed_events: HashSet::default(),
            changes: TermChanges::default(),
        })
    }

    /// Inserts the terms of a new event; an event without terms costs nothing.
    pub(super) fn insert(
        &mut self,
        sql: &mut PreparedStatements<'_>,
        event: EventId,
        terms: &EventTerms,
    ) -> Result<()> {
        if terms.terms.is_empty() {
            return Ok(());
        }
        let before = self.unmerged.len();
        self.unmerged.extend(decode_terms(event, &terms.terms));
        self.changes.added += self.unmerged.len() - before;
        self.earliest_event = Some(self.earliest_event.map_or(event, |first| first.min(event)));
        sql.get(INSERT)?.execute(params![blob(event), terms.terms])?;
        Ok(())
    }

    /// Removes the unmerged terms of an event; returns the number of deleted rows. Merged terms stay
    /// until their segment is removed.
    pub(super) fn remove(
        &mut self,
        connection: &Connection,
        event: EventId,
        kind: Option<&EventKind>,
        attributes: &Attributes,
    ) -> Result<usize> {
        if event_search_terms(kind, attributes).next().is_none() {
            return Ok(0);
        }
        let removed = connection.run(DELETE, params![blob(event)])?;
        if removed > 0 && self.removed_events.insert(event) {
            self.changes.removed_events.push(event);
        }
        Ok(removed)
    }

    /// Merges some terms, in proportion to those that the transaction added.
    pub(super) fn merge_some(&mut self, sql: &mut PreparedStatements<'_>) -> Result<()> {
        let Some(merge) = &self.merge else { return Ok(()) };
        let remaining = &merge.entries[merge.written..];
        if remaining.is_empty() {
            let remaining = &merge.events[merge.rows_removed..];
            let limit = ROWS_REMOVED_PER_COMMIT.max(ROWS_REMOVED_PER_NEW * self.changes.added);
            self.changes.rows_removed = remaining.len().min(limit);
            let events = &remaining[..self.changes.rows_removed];
            return remove_rows(sql, events, self.earliest_event);
        }
        let blocks = (self.changes.added * MERGED_PER_NEW).div_ceil(BLOCK_ENTRIES_MAX);
        self.changes.written = remaining.len().min(blocks * BLOCK_ENTRIES_MAX);
        if self.changes.written == 0 {
            return Ok(());
        }
        if merge.written == 0 {
            let [min, max] =
                [merge.events.first(), merge.events.last()].map(|id| id.copied().map(blob));
            sql.get(INSERT_SEGMENT)?.execute(params![merge.segment, min, max])?;
        }
        for block in remaining[..self.changes.written].chunks(BLOCK_ENTRIES_MAX) {
            let mut bytes = Vec::with_capacity(BLOCK_ENTRIES_MAX * TERM_ENTRY_BYTES);
            for (term, event) in block {
                if self.removed_events.is_empty() || !self.removed_events.contains(event) {
                    bytes.extend_from_slice(&encode_entry(*term, blob(*event)));
                }
            }
            if let Some(first) = bytes.first_chunk::<TERM_ENTRY_BYTES>() {
                sql.get(INSERT_BLOCK)?.execute(params![merge.segment, &first[..], bytes])?;
            }
        }
        if self.changes.written == remaining.len() {
            sql.get(COMPLETE_SEGMENT)?.execute(params![merge.segment])?;
        }
        Ok(())
    }

    /// Applies the progress of the transaction; starts the next merge if enough terms are there.
    pub(super) fn on_commit(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if let Some(merge) = &mut self.merge {
            merge.written += changes.written;
            merge.rows_removed += changes.rows_removed;
            if merge.rows_removed == merge.events.len() {
                let events = std::mem::take(&mut merge.events);
                self.removed_events.retain(|event| events.binary_search(event).is_err());
                self.merge = None;
            }
        }
        if self.merge.is_none() && self.unmerged.len() >= self.merge_at {
            self.merge = Some(start_merge(self.next_segment, std::mem::take(&mut self.unmerged)));
            self.next_segment += 1;
            self.earliest_event = None;
        }
    }

    /// Undoes what the transaction changed in memory.
    pub(super) fn on_rollback(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.unmerged.truncate(self.unmerged.len() - changes.added);
        for event in changes.removed_events {
            self.removed_events.remove(&event);
        }
    }
}

/// Deletes the rows of these sorted events, by range unless an unmerged event lies between them.
fn remove_rows(
    sql: &mut PreparedStatements<'_>,
    events: &[EventId],
    earliest_unmerged: Option<EventId>,
) -> Result<()> {
    let [Some(first), Some(last)] = [events.first(), events.last()] else { return Ok(()) };
    if earliest_unmerged.is_none_or(|earliest| earliest > *last) {
        sql.get(DELETE_BETWEEN)?.execute(params![blob(*first), blob(*last)])?;
        return Ok(());
    }
    for event in events {
        sql.get(DELETE)?.execute(params![blob(*event)])?;
    }
    Ok(())
}

fn start_merge(segment: i64, mut entries: Vec<(SearchTerm, EventId)>) -> TermMerge {
    let mut events: Vec<EventId> = entries.iter().map(|(_, event)| *event).collect();
    events.sort_unstable();
    events.dedup();
    entries.sort_unstable();
    TermMerge { segment, entries, written: 0, events, rows_removed: 0 }
}

/// The terms of a row of `terms_fresh`, each with its event.
fn decode_terms(event: EventId, terms: &[u8]) -> impl Iterator<Item = (SearchTerm, EventId)> {
    let (terms, _) = terms.as_chunks::<{ SearchTerm::BYTES }>();
    terms.iter().map(move |term| (SearchTerm::from_bytes(*term), event))
}

fn encode_entry(term: SearchTerm, event: [u8; 16]) -> [u8; TERM_ENTRY_BYTES] {
    let mut entry = [0; TERM_ENTRY_BYTES];
    entry[..SearchTerm::BYTES].copy_from_slice(&term.to_bytes());
    entry[SearchTerm::BYTES..].copy_from_slice(&event);
    entry
}

const UNUSED_SEGMENTS: &str = "
    SELECT id FROM term_segments AS segment
     WHERE is_whole AND NOT EXISTS (
           SELECT 1 FROM events WHERE id BETWEEN segment.min_event AND segment.max_event)
     ORDER BY max_event LIMIT ?1";
/// Segments removed per call, at most; one has some megabytes.
const SEGMENTS_REMOVED_MAX: usize = 4;

/// Removes segments of which no event is left.
pub(super) fn remove_unused_segments(connection: &Connection) -> Result<()> {
    let unused: Vec<i64> =
        connection.read_all(UNUSED_SEGMENTS, params![SEGMENTS_REMOVED_MAX], |row| row.get(0))?;
    for segment in unused {
        connection.run("DELETE FROM term_blocks WHERE segment = ?1", params![segment])?;
        connection.run("DELETE FROM term_segments WHERE id = ?1", params![segment])?;
    }
    Ok(())
}

/// Writes terms of events as a segment, in a store without a writer.
pub(super) fn insert_segment(
    connection: &Connection,
    mut terms: Vec<(SearchTerm, [u8; 16])>,
) -> Result<()> {
    terms.sort_unstable();
    terms.dedup();
    let events = || terms.iter().map(|(_, event)| event);
    let (Some(min), Some(max)) = (events().min(), events().max()) else { return Ok(()) };
    let segment: i64 = connection.query_row(NEXT_SEGMENT, [], |row| row.get(0))?;
    connection.run(INSERT_SEGMENT, params![segment, min, max])?;
    for block in terms.chunks(BLOCK_ENTRIES_MAX) {
        let entries: Vec<_> =
            block.iter().map(|(term, event)| encode_entry(*term, *event)).collect();
        let values = params![segment, &entries[0][..], entries.as_flattened()];
        connection.run(INSERT_BLOCK, values)?;
    }
    connection.run(COMPLETE_SEGMENT, params![segment])?;
    Ok(())
}

const SEGMENT_IDS: &str = "SELECT id FROM term_segments ORDER BY id";
const BLOCKS: &str = "SELECT entries FROM term_blocks WHERE segment = ?1";

/// Joins segments that are smaller than those of a merge, in a store without a writer: a search reads
/// each of them.
pub(super) fn join_segments(connection: &Connection) -> Result<()> {
    let segments: Vec<i64> = connection.read_all(SEGMENT_IDS, [], |row| row.get(0))?;
    let mut group = SegmentGroup::default();
    for segment in segments {
        let mut terms = Vec::new();
        let blocks: Vec<Vec<u8>> = connection.read_all(BLOCKS, [segment], |row| row.get(0))?;
        for entry in blocks.iter().flat_map(|block| block.as_chunks::<TERM_ENTRY_BYTES>().0) {
            let term = SearchTerm::from_bytes(std::array::from_fn(|index| entry[index]));
            let event = std::array::from_fn(|index| entry[SearchTerm::BYTES + index]);
            terms.push((term, event));
        }
        if group.terms.len() + terms.len() > MERGE_AT {
            std::mem::take(&mut group).write(connection)?;
        }
        group.segments.push(segment);
        group.terms.append(&mut terms);
    }
    group.write(connection)
}

/// Segments that become one.
#[derive(Default)]
struct SegmentGroup {
    segments: Vec<i64>,
    terms: Vec<(SearchTerm, [u8; 16])>,
}

impl SegmentGroup {
    fn write(self, connection: &Connection) -> Result<()> {
        if self.segments.len() < 2 {
            return Ok(());
        }
        let tx = connection.unchecked_transaction()?;
        for segment in self.segments {
            tx.run("DELETE FROM term_blocks WHERE segment = ?1", params![segment])?;
            tx.run("DELETE FROM term_segments WHERE id = ?1", params![segment])?;
        }
        insert_segment(&tx, self.terms)?;
        tx.commit()
    }
}

// A scan, but of a small table.
const RECENT_WITH_TERM: &str = "
    SELECT event_id FROM terms_fresh
     WHERE event_id < ?2 AND event_id >= ?3 AND instr(terms, ?1) > 0
     ORDER BY event_id DESC LIMIT ?4";
const SEGMENTS: &str = "
    SELECT id, max_event FROM term_segments
     WHERE max_event >= ?2 AND min_event < ?1 ORDER BY max_event DESC";
const BLOCKS_BEFORE: &str = "
    SELECT entries FROM term_blocks WHERE segment = ?1 AND first < ?2 ORDER BY first DESC";

/// Finds the events in a range that may have a term, newest first.
pub(super) fn find_events_with_term(
    connection: &Connection,
    term: SearchTerm,
    range: IdRange,
    limit: usize,
) -> Result<Vec<EventId>> {
    // Recent rows first: a term merged in the meantime is then found twice, not missed.
    let values = params![term.to_bytes(), range.top, range.bottom, limit];
    let recent = connection.read_all(RECENT_WITH_TERM, values, |row| Ok(id(row, 0)?))?;
    let mut events = [(term, recent)];
    search_segments(connection, &mut events, range, limit)?;
    let [(_, events)] = events;
    Ok(events.into_iter().rev().take(limit).collect())
}

const ALL_RECENT: &str = "
    SELECT event_id, terms FROM terms_fresh WHERE event_id < ?1 ORDER BY event_id DESC";

/// Finds the events that may have each of these terms, newest first and at most `limit` per term.
/// The recent rows are read once for all terms.
pub(super) fn find_events_with_each_term(
    connection: &Connection,
    terms: &[SearchTerm],
    limit: usize,
) -> Result<HashMap<SearchTerm, Vec<EventId>>> {
    let mut recent: HashMap<SearchTerm, BTreeSet<EventId>, ahash::RandomState> =
        terms.iter().map(|term| (*term, BTreeSet::new())).collect();
    let mut statement = connection.prepare_cached(ALL_RECENT)?;
    let mut rows = statement.query(params![IdRange::ALL.top])?;
    while let Some(row) = rows.next()? {
        let (terms, _) = row.get_ref(1)?.as_blob()?.as_chunks::<{ SearchTerm::BYTES }>();
        for term in terms {
            let of_term = recent.get_mut(&SearchTerm::from_bytes(*term));
            if let Some(events) = of_term.filter(|events| events.len() < limit) {
                events.insert(id(row, 0)?);
            }
        }
    }
    // Sorted as the segments are, so that neighbours are read together.
    let mut events: Vec<_> = recent.into_iter().collect();
    events.sort_unstable_by_key(|(term, _)| *term);
    search_segments(connection, &mut events, IdRange::ALL, limit)?;
    let newest = |events: BTreeSet<EventId>| events.into_iter().rev().take(limit).collect();
    Ok(events.into_iter().map(|(term, events)| (term, newest(events))).collect())
}

/// Adds the events of each term from the segments, newest segment first, until all terms have
/// enough.
fn search_segments(
    connection: &Connection,
    terms: &mut [(SearchTerm, BTreeSet<EventId>)],
    range: IdRange,
    limit: usize,
) -> Result<()> {
    let mut segments = connection.prepare_cached(SEGMENTS)?;
    let mut segments = segments.query(params![range.top, range.bottom])?;
    while let Some(row) = segments.next()? {
        let (segment, newest): (i64, EventId) = (row.get(0)?, id(row, 1)?);
        let mut all_complete = true;
        for (term, events) in &mut *terms {
            let nth_newest = limit.checked_sub(1).and_then(|last| events.iter().rev().nth(last));
            if nth_newest.is_some_and(|event| *event > newest) {
                continue;
            }
            all_complete = false;
            search_segment(connection, segment, *term, range, limit, events)?;
        }
        if all_complete {
            break;
        }
    }
    Ok(())
}

/// Adds the events of a term in one segment.
fn search_segment(
    connection: &Connection,
    segment: i64,
    term: SearchTerm,
    range: IdRange,
    limit: usize,
    events: &mut BTreeSet<EventId>,
) -> Result<()> {
    let (from, before) = (encode_entry(term, range.bottom), encode_entry(term, range.top));
    let mut blocks = connection.prepare_cached(BLOCKS_BEFORE)?;
    let mut blocks = blocks.query(params![segment, &before[..]])?;
    let mut count = 0;
    while let Some(row) = blocks.next()? {
        let block = row.get_ref(0)?.as_blob()?;
        let (entries, _) = block.as_chunks::<TERM_ENTRY_BYTES>();
        for entry in entries.iter().rev().filter(|entry| **entry < before) {
            if *entry < from || count == limit {
                return Ok(());
            }
            let mut event = [0; 16];
            event.copy_from_slice(&entry[SearchTerm::BYTES..]);
            events.insert(EventId::from_uuid(Uuid::from_bytes(event)));
            count += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
