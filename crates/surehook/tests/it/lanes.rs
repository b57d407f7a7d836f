//! Delivery lanes: rate, delay, ordering, pause, drain and circuit of a destination.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    millis,
    sink::{Reply, Sink},
};

/// Retries without noticeable delay.
const QUICK: &str = r#"retry = { max_attempts = 3, schedule = ["1ms"] }"#;

/// A destination whose response status can be changed; it starts with `status`.
async fn switchable_sink(status: u16) -> (Sink, Arc<AtomicU16>) {
    let response = Arc::new(AtomicU16::new(status));
    let current = Arc::clone(&response);
    let sink = Sink::with_script(move |_, _| Reply::status(current.load(Ordering::SeqCst))).await;
    (sink, response)
}

/// Waits until a field of the state of `out` has this value.
async fn wait_for_state(gateway: &Gateway, name: &str, value: Value) -> Value {
    eventually(WAIT_LIMIT, || async {
        Some(gateway.destination_state("out").await).filter(|state| state[name] == value)
    })
    .await
}

async fn list_deliveries(gateway: &Gateway, status: &str) -> Vec<Value> {
    gateway.list(&format!("/deliveries?status={status}&limit=1000")).await
}

/// The bodies in order of arrival.
fn bodies(sink: &Sink) -> Vec<String> {
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    sink.requests().iter().map(|arrival| text(&arrival.body)).collect()
}

fn ordering(more: &str, on_failure: &str) -> String {
    format!("order = {{ key = \"/c\", on_failure = \"{on_failure}\" }}\n{more}")
}

#[tokio::test]
async fn paused_destination_holds_deliveries_until_resumed() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let request = json!({ "reason": "planned maintenance" });
    let paused = gateway.post("/destinations/out/pause", &request).await.expect(200).json();
    assert_eq!(paused["state"]["paused"], true, "{paused}");
    assert_eq!(paused["state"]["pause"]["reason"], "planned maintenance");
    assert_eq!(paused["state"]["pause"]["automatic"], false);

    let event = gateway.post_accepted("in", "1").await;

    let delivery = gateway.wait_for_delivery(&event, "held").await;
    assert_eq!(delivery["attempts"], 0);
    assert_eq!(gateway.stats().await["by_status"]["held"], 1);
    assert_eq!(gateway.stats().await["by_status"]["pending"], 0);
    assert_eq!(list_deliveries(&gateway, "held").await.len(), 1);
    assert!(list_deliveries(&gateway, "pending").await.is_empty());
    assert!(gateway.metrics().await.contains("surehook_destination_paused{destination=\"out\"} 1"));
    let resumed = gateway.post("/destinations/out/resume", &json!({})).await.expect(200).json();
    assert_eq!(resumed["state"]["paused"], false);
    gateway.wait_for_delivery(&event, "succeeded").await;
    assert_eq!(bodies(&sink), ["1"]);
}

#[tokio::test]
async fn backlog_is_drained_at_requested_rate() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    for number in 0..30 {
        gateway.post_accepted("in", number.to_string()).await;
    }
    let request = json!({ "rate": "20/s burst 1" });
    let resumed = gateway.post("/destinations/out/resume", &request).await.expect(200).json();
    assert_eq!(resumed["state"]["drain"]["rate"], "20/s burst 1", "{resumed}");

    let arrivals = sink.wait_for_requests(30).await;
    // 29 waits of 50 ms lie between the first and the last; half of that is beyond doubt.
    let took = arrivals[29].at - arrivals[0].at;
    assert!(took > Duration::from_millis(725), "took {took:?}");
    // Events received later are not part of the backlog.
    gateway.wait_for_delivery(&gateway.post_accepted("in", "late").await, "succeeded").await;
    wait_for_state(&gateway, "drain", json!(null)).await;
}

