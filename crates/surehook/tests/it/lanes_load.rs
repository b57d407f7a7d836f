//! Delivery lanes under load, during an outage and across kills.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, route_settings},
    millis,
    sink::{Reply, Sink, SinkRequest},
};

/// For steps that take longer than [`WAIT_LIMIT`] even when everything works.
const LONG_WAIT: Duration = Duration::from_secs(100);

const SENDERS: usize = 16;

/// Sends these bodies with several clients at once; each must be accepted.
async fn send_all(gateway: &Gateway, bodies: Vec<String>) {
    let bodies = Arc::new(Mutex::new(bodies));
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        let (bodies, url) = (Arc::clone(&bodies), gateway.url("/in/in"));
        sending.spawn(async move {
            let client = Client::new();
            loop {
                let next = bodies.lock().unwrap().pop();
                let Some(body) = next else { return };
                client.send(Method::POST, &url, &[], body).await.unwrap().expect(200);
            }
        });
    }
    sending.join_all().await;
}

async fn wait_for_count(gateway: &Gateway, status: &str, count: usize) {
    gateway.wait_for_stats(LONG_WAIT, |stats| stats["by_status"][status] == count).await;
}

/// Waits for `count` arrivals without polling the gateway, which would slow it down.
async fn wait_for_arrivals(sink: &Sink, count: usize) {
    eventually(LONG_WAIT, || async { (sink.count() >= count).then_some(()) }).await;
}

fn assert_each_arrived_once(arrivals: &[SinkRequest], count: usize) {
    let distinct: HashSet<&[u8]> = arrivals.iter().map(|arrival| &arrival.body[..]).collect();
    assert_eq!((arrivals.len(), distinct.len()), (count, count));
}

/// How exactly the rate is kept is measured by `surehook bench --only rate-limit`.
#[tokio::test]
async fn heavy_rate_limit_is_never_exceeded() {
    const EVENTS: usize = 300;
    /// `50/s` allows bursts of a tenth of a second.
    const BURST: usize = 5;
    const INTERVAL_MS: usize = 20;
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "rate = \"50/s\"")).await;
    send_all(&gateway, (0..EVENTS).map(|n| n.to_string()).collect()).await;
    // Few of them are in memory, and so most can be seen, held and cancelled.
    let in_flight = gateway.stats().await["by_status"]["in_flight"].as_u64().unwrap();
    assert!(in_flight <= 100, "{in_flight} were claimed at 50/s");
    wait_for_arrivals(&sink, EVENTS).await;
    wait_for_count(&gateway, "succeeded", EVENTS).await;

    let mut attempts = Vec::new();
    for row in gateway.list("/deliveries?limit=1000").await {
        let path = format!("/deliveries/{}", row["id"].as_str().unwrap());
        let delivery = gateway.get(&path).await.expect(200).json();
        attempts.push(millis(&delivery["attempt_list"][0]["started_at"]));
    }
    let events = gateway.list("/events?limit=1000").await;
    let first_event = events.iter().map(|event| millis(&event["received_at"])).min().unwrap();

    // A busy machine may start an attempt late, but never before the limit allows it.
    attempts.sort_unstable();
    for (index, started) in attempts.iter().enumerate() {
        let earliest = i64::try_from((index + 1).saturating_sub(BURST) * INTERVAL_MS).unwrap();
        let after = started - first_event;
        // Both times are rounded down to a millisecond.
        assert!(after + 1 >= earliest, "attempt {index} started after {after} ms");
    }
    assert_each_arrived_once(&sink.requests(), EVENTS);
}

/// Ordering key and number of an event.
fn key_and_number(body: &[u8]) -> (String, usize) {
    let body: Value = serde_json::from_slice(body).unwrap();
    (body["c"].as_str().unwrap().to_owned(), usize::try_from(body["n"].as_u64().unwrap()).unwrap())
}

