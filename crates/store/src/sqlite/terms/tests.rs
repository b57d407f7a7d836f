use std::ops::Range;

use surehook_core::{attribute::AttributeName, time::Timestamp};

use super::*;
use crate::sqlite::schema;

fn event(number: u32) -> EventId {
    EventId::new(Timestamp::from_millis(1), u128::from(number) << 48)
}

/// What an event is about that has a message of this number.
fn message(number: u32) -> Attributes {
    Attributes::default().with(AttributeName::MessageId, &number.to_string())
}

fn rows(connection: &Connection, table: &str) -> usize {
    let count = format!("SELECT count(*) FROM {table}");
    connection.query_row(&count, [], |row| row.get(0)).unwrap()
}

/// A transaction with these new events, each about its number, that is committed, or is not.
fn transact(
    connection: &Connection,
    fresh: &mut FreshTerms,
    numbers: Range<u32>,
    is_committed: bool,
) {
    let events = numbers.map(|number| (number, About::of(None, &message(number))));
    transact_about(connection, fresh, events, is_committed);
}

fn transact_about(
    connection: &Connection,
    fresh: &mut FreshTerms,
    events: impl IntoIterator<Item = (u32, About)>,
    is_committed: bool,
) {
    let mut sql = Prepared::new(connection);
    connection.execute_batch("BEGIN").unwrap();
    for (number, about) in events {
        fresh.insert(&mut sql, event(number), &about).unwrap();
    }
    fresh.fold(&mut sql).unwrap();
    connection.execute_batch(if is_committed { "COMMIT" } else { "ROLLBACK" }).unwrap();
    if is_committed { fresh.committed() } else { fresh.rolled_back() }
}

/// The events that are found by the number of their message.
fn found(connection: &Connection, number: u32) -> Vec<EventId> {
    let term = message(number).terms().next().unwrap();
    events_with_term(connection, term, find::ALL_RANGE, 10).unwrap()
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
        let about = About::of(Some(&kind), &Attributes::default());
        transact_about(&connection, &mut fresh, [(number, about)], true);
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
    // Each number of seven many times, over segments and what is fresh.
    for at in 0..500 {
        let about = About::of(None, &message(at % 7));
        transact_about(&connection, &mut fresh, [(at, about)], true);
    }
    assert!(rows(&connection, "term_segments") > 2 && rows(&connection, "terms_fresh") > 7);

    let terms: Vec<Term> = (0..9).map(|of| message(of).terms().next().unwrap()).collect();
    for limit in [0, 1, 10, 30, 1_000] {
        let together = events_with_each_term(&connection, &terms, limit).unwrap();
        for term in &terms {
            let alone = events_with_term(&connection, *term, find::ALL_RANGE, limit).unwrap();
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

    let remove =
        |fresh: &mut FreshTerms| fresh.remove(&connection, event(1), (None, &message(1))).unwrap();
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
    fresh.remove(&connection, event(1), (None, &message(1))).unwrap();
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
