//! `redis-stream` destinations.

use std::collections::HashSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    redis::{FakeRedis, FakeRedisReply, TestRedis},
    tls::CertificateAuthority,
};

fn settings(url: &str, more: &str) -> String {
    route_settings(url, &format!("kind = \"redis-stream\"\n{more}"))
}

const STREAM: &str = "stream = { key = \"events\" }";
const FAST_RETRY: &str =
    "retry = { max_attempts = 30, initial_delay = \"20ms\", max_delay = \"200ms\" }";

#[tokio::test]
async fn event_becomes_stream_entry_with_exact_body() {
    let Some(redis) = TestRedis::start(&[]).await else { return };
    let gateway = Gateway::start_with(&settings(&format!("{}/3", redis.url()), STREAM)).await;
    let body = b"{\"id\":\"k 1\",\"x\":\"\x00\r\n\xff\"}".to_vec();
    let headers = [("content-type", "application/x; a=b"), ("x-event-id", "k 1")];

    let event = gateway.send_webhook("in", &headers, body.clone()).await.expect(200).event_id();

    let done = gateway.wait_for_delivery(&event, "succeeded").await;
    assert!(redis.read_entries("events").await.is_empty(), "the entry belongs in database 3");
    let entries = redis.read_entries_of(3, "events").await;
    let [entry] = &*entries else { panic!("{entries:?}") };
    let text = |value: &Value| value.as_str().unwrap().as_bytes().to_vec();
    let received_at = text(&gateway.event(&event).await["received_at"]);
    let expected: [(&str, Vec<u8>); 8] = [
        ("id", event.into()),
        ("delivery", text(&done["id"])),
        ("attempt", b"1".to_vec()),
        ("source", b"in".to_vec()),
        ("received_at", received_at),
        ("key", b"k 1".to_vec()),
        ("content_type", b"application/x; a=b".to_vec()),
        ("body", body),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(entry[..], expected);
    // The response is the entry id.
    assert!(done["attempt_list"][0]["response"].as_str().unwrap().contains('-'), "{done}");
    let timing = &done["attempt_list"][0]["timing"];
    assert!(timing["total_ms"].is_u64() && timing["connect_ms"].is_null(), "{timing}");
}

#[tokio::test]
async fn concurrent_events_are_added_once_and_stream_is_trimmed() {
    let Some(redis) = TestRedis::start(&["--stream-node-max-entries", "10"]).await else { return };
    let more = format!("{STREAM}\nconcurrency = 64");
    let untrimmed = Gateway::start_with(&settings(&redis.url(), &more)).await;
    let mut sent = HashSet::new();
    for _ in 0..300 {
        sent.insert(untrimmed.post_accepted("in", "{}").await);
    }
    eventually(WAIT_LIMIT, || async {
        (redis.read_entries("events").await.len() == 300).then_some(())
    })
    .await;
    let entries = redis.read_entries("events").await;
    let arrived: HashSet<String> =
        entries.iter().map(|entry| String::from_utf8(entry[0].1.clone()).unwrap()).collect();
    assert_eq!(arrived, sent);
    assert_eq!(redis.count_xadd_connections().await, 1, "one connection is enough");

    let stream = "stream = { key = \"short\", max_length = 20 }";
    let trimmed = Gateway::start_with(&settings(&redis.url(), stream)).await;
    for _ in 0..60 {
        let event = trimmed.post_accepted("in", "{}").await;
        trimmed.wait_for_delivery(&event, "succeeded").await;
    }
    let length = redis.read_entries("short").await.len();
    assert!((20..=30).contains(&length), "{length}");
}

#[tokio::test]
async fn restarted_server_receives_missed_events() {
    let Some(mut redis) = TestRedis::start(&[]).await else { return };
    let gateway =
        Gateway::start_with(&settings(&redis.url(), &format!("{STREAM}\n{FAST_RETRY}"))).await;
    let before = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&before, "succeeded").await;

    redis.stop();
    let missed = gateway.post_accepted("in", "{}").await;
    let scheduled = gateway.wait_for_delivery(&missed, "scheduled").await;
    assert_eq!(scheduled["attempt_list"][0]["class"], "transient", "{scheduled}");
    redis.restart().await;

    let done = gateway.wait_for_delivery(&missed, "succeeded").await;
    assert!(done["attempts"].as_u64().unwrap() > 1, "{done}");
    assert_eq!(redis.read_entries("events").await.len(), 1);
}

