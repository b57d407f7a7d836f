//! Whatever node is asked, it answers and does the same.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{TestCluster, settings_with_destinations};
use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, Route, TOKEN},
    sink::{Reply, Sink},
};

const FORM: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");
const OURS: (&str, &[u8]) = ("sec-fetch-site", b"same-origin");

#[tokio::test]
async fn heavy_fifty_clients_with_200_keys_on_three_nodes_create_200_events() {
    const CLIENTS: usize = 50;
    const KEYS: usize = 200;
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(cluster) = TestCluster::start(3, &settings).await else { return };
    let urls: Vec<String> = cluster.nodes.iter().map(|node| node.url("/in/in")).collect();

    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let urls = urls.clone();
        clients.spawn(async move {
            let client = Client::new();
            let mut answers = Vec::new();
            for key in 0..KEYS {
                // Each begins elsewhere, so that the same key arrives on all nodes at the same time.
                let (key, url) = ((key + number / 3) % KEYS, &urls[(number + key) % urls.len()]);
                let body = format!(r#"{{"id":"key-{key}"}}"#);
                let response = client.send(Method::POST, url, &[], body).await.unwrap().expect(200);
                let response = response.json();
                let status = response["status"].as_str().unwrap().to_owned();
                answers.push((status, response["events"][0]["id"].as_str().unwrap().to_owned()));
            }
            answers
        });
    }
    let answers: Vec<(String, String)> = clients.join_all().await.into_iter().flatten().collect();

    assert_eq!(answers.len(), CLIENTS * KEYS);
    assert_eq!(answers.iter().filter(|(status, _)| status == "accepted").count(), KEYS);
    let events: HashSet<&String> = answers.iter().map(|(_, event)| event).collect();
    assert_eq!(events.len(), KEYS);
    // Each is delivered once.
    cluster.nodes[2].wait_for_count("succeeded", KEYS).await;
    assert_eq!(sink.count(), KEYS);
    let stats = cluster.nodes[1].stats().await;
    assert_eq!(stats["duplicates"], (CLIENTS - 1) * KEYS, "{stats}");
}

#[tokio::test]
async fn event_received_on_one_node_is_delivered_by_the_owner_of_its_lane() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 2, "");
    let Some(cluster) = TestCluster::start(2, &settings).await else { return };
    let (owner, other) = cluster.find_owner("out-0").await;

    let event = cluster.nodes[other].post_accepted("in", r#"{"id":"a"}"#).await;

    sink.wait_for_requests(2).await;
    for node in &cluster.nodes {
        node.wait_for_count("succeeded", 2).await;
        assert_eq!(node.event(&event).await["deliveries"].as_array().unwrap().len(), 2);
    }
    let attempts = async |node: &Gateway| {
        let metrics = node.metrics().await;
        metrics.contains(
            r#"attempts_total{destination="out-0",outcome="succeeded",code_class="2xx"} 1"#,
        )
    };
    assert!(attempts(&cluster.nodes[owner]).await, "{}", cluster.nodes[owner].metrics().await);
    assert!(!attempts(&cluster.nodes[other]).await);
    let printed = cluster.nodes[0].cli(&["nodes", "--all"]).await;
    for name in ["node-0", "node-1", "out-0", "PostgreSQL", "alive"] {
        assert!(printed.stdout.contains(name), "{name}: {printed:?}");
    }
}