#[tokio::test]
async fn heavy_order_is_kept_per_key_and_keys_do_not_block_each_other() {
    const KEYS: usize = 1000;
    const EACH: usize = 20;
    let freed = Arc::new(AtomicBool::new(false));
    let (tried, is_free) = (Mutex::new(HashSet::new()), Arc::clone(&freed));
    // Every tenth event fails at its first attempt; one key fails until it is freed.
    let script = move |_: usize, arrival: &SinkRequest| {
        let (key, number) = key_and_number(&arrival.body);
        let is_stuck = key == "c-0" && !is_free.load(Ordering::SeqCst);
        let digits: usize = key[2..].parse().unwrap();
        let fails =
            (digits + number * 7).is_multiple_of(10) && tried.lock().unwrap().insert((key, number));
        Reply::status(if is_stuck || fails { 500 } else { 200 })
    };
    let succeeded: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
    let recorded = Arc::clone(&succeeded);
    let sink = Sink::with_script(move |count, arrival| {
        let reply = script(count, arrival);
        if matches!(reply, Reply::Response { status: 200, .. }) {
            recorded.lock().unwrap().push(key_and_number(&arrival.body));
        }
        reply
    })
    .await;
    let more = "order = { key = \"/c\" }\ncircuit = \"off\"\n\
                retry = { max_attempts = 3, schedule = [\"50ms\"], max_delay = \"50ms\" }";
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;

    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    for number in 0..EACH {
        let body = |key: usize| format!(r#"{{"c":"c-{key}","n":{number}}}"#);
        send_all(&gateway, (0..KEYS).map(body).collect()).await;
    }
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    // All other keys are delivered while one key is blocked.
    let through = || succeeded.lock().unwrap().len();
    eventually(LONG_WAIT, || async { (through() == (KEYS - 1) * EACH).then_some(()) }).await;
    wait_for_count(&gateway, "succeeded", (KEYS - 1) * EACH).await;
    assert_eq!(gateway.stats().await["by_status"]["held"], EACH - 1);
    assert!(!succeeded.lock().unwrap().iter().any(|(key, _)| key == "c-0"));
    freed.store(true, Ordering::SeqCst);
    wait_for_count(&gateway, "succeeded", KEYS * EACH).await;

    let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
    for (key, number) in succeeded.lock().unwrap().drain(..) {
        by_key.entry(key).or_default().push(number);
    }
    assert_eq!(by_key.len(), KEYS);
    for (key, numbers) in by_key {
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "{key}");
    }
    // No event was attempted before its predecessor of the same key succeeded.
    let mut reached: HashMap<String, usize> = HashMap::new();
    for arrival in sink.requests() {
        let (key, number) = key_and_number(&arrival.body);
        let reached = reached.entry(key).or_default();
        assert!(number == *reached || number == *reached + 1, "{number} after {reached}");
        *reached = number;
    }
}

#[tokio::test]
async fn heavy_ten_thousand_held_deliveries_are_sent_once_after_resume() {
    const EVENTS: usize = 10_000;
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    send_all(&gateway, (0..100).map(|n| format!("before-{n}")).collect()).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    wait_for_count(&gateway, "in_flight", 0).await;
    let before = sink.requests().len();
    send_all(&gateway, (0..EVENTS).map(|n| format!("after-{n}")).collect()).await;
    wait_for_count(&gateway, "held", EVENTS + 100 - before).await;
    assert_eq!(sink.requests().len(), before);

    let request = json!({ "rate": "1000/s" });
    gateway.post("/destinations/out/resume", &request).await.expect(200);
    // New events arrive while the backlog is drained.
    send_all(&gateway, (0..100).map(|n| format!("late-{n}")).collect()).await;

    wait_for_arrivals(&sink, EVENTS + 200).await;
    wait_for_count(&gateway, "succeeded", EVENTS + 200).await;
    assert_each_arrived_once(&sink.requests(), EVENTS + 200);
}

/// The value of a metric, 0 if it is absent.
fn metric(metrics: &str, name: &str) -> usize {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |rest| rest.trim().parse().unwrap())
}

#[tokio::test]
async fn heavy_outage_costs_few_attempts_and_recovers_without_burst() {
    const EVENTS: usize = 5000;
    const FAILURES: usize = 10;
    const CONCURRENCY: usize = 16;
    /// Response time of the destination; arrivals within it ran at the same time.
    const RESPONSE_TIME: Duration = Duration::from_millis(20);
    let is_up = Arc::new(AtomicBool::new(false));
    let (up, refused) = (Arc::clone(&is_up), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&refused);
    let sink = Sink::with_script(move |_, _| {
        if up.load(Ordering::SeqCst) {
            return Reply::status(200).after(RESPONSE_TIME);
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Reply::status(503)
    })
    .await;
    let more = format!(
        "concurrency = {CONCURRENCY}\nretry = {{ max_attempts = 20, schedule = [\"100ms\"] }}\n\
         circuit = {{ failures = {FAILURES}, open_for = \"200ms\", max_open = \"500ms\" }}"
    );
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &more)).await;
    send_all(&gateway, (0..EVENTS).map(|n| n.to_string()).collect()).await;
    let probes = "surehook_circuit_transitions_total{destination=\"out\",to=\"half_open\"}";
    eventually(WAIT_LIMIT, || async {
        (metric(&gateway.metrics().await, probes) >= 3).then_some(())
    })
    .await;

    is_up.store(true, Ordering::SeqCst);
    wait_for_arrivals(&sink, EVENTS).await;
    wait_for_count(&gateway, "succeeded", EVENTS).await;

    let probed = metric(&gateway.metrics().await, probes);
    let refused = refused.load(Ordering::SeqCst);
    assert!(refused <= FAILURES + CONCURRENCY + probed, "{refused} attempts, {probed} probes");
    assert_eq!(sink.requests().len(), EVENTS + refused);
    assert_ramp_is_respected(&sink.requests()[refused..], RESPONSE_TIME);
    assert_eq!(gateway.stats().await["dlq_size"], 0);
}

