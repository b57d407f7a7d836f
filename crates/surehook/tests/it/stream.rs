//! `GET /api/v1/stream`: what happens, in order, without a silent gap.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, TOKEN, route_settings},
    process::Process,
    raw::RawConnection,
    sink::{Reply, Sink},
};

/// An open stream.
struct Stream(RawConnection);

#[derive(Debug)]
struct Event {
    kind: String,
    id: String,
    data: Value,
}

impl Stream {
    async fn open(gateway: &Gateway, query: &str, last_id: Option<&str>) -> Self {
        Self::open_as(gateway, TOKEN, query, last_id).await
    }

    async fn open_as(gateway: &Gateway, token: &str, query: &str, last_id: Option<&str>) -> Self {
        let mut raw = gateway.connect_raw().await;
        let last_id = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0, so that the events come without the frames of chunks.
        let request = format!(
            "GET /api/v1/stream{query} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{last_id}\r\n"
        );
        raw.write(request).await;
        let head = raw.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{head}");
        Self(raw)
    }

    async fn next(&mut self) -> Event {
        let block = self.0.read_until("\n\n").await;
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(field, _)| *field == name).map_or("", |(_, value)| value).to_owned()
        };
        let data = serde_json::from_str(&field("data")).unwrap_or(Value::Null);
        Event { kind: field("event"), id: field("id"), data }
    }

    async fn expect(&mut self, kind: &str) -> Event {
        let event = self.next().await;
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }
}

