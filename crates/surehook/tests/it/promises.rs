//! The promises of the README, each as a story that would fail if it were false.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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
    sink::{Reply, Sink},
};

/// The word and the id that a 200 gave for one event.
fn verdict(answer: &Value) -> (String, String) {
    let event = &answer["events"][0];
    (event["status"].as_str().unwrap().to_owned(), event["id"].as_str().unwrap().to_owned())
}

/// Every key from every client at the same instant; gives back what each copy was told.
async fn race(url: String, clients: usize, keys: usize) -> HashMap<usize, Vec<(String, String)>> {
    let start = Arc::new(Barrier::new(clients));
    let mut racing = JoinSet::new();
    for _ in 0..clients {
        let (start, url, client) = (Arc::clone(&start), url.clone(), Client::new());
        racing.spawn(async move {
            let mut told = Vec::with_capacity(keys);
            for key in 0..keys {
                // All clients begin each key together, so its copies meet in the same commit.
                start.wait().await;
                let body = format!(r#"{{"id":"key-{key}"}}"#);
                let answer = client.send(Method::POST, &url, &[], body).await.unwrap();
                told.push((key, verdict(&answer.expect(200).json())));
            }
            told
        });
    }
    let mut by_key: HashMap<usize, Vec<(String, String)>> = HashMap::new();
    for (key, told) in racing.join_all().await.into_iter().flatten() {
        by_key.entry(key).or_default().push(told);
    }
    by_key
}

#[tokio::test]
async fn of_all_copies_of_a_key_exactly_one_is_accepted_also_across_a_restart() {
    const CLIENTS: usize = 50;
    const KEYS: usize = 200;
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;

    let first = race(gateway.url("/in/in"), CLIENTS, KEYS).await;
    // In order: what a kill may take with it is the count of the last sightings, no more.
    gateway.terminate().await;
    gateway.restart().await;
    let second = race(gateway.url("/in/in"), 5, KEYS).await;

    assert_eq!((first.len(), second.len()), (KEYS, KEYS));
    let mut originals = HashSet::new();
    for (key, told) in &first {
        let accepted = told.iter().filter(|(word, _)| word == "accepted").count();
        let ids: HashSet<&String> = told.iter().map(|(_, id)| id).collect();
        assert_eq!((told.len(), accepted, ids.len()), (CLIENTS, 1, 1), "key {key}: {told:?}");
        assert!(second[key].iter().all(|(word, id)| word == "duplicate" && ids.contains(id)));
        originals.extend(ids);
    }
    assert_eq!(originals.len(), KEYS);
    // The count of sightings may follow the answers by a moment.
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

/// Senders as providers are: each goes on to the next event only once it was told 200.
pub(crate) struct Senders {
    address: Arc<Mutex<String>>,
    told: Arc<Mutex<HashMap<String, HashSet<String>>>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Senders {
    pub(crate) fn start(count: usize, url: String) -> Self {
        let mut senders = Self {
            address: Arc::new(Mutex::new(url)),
            told: Arc::default(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
        };
        for sender in 0..count {
            let (address, told) = (Arc::clone(&senders.address), Arc::clone(&senders.told));
            let stop = Arc::clone(&senders.stop);
            senders.tasks.spawn(async move {
                let client = Client::new();
                for number in 0.. {
                    let key = format!("sender-{sender}-{number}");
                    let body = format!(r#"{{"id":"{key}"}}"#);
                    let id = loop {
                        let url = address.lock().unwrap().clone();
                        let answer = client.send(Method::POST, &url, &[], body.clone()).await;
                        // Cut off, or nobody listens: the gateway is dead at the moment.
                        if let Ok(answer) = answer {
                            break verdict(&answer.expect(200).json()).1;
                        }
                        tokio::task::yield_now().await;
                    };
                    told.lock().unwrap().entry(key).or_default().insert(id);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        senders
    }

    /// The gateway listens here now.
    pub(crate) fn moved(&self, url: String) {
        *self.address.lock().unwrap() = url;
    }

    fn answers(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    async fn answered(&self, count: usize) {
        eventually(WAIT_LIMIT, || async { (self.answers() >= count).then_some(()) }).await;
    }

    /// Lets everybody finish the event at hand.
    pub(crate) async fn finish(mut self) -> HashMap<String, HashSet<String>> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_twenty_kills_lose_no_answer_and_repeat_no_recorded_delivery() {
    const KILLS: usize = 20;
    // Which life of the gateway each arrival belongs to.
    let life = Arc::new(AtomicUsize::new(0));
    let lives: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
    let sink = Sink::with_script({
        let (life, lives) = (Arc::clone(&life), Arc::clone(&lives));
        move |_, arrival| {
            lives.lock().unwrap().push((arrival.id().to_owned(), life.load(Ordering::SeqCst)));
            Reply::status(200)
        }
    })
    .await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let senders = Senders::start(16, gateway.url("/in/in"));

    for _ in 0..KILLS {
        senders.answered(senders.answers() + 60).await;
        gateway.kill9();
        sink.wait_until_disconnected().await;
        life.fetch_add(1, Ordering::SeqCst);
        gateway.restart().await;
        senders.moved(gateway.url("/in/in"));
    }
    let told = senders.finish().await;

    // Every 200 named one event for its key, and that event is there and delivered.
    let stats = eventually(WAIT_LIMIT, || async {
        let stats = gateway.stats().await;
        (stats["by_status"]["succeeded"] == stats["total"]).then_some(stats)
    })
    .await;
    let mut known = HashSet::new();
    for (key, ids) in &told {
        assert_eq!(ids.len(), 1, "{key} was told {ids:?}");
        known.extend(ids.iter().cloned());
    }
    assert_eq!(stats["total"], known.len(), "one event for each key, and no other");
    for id in &known {
        let event = gateway.event(id).await;
        assert_eq!(event["deliveries"][0]["status"], "succeeded", "{event}");
        assert_eq!(event["deliveries"][0]["attempts"], 1, "{event}");
    }
    // An event comes a second time only if a kill came before its result was written down.
    let arrivals = lives.lock().unwrap().clone();
    let each: HashSet<(String, usize)> = arrivals.iter().cloned().collect();
    assert_eq!(each.len(), arrivals.len(), "an event came twice in one life");
    let arrived: HashSet<String> = arrivals.into_iter().map(|(id, _)| id).collect();
    assert_eq!(arrived, known);
}

#[tokio::test]
async fn a_destination_that_recovers_is_tried_at_the_times_of_its_policy() {
    let sink =
        Sink::with_replies([Reply::status(500), Reply::status(503), Reply::status(200)]).await;
    // `short`: 1 s doubled each time, give or take a tenth.
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
        let ended = millis(&attempt["started_at"]) + attempt["took_ms"].as_i64().unwrap();
        let waits = millis(&scheduled["due_at"]) - ended;
        // The end is rounded down to a millisecond, and so is the time it took.
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
async fn one_that_asks_for_patience_gets_it_and_loses_nothing() {
    const EVENTS: usize = 20;
    let sink =
        Sink::with_replies([Reply::status(429).header("retry-after", "2"), Reply::status(200)])
            .await;
    // One at a time, so that nothing else is under way when the destination asks.
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "concurrency = 1")).await;

    for number in 0..EVENTS {
        gateway.post_accepted("in", format!(r#"{{"id":"{number}"}}"#)).await;
    }

    let arrivals = sink.wait_for_requests(EVENTS + 1).await;
    let pause = arrivals[1].at - arrivals[0].at;
    assert!(pause >= Duration::from_secs(2), "the whole lane waits; it waited {pause:?}");
    eventually(WAIT_LIMIT, || async {
        let stats = gateway.stats().await;
        (stats["by_status"]["succeeded"] == EVENTS).then_some(())
    })
    .await;
    let ids: HashSet<String> = arrivals.iter().map(|arrival| arrival.id().to_owned()).collect();
    assert_eq!((arrivals.len(), ids.len()), (EVENTS + 1, EVENTS));
}

#[tokio::test]
async fn one_that_hangs_holds_up_nobody_else() {
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
    eventually(WAIT_LIMIT, || async {
        let stats = gateway.stats().await;
        (stats["by_status"]["succeeded"] == EVENTS).then_some(())
    })
    .await;
    assert_eq!(hanging.requests().len(), 2, "as many as it may have at a time");
}