#[tokio::test]
async fn hanging_server_times_out_and_is_retried() {
    let Some(redis) = TestRedis::start(&[]).await else { return };
    let more = format!("{STREAM}\n{FAST_RETRY}\ntimeout = \"300ms\"");
    let gateway = Gateway::start_with(&settings(&redis.url(), &more)).await;
    let first = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&first, "succeeded").await;

    redis.signal(Signal::STOP);
    let event = gateway.post_accepted("in", "{}").await;
    let scheduled = gateway.wait_for_delivery(&event, "scheduled").await;
    assert_eq!(scheduled["attempt_list"][0]["failure"], "timeout", "{scheduled}");
    redis.signal(Signal::CONT);

    gateway.wait_for_delivery(&event, "succeeded").await;
    // A command without a response may have been executed: the same id can be there more than once.
    let entries = redis.read_entries("events").await;
    let of_event = entries.iter().filter(|entry| entry[0].1 == event.as_bytes()).count();
    assert!(of_event >= 1, "{entries:?}");
}

#[tokio::test]
async fn redis_login_error_is_config_failure_and_password_is_masked() {
    let Some(redis) = TestRedis::start(&["--requirepass", "canary"]).await else { return };
    let basic = |password: &str| {
        format!(
            "auth = {{ basic = {{ user = \"default\", password = \"{password}\" }} }}\n{STREAM}"
        )
    };
    let with_password = redis.url().replace("redis://", "redis://:canary@");
    let cases = [
        ("no password", redis.url(), STREAM.to_owned(), "requires a password"),
        ("wrong password", redis.url(), basic("canary-too"), "WRONGPASS"),
        ("no such database", "env:REDIS_URL_OF_99".to_owned(), STREAM.to_owned(), "ERR"),
    ];
    for (name, url, more, expected) in cases {
        let gateway = Gateway::builder()
            .env("REDIS_URL_OF_99", &format!("{with_password}/99"))
            .settings(&settings(&url, &more))
            .start()
            .await;
        let event = gateway.post_accepted("in", "{}").await;
        let dead = gateway.wait_for_delivery(&event, "dead").await;
        assert_eq!(dead["reason"], "invalid_endpoint", "case: {name}: {dead}");
        assert_eq!(dead["attempt_list"][0]["class"], "config", "case: {name}");
        let detail = dead["attempt_list"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "case: {name}: {detail}");
        let shown = gateway.get("/destinations").await.expect(200).text();
        assert!(!format!("{dead}{shown}{}", gateway.log()).contains("canary"), "case: {name}");
    }
    for (name, url, more) in [
        ("by auth", redis.url(), basic("canary")),
        ("by a variable", "env:REDIS_URL".to_owned(), STREAM.to_owned()),
    ] {
        let gateway = Gateway::builder()
            .env("REDIS_URL", &with_password)
            .settings(&settings(&url, &more))
            .start()
            .await;
        let event = gateway.post_accepted("in", "{}").await;
        gateway.wait_for_delivery(&event, "succeeded").await;
        let shown = gateway.get("/destinations").await.expect(200).text();
        assert!(!format!("{shown}{}", gateway.log()).contains("canary"), "case: {name}");
    }
}

#[tokio::test]
async fn key_of_wrong_type_is_config_failure() {
    let Some(redis) = TestRedis::start(&[]).await else { return };
    redis.run_command(&["SET", "events", "a text"]).await;
    let gateway = Gateway::start_with(&settings(&redis.url(), STREAM)).await;

    let event = gateway.post_accepted("in", "{}").await;

    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "invalid_endpoint", "{dead}");
    assert!(dead["attempt_list"][0]["detail"].as_str().unwrap().contains("WRONGTYPE"), "{dead}");
}

#[tokio::test]
async fn out_of_memory_reply_is_retried() {
    let Some(redis) = TestRedis::start(&["--maxmemory", "1"]).await else { return };
    let gateway =
        Gateway::start_with(&settings(&redis.url(), &format!("{STREAM}\n{FAST_RETRY}"))).await;
    let event = gateway.post_accepted("in", "{}").await;
    let scheduled = gateway.wait_for_delivery(&event, "scheduled").await;
    assert_eq!(scheduled["attempt_list"][0]["class"], "transient", "{scheduled}");
    assert!(
        scheduled["attempt_list"][0]["response"].as_str().unwrap().contains("OOM"),
        "{scheduled}"
    );

    redis.run_command(&["CONFIG", "SET", "maxmemory", "0"]).await;

    gateway.wait_for_delivery(&event, "succeeded").await;
}

#[tokio::test]
async fn tls_server_certificate_is_verified() {
    let authority = CertificateAuthority::new();
    let Some(redis) = TestRedis::with_tls(&authority).await else { return };
    let url = format!("rediss://localhost:{}", redis.port());
    let ca = |authority: &CertificateAuthority| {
        format!(
            "{STREAM}\ntls = {{ ca = '''{}''' }}\nretry = {{ max_attempts = 1 }}",
            authority.pem()
        )
    };

    let trusting = Gateway::start_with(&settings(&url, &ca(&authority))).await;
    let event = trusting.post_accepted("in", "{}").await;
    trusting.wait_for_delivery(&event, "succeeded").await;

    let distrusting = Gateway::start_with(&settings(&url, &ca(&CertificateAuthority::new()))).await;
    let event = distrusting.post_accepted("in", "{}").await;
    let dead = distrusting.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["attempt_list"][0]["failure"], "tls", "{dead}");
}

