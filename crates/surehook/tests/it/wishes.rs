//! `Idempotency-Key`: a wish that is sent twice is granted once, also across a crash.

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
async fn the_same_wish_again_gets_the_same_answer() {
    let mut gateway = Gateway::start().await;
    let first = create(&gateway, "wish-1", "shop").await.expect(201);
    assert_eq!(first.header("idempotency-replayed"), "");

    for _restarted in [false, true] {
        // Plain and quoted are the same key.
        for key in ["wish-1", "\"wish-1\""] {
            let again = create(&gateway, key, "shop").await.expect(201);
            assert_eq!(again.body, first.body, "case: {key}");
            assert_eq!(again.header("etag"), first.header("etag"));
            assert_eq!(again.header("content-type"), "application/json");
            assert_eq!(again.header("idempotency-replayed"), "true");
        }
        gateway.restart().await;
    }
    let other = create(&gateway, "wish-1", "other").await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
    gateway.get("/sources/other").await.expect(404);
    // Another address with the same body is another request, too.
    let elsewhere = "/destinations";
    let body = json!({ "name": "shop", "verify": "none" }).to_string();
    let key = [("idempotency-key", "wish-1")];
    let other = gateway.request_as_admin(Method::POST, elsewhere, &key, &body).await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
}

#[tokio::test]
async fn a_refusal_does_not_use_the_key_up() {
    let gateway = Gateway::start().await;
    let taken = create(&gateway, "wish", "demo").await.expect(409);
    assert_eq!(taken.code(), "name_taken");

    gateway.delete("/sources/demo").await.expect(204);

    create(&gateway, "wish", "demo").await.expect(201);
    let again = create(&gateway, "wish", "demo").await.expect(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
}

/// The first try may have been carried out though nobody was told so: its key does not become free.
#[tokio::test]
async fn a_wish_that_is_tried_again_and_refused_keeps_its_key() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let body = json!({ "destination": "out", "body": {} }).to_string();
    let key = [("idempotency-key", "once")];
    let first =
        gateway.request_as_admin(Method::POST, "/messages", &key, &body).await.expect(202).json();
    gateway.wait_for_delivery_status(first["delivery_id"].as_str().unwrap(), "succeeded").await;
    gateway.terminate().await;
    // As if it had been killed before it could answer.
    let file = rusqlite::Connection::open(gateway.folder().join("data/surehook.db")).unwrap();
    let unanswer = "UPDATE idempotency_results SET status = NULL, headers = NULL, body = NULL";
    assert_eq!(file.execute(unanswer, []).unwrap(), 1);
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

// B40.
#[tokio::test]
async fn what_is_no_key_is_refused() {
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
        let answer =
            gateway.request_as_admin(Method::POST, "/sources", headers, &body).await.expect(400);
        assert_eq!(answer.code(), "bad_idempotency_key", "case: {headers:?}");
    }
    gateway.get("/sources/shop").await.expect(404);
    // A key on what is not a POST means nothing.
    let key = [("idempotency-key", "\"open")];
    gateway.request_as_admin(Method::GET, "/sources", &key, "").await.expect(200);
}

/// The answer holds the token, and answers with a key are kept in the store.
#[tokio::test]
async fn a_token_is_not_made_with_a_key() {
    let gateway = Gateway::start().await;
    let key = [("idempotency-key", "token-1")];
    let wish = json!({ "role": "viewer" }).to_string();

    let refused = gateway.request_as_admin(Method::POST, "/tokens", &key, &wish).await.expect(400);

    assert_eq!(refused.code(), "bad_idempotency_key");
    gateway.post("/tokens", &json!({ "role": "viewer" })).await.expect(201);
}

#[tokio::test]
async fn a_replay_with_a_key_is_made_once() {
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
async fn a_replay_job_with_a_key_is_made_once() {
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

    let jobs = gateway.get("/replays").await.expect(200).json();
    assert_eq!(jobs["data"].as_array().unwrap().len(), 1);
    assert_eq!(jobs["data"][0]["id"], first["id"]);
}

// A retry whose first try was carried out and not answered finds what it wishes for.
#[tokio::test]
async fn what_holds_already_is_not_refused() {
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
async fn of_concurrent_copies_of_a_wish_one_is_granted() {
    let gateway = std::sync::Arc::new(Gateway::start().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let gateway = gateway.clone();
        tasks.spawn(async move { create(&gateway, "wish", "shop").await });
    }
    let mut bodies = HashSet::new();
    for answer in tasks.join_all().await {
        bodies.insert(answer.expect(201).body);
    }
    assert_eq!(bodies.len(), 1, "all got the same answer");
}

/// Asks for a route; none if the gateway went away.
async fn wish_for_a_route(url: &str, key: &str) -> Option<String> {
    let authorization = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", authorization.as_bytes()),
        ("content-type", b"application/json"),
        ("idempotency-key", key.as_bytes()),
    ];
    let body = json!({ "from": "demo", "to": "inbox" }).to_string();
    let client = crate::support::client::Client::new();
    let answer = client.send(Method::POST, url, &headers, body).await.ok()?;
    let answer: Value = answer.expect(201).json();
    Some(answer["id"].as_str().unwrap().to_owned())
}

// Two routes with the same ends are two routes: a wish that is granted twice shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_no_wish_is_granted_twice_however_often_the_gateway_is_killed() {
    const ROUNDS: usize = 8;
    const WISHES: usize = 12;
    let mut gateway = Gateway::start().await;
    let before = gateway.get("/routes").await.expect(200).json()["data"].as_array().unwrap().len();
    let mut granted: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..ROUNDS {
        let url = gateway.url("/api/v1/routes");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..WISHES {
            let (url, key) = (url.clone(), format!("{round}-{number}"));
            tasks.spawn(async move { (wish_for_a_route(&url, &key).await, key) });
        }
        // Killed when some of them have their answer, and others are half-way.
        for _ in 0..round {
            if let Some(Ok((Some(id), key))) = tasks.join_next().await {
                granted.insert(key, id);
            }
        }
        gateway.kill9();
        for (id, key) in tasks.join_all().await {
            granted.extend(id.map(|id| (key, id)));
        }
        gateway.restart().await;
        let url = gateway.url("/api/v1/routes");
        for number in 0..WISHES {
            let key = format!("{round}-{number}");
            let id = wish_for_a_route(&url, &key).await.unwrap();
            let known = granted.entry(key).or_insert_with(|| id.clone());
            assert_eq!(*known, id, "the answer is another one after the crash");
        }
    }

    let routes = gateway.get("/routes").await.expect(200).json();
    let ids: HashSet<&str> =
        routes["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), before + ROUNDS * WISHES);
    assert!(granted.values().all(|id| ids.contains(id.as_str())));
}
