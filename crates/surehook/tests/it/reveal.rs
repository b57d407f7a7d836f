//! Revealing masked values, and the timeline entry that records it.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

const BODY: &str = r#"{"id":"k-1","password":"canary-body"}"#;

/// A gateway with one delivered event, and its id.
async fn gateway_with_delivered_event() -> (Gateway, String) {
    let response = Reply::status(200).body(r#"{"token":"canary-answer"}"#);
    let sink = Sink::with_replies([response]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let headers: [(&str, &[u8]); 2] = [("cookie", b"canary-cookie"), ("x-odd", b"\xff\xfe")];
    let path = "/in/in?token=canary-query";
    let event = gateway.request(Method::POST, path, &headers, BODY).await.expect(200).event_id();
    gateway.wait_for_delivery(&event, "succeeded").await;
    (gateway, event)
}

async fn reveal(
    gateway: &Gateway,
    token: &Value,
    event: &str,
) -> crate::support::client::HttpResponse {
    let (token, path) = (token["token"].as_str().unwrap(), format!("/events/{event}/reveal"));
    gateway.api_as(token, Method::POST, &path, None).await
}

async fn token(gateway: &Gateway, role: &str) -> Value {
    let request = json!({ "role": role, "name": format!("{role}'s") });
    gateway.post("/tokens", &request).await.expect(201).json()
}

fn header<'a>(revealed: &'a Value, name: &str) -> &'a Value {
    let lines = revealed["request"]["headers"].as_array().unwrap();
    lines.iter().find(|line| line["name"] == name).unwrap()
}

#[tokio::test]
async fn operator_reveals_masked_values_and_timeline_records_token() {
    let (gateway, event) = gateway_with_delivered_event().await;
    assert!(!gateway.event(&event).await.to_string().contains("canary"));
    let operator = token(&gateway, "operator").await;

    let revealed = reveal(&gateway, &operator, &event).await.expect(200).json();

    assert_eq!(revealed["body"], json!({ "text": BODY }));
    assert_eq!((&revealed["key"], &revealed["body_removed"]), (&json!("k-1"), &json!(false)));
    assert_eq!(revealed["request"]["query"], "token=canary-query");
    assert_eq!(header(&revealed, "cookie")["text"], "canary-cookie");
    assert_eq!(header(&revealed, "x-odd")["base64"], "//4=");
    assert_eq!(revealed["responses"][0]["response"]["text"], r#"{"token":"canary-answer"}"#);
    assert_eq!(
        (revealed["responses"].as_array().unwrap().len(), &revealed["responses_omitted"]),
        (1, &json!(false))
    );

    let event_after = gateway.event(&event).await;
    let timeline = event_after["decisions"].as_array().unwrap();
    let entry = timeline.iter().find(|entry| entry["kind"] == "revealed").unwrap();
    assert_eq!(
        entry["detail"],
        json!({ "token": operator["id"], "name": "operator's", "begun_with": null })
    );
    assert!(entry["text"].as_str().unwrap().contains("operator"), "{entry}");
    assert!(!event_after.to_string().contains("canary"), "{event_after}");

    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("event revealed")).unwrap();
    assert!(line.contains(&event) && line.contains(operator["id"].as_str().unwrap()), "{line}");
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn viewer_cannot_reveal_and_timeline_stays_unchanged() {
    let (gateway, event) = gateway_with_delivered_event().await;
    let viewer = token(&gateway, "viewer").await;

    let refused = reveal(&gateway, &viewer, &event).await.expect(403);

    assert!(!refused.json().to_string().contains("canary"));
    let event_after = gateway.event(&event).await;
    let timeline = event_after["decisions"].as_array().unwrap();
    assert!(timeline.iter().all(|entry| entry["kind"] != "revealed"), "{event_after}");
    let admin = token(&gateway, "admin").await;
    reveal(&gateway, &admin, &event).await.expect(200);
    reveal(&gateway, &admin, "evt_01h455vb4pex5vsknk084sn02q").await.expect(404);
}

#[tokio::test]
async fn reveal_rejects_idempotency_key() {
    let (gateway, event) = gateway_with_delivered_event().await;
    let authorization = format!("Bearer {}", gateway.token());
    let headers: [(&str, &[u8]); 2] =
        [("authorization", authorization.as_bytes()), ("idempotency-key", b"k")];
    let path = format!("/api/v1/events/{event}/reveal");
    let refused = gateway.request(Method::POST, &path, &headers, "").await.expect(400);
    assert_eq!(refused.json()["code"], "bad_idempotency_key");
}
