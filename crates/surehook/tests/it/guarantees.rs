//! The guarantees of the README, each as an end-to-end test.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::Value;
use tokio::{sync::Barrier, task::JoinSet};

use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, route_settings},
    millis,
    sink::{ArrivalsByRun, Reply, Sink},
};

/// Status and id of the first event in a 200 response.
fn status_and_id(response: &Value) -> (String, String) {
    let event = &response["events"][0];
    (event["status"].as_str().unwrap().to_owned(), event["id"].as_str().unwrap().to_owned())
}

/// Sends every key from every client at the same instant; returns the responses by key.
async fn send_concurrently(
    url: String,
    clients: usize,
    keys: usize,
) -> HashMap<usize, Vec<(String, String)>> {
    let start = Arc::new(Barrier::new(clients));
    let mut racing = JoinSet::new();
    for _ in 0..clients {
        let (start, url, client) = (Arc::clone(&start), url.clone(), Client::new());
        racing.spawn(async move {
            let mut responses = Vec::with_capacity(keys);
            for key in 0..keys {
                // All clients start each key together, so its duplicates meet in the same commit.
                start.wait().await;
                let body = format!(r#"{{"id":"key-{key}"}}"#);
                let response = client.send(Method::POST, &url, &[], body).await.unwrap();
                responses.push((key, status_and_id(&response.expect(200).json())));
            }
            responses
        });
    }
    let mut by_key: HashMap<usize, Vec<(String, String)>> = HashMap::new();
    for (key, response) in racing.join_all().await.into_iter().flatten() {
        by_key.entry(key).or_default().push(response);
    }
    by_key
}

#[tokio::test]
async fn concurrent_duplicates_of_a_key_are_accepted_once_across_restart() {
    const CLIENTS: usize = 50;
    const KEYS: usize = 200;
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;

    let first = send_concurrently(gateway.url("/in/in"), CLIENTS, KEYS).await;
    // A graceful stop: a kill could lose the count of the last duplicate sightings.
    gateway.terminate().await;
    gateway.restart().await;
    let second = send_concurrently(gateway.url("/in/in"), 5, KEYS).await;

    assert_eq!((first.len(), second.len()), (KEYS, KEYS));
    let mut originals = HashSet::new();
    for (key, responses) in &first {
        let accepted = responses.iter().filter(|(status, _)| status == "accepted").count();
        let ids: HashSet<&String> = responses.iter().map(|(_, id)| id).collect();
        assert_eq!(
            (responses.len(), accepted, ids.len()),
            (CLIENTS, 1, 1),
            "key {key}: {responses:?}"
        );
        assert!(second[key].iter().all(|(status, id)| status == "duplicate" && ids.contains(id)));
        originals.extend(ids);
    }
    assert_eq!(originals.len(), KEYS);
    // Duplicate sightings are counted shortly after the responses.
    let sightings = CLIENTS * KEYS - KEYS + 5 * KEYS;
    eventually(WAIT_LIMIT, || async {
        let stats = gateway.stats().await;
        assert_eq!(stats["total"], KEYS);
        (stats["duplicates"] == sightings && stats["by_status"]["succeeded"] == KEYS).then_some(())
    })
    .await;
    let arrived: Vec<_> = sink.requests().iter().map(|arrival| arrival.id().to_owned()).collect();
    assert_eq!(arrived.iter().collect::<HashSet<_>>(), originals);
}

/// Senders that behave like providers: each sends an event until it is answered with 200, then the next.
pub(crate) struct Senders {
    address: Arc<Mutex<String>>,
    answered_ids: Arc<Mutex<HashMap<String, HashSet<String>>>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Senders {
    pub(crate) fn start(count: usize, url: String) -> Self {
        let mut senders = Self {
            address: Arc::new(Mutex::new(url)),
            answered_ids: Arc::default(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
        };
        for sender in 0..count {
            let (address, answered_ids) =
                (Arc::clone(&senders.address), Arc::clone(&senders.answered_ids));
            let stop = Arc::clone(&senders.stop);
            senders.tasks.spawn(async move {
                let client = Client::new();
                for number in 0.. {
                    let key = format!("sender-{sender}-{number}");
                    let body = format!(r#"{{"id":"{key}"}}"#);
                    let id = loop {
                        let url = address.lock().unwrap().clone();
                        let response = client.send(Method::POST, &url, &[], body.clone()).await;
                        // The connection failed or broke: the gateway is being restarted.
                        if let Ok(response) = response {
                            break status_and_id(&response.expect(200).json()).1;
                        }
                        tokio::task::yield_now().await;
                    };
                    answered_ids.lock().unwrap().entry(key).or_default().insert(id);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        senders
    }

    /// Sets the new address after a restart of the gateway.
    pub(crate) fn set_address(&self, url: String) {
        *self.address.lock().unwrap() = url;
    }

    pub(crate) fn answers(&self) -> usize {
        self.answered_ids.lock().unwrap().len()
    }

    pub(crate) async fn answered(&self, count: usize) {
        eventually(WAIT_LIMIT, || async { (self.answers() >= count).then_some(()) }).await;
    }

    /// Stops after the current event of each sender; returns the ids answered for each key.
    pub(crate) async fn finish(mut self) -> HashMap<String, HashSet<String>> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.answered_ids.lock().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_twenty_kills_lose_no_event_and_repeat_no_recorded_delivery() {
    const KILLS: usize = 20;
    let sink = Sink::ok().await;
    let mut arrivals = ArrivalsByRun::default();
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let senders = Senders::start(16, gateway.url("/in/in"));

    for _ in 0..KILLS {
        senders.answered(senders.answers() + 60).await;
        gateway.kill9();
        sink.wait_until_disconnected().await;
        arrivals.end_run(&sink);
        gateway.restart().await;
        senders.set_address(gateway.url("/in/in"));
    }
    let answered_ids = senders.finish().await;

    // Every 200 named one event for its key, and that event is stored and delivered.
    let all_succeeded = |stats: &Value| stats["by_status"]["succeeded"] == stats["total"];
    let stats = gateway.wait_for_stats(WAIT_LIMIT, all_succeeded).await;
    let mut known = HashSet::new();
    for (key, ids) in &answered_ids {
        assert_eq!(ids.len(), 1, "{key} was answered with {ids:?}");
        known.extend(ids.iter().cloned());
    }
    assert_eq!(stats["total"], known.len(), "exactly one event for each key");
    for id in &known {
        let event = gateway.event(id).await;
        assert_eq!(event["deliveries"][0]["status"], "succeeded", "{event}");
        assert_eq!(event["deliveries"][0]["attempts"], 1, "{event}");
    }
    arrivals.end_run(&sink);
    arrivals.assert_none_repeated_in_one_run();
    assert_eq!(arrivals.events(), known);
}

#[tokio::test]
async fn recovering_destination_is_retried_on_policy_schedule() {
    let sink =
        Sink::with_replies([Reply::status(500), Reply::status(503), Reply::status(200)]).await;
    // `short` waits 1 s and doubles it each time, with 10 % jitter.
    let gateway = Gateway::start_with(&route_settings(&sink.url(), r#"retry = "short""#)).await;

    let event = gateway.post_accepted("in", "{}").await;

    for (attempts, low, high) in [(1, 900, 1100), (2, 1800, 2200)] {
        let scheduled = eventually(WAIT_LIMIT, || async {
            let id =
                gateway.event(&event).await["deliveries"][0]["id"].as_str().unwrap().to_owned();
            let delivery = gateway.get(&format!("/deliveries/{id}")).await.expect(200).json();
            (delivery["attempts"] == attempts && delivery["status"] == "scheduled")
                .then_some(delivery)
        })
        .await;
        let attempt = scheduled["attempt_list"].as_array().unwrap().last().unwrap();
        let ended = millis(&attempt["started_at"]) + attempt["duration_ms"].as_i64().unwrap();
        let waits = millis(&scheduled["due_at"]) - ended;
        // Start and duration of an attempt are rounded down to a millisecond.
        assert!((low..=high + 2).contains(&waits), "waits {waits} ms after attempt {attempts}");
    }
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    assert_eq!(delivery["attempts"], 3);
    let started: Vec<i64> = delivery["attempt_list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| millis(&attempt["started_at"]))
        .collect();
    assert!(started[1] - started[0] >= 900, "{started:?}");
    assert!(started[2] - started[1] >= 1800, "{started:?}");
    assert_eq!(sink.requests().len(), 3);
}

#[tokio::test]
async fn retry_after_cools_down_lane_and_loses_nothing() {
    const EVENTS: usize = 20;
    let sink =
        Sink::with_replies([Reply::status(429).header("retry-after", "2"), Reply::status(200)])
            .await;
    // One attempt at a time, so nothing else is in flight when the destination answers 429.
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "concurrency = 1")).await;

    for number in 0..EVENTS {
        gateway.post_accepted("in", format!(r#"{{"id":"{number}"}}"#)).await;
    }

    let arrivals = sink.wait_for_requests(EVENTS + 1).await;
    let pause = arrivals[1].at - arrivals[0].at;
    assert!(pause >= Duration::from_secs(2), "the whole lane must wait; it waited {pause:?}");
    gateway.wait_for_count("succeeded", EVENTS).await;
    let ids: HashSet<String> = arrivals.iter().map(|arrival| arrival.id().to_owned()).collect();
    assert_eq!((arrivals.len(), ids.len()), (EVENTS + 1, EVENTS));
}

#[tokio::test]
async fn hanging_destination_does_not_delay_others() {
    const EVENTS: usize = 200;
    let (hanging, healthy) = (Sink::with_replies([Reply::Hang]).await, Sink::ok().await);
    let settings = format!(
        r#"{}
        [[destinations]]
        name = "hanging"
        url = "{}"
        concurrency = 2

        [[routes]]
        from = "in"
        to = "hanging"
        "#,
        route_settings(&healthy.url(), "concurrency = 4"),
        hanging.url()
    );
    let gateway = Gateway::start_with(&settings).await;

    for number in 0..EVENTS {
        gateway.post_accepted("in", format!(r#"{{"id":"{number}"}}"#)).await;
    }

    healthy.wait_for_requests(EVENTS).await;
    gateway.wait_for_count("succeeded", EVENTS).await;
    assert_eq!(hanging.requests().len(), 2, "its concurrency");
}
