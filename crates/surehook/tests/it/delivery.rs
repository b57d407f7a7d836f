//! Deliveries: the request that a destination receives, retries and failures.

use std::time::Duration;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

/// Three attempts with almost no delay.
const THREE_QUICK_ATTEMPTS: &str = r#"retry = { max_attempts = 3, schedule = ["1ms"] }"#;

#[tokio::test]
async fn body_and_headers_are_forwarded_unchanged() {
    let sink = Sink::ok().await;
    let gateway =
        Gateway::start_with(&route_settings(&sink.url(), "headers = { X-Tenant = \"acme\" }"))
            .await;
    // Neither JSON nor UTF-8, with line endings that a text conversion might change.
    let body: &[u8] = b"\xff\x00{\r\n\"a\": 1 }\n\n";
    let headers: [(&str, &[u8]); 8] = [
        ("content-type", b"application/x-odd; charset=koi8-r"),
        ("x-hub-signature-256", b"sha256=00"),
        ("x-many", b"1"),
        ("x-many", b"2"),
        ("x-bytes", b"caf\xe9"),
        ("authorization", b"Bearer for-the-gateway-only"),
        ("cookie", b"session=1"),
        ("x-forwarded-for", b"10.0.0.1"),
    ];

    gateway.request(http::Method::POST, "/in/in", &headers, body).await.expect(200);

    let arrived = &sink.wait_for_requests(1).await[0];
    assert_eq!(arrived.path, "/hook");
    assert_eq!(arrived.body, body);
    assert_eq!(arrived.header("content-type"), "application/x-odd; charset=koi8-r");
    assert_eq!(arrived.header("content-length"), body.len().to_string());
    assert_eq!(arrived.header("x-hub-signature-256"), "sha256=00");
    assert_eq!(arrived.header("x-tenant"), "acme");
    assert_eq!(arrived.headers["x-bytes"].as_bytes(), b"caf\xe9");
    assert_eq!(arrived.headers.get_all("x-many").iter().collect::<Vec<_>>(), ["1", "2"]);
    for gateway_only in ["authorization", "cookie", "x-forwarded-for", "webhook-signature"] {
        assert!(!arrived.headers.contains_key(gateway_only), "{gateway_only} was forwarded");
    }
    let host = sink.url().replace("http://", "").replace("/hook", "");
    assert_eq!(arrived.header("host"), host);
}

#[tokio::test]
async fn signed_delivery_carries_standard_webhooks_signatures() {
    const NEW: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let sink = Sink::ok().await;
    let signing = format!("signing_secrets = [\"{NEW}\", \"{OLD}\"]");
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &signing)).await;

    let event = gateway.post_accepted("in", r#"{"id":"1"}"#).await;

    let arrived = &sink.wait_for_requests(1).await[0];
    assert_eq!(arrived.id(), event);
    let expected: Vec<String> = [NEW, OLD]
        .iter()
        .map(|secret| {
            let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap().as_bytes()).unwrap();
            let signed =
                format!("{event}.{}.{}", arrived.header("webhook-timestamp"), r#"{"id":"1"}"#);
            let mac = Hmac::<Sha256>::new_from_slice(&key).unwrap().chain_update(signed);
            format!("v1,{}", BASE64.encode(&mac.finalize().into_bytes()))
        })
        .collect();
    assert_eq!(arrived.header("webhook-signature"), expected.join(" "));
}

#[tokio::test]
async fn retries_keep_the_webhook_id() {
    let sink = Sink::with_replies([Reply::status(500), Reply::Close, Reply::status(204)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), THREE_QUICK_ATTEMPTS)).await;

    let event = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;

    let arrivals = sink.wait_for_requests(3).await;
    assert_eq!(arrivals.len(), 3);
    assert!(arrivals.iter().all(|arrival| arrival.id() == event && arrival.body == "{}"));
    assert_eq!(delivery["attempts"], 3);
    let attempts = delivery["attempt_list"].as_array().unwrap();
    assert_eq!(attempts[0]["status"], 500);
    assert_eq!(attempts[1]["failure"], "reset");
    assert_eq!((&attempts[2]["status"], &attempts[2]["class"]), (&json!(204), &json!(null)));
}

