//! Destinations that are streams in Redis.

use std::collections::HashSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::Gateway,
    redis::{FakeRedis, FakeRedisReply, TestRedis},
    tls::CertificateAuthority,
};

fn settings(url: &str, more: &str) -> String {
    format!(
        r#"
        [[sources]]
        name = "in"
        verify = "none"
        [[routes]]
        from = "in"
        to = "out"
        [[destinations]]
        name = "out"
        kind = "redis-stream"
        url = "{url}"
        {more}
        "#
    )
}

const STREAM: &str = "stream = { key = \"events\" }";
const QUICKLY: &str =
    "retry = { max_attempts = 30, initial_delay = \"20ms\", max_delay = \"200ms\" }";

#[tokio::test]
async fn an_event_becomes_an_entry_with_its_body_byte_for_byte() {
    let Some(redis) = TestRedis::start(&[]).await else { return };
    let gateway = Gateway::start_with(&settings(&format!("{}/3", redis.url()), STREAM)).await;
    let body = b"{\"id\":\"k 1\",\"x\":\"\x00\r\n\xff\"}".to_vec();
    let headers = [("content-type", "application/x; a=b"), ("x-event-id", "k 1")];

    let event = gateway.send_webhook("in", &headers, body.clone()).await.expect(200).event_id();

    let done = gateway.wait_for_delivery(&event, "succeeded").await;
    assert!(redis.read_entries("events").await.is_empty(), "it went into another database");
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
    // What Redis called the entry.
    assert!(done["attempt_list"][0]["response"].as_str().unwrap().contains('-'), "{done}");
    let timing = &done["attempt_list"][0]["timing"];
    assert!(timing["total_ms"].is_u64() && timing["connect_ms"].is_null(), "{timing}");
}

#[tokio::test]
async fn many_at_once_come_once_each_and_the_stream_stays_short() {
    let Some(redis) = TestRedis::start(&["--stream-node-max-entries", "10"]).await else { return };
    let more = format!("{STREAM}\nconcurrency = 64");
    let all = Gateway::start_with(&settings(&redis.url(), &more)).await;
    let mut sent = HashSet::new();
    for _ in 0..300 {
        sent.insert(all.post_accepted("in", "{}").await);
    }
    eventually(WAIT_LIMIT, || async {
        (redis.read_entries("events").await.len() == 300).then_some(())
    })
    .await;
    let entries = redis.read_entries("events").await;
    let came: HashSet<String> =
        entries.iter().map(|entry| String::from_utf8(entry[0].1.clone()).unwrap()).collect();
    assert_eq!(came, sent);
    assert_eq!(redis.count_xadd_connections().await, 1, "one connection is enough");

    let short = "stream = { key = \"short\", max_length = 20 }";
    let short = Gateway::start_with(&settings(&redis.url(), short)).await;
    for _ in 0..60 {
        let event = short.post_accepted("in", "{}").await;
        short.wait_for_delivery(&event, "succeeded").await;
    }
    let length = redis.read_entries("short").await.len();
    assert!((20..=30).contains(&length), "{length}");
}

#[tokio::test]
async fn a_server_that_comes_back_gets_what_it_missed() {
    let Some(mut redis) = TestRedis::start(&[]).await else { return };
    let gateway =
        Gateway::start_with(&settings(&redis.url(), &format!("{STREAM}\n{QUICKLY}"))).await;
    let before = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&before, "succeeded").await;

    redis.stop();
    let missed = gateway.post_accepted("in", "{}").await;
    let waits = gateway.wait_for_delivery(&missed, "scheduled").await;
    assert_eq!(waits["attempt_list"][0]["class"], "transient", "{waits}");
    redis.restart().await;

    let done = gateway.wait_for_delivery(&missed, "succeeded").await;
    assert!(done["attempts"].as_u64().unwrap() > 1, "{done}");
    assert_eq!(redis.read_entries("events").await.len(), 1);
}

#[tokio::test]
async fn one_that_hangs_is_left_after_the_deadline() {
    let Some(redis) = TestRedis::start(&[]).await else { return };
    let more = format!("{STREAM}\n{QUICKLY}\ntimeout = \"300ms\"");
    let gateway = Gateway::start_with(&settings(&redis.url(), &more)).await;
    let first = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&first, "succeeded").await;

    redis.signal(Signal::STOP);
    let event = gateway.post_accepted("in", "{}").await;
    let waits = gateway.wait_for_delivery(&event, "scheduled").await;
    assert_eq!(waits["attempt_list"][0]["failure"], "timeout", "{waits}");
    redis.signal(Signal::CONT);

    gateway.wait_for_delivery(&event, "succeeded").await;
    // What was written and not answered may have been done: the same id, perhaps more than once.
    let entries = redis.read_entries("events").await;
    let of_event = entries.iter().filter(|entry| entry[0].1 == event.as_bytes()).count();
    assert!(of_event >= 1, "{entries:?}");
}

