//! Fills a store like that of a gateway in use: mostly delivered events, and some of every other state.

use std::net::SocketAddr;
use std::slice;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::pages::PagePlaceholders;
use crate::bench_run::{BenchRun, run_load};
use crate::control;
use crate::gateway::{Gateway, GatewayConfig};
use crate::load::{KeyPlan, LoadPlan, StopCondition};
use crate::request::{BodyShape, KeySeries};
use crate::response::EventVerdict;
use crate::sink::SinkMode;
use crate::sink_process::{SinkProcess, wait_for_arrivals};
use crate::whatsapp::{KEY_PREFIX, PHONE_DIGITS, PHONE_PREFIX, preset_settings};

pub(super) const WHATSAPP_SOURCE: &str = "whatsapp";
pub(super) const ORDERS_SOURCE: &str = "orders";
/// A source without a route.
const ARCHIVE_SOURCE: &str = "archive";
/// A source whose destination refuses every event.
const INVOICES_SOURCE: &str = "invoices";
const ERP_DESTINATION: &str = "erp";
const MESSAGE_DESTINATION: &str = "support";
/// Number of people who write messages.
pub(super) const PEOPLE: u64 = 1_000;
/// The person whose conversation is opened.
const PERSON: u64 = 7;
const REFUSED_REQUESTS: u64 = 200;
/// Sent messages; some of them to one person.
const MESSAGES: u64 = 200;
const MESSAGES_TO_ONE: u64 = 20;
const JOB_RATE: &str = "1000/s";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long dead letters and replay jobs may take.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Progress steps of [`fill_store`].
pub(super) const STEPS: u64 = 8;

/// A gateway with a filled store.
#[derive(Debug)]
pub(super) struct FilledGateway {
    pub(super) gateway: Gateway,
    pub(super) placeholders: PagePlaceholders,
    /// Kept running for the deliveries of the gateway.
    _sinks: [SinkProcess; 2],
}

pub(super) async fn fill_store(run: &BenchRun) -> Result<FilledGateway> {
    let accepting_sink = run.start_sink(SinkMode::Answer).await?;
    let refusing_sink = run.start_sink(SinkMode::Refuse).await?;
    let config = gateway_config(accepting_sink.addr(), refusing_sink.addr());
    let gateway = run.start_gateway(&config).await?;
    let filler = StoreFiller { run, gateway: &gateway };

    let events = run.options.dashboard_events;
    let (invoices, duplicated) = (events / 50, events / 100);
    let (orders, archived) = (events * 3 / 10, events * 17 / 100);
    let chats = events - invoices - duplicated - orders - archived;
    filler.send("invoices", filler.plan(INVOICES_SOURCE, invoices)).await?;
    filler.send("archived events", filler.plan(ARCHIVE_SOURCE, archived)).await?;
    filler.send("orders", filler.plan(ORDERS_SOURCE, orders)).await?;
    filler
        .send("messages", LoadPlan { shape: WHATSAPP_BODY, ..filler.plan(WHATSAPP_SOURCE, chats) })
        .await?;
    let keys = KeyPlan::Fixed { series: KeySeries::random(), count: duplicated };
    let first = LoadPlan { shape: WHATSAPP_BODY, keys, ..filler.plan(WHATSAPP_SOURCE, duplicated) };
    let repeated = LoadPlan { expected: EventVerdict::Duplicate, ..first.clone() };
    filler.send("messages sent twice", first).await?;
    filler.send("duplicates", repeated).await?;

    run.progress.start_step("refused requests, sent messages");
    send_unsigned_requests(&gateway).await?;
    let message = send_messages(&gateway).await?;
    run.progress.finish_step();

    run.progress.start_step("waiting for deliveries");
    wait_for_arrivals(slice::from_ref(&accepting_sink), orders + chats + duplicated).await?;
    wait_for_dead_letters(&gateway, invoices).await?;
    let placeholders = find_placeholders(&gateway, message).await?;
    run.progress.finish_step();
    Ok(FilledGateway { gateway, placeholders, _sinks: [accepting_sink, refusing_sink] })
}

const WHATSAPP_BODY: BodyShape = BodyShape::WhatsApp { key_prefix: KEY_PREFIX, people: PEOPLE };

fn gateway_config(accepting: SocketAddr, refusing: SocketAddr) -> GatewayConfig {
    GatewayConfig::default()
        .source(ARCHIVE_SOURCE)
        .connected(ORDERS_SOURCE, "crm", accepting)
        .source_with(WHATSAPP_SOURCE, &preset_settings())
        .route(WHATSAPP_SOURCE, "crm")
        .source(INVOICES_SOURCE)
        .destination_with(
            ERP_DESTINATION,
            &format!(
                "url = \"http://{refusing}/\"\nconcurrency = 64\n\
                 rules = [{{ status = \"4xx\", then = \"dead\" }}]"
            ),
        )
        .route(INVOICES_SOURCE, ERP_DESTINATION)
        .destination_with(
            MESSAGE_DESTINATION,
            &format!(
                "kind = \"whatsapp-cloud\"\nurl = \"http://{accepting}/v25.0\"\nrate = \"1000/s\"\n\
                 account = {{ sender = \"106540352242922\", token = \"bench-token-0123456789\" }}"
            ),
        )
}

struct StoreFiller<'a> {
    run: &'a BenchRun,
    gateway: &'a Gateway,
}

