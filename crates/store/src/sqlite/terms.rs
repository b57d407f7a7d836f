//! What events are found by, on its way into its index.
//!
//! A term falls on a random page of the index, so it goes the way of the keys (see `fresh`): the
//! terms of a new event are one appended row of `terms_fresh`. When enough have gathered they are
//! *folded* into `terms` in its own order, a few with every commit that brings new ones. Then their
//! rows are removed, event by event.
//!
//! Terms are in the file from the commit that stores their event, in one table or in both. Whoever
//! searches looks into both; memory holds only what is to be folded.

use std::collections::HashSet;

use rusqlite::{Connection, params};
use surehook_core::{
    attribute::{Attributes, EventKind, Term},
    ids::EventId,
};

use super::{
    prepared::Prepared,
    row::{blob, id},
};

/// Terms folded beside each new one. More than one, or it would never end.
const FOLDED_PER_NEW: usize = 2;
/// Folded rows that are removed with one commit, at least, and beside each new term.
const CLEARED_PER_COMMIT: usize = 256;
const CLEARED_PER_NEW: usize = 4;

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
        let terms = terms_of(kind, attributes).flat_map(Term::to_bytes).collect();
        let attributes = (!attributes.is_empty()).then(|| attributes.to_json());
        Self { attributes, terms }
    }
}