#[tokio::test]
async fn what_redis_refuses_is_for_somebody_to_mend_and_its_password_is_not_shown() {
    let Some(redis) = TestRedis::start(&["--requirepass", "canary"]).await else { return };
    let basic = |password: &str| {
        format!(
            "auth = {{ basic = {{ user = \"default\", password = \"{password}\" }} }}\n{STREAM}"
        )
    };
    let with_password = redis.url().replace("redis://", "redis://:canary@");
    let cases = [
        ("no password", redis.url(), STREAM.to_owned(), "wants a password"),
        ("a wrong one", redis.url(), basic("canary-too"), "WRONGPASS"),
        ("no such database", "env:REDIS_URL_OF_99".to_owned(), STREAM.to_owned(), "ERR"),
    ];
    for (name, url, more, word) in cases {
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
        assert!(detail.contains(word), "case: {name}: {detail}");
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
async fn a_key_that_is_no_stream_is_a_setting_to_mend() {
    let Some(redis) = TestRedis::start(&[]).await else { return };
    redis.run_command(&["SET", "events", "a text"]).await;
    let gateway = Gateway::start_with(&settings(&redis.url(), STREAM)).await;

    let event = gateway.post_accepted("in", "{}").await;

    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "invalid_endpoint", "{dead}");
    assert!(dead["attempt_list"][0]["detail"].as_str().unwrap().contains("WRONGTYPE"), "{dead}");
}

#[tokio::test]
async fn one_without_memory_is_tried_again() {
    let Some(redis) = TestRedis::start(&["--maxmemory", "1"]).await else { return };
    let gateway =
        Gateway::start_with(&settings(&redis.url(), &format!("{STREAM}\n{QUICKLY}"))).await;
    let event = gateway.post_accepted("in", "{}").await;
    let waits = gateway.wait_for_delivery(&event, "scheduled").await;
    assert_eq!(waits["attempt_list"][0]["class"], "transient", "{waits}");
    assert!(waits["attempt_list"][0]["response"].as_str().unwrap().contains("OOM"), "{waits}");

    redis.run_command(&["CONFIG", "SET", "maxmemory", "0"]).await;

    gateway.wait_for_delivery(&event, "succeeded").await;
}

#[tokio::test]
async fn over_tls_the_server_must_prove_who_it_is() {
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

    let stranger = Gateway::start_with(&settings(&url, &ca(&CertificateAuthority::new()))).await;
    let event = stranger.post_accepted("in", "{}").await;
    let dead = stranger.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["attempt_list"][0]["failure"], "tls", "{dead}");
}

#[tokio::test]
async fn what_only_pretends_to_be_redis_does_no_harm() {
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
            "one that starts",
            FakeRedisReply::Reply(b"-LOADING Redis is loading the dataset in memory\r\n"),
            "error_reply",
        ),
        (
            "a replica",
            FakeRedisReply::Reply(b"-READONLY You can't write against a read only replica.\r\n"),
            "error_reply",
        ),
    ];
    for (name, answer, failure) in cases {
        let pretender = FakeRedis::start(answer).await;
        let more = format!(
            "{STREAM}\ntimeout = \"1s\"\nretry = {{ max_attempts = 2, initial_delay = \"1ms\" }}\nauth = {{ basic = {{ user = \"u\", password = \"p\" }} }}"
        );
        let gateway = Gateway::start_with(&settings(&pretender.url(), &more)).await;
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
async fn the_address_is_judged_before_anybody_is_called() {
    let pretender = FakeRedis::start(FakeRedisReply::Silence).await;
    let gateway = Gateway::builder()
        .public_networks_only()
        .settings("[[sources]]\nname = \"in\"\nverify = \"none\"")
        .start()
        .await;
    let spec = |url: String| json!({ "name": "out", "kind": "redis-stream", "url": url, "stream": { "key": "k" } });
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433"] {
        let url = pretender.url().replace("127.0.0.1", host);
        let refused = gateway.post("/destinations", &spec(url)).await.expect(422).json();
        assert!(refused["detail"].as_str().unwrap().contains("allow_networks"), "{refused}");
    }
    let by_name = pretender.url().replace("127.0.0.1", "localhost");
    gateway.post("/destinations", &spec(by_name)).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "out" })).await.expect(201);
    let event = gateway.post_accepted("in", "{}").await;

    let dead = gateway.wait_for_delivery(&event, "dead").await;

    assert_eq!(dead["attempt_list"][0]["failure"], "blocked", "{dead}");
    assert_eq!(pretender.connection_count(), 0, "it was called");
}

#[tokio::test]
async fn what_does_not_belong_to_a_stream_is_refused() {
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
    for (field, value, named) in cases {
        let mut spec = stream();
        spec[field] = value;
        let refused = gateway.post("/destinations", &spec).await.expect(422).text();
        assert!(refused.contains(named), "case: {field}: {refused}");
        assert!(!refused.contains("canary"), "case: {field}: {refused}");
    }
    gateway.post("/destinations", &stream()).await.expect(201);
}
