//! A scripted destination goes through every state; API, `/metrics` and all pages agree.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use super::sign_in;
use crate::support::{
    WAIT_LIMIT,
    browser::Browser,
    eventually,
    gateway::{Gateway, Route},
    sink::{Reply, Sink},
    tools::Tool,
};

/// How long after one of them shows a state the others may still show the last one.
const AGREEMENT: Duration = Duration::from_secs(10);

/// A destination that answers with a given status.
struct ScriptedDestination {
    sink: Sink,
    status: Arc<AtomicU16>,
}

impl ScriptedDestination {
    async fn start() -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let answer = Arc::clone(&status);
        let sink = Sink::with_script(move |_, _| Reply::status(answer.load(Ordering::SeqCst)));
        Self { sink: sink.await, status }
    }

    /// Sends events that are answered with this status, and waits until all were.
    async fn answer(&self, gateway: &Gateway, status: u16, events: usize) {
        self.status.store(status, Ordering::SeqCst);
        let before = self.sink.count();
        for number in 0..events {
            gateway.post_accepted("in", format!(r#"{{"id":"{before}-{number}"}}"#)).await;
        }
        self.sink.wait_for_requests(before + events).await;
    }
}

/// The health in the API, on both of its endpoints.
async fn api_health(gateway: &Gateway) -> Option<Value> {
    let shown = gateway.get("/destinations/out").await.expect(200).json()["health"].take();
    let stats = gateway.stats().await;
    let destinations = stats["destinations"].as_array().unwrap();
    let listed = destinations.iter().find(|one| one["name"] == "out").unwrap();
    (listed["health"]["status"] == shown["status"]).then_some(shown)
}

/// The statuses that `/metrics` marks as current.
async fn metric_statuses(gateway: &Gateway) -> Vec<String> {
    let metrics = gateway.metrics().await;
    let current = metrics.lines().filter_map(|line| {
        let labels = line.strip_prefix("surehook_destination_health{")?.strip_suffix("} 1")?;
        let labels = labels.strip_prefix("destination=\"out\",status=\"")?;
        Some(labels.strip_suffix('"')?.to_owned())
    });
    current.collect()
}

/// Waits until the API shows a status, and then checks that everything else does.
async fn expect_health(gateway: &Gateway, browser: &Browser, status: &str, word: &str) -> Value {
    let health = eventually(WAIT_LIMIT, || async {
        api_health(gateway).await.filter(|health| health["status"] == status)
    })
    .await;
    eventually(AGREEMENT, || async { (metric_statuses(gateway).await == [status]).then_some(()) })
        .await;
    // The overview is open all the time and updates by itself.
    let pill = "document.querySelector('#destinations tr[data-row=out] [data-health]')";
    let shown = format!("{pill}?.dataset.health === '{status}'");
    let agrees = tokio::time::timeout(AGREEMENT, browser.wait_until(&shown));
    agrees.await.unwrap_or_else(|_| panic!("the overview does not show {status}"));
    let text = browser.run(&format!("return {pill}.innerText"), &[]).await;
    assert!(text.as_str().unwrap().starts_with(word), "{text}");
    health
}

/// Checks the list and the page of the destination in another browser.
async fn expect_on_pages(gateway: &Gateway, browser: &Browser, status: &str, word: &str) {
    for (path, selector) in
        [("/destinations", "tr[data-row=out] [data-health]"), ("/destinations/out", "#health")]
    {
        browser.open(&gateway.url(path)).await;
        let found = browser.find(selector).await;
        assert_eq!(found.attribute("data-health").await.as_deref(), Some(status), "{path}");
        assert!(found.text().await.starts_with(word), "{path}");
    }
}

#[tokio::test]
async fn destination_has_the_same_health_everywhere_in_every_state() {
    if !Tool::Browser.is_available() {
        return;
    }
    let scripted = ScriptedDestination::start().await;
    let settings = format!(
        "url = \"{}\"\nauth = {{ bearer = \"env:OUT_TOKEN\" }}\nretry = {{ schedule = [\"1h\"] }}\n\
         circuit = {{ failures = 3, open_for = \"1h\", max_open = \"1h\" }}",
        scripted.sink.url()
    );
    let settings = Route { destination: &settings, ..Route::default() }.settings();
    let builder = Gateway::builder().settings(&settings).env("OUT_TOKEN", "a-secret-token");
    let mut gateway = builder.start().await;
    let (overview, pages) = (Browser::start().await, Browser::start().await);
    for browser in [&overview, &pages] {
        sign_in(browser, &gateway).await;
    }
    // The overview shows a guide until there is an event.
    scripted.answer(&gateway, 200, 1).await;
    overview.open(&gateway.url("/")).await;

    let healthy = expect_health(&gateway, &overview, "healthy", "Healthy").await;
    assert_eq!((&healthy["attempts"], &healthy["failed"]), (&json!(1), &json!(0)), "{healthy}");
    expect_on_pages(&gateway, &pages, "healthy", "Healthy").await;

    // One of 20 attempts failed, and its delivery is dead.
    scripted.answer(&gateway, 200, 18).await;
    scripted.answer(&gateway, 400, 1).await;
    let degraded = expect_health(&gateway, &overview, "degraded", "Degraded").await;
    assert_eq!(degraded["window"], "5m");
    let since = &degraded["since"];
    assert!(since.is_string(), "{degraded}");
    let error = &degraded["last_error"];
    assert_eq!((&error["status"], &error["class"]), (&json!(400), &json!("permanent")));
    expect_on_pages(&gateway, &pages, "degraded", "Degraded").await;

    scripted.answer(&gateway, 400, 20).await;
    let failing = expect_health(&gateway, &overview, "failing", "Failing").await;
    assert!(failing["failure_ratio"].as_f64().unwrap() >= 0.5, "{failing}");
    expect_on_pages(&gateway, &pages, "failing", "Failing").await;
    let last_error = pages.text("#last-error").await;
    assert!(last_error.contains("HTTP 400") && last_error.contains("Permanent failure"));

    scripted.answer(&gateway, 503, 3).await;
    gateway.post_accepted("in", r#"{"id":"held"}"#).await;
    let open = expect_health(&gateway, &overview, "circuit_open", "Circuit open").await;
    assert!(open["since"].is_string(), "{open}");
    let held = eventually(WAIT_LIMIT, || async {
        api_health(&gateway).await.filter(|health| health["backlog"]["waiting"] == 4)
    })
    .await;
    assert!(held["backlog"]["drain_seconds"].is_null(), "nothing is sent: {held}");
    expect_on_pages(&gateway, &pages, "circuit_open", "Circuit open").await;

    gateway.post("/destinations/out/pause", &json!({ "reason": "repair" })).await.expect(200);
    let paused = expect_health(&gateway, &overview, "paused", "Paused").await;
    let state = gateway.destination_state("out").await;
    assert_eq!(paused["since"], state["pause"]["at"]);
    expect_on_pages(&gateway, &pages, "paused", "Paused").await;

    // Resuming ends the pause, and then the open time of the circuit.
    scripted.status.store(200, Ordering::SeqCst);
    for _ in 0..2 {
        gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    }
    // 21 of 45 attempts succeeded.
    scripted.answer(&gateway, 200, 1).await;
    let before = expect_health(&gateway, &overview, "failing", "Failing").await;

    for browser in [&overview, &pages] {
        browser.assert_no_console_errors().await;
    }

    // It is the same after a crash: the store has counted it.
    gateway.restart().await;
    let after = eventually(WAIT_LIMIT, || async {
        api_health(&gateway).await.filter(|health| health["status"] == "failing")
    })
    .await;
    assert_eq!(after["last_error"], before["last_error"]);
    assert!(after["attempts"].as_u64() >= before["attempts"].as_u64(), "{after} {before}");
    assert!(after["since"].is_string(), "{after}");

    gateway.remove_env("OUT_TOKEN");
    gateway.restart().await;
    sign_in(&overview, &gateway).await;
    overview.open(&gateway.url("/")).await;
    expect_health(&gateway, &overview, "misconfigured", "Invalid settings").await;
    sign_in(&pages, &gateway).await;
    expect_on_pages(&gateway, &pages, "misconfigured", "Invalid settings").await;
}

#[tokio::test]
async fn destination_without_attempts_has_no_traffic() {
    if !Tool::Browser.is_available() {
        return;
    }
    let scripted = ScriptedDestination::start().await;
    let route = format!("url = \"{}\"", scripted.sink.url());
    let settings = Route { destination: &route, ..Route::default() }.settings();
    let settings = format!("[health]\nwindow = \"30s\"\n{settings}");
    let gateway = Gateway::start_with(&settings).await;
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    assert_eq!(api_health(&gateway).await.unwrap()["status"], "no_traffic");
    expect_on_pages(&gateway, &browser, "no_traffic", "No traffic").await;
    scripted.answer(&gateway, 200, 1).await;
    browser.open(&gateway.url("/")).await;
    expect_health(&gateway, &browser, "healthy", "Healthy").await;
    // The window moves on, although nothing happens.
    let silent = expect_health(&gateway, &browser, "no_traffic", "No traffic").await;
    assert!(silent["since"].is_string(), "{silent}");
    browser.assert_no_console_errors().await;
}
