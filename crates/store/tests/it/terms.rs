//! Search terms on their way into the index: each stored once, and removed with its event.

use std::{path::Path, time::Duration};

use surehook_core::{
    event::NewEvent,
    store::{EventFilter, NextStep, PageRequest},
};
use surehook_store::conformance::StoreFixture;
use surehook_webhooks::attribute::{AttributeFilter, AttributeName, Attributes, EventKind};

use crate::harness::{SqliteHarness, fixture_in, open_file};

const DAY: Duration = Duration::from_secs(86_400);

fn rows(folder: &Path, table: &str) -> usize {
    let count = format!("SELECT count(*) FROM {table}");
    open_file(folder).query_row(&count, [], |row| row.get(0)).unwrap()
}

/// An event with three search terms.
fn message(fixture: &StoreFixture, number: usize) -> NewEvent {
    let attributes = Attributes::default()
        .with(AttributeName::MessageId, &format!("wamid.{number}"))
        .with(AttributeName::Phone, "5511987654321");
    NewEvent { kind: EventKind::new("message"), attributes, ..fixture.new_event() }
}

#[tokio::test]
async fn pruned_events_leave_no_search_terms() {
    for many in [3, 8, 20, 40] {
        let folder = tempfile::tempdir().unwrap();
        let harness = SqliteHarness::in_folder(folder.path()).merging_at(8);
        let mut fixture = StoreFixture::new(harness).await;
        for number in 0..many {
            fixture.accept(message(&fixture, number)).await;
        }
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.wait(DAY * 2);

        while fixture.prune(DAY, fixture.now).await.unwrap().more {
            // Terms that were about to be merged must not come back.
            fixture.accept(message(&fixture, many + 1)).await;
        }
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.wait(DAY * 2);
        fixture.prune_all(DAY).await;
        // More commits, in which the remaining terms are merged.
        for number in 0..20 {
            fixture.accept(message(&fixture, number)).await;
        }

        // Segments that became empty are removed in the next rounds.
        for _ in 0..20 {
            fixture.prune_all(DAY).await;
        }
        fixture.reopen().await;
        let idle = "SELECT count(*) FROM term_segments AS s WHERE is_whole AND NOT EXISTS
                    (SELECT 1 FROM events WHERE id BETWEEN s.min_event AND s.max_event)";
        let left: usize = open_file(folder.path()).query_row(idle, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "case: {many}");
        let left = "SELECT count(*) FROM terms_fresh WHERE event_id NOT IN (SELECT id FROM events)";
        let left: usize = open_file(folder.path()).query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "case: {many}");
    }
}

#[tokio::test]
async fn event_without_attributes_stores_no_search_terms() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture_in(folder.path()).await;
    fixture.accept(fixture.new_event()).await;
    assert_eq!(rows(folder.path(), "terms_fresh") + rows(folder.path(), "term_blocks"), 0);
    fixture.accept(message(&fixture, 1)).await;
    assert_eq!(rows(folder.path(), "terms_fresh"), 1, "one row per event");
}

#[tokio::test]
async fn events_with_colliding_terms_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_in(folder.path()).await;
    let event = fixture.accept(message(&fixture, 1)).await;
    let wanted = AttributeFilter::new(AttributeName::MessageId, "wamid.2").unwrap();
    let statement = "UPDATE terms_fresh SET terms = ?1 WHERE event_id = ?2";
    let colliding = (wanted.term().to_bytes(), event.uuid().into_bytes());
    assert_eq!(open_file(folder.path()).execute(statement, colliding).unwrap(), 1);
    fixture.reopen().await;

    let filter = EventFilter { attributes: vec![wanted], ..EventFilter::default() };
    let page = fixture.list_events(filter, PageRequest { after: None, limit: 10 }).await.unwrap();

    assert!(page.rows.is_empty() && page.next.is_none());
}
