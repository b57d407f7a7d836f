//! Duplicates compared with their original, and delivered anyway on request.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};
use surehook_core::{
    decision::IntakeRecord,
    event::{DedupKeyClaim, NewEvent},
    store::{AdminStore as _, AdmitResult, IngestStore as _},
};
use surehook_store::{SqliteOptions, SqliteStore};
use surehook_types::{ids::EventId, time::Timestamp};
use surehook_webhooks::{
    attribute::Attributes,
    key::{DedupKey, KeyNamespace, KeyOrigin},
};

use crate::support::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    gateway::{Gateway, Route, TOKEN},
    sink::Sink,
    unix_now,
};

/// Another body under a known key is a duplicate.
fn settings_for(sink: &Sink) -> String {
    let destination = &format!("url = \"{}\"", sink.url());
    let source = "verify = \"none\"\non_conflict = \"duplicate\"";
    Route { source, destination, ..Route::default() }.settings()
}

/// Sends a request that must be a duplicate, and waits until it is recorded.
async fn send_duplicate(gateway: &Gateway, event: &str, body: &str) {
    let before = gateway.event(event).await["duplicate_count"].as_u64().unwrap();
    let headers = [("content-type", "application/json")];
    let response = gateway.send_webhook("in", &headers, body.to_owned()).await.expect(200).json();
    assert_eq!(response["status"], "duplicate", "{response}");
    eventually(WAIT_LIMIT, || async {
        (gateway.event(event).await["duplicate_count"] == before + 1).then_some(())
    })
    .await;
}

async fn deliver_anyway(gateway: &Gateway, event: &str, n: u32) -> HttpResponse {
    gateway
        .request_as_admin(Method::POST, &format!("/events/{event}/duplicates/{n}/deliver"), &[], "")
        .await
}

async fn compare(gateway: &Gateway, event: &str, n: u32) -> Value {
    gateway.get(&format!("/events/{event}/duplicates/{n}")).await.expect(200).json()
}

fn new_event(response: &HttpResponse) -> String {
    response.json()["event_id"].as_str().unwrap().to_owned()
}

fn timeline_entries(event: &Value, kind: &str) -> Vec<Value> {
    let timeline = event["decisions"].as_array().unwrap();
    timeline.iter().filter(|entry| entry["kind"] == kind).cloned().collect()
}

const FIRST: &str = r#"{"id":"a","total":12345678901234567890123,"items":[1,2]}"#;
const OTHER: &str = r#"{"id":"a","items":[1,7,2],"total":12345678901234567890124}"#;