/// Arrivals within `response_time` of each other ran at the same time. Each step of the ramp lasts at least
/// a second and doubles the allowed concurrency.
fn assert_ramp_is_respected(arrivals: &[SinkRequest], response_time: Duration) {
    let times: Vec<Instant> = arrivals.iter().map(|arrival| arrival.at).collect();
    for (index, at) in times.iter().enumerate() {
        let at_once =
            times[..=index].iter().rev().take_while(|other| *at - **other < response_time).count();
        let seconds = u32::try_from((*at - times[0]).as_secs()).unwrap();
        let allowed = 1_usize.checked_shl(seconds).unwrap_or(usize::MAX).min(16);
        assert!(at_once <= allowed, "{at_once} at once in second {seconds} of the ramp");
    }
}

#[tokio::test]
async fn heavy_pause_survives_kill() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let request = json!({ "reason": "planned maintenance" });
    gateway.post("/destinations/out/pause", &request).await.expect(200);
    send_all(&gateway, (0..50).map(|n| n.to_string()).collect()).await;
    gateway.kill9();
    gateway.restart().await;

    let state = gateway.destination_state("out").await;
    assert_eq!((&state["paused"], &state["pause"]["reason"]), (&json!(true), &request["reason"]));
    wait_for_count(&gateway, "held", 50).await;
    assert!(sink.requests().is_empty());
    let request = json!({ "rate": "10/s" });
    gateway.post("/destinations/out/resume", &request).await.expect(200);
    gateway.kill9();
    let before = sink.requests().len();
    assert!(before < 50, "{before} arrived at 10/s");
    gateway.restart().await;
    assert_eq!(gateway.destination_state("out").await["drain"]["rate"], "10/s");
    wait_for_count(&gateway, "succeeded", 50).await;
    let distinct: HashSet<_> = sink.requests().iter().map(|arrival| arrival.body.clone()).collect();
    assert_eq!(distinct.len(), 50);
}

#[tokio::test]
async fn heavy_open_circuit_survives_kill() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let status = move |_: usize, _: &SinkRequest| {
        Reply::status(if up.load(Ordering::SeqCst) { 200 } else { 500 })
    };
    let sink = Sink::with_script(status).await;
    let more = "concurrency = 1\nretry = { max_attempts = 5, schedule = [\"1ms\"] }\n\
                circuit = { failures = 2, open_for = \"1h\", max_open = \"1h\" }";
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    send_all(&gateway, (0..20).map(|n| n.to_string()).collect()).await;
    let open = eventually(WAIT_LIMIT, || async {
        Some(gateway.destination_state("out").await).filter(|state| state["circuit"] == "open")
    })
    .await;
    wait_for_count(&gateway, "held", 20).await;
    let spent = sink.requests().len();
    assert_eq!(spent, 2);
    gateway.kill9();
    gateway.restart().await;

    let after = gateway.destination_state("out").await;
    assert_eq!((&after["circuit"], &after["open_until"]), (&json!("open"), &open["open_until"]));
    wait_for_count(&gateway, "held", 20).await;
    assert_eq!(gateway.stats().await["attempts"], spent);
    // A manual probe does not wait for the circuit.
    is_up.store(true, Ordering::SeqCst);
    let probed = gateway.post("/destinations/out/probe", &json!({})).await.expect(200).json();
    assert_eq!(probed["succeeded"], true, "{probed}");
    wait_for_count(&gateway, "succeeded", 20).await;
    assert_eq!(sink.requests().len(), spent + 20);
}

