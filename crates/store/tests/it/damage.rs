//! A file that was changed behind the store's back.

use std::time::Duration;

use rusqlite::params;
use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    ids::EventId,
    store::{NextStep, ReplayResult},
};
use surehook_store::conformance::World;
use tempfile::TempDir;

use crate::harness::{SqliteHarness, open_file};

/// A world with one event for the CRM, and the folder that holds it.
async fn world() -> (TempDir, World, NewEvent) {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    let event = world.keyed("k");
    world.accept(event.clone()).await;
    (folder, world, event)
}

fn execute(folder: &TempDir, sql: &str, event: EventId) {
    let id = event.uuid().into_bytes();
    assert_eq!(open_file(folder.path()).execute(sql, params![id]).unwrap(), 1);
}

const FLIP_BODY: &str = "UPDATE payloads SET body = x'00'
                          WHERE seq = (SELECT payload FROM events WHERE id = ?1)";
const REMOVE_BODY: &str = "UPDATE events SET payload = NULL WHERE id = ?1";

#[tokio::test]
async fn delivery_with_damaged_body_is_dead_and_not_claimed() {
    for damage in [FLIP_BODY, REMOVE_BODY] {
        let (folder, world, event) = world().await;
        execute(&folder, damage, event.id);

        let claims = world.claim_due(world.crm, world.now, world.lease(), 9).await.unwrap();

        assert!(claims.claimed.is_empty());
        assert_eq!(claims.damaged, [event.deliveries[0].id]);

        let kept = world.only_delivery(event.id).await;
        assert_eq!((kept.status, kept.attempts), (DeliveryStatus::Dead, 0));
        assert_eq!((kept.reason, kept.due_at), (Some(DeadReason::Unrecoverable), None));
        assert_eq!(
            (world.count(DeliveryStatus::Dead), world.count(DeliveryStatus::InFlight)),
            (1, 0)
        );
        // Dead is dead: a duplicate has to reach the file.
        let key = event.key.unwrap().key;
        let fingerprint = event.payload.fingerprint;
        assert_eq!(world.find_committed(world.shop, &key, &fingerprint, world.now), None);
    }
}

#[tokio::test]
async fn healthy_delivery_is_claimed_despite_a_damaged_one() {
    let (folder, world, event) = world().await;
    execute(&folder, FLIP_BODY, event.id);
    let healthy = world.accept(world.keyed("l")).await;

    let claimed = world.claim_one(world.crm).await;

    assert_eq!(claimed.event, healthy);
}

#[tokio::test]
async fn event_without_body_is_not_replayed_or_revived() {
    let (folder, world, event) = world().await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    execute(&folder, REMOVE_BODY, event.id);
    let dead = world.only_delivery(event.id).await.id;

    let replayed = world.replay(dead, world.id(), world.now).await.unwrap();
    let duplicate = world.expect_duplicate(world.again(&event)).await;

    assert_eq!(replayed, ReplayResult::BodyRemoved);
    assert!(duplicate.revived.is_empty());
    assert!(world.detail(event.id).await.head.is_none());
    assert!(world.body(event.id).await.unwrap().is_none());
    assert_eq!(world.statuses(event.id).await, [DeliveryStatus::Dead]);
}

#[tokio::test]
async fn unreadable_retention_setting_keeps_everything_and_does_not_block_other_sources() {
    let (folder, mut world, event) = world().await;
    let other = NewEvent { source: world.bank, ..world.arrival() };
    let other = world.accept(other).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;
    let unknown = r#"UPDATE sources SET spec = json_set(spec, '$.retention', json('{"weeks":1}'))
                      WHERE name = 'shop' AND ?1 IS NOT NULL"#;
    execute(&folder, unknown, event.id);
    world.wait(Duration::from_secs(60));

    assert_eq!(world.prune_all(Duration::ZERO).await.events, 1);

    assert!(world.event(other).await.unwrap().is_none());
    assert!(world.body(event.id).await.unwrap().is_some());
}