#[tokio::test]
async fn duplicate_with_different_body_is_compared_and_delivered_anyway_once() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings_for(&sink)).await;
    let headers = [
        ("content-type", "application/json"),
        ("x-shop", "7"),
        ("x-hub-signature-256", "sha256=of-the-first"),
        ("digest", "of-the-first"),
    ];
    let event = gateway.send_webhook("in", &headers, FIRST).await.expect(200).event_id();
    send_duplicate(&gateway, &event, OTHER).await;

    let shown = compare(&gateway, &event, 1).await;

    let expected = json!([
        { "path": "/total", "change": "changed", "before": "12345678901234567890123", "after": "12345678901234567890124" },
        { "path": "/items/1", "change": "added", "after": "7" },
    ]);
    assert_eq!(shown["diff"], expected);
    for (field, value) in [
        ("n", json!(1)),
        ("same_bytes", json!(false)),
        ("body_kept", json!(true)),
        ("truncated", json!(false)),
        ("compared_as", json!("json")),
        ("delivered_as", json!(null)),
    ] {
        assert_eq!(shown[field], value, "{field} of {shown}");
    }
    assert!(shown["gap_ms"].is_u64() && shown["at"].is_string(), "{shown}");

    let new = new_event(&deliver_anyway(&gateway, &event, 1).await.expect(202));
    let refused = deliver_anyway(&gateway, &event, 1).await.expect(409);

    assert_eq!(refused.code(), "delivered_before");
    assert!(refused.detail().contains(&new), "{}", refused.detail());
    let arrivals = sink.wait_for_requests(2).await;
    let arrival = arrivals.iter().find(|one| one.id() == new).unwrap();
    assert_eq!(arrival.body, OTHER);
    assert_eq!(
        (arrival.header("x-shop"), arrival.header("content-type")),
        ("7", "application/json")
    );
    let signatures = [arrival.header("x-hub-signature-256"), arrival.header("digest")];
    assert_eq!(
        signatures,
        ["", ""],
        "signatures of the original bytes are not sent with other bytes"
    );
    let shown = gateway.event(&event).await;
    assert_eq!(shown["duplicates"][0]["delivered_as"], new.as_str());
    let entry = &timeline_entries(&shown, "delivered_anyway")[0];
    assert_eq!(entry["detail"], json!({ "event": new, "n": 1 }));
    let created = gateway.event(&new).await;
    assert_eq!((&created["key"], &created["no_key"]), (&Value::Null, &json!(true)));
    let entry = &timeline_entries(&created, "not_a_duplicate_of")[0];
    assert_eq!(entry["detail"], json!({ "event": event, "n": 1 }));
    assert!(entry["text"].as_str().unwrap().contains(&event), "{entry}");
    // The key still belongs to the original.
    send_duplicate(&gateway, &event, OTHER).await;
    gateway.wait_for_delivery(&new, "succeeded").await;
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn duplicate_with_same_bytes_is_delivered_by_current_routes() {
    let (sink, later) = (Sink::ok().await, Sink::ok().await);
    let gateway = Gateway::start_with(&settings_for(&sink)).await;
    let event = gateway.post_accepted("in", FIRST).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    send_duplicate(&gateway, &event, FIRST).await;
    let shown = compare(&gateway, &event, 1).await;
    assert_eq!((&shown["same_bytes"], &shown["body_kept"]), (&json!(true), &json!(true)));
    assert_eq!((&shown["diff"], &shown["compared_as"]), (&json!([]), &Value::Null));
    let put = json!({ "name": "later", "url": later.url() });
    gateway.post("/destinations", &put).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "later" })).await.expect(201);

    let new = new_event(&deliver_anyway(&gateway, &event, 1).await.expect(202));

    assert_eq!(later.wait_for_requests(1).await[0].body, FIRST);
    let ids: Vec<_> =
        sink.wait_for_requests(2).await.iter().map(|one| one.id().to_owned()).collect();
    assert_eq!(ids, [event.clone(), new]);
    for (id, n) in [(event.as_str(), "2"), (&event, "0"), (&event, "x"), ("evt_x", "1")] {
        gateway.get(&format!("/events/{id}/duplicates/{n}")).await.expect(404);
        gateway.post(&format!("/events/{id}/duplicates/{n}/deliver"), &json!({})).await.expect(404);
    }
}

#[tokio::test]
async fn duplicate_of_event_with_removed_body_is_not_delivered() {
    let sink = Sink::ok().await;
    let settings = settings_for(&sink)
        .replace("verify = \"none\"", "verify = \"none\"\nretention = { bodies = \"1s\" }");
    let gateway = Gateway::start_with(&settings).await;
    let event = gateway.post_accepted("in", FIRST).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    send_duplicate(&gateway, &event, OTHER).await;
    send_duplicate(&gateway, &event, FIRST).await;
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&event).await["body_removed"] == true).then_some(())
    })
    .await;

    for (n, same) in [(1, false), (2, true)] {
        let shown = compare(&gateway, &event, n).await;
        assert_eq!((&shown["same_bytes"], &shown["body_kept"]), (&json!(same), &json!(false)));
        assert_eq!((&shown["diff"], &shown["compared_as"]), (&json!([]), &Value::Null));
        let refused = deliver_anyway(&gateway, &event, n).await.expect(410);
        assert_eq!(refused.code(), "body_removed");
    }
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn concurrent_deliver_anyway_requests_over_api_create_one_event() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings_for(&sink)).await;
    let event = gateway.post_accepted("in", FIRST).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    for body in [OTHER, r#"{"id":"a"}"#] {
        send_duplicate(&gateway, &event, body).await;
    }

    let requests = (0..12).map(|_| deliver_anyway(&gateway, &event, 1));
    let answers = futures_util::future::join_all(requests).await;

    let accepted: Vec<_> = answers.iter().filter(|response| response.status == 202).collect();
    assert_eq!(accepted.len(), 1);
    let new = new_event(accepted[0]);
    for refused in answers.iter().filter(|response| response.status != 202) {
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (409, "delivered_before"));
        assert!(refused.detail().contains(&new));
    }
    // With an idempotency key every request gets the same response.
    let path = format!("/events/{event}/duplicates/2/deliver");
    let key = [("idempotency-key", "one click")];
    let requests = (0..12).map(|_| gateway.request_as_admin(Method::POST, &path, &key, ""));
    let answers = futures_util::future::join_all(requests).await;
    let ids: HashSet<_> = answers.into_iter().map(|one| new_event(&one.expect(202))).collect();
    assert_eq!(ids.len(), 1);
    sink.wait_for_requests(3).await;
    gateway.wait_for_delivery(&ids.into_iter().next().unwrap(), "succeeded").await;
    assert_eq!(sink.count(), 3);
}

