//! A store as a gateway has after a while: mostly good events, some of every other kind.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::pages::PagePlaceholders;
use crate::answer::EventVerdict;
use crate::control;
use crate::destination::{SinkProcess, arrived};
use crate::gateway::{Gateway, GatewayConfig};
use crate::lab::{BenchRun, load};
use crate::plan::{KeyPlan, LoadPlan, StopCondition};
use crate::request::{BodyShape, KeySeries};
use crate::sink::SinkMode;
use crate::whatsapp::{KEY_PREFIX, PHONE_DIGITS, PHONE_PREFIX, preset_settings};

pub(super) const CHATS: &str = "whatsapp";
pub(super) const ORDERS: &str = "orders";
/// Events that go nowhere.
const ARCHIVE: &str = "archive";
/// Events that nobody takes.
const INVOICES: &str = "invoices";
const ERP: &str = "erp";
const SENDER: &str = "support";
/// Who write messages: each of them has written hundreds.
pub(super) const PEOPLE: u64 = 1_000;
/// The one who is looked at.
const PERSON: u64 = 7;
const REFUSED: u64 = 200;
/// Sent to as many people, and a few of them to one.
const MESSAGES: u64 = 200;
const MESSAGES_TO_ONE: u64 = 20;
const JOB_RATE: &str = "1000/s";
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Nothing died for so long: no more will.
const DEAD_PATIENCE: u32 = 1_200;
/// What [`fill`] tells of its progress.
pub(super) const STEPS: u64 = 8;

/// A gateway with a store that is full.
#[derive(Debug)]
pub(super) struct FilledGateway {
    pub(super) gateway: Gateway,
    pub(super) events: u64,
    pub(super) found: PagePlaceholders,
    /// They serve as long as the gateway does.
    _sinks: [SinkProcess; 2],
}

pub(super) async fn fill(lab: &BenchRun) -> Result<FilledGateway> {
    let good = lab.destination(SinkMode::Answer).await?;
    let bad = lab.destination(SinkMode::Refuse).await?;
    let gateway = lab.gateway(&config(good.addr(), bad.addr())).await?;
    let mut filling = StoreFiller { lab, gateway: &gateway, events: 0 };

    let events = lab.options.dashboard_events;
    let (invoices, twice) = (events / 50, events / 100);
    let (orders, archived) = (events * 3 / 10, events * 17 / 100);
    let chats = events - invoices - twice - orders - archived;
    filling.send("invoices", filling.plan(INVOICES, invoices)).await?;
    filling.send("archived events", filling.plan(ARCHIVE, archived)).await?;
    filling.send("orders", filling.plan(ORDERS, orders)).await?;
    filling.send("messages", LoadPlan { shape: CHAT, ..filling.plan(CHATS, chats) }).await?;
    let keys = KeyPlan::Fixed { series: KeySeries::fresh(), count: twice };
    let first = LoadPlan { shape: CHAT, keys, ..filling.plan(CHATS, twice) };
    let again = LoadPlan { expected: EventVerdict::Duplicate, ..first.clone() };
    filling.send("messages that come twice", first).await?;
    filling.send("duplicates", again).await?;
    // Those were no new events.
    filling.events -= twice;

    lab.progress.step("refused requests, sent messages".to_owned());
    refuse(&gateway).await?;
    let message = send_messages(&gateway).await?;
    lab.progress.done();

    lab.progress.step("waiting for the deliveries".to_owned());
    let sinks = [good];
    arrived(&sinks, orders + chats + twice).await?;
    let [good] = sinks;
    died(&gateway, invoices).await?;
    let found = find(&gateway, message).await?;
    lab.progress.done();
    Ok(FilledGateway { events: filling.events, gateway, found, _sinks: [good, bad] })
}

const CHAT: BodyShape = BodyShape::WhatsApp { key_prefix: KEY_PREFIX, people: PEOPLE };

fn config(good: SocketAddr, bad: SocketAddr) -> GatewayConfig {
    GatewayConfig::default()
        .source(ARCHIVE)
        .joined(ORDERS, "crm", good)
        .source_with(CHATS, &preset_settings())
        .route(CHATS, "crm")
        .source(INVOICES)
        .destination_with(
            ERP,
            &format!(
                "url = \"http://{bad}/\"\nconcurrency = 64\n\
                 rules = [{{ status = \"4xx\", then = \"dead\" }}]"
            ),
        )
        .route(INVOICES, ERP)
        .destination_with(
            SENDER,
            &format!(
                "kind = \"whatsapp-cloud\"\nurl = \"http://{good}/v25.0\"\nrate = \"1000/s\"\n\
                 account = {{ sender = \"106540352242922\", token = \"bench-token-0123456789\" }}"
            ),
        )
}

