//! The API: authentication, lists, details, replays, probes.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, TOKEN, route_settings},
    sink::{Reply, Sink},
};

fn ids(list: &Value) -> Vec<String> {
    let rows = list["data"].as_array().unwrap();
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn api_without_valid_bearer_token_returns_unauthorized() {
    let gateway = Gateway::start().await;
    let with_prefix = format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]);
    let with_more = format!("Bearer {TOKEN}x");
    let as_basic = format!("Basic {TOKEN}");
    let refused: [&[(&str, &[u8])]; 7] = [
        &[],
        &[("authorization", b"")],
        &[("authorization", b"Bearer")],
        &[("authorization", b"Bearer \xff")],
        &[("authorization", with_prefix.as_bytes())],
        &[("authorization", with_more.as_bytes())],
        &[("authorization", as_basic.as_bytes())],
    ];
    for headers in refused {
        for path in ["/api/v1/events", "/api/v1/stats", "/api/v1/configuration", "/metrics"] {
            let response = gateway.request(Method::GET, path, headers, "").await.expect(401);
            assert_eq!(response.code(), "unauthorized", "case: {path} {headers:?}");
            assert_eq!(response.header("www-authenticate"), "Bearer", "case: {path}");
        }
    }
    // A change without a token is rejected before its body is read.
    let change = gateway.request(Method::DELETE, "/api/v1/sources/demo", &[], "").await;
    assert_eq!(change.expect(401).code(), "unauthorized");
    gateway.get("/sources/demo").await.expect(200);
    let lower = format!("bearer {TOKEN}");
    let headers: [(&str, &[u8]); 1] = [("authorization", lower.as_bytes())];
    gateway.request(Method::GET, "/api/v1/events", &headers, "").await.expect(200);
}

#[tokio::test]
async fn missing_resource_returns_not_found_problem() {
    let gateway = Gateway::start().await;
    let missing = [
        "/nothing",
        "/events/evt_01h455vb4pex5vsknk084sn02q",
        "/events/no-id",
        "/events/dlv_01h455vb4pex5vsknk084sn02q",
        "/events/evt_01h455vb4pex5vsknk084sn02q/body",
        "/events/%ff",
        "/deliveries/dlv_01h455vb4pex5vsknk084sn02q",
        "/deliveries/..",
        "/sources/unknown",
        "/destinations/dst_01h455vb4pex5vsknk084sn02q",
        "/routes/rte_01h455vb4pex5vsknk084sn02q",
    ];
    for path in missing {
        let response = gateway.get(path).await.expect(404);
        assert_eq!(response.code(), "not_found", "case: {path}");
        let problem = response.json();
        assert_eq!(problem["status"], 404, "case: {path}");
        assert_eq!(problem["type"], "urn:surehook:not_found", "case: {path}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "case: {path}");
    }
    let replay = "/deliveries/dlv_01h455vb4pex5vsknk084sn02q/replay";
    assert_eq!(gateway.post(replay, &json!({})).await.expect(404).code(), "not_found");
    for path in ["/elsewhere", "/api", "/api/v2/events", "/in"] {
        let response = gateway.request(Method::GET, path, &[], "").await.expect(404);
        assert_eq!(response.code(), "not_found", "case: {path}");
    }
}

#[tokio::test]
async fn wrong_method_returns_allow_header() {
    let gateway = Gateway::start().await;
    for (method, path, expected) in [
        ("DELETE", "/events", vec!["GET"]),
        ("PATCH", "/sources", vec!["GET", "POST"]),
        ("POST", "/sources/demo", vec!["DELETE", "GET", "PUT"]),
        ("GET", "/deliveries/dlv_01h455vb4pex5vsknk084sn02q/replay", vec!["POST"]),
    ] {
        let authorization = format!("Bearer {TOKEN}");
        let headers: [(&str, &[u8]); 1] = [("authorization", authorization.as_bytes())];
        let method: Method = method.parse().unwrap();
        let response =
            gateway.request(method.clone(), &format!("/api/v1{path}"), &headers, "").await;
        let response = response.expect(405);
        assert_eq!(response.code(), "method_not_allowed", "case: {method} {path}");
        let mut allowed: Vec<&str> =
            response.header("allow").split(',').map(str::trim).filter(|m| *m != "HEAD").collect();
        allowed.sort_unstable();
        assert_eq!(allowed, expected, "case: {method} {path}");
    }
}

#[tokio::test]
async fn invalid_query_parameter_is_named_in_the_problem() {
    let gateway = Gateway::start().await;
    for (path, text) in [
        ("/events?limit=0", "limit"),
        ("/events?limit=-1", "limit"),
        ("/events?limit=1000000000", "limit"),
        ("/events?limit=ten", "limit"),
        ("/events?cursor=nonsense", "cursor"),
        // A cursor of another list.
        ("/events?cursor=dlv_01h455vb4pex5vsknk084sn02q", "cursor"),
        ("/events?sourse=demo", "sourse"),
        ("/events?source=unknown", "unknown"),
        ("/events?limit=1&limit=2", "limit"),
        ("/deliveries?status=lost", "status"),
        ("/deliveries?reason=expired", "status=dead"),
        ("/deliveries?destination=unknown", "unknown"),
        ("/dead-letters?reason=bored", "reason"),
        ("/dead-letters?status=dead", "status"),
    ] {
        let response = gateway.get(path).await.expect(422);
        assert_eq!(response.code(), "invalid", "case: {path}");
        assert!(response.detail().contains(text), "case: {path}: {}", response.detail());
    }
}

#[tokio::test]
async fn events_are_listed_in_pages_newest_first() {
    let gateway = Gateway::start().await;
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(gateway.post_accepted("demo", format!("{{\"id\":\"k{number}\"}}")).await);
    }
    sent.reverse();

    let first = gateway.get("/events?limit=2").await.expect(200).json();
    let cursor = first["next_cursor"].as_str().unwrap();
    // Events received meanwhile appear on no later page.
    gateway.post_accepted("demo", "{}").await;
    let second = gateway.get(&format!("/events?limit=2&cursor={cursor}")).await.expect(200).json();
    let cursor = second["next_cursor"].as_str().unwrap();
    let last = gateway.get(&format!("/events?limit=2&cursor={cursor}")).await.expect(200).json();

    assert_eq!([ids(&first), ids(&second), ids(&last)].concat(), sent);
    assert_eq!(last["next_cursor"], Value::Null);
    let events = gateway.get("/events?source=demo&key=k3").await.expect(200).json();
    assert_eq!(ids(&events), [sent[1].clone()]);
    let row = &events["data"][0];
    assert_eq!((&row["source"], &row["key"]), (&json!("demo"), &json!("k3")));
    assert_eq!((&row["no_key"], &row["duplicate_count"]), (&json!(false), &json!(0)));
    assert_eq!(row["body_bytes"], 11);
}

