//! Files from before decisions were kept, and what is left of them when an event goes.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use surehook_core::{
    decision::EventDecisionKind,
    event::{NewDeliveryBody, NewEvent},
    ids::EventId,
    retention::RetentionSpec,
    store::{AdminStore, NextStep},
    time::HumanDuration,
};
use surehook_store::conformance::World;

use crate::harness::{SqliteHarness, open, open_file};

/// A file as the first version left it: an event in flight with one failed attempt, and a route.
const BEFORE: &str = "
    INSERT INTO sources VALUES (1, randomblob(16), 'shop', '{}', 1, 1, NULL);
    INSERT INTO destinations VALUES (1, randomblob(16), 'crm', '{}', 1, 1, NULL);
    INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
         VALUES (x'018bcfe5680070008000000000000001', randomblob(16), 1, 'k', 1, 0, zeroblob(32));
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, attempts,
                            lease_token, lease_until)
         VALUES (zeroblob(16), x'018bcfe5680070008000000000000001', 1, 'in_flight', 'ingest', 1, 1, 7, 8);
    INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status, class)
         VALUES (zeroblob(16), 1, randomblob(16), 1, 1, 503, 'transient');
    INSERT INTO counters VALUES ('status:in_flight', 1);
    PRAGMA user_version = 1;
    PRAGMA application_id = 0x7372686b;";

#[tokio::test]
async fn event_from_the_first_schema_version_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let first = include_str!("../../migrations/sqlite/0001_events_and_deliveries.sql");
    let old = open_file(folder.path());
    old.execute_batch(first).unwrap();
    old.execute_batch(BEFORE).unwrap();
    drop(old);

    let store = open(folder.path());

    let id = EventId::from_uuid(uuid::uuid!("018bcfe5-6800-7000-8000-000000000001"));
    let detail = store.event(id).await.unwrap().unwrap();
    assert_eq!((detail.verified_by, detail.key_from), (None, None));
    assert!(detail.unrouted.is_empty());
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(detail.attempts[0].next, None, "nobody wrote it down then");
    let told: Vec<_> = detail.decisions.iter().map(|decision| decision.kind).collect();
    assert_eq!(told, [EventDecisionKind::Recovered]);
}

#[tokio::test]
async fn pruned_event_leaves_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    let event = world.arrival();
    let delivery = event.deliveries[0].id;
    let body = Some(Bytes::from_static(b"{}"));
    let bodies = vec![NewDeliveryBody { delivery, route: world.id(), body }];
    world.accept(NewEvent { bodies, ..event }).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.replay(delivery, world.id(), world.now).await.unwrap();
    world.finish_due(world.crm, NextStep::Succeeded).await;
    let rows = |connection: &Connection, table: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    let file = open_file(folder.path());
    assert_eq!((rows(&file, "decisions"), rows(&file, "delivery_bodies")), (1, 2));

    world.wait(Duration::from_secs(1000));
    world.prune_all(Duration::ZERO).await;

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
    let mut world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    let brief = Some(HumanDuration::from_secs(60));
    world.keep(world.shop, RetentionSpec { bodies: brief, ..RetentionSpec::default() }).await;
    let event = world.keyed("k");
    let delivery = event.deliveries[0].id;
    let bodies = [None, Some(Bytes::from_static(b"{}"))].map(|body| {
        let route = world.id();
        let event = NewEvent { deliveries: vec![world.to(world.mail)], ..world.arrival() };
        let delivery = event.deliveries[0].id;
        NewEvent { bodies: vec![NewDeliveryBody { delivery, route, body }], ..event }
    });
    world.admit(bodies.to_vec()).await.unwrap();
    world.accept(event.clone()).await;
    world
        .expect_duplicate(NewEvent { payload: bodies[0].payload.clone(), ..world.again(&event) })
        .await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.wait(Duration::from_secs(1000));

    assert_eq!(world.prune_all(Duration::from_secs(86_400)).await.bodies, 3);

    let file = open_file(folder.path());
    let count = |sql: &str| -> i64 { file.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM payloads"), 0);
    assert_eq!(count("SELECT count(*) FROM delivery_bodies"), 0);
    assert_eq!(count("SELECT count(*) FROM duplicates WHERE body IS NOT NULL"), 0);
    assert_eq!(count("SELECT count(*) FROM events"), 3);
    assert_eq!(world.delivery_detail(delivery).await.attempts.len(), 1);
}

#[tokio::test]
async fn delivery_with_damaged_transformed_body_is_dead_and_not_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    let event = world.arrival();
    let delivery = event.deliveries[0].id;
    let body = Some(Bytes::from_static(b"{}"));
    let bodies = vec![NewDeliveryBody { delivery, route: world.id(), body }];
    world.accept(NewEvent { bodies, ..event }).await;
    let file = open_file(folder.path());
    file.execute("UPDATE delivery_bodies SET body = x'5b5d'", []).unwrap();

    assert!(world.claim(world.crm, 9).await.is_empty());

    let dead = world.delivery_detail(delivery).await.delivery;
    let told = world.detail(dead.event).await.decisions;
    assert_eq!((told.len(), told[0].kind), (1, EventDecisionKind::Damaged));
    assert_eq!(dead.reason, Some(surehook_core::delivery::DeadReason::Unrecoverable));
}
