//! The log must contain no data of a request and no secret, at any level.

use http::Method;
use serde_json::json;

use crate::support::{
    gateway::Gateway,
    sink::{Reply, Sink},
};

/// Every secret and every value of a request contains one of these.
const CANARIES: [&str; 2] = ["canary", "5511987654321"];
const SOURCE_SECRET: &str = "canary-source-secret";

/// A gateway with an open and a verified source, a failing destination, and one whose host does not exist.
async fn busy_gateway(log_settings: &str, sink: &Sink) -> Gateway {
    let url = format!("{}/canary-path?key=canary-query", sink.url());
    Gateway::builder()
        .env("FROM_ENV", "canary-env-secret")
        .settings(&format!(
            r#"
            {log_settings}
            limits = {{ body_timeout = "1s", head_timeout = "2s", body_bytes_max = 2000 }}
            [[sources]]
            name = "open"
            verify = "none"
            [[sources]]
            name = "closed"
            verify = {{ token = {{ header = "x-token" }} }}
            secrets = ["{SOURCE_SECRET}", "env:FROM_ENV"]
            [[destinations]]
            name = "out"
            url = "{url}"
            retry = {{ max_attempts = 2, schedule = ["1ms"] }}
            headers = {{ Authorization = "Bearer canary-outbound" }}
            signing_secrets = ["whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5"]
            [[destinations]]
            name = "unknown"
            url = "http://canary-host.invalid/"
            retry = {{ max_attempts = 1 }}
            [[routes]]
            from = "open"
            to = "out"
            [[routes]]
            from = "closed"
            to = "out"
            [[routes]]
            from = "open"
            to = "unknown"
            [[routes]]
            from = "closed"
            to = "unknown"
            # Fails on a string; the jq error message would quote it.
            filter = ".phone.number == 1"
            "#
        ))
        .start()
        .await
}

/// Sends valid and invalid requests of every kind that is logged.
async fn send_everything(gateway: &Gateway) {
    let body = json!({ "id": "canary-key", "phone": "+5511987654321", "text": "canary-body" });
    let body = body.to_string();
    let token: [(&str, &[u8]); 3] = [
        ("x-token", SOURCE_SECRET.as_bytes()),
        ("x-phone", b"5511987654321"),
        ("cookie", b"canary-cookie"),
    ];
    let wrong: [(&str, &[u8]); 1] = [("x-token", b"canary-guess")];
    let twice: [(&str, &[u8]); 2] = [("idempotency-key", b"canary-1"), ("idempotency-key", b"2")];
    let path = "/in/closed/5511987654321?token=canary-query";
    gateway.request(Method::POST, path, &token, body.clone()).await.expect(200);
    gateway.request(Method::POST, path, &token, body.replace("body", "other")).await.expect(200);
    gateway.request(Method::POST, path, &wrong, body.clone()).await.expect(401);
    gateway.request(Method::POST, "/in/open", &twice, body.clone()).await.expect(400);
    gateway.request(Method::POST, "/in/open", &[], body.clone()).await.expect(200);
    gateway.request(Method::POST, "/in/open", &[], "canary".repeat(1000)).await.expect(413);
    gateway.request(Method::POST, "/in/5511987654321?canary", &[], body).await.expect(404);
    gateway.request(Method::GET, "/in/open?hub.verify_token=canary", &[], "").await.expect(405);
    gateway.request(Method::GET, "/canary/5511987654321", &[], "").await.expect(404);
    let token: [(&str, &[u8]); 1] = [("authorization", b"Bearer canary-admin")];
    gateway.request(Method::GET, "/api/v1/events?key=canary", &token, "").await.expect(401);
    gateway.get("/events?source=canary").await.expect(422);
    let bad = json!({ "name": "x", "verify": "none", "secrets": ["canary-unused"] });
    gateway.post("/sources", &bad).await.expect(422);
    let private = json!({ "name": "x", "url": "http://10.0.0.1/canary?canary" });
    gateway.post("/destinations", &private).await.expect(422);
    for bytes in [
        "POST /in/open?canary HTTP/1.1\r\nHost: h\r\nX canary: 1\r\n\r\n",
        "POST /in/open?canary HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\ncanary",
        "POST /in/open HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\ncanary\r\n",
        "canary 5511987654321\r\n\r\n",
    ] {
        let mut raw = gateway.connect_raw().await;
        raw.write(bytes).await;
        raw.read_until_closed().await;
    }
    gateway.wait_until_idle().await;
}

async fn assert_log_is_clean(log_settings: &str) {
    let sink = Sink::with_replies([
        Reply::status(500).body("canary-answer"),
        Reply::Close,
        Reply::status(400).header("x-canary", "canary").body("canary-answer"),
    ])
    .await;
    let mut gateway = busy_gateway(log_settings, &sink).await;

    send_everything(&gateway).await;
    assert_eq!(gateway.terminate().await.code(), Some(0));

    let log = gateway.log() + &gateway.stdout();
    assert!(log.contains("shutting down"), "the log is missing:\n{log}");
    for canary in CANARIES {
        let line = log.lines().find(|line| line.contains(canary));
        assert_eq!(line, None, "`{canary}` is in the log");
    }
    assert!(!log.contains("Y2FuYXJ5"), "a signing secret is in the log");
}

/// Labels are kept forever and are visible to everyone who can read the metrics.
#[tokio::test]
async fn requests_cannot_add_metric_labels() {
    let gateway = Gateway::start().await;
    let request = |line: &str| format!("{line}\r\nContent-Length: 2\r\n\r\n{{}}");
    for text in [
        request("POST /in/canary HTTP/1.1\r\nHost: h"),
        request("POST /in/canary HTTP/1.1\r\nHost: h\r\nHost: h"),
        request(&format!("POST /in/canary?{} HTTP/1.1\r\nHost: h", "a".repeat(3000))),
        request("CANARY /in/canary HTTP/1.1\r\nHost: h"),
        request("GET /in/canary HTTP/1.1\r\nHost: h"),
    ] {
        let mut raw = gateway.connect_raw().await;
        raw.write(&text).await;
        assert!(raw.read_response().await.unwrap().status >= 400, "{text}");
    }

    let metrics = gateway.metrics().await;

    assert!(metrics.contains("reason=\"bad_host\""), "{metrics}");
    assert!(!metrics.to_lowercase().contains("canary"), "{metrics}");
}

#[tokio::test]
async fn default_log_contains_no_request_data_and_no_secrets() {
    assert_log_is_clean("").await;
}

#[tokio::test]
async fn debug_log_contains_no_request_data_and_no_secrets() {
    assert_log_is_clean("log = \"debug\"").await;
}

#[tokio::test]
async fn trace_log_contains_no_request_data_and_no_secrets() {
    assert_log_is_clean("log = \"trace\"\nlog_format = \"text\"").await;
}
