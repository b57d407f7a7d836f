use std::ops::Range;

use surehook_types::time::Timestamp;
use surehook_webhooks::attribute::AttributeName;

use super::*;
use crate::sqlite::schema::{self, query_plan};

fn open() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let connection = schema::open_writer(&folder.path().join("surehook.db")).unwrap();
    (folder, connection)
}

fn event(number: u32) -> EventId {
    EventId::new(Timestamp::from_millis(1), u128::from(number) << 48)
}

/// The attributes of an event whose message id is this number.
fn message(number: u32) -> Attributes {
    Attributes::default().with(AttributeName::MessageId, &number.to_string())
}

fn rows(connection: &Connection, table: &str) -> usize {
    let count = format!("SELECT count(*) FROM {table}");
    connection.query_row(&count, [], |row| row.get(0)).unwrap()
}

/// Runs a transaction that inserts these events, each with its number as message id.
fn transact(
    connection: &Connection,
    recent: &mut RecentTerms,
    numbers: Range<u32>,
    is_committed: bool,
) {
    let events = numbers.map(|number| (number, EventTerms::new(None, &message(number))));
    transact_events(connection, recent, events, is_committed);
}

fn transact_events(
    connection: &Connection,
    recent: &mut RecentTerms,
    events: impl IntoIterator<Item = (u32, EventTerms)>,
    is_committed: bool,
) {
    let mut sql = PreparedStatements::new(connection);
    connection.execute_batch("BEGIN").unwrap();
    for (number, terms) in events {
        recent.insert(&mut sql, event(number), &terms).unwrap();
    }
    recent.merge_some(&mut sql).unwrap();
    connection.execute_batch(if is_committed { "COMMIT" } else { "ROLLBACK" }).unwrap();
    if is_committed { recent.on_commit() } else { recent.on_rollback() }
}

/// Finds events by their message id.
fn find(connection: &Connection, number: u32) -> Vec<EventId> {
    let term = message(number).terms().next().unwrap();
    find_events_with_term(connection, term, IdRange::ALL, 10).unwrap()
}

#[test]
fn rollback_during_a_merge_loses_nothing_and_keeps_nothing() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 400).unwrap();

    transact(&connection, &mut recent, 0..400, true);
    // Each of these would write a block, or delete the merged rows.
    for number in 400..420 {
        transact(&connection, &mut recent, number..number + 1, false);
        transact(&connection, &mut recent, number..number + 1, true);
    }

    for number in 0..420 {
        assert_eq!(find(&connection, number), [event(number)], "case: {number}");
    }
    assert_eq!(rows(&connection, "term_blocks"), 3, "a merge is complete");
    assert_eq!(rows(&connection, "terms_fresh"), 20, "and its rows are deleted");
    let reloaded = RecentTerms::load(&connection, 400).unwrap();
    assert_eq!((reloaded.unmerged.len(), reloaded.next_segment), (20, 2));
}

#[test]
fn event_with_an_earlier_id_keeps_its_row_until_it_is_merged() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 4).unwrap();
    for number in [10, 20, 30, 40] {
        transact(&connection, &mut recent, number..number + 1, true);
    }
    // The first two write and complete the segment, the third deletes the merged rows.
    for number in [25, 50, 60] {
        transact(&connection, &mut recent, number..number + 1, true);
    }

    assert_eq!(rows(&connection, "terms_fresh"), 3);
    for number in [10, 20, 25, 30, 40, 50, 60] {
        assert_eq!(find(&connection, number), [event(number)], "case: {number}");
    }
    let reloaded = RecentTerms::load(&connection, 4).unwrap();
    assert_eq!((reloaded.unmerged.len(), reloaded.earliest_event), (3, Some(event(25))));
}

#[test]
fn interrupted_merge_starts_again() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 400).unwrap();
    transact(&connection, &mut recent, 0..400, true);
    transact(&connection, &mut recent, 400..401, true);
    assert_eq!(rows(&connection, "term_blocks"), 1);

    let mut recent = RecentTerms::load(&connection, 400).unwrap();
    assert_eq!((rows(&connection, "term_blocks"), recent.unmerged.len()), (0, 401));
    (401..420).for_each(|number| transact(&connection, &mut recent, number..number + 1, true));
    assert!((0..420).all(|number| find(&connection, number) == [event(number)]));
}