#[tokio::test]
async fn drain_continues_while_ordering_queue_has_backlog() {
    let sink = Sink::with_script(|_, arrival| {
        let is_slow = arrival.body.starts_with(br#"{"c":"a""#);
        Reply::status(200).after(Duration::from_millis(if is_slow { 500 } else { 0 }))
    })
    .await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &ordering("", "block"))).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    for number in 0..4 {
        gateway.post_accepted("in", format!(r#"{{"c":"a","n":{number}}}"#)).await;
    }
    gateway.post("/destinations/out/resume", &json!({"rate": "20/s"})).await.expect(200);
    sink.wait_for_requests(1).await;

    let later = gateway.post_accepted("in", r#"{"c":"b"}"#).await;

    gateway.wait_for_delivery(&later, "succeeded").await;
    assert_eq!(
        gateway.destination_state("out").await["drain"]["rate"],
        "20/s",
        "the ordering queue still has a backlog"
    );
    gateway.wait_for_count("succeeded", 5).await;
    wait_for_state(&gateway, "drain", json!(null)).await;
}

#[tokio::test]
async fn probe_attempts_one_delivery_despite_pause_and_schedule() {
    let (sink, response) = switchable_sink(500).await;
    let more = r#"retry = { initial_delay = "1h" }"#;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    let nothing = gateway.post("/destinations/out/probe", &json!({})).await;
    assert_eq!(nothing.expect(409).code(), "nothing_waits");
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    let event = gateway.post_accepted("in", "1").await;

    let probed = gateway.post("/destinations/out/probe", &json!({})).await.expect(200).json();
    assert_eq!((&probed["succeeded"], &probed["attempt"]["status"]), (&json!(false), &json!(500)));
    assert_eq!(probed["state"]["paused"], true);
    // The retry is due in an hour; a probe ignores the schedule.
    response.store(200, Ordering::SeqCst);
    let probed = gateway.post("/destinations/out/probe", &json!({})).await.expect(200).json();
    assert_eq!(probed["succeeded"], true, "{probed}");
    assert_eq!(gateway.wait_for_delivery(&event, "succeeded").await["attempts"], 2);
    assert_eq!(gateway.destination_state("out").await["paused"], true);
    let unknown = gateway.post("/destinations/absent/probe", &json!({})).await;
    unknown.expect(404);
}

#[tokio::test]
async fn pending_delivery_can_be_cancelled() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "delay = \"1h\"")).await;
    let event = gateway.post_accepted("in", "1").await;
    let id = gateway.wait_for_delivery(&event, "pending").await["id"].as_str().unwrap().to_owned();
    let cancel = format!("/deliveries/{id}/cancel");

    let cancelled = gateway.post(&cancel, &json!({})).await.expect(200).json();

    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled["ended_at"].is_string());
    // Cancelling again returns the same result.
    assert_eq!(gateway.post(&cancel, &json!({})).await.expect(200).json(), cancelled);
    let other = "/deliveries/dlv_00000000000000000000000000/cancel";
    gateway.post(other, &json!({})).await.expect(404);
    assert!(sink.requests().is_empty());
}

#[tokio::test]
async fn delay_applies_to_first_attempt_but_not_to_replay() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "delay = \"1500ms\"")).await;
    let event = gateway.post_accepted("in", "1").await;
    let first = gateway.wait_for_delivery(&event, "succeeded").await;
    let received_at = millis(&gateway.event(&event).await["received_at"]);
    let started_at = millis(&first["attempt_list"][0]["started_at"]);
    assert!(started_at - received_at >= 1500, "{first}");

    gateway
        .put("/destinations/out", &json!({ "name": "out", "url": sink.url(), "delay": "1h" }))
        .await
        .expect(200);
    let replay = format!("/deliveries/{}/replay", first["id"].as_str().unwrap());
    let new = gateway.post(&replay, &json!({})).await.expect(202).json();
    gateway.wait_for_delivery_status(new["delivery_id"].as_str().unwrap(), "succeeded").await;
}

#[tokio::test]
async fn repeated_config_failures_pause_destination_with_reason() {
    let (sink, response) = switchable_sink(404).await;
    let gateway =
        Gateway::start_with(&route_settings(&sink.url(), "pause_after_config_failures = 3")).await;
    for number in 0..3 {
        let event = gateway.post_accepted("in", number.to_string()).await;
        gateway.wait_for_delivery(&event, "dead").await;
    }
    let paused = wait_for_state(&gateway, "paused", json!(true)).await;
    assert_eq!(paused["pause"]["automatic"], true);
    assert!(paused["pause"]["reason"].as_str().unwrap().contains("404"), "{paused}");
    eventually(WAIT_LIMIT, || async { gateway.log().contains("destination paused").then_some(()) })
        .await;
    let held = gateway.post_accepted("in", "held").await;
    gateway.wait_for_delivery(&held, "held").await;
    assert!(gateway.metrics().await.contains("surehook_destination_paused{destination=\"out\"} 1"));

    response.store(200, Ordering::SeqCst);
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    gateway.wait_for_delivery(&held, "succeeded").await;
    assert_eq!(sink.requests().len(), 4);
}

