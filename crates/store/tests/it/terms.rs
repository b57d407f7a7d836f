//! What events are found by, on its way into its index: each term once, and gone with its event.

use std::{path::Path, time::Duration};

use surehook_core::{
    attribute::{AttributeFilter, AttributeName, Attributes, EventKind},
    event::NewEvent,
    store::{EventFilter, NextStep, PageRequest},
};
use surehook_store::conformance::World;

use crate::harness::{SqliteHarness, open_file};

const DAY: Duration = Duration::from_secs(86_400);

fn rows(folder: &Path, table: &str) -> usize {
    let count = format!("SELECT count(*) FROM {table}");
    open_file(folder).query_row(&count, [], |row| row.get(0)).unwrap()
}

/// Three terms.
fn message(world: &World, number: usize) -> NewEvent {
    let attributes = Attributes::default()
        .with(AttributeName::MessageId, &format!("wamid.{number}"))
        .with(AttributeName::Phone, "5511987654321");
    NewEvent { kind: EventKind::new("message"), attributes, ..world.arrival() }
}

#[tokio::test]
async fn pruned_events_leave_no_search_terms() {
    for many in [3, 8, 20, 40] {
        let folder = tempfile::tempdir().unwrap();
        let harness = SqliteHarness::folding_slowly_in(folder.path());
        let mut world = World::new(harness).await;
        for number in 0..many {
            world.accept(message(&world, number)).await;
        }
        world.finish_due(world.crm, NextStep::Succeeded).await;
        world.wait(DAY * 2);

        while world.prune(DAY, world.now).await.unwrap().more {
            // What was to be folded must not come back.
            world.accept(message(&world, many + 1)).await;
        }
        world.finish_due(world.crm, NextStep::Succeeded).await;
        world.wait(DAY * 2);
        world.prune_all(DAY).await;
        // More commits, in which what is left to be folded is folded.
        for number in 0..20 {
            world.accept(message(&world, number)).await;
        }

        // Whatever became idle since goes in the next rounds.
        for _ in 0..20 {
            world.prune_all(DAY).await;
        }
        world.reopen().await;
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
    let world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    world.accept(world.arrival()).await;
    assert_eq!(rows(folder.path(), "terms_fresh") + rows(folder.path(), "term_blocks"), 0);
    world.accept(message(&world, 1)).await;
    assert_eq!(rows(folder.path(), "terms_fresh"), 1, "one row, whatever it is about");
}

#[tokio::test]
async fn events_with_colliding_terms_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    let event = world.accept(message(&world, 1)).await;
    let wanted = AttributeFilter::new(AttributeName::MessageId, "wamid.2").unwrap();
    let statement = "UPDATE terms_fresh SET terms = ?1 WHERE event_id = ?2";
    let alike = (wanted.term().to_bytes(), event.uuid().into_bytes());
    assert_eq!(open_file(folder.path()).execute(statement, alike).unwrap(), 1);
    world.reopen().await;

    let filter = EventFilter { attributes: vec![wanted], ..EventFilter::default() };
    let page = world.events(filter, PageRequest { after: None, limit: 10 }).await.unwrap();

    assert!(page.rows.is_empty() && page.next.is_none());
}