#[tokio::test]
async fn pause_and_resume_on_any_node_take_effect() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(cluster) = TestCluster::start(2, &settings).await else { return };
    let (owner, other) = cluster.find_owner("out-0").await;
    let (owner, other) = (&cluster.nodes[owner], &cluster.nodes[other]);

    let reason = json!({ "reason": "planned" });
    other.post("/destinations/out-0/pause", &reason).await.expect(200);

    for node in [owner, other] {
        is_state(node, "paused", true).await;
        node.post_accepted("in", format!(r#"{{"id":"{}"}}"#, node.address())).await;
    }
    for node in [owner, other] {
        node.wait_for_count("held", 2).await;
    }
    assert_eq!(sink.count(), 0);

    other.post("/destinations/out-0/resume", &json!({})).await.expect(200);

    sink.wait_for_requests(2).await;
    is_state(owner, "paused", false).await;
    is_state(other, "paused", false).await;
}

async fn is_state(node: &Gateway, name: &str, expected: bool) {
    eventually(WAIT_LIMIT, || async {
        (node.destination_state("out-0").await[name] == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn configuration_and_tokens_take_effect_on_all_nodes() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(cluster) = TestCluster::start(2, &settings).await else { return };
    let (one, other) = (&cluster.nodes[0], &cluster.nodes[1]);

    let source = json!({ "name": "late", "verify": "none" });
    one.post("/sources", &source).await.expect(201);
    one.post("/routes", &json!({ "from": "late", "to": "out-0" })).await.expect(201);
    // It may know the source before the route.
    let sent = AtomicUsize::new(0);
    eventually(WAIT_LIMIT, || async {
        let body = format!(r#"{{"id":"{}"}}"#, sent.fetch_add(1, Ordering::Relaxed));
        let response = other.send_webhook("late", &[], body).await;
        (response.status == 200 && sink.count() > 0).then_some(())
    })
    .await;

    let created = one.post("/tokens", &json!({ "role": "viewer" })).await.expect(201).json();
    let token = created["token"].as_str().unwrap();
    eventually(WAIT_LIMIT, || async {
        let response = other.api_as(token, Method::GET, "/stats", None).await;
        (response.status == 200).then_some(())
    })
    .await;
    other.delete(&format!("/tokens/{}", created["id"].as_str().unwrap())).await.expect(204);
    for node in [other, one] {
        eventually(WAIT_LIMIT, || async {
            let response = node.api_as(token, Method::GET, "/stats", None).await;
            (response.status == 401).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn login_link_and_session_work_on_any_node() {
    let Some(cluster) = TestCluster::start(2, "").await else { return };
    let (one, other) = (&cluster.nodes[0], &cluster.nodes[1]);
    let made = one.post("/tokens/link", &json!({})).await.expect(201).json();
    let code = made["path"].as_str().unwrap().trim_start_matches("/login?").to_owned();

    let signed_in = other.request(Method::POST, "/login", &[FORM, OURS], code.clone()).await;

    let signed_in = signed_in.expect(303);
    let cookie = signed_in.header("set-cookie").split(';').next().unwrap().to_owned();
    for node in [one, other] {
        node.request(Method::POST, "/login", &[FORM, OURS], code.clone()).await.expect(401);
        let page = [("cookie", cookie.as_bytes())];
        node.request(Method::GET, "/nodes", &page, "").await.expect(200);
    }
    // Signing out on one node ends the session on the other.
    let headers = [("cookie", cookie.as_bytes()), OURS, FORM];
    one.request(Method::POST, "/logout", &headers, "").await.expect(303);
    eventually(WAIT_LIMIT, || async {
        let page = [("cookie", cookie.as_bytes())];
        let response = other.request(Method::GET, "/nodes", &page, "").await;
        (response.status == 303).then_some(())
    })
    .await;
}

#[tokio::test]
async fn live_stream_shows_what_happens_on_other_nodes() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(cluster) = TestCluster::start(2, &settings).await else { return };
    let (one, other) = (&cluster.nodes[0], &cluster.nodes[1]);
    let mut stream = other.connect_raw().await;
    stream
        .write(format!(
            "GET /api/v1/stream HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        ))
        .await;
    stream.read_until("\r\n\r\n").await;

    // Other nodes pass updates on once they know of the client.
    let mut sent = HashSet::new();
    let mut next = 0;
    loop {
        sent.insert(one.post_accepted("in", format!(r#"{{"id":"s-{next}"}}"#)).await);
        next += 1;
        let wait = tokio::time::timeout(Duration::from_millis(500), stream.read_until("\n\n"));
        let Ok(block) = wait.await else { continue };
        if sent.iter().any(|event| block.contains(event.as_str())) {
            return;
        }
    }
}

#[tokio::test]
async fn sender_of_a_synchronous_source_gets_its_result_on_any_node() {
    let answer = Reply::status(200).body(r#"{"n":1}"#).after(Duration::from_millis(100));
    let sink = Sink::with_replies([answer]).await;
    let route = Route {
        source: "verify = \"none\"\nsync = { destination = \"out\" }",
        destination: &format!("url = \"{}\"", sink.url()),
        ..Route::default()
    };
    let Some(cluster) = TestCluster::start(2, &route.settings()).await else { return };

    for (number, node) in cluster.nodes.iter().enumerate() {
        let body = format!(r#"{{"id":"sync-{number}"}}"#);
        let response = node.send_webhook("in", &[], body.clone()).await.expect(200).json();
        assert_eq!((&response["status"], &response["result"]["n"]), (&json!("success"), &json!(1)));
        // A duplicate on the other node gets the same.
        let other = &cluster.nodes[1 - number];
        let again = other.send_webhook("in", &[], body).await.expect(200).json();
        assert_eq!(again["result"]["n"], 1, "{again}");
    }
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn replay_is_created_on_one_node_and_followed_on_the_other() {
    const EVENTS: usize = 20;
    let sink =
        Sink::with_script(|number, _| Reply::status(if number < EVENTS { 400 } else { 200 }));
    let sink = sink.await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(cluster) = TestCluster::start(2, &settings).await else { return };
    let (one, other) = (&cluster.nodes[0], &cluster.nodes[1]);
    for number in 0..EVENTS {
        let node = [one, other][number % 2];
        node.post_accepted("in", format!(r#"{{"id":"dead-{number}"}}"#)).await;
    }
    other.wait_for_count("dead", EVENTS).await;

    let request = json!({ "verb": "retry_failed", "filter": { "code": "4xx" } });
    let created = one.post("/replays", &request).await.expect(202).json();

    let path = format!("/replays/{}", created["id"].as_str().unwrap());
    let done = eventually(WAIT_LIMIT, || async {
        let job = other.get(&path).await.expect(200).json();
        (job["state"] == "done").then_some(job)
    });
    assert_eq!(done.await["succeeded"], EVENTS);
    let seen: Value = one.get(&path).await.expect(200).json();
    assert_eq!(seen["succeeded"], EVENTS, "{seen}");
    assert_eq!(sink.count(), 2 * EVENTS);
}