#[tokio::test]
async fn an_event_is_told_with_its_kind() {
    let settings = "[[sources]]\nname = \"pay\"\nprovider = \"stripe\"\nverify = \"none\"\n";
    let gateway = Gateway::start_with(settings).await;
    let mut stream = Stream::open(&gateway, "?types=event.received", None).await;
    stream.expect("ready").await;

    gateway.post_accepted("pay", r#"{"id":"evt_1","type":"invoice.paid"}"#).await;
    gateway.post_accepted("pay", "not what it sends").await;

    assert_eq!(stream.expect("event.received").await.data["kind"], "invoice.paid");
    assert_eq!(stream.expect("event.received").await.data["kind"], Value::Null);
}

#[tokio::test]
async fn what_happens_is_told_in_order() {
    let sink = Sink::with_replies([Reply::status(200), Reply::status(404)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let mut stream = Stream::open(&gateway, "", None).await;
    stream.expect("ready").await;

    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let received = stream.expect("event.received").await;
    let changed = stream.expect("delivery.changed").await;
    gateway.post_accepted("in", r#"{"id":"b"}"#).await;
    stream.expect("event.received").await;
    let died = stream.expect("delivery.changed").await;
    // A duplicate is not received anew.
    gateway.send_webhook("in", &[], r#"{"id":"a"}"#).await.expect(200);
    gateway
        .put("/destinations/out", &json!({ "name": "far", "url": sink.url() }))
        .await
        .expect(200);
    let put = stream.expect("destination.changed").await;
    gateway.delete("/destinations/far").await.expect(204);
    let deleted = stream.expect("destination.changed").await;

    assert_eq!(received.data["id"], event);
    assert_eq!((&received.data["source"], &received.data["key"]), (&json!("in"), &json!("a")));
    assert_eq!(
        (&changed.data["event"], &changed.data["status"]),
        (&json!(event), &json!("succeeded"))
    );
    assert_eq!(
        (&changed.data["destination"], &changed.data["attempts"]),
        (&json!("out"), &json!(1))
    );
    assert_eq!(
        (&died.data["status"], &died.data["reason"]),
        (&json!("dead"), &json!("invalid_endpoint"))
    );
    assert_eq!((&put.data["name"], &put.data["change"]), (&json!("far"), &json!("put")));
    assert_eq!((&deleted.data["name"], &deleted.data["change"]), (&json!(null), &json!("deleted")));
}

#[tokio::test]
async fn what_people_do_to_destinations_and_deliveries_is_told() {
    let gateway =
        Gateway::start_with(&route_settings("https://example.com/hook", "delay = \"1h\"")).await;
    let event = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&event, "pending").await["id"].clone();
    let mut stream = Stream::open(&gateway, "", None).await;
    stream.expect("ready").await;
    for change in ["pause", "resume"] {
        let path = format!("/destinations/out/{change}");
        gateway.post(&path, &json!({})).await.expect(200);
        let told = stream.expect("destination.changed").await.data;
        assert_eq!((&told["name"], &told["change"]), (&json!("out"), &json!("state")));
    }
    let path = format!("/deliveries/{}/cancel", delivery.as_str().unwrap());
    gateway.post(&path, &json!({})).await.expect(200);
    let told = stream.expect("delivery.changed").await.data;
    assert_eq!((&told["id"], &told["status"]), (&delivery, &json!("cancelled")));
}

#[tokio::test]
async fn a_stream_is_narrowed_by_kind_source_and_destination() {
    let gateway = Gateway::start_with(
        "[[sources]]\nname = \"a\"\nverify = \"none\"\n[[sources]]\nname = \"b\"\nverify = \"none\"\n\
         [[destinations]]\nname = \"inbox\"\nurl = \"builtin:inbox\"\n\
         [[routes]]\nfrom = \"a\"\nto = \"inbox\"",
    )
    .await;
    let mut only_b = Stream::open(&gateway, "?types=event.received&source=b", None).await;
    let mut inbox = Stream::open(&gateway, "?types=delivery.changed&destination=inbox", None).await;
    let mut none = Stream::open(&gateway, "?types=delivery.changed&destination=other", None).await;
    for stream in [&mut only_b, &mut inbox, &mut none] {
        stream.expect("ready").await;
    }
    let from_a = gateway.post_accepted("a", "{}").await;
    let from_b = gateway.post_accepted("b", "{}").await;

    assert_eq!(only_b.expect("event.received").await.data["id"], from_b);
    assert_eq!(inbox.expect("delivery.changed").await.data["event"], from_a);
    for bad in ["?types=all", "?types=", "?source=%20", "?destination=A", "?sinse=1"] {
        let answer = gateway.get(&format!("/stream{bad}")).await.expect(422);
        assert_eq!(answer.code(), "invalid", "case: {bad}");
    }
}

#[tokio::test]
async fn one_that_comes_back_goes_on_where_it_was() {
    let mut gateway = Gateway::start().await;
    let mut stream = Stream::open(&gateway, "?types=event.received", None).await;
    let ready = stream.expect("ready").await;
    assert_eq!(ready.data["id"], ready.id);
    let first = gateway.post_accepted("demo", "{}").await;
    let seen = stream.expect("event.received").await;
    assert_eq!(seen.data["id"], first);
    drop(stream);
    let second = gateway.post_accepted("demo", "{}").await;

    let by_query = format!("?types=event.received&since={}", seen.id);
    let mut back = Stream::open(&gateway, &by_query, None).await;
    back.expect("ready").await;
    assert_eq!(back.expect("event.received").await.data["id"], second);
    let mut from_the_start = Stream::open(&gateway, "?types=event.received", Some(&ready.id)).await;
    from_the_start.expect("ready").await;
    assert_eq!(from_the_start.expect("event.received").await.data["id"], first);
    assert_eq!(from_the_start.expect("event.received").await.data["id"], second);

    // The numbers of the run before mean nothing in this one, and that is said.
    gateway.restart().await;
    let mut late = Stream::open(&gateway, "?types=event.received", Some(&seen.id)).await;
    late.expect("ready").await;
    let reset = late.expect("reset").await;
    let third = gateway.post_accepted("demo", "{}").await;
    assert_eq!(late.expect("event.received").await.data["id"], third);
    assert_ne!(reset.id, seen.id);
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_gateway() {
    let mut gateway = Gateway::start().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut stream = Stream::open(&gateway, "", None).await;
        stream.expect("ready").await;
        open.push(stream);
    }
    let refused = gateway.get("/stream").await.expect(503);
    assert_eq!(refused.code(), "too_many_streams");
    assert!(!refused.header("retry-after").is_empty());
    // A place is free again when its stream is closed.
    drop(open.pop());
    let gateway_ref = &gateway;
    eventually(WAIT_LIMIT, || async move {
        let mut raw = gateway_ref.connect_raw().await;
        let head = format!(
            "GET /api/v1/stream HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        raw.write(head).await;
        raw.read_until("\r\n").await.contains("200").then_some(())
    })
    .await;

    assert!(gateway.terminate().await.success(), "open streams do not hold up the end");
    for mut stream in open {
        stream.0.read_until_closed().await;
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let gateway = Gateway::start().await;
    let made = gateway.post("/tokens", &json!({ "role": "viewer" })).await.expect(201).json();
    let token = made["token"].as_str().unwrap();
    let mut stream = Stream::open_as(&gateway, token, "", None).await;
    stream.expect("ready").await;
    gateway.post_accepted("demo", r#"{"id":"before"}"#).await;
    stream.expect("event.received").await;

    gateway.delete(&format!("/tokens/{}", made["id"].as_str().unwrap())).await.expect(204);
    let after = gateway.post_accepted("demo", r#"{"id":"after"}"#).await;

    let rest = String::from_utf8(stream.0.read_until_closed().await).unwrap();
    assert!(!rest.contains(&after), "{rest}");
}

#[tokio::test]
async fn tail_prints_events_and_goes_on_after_a_broken_connection() {
    let gateway = Gateway::start().await;
    let env = [
        ("SUREHOOK_SERVER".to_owned(), gateway.url("")),
        ("SUREHOOK_TOKEN".to_owned(), TOKEN.to_owned()),
    ];
    let tail = Process::spawn(gateway.folder(), &["events", "tail", "--json"], &env);
    // It says nothing when it has begun, so events are sent until one is printed.
    let printed = eventually(WAIT_LIMIT, || async {
        gateway.post_accepted("demo", "{}").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let text = tail.stdout.text();
        (!text.is_empty()).then_some(text)
    })
    .await;
    let row: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!(row["source"], "demo");
    let last = gateway.post_accepted("demo", "{}").await;
    eventually(WAIT_LIMIT, || async { tail.stdout.text().contains(&last).then_some(()) }).await;
}
