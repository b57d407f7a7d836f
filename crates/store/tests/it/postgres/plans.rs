//! What statements read and leave behind, by the server's own statistics.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use surehook_core::{
    dead_letters::DeadLetterGroupFilter,
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    refused::RefusedFilter,
    requests::RequestFilter,
    rollup::{BucketWidth, RollupQuery, RollupSubject},
    store::{
        AdmitResult, DeliveryFilter, EventDeliveryFilter, EventFilter, HistoryFilter, NextStep,
        PageRequest, SettleResult,
    },
};
use surehook_retry::DeadReason;
use surehook_store::conformance::StoreFixture;
use surehook_types::time::Timestamp;
use surehook_webhooks::attribute::EventKind;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::harness::PostgresHarness;

/// Statistics of a table.
#[derive(Clone, Copy, Debug, Default)]
struct TableStatistics {
    /// Rows read by scans of the whole table.
    rows_scanned: i64,
    /// Rows read through indexes.
    rows_by_index: i64,
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
        SELECT t.relname::text, t.seq_tup_read, t.n_tup_upd, t.n_tup_hot_upd,
               (SELECT coalesce(sum(i.idx_tup_read), 0)::bigint FROM pg_stat_user_indexes i
                 WHERE i.relid = t.relid)
          FROM pg_stat_user_tables t WHERE t.schemaname = current_schema()";
    let rows = client.query(sql, &[]).await.unwrap();
    let statistics = rows.iter().map(|row| {
        let statistics = TableStatistics {
            rows_scanned: row.get(1),
            rows_by_index: row.get(4),
            updates: row.get(2),
            hot_updates: row.get(3),
        };
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

/// Makes every step of the path of an event, reads every list, and does what is done periodically.
async fn use_everything(fixture: &StoreFixture, round: &str) {
    follow_events(fixture, round).await;
    read_lists(fixture).await;
    while fixture.roll_up().await.unwrap() {}
    let retention = Duration::from_secs(400 * 86_400);
    fixture.prune(retention, fixture.now).await.unwrap();
}

async fn follow_events(fixture: &StoreFixture, round: &str) {
    let next_steps = [
        NextStep::Succeeded,
        NextStep::RetryAt(fixture.now + Duration::from_secs(60)),
        NextStep::Dead(DeadReason::MaxRetries),
    ];
    for (number, next) in next_steps.into_iter().enumerate() {
        let first = claimed_event(fixture, &format!("{round}-{number}"));
        let claimed = StoreFixture::claimed_at_creation(&first);
        fixture.accept(first.clone()).await;
        assert_eq!(
            fixture.settle(fixture.settlement(&claimed, next)).await.unwrap(),
            SettleResult::Recorded
        );
        let repeated = fixture.admit_one(fixture.repeat_of(&first)).await;
        assert!(matches!(repeated, AdmitResult::Duplicate(_)), "{repeated:?}");
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    }
    claim_waiting(fixture, round).await;
}

async fn claim_waiting(fixture: &StoreFixture, round: &str) {
    for number in 0..3 {
        fixture.accept(fixture.event_with_key(&format!("{round}-due-{number}"))).await;
        fixture.accept(fixture.ordered_event(&format!("{round}-customer"))).await;
    }
    for _ in 0..3 {
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.find_next_due(fixture.crm).await.unwrap();
    }
    fixture.accept(fixture.event_with_key(&format!("{round}-in-flight"))).await;
    assert_eq!(fixture.claim(fixture.crm, 10).await.len(), 1);
    fixture.claim_next(fixture.crm, fixture.now, fixture.new_claim()).await.unwrap();
    fixture.find_oldest_due(fixture.now).await.unwrap();
    fixture.count_waiting(fixture.now, 10_000).await.unwrap();
}

fn first<I>() -> PageRequest<I> {
    PageRequest { after: None, limit: 50 }
}

async fn read_lists(fixture: &StoreFixture) {
    read_event_lists(fixture).await;
    read_delivery_lists(fixture).await;
    read_other_lists(fixture).await;
}

/// The start of the time that lists are limited to.
fn list_start(fixture: &StoreFixture) -> Timestamp {
    fixture.now - Duration::from_secs(3600)
}

async fn read_event_lists(fixture: &StoreFixture) {
    let mut filters = vec![
        EventFilter::default(),
        EventFilter { source: Some(fixture.shop), ..EventFilter::default() },
        EventFilter { key: Some("key-7".to_owned()), ..EventFilter::default() },
        EventFilter { key_conflict: Some(true), ..EventFilter::default() },
        EventFilter { kind: EventKind::new("order.paid"), ..EventFilter::default() },
        EventFilter { since: Some(list_start(fixture)), ..EventFilter::default() },
    ];
    let of_status = |status| EventDeliveryFilter { status: Some(status), ..Default::default() };
    filters.extend(DeliveryStatus::ALL.into_iter().map(|status| EventFilter {
        delivery_filter: of_status(status),
        ..EventFilter::default()
    }));
    for filter in filters {
        let listed = fixture.list_events(filter, first()).await.unwrap();
        if let Some(row) = listed.rows.first() {
            assert!(fixture.find_event(row.id).await.unwrap().is_some());
            assert!(fixture.find_body(row.id).await.unwrap().is_some());
        }
        let ids = listed.rows.iter().map(|row| row.id).collect();
        fixture.list_deliveries_of(ids).await.unwrap();
    }
}

async fn read_delivery_lists(fixture: &StoreFixture) {
    let destination = Some(fixture.crm);
    let groups =
        fixture.list_dead_letter_groups(DeadLetterGroupFilter::default(), first()).await.unwrap();
    let group = groups.rows.first().map(|group| group.id);
    let dead = Some(DeliveryStatus::Dead);
    let mut filters = vec![
        DeliveryFilter::default(),
        DeliveryFilter { destination, ..DeliveryFilter::default() },
        DeliveryFilter { source: Some(fixture.shop), ..DeliveryFilter::default() },
        DeliveryFilter { since: Some(list_start(fixture)), ..DeliveryFilter::default() },
        DeliveryFilter { group, ..DeliveryFilter::default() },
        DeliveryFilter { status: dead, destination, ..DeliveryFilter::default() },
    ];
    filters.extend(
        DeliveryStatus::ALL
            .into_iter()
            .map(|status| DeliveryFilter { status: Some(status), ..DeliveryFilter::default() }),
    );
    for filter in filters {
        let listed = fixture.list_deliveries(filter, first()).await.unwrap();
        if let Some(row) = listed.rows.first() {
            assert!(fixture.find_delivery(row.id).await.unwrap().is_some());
        }
    }
}

async fn read_other_lists(fixture: &StoreFixture) {
    let (since, now) = (list_start(fixture), fixture.now);
    fixture.list_requests(RequestFilter::default(), first()).await.unwrap();
    fixture.list_refused(RefusedFilter::default(), first()).await.unwrap();
    fixture.list_quarantined(None, first()).await.unwrap();
    fixture.list_replays(first()).await.unwrap();
    let history = HistoryFilter { destination: fixture.crm, since, until: now };
    fixture.list_history(history, first()).await.unwrap();
    let subject = RollupSubject::Destination(Some(fixture.crm));
    let until = now + Duration::from_secs(60);
    let query = RollupQuery { subject, width: BucketWidth::ALL[0], since, until };
    fixture.list_rollups(query).await.unwrap();
    fixture.list_destination_rollups(BucketWidth::ALL[0], since).await.unwrap();
    fixture.count_held().await.unwrap();
    fixture.store().counts().await.unwrap();
    fixture.load_nodes().await.unwrap();
    fixture.load_lanes().await.unwrap();
}

/// The tables that grow with the events, whether they have ended or not.
const LARGE: [&str; 6] = ["attempts", "deliveries", "events", "keys", "payloads", "terms"];

const BULK_ROWS: &str = include_str!("bulk_rows.sql");

async fn store_bulk_rows(client: &Client, first: i64, rows: i64, time: Timestamp) {
    let sql = BULK_ROWS
        .replace("$FIRST", &first.to_string())
        .replace("$ROWS", &rows.to_string())
        .replace("$TIME", &time.as_millis().to_string());
    client.batch_execute(&sql).await.unwrap();
}

/// What statements read of each large table.
#[derive(Debug)]
struct TableReads {
    /// By statements that were prepared while the tables were empty.
    before_analyze: BTreeMap<String, TableStatistics>,
    after_analyze: BTreeMap<String, TableStatistics>,
}

/// Uses a store with this number of stored events.
async fn measure_reads(rows: i64) -> TableReads {
    let name = format!("reading_{rows}");
    let harness = named_harness(&name);
    let observer = harness.client_named("observer").await;
    let mut fixture = StoreFixture::new(harness).await;
    use_everything(&fixture, "empty").await;
    let first = fixture.now - Duration::from_secs(20 * 86_400);
    store_bulk_rows(&observer, 0, rows, first).await;
    let before = read_own_statistics(&observer).await;

    use_everything(&fixture, "filled").await;
    disconnect(&observer, &name).await;
    let used = read_statistics(&observer).await;
    let before_analyze = difference(&before, &used);

    observer.batch_execute(&format!("ANALYZE {}", LARGE.join(", "))).await.unwrap();
    // Before the statistics are read: the harness compares whole tables.
    fixture.reopen().await;
    let before = read_own_statistics(&observer).await;
    use_everything(&fixture, "analyzed").await;
    disconnect(&observer, &name).await;
    let after_analyze = difference(&before, &read_statistics(&observer).await);
    TableReads { before_analyze, after_analyze }
}

/// The statistics after the own work of a connection.
async fn read_own_statistics(client: &Client) -> BTreeMap<String, TableStatistics> {
    client.query_one("SELECT pg_stat_force_next_flush()", &[]).await.unwrap();
    read_statistics(client).await
}

/// Ends the connections of a store, which send their statistics with the end.
async fn disconnect(client: &Client, name: &str) {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    client.query(end, &[&name]).await.unwrap();
    wait_until_disconnected(client, name).await;
}

fn difference(
    before: &BTreeMap<String, TableStatistics>,
    after: &BTreeMap<String, TableStatistics>,
) -> BTreeMap<String, TableStatistics> {
    let subtract = |table: &str| TableStatistics {
        rows_scanned: after[table].rows_scanned - before[table].rows_scanned,
        rows_by_index: after[table].rows_by_index - before[table].rows_by_index,
        updates: after[table].updates - before[table].updates,
        hot_updates: after[table].hot_updates - before[table].hot_updates,
    };
    LARGE.iter().map(|table| ((*table).to_owned(), subtract(table))).collect()
}

#[tokio::test]
async fn heavy_no_statement_scans_a_large_table() {
    let (few, many) = (measure_reads(50_000).await, measure_reads(150_000).await);
    let mut growing = Vec::new();
    for (reads_of_few, reads_of_many) in
        [(&few.before_analyze, &many.before_analyze), (&few.after_analyze, &many.after_analyze)]
    {
        for table in LARGE {
            let (few, many) = (reads_of_few[table], reads_of_many[table]);
            let limit = few.rows_by_index + few.rows_by_index / 4 + 1000;
            // One or two of the lists read all deliveries through an index.
            let grows = table != "deliveries" && many.rows_by_index > limit;
            if many.rows_scanned > 1000 || grows {
                growing.push(format!("{table}: {few:?}, {many:?}"));
            }
        }
    }
    assert!(growing.is_empty(), "{growing:#?}");
}
