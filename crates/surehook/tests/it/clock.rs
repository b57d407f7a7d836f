//! A wall clock that is wrong for a while: nothing is removed by it, and nothing waits for it once it
//! is right again.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    fake_clock::FakeClockGateway,
    gateway::{Gateway, TOKEN},
    sink::{Reply, Sink},
};

const NOON: i64 = 20_000 * DAY + 12 * 3600;
const DAY: i64 = 86_400;
const TEN_YEARS: i64 = 3650 * DAY;

/// A gateway with a source `in` and the destination `out`, and a source `brief` whose bodies are kept
/// for a second.
async fn gateway(sink: &Sink, out: &Value) -> FakeClockGateway {
    let gateway = FakeClockGateway::start(NOON).await;
    let mut destination = json!({ "name": "out", "url": sink.url() });
    destination.as_object_mut().unwrap().extend(out.as_object().unwrap().clone());
    let configuration = json!({
        "sources": [
            { "name": "in", "verify": "none" },
            { "name": "brief", "verify": "none", "retention": { "bodies": "1s" } },
        ],
        "destinations": [destination],
        "routes": [{ "from": "in", "to": "out" }],
    });
    gateway.api(Method::PUT, "/configuration", Some(&configuration)).await.expect(200);
    gateway
}

async fn post(gateway: &FakeClockGateway, source: &str, id: &str) -> Value {
    let body = json!({ "id": id }).to_string();
    let response = gateway.send(Method::POST, &format!("/in/{source}"), &[], body).await;
    response.expect(200).json()
}

fn event_id(received: &Value) -> String {
    received["events"][0]["id"].as_str().unwrap().to_owned()
}

async fn body_status(gateway: &FakeClockGateway, event: &str) -> u16 {
    let response = gateway.api(Method::GET, &format!("/events/{event}/body"), None).await;
    response.status.as_u16()
}

async fn wait_until_body_is_removed(gateway: &FakeClockGateway, event: &str) {
    eventually(WAIT_LIMIT, || async { (body_status(gateway, event).await != 200).then_some(()) })
        .await;
}

/// Waits until the only delivery has this status; returns it.
async fn wait_for_delivery(gateway: &FakeClockGateway, status: &str) -> Value {
    eventually(WAIT_LIMIT, || async {
        let list = gateway.api(Method::GET, "/deliveries", None).await.expect(200).json();
        list["data"].as_array().unwrap().iter().find(|row| row["status"] == status).cloned()
    })
    .await
}

async fn clock(gateway: &FakeClockGateway) -> Value {
    gateway.api(Method::GET, "/clock", None).await.expect(200).json()
}

async fn wait_for_doubt(gateway: &FakeClockGateway, in_doubt: bool) {
    eventually(WAIT_LIMIT, || async {
        (clock(gateway).await["in_doubt"] == in_doubt).then_some(())
    })
    .await;
}

#[tokio::test]
async fn clock_ten_years_ahead_at_boot_removes_nothing_until_it_is_confirmed() {
    let sink = Sink::ok().await;
    let gateway = gateway(&sink, &json!({})).await;
    let event = event_id(&post(&gateway, "in", "a").await);
    let brief = event_id(&post(&gateway, "brief", "b").await);
    wait_for_delivery(&gateway, "succeeded").await;
    let gateway = gateway.restart(60, TEN_YEARS).await;
    // By the time that has really passed, this body is too old: pruning has run.
    wait_until_body_is_removed(&gateway, &brief).await;

    assert_eq!(body_status(&gateway, &event).await, 200, "history is kept");
    assert_eq!(post(&gateway, "in", "a").await["status"], "duplicate", "keys are kept");
    let shown = clock(&gateway).await;
    assert_eq!(shown["in_doubt"], true, "{shown}");
    let stats = gateway.api(Method::GET, "/stats", None).await.expect(200).json();
    assert_eq!(stats["clock"]["in_doubt"], true, "{stats}");

    let confirmed = gateway.api(Method::POST, "/clock/confirm", None).await.expect(200).json();
    assert_eq!(confirmed["in_doubt"], false, "{confirmed}");
    wait_until_body_is_removed(&gateway, &event).await;
    assert_eq!(post(&gateway, "in", "a").await["status"], "accepted");
}

#[tokio::test]
async fn clock_that_is_right_again_after_a_boot_needs_no_confirmation() {
    let sink = Sink::ok().await;
    let gateway = gateway(&sink, &json!({})).await;
    post(&gateway, "in", "a").await;
    wait_for_delivery(&gateway, "succeeded").await;
    let gateway = gateway.restart(60, 60 * DAY).await;
    wait_for_doubt(&gateway, true).await;
    gateway.set_clock_error(0);
    wait_for_doubt(&gateway, false).await;
    // A stop for a year on a machine that kept running is not a reason for doubt.
    let gateway = gateway.restart(365 * DAY, 0).await;
    assert_eq!(clock(&gateway).await["in_doubt"], false);
}