#[tokio::test]
async fn open_circuit_holds_deliveries_without_attempts() {
    let (sink, response) = switchable_sink(500).await;
    let more = r#"
        retry = { max_attempts = 5, schedule = ["1ms"] }
        concurrency = 1
        circuit = { failures = 3, open_for = "300ms", max_open = "300ms" }"#;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    let events = [gateway.post_accepted("in", "1").await, gateway.post_accepted("in", "2").await];
    let open = wait_for_state(&gateway, "circuit", json!("open")).await;
    assert!(open["open_until"].is_string(), "{open}");

    response.store(200, Ordering::SeqCst);
    let mut attempts = 0;
    for event in events {
        let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
        attempts += delivery["attempts"].as_u64().unwrap();
    }
    assert_eq!(usize::try_from(attempts).unwrap(), sink.requests().len());
    wait_for_state(&gateway, "circuit", json!("closed")).await;
    let metrics = gateway.metrics().await;
    for to in ["open", "half_open", "ramp", "closed"] {
        let line = format!("surehook_circuit_transitions_total{{destination=\"out\",to=\"{to}\"}}");
        assert!(metrics.contains(&line), "{to}:\n{metrics}");
    }
    assert!(metrics.contains("surehook_circuit_state{destination=\"out\"} 0"), "{metrics}");
}

#[tokio::test]
async fn resume_ends_open_circuit_and_cool_down_of_a_destination_that_is_not_paused() {
    let (sink, response) = switchable_sink(500).await;
    let more = r#"
        retry = { max_attempts = 9, schedule = ["1ms"] }
        concurrency = 1
        circuit = { failures = 3, open_for = "1h", max_open = "1h" }"#;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    let event = gateway.post_accepted("in", "1").await;
    wait_for_state(&gateway, "circuit", json!("open")).await;
    response.store(200, Ordering::SeqCst);
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    gateway.wait_for_delivery(&event, "succeeded").await;

    let busy =
        Sink::with_replies([Reply::status(429).header("retry-after", "3600"), Reply::status(200)])
            .await;
    let gateway = Gateway::start_with(&route_settings(&busy.url(), "concurrency = 1")).await;
    let throttled = gateway.post_accepted("in", "1").await;
    gateway.wait_for_delivery(&throttled, "scheduled").await;
    let other = gateway.post_accepted("in", "2").await;
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    gateway.wait_for_delivery(&other, "succeeded").await;
    assert_eq!(busy.count(), 2, "the destination chose when to retry the first one");
}

#[tokio::test]
async fn retry_after_response_does_not_open_circuit() {
    let sink = Sink::with_script(|number, _| {
        let busy = Reply::status(429).header("retry-after", "1");
        if number < 2 { busy } else { Reply::status(200) }
    })
    .await;
    let more = "concurrency = 1\ncircuit = { failures = 1, open_for = \"1h\", max_open = \"1h\" }";
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    let event = gateway.post_accepted("in", "1").await;
    // The default policy may wait longer than Retry-After, so the test does not wait for success.
    gateway.wait_for_delivery(&event, "scheduled").await;
    assert_eq!(gateway.destination_state("out").await["circuit"], "closed");
}

