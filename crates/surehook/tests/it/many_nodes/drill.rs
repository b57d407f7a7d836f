//! The fault drill: three nodes on a server with a synchronous standby, under load, and one random fault after
//! the other. `scripts/cluster-drill 150` runs more of them.
//!
//! What must hold: nothing that was answered with 200 is lost, no key is called a duplicate that was never
//! sent before, every event is delivered, per ordering key in order; an event is delivered again only where a
//! fault kept its result from being recorded; and 20 s after a fault everything works.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use surehook_test_servers::{DatabaseClient, TestPostgres};
use tokio::task::JoinSet;

use super::database_proxy::{CommitCut, DatabaseProxy};
use crate::support::{
    client::Client,
    eventually,
    gateway::Gateway,
    millis,
    sink::{Reply, Sink},
    tools::faketime_library,
};

const NODES: usize = 3;
const DESTINATIONS: usize = 6;
/// Destinations with even numbers keep the order per key.
const ORDERING_KEYS_PER_SENDER: usize = 2;
const SENDERS: usize = 6;
/// Pause of a sender between two events.
const SEND_PAUSE: Duration = Duration::from_millis(40);
/// A sender gives up and tries another node.
const SEND_TIMEOUT: Duration = Duration::from_secs(3);
/// How long recovery may take before the drill fails; the figures are printed.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
const RECOVERY_TARGET: Duration = Duration::from_secs(20);
/// Beyond the lease of a node, 15 s.
const SUSPENDED: Duration = Duration::from_secs(16);
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillNode,
    SuspendNode,
    KillDatabase,
    PromoteStandby,
    CutCommits,
    SlowNode,
    SkewedClock,
    OldTransaction,
}

/// Often what is quick; each at least once in a short run.
const FAULTS: [Fault; 20] = [
    Fault::CutCommits,
    Fault::KillNode,
    Fault::CutCommits,
    Fault::KillDatabase,
    Fault::OldTransaction,
    Fault::SlowNode,
    Fault::PromoteStandby,
    Fault::CutCommits,
    Fault::SkewedClock,
    Fault::SuspendNode,
    Fault::CutCommits,
    Fault::KillDatabase,
    Fault::SlowNode,
    Fault::CutCommits,
    Fault::CutCommits,
    Fault::KillDatabase,
    Fault::PromoteStandby,
    Fault::CutCommits,
    Fault::SlowNode,
    Fault::OldTransaction,
];

/// A generator of numbers from a seed (`SplitMix64`), so that a run can be repeated.
struct DrillRng(u64);

impl DrillRng {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % below as u64).unwrap()
    }
}

/// What the senders were told.
#[derive(Debug, Default)]
struct AnswerLog {
    /// The event of each key that was answered with 200.
    events: HashMap<String, String>,
    violations: Vec<String>,
    retries: usize,
}

