//! `sign_as`: deliveries signed in a provider's own scheme.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{
    gateway::{Gateway, Route, route_settings},
    sink::{Reply, Sink, SinkRequest},
};

const SECRET: &str = "whsec_of_the_destination";
const SIGN_AS: &str = r#"sign_as = { provider = "stripe", secret = "env:DESTINATION_SECRET" }
        retry = { max_attempts = 3, schedule = ["1ms"] }"#;

async fn gateway(sink: &Sink, destination: &str, route: &str) -> Gateway {
    let toml = route_settings(&sink.url(), destination)
        .replace("to = \"out\"", &format!("to = \"out\"{route}"));
    Gateway::builder().env("DESTINATION_SECRET", SECRET).settings(&toml).start().await
}

/// The Stripe signature that the arrival must carry.
fn expected_signature(arrival: &SinkRequest) -> String {
    let signature = arrival.header("stripe-signature");
    let time = signature.strip_prefix("t=").and_then(|rest| rest.split_once(',')).unwrap().0;
    let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())
        .unwrap()
        .chain_update(format!("{time}."))
        .chain_update(&arrival.body);
    format!("t={time},v1={}", data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes()))
}

#[tokio::test]
async fn every_attempt_is_signed_over_sent_body() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let gateway = gateway(&sink, SIGN_AS, "\n        transform = '{id, seen: true}'").await;

    let headers = [("stripe-signature", "t=1,v1=00"), ("x-other", "stays")];
    gateway.send_webhook("in", &headers, r#"{"id":"evt_1", "a":1}"#).await.expect(200);

    for arrival in sink.wait_for_requests(2).await {
        assert_eq!(arrival.body, r#"{"id":"evt_1","seen":true}"#);
        assert_eq!(arrival.headers.get_all("stripe-signature").iter().count(), 1);
        assert_eq!(arrival.header("stripe-signature"), expected_signature(&arrival));
        assert_eq!(arrival.header("x-other"), "stays");
    }
    let destination = gateway.get("/destinations/out").await.expect(200).json();
    assert_eq!(
        destination["sign_as"],
        json!({ "provider": "stripe", "secret": "env:DESTINATION_SECRET" })
    );
}

#[tokio::test]
async fn each_event_of_a_batch_is_signed_separately() {
    const BATCH: &str =
        include_str!("../../../../testdata/payloads/whatsapp.batch.multi_entry_multi_change.json");
    let sink = Sink::ok().await;
    let sign = |secret: &str, body: &[u8]| {
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(body);
        format!("sha256={}", data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes()))
    };
    let app_secret = "the secret of the app at Meta";
    let toml = Route {
        source: &format!("provider = \"whatsapp-cloud\"\nsecrets = [\"{app_secret}\"]"),
        destination: &format!(
            "url = \"{}\"\nsign_as = {{ provider = \"whatsapp-cloud\", secret = \"env:DESTINATION_SECRET\" }}",
            sink.url()
        ),
        ..Route::default()
    }
    .settings();
    let gateway =
        Gateway::builder().env("DESTINATION_SECRET", SECRET).settings(&toml).start().await;

    let received_signature = sign(app_secret, BATCH.as_bytes());
    let response = gateway
        .send_webhook("in", &[("x-hub-signature-256", &received_signature)], BATCH)
        .await
        .expect(200);

    let events = response.json()["events"].as_array().unwrap().len();
    assert_eq!(events, 6);
    for arrival in sink.wait_for_requests(events).await {
        assert_eq!(arrival.header("x-hub-signature-256"), sign(SECRET, &arrival.body));
        assert_eq!(arrival.headers.get_all("x-hub-signature-256").iter().count(), 1);
    }
}

#[tokio::test]
async fn transformed_body_without_sign_as_drops_provider_signature() {
    let sink = Sink::ok().await;
    let gateway = gateway(&sink, "", "\n        transform = '{id}'").await;

    let headers = [("stripe-signature", "t=1,v1=00"), ("x-other", "stays")];
    gateway.send_webhook("in", &headers, r#"{"id":"evt_1","a":1}"#).await.expect(200);

    let arrival = &sink.wait_for_requests(1).await[0];
    assert_eq!(arrival.body, r#"{"id":"evt_1"}"#);
    assert!(!arrival.headers.contains_key("stripe-signature"));
    assert_eq!(arrival.header("x-other"), "stays");
}

#[tokio::test]
async fn invalid_sign_as_is_rejected() {
    let gateway = Gateway::builder().env("SUREHOOK_ALLOW_ENV", "[\"NOT_SET\"]").start().await;
    let cases: [(Value, &str); 5] = [
        (json!({ "provider": "stripey", "secret": "s" }), "unknown provider `stripey`"),
        (json!({ "provider": "generic", "secret": "s" }), "has no default verification"),
        (json!({ "provider": "stripe", "secret": "env:NOT_SET" }), "`NOT_SET` is not set"),
        (json!({ "provider": "stripe" }), "secret"),
        (json!({ "provider": "stripe", "secret": "s", "x": 1 }), "x"),
    ];
    for (sign_as, text) in cases {
        let spec = json!({ "name": "d", "url": "https://example.com/", "sign_as": sign_as });
        let refused = gateway.post("/destinations", &spec).await.expect(422).json();
        assert!(refused["detail"].as_str().unwrap().contains(text), "case: {sign_as}: {refused}");
    }
    let signed_twice = json!({
        "name": "d", "url": "https://example.com/", "headers": { "Stripe-Signature": "x" },
        "sign_as": { "provider": "stripe", "secret": "canary-secret" },
    });
    let refused = gateway.post("/destinations", &signed_twice).await.expect(422).json();
    assert!(refused["detail"].as_str().unwrap().contains("remove one of the two"), "{refused}");
    assert!(!refused.to_string().contains("canary"), "{refused}");
}
