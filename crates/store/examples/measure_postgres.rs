//! Measures the store on PostgreSQL without a gateway in front of it.
//!
//! ```text
//! cargo run --release -p surehook-store --example measure_postgres -- postgres://user@host/database [options]
//!   --rows N       stored events before the second part of the measurement (default 0: only an empty store)
//!   --seconds N    length of each measurement (default 5)
//!   --hold N       seconds for which a transaction is held open under load in a third part (default 0)
//!   --tasks N      requests at the same time (default 64)
//! ```
//!
//! It writes into a project of its own, `measured`, which it drops first and leaves behind.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use surehook_core::{
    delivery::ClaimProof,
    event::{NewDelivery, NewEvent, Payload},
    store::{
        AdmitResult, ClaimedDelivery, DeliveryFilter, EventFilter, NextStep, PageRequest, Store,
    },
};
use surehook_store::{
    PostgresOptions, PostgresStore,
    conformance::{StoreFixture, StoreHarness},
    sqlite::SecretKey,
};
use surehook_types::time::Timestamp;
use surehook_webhooks::key::fingerprint;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

const PROJECT: &str = "measured";
const BODY_BYTES: usize = 1024;
/// Deliveries that a lane claims at once.
const CLAIM_LIMIT: usize = 128;
const BULK_ROWS: &str = include_str!("../tests/it/postgres/bulk_rows.sql");
/// Stored at once; more would fill the memory of the server.
const BULK_STEP: u64 = 250_000;

struct Arguments {
    url: String,
    rows: u64,
    seconds: u64,
    hold: u64,
    tasks: u64,
}

fn parse_arguments() -> Arguments {
    let mut arguments = Arguments { url: String::new(), rows: 0, seconds: 5, hold: 0, tasks: 64 };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut number = || given.next().unwrap().parse().unwrap();
        match argument.as_str() {
            "--rows" => arguments.rows = number(),
            "--seconds" => arguments.seconds = number(),
            "--hold" => arguments.hold = number(),
            "--tasks" => arguments.tasks = number(),
            _ => arguments.url = argument,
        }
    }
    assert!(arguments.url.starts_with("postgres"), "give the URL of the database");
    arguments
}

struct Server {
    options: PostgresOptions,
}

#[async_trait]
impl StoreHarness for Server {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&self.options, now).await.unwrap())
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = surehook_{PROJECT}")).await.unwrap();
    client
}

#[expect(clippy::disallowed_methods, reason = "what is received now is due now")]
fn now() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(elapsed.as_millis()).unwrap())
}

struct Measurement {
    fixture: StoreFixture,
    serial: AtomicU64,
    accepted: Mutex<Vec<NewEvent>>,
}

impl Measurement {
    /// An event of 1 KiB that is received now, with a key of its own.
    fn new_event(&self, claim: Option<ClaimProof>) -> NewEvent {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let mut body = vec![b'x'; BODY_BYTES];
        body[..8].copy_from_slice(&serial.to_be_bytes());
        // Half for each of the two lanes.
        let destination =
            if serial.is_multiple_of(2) { self.fixture.crm } else { self.fixture.mail };
        let delivery = NewDelivery { claim, ..self.fixture.delivery_to(destination) };
        let event = self.fixture.event_with_key(&format!("measured-{serial}"));
        let payload =
            Payload { fingerprint: fingerprint(&body), body: Bytes::from(body), ..event.payload };
        NewEvent { payload, received_at: now(), deliveries: vec![delivery], ..event }
    }

    async fn accept(&self, event: NewEvent) {
        let admitted = self.fixture.admit_one(event).await;
        assert!(matches!(admitted, AdmitResult::Accepted { .. }), "{admitted:?}");
    }

    async fn accept_claimed(&self) -> ClaimedDelivery {
        let event = self.new_event(Some(self.fixture.new_claim()));
        let claimed = StoreFixture::claimed_at_creation(&event);
        self.accept(event).await;
        claimed
    }

    async fn settle(&self, claimed: &ClaimedDelivery) {
        self.fixture.finish(claimed, NextStep::Succeeded).await;
    }
}

#[derive(Clone, Copy)]
enum Work {
    Accept,
    AcceptAndSettle,
    Duplicate,
}