#[tokio::test]
async fn invalid_or_error_replies_are_transient_failures() {
    let cases = [
        ("garbage", FakeRedisReply::Reply(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "protocol"),
        ("another type", FakeRedisReply::Reply(b":5\r\n"), "protocol"),
        ("an end without a beginning", FakeRedisReply::Close, "reset"),
        ("silence", FakeRedisReply::Silence, "timeout"),
        (
            "a reply without end",
            FakeRedisReply::ReplyEndlessly(b"$536870912\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
            "reset",
        ),
        (
            "a server that is full",
            FakeRedisReply::Reply(b"-ERR max number of clients reached\r\n"),
            "error_reply",
        ),
        (
            "a server that is loading",
            FakeRedisReply::Reply(b"-LOADING Redis is loading the dataset in memory\r\n"),
            "error_reply",
        ),
        (
            "a replica",
            FakeRedisReply::Reply(b"-READONLY You can't write against a read only replica.\r\n"),
            "error_reply",
        ),
    ];
    for (name, reply, failure) in cases {
        let fake_redis = FakeRedis::start(reply).await;
        let more = format!(
            "{STREAM}\ntimeout = \"1s\"\nretry = {{ max_attempts = 2, initial_delay = \"1ms\" }}\nauth = {{ basic = {{ user = \"u\", password = \"p\" }} }}"
        );
        let gateway = Gateway::start_with(&settings(&fake_redis.url(), &more)).await;
        let event = gateway.post_accepted("in", "{}").await;

        let dead = gateway.wait_for_delivery(&event, "dead").await;

        assert_eq!(dead["reason"], "max_retries", "case: {name}: {dead}");
        let attempt = &dead["attempt_list"][0];
        assert_eq!(attempt["class"], "transient", "case: {name}");
        assert_eq!(
            attempt["failure"].as_str().unwrap_or_default(),
            failure,
            "case: {name}: {attempt}"
        );
    }
}

#[tokio::test]
async fn private_address_is_rejected_before_connecting() {
    let fake_redis = FakeRedis::start(FakeRedisReply::Silence).await;
    let gateway = Gateway::builder()
        .public_networks_only()
        .settings("[[sources]]\nname = \"in\"\nverify = \"none\"")
        .start()
        .await;
    let spec = |url: String| json!({ "name": "out", "kind": "redis-stream", "url": url, "stream": { "key": "k" } });
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433"] {
        let url = fake_redis.url().replace("127.0.0.1", host);
        let refused = gateway.post("/destinations", &spec(url)).await.expect(422).json();
        assert!(refused["detail"].as_str().unwrap().contains("allow_networks"), "{refused}");
    }
    let by_name = fake_redis.url().replace("127.0.0.1", "localhost");
    gateway.post("/destinations", &spec(by_name)).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "out" })).await.expect(201);
    let event = gateway.post_accepted("in", "{}").await;

    let dead = gateway.wait_for_delivery(&event, "dead").await;

    assert_eq!(dead["attempt_list"][0]["failure"], "blocked", "{dead}");
    assert_eq!(fake_redis.connection_count(), 0, "a private address was called");
}

#[tokio::test]
async fn settings_foreign_to_redis_stream_are_rejected() {
    let gateway = Gateway::start().await;
    let stream = || json!({ "name": "s", "kind": "redis-stream", "url": "redis://redis.example.com", "stream": { "key": "k" } });
    let cases = [
        ("url", json!("http://example.com"), "redis://"),
        ("url", json!("redis://:canary@redis.example.com"), "auth"),
        ("stream", Value::Null, "stream"),
        ("stream", json!({ "key": "" }), "key"),
        ("headers", json!({ "a": "b" }), "headers"),
        ("sign_as", json!({ "provider": "stripe", "secret": "x" }), "sign_as"),
        ("proxy", json!("http://example.com"), "proxy"),
        ("rules", json!([{ "status": 400, "then": "retry" }]), "rules"),
        ("exec", json!({ "command": ["/bin/true"] }), "exec"),
        ("auth", json!({ "bearer": "x" }), "basic"),
    ];
    for (field, value, expected) in cases {
        let mut spec = stream();
        spec[field] = value;
        let refused = gateway.post("/destinations", &spec).await.expect(422).text();
        assert!(refused.contains(expected), "case: {field}: {refused}");
        assert!(!refused.contains("canary"), "case: {field}: {refused}");
    }
    gateway.post("/destinations", &stream()).await.expect(201);
}
