//! What statements leave behind, by the server's own statistics.

use std::{collections::BTreeMap, sync::Arc};

use surehook_core::{
    event::{NewDelivery, NewEvent},
    store::NextStep,
};
use surehook_store::conformance::StoreFixture;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::harness::PostgresHarness;

/// Statistics of a table.
#[derive(Clone, Copy, Debug, Default)]
struct TableStatistics {
    updates: i64,
    hot_updates: i64,
}

/// Waits until no process of the store is connected: the server has their statistics then.
async fn wait_until_disconnected(client: &Client, name: &str) {
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    while client.query_one(connected, &[&name]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
}

async fn read_statistics(client: &Client) -> BTreeMap<String, TableStatistics> {
    let sql = "
        SELECT relname::text, n_tup_upd, n_tup_hot_upd
          FROM pg_stat_user_tables WHERE schemaname = current_schema()";
    let rows = client.query(sql, &[]).await.unwrap();
    let statistics = rows.iter().map(|row| {
        let statistics = TableStatistics { updates: row.get(1), hot_updates: row.get(2) };
        (row.get(0), statistics)
    });
    statistics.collect()
}

/// A harness whose connections have this name.
fn named_harness(name: &str) -> PostgresHarness {
    let mut harness = PostgresHarness::new();
    harness.options.url = format!("{}?application_name={name}", harness.options.url);
    harness
}

/// An event whose delivery the lane claims at once.
fn claimed_event(fixture: &StoreFixture, key: &str) -> NewEvent {
    let delivery =
        NewDelivery { claim: Some(fixture.new_claim()), ..fixture.delivery_to(fixture.crm) };
    NewEvent { deliveries: vec![delivery], ..fixture.event_with_key(key) }
}

#[tokio::test]
async fn settling_is_a_hot_update() {
    const EVENTS: i64 = 3000;
    const TASKS: i64 = 50;
    let name = "settling";
    let harness = named_harness(name);
    let client = harness.client_named("observer").await;
    let fixture = Arc::new(StoreFixture::new(harness).await);

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            for number in 0..EVENTS / TASKS {
                let event = claimed_event(&fixture, &format!("{task}-{number}"));
                let claimed = StoreFixture::claimed_at_creation(&event);
                fixture.accept(event).await;
                fixture.finish(&claimed, NextStep::Succeeded).await;
            }
        });
    }
    tasks.join_all().await;
    drop(fixture);
    wait_until_disconnected(&client, name).await;

    let deliveries = read_statistics(&client).await["deliveries"];
    assert!(deliveries.updates >= EVENTS, "{deliveries:?}");
    assert!(deliveries.hot_updates * 10 >= deliveries.updates * 7, "{deliveries:?}");
}