#[tokio::test]
async fn heavy_ordering_queue_keeps_order_across_kill() {
    let hangs = Arc::new(AtomicBool::new(true));
    let is_hanging = Arc::clone(&hangs);
    let sink = Sink::with_script(move |_, arrival| {
        let (_, number) = key_and_number(&arrival.body);
        if number == 2 && is_hanging.load(Ordering::SeqCst) {
            return Reply::Hang;
        }
        Reply::status(200)
    })
    .await;
    let more = "order = { key = \"/c\" }";
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    for number in 0..6 {
        gateway.post_accepted("in", format!(r#"{{"c":"a","n":{number}}}"#)).await;
    }
    sink.wait_for_requests(3).await;
    gateway.kill9();
    hangs.store(false, Ordering::SeqCst);
    gateway.restart().await;
    // Events received after the restart queue behind those from before it.
    for number in 6..9 {
        gateway.post_accepted("in", format!(r#"{{"c":"a","n":{number}}}"#)).await;
    }
    wait_for_count(&gateway, "succeeded", 9).await;
    let numbers: Vec<usize> =
        sink.requests().iter().map(|request| key_and_number(&request.body).1).collect();
    let mut distinct = numbers.clone();
    distinct.dedup();
    assert_eq!(distinct, (0..9).collect::<Vec<_>>(), "{numbers:?}");
    assert_eq!(gateway.stats().await["by_status"]["held"], 0);
}

#[tokio::test]
async fn heavy_settings_changes_under_load_deliver_each_event_once() {
    const ROUNDS: usize = 12;
    const EACH: usize = 250;
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let settings = [
        json!({ "order": { "key": "/c" } }),
        json!({ "rate": "500/s", "concurrency": 2 }),
        json!({ "concurrency": 1, "circuit": "off", "order": { "key": "/c", "on_failure": "dead" } }),
        json!({ "delay": "100ms" }),
    ];
    for round in 0..ROUNDS {
        let mut spec = settings[round % settings.len()].clone();
        spec["name"] = json!("out");
        spec["url"] = json!(sink.url());
        let body = |n: usize| format!(r#"{{"c":"c-{}","n":{}}}"#, n % 7, round * EACH + n);
        let change = async {
            gateway.put("/destinations/out", &spec).await.expect(200);
            gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
            let request = if round % 2 == 0 { json!({}) } else { json!({ "rate": "2000/s" }) };
            gateway.post("/destinations/out/resume", &request).await.expect(200);
        };
        tokio::join!(send_all(&gateway, (0..EACH).map(body).collect()), change);
    }
    wait_for_count(&gateway, "succeeded", ROUNDS * EACH).await;
    assert_each_arrived_once(&sink.requests(), ROUNDS * EACH);
}

#[tokio::test]
async fn heavy_retry_after_cooldown_survives_kill() {
    let busy = Reply::status(429).header("retry-after", "3600");
    let sink = Sink::with_replies([busy, Reply::status(200)]).await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "concurrency = 1")).await;
    let event = gateway.post_accepted("in", "1").await;
    gateway.wait_for_delivery(&event, "scheduled").await;
    let cooling_until = gateway.destination_state("out").await["cooling_until"].clone();
    assert!(cooling_until.is_string(), "{cooling_until}");
    let next = gateway.post_accepted("in", "2").await;
    // Pausing and resuming saves the whole lane state, including the cooldown.
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    gateway.kill9();
    gateway.restart().await;

    assert_eq!(gateway.destination_state("out").await["cooling_until"], cooling_until);
    let later = gateway.post_accepted("in", "3").await;
    for waiting in [&next, &later] {
        assert_eq!(gateway.event(waiting).await["deliveries"][0]["attempts"], 0);
    }
    assert_eq!(sink.count(), 1);
    // A manual resume ends the cooldown.
    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);
    for waiting in [&next, &later] {
        gateway.wait_for_delivery(waiting, "succeeded").await;
    }
}

#[tokio::test]
async fn heavy_deliveries_to_deleted_destination_are_cancelled_across_restart() {
    const MANY: usize = 5_000;
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    send_all(&gateway, (0..MANY).map(|number| format!("{{\"n\":{number}}}")).collect()).await;
    // The settings file would create the destination again at the next start.
    std::fs::write(gateway.folder().join("surehook.toml"), "").unwrap();

    gateway.delete("/destinations/out").await.expect(204);
    gateway.restart().await;

    wait_for_count(&gateway, "cancelled", MANY).await;
    let by_status = gateway.stats().await["by_status"].clone();
    let counted: u64 = by_status.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(counted, u64::try_from(MANY).unwrap(), "{by_status}");
    assert_eq!(sink.count(), 0);
}
