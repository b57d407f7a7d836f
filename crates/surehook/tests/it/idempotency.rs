//! `Idempotency-Key`: a repeated request is executed once, also across a crash.

use std::collections::{BTreeMap, HashSet};

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    client::HttpResponse,
    gateway::{Gateway, TOKEN, route_settings},
    sink::{Reply, Sink},
};

async fn create(gateway: &Gateway, key: &str, name: &str) -> HttpResponse {
    let body = json!({ "name": name, "verify": "none" }).to_string();
    gateway.request_as_admin(Method::POST, "/sources", &[("idempotency-key", key)], &body).await
}

#[tokio::test]
async fn repeated_request_with_same_key_gets_same_response() {
    let mut gateway = Gateway::start().await;
    let first = create(&gateway, "key-1", "shop").await.expect(201);
    assert_eq!(first.header("idempotency-replayed"), "");

    for _restarted in [false, true] {
        // Plain and quoted form are the same key.
        for key in ["key-1", "\"key-1\""] {
            let again = create(&gateway, key, "shop").await.expect(201);
            assert_eq!(again.body, first.body, "case: {key}");
            assert_eq!(again.header("etag"), first.header("etag"));
            assert_eq!(again.header("content-type"), "application/json");
            assert_eq!(again.header("idempotency-replayed"), "true");
        }
        gateway.restart().await;
    }
    let other = create(&gateway, "key-1", "other").await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
    gateway.get("/sources/other").await.expect(404);
    // The same body to another path is a different request, too.
    let other_path = "/destinations";
    let body = json!({ "name": "shop", "verify": "none" }).to_string();
    let key = [("idempotency-key", "key-1")];
    let other = gateway.request_as_admin(Method::POST, other_path, &key, &body).await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
}

#[tokio::test]
async fn rejected_request_does_not_consume_key() {
    let gateway = Gateway::start().await;
    let taken = create(&gateway, "key", "demo").await.expect(409);
    assert_eq!(taken.code(), "name_taken");

    gateway.delete("/sources/demo").await.expect(204);

    create(&gateway, "key", "demo").await.expect(201);
    let again = create(&gateway, "key", "demo").await.expect(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
}

/// The first try may have been executed without a response, so its key must stay taken.
#[tokio::test]
async fn rejected_retry_of_unanswered_request_keeps_its_key() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let body = json!({ "destination": "out", "body": {} }).to_string();
    let key = [("idempotency-key", "once")];
    let first =
        gateway.request_as_admin(Method::POST, "/messages", &key, &body).await.expect(202).json();
    gateway.wait_for_delivery_status(first["delivery_id"].as_str().unwrap(), "succeeded").await;
    gateway.terminate().await;
    // Simulates a kill before the response was recorded.
    let file = rusqlite::Connection::open(gateway.folder().join("data/surehook.db")).unwrap();
    let remove_response = "UPDATE surehook_dedup_claims SET state = 0, lease_until = 1, completed_at = NULL, result = NULL";
    assert_eq!(file.execute(remove_response, []).unwrap(), 1);
    drop(file);
    gateway.restart().await;
    let rename = |from: &str, to: &str| {
        let path = format!("/destinations/{from}");
        let spec = json!({ "name": to, "url": sink.url() });
        let gateway = &gateway;
        async move { gateway.put(&path, &spec).await.expect(200) }
    };
    rename("out", "moved").await;

    let refused =
        gateway.request_as_admin(Method::POST, "/messages", &key, &body).await.expect(422);
    assert_eq!(refused.code(), "unknown_destination");
    rename("moved", "out").await;
    let again =
        gateway.request_as_admin(Method::POST, "/messages", &key, &body).await.expect(202).json();

    assert_eq!(again, first);
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn invalid_idempotency_key_is_rejected() {
    let gateway = Gateway::start().await;
    let long = "k".repeat(256);
    let cases: [&[(&str, &str)]; 6] = [
        &[("idempotency-key", "")],
        &[("idempotency-key", "  ")],
        &[("idempotency-key", "\"open")],
        &[("idempotency-key", &long)],
        &[("idempotency-key", "caf\u{e9}")],
        &[("idempotency-key", "a"), ("idempotency-key", "a")],
    ];
    let body = json!({ "name": "shop", "verify": "none" }).to_string();
    for headers in cases {
        let response =
            gateway.request_as_admin(Method::POST, "/sources", headers, &body).await.expect(400);
        assert_eq!(response.code(), "bad_idempotency_key", "case: {headers:?}");
    }
    gateway.get("/sources/shop").await.expect(404);
    // The header is ignored on other methods than POST.
    let key = [("idempotency-key", "\"open")];
    gateway.request_as_admin(Method::GET, "/sources", &key, "").await.expect(200);
}

/// The response contains the token, and responses with a key are stored.
#[tokio::test]
async fn token_creation_rejects_idempotency_key() {
    let gateway = Gateway::start().await;
    let key = [("idempotency-key", "token-1")];
    let request = json!({ "role": "viewer" }).to_string();

    let refused =
        gateway.request_as_admin(Method::POST, "/tokens", &key, &request).await.expect(400);

    assert_eq!(refused.code(), "bad_idempotency_key");
    gateway.post("/tokens", &json!({ "role": "viewer" })).await.expect(201);
}

#[tokio::test]
async fn replay_with_idempotency_key_is_created_once() {
    let sink = Sink::with_replies([Reply::status(200), Reply::status(200)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    let path = format!("/deliveries/{}/replay", delivery["id"].as_str().unwrap());
    let key = [("idempotency-key", "again")];

    let first = gateway.request_as_admin(Method::POST, &path, &key, "").await.expect(202).json();
    let again = gateway.request_as_admin(Method::POST, &path, &key, "").await.expect(202).json();

    assert_eq!(first, again);
    gateway.wait_for_delivery_status(first["delivery_id"].as_str().unwrap(), "succeeded").await;
    assert_eq!(gateway.event(&event).await["deliveries"].as_array().unwrap().len(), 2);
    let other = [("idempotency-key", "once more")];
    let too_soon = gateway.request_as_admin(Method::POST, &path, &other, "").await.expect(429);
    assert_eq!(too_soon.code(), "replayed_too_soon");
}

#[tokio::test]
async fn replay_job_with_idempotency_key_is_created_once() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    let body = json!({ "verb": "force_resend", "filter": { "source": "in" } }).to_string();
    let key = [("idempotency-key", "again")];

    let first =
        gateway.request_as_admin(Method::POST, "/replays", &key, &body).await.expect(202).json();
    for _restarted in [false, true] {
        let again =
            gateway.request_as_admin(Method::POST, "/replays", &key, &body).await.expect(202);
        assert_eq!((again.json(), again.header("idempotency-replayed")), (first.clone(), "true"));
        gateway.restart().await;
    }

    let jobs = gateway.list("/replays").await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0]["id"], first["id"]);
}

