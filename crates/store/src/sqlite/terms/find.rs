//! Which events have a term, over what is fresh and all segments.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, params};
use surehook_core::{attribute::Term, ids::EventId};
use uuid::Uuid;

use super::{super::row::id, ENTRY_BYTES, entry};

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
pub(in super::super) fn events_with_term(
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

pub(super) const ALL_RANGE: [[u8; 16]; 2] = [[0xff; 16], [0; 16]];
const FRESH: &str = "
    SELECT event_id, terms FROM terms_fresh WHERE event_id < ?1 ORDER BY event_id DESC";

/// The events that may have each of these terms, newest first and of each at most so many. The fresh
/// ones are looked at once for all of them.
pub(in super::super) fn events_with_each_term(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema::plan;

    #[test]
    fn a_search_reads_no_whole_table() {
        for sql in [FRESH_WITH_TERM, FRESH, SEGMENTS, BLOCKS_BEFORE] {
            let steps = plan(sql);
            let bounded = |step: &String| step.starts_with("SEARCH");
            assert!(!steps.is_empty() && steps.iter().all(bounded), "{sql}: {steps:#?}");
        }
    }
}