/// Requests the delivery of a duplicate with an idempotency key; none if the gateway went away.
async fn try_deliver_anyway(url: String, key: String) -> Option<String> {
    let authorization = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 2] =
        [("authorization", authorization.as_bytes()), ("idempotency-key", key.as_bytes())];
    let response = Client::new().send(Method::POST, &url, &headers, "").await.ok()?;
    Some(new_event(&response.expect(202)))
}

#[tokio::test]
async fn heavy_kills_during_deliver_anyway_create_one_event_per_duplicate() {
    const ROUNDS: u32 = 5;
    const REQUESTS: u32 = 6;
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&settings_for(&sink)).await;
    let event = gateway.post_accepted("in", FIRST).await;
    for n in 0..ROUNDS * REQUESTS {
        send_duplicate(&gateway, &event, &format!(r#"{{"id":"a","n":{n}}}"#)).await;
    }
    let mut created: HashSet<String> = HashSet::new();
    for round in 0..ROUNDS {
        let duplicates = round * REQUESTS + 1..=(round + 1) * REQUESTS;
        let path = |n: u32| format!("/api/v1/events/{event}/duplicates/{n}/deliver");
        let mut requests = tokio::task::JoinSet::new();
        for n in duplicates {
            let url = gateway.url(&path(n));
            requests.spawn(async move { (n, try_deliver_anyway(url, n.to_string()).await) });
        }
        let mut results = Vec::new();
        // The kill comes when some requests are answered and others are still running.
        for _ in 0..round {
            results.extend(requests.join_next().await.map(Result::unwrap));
        }
        gateway.kill9();
        results.extend(requests.join_all().await);
        gateway.restart().await;
        for (n, before) in results {
            let new = try_deliver_anyway(gateway.url(&path(n)), n.to_string()).await.unwrap();
            assert!(before.is_none_or(|before| before == new), "another event after the crash");
            assert_eq!(
                deliver_anyway(&gateway, &event, n).await.expect(409).code(),
                "delivered_before"
            );
            gateway.wait_for_delivery(&new, "succeeded").await;
            assert!(created.insert(new), "each duplicate becomes its own event");
        }
    }
    gateway.wait_for_delivery(&event, "succeeded").await;
    created.insert(event);
    let arrived: HashSet<_> = sink.requests().iter().map(|one| one.id().to_owned()).collect();
    assert_eq!(arrived, created);
    assert_eq!(gateway.stats().await["total"], ROUNDS * REQUESTS + 1);
}

#[tokio::test]
async fn viewer_sees_masked_comparison_and_cannot_deliver_duplicate() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings_for(&sink)).await;
    let event = gateway.post_accepted("in", r#"{"id":"a","apikey":"canary-1","b":1}"#).await;
    send_duplicate(&gateway, &event, r#"{"id":"a","apikey":"canary-2","b":2}"#).await;
    let viewer = gateway.create_token("viewer").await;
    let path = format!("/events/{event}/duplicates/1");

    let shown = gateway.api_as(&viewer, Method::GET, &path, None).await.expect(200);
    let exact = gateway.api_as(&viewer, Method::GET, &format!("{path}?exact=true"), None).await;
    let delivered = gateway.api_as(&viewer, Method::POST, &format!("{path}/deliver"), None).await;

    assert!(!shown.text().contains("canary"), "{}", shown.text());
    let shown = shown.json();
    let paths: Vec<_> = shown["diff"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!((paths, &shown["masked"]), (vec![&json!("/b")], &json!(2)));
    assert_eq!(exact.expect(403).code(), "forbidden");
    assert_eq!(delivered.expect(403).code(), "forbidden");
    let exact = gateway.get(&format!("/events/{event}/duplicates/1?exact=true")).await.expect(200);
    assert_eq!(exact.json()["diff"][0]["after"], "\"canary-2\"");
}

/// A duplicate of an outbox event is the same send request repeated after a crash; delivering it would send
/// the message twice.
#[tokio::test]
async fn duplicate_of_outbox_message_cannot_be_delivered() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&settings_for(&sink)).await;
    let request = json!({ "destination": "out", "type": "a", "body": { "b": 1 } });
    let sent = gateway.post("/messages", &request).await.expect(202).json();
    let message = sent["id"].as_str().unwrap().to_owned();
    gateway.wait_for_delivery(&message, "succeeded").await;
    gateway.terminate().await;
    {
        let now = Timestamp::from_millis(unix_now() * 1000);
        let options = SqliteOptions::new(gateway.folder().join("data"));
        let store = SqliteStore::open(&options, now).unwrap();
        let id: EventId = message.parse().unwrap();
        let detail = store.find_event(id).await.unwrap().unwrap();
        let key = DedupKey::new(detail.event.key.as_deref().unwrap()).unwrap();
        let duplicate = NewEvent {
            id: EventId::new(now, 1 << 48),
            request_id: detail.event.request_id,
            source: detail.event.source,
            received_at: now,
            key: Some(DedupKeyClaim {
                key,
                namespace: KeyNamespace::Body,
                origin: KeyOrigin::Explicit,
                expires_at: now,
                as_of: now,
                on_conflict: None,
            }),
            signed_bytes: None,
            earlier_key: None,
            compared_fingerprint: None,
            kind: None,
            attributes: Attributes::default(),
            payload: store.find_body(id).await.unwrap().unwrap(),
            deliveries: Vec::new(),
            revive_dead: false,
            refuses_other_body: false,
            from_duplicate: None,
            releases: None,
            status_update: None,
            intake: IntakeRecord::default(),
            bodies: Vec::new(),
        };
        let admitted = store.admit([duplicate].into()).await.unwrap();
        assert!(matches!(admitted[0], AdmitResult::Duplicate(_)), "{admitted:?}");
    }
    gateway.restart().await;

    let refused = deliver_anyway(&gateway, &message, 1).await.expect(409);

    assert_eq!(refused.code(), "is_a_message");
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn cli_lists_compares_and_delivers_duplicates() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings_for(&sink)).await;
    let event = gateway.post_accepted("in", FIRST).await;
    let none = gateway.cli(&["events", "duplicates", &event]).await;
    send_duplicate(&gateway, &event, OTHER).await;

    let list = gateway.cli(&["events", "duplicates", &event]).await;
    let shown = gateway.cli(&["events", "duplicates", &event, "1"]).await;
    let done = gateway.cli(&["events", "deliver-anyway", &event, "1", "--json"]).await;
    let twice = gateway.cli(&["events", "deliver-anyway", &event, "1"]).await;

    assert!(none.stderr.contains("No duplicates"), "{none:?}");
    assert!(list.stdout.contains("true"), "{list:?}");
    assert!(shown.stdout.contains("/items/1") && shown.stdout.contains("added"), "{shown:?}");
    let new = serde_json::from_str::<Value>(&done.stdout).unwrap();
    let new = new["event_id"].as_str().unwrap();
    assert_eq!(twice.code, Some(5), "{twice:?}");
    assert!(twice.stderr.contains(new), "{twice:?}");
    let list = gateway.cli(&["events", "duplicates", &event]).await;
    assert!(list.stdout.contains(new), "{list:?}");
}