// A retry may find that an unanswered first try was executed.
#[tokio::test]
async fn pause_resume_and_cancel_can_be_repeated() {
    let gateway =
        Gateway::start_with(&route_settings("https://example.com/hook", "delay = \"1h\"")).await;
    let event = gateway.post_accepted("in", "{}").await;
    let delivery =
        gateway.wait_for_delivery(&event, "pending").await["id"].as_str().unwrap().to_owned();
    for path in [
        "/destinations/out/pause",
        "/destinations/out/resume",
        &format!("/deliveries/{delivery}/cancel"),
    ] {
        for key in ["first", "second"] {
            let key = format!("{path} {key}");
            gateway
                .request_as_admin(Method::POST, path, &[("idempotency-key", &key)], "")
                .await
                .expect(200);
        }
    }
}

#[tokio::test]
async fn concurrent_requests_with_same_key_get_one_result() {
    let gateway = std::sync::Arc::new(Gateway::start().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let gateway = gateway.clone();
        tasks.spawn(async move { create(&gateway, "key", "shop").await });
    }
    let mut bodies = HashSet::new();
    for response in tasks.join_all().await {
        bodies.insert(response.expect(201).body);
    }
    assert_eq!(bodies.len(), 1, "all requests get the same response");
}

/// Creates a route with an idempotency key; none if the gateway went away.
async fn create_route(url: &str, key: &str) -> Option<String> {
    let authorization = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", authorization.as_bytes()),
        ("content-type", b"application/json"),
        ("idempotency-key", key.as_bytes()),
    ];
    let body = json!({ "from": "demo", "to": "inbox" }).to_string();
    let client = crate::support::client::Client::new();
    let response = client.send(Method::POST, url, &headers, body).await.ok()?;
    let response: Value = response.expect(201).json();
    Some(response["id"].as_str().unwrap().to_owned())
}

// Two routes with the same source and destination are two routes, so a repeated execution is visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_kills_never_execute_a_keyed_request_twice() {
    const ROUNDS: usize = 8;
    const REQUESTS: usize = 12;
    let mut gateway = Gateway::start().await;
    let before = gateway.list("/routes").await.len();
    let mut created: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..ROUNDS {
        let url = gateway.url("/api/v1/routes");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..REQUESTS {
            let (url, key) = (url.clone(), format!("{round}-{number}"));
            tasks.spawn(async move { (create_route(&url, &key).await, key) });
        }
        // The kill comes when some requests are answered and others are still running.
        for _ in 0..round {
            if let Some(Ok((Some(id), key))) = tasks.join_next().await {
                created.insert(key, id);
            }
        }
        gateway.kill9();
        for (id, key) in tasks.join_all().await {
            created.extend(id.map(|id| (key, id)));
        }
        gateway.restart().await;
        let url = gateway.url("/api/v1/routes");
        for number in 0..REQUESTS {
            let key = format!("{round}-{number}");
            let id = create_route(&url, &key).await.unwrap();
            let known = created.entry(key).or_insert_with(|| id.clone());
            assert_eq!(*known, id, "the response differs after the crash");
        }
    }

    let routes = gateway.get("/routes").await.expect(200).json();
    let ids: HashSet<&str> =
        routes["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), before + ROUNDS * REQUESTS);
    assert!(created.values().all(|id| ids.contains(id.as_str())));
}
