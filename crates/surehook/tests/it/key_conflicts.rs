//! Other bodies under a known key, and signed requests that are sent again under another key.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{
    client::HttpResponse,
    gateway::{Gateway, Route},
    sink::Sink,
};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn sign(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// A source whose requests are signed over the body alone.
async fn signed_gateway(sink: &Sink, more: &str) -> Gateway {
    let source = format!(
        "verify = {{ hmac = {{ header = \"x-signature\" }} }}\nsecrets = [\"{SECRET}\"]\n{more}"
    );
    let destination = format!("url = \"{}\"", sink.url());
    let route = Route { source: &source, destination: &destination, ..Route::default() };
    Gateway::start_with(&route.settings()).await
}

async fn send(gateway: &Gateway, headers: &[(&str, &str)], body: &str) -> Value {
    let signature = sign(body);
    let mut headers = headers.to_vec();
    headers.push(("x-signature", &signature));
    headers.push(("x-hub-signature-256", &signature));
    let response: HttpResponse = gateway.send_webhook("in", &headers, body.to_owned()).await;
    response.expect(200).json()
}

fn id(response: &Value) -> &str {
    response["events"][0]["id"].as_str().unwrap()
}

#[tokio::test]
async fn updates_of_one_id_are_all_stored_and_delivered() {
    let sink = Sink::ok().await;
    let gateway = signed_gateway(&sink, "").await;
    let update = |status: &str| json!({ "id": "order-1", "status": status }).to_string();
    let created = send(&gateway, &[], &update("created")).await;

    let mut before = id(&created).to_owned();
    for number in 1..150 {
        let response = send(&gateway, &[], &update(&number.to_string())).await;
        assert_eq!(response["status"], "accepted", "{response}");
        assert_eq!(response["events"][0]["key_conflict"], before.as_str(), "{response}");
        before = id(&response).to_owned();
    }

    let arrivals = sink.wait_for_requests(150).await;
    let mut bodies: Vec<_> = arrivals.iter().map(|arrival| arrival.body.clone()).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 150);
    // A retry of any of them is a duplicate.
    let again = send(&gateway, &[], &update("created")).await;
    assert_eq!((again["status"].as_str(), id(&again)), (Some("duplicate"), id(&created)));
    let stats = gateway.stats().await;
    assert_eq!((&stats["total"], &stats["key_conflicts"]), (&json!(150), &json!(149)));
    let shown = gateway.event(&before).await;
    assert_eq!(shown["key_origin"], "guessed");
    let timeline = shown["decisions"].as_array().unwrap();
    assert!(timeline.iter().any(|entry| entry["kind"] == "key_conflict"), "{shown}");
    let listed = gateway.get("/events?key_conflict=true&limit=200").await.expect(200).json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 149);
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("surehook_key_conflicts_total{source=\"in\"} 149"), "{metrics}");
}