struct StoreFiller<'a> {
    lab: &'a BenchRun,
    gateway: &'a Gateway,
    events: u64,
}

impl StoreFiller<'_> {
    fn plan(&self, source: &str, events: u64) -> LoadPlan {
        let until = StopCondition::Answers(events);
        LoadPlan { until, ..self.lab.plan(self.gateway.child.addr(), source) }
    }

    async fn send(&mut self, name: &str, plan: LoadPlan) -> Result<()> {
        self.lab.progress.step(format!("filling the store: {name}"));
        let sent = load(&self.gateway.child, plan).await;
        self.events += sent.with_context(|| format!("filling the store with {name}"))?.answered;
        self.lab.progress.done();
        Ok(())
    }
}

/// Requests without a signature.
async fn refuse(gateway: &Gateway) -> Result<()> {
    for number in 0..REFUSED {
        let path = format!("/in/{CHATS}");
        let body = format!("{{\"forged\":{number}}}");
        let headers = "content-type: application/json\r\n";
        let addr = gateway.child.addr();
        let said = control::call_with(addr, "POST", &path, headers, &body).await?;
        ensure!(said.status >= 400, "a request without a signature was answered {}", said.status);
    }
    Ok(())
}

/// Gives back the id of the last one.
async fn send_messages(gateway: &Gateway) -> Result<String> {
    let mut last = String::new();
    for number in 0..MESSAGES {
        let to = phone(if number < MESSAGES_TO_ONE { PERSON } else { number });
        let body = json!({ "destination": SENDER, "to": to, "text": format!("answer {number}") });
        let made = gateway.api("POST", "/api/v1/messages", Some(&body)).await?;
        last = text(&made, "id")?;
    }
    Ok(last)
}

fn phone(person: u64) -> String {
    format!("{PHONE_PREFIX}{person:0PHONE_DIGITS$}")
}

/// Waits until so many deliveries are dead.
async fn died(gateway: &Gateway, expected: u64) -> Result<()> {
    let mut dead = 0;
    for _ in 0..DEAD_PATIENCE {
        let stats = gateway.api("GET", "/api/v1/stats", None).await?;
        dead = stats["dlq_size"].as_u64().unwrap_or(0);
        if dead >= expected {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    anyhow::bail!("of {expected} deliveries that nobody takes {dead} are dead")
}

/// Makes the jobs, and finds something to look at of every kind.
async fn find(gateway: &Gateway, message: String) -> Result<PagePlaceholders> {
    let newest = |path: &'static str| async move {
        let found = gateway.api("GET", path, None).await?;
        let row = found["data"].get(0).cloned();
        row.with_context(|| format!("GET {path} found nothing to look at"))
    };
    let groups = gateway.api("GET", "/api/v1/dead-letters/groups", None).await?;
    let groups = groups["data"].as_array().context("there are no groups of dead letters")?;
    ensure!(groups.len() > 1, "all dead letters are in one group");
    // The first group stays as it is, and the last job may still run.
    let mut job = String::new();
    for group in &groups[1..] {
        if !job.is_empty() {
            ended(gateway, &job).await?;
        }
        job = replay(gateway, &group["id"]).await?;
    }
    let event = newest("/api/v1/events?source=whatsapp&limit=1").await?;
    let duplicate = newest("/api/v1/requests?outcome=duplicate&limit=1").await?;
    let dead = newest("/api/v1/dead-letters?limit=1").await?;
    let key = text(&event, "key")?;
    Ok(PagePlaceholders {
        phone: phone(PERSON),
        part: key.get(key.len().saturating_sub(6)..).unwrap_or(&key).to_owned(),
        event: text(&event, "id")?,
        duplicated: text(&duplicate, "event")?,
        dead: text(&dead, "event")?,
        group: text(&groups[0], "id")?,
        key: quoted(&key),
        job,
        message,
    })
}

/// Makes a job that delivers a group again; gives back its id.
async fn replay(gateway: &Gateway, group: &Value) -> Result<String> {
    let wish = json!({ "verb": "retry_failed", "filter": { "group": group }, "rate": JOB_RATE });
    text(&gateway.api("POST", "/api/v1/replays", Some(&wish)).await?, "id")
}

/// Waits until a job has ended: two that could deliver the same are not had at once.
async fn ended(gateway: &Gateway, job: &str) -> Result<()> {
    let path = format!("/api/v1/replays/{job}");
    while gateway.api("GET", &path, None).await?["state"] != "done" {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// A value that holds colons, as the filter bar and an address take it.
fn quoted(value: &str) -> String {
    format!("%22{value}%22")
}

fn text(object: &Value, name: &str) -> Result<String> {
    let text = object[name].as_str().with_context(|| format!("`{name}` is missing in {object}"))?;
    Ok(text.to_owned())
}