/// A part of the fresh terms, on its way into the index.
#[derive(Debug)]
struct Fold {
    /// In the order of the index.
    entries: Vec<(Term, EventId)>,
    /// How many of them are in the index.
    done: usize,
    /// Whose they are.
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

/// The terms that are not in the index yet. Only the writer has them.
pub(super) struct FreshTerms {
    fold_at: usize,
    gathered: Vec<(Term, EventId)>,
    fold: Option<Fold>,
    /// Events whose terms were removed before they were folded, and must not come back.
    erased: HashSet<EventId, ahash::RandomState>,
    doing: Doing,
}

const LOAD: &str = "SELECT event_id, terms FROM terms_fresh";
const INSERT: &str = "INSERT INTO terms_fresh (event_id, terms) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM terms_fresh WHERE event_id = ?1";
// One that is there already was folded by a run that ended before it could say so.
const FOLD: &str = "INSERT OR IGNORE INTO terms (term, event_id) VALUES (?1, ?2)";
const DELETE_FOLDED: &str = "DELETE FROM terms WHERE term = ?1 AND event_id = ?2";

impl FreshTerms {
    /// Reads what an earlier run had not folded yet.
    pub(super) fn load(connection: &Connection, fold_at: usize) -> rusqlite::Result<Self> {
        let mut gathered = Vec::new();
        let mut statement = connection.prepare(LOAD)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (event, terms): (EventId, Vec<u8>) = (id(row, 0)?, row.get(1)?);
            gathered.extend(entries(event, &terms));
        }
        Ok(Self {
            fold_at,
            gathered,
            fold: None,
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
        sql.get(INSERT)?.execute(params![blob(event), about.terms])?;
        Ok(())
    }

    /// Removes the terms of an event wherever they are; says how many there were.
    pub(super) fn remove(
        &mut self,
        connection: &Connection,
        event: EventId,
        (kind, attributes): (Option<&EventKind>, &Attributes),
    ) -> rusqlite::Result<usize> {
        let mut removed = 0;
        for term in terms_of(kind, attributes) {
            let key = params![term.to_bytes(), blob(event)];
            connection.prepare_cached(DELETE_FOLDED)?.execute(key)?;
            removed += 1;
        }
        let is_fresh =
            removed > 0 && connection.prepare_cached(DELETE)?.execute(params![blob(event)])? > 0;
        if is_fresh && self.erased.insert(event) {
            self.doing.erased.push(event);
        }
        Ok(removed)
    }

    /// Folds a few terms, in step with those that the transaction added.
    pub(super) fn fold(&mut self, sql: &mut Prepared<'_>) -> rusqlite::Result<()> {
        let Some(fold) = &self.fold else { return Ok(()) };
        let left = &fold.entries[fold.done..];
        self.doing.folded = left.len().min(self.doing.added * FOLDED_PER_NEW);
        for (term, event) in &left[..self.doing.folded] {
            if self.erased.is_empty() || !self.erased.contains(event) {
                sql.get(FOLD)?.execute(params![term.to_bytes(), blob(*event)])?;
            }
        }
        if left.is_empty() {
            let left = &fold.events[fold.cleared..];
            let limit = CLEARED_PER_COMMIT.max(CLEARED_PER_NEW * self.doing.added);
            self.doing.cleared = left.len().min(limit);
            for event in &left[..self.doing.cleared] {
                sql.get(DELETE)?.execute(params![blob(*event)])?;
            }
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
            self.fold = Some(begin(std::mem::take(&mut self.gathered)));
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

fn begin(mut entries: Vec<(Term, EventId)>) -> Fold {
    let mut events: Vec<EventId> = entries.iter().map(|(_, event)| *event).collect();
    events.sort_unstable();
    events.dedup();
    entries.sort_unstable();
    Fold { entries, done: 0, events, cleared: 0 }
}

/// The terms of a row of `terms_fresh`, each with its event.
fn entries(event: EventId, terms: &[u8]) -> impl Iterator<Item = (Term, EventId)> {
    let (terms, _) = terms.as_chunks::<{ Term::BYTES }>();
    terms.iter().map(move |term| (Term::from_bytes(*term), event))
}

fn terms_of(kind: Option<&EventKind>, attributes: &Attributes) -> impl Iterator<Item = Term> {
    kind.map(EventKind::term).into_iter().chain(attributes.terms())
}

/// The events with term `?1` between the ids `?2` (not) and `?3`, newest first. Both parts come in
/// that order, so that only as many are looked at as are wanted; of the fresh ones, which are
/// few, all that are newer than the last one found.
pub(super) const EVENTS_WITH_TERM: &str = "
    SELECT event_id FROM terms WHERE term = ?1 AND event_id < ?2 AND event_id >= ?3
     UNION
    SELECT event_id FROM terms_fresh
     WHERE event_id < ?2 AND event_id >= ?3 AND instr(terms, ?1) > 0
     ORDER BY event_id DESC LIMIT ?4";

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

    #[test]
    fn what_is_undone_in_the_middle_of_a_fold_is_neither_lost_nor_kept() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 8).unwrap();

        transact(&connection, &mut fresh, 0..8, true);
        // Each of these would fold two, or clear the rest.
        for number in 8..20 {
            transact(&connection, &mut fresh, number..number + 1, false);
            transact(&connection, &mut fresh, number..number + 1, true);
        }

        let all = "SELECT count(DISTINCT event_id) FROM
                   (SELECT event_id FROM terms UNION ALL SELECT event_id FROM terms_fresh)";
        let all: u32 = connection.query_row(all, [], |row| row.get(0)).unwrap();
        assert_eq!(all, 20);
        assert!(rows(&connection, "terms") >= 8, "a fold has ended");
        assert!(rows(&connection, "terms_fresh") <= 12, "and its rows are gone");
        let again = FreshTerms::load(&connection, 8).unwrap();
        assert_eq!(again.gathered.len(), rows(&connection, "terms_fresh"));
    }

    #[test]
    fn a_removal_that_is_undone_does_not_hide_its_event() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
        let mut fresh = FreshTerms::load(&connection, 4).unwrap();
        transact(&connection, &mut fresh, 0..3, true);

        let attributes = Attributes::default().with(AttributeName::MessageId, "1");
        connection.execute_batch("BEGIN").unwrap();
        let removed = fresh.remove(&connection, event(1), (None, &attributes)).unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
        fresh.rolled_back();
        (3..12).for_each(|number| transact(&connection, &mut fresh, number..number + 1, true));

        assert_eq!(removed, 1);
        let found = "SELECT count(*) FROM terms WHERE event_id = ?1";
        let found: u32 =
            connection.query_row(found, params![blob(event(1))], |row| row.get(0)).unwrap();
        assert_eq!(found, 1);
    }

    #[test]
    fn a_search_takes_from_both_tables_in_their_order() {
        let steps = plan(EVENTS_WITH_TERM);
        assert!(steps.iter().any(|step| step.starts_with("MERGE")), "{steps:#?}");
        let searches = steps.iter().filter(|step| step.starts_with("SEARCH")).count();
        assert_eq!(searches, 2, "{steps:#?}");
        let sorts = |step: &String| step.contains("TEMP B-TREE") || step.starts_with("SCAN");
        assert!(!steps.iter().any(sorts), "{steps:#?}");
    }
}