/// Senders that behave like providers: each sends an event until a node answers 200, then the next.
struct DrillSenders {
    urls: Arc<Mutex<Vec<String>>>,
    log: Arc<Mutex<AnswerLog>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl DrillSenders {
    fn start(urls: Vec<String>) -> Self {
        let urls = Arc::new(Mutex::new(urls));
        let mut senders =
            Self { urls, log: Arc::default(), stop: Arc::default(), tasks: JoinSet::new() };
        for sender in 0..SENDERS {
            let (urls, log) = (Arc::clone(&senders.urls), Arc::clone(&senders.log));
            let stop = Arc::clone(&senders.stop);
            senders.tasks.spawn(async move {
                let client = Client::new();
                let mut rng = DrillRng(sender as u64);
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    let key = format!("s{sender}-{number}");
                    let order = format!("s{sender}-{}", number % ORDERING_KEYS_PER_SENDER);
                    let body = format!(r#"{{"id":"{key}","k":"{order}","n":{number}}}"#);
                    let event = send_until_answered(&client, &urls, &log, &mut rng, &body, None);
                    let event = event.await;
                    log.lock().unwrap().events.insert(key, event.clone());
                    if rng.next(10) == 0 {
                        let known = Some(event.as_str());
                        send_until_answered(&client, &urls, &log, &mut rng, &body, known).await;
                    }
                    number += 1;
                    tokio::time::sleep(SEND_PAUSE).await;
                }
            });
        }
        senders
    }

    fn set_url(&self, node: usize, url: String) {
        self.urls.lock().unwrap()[node] = url;
    }

    fn answered(&self) -> usize {
        self.log.lock().unwrap().events.len()
    }

    async fn finish(mut self) -> AnswerLog {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

/// Sends an event to random nodes until one answers 200. `known` is the event of a key that was answered
/// before.
async fn send_until_answered(
    client: &Client,
    urls: &Mutex<Vec<String>>,
    log: &Mutex<AnswerLog>,
    rng: &mut DrillRng,
    body: &str,
    known: Option<&str>,
) -> String {
    let mut is_first = true;
    loop {
        let url = {
            let urls = urls.lock().unwrap();
            urls[rng.next(urls.len())].clone()
        };
        let request = client.send(Method::POST, &url, &[], body.to_owned());
        let answer = tokio::time::timeout(SEND_TIMEOUT, request).await;
        if let Ok(Ok(response)) = answer {
            let mut log = log.lock().unwrap();
            if response.status == 200 {
                let answer = response.json();
                let event = answer["events"][0]["id"].as_str().unwrap().to_owned();
                let status = answer["status"].as_str().unwrap();
                let expected = match known {
                    Some(known) => status == "duplicate" && event == known,
                    None => !is_first || status == "accepted",
                };
                if !expected {
                    log.violations.push(format!("{body}: {answer}, known: {known:?}"));
                }
                return event;
            }
            if response.status != 503 {
                log.violations.push(format!("{body}: {} {}", response.status, response.text()));
            }
        }
        log.lock().unwrap().retries += 1;
        is_first = false;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Two servers, of which one is the primary, and nodes that reach them through proxies.
struct DrillCluster {
    nodes: Vec<Gateway>,
    /// Of each node, one to each server.
    proxies: Vec<[DatabaseProxy; 2]>,
    servers: [Option<TestPostgres>; 2],
    primary: usize,
    standbys_started: usize,
    recoveries: BTreeMap<Fault, Vec<Duration>>,
    probes: usize,
    /// A transaction that is held open.
    old_transaction: Option<DatabaseClient>,
}

impl DrillCluster {
    async fn start(sink_url: &str) -> Option<Self> {
        let primary =
            TestPostgres::start_with(&["max_connections=200", "wal_retrieve_retry_interval=500ms"])
                .await?;
        let standby = primary.start_standby("standby_0").await;
        primary.wait_for_standby(Some("*")).await;
        let mut proxies = Vec::new();
        for _ in 0..NODES {
            proxies.push([
                DatabaseProxy::start(primary.port()).await,
                DatabaseProxy::start(standby.port()).await,
            ]);
        }
        let mut nodes = Vec::new();
        for (number, [one, other]) in proxies.iter().enumerate() {
            let url = format!(
                "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
                one.port(),
                other.port()
            );
            let settings = format!(
                "node_name = \"node-{number}\"\nlog = \"warn\"\n{}",
                drill_settings(sink_url)
            );
            let builder = Gateway::builder().database(&url).settings(&settings);
            nodes.push(
                builder
                    .env("SUREHOOK_POSTGRES__REQUIRE_SYNCHRONOUS_STANDBY", "false")
                    .start()
                    .await,
            );
        }
        Some(Self {
            nodes,
            proxies,
            servers: [Some(primary), Some(standby)],
            primary: 0,
            standbys_started: 1,
            recoveries: BTreeMap::new(),
            probes: 0,
            old_transaction: None,
        })
    }

    fn primary(&self) -> &TestPostgres {
        self.servers[self.primary].as_ref().unwrap()
    }

    /// Sends an event to a node that runs, and waits until all destinations have it.
    async fn wait_until_delivering(&mut self, arrivals: &Arrivals, node: usize) {
        self.probes += 1;
        let body = format!(r#"{{"id":"probe-{0}","k":"probe-{0}","n":0}}"#, self.probes);
        let key = format!("probe-{}", self.probes);
        let url = self.nodes[node].url("/in/in");
        let client = Client::new();
        eventually(RECOVERY_LIMIT, || async {
            let request = client.send(Method::POST, &url, &[], body.clone());
            let answer = tokio::time::timeout(SEND_TIMEOUT, request).await;
            matches!(answer, Ok(Ok(response)) if response.status == 200).then_some(())
        })
        .await;
        eventually(RECOVERY_LIMIT, || async {
            (arrivals.count_probe(&key) >= DESTINATIONS).then_some(())
        })
        .await;
    }

    /// Injects one fault, repairs it, and waits until everything works. Recovery is counted from when the
    /// fault has ended, or for a lost node from when it was lost.
    async fn run_fault(
        &mut self,
        fault: Fault,
        rng: &mut DrillRng,
        arrivals: &Arrivals,
        senders: &DrillSenders,
    ) {
        let began = Instant::now();
        let node = rng.next(NODES);
        let other = (node + 1 + rng.next(NODES - 1)) % NODES;
        let ended = match fault {
            Fault::KillNode => {
                self.nodes[node].kill9();
                began
            }
            Fault::SuspendNode => {
                kill_process(self.nodes[node].pid(), Signal::STOP).unwrap();
                began
            }
            Fault::KillDatabase => {
                let server = self.servers[self.primary].as_mut().unwrap();
                server.kill9();
                server.start_again().await;
                Instant::now()
            }
            Fault::PromoteStandby => {
                self.promote_standby().await;
                Instant::now()
            }
            Fault::CutCommits => {
                let cut = if rng.next(2) == 0 { CommitCut::Before } else { CommitCut::After };
                let proxy = &self.proxies[node][self.primary];
                proxy.cut_commits(cut, 1 + u32::try_from(rng.next(4)).unwrap());
                eventually(RECOVERY_LIMIT, || async { (proxy.cuts_left() == 0).then_some(()) })
                    .await;
                Instant::now()
            }
            Fault::SlowNode => {
                let proxies = &self.proxies[node];
                proxies.iter().for_each(|proxy| proxy.set_delay(Duration::from_millis(150)));
                tokio::time::sleep(Duration::from_secs(3)).await;
                proxies.iter().for_each(|proxy| proxy.set_delay(Duration::ZERO));
                Instant::now()
            }
            Fault::SkewedClock => {
                self.skew_clock(node, rng, senders).await;
                Instant::now()
            }
            Fault::OldTransaction => {
                self.hold_transaction().await;
                Instant::now()
            }
        };
        self.wait_until_delivering(arrivals, other).await;
        let recovery = ended.elapsed();
        self.recoveries.entry(fault).or_default().push(recovery);
        match fault {
            Fault::KillNode => {
                self.nodes[node].restart().await;
                senders.set_url(node, self.nodes[node].url("/in/in"));
            }
            Fault::SuspendNode => {
                tokio::time::sleep(SUSPENDED.saturating_sub(began.elapsed())).await;
                kill_process(self.nodes[node].pid(), Signal::CONT).unwrap();
            }
            Fault::PromoteStandby => self.start_standby().await,
            Fault::KillDatabase => self.primary().wait_for_standby(Some("*")).await,
            Fault::CutCommits | Fault::SlowNode | Fault::SkewedClock | Fault::OldTransaction => {}
        }
        // All nodes work again, also the one that was at fault.
        self.wait_until_delivering(arrivals, node).await;
    }

    async fn promote_standby(&mut self) {
        let standby = 1 - self.primary;
        drop(self.old_transaction.take());
        let mut lost = self.servers[self.primary].take().unwrap();
        lost.kill9();
        drop(lost);
        self.servers[standby].as_ref().unwrap().promote().await;
        self.primary = standby;
    }

    /// A new standby in place of the server that was lost.
    async fn start_standby(&mut self) {
        self.standbys_started += 1;
        let name = format!("standby_{}", self.standbys_started);
        let standby = self.primary().start_standby(&name).await;
        let slot = 1 - self.primary;
        for proxies in &self.proxies {
            proxies[slot].set_target(standby.port());
        }
        self.servers[slot] = Some(standby);
        self.primary().wait_for_standby(Some("*")).await;
    }

    /// Restarts a node with a wrong clock, or with the right one if it had a wrong one.
    async fn skew_clock(&mut self, node: usize, rng: &mut DrillRng, senders: &DrillSenders) {
        let library = faketime_library();
        let gateway = &mut self.nodes[node];
        let is_right = rng.next(3) == 0;
        let skew = ["+40s", "-40s", "+7m", "-7m"][rng.next(4)];
        let (preload, skew) = if is_right { ("", "+0s") } else { (library.as_str(), skew) };
        gateway.set_env("LD_PRELOAD", preload);
        gateway.set_env("FAKETIME", skew);
        gateway.set_env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        assert_eq!(gateway.terminate().await.code(), Some(0), "{}", gateway.log());
        gateway.restart().await;
        senders.set_url(node, gateway.url("/in/in"));
    }

    /// Holds a snapshot open, in place of an earlier one.
    async fn hold_transaction(&mut self) {
        drop(self.old_transaction.take());
        let client = self.primary().client().await;
        let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
        client.batch_execute(hold).await.unwrap();
        self.old_transaction = Some(client);
    }
}

fn drill_settings(url: &str) -> String {
    let mut settings =
        "[[sources]]\nname = \"in\"\nverify = \"none\"\nkeys = [\"pointer:/id\"]\n".to_owned();
    for number in 0..DESTINATIONS {
        let order = if number % 2 == 0 { "order = { key = \"/k\" }" } else { "" };
        settings.push_str(&format!(
            "[[destinations]]\nname = \"out-{number}\"\nurl = \"{url}/{number}\"\ncircuit = \"off\"\n{order}\n\
             [[routes]]\nfrom = \"in\"\nto = \"out-{number}\"\n"
        ));
    }
    settings
}

#[expect(clippy::disallowed_methods, reason = "scripts/cluster-drill sets it")]
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// An event at a destination.
#[derive(Debug)]
struct Arrival {
    event: String,
    destination: usize,
    /// The ordering key, and the number in its order.
    key: String,
    number: i64,
    at_ms: i64,
}

/// Everything that arrived.
struct Arrivals {
    sink: Sink,
    list: Mutex<Vec<Arrival>>,
    /// Probes by name.
    probes: Mutex<HashMap<String, usize>>,
}

impl Arrivals {
    async fn start() -> Self {
        let answer = Reply::status(200).after(Duration::from_millis(5));
        let sink = Sink::with_replies([answer]).await;
        Self { sink, list: Mutex::default(), probes: Mutex::default() }
    }

    /// Keeps of the new requests only what is compared later.
    fn collect(&self) {
        let mut list = self.list.lock().unwrap();
        let (now_ms, now) = (unix_millis(), Instant::now());
        for request in self.sink.take_requests() {
            let age = i64::try_from((now - request.at).as_millis()).unwrap();
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let key = body["k"].as_str().unwrap().to_owned();
            if key.starts_with("probe") {
                *self.probes.lock().unwrap().entry(key.clone()).or_default() += 1;
            }
            list.push(Arrival {
                event: request.id().to_owned(),
                destination: request.path.trim_start_matches('/').parse().unwrap(),
                key,
                number: body["n"].as_i64().unwrap(),
                at_ms: now_ms - age,
            });
        }
    }

    fn count_probe(&self, key: &str) -> usize {
        self.collect();
        self.probes.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    /// When each event arrived at each destination, in order and Unix milliseconds.
    fn by_delivery(&self) -> HashMap<(String, usize), Vec<i64>> {
        self.collect();
        let mut arrivals: HashMap<_, Vec<i64>> = HashMap::new();
        for arrival in self.list.lock().unwrap().iter() {
            let delivery = (arrival.event.clone(), arrival.destination);
            arrivals.entry(delivery).or_default().push(arrival.at_ms);
        }
        arrivals
    }

    /// First arrivals at destinations that keep the order, after a later one of their key.
    fn find_broken_order(&self) -> Vec<String> {
        let (mut newest, mut seen) = (HashMap::new(), HashSet::new());
        let mut broken = Vec::new();
        for arrival in self.list.lock().unwrap().iter() {
            let Arrival { key, destination, number, .. } = arrival;
            if destination % 2 == 1 || !seen.insert((key.clone(), *destination, *number)) {
                continue;
            }
            let newest = newest.entry((key.clone(), *destination)).or_insert(-1);
            if *number < *newest {
                broken.push(format!("{key} at {destination}: {number} after {newest}"));
            }
            *newest = (*newest).max(*number);
        }
        broken
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "the figures are the result of a long drill")]
async fn heavy_random_faults_lose_nothing_and_recover() {
    let faults = usize::try_from(variable("SUREHOOK_CLUSTER_FAULTS").unwrap_or(20)).unwrap();
    let seed = variable("SUREHOOK_DRILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("{faults} faults; repeat with SUREHOOK_DRILL_SEED={seed}");
    let mut rng = DrillRng(seed);
    let received = Arrivals::start().await;
    let Some(mut cluster) = DrillCluster::start(&received.sink.origin()).await else { return };
    let urls = cluster.nodes.iter().map(|node| node.url("/in/in")).collect();
    let senders = DrillSenders::start(urls);
    cluster.wait_until_delivering(&received, 0).await;

    let started = Instant::now();
    for number in 0..faults {
        // Each kind in a short run, in a random order afterwards.
        let random = FAULTS[rng.next(FAULTS.len())];
        let fault = FAULTS.get(number).copied().unwrap_or(random);
        let began = Instant::now();
        cluster.run_fault(fault, &mut rng, &received, &senders).await;
        let recovery = cluster.recoveries[&fault].last().unwrap().as_secs_f64();
        eprintln!(
            "{:>4}. {fault:?}: recovered after {recovery:.1} s, {:.1} s in all, {} answered",
            number + 1,
            began.elapsed().as_secs_f64(),
            senders.answered()
        );
    }
    let log = senders.finish().await;
    drop(cluster.old_transaction.take());
    let expected = (log.events.len() + cluster.probes) * DESTINATIONS;
    let stats = cluster.nodes[0]
        .wait_for_stats(RECOVERY_LIMIT, |stats| {
            let open = ["pending", "in_flight", "scheduled", "held"];
            open.iter().all(|status| stats["by_status"][status] == 0)
        })
        .await;

    let arrivals = received.by_delivery();
    let repeated: usize = arrivals.values().map(|times| times.len() - 1).sum();
    eprintln!(
        "{faults} faults in {:.0} s: {} events answered after {} refused or failed requests, {} deliveries, {repeated} repeated",
        started.elapsed().as_secs_f64(),
        log.events.len(),
        log.retries,
        arrivals.len(),
    );
    for (fault, recoveries) in &cluster.recoveries {
        let longest = recoveries.iter().max().unwrap().as_secs_f64();
        eprintln!("  {fault:?} × {}: recovery at most {longest:.1} s", recoveries.len());
    }
    assert_eq!(log.violations, Vec::<String>::new());
    assert_eq!(stats["by_status"]["succeeded"], expected, "{stats}");
    assert_eq!(stats["total"], log.events.len() + cluster.probes, "{stats}");
    let lost: Vec<_> = log
        .events
        .values()
        .flat_map(|event| (0..DESTINATIONS).map(move |n| (event.clone(), n)))
        .filter(|delivery| !arrivals.contains_key(delivery))
        .collect();
    assert!(lost.is_empty(), "{} deliveries are lost: {lost:?}", lost.len());
    let broken = received.find_broken_order();
    assert!(broken.is_empty(), "the order is broken: {broken:?}");
    let mut wrong = Vec::new();
    for (delivery, times) in arrivals.iter().filter(|(_, times)| times.len() > 1) {
        if !is_last_arrival_recorded(&cluster.nodes[0], &delivery.0, delivery.1, times).await {
            wrong.push((delivery, times));
        }
    }
    assert!(wrong.is_empty(), "repeated after the result was recorded: {wrong:?}");
    assert_one_success_each(cluster.primary()).await;
    let slow: Vec<_> = cluster
        .recoveries
        .iter()
        .filter(|(_, times)| times.iter().any(|time| *time > RECOVERY_TARGET))
        .collect();
    // A busy machine is slower; a long drill runs on one that is not.
    assert!(slow.is_empty() || faults <= 20, "slower than {RECOVERY_TARGET:?}: {slow:?}");
}

/// Whether the recorded attempt of a delivery is the last one that arrived, so that it was repeated only
/// because the results of those before were not recorded.
async fn is_last_arrival_recorded(
    node: &Gateway,
    event: &str,
    destination: usize,
    arrived_ms: &[i64],
) -> bool {
    let delivery = node.find_delivery_to(event, &format!("out-{destination}")).await.unwrap();
    let delivery = node.get(&format!("/deliveries/{delivery}")).await.expect(200).json();
    let attempts = delivery["attempt_list"].as_array().unwrap();
    let successes: Vec<&Value> =
        attempts.iter().filter(|attempt| attempt["status"] == 200).collect();
    let [recorded] = successes[..] else { return false };
    // Clocks of nodes differ by less than what lies between an attempt and its repetition.
    let started = millis(&recorded["started_at"]);
    let [.., before, last] = arrived_ms[..] else { return true };
    (last - started).abs() <= (started - before).abs()
}

#[expect(clippy::disallowed_methods, reason = "compared with the times that nodes record")]
fn unix_millis() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// The store has recorded one successful attempt of each delivery.
async fn assert_one_success_each(server: &TestPostgres) {
    let client = server.client().await;
    let wrong = "SELECT count(*) FROM (
        SELECT d.id FROM surehook_default.deliveries d
          LEFT JOIN surehook_default.attempts a ON a.delivery_id = d.id AND a.status BETWEEN 200 AND 299
         GROUP BY d.id HAVING count(a.id) <> 1) AS wrong";
    let wrong: i64 = client.query_one(wrong, &[]).await.unwrap().get(0);
    assert_eq!(wrong, 0);
}
