//! Sending limits of a phone number: pace per recipient, throttling, daily limit and quiet hours.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    fake_channels::{ChannelBehavior, CloudApi, EvolutionGo},
    fake_clock::FakeClockGateway,
    gateway::{Gateway, route_settings},
    process::run_surehook,
    unix_now,
};

const ANNA: &str = "5511987654321";
const BRUNO: &str = "5511912345678";
const DAY: i64 = 86_400;

fn cloud_api_settings(to: &CloudApi, more: &str) -> String {
    let (sender, token) = (CloudApi::SENDER, CloudApi::TOKEN);
    let more = format!(
        r#"
        kind = "whatsapp-cloud"
        account = {{ sender = "{sender}", token = "{token}" }}
        {more}
        "#
    );
    route_settings(&to.url(), &more)
}

/// A destination for an Evolution Go number, as the API accepts it.
fn evolution(to: &EvolutionGo, sending: &Value) -> Value {
    json!({
        "name": "out",
        "kind": "evolution-go",
        "url": to.url(),
        "account": { "token": EvolutionGo::TOKEN },
        "sending": sending,
    })
}

fn text(to: &str, number: usize) -> String {
    json!({ "to": to, "text": format!("message {number}") }).to_string()
}

/// A UTC offset in which it is about noon, so that no day ends during a test.
fn noon_offset() -> String {
    let ahead = 12 - unix_now().rem_euclid(DAY) / 3600;
    format!("{}{:02}:00", if ahead < 0 { '-' } else { '+' }, ahead.abs())
}

async fn pending(gateway: &Gateway) -> Vec<Value> {
    gateway.list("/deliveries?status=pending").await
}

/// Waits until `count` messages are counted for today; returns the statistics of `out`.
async fn wait_for_sent_today(gateway: &Gateway, count: u64) -> Value {
    eventually(WAIT_LIMIT, || async {
        let shown = gateway.stats().await["destinations"][0].clone();
        (shown["sent_today"] == count).then_some(shown)
    })
    .await
}

#[tokio::test]
async fn recipient_over_pace_waits_without_delaying_others() {
    let meta = CloudApi::start().await;
    let gateway = Gateway::start_with(&cloud_api_settings(&meta, "")).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    for number in 0..50 {
        gateway.post_accepted("in", text(ANNA, number)).await;
    }
    gateway.post_accepted("in", text(BRUNO, 50)).await;

    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);

    let postponed = eventually(WAIT_LIMIT, || async {
        let sent = gateway.stats().await["by_status"]["succeeded"].as_u64().unwrap();
        let pending = pending(&gateway).await;
        let is_all = sent + u64::try_from(pending.len()).unwrap() == 51;
        (is_all && meta.sent().contains_key(BRUNO)).then_some(pending)
    })
    .await;
    assert!(postponed.len() >= 5, "at most 45 are sent at once, {} wait", postponed.len());
    assert_eq!(meta.sent()[BRUNO].len(), 1);
    // Each has its own due time, and waiting costs no attempt.
    let mut due: Vec<&str> =
        postponed.iter().map(|delivery| delivery["due_at"].as_str().unwrap()).collect();
    due.sort_unstable();
    due.dedup();
    assert_eq!(due.len(), postponed.len());
    assert!(postponed.iter().all(|delivery| delivery["attempts"] == 0), "{postponed:?}");
    assert!(gateway.metrics().await.contains("surehook_messages_put_off_total{"));
    assert!(!gateway.log().contains(ANNA));

    // A manual probe ignores the pace.
    let probed = gateway.post("/destinations/out/probe", &json!({})).await.expect(200).json();
    assert_eq!(probed["succeeded"], true);
}

#[tokio::test]
async fn disabled_pair_pace_sends_without_waiting() {
    let meta = CloudApi::start().await;
    let gateway =
        Gateway::start_with(&cloud_api_settings(&meta, "sending = { pair_pace = false }")).await;
    for number in 0..50 {
        gateway.post_accepted("in", text(ANNA, number)).await;
    }
    meta.wait_for_messages(50).await;
}

