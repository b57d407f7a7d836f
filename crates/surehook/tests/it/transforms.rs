//! Routes with a `transform`.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{
    gateway::{Gateway, Route},
    sink::{Reply, Sink},
};

fn settings(url: &str, transform: &str) -> String {
    let route = format!("transform = '{transform}'");
    let destination = format!("url = \"{url}\"\nretry = {{ schedule = [\"100ms\"] }}");
    let all = r#"
        [[routes]]
        from = "in"
        to = "all"

        [[destinations]]
        name = "all"
        url = "builtin:inbox"
        "#;
    Route { route: &route, destination: &destination, ..Route::default() }.settings() + all
}

/// A destination whose route transforms events must never get the original.
#[tokio::test]
async fn send_missing_job_applies_transform() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&format!(
        r#"
        [[sources]]
        name = "in"
        verify = "none"
        [[destinations]]
        name = "out"
        url = "{}"
        "#,
        sink.url()
    ))
    .await;
    gateway.post_accepted("in", r#"{"id":"a","phone":"canary"}"#).await;
    let route = json!({ "from": "in", "to": "out", "transform": "{id}" });
    gateway.post("/routes", &route).await.expect(201);

    let job = json!({ "verb": "send_missing", "to": "out", "filter": { "source": "in" } });
    gateway.post("/replays", &job).await.expect(202);

    let arrived = sink.wait_for_requests(1).await;
    assert_eq!(&arrived[0].body[..], br#"{"id":"a"}"#);
}

/// The receiver can verify the signature only over the sent body.
#[tokio::test]
async fn signature_covers_transformed_body() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let gateway = Gateway::start_with(&settings(&sink.url(), "{id}")).await;
    let spec = json!({
        "name": "out", "url": sink.url(), "retry": { "schedule": ["1ms"] }, "signing_secrets": [SECRET],
    });
    gateway.put("/destinations/out", &spec).await.expect(200);

    let event = gateway.post_accepted("in", r#"{"id":"a","phone":"canary"}"#).await;

    for arrived in sink.wait_for_requests(2).await {
        assert_eq!(&arrived.body[..], br#"{"id":"a"}"#);
        let key = BASE64.decode(SECRET.strip_prefix("whsec_").unwrap().as_bytes()).unwrap();
        let signed = format!(r#"{event}.{}.{{"id":"a"}}"#, arrived.header("webhook-timestamp"));
        let mac = Hmac::<Sha256>::new_from_slice(&key).unwrap().chain_update(signed);
        let expected = format!("v1,{}", BASE64.encode(&mac.finalize().into_bytes()));
        assert_eq!(arrived.header("webhook-signature"), expected);
    }
}

/// A header is secret because of the setting it comes from, not because of its name.
#[tokio::test]
async fn inbox_masks_secrets_of_source_and_destination() {
    let gateway = Gateway::start().await;
    let source = json!({
        "name": "shop", "secrets": ["canary-1-of-the-source"], "verify": { "token": { "header": "x-shop-sig" } },
    });
    gateway.post("/sources", &source).await.expect(201);
    let headers = json!({ "x-crm-note": "canary-2" });
    let destination = json!({ "name": "viewed", "url": "builtin:inbox", "headers": headers });
    gateway.post("/destinations", &destination).await.expect(201);
    gateway.post("/routes", &json!({ "from": "shop", "to": "viewed" })).await.expect(201);
    let sent = gateway
        .send_webhook("shop", &[("x-shop-sig", "canary-1-of-the-source")], r#"{"id":"a"}"#)
        .await;
    let event = sent.expect(200).event_id();
    gateway.wait_for_delivery(&event, "succeeded").await;

    let inbox = gateway.get("/inbox").await.expect(200).text();

    // Like any destination, the inbox does not get the header with the source's secret at all.
    assert!(!inbox.contains("x-shop-sig") && inbox.contains("x-crm-note"), "{inbox}");
    assert!(!inbox.contains("canary"), "{inbox}");
}

#[tokio::test]
async fn every_attempt_sends_transformed_body_and_original_is_stored() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let transform = "{order: .id, amount, note: .text}";
    let gateway = Gateway::start_with(&settings(&sink.url(), transform)).await;
    let body = r#"{"id":9007199254740993,"amount":12345678901234567890.10,"text":"ü","more":1}"#;

    let headers = [("content-type", "text/plain"), ("x-mine", "1")];
    let event = gateway.send_webhook("in", &headers, body).await.expect(200).event_id();

    let arrivals = sink.wait_for_requests(2).await;
    let transformed = r#"{"order":9007199254740993,"amount":12345678901234567890.10,"note":"ü"}"#;
    for arrival in &arrivals {
        // The second attempt reads the body from the store.
        assert_eq!(arrival.body, transformed);
        assert_eq!(arrival.header("content-type"), "application/json");
        assert_eq!(arrival.header("x-mine"), "1");
    }
    let original = gateway.get(&format!("/events/{event}/body")).await.expect(200);
    assert_eq!(original.text(), body);
    let out = gateway.find_delivery_to(&event, "out").await.unwrap();
    let all = gateway.find_delivery_to(&event, "all").await.unwrap();
    gateway.wait_for_delivery_status(&out, "succeeded").await;
    assert_eq!(
        gateway.get(&format!("/deliveries/{out}/body")).await.expect(200).text(),
        transformed
    );
    assert_eq!(gateway.get(&format!("/deliveries/{all}/body")).await.expect(200).text(), body);
    // A replay sends the same body, even if the route has changed.
    change_transform(&gateway, json!("{}")).await;
    gateway.post(&format!("/deliveries/{out}/replay"), &json!({})).await.expect(202);
    assert_eq!(sink.wait_for_requests(3).await[2].body, transformed);
}

async fn change_transform(gateway: &Gateway, transform: Value) {
    let routes = gateway.list("/routes").await;
    let route = routes.iter().find(|route| route["to"] == "out").unwrap();
    let id = route["id"].as_str().unwrap();
    let changed = json!({ "from": "in", "to": "out", "transform": transform });
    gateway.put(&format!("/routes/{id}"), &changed).await.expect(200);
}

#[tokio::test]
async fn event_dropped_by_transform_is_recorded_as_not_routed() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings(&sink.url(), "select(.keep)")).await;

    let dropped = gateway.post_accepted("in", r#"{"keep":false}"#).await;
    let passed = gateway.post_accepted("in", r#"{"keep":true}"#).await;

    assert_eq!(sink.wait_for_requests(1).await[0].id(), passed);
    assert_eq!(gateway.find_delivery_to(&dropped, "out").await, None);
    assert!(gateway.find_delivery_to(&dropped, "all").await.is_some());
    let timeline = gateway.event(&dropped).await["decisions"].clone();
    let entry = timeline.as_array().unwrap().iter().find(|entry| entry["kind"] == "not_routed");
    let detail = &entry.unwrap()["detail"];
    assert_eq!(detail, &json!({ "destination": "out", "why": "dropped_by_transform" }));
}

#[tokio::test]
async fn failed_transform_makes_dead_letter_replayable_after_route_fix() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings(&sink.url(), "{n: (.n + 1)}")).await;
    for (body, reason) in [
        (r#"{"n":"text"}"#, "filter failed"),
        ("not json", "not JSON"),
        (r#"{"n":{}}"#, "filter failed"),
    ] {
        let event = gateway.post_accepted("in", body).await;

        let id = gateway.find_delivery_to(&event, "out").await.unwrap();
        let dead = gateway.wait_for_delivery_status(&id, "dead").await;

        assert_eq!(dead["reason"], "payload_error", "{dead}");
        let attempt = &dead["attempt_list"][0];
        assert_eq!((&attempt["failure"], &attempt["next"]), (&"transform".into(), &"dead".into()));
        assert!(attempt["detail"].as_str().unwrap().contains(reason), "{dead}");
        assert_eq!(gateway.get(&format!("/deliveries/{id}/body")).await.status, 404);
    }
    assert_eq!(sink.requests().len(), 0, "the original is not sent in its place");

    change_transform(&gateway, json!("{text: (.n | tostring)}")).await;
    let dead = gateway.get("/dead-letters?limit=1000").await.expect(200).json();
    let last = dead["data"][0]["id"].as_str().unwrap();
    gateway.post(&format!("/deliveries/{last}/replay"), &json!({})).await.expect(202);

    assert_eq!(sink.wait_for_requests(1).await[0].body, r#"{"text":"{}"}"#);
}

#[tokio::test]
async fn transform_is_limited_in_steps_and_checked_when_saved() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings(&sink.url(), "def f: f; f")).await;

    let event = gateway.post_accepted("in", "{}").await;

    let id = gateway.find_delivery_to(&event, "out").await.unwrap();
    let dead = gateway.wait_for_delivery_status(&id, "dead").await;
    let detail = dead["attempt_list"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("steps"), "{detail}");
    let broken = json!({ "from": "in", "to": "out", "transform": "{" });
    let refused = gateway.post("/routes", &broken).await.expect(422);
    assert!(refused.detail().contains("transform: filter, line 1"), "{}", refused.text());
}
