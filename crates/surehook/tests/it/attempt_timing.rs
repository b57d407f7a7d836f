//! Timing of attempts by stage, and the reason for the time of the next attempt.

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
    tls::{CertificateAuthority, TlsSink},
};

/// Sends an event, waits for this delivery status, and returns the first attempt.
async fn first_attempt(gateway: &Gateway, status: &str) -> Value {
    let event = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&event, status).await;
    let attempt = delivery["attempt_list"][0].clone();
    let event = gateway.event(&event).await;
    let entries = event["decisions"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["detail"]["attempt"] == attempt["id"]).unwrap();
    for name in ["timing", "next_at", "next_reason"] {
        assert_eq!(entry["detail"][name], attempt[name], "the timeline shows the same {name}");
    }
    attempt
}

/// The stages for which an attempt reports a time.
fn stages(attempt: &Value) -> Vec<&str> {
    let timing = attempt["timing"].as_object().unwrap();
    assert_eq!(timing["total_ms"], attempt["duration_ms"]);
    let is_reported = |name: &&str| {
        let Some(spent) = timing.get(*name).and_then(Value::as_u64) else { return false };
        assert!(spent <= attempt["duration_ms"].as_u64().unwrap(), "{timing:?}");
        true
    };
    ["dns_ms", "connect_ms", "tls_ms", "first_byte_ms"].into_iter().filter(is_reported).collect()
}

/// An attempt on a reused connection. Retried because the previous connection may not be back in the pool
/// yet.
async fn attempt_on_reused_connection(gateway: &Gateway) -> Value {
    for _ in 0..50 {
        let reused = first_attempt(gateway, "succeeded").await;
        if reused["timing"]["reused_connection"] == true {
            return reused;
        }
    }
    panic!("no connection is reused");
}

#[tokio::test]
async fn new_connection_reports_all_stages_and_reused_one_only_first_byte() {
    let authority = CertificateAuthority::new();
    let (plain, secure) = (Sink::ok().await, TlsSink::start(&authority, None).await);
    let url_with_name = plain.url().replace("127.0.0.1", "localhost");
    let cases = [
        (url_with_name, "", vec!["dns_ms", "connect_ms", "first_byte_ms"]),
        (plain.url(), "", vec!["connect_ms", "first_byte_ms"]),
        (
            secure.url(),
            &*format!("tls = {{ ca = \"\"\"{}\"\"\" }}", authority.pem()),
            vec!["connect_ms", "tls_ms", "first_byte_ms"],
        ),
    ];
    for (url, more, expected) in cases {
        let gateway = Gateway::start_with(&route_settings(&url, more)).await;

        let first = first_attempt(&gateway, "succeeded").await;
        let reused = attempt_on_reused_connection(&gateway).await;

        assert_eq!(stages(&first), expected, "case: {url}: {first}");
        assert_eq!(first["timing"]["reused_connection"], false, "case: {url}");
        assert_eq!(first["next_reason"], Value::Null);
        assert_eq!(stages(&reused), ["first_byte_ms"], "case: {url}: {reused}");
    }
}

#[tokio::test]
async fn refused_connection_reports_only_connect_stage() {
    let closed_url = Sink::ok().await.url().replace("http:", "https:");
    let gateway =
        Gateway::start_with(&route_settings(&closed_url, "retry = { schedule = [\"1h\"] }")).await;

    let refused = first_attempt(&gateway, "scheduled").await;

    assert_eq!(refused["failure"], "refused");
    assert_eq!(stages(&refused), ["connect_ms"], "{refused}");
    assert_eq!(refused["timing"]["reused_connection"], Value::Null);
}

#[tokio::test]
async fn non_http_attempt_reports_only_total() {
    let gateway = Gateway::start_with(&route_settings("builtin:inbox", "")).await;

    let arrived = first_attempt(&gateway, "succeeded").await;

    assert_eq!(stages(&arrived), [""; 0], "{arrived}");
    assert_eq!(arrived["timing"]["reused_connection"], Value::Null);
}

#[tokio::test]
async fn next_attempt_shows_schedule_reason() {
    let throttling = Reply::status(429).header("retry-after", "7200");
    let sink = Sink::with_replies([Reply::status(500), throttling]).await;
    let gateway =
        Gateway::start_with(&route_settings(&sink.url(), "retry = { schedule = [\"1h\"] }")).await;

    let failed = first_attempt(&gateway, "scheduled").await;
    assert_eq!((&failed["next"], &failed["next_reason"]), (&json!("retry"), &json!("backoff")));
    let throttled = first_attempt(&gateway, "scheduled").await;
    assert_eq!(throttled["next_reason"], "retry_after");

    let listed = gateway.get("/deliveries").await.expect(200).json();
    let id = listed["data"][0]["id"].as_str().unwrap().to_owned();
    let shown = gateway.cli(&["dlq", "show", &id]).await;
    assert!(shown.stdout.contains("retry_after"), "{shown:?}");
    assert!(shown.stdout.contains("first byte "), "{shown:?}");
    let event = listed["data"][0]["event"].as_str().unwrap().to_owned();
    let shown = gateway.cli(&["events", "show", &event]).await;
    assert!(shown.stdout.contains("Retry-After"), "{shown:?}");
    assert!(shown.stdout.contains("first byte "), "{shown:?}");
}