#[tokio::test]
async fn throttled_recipient_does_not_delay_others() {
    let meta = CloudApi::start().await;
    meta.set_first_for_recipient(ANNA, [ChannelBehavior::code(131_056)]);
    let more = r#"
        concurrency = 1
        retry = { max_attempts = 5, schedule = ["1ms"] }"#;
    let gateway = Gateway::start_with(&cloud_api_settings(&meta, more)).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    for (number, to) in [ANNA, ANNA, BRUNO].into_iter().enumerate() {
        gateway.post_accepted("in", text(to, number)).await;
    }

    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);

    let messages = meta.wait_for_messages(4).await;
    let to: Vec<&str> = messages.iter().map(|message| message.to.as_str()).collect();
    assert_eq!(to, [ANNA, BRUNO, ANNA, ANNA]);
    // Error 131056 requests a backoff of one second at first.
    let backoff = messages[2].at - messages[0].at;
    assert!(backoff >= Duration::from_secs(1), "{backoff:?}");
    assert_eq!(gateway.destination_state("out").await["cooling_until"], Value::Null);
}

#[tokio::test]
async fn throttled_sender_cools_down_whole_destination() {
    let meta = CloudApi::start().await;
    meta.set_first_for_recipient(ANNA, [ChannelBehavior::code(130_429)]);
    let gateway = Gateway::start_with(&cloud_api_settings(&meta, "concurrency = 1")).await;
    gateway.post_accepted("in", text(ANNA, 0)).await;
    eventually(WAIT_LIMIT, || async {
        (gateway.destination_state("out").await["cooling_until"] != Value::Null).then_some(())
    })
    .await;
    gateway.post_accepted("in", text(BRUNO, 1)).await;

    let messages = meta.wait_for_messages(2).await;
    let backoff = messages[1].at - messages[0].at;
    assert!(backoff >= Duration::from_secs(5), "{backoff:?}");
}

#[tokio::test]
async fn daily_limit_is_counted_across_restart() {
    let go = EvolutionGo::start().await;
    let more = format!(
        r#"
        kind = "evolution-go"
        account = {{ token = "{}" }}
        sending = {{ stop_at = 3, warn_at = 2, utc_offset = "{}" }}
        "#,
        EvolutionGo::TOKEN,
        noon_offset()
    );
    let mut gateway = Gateway::start_with(&route_settings(&go.url(), &more)).await;
    for number in 0..5 {
        gateway.post_accepted("in", text(ANNA, number)).await;
    }

    go.wait_for_messages(3).await;
    eventually(WAIT_LIMIT, || async { (pending(&gateway).await.len() == 2).then_some(()) }).await;
    let shown = wait_for_sent_today(&gateway, 3).await;
    let counts =
        ["sent_today", "warn_at", "stop_at", "warning_reached"].map(|name| shown[name].clone());
    assert_eq!(counts, [json!(3), json!(2), json!(3), json!(true)]);
    assert_eq!(shown["state"]["hold"]["reason"], "daily_limit");
    let listed = gateway.cli(&["destinations", "list"]).await.stdout;
    assert!(listed.contains("daily_limit"), "{listed}");
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("surehook_messages_sent_today{destination=\"out\"} 3"), "{metrics}");
    let warning = "daily warning threshold reached";
    let log = gateway.log();
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(!log.contains(ANNA), "{log}");

    gateway.restart().await;
    gateway.post_accepted("in", text(BRUNO, 5)).await;
    eventually(WAIT_LIMIT, || async { (pending(&gateway).await.len() == 3).then_some(()) }).await;
    assert_eq!(gateway.destination_state("out").await["hold"]["reason"], "daily_limit");
    assert_eq!(go.count(), 3);

    // A raised limit applies immediately.
    let raised = json!({ "stop_at": 6, "warn_at": 2, "utc_offset": noon_offset() });
    gateway.put("/destinations/out", &evolution(&go, &raised)).await.expect(200);
    go.wait_for_messages(6).await;
    wait_for_sent_today(&gateway, 6).await;
    assert!(!gateway.log().contains(warning), "the warning is logged once a day");
    let server = gateway.url("");
    let args = ["doctor", "--json", "--server", &server, "--token", gateway.token()];
    let doctor = run_surehook(gateway.folder(), &args, &[]).await.stdout;
    assert!(doctor.contains("`out` sent 6 messages today"), "{doctor}");
}

/// A gateway whose clock shows `seconds` since 1970, with a source `in` and the destination `out`.
async fn gateway_at(seconds: i64, out: &Value) -> FakeClockGateway {
    let gateway = FakeClockGateway::start(seconds).await;
    let configuration = json!({
        "sources": [{ "name": "in", "verify": "none" }],
        "destinations": [out],
        "routes": [{ "from": "in", "to": "out" }],
    });
    gateway.api(Method::PUT, "/configuration", Some(&configuration)).await.expect(200);
    gateway
}

