//! A database file that was changed outside the store.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::params;
use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    event::{NewDeliveryBody, NewEvent},
    store::{NextStep, ReplayResult},
};
use surehook_retry::DeadReason;
use surehook_store::conformance::StoreFixture;
use surehook_types::ids::EventId;
use tempfile::TempDir;

use crate::harness::{fixture_in, open_file};

/// A fixture with one event for the CRM, and its folder.
async fn fixture() -> (TempDir, StoreFixture, NewEvent) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture_in(folder.path()).await;
    let event = fixture.event_with_key("k");
    fixture.accept(event.clone()).await;
    (folder, fixture, event)
}

fn execute(folder: &TempDir, sql: &str, event: EventId) {
    let id = event.uuid().into_bytes();
    assert_eq!(open_file(folder.path()).execute(sql, params![id]).unwrap(), 1);
}

#[tokio::test]
async fn step_without_changes_is_no_commit() {
    let (folder, fixture, _) = fixture().await;
    let read_mark = || std::fs::read(folder.path().join("commit-mark")).unwrap();
    let before = read_mark();

    let claims =
        fixture.claim_due(fixture.mail, fixture.now, fixture.new_claim(), 9).await.unwrap();

    assert!(claims.claimed.is_empty());
    assert_eq!(read_mark(), before);
    fixture.accept(fixture.new_event()).await;
    assert_ne!(read_mark(), before);
}

const FLIP_BODY: &str = "UPDATE payloads SET body = x'00'
                          WHERE seq = (SELECT payload FROM events WHERE id = ?1)";
const REMOVE_BODY: &str = "UPDATE events SET payload = NULL WHERE id = ?1";

#[tokio::test]
async fn delivery_with_damaged_body_is_dead_and_not_claimed() {
    for damage in [FLIP_BODY, REMOVE_BODY] {
        let (folder, fixture, event) = fixture().await;
        execute(&folder, damage, event.id);

        let claims =
            fixture.claim_due(fixture.crm, fixture.now, fixture.new_claim(), 9).await.unwrap();

        assert!(claims.claimed.is_empty());
        assert_eq!(claims.damaged, [event.deliveries[0].id]);

        let delivery = fixture.only_delivery(event.id).await;
        assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Dead, 0));
        assert_eq!((delivery.reason, delivery.due_at), (Some(DeadReason::Unrecoverable), None));
        assert_eq!(
            (
                fixture.count_deliveries(DeliveryStatus::Dead).await,
                fixture.count_deliveries(DeliveryStatus::InFlight).await
            ),
            (1, 0)
        );
        // A duplicate must reach the database.
        let key = event.key.unwrap();
        let fingerprint = event.payload.fingerprint;
        assert_eq!(fixture.find_committed(fixture.shop, &key, &fingerprint, fixture.now), None);
    }
}

#[tokio::test]
async fn healthy_delivery_is_claimed_despite_a_damaged_one() {
    let (folder, fixture, event) = fixture().await;
    execute(&folder, FLIP_BODY, event.id);
    let healthy = fixture.accept(fixture.event_with_key("l")).await;

    let claimed = fixture.claim_one(fixture.crm).await;

    assert_eq!(claimed.event, healthy);
}

#[tokio::test]
async fn event_without_body_is_not_replayed_or_revived() {
    let (folder, fixture, event) = fixture().await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    execute(&folder, REMOVE_BODY, event.id);
    let dead = fixture.only_delivery(event.id).await.id;

    let replayed = fixture.replay(dead, fixture.new_id(), fixture.now).await.unwrap();
    let duplicate = fixture.expect_duplicate(fixture.repeat_of(&event)).await;

    assert_eq!(replayed, ReplayResult::BodyRemoved);
    assert!(duplicate.revived.is_empty());
    assert!(fixture.event_detail(event.id).await.head.is_none());
    assert!(fixture.find_body(event.id).await.unwrap().is_none());
    assert_eq!(fixture.delivery_statuses(event.id).await, [DeliveryStatus::Dead]);
}

#[tokio::test]
async fn unreadable_retention_setting_keeps_everything_and_does_not_block_other_sources() {
    let (folder, mut fixture, event) = fixture().await;
    let other = NewEvent { source: fixture.bank, ..fixture.new_event() };
    let other = fixture.accept(other).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let unknown = r#"UPDATE sources SET spec = json_set(spec, '$.retention', json('{"weeks":1}'))
                      WHERE name = 'shop' AND ?1 IS NOT NULL"#;
    execute(&folder, unknown, event.id);
    fixture.wait(Duration::from_secs(60));

    assert_eq!(fixture.prune_all(Duration::ZERO).await.events, 1);

    assert!(fixture.find_event(other).await.unwrap().is_none());
    assert!(fixture.find_body(event.id).await.unwrap().is_some());
}

#[tokio::test]
async fn delivery_with_damaged_transformed_body_is_dead_and_not_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture_in(folder.path()).await;
    let event = fixture.new_event();
    let delivery = event.deliveries[0].id;
    let body = Some(Bytes::from_static(b"{}"));
    let bodies =
        vec![NewDeliveryBody { delivery, route: fixture.new_id(), body, filter_failed: false }];
    fixture.accept(NewEvent { bodies, ..event }).await;
    let file = open_file(folder.path());
    file.execute("UPDATE delivery_bodies SET body = x'5b5d'", []).unwrap();

    assert!(fixture.claim(fixture.crm, 9).await.is_empty());

    let dead = fixture.delivery_detail(delivery).await.delivery;
    let decisions = fixture.event_detail(dead.event).await.decisions;
    assert_eq!((decisions.len(), decisions[0].kind), (1, EventDecisionKind::Damaged));
    assert_eq!(dead.reason, Some(DeadReason::Unrecoverable));
}