#[tokio::test]
async fn event_details_show_the_request_and_mask_secrets() {
    let gateway = Gateway::start_with(
        "[[sources]]\nname = \"in\"\nverify = { token = { header = \"x-pass\" } }\n\
         secrets = [\"canary-source-token\"]",
    )
    .await;
    let body: &[u8] = b"<script>alert(1)</script>\xff\0";
    let headers: [(&str, &[u8]); 5] = [
        ("content-type", b"text/html"),
        ("x-bytes", b"caf\xe9"),
        ("cookie", b"canary-cookie"),
        ("x-pass", b"canary-source-token"),
        ("authorization", b"Bearer canary-bearer"),
    ];
    let path = "/in/in/sub/path?phase=1&token=canary-query";
    let id = gateway.request(Method::POST, path, &headers, body).await.expect(200).event_id();

    let response = gateway.get(&format!("/events/{id}")).await.expect(200);
    let event = response.json();
    assert_eq!(event["request"]["path"], "/sub/path");
    assert_eq!(event["request"]["remote"], "127.0.0.1");
    assert_eq!(event["sha256"].as_str().unwrap().len(), 64);
    let lines = event["request"]["headers"].as_array().unwrap();
    let line = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap();
    assert_eq!(line("content-type")["text"], "text/html");
    assert_eq!(line("x-bytes")["base64"], "Y2Fm6Q==");
    assert!(event["request"]["query"].as_str().unwrap().contains("phase=1"), "{event}");
    assert!(!response.text().contains("canary"), "{event}");

    let stored = gateway.get(&format!("/events/{id}/body")).await.expect(200);
    assert_eq!(stored.body, body);
    // A browser must not run the body, whatever its content type claims.
    assert_eq!(stored.header("content-type"), "application/octet-stream");
    assert!(stored.header("content-disposition").starts_with("attachment"));
    assert_eq!(stored.header("x-content-type-options"), "nosniff");
    assert!(stored.header("content-security-policy").contains("sandbox"));
}