async fn hold(gateway: &FakeClockGateway) -> Value {
    let shown = gateway.api(Method::GET, "/destinations/out", None).await.expect(200).json();
    shown["state"]["hold"].clone()
}

async fn send_text(gateway: &FakeClockGateway, number: usize) {
    gateway.send(Method::POST, "/in/in", &[], text(ANNA, number)).await.expect(200);
}

async fn wait_for_pending(gateway: &FakeClockGateway, count: usize) {
    eventually(WAIT_LIMIT, || async {
        let list = gateway.api(Method::GET, "/deliveries?status=pending", None).await.json();
        (list["data"].as_array().unwrap().len() == count).then_some(())
    })
    .await;
}

/// The lane reads the clock only when it is woken, for example by a resume.
async fn wake(gateway: &FakeClockGateway) {
    gateway.api(Method::POST, "/destinations/out/resume", None).await.expect(200);
}

#[tokio::test]
async fn messages_over_daily_limit_wait_for_next_day() {
    let go = EvolutionGo::start().await;
    let out = evolution(&go, &json!({ "stop_at": 2, "utc_offset": "-03:00" }));
    let noon = 20_000 * DAY + 15 * 3600;
    let gateway = gateway_at(noon, &out).await;
    for number in 0..5 {
        send_text(&gateway, number).await;
    }
    go.wait_for_messages(2).await;
    wait_for_pending(&gateway, 3).await;
    let midnight = json!({ "until": "2024-10-05T03:00:00.000Z", "reason": "daily_limit" });
    assert_eq!(hold(&gateway).await, midnight);

    gateway.set_clock(20_001 * DAY + 3 * 3600);
    wake(&gateway).await;

    go.wait_for_messages(4).await;
    wait_for_pending(&gateway, 1).await;
    assert_eq!(hold(&gateway).await["until"], "2024-10-06T03:00:00.000Z");
    assert_eq!(go.count(), 4);
}

#[tokio::test]
async fn messages_wait_during_quiet_hours() {
    let go = EvolutionGo::start().await;
    let quiet = json!({ "quiet_hours": "22:00-08:00", "utc_offset": "-03:00" });
    let evening = 20_000 * DAY + 24 * 3600;
    let gateway = gateway_at(evening, &evolution(&go, &quiet)).await;
    send_text(&gateway, 0).await;
    go.wait_for_messages(1).await;
    assert_eq!(hold(&gateway).await, Value::Null);

    gateway.set_clock(evening + 3600);
    send_text(&gateway, 1).await;
    send_text(&gateway, 2).await;
    wait_for_pending(&gateway, 2).await;
    let morning = json!({ "until": "2024-10-05T11:00:00.000Z", "reason": "quiet_hours" });
    assert_eq!(hold(&gateway).await, morning);
    wake(&gateway).await;
    wait_for_pending(&gateway, 2).await;

    gateway.set_clock(evening + 11 * 3600);
    wake(&gateway).await;
    go.wait_for_messages(3).await;

    // Removing quiet hours during the next night releases the message.
    gateway.set_clock(evening + 26 * 3600);
    send_text(&gateway, 3).await;
    wait_for_pending(&gateway, 1).await;
    assert_eq!(go.count(), 3);
    let without_quiet_hours = evolution(&go, &json!({}));
    gateway.api(Method::PUT, "/destinations/out", Some(&without_quiet_hours)).await.expect(200);
    go.wait_for_messages(4).await;
}

#[tokio::test]
async fn invalid_sending_limits_are_rejected_with_advice() {
    let go = EvolutionGo::start().await;
    let gateway = Gateway::start_with(&route_settings("http://127.0.0.1:9000/", "")).await;
    let cases = [
        (json!({ "stop_at": 0 }), "at least 1"),
        (json!({ "pair_pace": true }), "remove it"),
        (json!({ "quiet_hours": "22:00-22:00" }), "such as 22:00-08:00"),
        (json!({ "utc_offset": "Europe/Berlin" }), "such as -03:00"),
    ];
    for (sending, expected) in cases {
        let response = gateway.put("/destinations/out", &evolution(&go, &sending)).await;
        let detail = response.expect(422).detail();
        assert!(detail.contains(expected), "{detail}");
    }
}