#[tokio::test]
async fn every_permanent_failure_ends_dead_with_its_reason() {
    let cases = [
        ("server error", Reply::status(500), "max_retries", 3),
        ("no answer", Reply::Close, "max_retries", 3),
        ("bad request", Reply::status(400), "payload_error", 1),
        ("not found", Reply::status(404), "invalid_endpoint", 1),
        ("gone", Reply::status(410), "invalid_endpoint", 1),
        ("teapot", Reply::status(418), "unrecoverable", 1),
        ("moved", Reply::status(308).header("location", "/elsewhere"), "invalid_endpoint", 1),
        ("endless answer", Reply::status(400).body(vec![b'x'; 1 << 20]), "payload_error", 1),
    ];
    let sink = Sink::with_script({
        let cases = cases.clone();
        move |_, arrival| {
            let name = std::str::from_utf8(&arrival.body).unwrap();
            cases.iter().find(|case| case.0 == name).unwrap().1.clone()
        }
    })
    .await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), THREE_QUICK_ATTEMPTS)).await;

    for (name, _, reason, attempts) in cases {
        let event = gateway.post_accepted("in", name).await;
        let delivery = gateway.wait_for_delivery(&event, "dead").await;
        assert_eq!(delivery["reason"], reason, "case: {name}");
        assert_eq!(delivery["attempts"], attempts, "case: {name}");
    }
    assert!(sink.requests().iter().all(|arrival| arrival.path == "/hook"), "followed a redirect");
}

#[tokio::test]
async fn destination_timeout_fails_the_attempt() {
    let sink = Sink::with_replies([Reply::Hang]).await;
    let more = "timeout = \"100ms\"\nretry = { max_attempts = 1 }";
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;

    let event = gateway.post_accepted("in", "{}").await;

    let delivery = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(delivery["reason"], "max_retries");
    assert_eq!(delivery["attempt_list"][0]["failure"], "timeout");
}

// A sender that disconnects before the response may or may not have its event stored. A stored event is
// delivered at once, not only when an orphaned claim expires.
#[tokio::test]
async fn stored_event_is_delivered_after_the_sender_disconnected() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let request = "POST /in/in HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}";
    for _ in 0..50 {
        let mut half_closed = gateway.connect_raw().await;
        half_closed.write(request).await;
        half_closed.finish_writing().await;
        // A sender that closes only its sending half still gets the response.
        assert_eq!(half_closed.read_response().await.unwrap().status, 200);
        gateway.connect_raw().await.write(request).await;
    }
    let last = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&last, "succeeded").await;

    gateway
        .wait_for_stats(WAIT_LIMIT, |stats| stats["by_status"]["succeeded"] == stats["total"])
        .await;
}