#[tokio::test]
async fn deliveries_with_one_ordering_key_are_sent_one_at_a_time_in_order() {
    let (sink, response) = switchable_sink(500).await;
    let more =
        ordering("circuit = \"off\"\nretry = { max_attempts = 2, schedule = [\"20ms\"] }", "block");
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &more)).await;
    let mut events = Vec::new();
    for number in 0..4 {
        events.push(gateway.post_accepted("in", format!(r#"{{"c":"a","n":{number}}}"#)).await);
    }
    // The first delivery is retried without limit; those behind it are held.
    sink.wait_for_requests(5).await;
    for event in &events[1..] {
        let delivery = gateway.wait_for_delivery(event, "held").await;
        assert_eq!((&delivery["ordering_key"], &delivery["attempts"]), (&json!("a"), &json!(0)));
    }
    assert_eq!(list_deliveries(&gateway, "held").await.len(), 3);
    assert!(bodies(&sink).iter().all(|body| body.contains("\"n\":0")));
    // The third delivery is cancelled, then the destination recovers.
    let third =
        gateway.wait_for_delivery(&events[2], "held").await["id"].as_str().unwrap().to_owned();
    gateway.post(&format!("/deliveries/{third}/cancel"), &json!({})).await.expect(200);
    response.store(200, Ordering::SeqCst);
    for event in [&events[0], &events[1], &events[3]] {
        gateway.wait_for_delivery(event, "succeeded").await;
    }
    let arrived = bodies(&sink);
    let last: Vec<&String> = arrived.iter().rev().take(2).collect();
    assert!(last[1].contains("\"n\":1") && last[0].contains("\"n\":3"), "{arrived:?}");
}

#[tokio::test]
async fn dead_delivery_unblocks_ordering_queue() {
    let sink = Sink::with_script(|_, arrival| {
        let bad = arrival.body.ends_with(b"0}");
        Reply::status(if bad { 500 } else { 200 })
    })
    .await;
    let more = ordering(QUICK, "dead");
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &more)).await;
    let bad = gateway.post_accepted("in", r#"{"c":"a","n":0}"#).await;
    let good = gateway.post_accepted("in", r#"{"c":"a","n":1}"#).await;
    let unordered = gateway.post_accepted("in", r#"{"n":2}"#).await;
    gateway.wait_for_delivery(&good, "succeeded").await;
    gateway.wait_for_delivery(&unordered, "succeeded").await;
    assert_eq!(gateway.wait_for_delivery(&bad, "dead").await["attempts"], 3);
    let metric = "surehook_deliveries_without_order_key_total{destination=\"out\"} 1";
    assert!(gateway.metrics().await.contains(metric));
}

#[tokio::test]
async fn removing_ordering_releases_held_deliveries() {
    let sink = Sink::with_script(|_, arrival| {
        let bad = arrival.body.ends_with(b"0}");
        Reply::status(if bad { 500 } else { 200 })
    })
    .await;
    let more = ordering("retry = { initial_delay = \"1h\" }", "block");
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &more)).await;
    for number in 0..4 {
        gateway.post_accepted("in", format!(r#"{{"c":"a","n":{number}}}"#)).await;
    }
    gateway.wait_for_count("held", 3).await;

    let spec = json!({ "name": "out", "url": sink.url() });
    gateway.put("/destinations/out", &spec).await.expect(200);

    gateway.wait_for_count("succeeded", 3).await;
    assert_eq!(sink.requests().len(), 4);
}

#[tokio::test]
async fn invalid_lane_settings_are_rejected() {
    let gateway = Gateway::start_with("").await;
    for (name, value) in [
        ("rate", json!("fast")),
        ("rate", json!("0/s")),
        ("delay", json!("31d")),
        ("order", json!({ "key": ". |" })),
        ("order", json!({ "key": "/a", "on_failure": "panic" })),
        ("circuit", json!("on")),
        ("circuit", json!({ "failures": 0 })),
        ("pause_after_config_failures", json!(-1)),
    ] {
        let mut spec = json!({ "name": "x", "url": "https://example.com/" });
        spec[name] = value.clone();
        let response = gateway.post("/destinations", &spec).await;
        assert_eq!(response.expect(422).code(), "invalid", "case: {name} = {value}");
    }
    let bad = gateway.post("/destinations/inbox/resume", &json!({ "rate": "x" })).await;
    bad.expect(422);
    let bad = gateway.post("/destinations/inbox/pause", &json!({ "why": "x" })).await;
    bad.expect(422);
}

#[tokio::test]
async fn cli_pauses_probes_and_resumes_destinations() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let paused =
        gateway.cli(&["destinations", "pause", "out", "--reason", "planned maintenance"]).await;
    assert_eq!(paused.code, Some(0), "{paused:?}");
    let events = [gateway.post_accepted("in", "1").await, gateway.post_accepted("in", "2").await];

    let listed = gateway.cli(&["destinations", "list"]).await;
    assert!(listed.stdout.contains("planned maintenance"), "{listed:?}");
    let listed = gateway.cli(&["destinations", "list", "--json"]).await;
    let row: Value = serde_json::from_str(listed.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(row["state"]["paused"], true, "{row}");

    let probed = gateway.cli(&["destinations", "probe", "out"]).await;
    assert!(probed.stdout.contains("delivered: 200"), "{probed:?}");
    gateway.wait_for_delivery(&events[0], "succeeded").await;
    gateway.wait_for_delivery(&events[1], "held").await;
    let resumed = gateway.cli(&["destinations", "resume", "out", "--rate", "100/s"]).await;
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    gateway.wait_for_delivery(&events[1], "succeeded").await;
    let nothing = gateway.cli(&["destinations", "probe", "out"]).await;
    assert_eq!(nothing.code, Some(5), "{nothing:?}");
}
