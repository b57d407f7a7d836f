//! Pruned events and bodies leave no rows in the database.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use surehook_core::{
    event::{NewDeliveryBody, NewEvent},
    retention::RetentionSpec,
    store::NextStep,
};
use surehook_types::time::HumanDuration;

use crate::harness::{fixture_in, open_file};

#[tokio::test]
async fn pruned_event_leaves_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_in(folder.path()).await;
    let event = fixture.new_event();
    let delivery = event.deliveries[0].id;
    let body = Some(Bytes::from_static(b"{}"));
    let bodies =
        vec![NewDeliveryBody { delivery, route: fixture.new_id(), body, filter_failed: false }];
    fixture.accept(NewEvent { bodies, ..event }).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.replay(delivery, fixture.new_id(), fixture.now).await.unwrap();
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let rows = |connection: &Connection, table: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    let file = open_file(folder.path());
    assert_eq!((rows(&file, "decisions"), rows(&file, "delivery_bodies")), (1, 2));

    fixture.wait(Duration::from_secs(1000));
    fixture.prune_all(Duration::ZERO).await;

    for table in [
        "events",
        "payloads",
        "deliveries",
        "attempts",
        "decisions",
        "delivery_bodies",
        "prune_later",
    ] {
        assert_eq!(rows(&file, table), 0, "{table}");
    }
}

#[tokio::test]
async fn no_stored_body_outlives_its_retention() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_in(folder.path()).await;
    let brief = Some(HumanDuration::from_secs(60));
    fixture
        .set_retention(fixture.shop, RetentionSpec { bodies: brief, ..RetentionSpec::default() })
        .await;
    let event = fixture.event_with_key("k");
    let delivery = event.deliveries[0].id;
    let bodies = [None, Some(Bytes::from_static(b"{}"))].map(|body| {
        let route = fixture.new_id();
        let event =
            NewEvent { deliveries: vec![fixture.delivery_to(fixture.mail)], ..fixture.new_event() };
        let delivery = event.deliveries[0].id;
        NewEvent {
            bodies: vec![NewDeliveryBody { delivery, route, body, filter_failed: false }],
            ..event
        }
    });
    fixture.admit(bodies.to_vec()).await.unwrap();
    fixture.accept(event.clone()).await;
    fixture
        .expect_duplicate(NewEvent {
            payload: bodies[0].payload.clone(),
            ..fixture.repeat_of(&event)
        })
        .await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.wait(Duration::from_secs(1000));

    assert_eq!(fixture.prune_all(Duration::from_secs(86_400)).await.bodies, 3);

    let file = open_file(folder.path());
    let count = |sql: &str| -> i64 { file.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM payloads"), 0);
    assert_eq!(count("SELECT count(*) FROM delivery_bodies"), 0);
    assert_eq!(count("SELECT count(*) FROM duplicates WHERE body IS NOT NULL"), 0);
    assert_eq!(count("SELECT count(*) FROM events"), 3);
    assert_eq!(fixture.delivery_detail(delivery).await.attempts.len(), 1);
}