impl StoreFiller<'_> {
    fn plan(&self, source: &str, events: u64) -> LoadPlan {
        let until = StopCondition::Answers(events);
        LoadPlan { until, ..self.run.default_plan(self.gateway.child.addr(), source) }
    }

    async fn send(&self, name: &str, plan: LoadPlan) -> Result<()> {
        self.run.progress.start_step(format!("filling the store: {name}"));
        let sent = run_load(&self.gateway.child, plan).await;
        sent.with_context(|| format!("filling the store with {name}"))?;
        self.run.progress.finish_step();
        Ok(())
    }
}

/// Sends requests without a signature, which the gateway must refuse.
async fn send_unsigned_requests(gateway: &Gateway) -> Result<()> {
    for number in 0..REFUSED_REQUESTS {
        let path = format!("/in/{WHATSAPP_SOURCE}");
        let body = format!("{{\"forged\":{number}}}");
        let headers = [("content-type", "application/json")];
        let addr = gateway.child.addr();
        let response = control::call_with(addr, "POST", &path, &headers, body).await?;
        let status = response.status();
        ensure!(status.as_u16() >= 400, "a request without a signature was answered {status}");
    }
    Ok(())
}

/// Returns the id of the last message.
async fn send_messages(gateway: &Gateway) -> Result<String> {
    let mut last = String::new();
    for number in 0..MESSAGES {
        let to = phone(if number < MESSAGES_TO_ONE { PERSON } else { number });
        let body = json!({ "destination": MESSAGE_DESTINATION, "to": to, "text": format!("answer {number}") });
        let created = gateway.api("POST", "/api/v1/messages", Some(&body)).await?;
        last = text_field(&created, "id")?;
    }
    Ok(last)
}

fn phone(person: u64) -> String {
    format!("{PHONE_PREFIX}{person:0PHONE_DIGITS$}")
}

/// Waits until `expected` deliveries are dead.
async fn wait_for_dead_letters(gateway: &Gateway, expected: u64) -> Result<()> {
    let is_done = |stats: &Value| stats["dlq_size"].as_u64().is_some_and(|dead| dead >= expected);
    wait_for(gateway, "/api/v1/stats", is_done).await.context("refused deliveries are not dead")
}

/// Gets `path` until its response fulfils a condition.
async fn wait_for(gateway: &Gateway, path: &str, is_done: impl Fn(&Value) -> bool) -> Result<()> {
    let started_at = Instant::now();
    loop {
        let response = gateway.api("GET", path, None).await?;
        if is_done(&response) {
            return Ok(());
        }
        ensure!(started_at.elapsed() < WAIT_TIMEOUT, "GET {path} still returns {response}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Replays all groups of dead letters but the first, which the pages show. Returns that group and the
/// last job, which may still run.
async fn replay_dead_letter_groups(gateway: &Gateway) -> Result<(String, String)> {
    let groups = gateway.api("GET", "/api/v1/dead-letters/groups", None).await?;
    let groups = groups["data"].as_array().context("there are no dead letter groups")?;
    ensure!(groups.len() > 1, "all dead letters are in one group");
    let mut job = String::new();
    for group in &groups[1..] {
        // Overlapping jobs are refused.
        if !job.is_empty() {
            let path = format!("/api/v1/replays/{job}");
            wait_for(gateway, &path, |job| job["state"] == "done").await?;
        }
        job = replay_group(gateway, &group["id"]).await?;
    }
    Ok((text_field(&groups[0], "id")?, job))
}

/// Finds one object of every kind for the pages.
async fn find_placeholders(gateway: &Gateway, message: String) -> Result<PagePlaceholders> {
    let newest = async |path: &str| {
        let list = gateway.api("GET", path, None).await?;
        let row = list["data"].get(0).cloned();
        row.with_context(|| format!("GET {path} returned an empty list"))
    };
    let (group, job) = replay_dead_letter_groups(gateway).await?;
    let event = newest(&format!("/api/v1/events?source={WHATSAPP_SOURCE}&limit=1")).await?;
    let duplicate = newest("/api/v1/requests?outcome=duplicate&limit=1").await?;
    let dead = newest("/api/v1/dead-letters?limit=1").await?;
    let key = text_field(&event, "key")?;
    Ok(PagePlaceholders {
        phone: phone(PERSON),
        key_suffix: key.get(key.len().saturating_sub(6)..).unwrap_or(&key).to_owned(),
        event: text_field(&event, "id")?,
        duplicated_event: text_field(&duplicate, "event")?,
        dead_event: text_field(&dead, "event")?,
        group,
        key: quote_for_filter_url(&key),
        job,
        message,
    })
}

/// Creates a job that replays a group and returns its id.
async fn replay_group(gateway: &Gateway, group: &Value) -> Result<String> {
    let spec = json!({ "verb": "retry_failed", "filter": { "group": group }, "rate": JOB_RATE });
    text_field(&gateway.api("POST", "/api/v1/replays", Some(&spec)).await?, "id")
}

/// A value with colons, quoted for the filter bar and encoded for a URL.
fn quote_for_filter_url(value: &str) -> String {
    format!("%22{value}%22")
}

fn text_field(object: &Value, name: &str) -> Result<String> {
    let text = object[name].as_str().with_context(|| format!("`{name}` is missing in {object}"))?;
    Ok(text.to_owned())
}