#[tokio::test]
async fn event_is_delivered_to_every_destination_with_a_matching_filter() {
    let sinks = [Sink::ok().await, Sink::ok().await, Sink::ok().await];
    let gateway = Gateway::start_with("[[sources]]\nname = \"in\"\nverify = \"none\"").await;
    for (name, sink) in ["all", "paid", "twice"].iter().zip(&sinks) {
        let spec = json!({ "name": name, "url": sink.url() });
        gateway.post("/destinations", &spec).await.expect(201);
    }
    for (to, filter) in [
        ("all", json!(null)),
        ("paid", json!(".type == \"paid\"")),
        ("twice", json!(".amount > 5")),
        ("twice", json!(".type == \"paid\"")),
    ] {
        let route = json!({ "from": "in", "to": to, "filter": filter });
        gateway.post("/routes", &route).await.expect(201);
    }

    for (body, expected) in [
        (r#"{"type":"paid","amount":10}"#, vec!["all", "paid", "twice"]),
        (r#"{"type":"open","amount":10}"#, vec!["all", "twice"]),
        (r#"{"type":"open"}"#, vec!["all"]),
        ("not JSON", vec!["all"]),
        // A filter that fails does not match.
        ("[1]", vec!["all"]),
    ] {
        let event = gateway.event(&gateway.post_accepted("in", body).await).await;
        let deliveries = event["deliveries"].as_array().unwrap();
        let mut to: Vec<_> =
            deliveries.iter().map(|d| d["destination"].as_str().unwrap()).collect();
        to.sort_unstable();
        assert_eq!(to, expected, "case: {body}");
    }
    let counts = [5, 1, 2];
    for (sink, count) in sinks.iter().zip(counts) {
        sink.wait_for_requests(count).await;
    }
    gateway.wait_for_count("succeeded", 8).await;
    assert_eq!(sinks.map(|sink| sink.requests().len()), counts);
}

#[tokio::test]
async fn deleting_a_destination_cancels_its_scheduled_deliveries() {
    let sink = Sink::with_replies([Reply::status(500)]).await;
    let gateway =
        Gateway::start_with(&route_settings(&sink.url(), "retry = { initial_delay = \"1h\" }"))
            .await;
    let event = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&event, "scheduled").await;

    gateway.delete("/destinations/out").await.expect(204);

    let delivery = gateway.wait_for_delivery(&event, "cancelled").await;
    assert!(delivery["ended_at"].is_string(), "{delivery}");
    assert_eq!(gateway.stats().await["by_status"]["cancelled"], 1);
    let replay = gateway
        .post(&format!("/deliveries/{}/replay", delivery["id"].as_str().unwrap()), &json!({}))
        .await;
    assert_eq!(replay.expect(409).code(), "not_replayable");
    // Its route is deleted too: the next event is stored without deliveries.
    let next = gateway.event(&gateway.post_accepted("in", "{}").await).await;
    assert_eq!(next["deliveries"], json!([]));
}

#[tokio::test]
async fn result_of_a_running_attempt_is_ignored_after_its_destination_is_deleted() {
    let sink = Sink::with_replies([Reply::status(200).after(Duration::from_millis(500))]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", "{}").await;
    sink.wait_for_requests(1).await;

    gateway.delete("/destinations/out").await.expect(204);
    // The result of the attempt comes later and is rejected.
    eventually(WAIT_LIMIT, || async {
        gateway.metrics().await.contains("surehook_leases_lost_total 1").then_some(())
    })
    .await;

    let delivery = gateway.wait_for_delivery(&event, "cancelled").await;
    assert_eq!(delivery["destination"], json!(null));
    let by_status = &gateway.stats().await["by_status"];
    assert_eq!((&by_status["in_flight"], &by_status["succeeded"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn private_addresses_are_blocked_unless_allowed() {
    let sink = Sink::ok().await;
    let port = sink.url().replace("http://127.0.0.1:", "").replace("/hook", "");
    let gateway = Gateway::builder()
        .public_networks_only()
        .settings("[[sources]]\nname = \"in\"\nverify = \"none\"")
        .start()
        .await;
    // All of them are this machine; `url` parses the last three as 127.0.0.1.
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
    ];
    for (number, host) in hosts.iter().enumerate() {
        let name = format!("out-{number}");
        let spec = json!({ "name": name, "url": format!("http://{host}:{port}/hook") });
        // Rejecting the destination at once is correct too; then there is no delivery.
        let created = gateway.post("/destinations", &spec).await;
        assert!(matches!(created.status.as_u16(), 201 | 422), "case: {host}");
        if created.status == 201 {
            gateway.post("/routes", &json!({ "from": "in", "to": name })).await.expect(201);
        }
    }

    let event = gateway.post_accepted("in", "{}").await;

    for delivery in gateway.event(&event).await["deliveries"].as_array().unwrap() {
        let ended =
            gateway.wait_for_delivery_status(delivery["id"].as_str().unwrap(), "dead").await;
        assert_eq!(ended["reason"], "invalid_endpoint", "{ended}");
        assert_eq!(ended["attempt_list"][0]["failure"], "blocked", "{ended}");
    }
    assert!(sink.requests().is_empty(), "a private address was called");
}