/// How many of `work` are done in a second.
async fn measure(of: &Arc<Measurement>, work: Work, tasks: u64, seconds: u64) -> u64 {
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds);
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (of, done) = (Arc::clone(of), Arc::clone(&done));
        running.spawn(async move {
            let mut number = usize::try_from(task).unwrap();
            while Instant::now() < end {
                match work {
                    Work::Accept => of.accept(of.new_event(Some(of.fixture.new_claim()))).await,
                    Work::AcceptAndSettle => {
                        let claimed = of.accept_claimed().await;
                        of.settle(&claimed).await;
                    }
                    Work::Duplicate => {
                        let first = {
                            let accepted = of.accepted.lock().unwrap();
                            accepted[number % accepted.len()].clone()
                        };
                        number += usize::try_from(tasks).unwrap();
                        let repeated = of.fixture.admit_one(of.fixture.repeat_of(&first)).await;
                        assert!(matches!(repeated, AdmitResult::Duplicate(_)), "{repeated:?}");
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    running.join_all().await;
    per_second(done.load(Ordering::Relaxed), started)
}

fn per_second(done: u64, started: Instant) -> u64 {
    done * 1000 / u64::try_from(started.elapsed().as_millis()).unwrap().max(1)
}

/// How many waiting deliveries are claimed and settled in a second.
async fn measure_claims(of: &Arc<Measurement>, tasks: u64, seconds: u64) -> u64 {
    let waiting = seconds * 8_000;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let of = Arc::clone(of);
        running.spawn(async move {
            for _ in 0..waiting / tasks {
                of.accept(of.new_event(None)).await;
            }
        });
    }
    running.join_all().await;
    let started = Instant::now();
    let mut lanes = JoinSet::new();
    for destination in [of.fixture.crm, of.fixture.mail] {
        let of = Arc::clone(of);
        lanes.spawn(async move {
            let mut claimed_in_all = 0;
            loop {
                let (at, proof) = (now(), of.fixture.new_claim());
                let claims =
                    of.fixture.claim_due(destination, at, proof, CLAIM_LIMIT).await.unwrap();
                if claims.claimed.is_empty() {
                    return claimed_in_all;
                }
                claimed_in_all += u64::try_from(claims.claimed.len()).unwrap();
                let mut settling = JoinSet::new();
                for claimed in claims.claimed {
                    let of = Arc::clone(&of);
                    settling.spawn(async move { of.settle(&claimed).await });
                }
                settling.join_all().await;
            }
        });
    }
    let claimed: u64 = lanes.join_all().await.into_iter().sum();
    per_second(claimed, started)
}

/// The time that the lists of a page take, in milliseconds.
async fn measure_lists(of: &Measurement) -> f64 {
    let started = Instant::now();
    let page = || PageRequest { after: None, limit: 50 };
    of.fixture.list_events(EventFilter::default(), page()).await.unwrap();
    of.fixture
        .list_deliveries(DeliveryFilter::default(), PageRequest { after: None, limit: 50 })
        .await
        .unwrap();
    of.fixture.count_waiting(now(), 10_000).await.unwrap();
    of.fixture.store().counts().await.unwrap();
    started.elapsed().as_secs_f64() * 1000.0
}

async fn measure_all(of: &Arc<Measurement>, label: &str, arguments: &Arguments) {
    let Arguments { seconds, tasks, .. } = *arguments;
    let accept = measure(of, Work::Accept, tasks, seconds).await;
    let both = measure(of, Work::AcceptAndSettle, tasks, seconds).await;
    let claims = measure_claims(of, tasks, seconds).await;
    let known: Vec<NewEvent> = (0..2000).map(|_| of.new_event(None)).collect();
    for event in &known {
        of.accepted.lock().unwrap().push(event.clone());
    }
    let mut storing = JoinSet::new();
    for event in known {
        let of = Arc::clone(of);
        storing.spawn(async move { of.accept(event).await });
    }
    storing.join_all().await;
    let duplicates = measure(of, Work::Duplicate, tasks, seconds).await;
    of.accepted.lock().unwrap().clear();
    // What was only accepted stays in flight, what duplicates were made of is claimed.
    let lists = measure_lists(of).await;
    println!(
        "| {label:<28} | {accept:>8} | {both:>15} | {claims:>14} | {duplicates:>10} | {lists:>9.1} |"
    );
}

/// Accepts, settles and claims, while an unrelated transaction is open.
async fn measure_held(of: &Arc<Measurement>, arguments: &Arguments) {
    let other = connect(&arguments.url).await;
    // It has a snapshot and a transaction number, as a long report that also writes.
    let hold =
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*), txid_current() FROM sources";
    other.batch_execute(hold).await.unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(arguments.hold) {
        let label = format!("transaction open for {} s", started.elapsed().as_secs());
        measure_all(of, &label, arguments).await;
    }
    other.batch_execute("ROLLBACK").await.unwrap();
}

async fn print_hot_share(client: &Client) {
    let sql = "SELECT sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint FROM pg_stat_user_tables
                WHERE schemaname = current_schema() AND relname = 'deliveries'";
    let row = client.query_one(sql, &[]).await.unwrap();
    let (updates, hot): (i64, i64) = (row.get(0), row.get(1));
    println!("\nHOT updates of deliveries: {hot} of {updates} ({} %)", hot * 100 / updates.max(1));
}

#[tokio::main]
async fn main() {
    let arguments = parse_arguments();
    let client = connect(&arguments.url).await;
    client
        .batch_execute(&format!("DROP SCHEMA IF EXISTS surehook_{PROJECT} CASCADE"))
        .await
        .unwrap();
    let mut options =
        PostgresOptions::new(arguments.url.clone(), SecretKey::parse(&"0a".repeat(32)).unwrap());
    options.project = PROJECT.to_owned();
    let fixture = StoreFixture::new(Server { options }).await;
    let of =
        Arc::new(Measurement { fixture, serial: AtomicU64::new(0), accepted: Mutex::default() });
    println!(
        "| per second, 1 KiB            |   accept | accept + settle | claim + settle | duplicates |  lists ms |"
    );
    println!(
        "| ---------------------------- | -------- | --------------- | -------------- | ---------- | --------- |"
    );
    measure_all(&of, "empty", &arguments).await;
    if arguments.rows > 0 {
        let first = now() - Duration::from_secs(30 * 86_400);
        let mut stored = 0;
        while stored < arguments.rows {
            let rows = BULK_STEP.min(arguments.rows - stored);
            let sql = BULK_ROWS
                .replace("$FIRST", &stored.to_string())
                .replace("$ROWS", &rows.to_string())
                .replace("$TIME", &first.as_millis().to_string());
            client.batch_execute(&sql).await.unwrap();
            stored += rows;
        }
        measure_all(&of, &format!("{} events stored", arguments.rows), &arguments).await;
    }
    if arguments.hold > 0 {
        measure_held(&of, &arguments).await;
    }
    print_hot_share(&client).await;
}