#[test]
fn term_of_many_events_is_found_across_blocks_and_segments() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 500).unwrap();
    let kind = EventKind::new("message").unwrap();
    for number in 0..2_000 {
        let terms = EventTerms::new(Some(&kind), &Attributes::default());
        transact_events(&connection, &mut recent, [(number, terms)], true);
    }

    assert!(rows(&connection, "term_segments") > 2);
    let newest_first: Vec<EventId> = (0..2_000).rev().map(event).collect();
    let mut top = [0xff; 16];
    for page in newest_first.chunks(300) {
        let found =
            find_events_with_term(&connection, kind.term(), IdRange { top, bottom: [0; 16] }, 300)
                .unwrap();
        assert_eq!(found, page);
        top = blob(*page.last().unwrap());
    }
    let range = IdRange { top: blob(event(1_500)), bottom: blob(event(1_490)) };
    let found = find_events_with_term(&connection, kind.term(), range, 300).unwrap();
    assert_eq!(found, (1_490..1_500).rev().map(event).collect::<Vec<_>>());
}

#[test]
fn searching_many_terms_at_once_finds_the_same_as_one_by_one() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 100).unwrap();
    // Seven numbers, each many times, in segments and in recent rows.
    for number in 0..500 {
        let terms = EventTerms::new(None, &message(number % 7));
        transact_events(&connection, &mut recent, [(number, terms)], true);
    }
    assert!(rows(&connection, "term_segments") > 2 && rows(&connection, "terms_fresh") > 7);

    let terms: Vec<SearchTerm> =
        (0..9).map(|number| message(number).terms().next().unwrap()).collect();
    for limit in [0, 1, 10, 30, 1_000] {
        let together = find_events_with_each_term(&connection, &terms, limit).unwrap();
        for term in &terms {
            let alone = find_events_with_term(&connection, *term, IdRange::ALL, limit).unwrap();
            assert_eq!(together[term], alone, "case: {limit}");
        }
    }
}

#[test]
fn rolled_back_removal_does_not_hide_the_event() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 4).unwrap();
    transact(&connection, &mut recent, 0..3, true);

    let remove =
        |recent: &mut RecentTerms| recent.remove(&connection, event(1), None, &message(1)).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    let removed = remove(&mut recent);
    connection.execute_batch("ROLLBACK").unwrap();
    recent.on_rollback();
    (3..9).for_each(|number| transact(&connection, &mut recent, number..number + 1, true));

    assert_eq!((removed, find(&connection, 1)), (1, vec![event(1)]));
}

#[test]
fn terms_removed_before_the_merge_are_not_merged() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 4).unwrap();
    transact(&connection, &mut recent, 0..3, true);
    recent.remove(&connection, event(1), None, &message(1)).unwrap();
    recent.on_commit();
    (3..9).for_each(|number| transact(&connection, &mut recent, number..number + 1, true));

    assert_eq!((find(&connection, 1), find(&connection, 2)), (vec![], vec![event(2)]));
}

#[test]
fn segment_without_events_is_removed() {
    let (_folder, connection) = open();
    let mut recent = RecentTerms::load(&connection, 4).unwrap();
    (0..9).for_each(|number| transact(&connection, &mut recent, number..number + 1, true));
    let segments = rows(&connection, "term_segments");
    assert!(segments > 0, "none of these events is in its table");

    remove_unused_segments(&connection).unwrap();
    assert_eq!(rows(&connection, "term_segments"), segments.saturating_sub(SEGMENTS_REMOVED_MAX));
}

#[test]
fn no_search_scans_a_whole_table() {
    for sql in [RECENT_WITH_TERM, ALL_RECENT, SEGMENTS, BLOCKS_BEFORE] {
        let steps = query_plan(sql);
        let bounded = |step: &String| step.starts_with("SEARCH");
        assert!(!steps.is_empty() && steps.iter().all(bounded), "{sql}: {steps:#?}");
    }
}
