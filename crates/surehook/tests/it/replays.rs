//! Replay jobs: delivering many events again.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    guarantees::Senders,
    support::{
        WAIT_LIMIT,
        client::Client,
        eventually,
        gateway::{Gateway, route_settings},
        sink::{Reply, Sink},
    },
};

/// A destination that answers 400 until `recover` is called.
struct RecoveringDestination {
    sink: Sink,
    healthy: Arc<AtomicBool>,
}

impl RecoveringDestination {
    async fn new() -> Self {
        let healthy = Arc::new(AtomicBool::new(false));
        let is_healthy = Arc::clone(&healthy);
        let sink = Sink::with_script(move |_, _| {
            Reply::status(if is_healthy.load(Ordering::SeqCst) { 200 } else { 400 })
        })
        .await;
        Self { sink, healthy }
    }

    fn recover(&self) {
        self.healthy.store(true, Ordering::SeqCst);
    }
}

/// Sends `many` events and waits until all of them are dead; returns their ids.
async fn dead_letters(gateway: &Gateway, many: usize) -> Vec<String> {
    let mut events = Vec::new();
    for number in 0..many {
        events.push(gateway.post_accepted("in", format!(r#"{{"id":"dead-{number}"}}"#)).await);
    }
    all_dead(gateway, many, WAIT_LIMIT).await;
    events
}

async fn all_dead(gateway: &Gateway, many: usize, timeout: Duration) {
    gateway.wait_for_stats(timeout, |stats| stats["by_status"]["dead"] == many).await;
}

async fn job(gateway: &Gateway, id: &str) -> Value {
    let job = gateway.get(&format!("/replays/{id}")).await.expect(200).json();
    adds_up(&job);
    job
}

/// The counts of a report add up, in total and for each destination.
#[track_caller]
fn adds_up(job: &Value) {
    let parts = job["destinations"].as_object().unwrap().values();
    for part in parts.chain([job]) {
        let number = |name: &str| part[name].as_u64().unwrap();
        let sum: u64 = ["succeeded", "dead", "cancelled", "skipped", "waiting", "left"]
            .map(number)
            .iter()
            .sum();
        assert_eq!(sum, number("selected"), "{job}");
    }
}

async fn create(gateway: &Gateway, request: Value) -> String {
    let created = gateway.post("/replays", &request).await.expect(202).json();
    created["id"].as_str().unwrap().to_owned()
}

/// Waits until a job is in this state.
async fn wait_for_job(gateway: &Gateway, id: &str, state: &str) -> Value {
    eventually(WAIT_LIMIT, || async {
        let job = job(gateway, id).await;
        (job["state"] == state).then_some(job)
    })
    .await
}

#[tokio::test]
async fn retry_failed_job_delivers_dead_letters() {
    const EVENTS: usize = 20;
    let destination = RecoveringDestination::new().await;
    let gateway = Gateway::start_with(&route_settings(&destination.sink.url(), "")).await;
    let events = dead_letters(&gateway, EVENTS).await;
    destination.recover();
    let request = json!({ "verb": "retry_failed", "filter": { "code": "4xx" }, "rate": "500/s" });

    let mut dry = request.clone();
    dry["dry_run"] = json!(true);
    let preview = gateway.post("/replays", &dry).await.expect(200).json();
    assert_eq!((&preview["count"], &preview["complete"]), (&json!(EVENTS), &json!(true)));
    assert_eq!(preview["by_destination"], json!({ "out": EVENTS }));
    assert_eq!(preview["estimate_seconds"], 1.0);
    assert_eq!(gateway.get("/replays").await.expect(200).json()["data"], json!([]));

    let id = create(&gateway, request).await;
    let done = wait_for_job(&gateway, &id, "done").await;

    assert_eq!((&done["selected"], &done["succeeded"]), (&json!(EVENTS), &json!(EVENTS)));
    assert_eq!(done["filter"], json!({ "code": "4xx" }));
    let mut arrivals: HashMap<String, usize> = HashMap::new();
    for arrival in destination.sink.requests() {
        *arrivals.entry(arrival.id().to_owned()).or_default() += 1;
    }
    // The replay uses the same id as the first delivery.
    assert_eq!(arrivals, events.iter().map(|event| (event.clone(), 2)).collect());
    assert_eq!(gateway.stats().await["dlq_size"], 0);
    let metrics = gateway.metrics().await;
    let counted = format!(r#"surehook_replay_events_total{{outcome="succeeded"}} {EVENTS}"#);
    assert!(metrics.contains(&counted), "{metrics}");
    assert!(metrics.contains(r#"surehook_replay_jobs{state="running"} 0"#), "{metrics}");
}

#[tokio::test]
async fn reprocessed_dead_letters_can_fail_again() {
    let destination = RecoveringDestination::new().await;
    let gateway = Gateway::start_with(&route_settings(&destination.sink.url(), "")).await;
    dead_letters(&gateway, 3).await;

    let request = json!({ "filter": { "reason": "payload_error" }, "note": "once more" });
    let created = gateway.post("/dead-letters/reprocess", &request).await.expect(202).json();

    assert_eq!((&created["verb"], &created["note"]), (&json!("retry_failed"), &json!("once more")));
    let done = wait_for_job(&gateway, created["id"].as_str().unwrap(), "done").await;
    assert_eq!((&done["dead"], &done["succeeded"]), (&json!(3), &json!(0)));
    assert_eq!(gateway.stats().await["dlq_size"], 3);
}

#[tokio::test]
async fn send_missing_job_delivers_past_events_to_new_destination() {
    let (first, second) = (Sink::ok().await, Sink::ok().await);
    let gateway = Gateway::start_with(&route_settings(&first.url(), "")).await;
    let mut events = HashSet::new();
    for number in 0..5 {
        events.insert(gateway.post_accepted("in", format!(r#"{{"id":"{number}"}}"#)).await);
    }
    let new = json!({ "name": "new", "url": second.url() });
    gateway.post("/destinations", &new).await.expect(201);
    let request = json!({ "verb": "send_missing", "to": "new", "filter": { "source": "in" } });

    let id = create(&gateway, request.clone()).await;
    let done = wait_for_job(&gateway, &id, "done").await;

    assert_eq!((&done["succeeded"], &done["to"]), (&json!(5), &json!("new")));
    let arrived: Vec<String> =
        second.requests().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(arrived.len(), 5);
    assert_eq!(arrived.into_iter().collect::<HashSet<_>>(), events);
    let again = create(&gateway, request).await;
    assert_eq!(wait_for_job(&gateway, &again, "done").await["selected"], 0);
    assert_eq!(first.requests().len(), 5);
}

#[tokio::test]
async fn replay_job_can_be_paused_resumed_and_cancelled() {
    let destination = RecoveringDestination::new().await;
    let gateway = Gateway::start_with(&route_settings(&destination.sink.url(), "")).await;
    dead_letters(&gateway, 10).await;
    destination.recover();
    // So slow that most deliveries are still waiting during the whole test.
    let id = create(&gateway, json!({ "verb": "force_resend", "rate": "1/m" })).await;
    eventually(WAIT_LIMIT, || async { (job(&gateway, &id).await["succeeded"] == 1).then_some(()) })
        .await;
    let change = |what: &str| {
        let path = format!("/replays/{id}/{what}");
        let gateway = &gateway;
        async move { gateway.post(&path, &json!({})).await }
    };

    assert_eq!(change("pause").await.expect(200).json()["state"], "paused");
    // Pausing again returns the same state.
    assert_eq!(change("pause").await.expect(200).json()["state"], "paused");
    change("resume").await.expect(200);
    wait_for_job(&gateway, &id, "running").await;

    // A second job that could select the same deliveries is rejected while the first one is running.
    let refused = gateway.post("/replays", &json!({ "verb": "retry_failed" })).await.expect(409);
    assert_eq!(refused.code(), "replay_overlaps");
    assert!(refused.detail().contains(&id), "{}", refused.detail());

    let cancelled = change("cancel").await.expect(200).json();
    adds_up(&cancelled);
    assert_eq!(cancelled["state"], "cancelled");
    assert!(cancelled["left"].as_u64().unwrap() >= 8, "{cancelled}");
    assert_eq!(change("cancel").await.expect(200).json()["state"], "cancelled");
    let refused = change("resume").await.expect(409);
    assert_eq!(refused.code(), "replay_state");
    assert!(refused.detail().contains("cancelled"), "{}", refused.detail());
    create(&gateway, json!({ "verb": "retry_failed", "rate": "1000/s" })).await;
}

#[tokio::test]
async fn invalid_replay_request_is_rejected_with_reason() {
    let gateway = Gateway::start_with(&route_settings("https://example.com/hook", "")).await;
    for (request, named) in [
        (json!({}), "verb"),
        (json!({ "verb": "undo" }), "undo"),
        (json!({ "verb": "retry_failed", "filter": { "colour": 1 } }), "colour"),
        // Must not be read as a filter that matches everything.
        (json!({ "verb": "retry_failed", "filter": [] }), "object"),
        (json!({ "verb": "retry_failed", "filter": { "source": "absent" } }), "absent"),
        (json!({ "verb": "retry_failed", "filter": { "destination": "nowhere" } }), "nowhere"),
        (json!({ "verb": "retry_failed", "filter": { "code": 99 } }), "503"),
        (json!({ "verb": "retry_failed", "filter": { "since": "yesterday" } }), "2026-11-15"),
        (json!({ "verb": "retry_failed", "rate": "1001/s" }), "1000/s"),
        (json!({ "verb": "retry_failed", "to": "out" }), "send_missing"),
        (json!({ "verb": "send_missing" }), "`to`"),
        (json!({ "verb": "send_missing", "to": "out", "filter": { "status": "dead" } }), "status"),
        (json!({ "verb": "retry_failed", "filter": { "status": "pending" } }), "dead"),
    ] {
        let refused = gateway.post("/replays", &request).await.expect(422);
        assert_eq!(refused.code(), "invalid", "{request}");
        assert!(refused.detail().contains(named), "{request}: {}", refused.detail());
    }
    for path in ["/replays/rpl_01h455vb4pex5vsknk084sn02q", "/replays/x"] {
        gateway.get(path).await.expect(404);
        gateway.post(&format!("{path}/pause"), &json!({})).await.expect(404);
    }
}

#[tokio::test]
async fn hanging_destination_gets_bounded_share_of_replay_job() {
    const BOUND: u64 = 200;
    let mode = Arc::new(AtomicUsize::new(400));
    let (sink, switch) = {
        let mode = Arc::clone(&mode);
        let switch = Arc::clone(&mode);
        let sink = Sink::with_script(move |_, arrival| match mode.load(Ordering::SeqCst) {
            // Live traffic is answered while the job's deliveries hang.
            0 if !arrival.body.starts_with(b"{\"id\":\"live") => Reply::Hang,
            0 => Reply::status(200),
            status => Reply::status(u16::try_from(status).unwrap()),
        })
        .await;
        (sink, switch)
    };
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "concurrency = 250")).await;
    dead_letters(&gateway, 300).await;
    switch.store(0, Ordering::SeqCst);

    let id = create(&gateway, json!({ "verb": "retry_failed", "rate": "1000/s" })).await;
    eventually(WAIT_LIMIT, || async {
        let dispatched = job(&gateway, &id).await["dispatched"].as_u64().unwrap();
        assert!(dispatched <= BOUND, "{dispatched}");
        (dispatched == BOUND).then_some(())
    })
    .await;

    // New events do not wait behind the rest of the job.
    let live = gateway.post_accepted("in", r#"{"id":"live"}"#).await;
    gateway.wait_for_delivery(&live, "succeeded").await;
    let held = job(&gateway, &id).await;
    assert_eq!((&held["dispatched"], &held["waiting"]), (&json!(BOUND), &json!(300)));
}

#[tokio::test]
async fn cli_previews_confirms_and_follows_replay_job() {
    let destination = RecoveringDestination::new().await;
    let gateway = Gateway::start_with(&route_settings(&destination.sink.url(), "")).await;
    dead_letters(&gateway, 4).await;

    let unconfirmed = gateway.cli(&["dlq", "replay"]).await;
    assert_eq!(unconfirmed.code, Some(5), "{unconfirmed:?}");
    assert!(
        unconfirmed.stderr.contains("4 to replay") && unconfirmed.stderr.contains("--yes"),
        "{unconfirmed:?}"
    );
    let dry = gateway.cli(&["dlq", "replay", "--dry-run", "--json", "--code", "4xx"]).await;
    let preview: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!((dry.code, &preview["count"]), (Some(0), &json!(4)));
    let nothing = gateway.cli(&["dlq", "replay", "--code", "5xx"]).await;
    assert_eq!(nothing.code, Some(0), "{nothing:?}");
    assert!(nothing.stdout.contains("Nothing to replay"), "{nothing:?}");
    assert_eq!(gateway.stats().await["dlq_size"], 4, "nothing has been replayed yet");

    let again = gateway.cli(&["dlq", "replay", "--yes", "--since", "1h"]).await;
    assert_eq!(again.code, Some(7), "{again:?}");
    assert!(again.stderr.contains("4 of 4 deliveries failed again"), "{again:?}");

    destination.recover();
    let args = ["replay", "create", "--yes", "--json", "--destination", "out", "--note", "fixed"];
    let healed = gateway.cli(&args).await;
    assert_eq!(healed.code, Some(0), "{healed:?}");
    let last: Value = serde_json::from_str(healed.stdout.lines().last().unwrap()).unwrap();
    adds_up(&last);
    assert_eq!((&last["state"], &last["succeeded"]), (&json!("done"), &json!(4)));

    let list = gateway.cli(&["replay", "list"]).await;
    assert!(list.stdout.contains("retry_failed") && list.stdout.contains("done"), "{list:?}");
    let id = last["id"].as_str().unwrap();
    let shown = gateway.cli(&["replay", "show", id]).await;
    assert!(shown.stdout.contains("fixed"), "{shown:?}");
    assert_eq!(gateway.cli(&["replay", "watch", id]).await.code, Some(0));
    assert_eq!(gateway.cli(&["replay", "pause", id]).await.code, Some(5));

    let args = ["replay", "create", "--verb", "force-resend", "--rate", "1/m", "--yes", "--detach"];
    let detached = gateway.cli(&args).await;
    assert_eq!(detached.code, Some(0), "{detached:?}");
    let id = detached.stdout.split_whitespace().next().unwrap();
    assert_eq!(gateway.cli(&["replay", "pause", id]).await.code, Some(0));
    assert_eq!(gateway.cli(&["replay", "resume", id]).await.code, Some(0));
    let cancelled = gateway.cli(&["replay", "cancel", id, "--json"]).await;
    assert!(cancelled.stdout.contains(r#""state":"cancelled""#), "{cancelled:?}");
}

/// Creates many dead letters with several clients.
async fn many_dead_letters(gateway: &Gateway, many: usize) {
    const CLIENTS: usize = 16;
    let mut sending = JoinSet::new();
    for sender in 0..CLIENTS {
        let (url, client) = (gateway.url("/in/in"), Client::new());
        sending.spawn(async move {
            for number in (sender..many).step_by(CLIENTS) {
                let body = format!(r#"{{"id":"dead-{number}"}}"#);
                client.send(Method::POST, &url, &[], body).await.unwrap().expect(200);
            }
        });
    }
    sending.join_all().await;
    all_dead(gateway, many, Duration::from_secs(180)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_ten_kills_during_replay_job_lose_and_repeat_nothing() {
    const EVENTS: usize = 20_000;
    const KILLS: usize = 10;
    const CONCURRENCY: usize = 32;
    // The run of the gateway in which each event of the job arrived.
    let (healthy, run) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let arrivals_by_run: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
    let sink = Sink::with_script({
        let (healthy, run, arrivals_by_run) =
            (Arc::clone(&healthy), Arc::clone(&run), Arc::clone(&arrivals_by_run));
        move |_, arrival| {
            if !arrival.body.starts_with(b"{\"id\":\"dead") {
                return Reply::status(200);
            }
            if !healthy.load(Ordering::SeqCst) {
                return Reply::status(400);
            }
            arrivals_by_run
                .lock()
                .unwrap()
                .push((arrival.id().to_owned(), run.load(Ordering::SeqCst)));
            Reply::status(200)
        }
    })
    .await;
    let settings = route_settings(&sink.url(), &format!("concurrency = {CONCURRENCY}"));
    let mut gateway = Gateway::start_with(&settings).await;
    many_dead_letters(&gateway, EVENTS).await;
    healthy.store(true, Ordering::SeqCst);

    let senders = Senders::start(2, gateway.url("/in/in"));
    let id = create(&gateway, json!({ "verb": "retry_failed", "rate": "1000/s" })).await;
    for kill in 0..KILLS {
        // The first kill comes during selection, the others are spread over the deliveries.
        let arrived = kill * EVENTS / KILLS;
        eventually(Duration::from_secs(120), || async {
            (arrivals_by_run.lock().unwrap().len() >= arrived).then_some(())
        })
        .await;
        gateway.kill9();
        sink.wait_until_disconnected().await;
        run.fetch_add(1, Ordering::SeqCst);
        gateway.restart().await;
        senders.set_address(gateway.url("/in/in"));
        // The report adds up at any time.
        job(&gateway, &id).await;
    }
    let done = eventually(Duration::from_secs(120), || async {
        let job = job(&gateway, &id).await;
        (job["state"] == "done").then_some(job)
    })
    .await;
    let live = senders.finish().await.len();

    assert_eq!((&done["selected"], &done["succeeded"]), (&json!(EVENTS), &json!(EVENTS)), "{done}");
    assert_eq!((&done["skipped"], &done["dead"]), (&json!(0), &json!(0)), "{done}");
    // Exactly one new delivery for each dead letter.
    eventually(WAIT_LIMIT, || async {
        let stats = gateway.stats().await;
        assert_eq!(stats["by_status"]["replayed"], EVENTS);
        (stats["by_status"]["succeeded"] == EVENTS + live).then_some(())
    })
    .await;
    // An event may arrive again only if a kill came before its result was recorded.
    let arrivals = arrivals_by_run.lock().unwrap().clone();
    let each: HashSet<(String, usize)> = arrivals.iter().cloned().collect();
    assert_eq!(each.len(), arrivals.len(), "an event arrived twice in one run");
    let events: HashSet<&String> = arrivals.iter().map(|(event, _)| event).collect();
    assert_eq!(events.len(), EVENTS, "each was delivered");
    // Workers continue while results wait for the disk, so more than `concurrency` may be unrecorded.
    let repeated = arrivals.len() - EVENTS;
    assert!(
        repeated <= KILLS * CONCURRENCY * 4,
        "{repeated} arrived again: more than a lane holds"
    );
}