#[tokio::test]
async fn clock_a_day_off_while_running_forgets_no_key_and_removes_nothing() {
    for error in [DAY, -DAY] {
        let sink = Sink::ok().await;
        let gateway = gateway(&sink, &json!({})).await;
        let before = event_id(&post(&gateway, "in", "before").await);
        gateway.set_clock_error(error);
        wait_for_doubt(&gateway, true).await;
        let during = event_id(&post(&gateway, "in", "during").await);
        assert_eq!(post(&gateway, "in", "before").await["status"], "duplicate", "{error}");
        gateway.set_clock_error(0);
        wait_for_doubt(&gateway, false).await;
        for (id, event) in [("before", before), ("during", during)] {
            assert_eq!(post(&gateway, "in", id).await["status"], "duplicate", "{error} {id}");
            assert_eq!(body_status(&gateway, &event).await, 200, "{error} {id}");
        }
        sink.wait_for_requests(2).await;
    }
}

#[tokio::test]
async fn retry_scheduled_by_a_clock_ahead_is_made_in_time_once_it_is_corrected() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let retry = json!({ "retry": { "max_attempts": 5, "initial_delay": "5s", "jitter": 0.0 } });
    let gateway = gateway(&sink, &retry).await;
    gateway.set_clock_error(DAY);
    post(&gateway, "in", "a").await;
    wait_for_delivery(&gateway, "scheduled").await;

    gateway.set_clock_error(0);
    gateway.run_clock();

    wait_for_delivery(&gateway, "succeeded").await;
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn retry_is_made_in_time_while_the_clock_is_behind() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let retry = json!({ "retry": { "max_attempts": 5, "initial_delay": "5s", "jitter": 0.0 } });
    let gateway = gateway(&sink, &retry).await;
    post(&gateway, "in", "a").await;
    wait_for_delivery(&gateway, "scheduled").await;

    gateway.set_clock_error(-DAY);
    gateway.run_clock();

    wait_for_delivery(&gateway, "succeeded").await;
    gateway.set_clock_error(0);
    wait_for_doubt(&gateway, false).await;
    assert_eq!(sink.count(), 2, "nothing is repeated");
}

#[tokio::test]
async fn circuit_opened_by_a_clock_ahead_holds_no_longer_after_a_restart() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let out = json!({
        "circuit": { "failures": 1, "open_for": "2s" },
        "retry": { "max_attempts": 5, "initial_delay": "2s", "jitter": 0.0 },
    });
    let gateway = gateway(&sink, &out).await;
    gateway.set_clock_error(DAY);
    wait_for_doubt(&gateway, true).await;
    post(&gateway, "in", "a").await;
    eventually(WAIT_LIMIT, || async {
        let shown = gateway.api(Method::GET, "/destinations/out", None).await.expect(200).json();
        (shown["state"]["circuit"] == "open").then_some(())
    })
    .await;

    let gateway = gateway.restart(1, 0).await;
    gateway.run_clock();

    wait_for_delivery(&gateway, "succeeded").await;
}

#[tokio::test]
async fn dashboard_shows_a_clock_in_doubt_and_confirms_it() {
    let sink = Sink::ok().await;
    let gateway = gateway(&sink, &json!({})).await;
    let same_site: (&str, &[u8]) = ("sec-fetch-site", b"same-origin");
    let form: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");
    let login = format!("token={TOKEN}");
    let login = gateway.send(Method::POST, "/login", &[form, same_site], login).await.expect(303);
    let cookie = login.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let headers = [form, same_site, ("cookie", cookie.as_bytes())];
    let page = async || gateway.send(Method::GET, "/events", &headers, "").await.expect(200).text();
    assert!(!page().await.contains("clock-warning"));

    gateway.set_clock_error(3600);
    wait_for_doubt(&gateway, true).await;
    let warned = page().await;
    assert!(warned.contains("clock-warning") && warned.contains("Confirm clock"), "{warned}");
    let confirm = gateway.send(Method::POST, "/clock/confirm", &headers, "next=%2Fevents").await;
    assert_eq!(confirm.expect(303).header("location"), "/events");
    assert!(!page().await.contains("clock-warning"));
}

#[tokio::test]
async fn cli_shows_and_confirms_the_clock() {
    let gateway = Gateway::start_with("").await;
    for command in ["show", "confirm"] {
        let output = gateway.cli(&["clock", command]).await;
        assert!(output.stdout.contains("The clock is trusted"), "{output:?}");
    }
}