#[tokio::test]
async fn api_lists_counts_and_replays_dead_letters() {
    let sink = Sink::with_replies([Reply::status(404).body("gone"), Reply::status(200)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;
    let id = dead["id"].as_str().unwrap();

    assert_eq!(dead["attempt_list"][0]["response"], "gone");
    assert_eq!(dead["attempt_list"][0]["status"], 404);
    let listed = gateway
        .get("/dead-letters?destination=out&reason=invalid_endpoint")
        .await
        .expect(200)
        .json();
    assert_eq!(ids(&listed), [id.to_owned()]);
    let other = gateway.get("/dead-letters?reason=max_retries").await.expect(200).json();
    assert_eq!(ids(&other), Vec::<String>::new());
    let stats = gateway.get("/dead-letters/stats").await.expect(200).json();
    assert_eq!(stats["invalid_endpoint"], json!({ "total": 1, "pending": 1 }));
    assert_eq!(stats["max_retries"], json!({ "total": 0, "pending": 0 }));

    let replay = format!("/deliveries/{id}/replay");
    let replayed = gateway.post(&replay, &json!({})).await.expect(202).json();
    let new = replayed["delivery_id"].as_str().unwrap();
    let delivered = gateway.wait_for_delivery_status(new, "succeeded").await;

    assert_eq!((&delivered["replay_of"], &delivered["event"]), (&json!(id), &json!(event)));
    let old = gateway.wait_for_delivery_status(id, "replayed").await;
    assert_eq!(old["replayed_as"], new);
    let webhook_ids: HashSet<String> =
        sink.requests().iter().map(|arrival| arrival.id().to_owned()).collect();
    assert_eq!(webhook_ids, HashSet::from([event]));
    let stats = gateway.get("/dead-letters/stats").await.expect(200).json();
    assert_eq!(stats["invalid_endpoint"], json!({ "total": 1, "pending": 0 }));
    for delivery in [id, new] {
        let repeat = gateway.post(&format!("/deliveries/{delivery}/replay"), &json!({})).await;
        assert_eq!(repeat.clone().expect(429).code(), "replayed_too_soon");
        let wait: u64 = repeat.header("retry-after").parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
    }
}

#[tokio::test]
async fn replay_of_in_flight_delivery_is_rejected() {
    let sink = Sink::with_replies([Reply::Hang]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", "{}").await;
    sink.wait_for_requests(1).await;
    let delivery = gateway.event(&event).await["deliveries"][0].clone();

    let replay = format!("/deliveries/{}/replay", delivery["id"].as_str().unwrap());
    let response = gateway.post(&replay, &json!({})).await.expect(409);

    assert_eq!(response.code(), "not_replayable");
    assert!(response.detail().contains("in_flight"), "{}", response.detail());
    let listed = gateway.get("/deliveries?status=in_flight").await.expect(200).json();
    assert_eq!(ids(&listed), [delivery["id"].as_str().unwrap().to_owned()]);
}

#[tokio::test]
async fn stats_count_every_event_and_attempt() {
    let sink = Sink::with_script(|_, arrival| {
        Reply::status(if arrival.body == "bad" { 400 } else { 200 })
    })
    .await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    for body in ["good", "bad", "good", "good"] {
        let event = gateway.post_accepted("in", body).await;
        gateway.wait_for_delivery(&event, if body == "bad" { "dead" } else { "succeeded" }).await;
    }

    let stats = gateway.stats().await;

    assert_eq!((&stats["total"], &stats["no_key"]), (&json!(4), &json!(4)));
    assert_eq!((&stats["attempts"], &stats["retries"]), (&json!(4), &json!(0)));
    assert_eq!(stats["dlq_size"], 1);
    assert_eq!(stats["by_status"]["succeeded"], 3);
    assert_eq!(stats["by_status"]["dead"], 1);
    assert_eq!(stats["oldest_pending_age_seconds"], Value::Null);
    assert_eq!(stats["destinations"][0]["name"], "out");
}

#[tokio::test]
async fn probes_are_public_and_metrics_need_a_token() {
    let gateway = Gateway::start().await;
    gateway.post_accepted("demo", "{}").await;
    for probe in ["/livez", "/readyz", "/login"] {
        let response = gateway.request(Method::GET, probe, &[], "").await.expect(200);
        assert_eq!(response.header("x-content-type-options"), "nosniff", "case: {probe}");
    }
    let authorization = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 1] = [("authorization", authorization.as_bytes())];

    let metrics = gateway.request(Method::GET, "/metrics", &headers, "").await.expect(200);

    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    let accepted = "surehook_requests_total{source=\"demo\",outcome=\"accepted\",reason=\"\"} 1";
    assert!(metrics.text().contains(accepted), "{}", metrics.text());
    assert!(metrics.text().ends_with("# EOF\n"));
}