#[tokio::test]
async fn on_conflict_decides_about_another_body() {
    let sink = Sink::ok().await;
    for (more, expected) in [
        ("", "accepted"),
        ("on_conflict = \"duplicate\"", "duplicate"),
        ("keys = [\"pointer:/id\"]", "duplicate"),
        ("keys = [\"pointer:/id\"]\non_conflict = \"accept\"", "accepted"),
    ] {
        let gateway = signed_gateway(&sink, more).await;
        send(&gateway, &[], r#"{"id":"a","n":1}"#).await;
        let second = send(&gateway, &[], r#"{"id":"a","n":2}"#).await;
        assert_eq!(second["status"], expected, "case: {more}");
    }
}

#[tokio::test]
async fn body_beyond_the_stored_duplicates_becomes_an_event() {
    let sink = Sink::ok().await;
    let gateway = signed_gateway(&sink, "keys = [\"pointer:/id\"]").await;
    let mut stored = 0;
    for number in 0..150 {
        send(&gateway, &[], &json!({ "id": "a", "n": number }).to_string()).await;
    }
    let events = gateway.get("/events?limit=200").await.expect(200).json();
    for row in events["data"].as_array().unwrap() {
        let event = gateway.event(row["id"].as_str().unwrap()).await;
        let duplicates = event["duplicates"].as_array().unwrap();
        stored += 1 + duplicates.iter().filter(|seen| seen["body"].is_object()).count();
    }
    assert_eq!(stored, 150, "no body that was answered 200 is dropped");
}

#[tokio::test]
async fn unsigned_header_makes_no_key_of_a_signed_request() {
    let sink = Sink::ok().await;
    let gateway = signed_gateway(&sink, "").await;
    let first = send(&gateway, &[], r#"{"id":"order-1"}"#).await;

    for key in ["1", "2", "order-3"] {
        for header in ["idempotency-key", "webhook-id", "x-event-id"] {
            let replayed = send(&gateway, &[(header, key)], r#"{"id":"order-1"}"#).await;
            assert_eq!(replayed["status"], "duplicate", "{header}: {replayed}");
            assert_eq!(id(&replayed), id(&first));
        }
    }
    let genuine = send(&gateway, &[], r#"{"id":"order-3"}"#).await;
    assert_eq!(genuine["status"], "accepted", "{genuine}");
}

#[tokio::test]
async fn signed_bytes_under_another_configured_header_key_are_a_duplicate() {
    let sink = Sink::ok().await;
    let gateway = signed_gateway(&sink, "keys = [\"header:x-own\"]").await;
    let first = send(&gateway, &[("x-own", "1")], r#"{"n":1}"#).await;

    for headers in [&[("x-own", "2")][..], &[("x-own", "3")], &[]] {
        let replayed = send(&gateway, headers, r#"{"n":1}"#).await;
        assert_eq!(replayed["status"], "duplicate", "{replayed}");
        assert_eq!(replayed["events"][0]["reason"], "same_signed_bytes", "{replayed}");
        assert_eq!(id(&replayed), id(&first));
    }
    // The replays have not taken the keys of genuine requests.
    for (key, body) in [("2", r#"{"n":2}"#), ("3", r#"{"n":3}"#)] {
        let genuine = send(&gateway, &[("x-own", key)], body).await;
        assert_eq!(genuine["status"], "accepted", "{genuine}");
        assert_eq!(genuine["events"][0].get("key_conflict"), None, "{genuine}");
    }
    let event = gateway.event(id(&first)).await;
    let seen = event["duplicates"].as_array().unwrap();
    assert!(seen.iter().all(|seen| seen["reason"] == "same_signed_bytes"), "{event}");
    assert_eq!(seen.len(), 3);
    let path = format!("/events/{}/duplicates/1/deliver", id(&first));
    gateway.post(&path, &json!({})).await.expect(202);
    sink.wait_for_requests(4).await;
}

#[tokio::test]
async fn replay_guard_can_be_turned_off() {
    let sink = Sink::ok().await;
    let gateway = signed_gateway(&sink, "keys = [\"header:x-own\"]\nreplay_guard = false").await;
    for key in ["1", "2", "3"] {
        let sent = send(&gateway, &[("x-own", key)], r#"{"n":1}"#).await;
        assert_eq!(sent["status"], "accepted", "{sent}");
    }
}

#[tokio::test]
async fn reordered_fields_are_the_same_body_where_bodies_are_compared_as_json() {
    let sink = Sink::ok().await;
    for (more, expected) in [("", "accepted"), ("compare_bodies = \"json\"", "duplicate")] {
        let gateway = signed_gateway(&sink, more).await;
        send(&gateway, &[], r#"{"id":"a","text":"é","n":1}"#).await;
        let reordered = send(&gateway, &[], r#"{ "n": 1, "text": "\u00e9", "id": "a" }"#).await;
        assert_eq!(reordered["status"], expected, "case: {more}");
        let changed = send(&gateway, &[], r#"{"n":2,"text":"é","id":"a"}"#).await;
        assert_eq!(changed["status"], "accepted", "case: {more}");
    }
}

#[tokio::test]
async fn viewer_cannot_see_signatures_with_which_a_request_could_be_sent_again() {
    let sink = Sink::ok().await;
    let gateway = signed_gateway(&sink, "").await;
    let body = r#"{"id":"order-1"}"#;
    let first = send(&gateway, &[], body).await;
    let signature = sign(body);
    let viewer = gateway.create_token("viewer").await;
    let path = format!("/events/{}", id(&first));

    let shown = gateway.api_as(&viewer, Method::GET, &path, None).await.expect(200).text();
    assert!(shown.contains("x-signature") && !shown.contains(&signature), "{shown}");
    let shown = gateway.get(&path).await.expect(200).text();
    assert!(shown.contains(&signature), "{shown}");
}
