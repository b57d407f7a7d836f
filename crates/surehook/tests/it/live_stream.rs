//! `GET /api/v1/stream`: live updates in order, with a reset instead of a silent gap.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, TOKEN, route_settings},
    process::Process,
    raw::RawConnection,
    sink::{Reply, Sink},
};

/// An open connection to the live update stream.
struct LiveStream(RawConnection);

#[derive(Debug)]
struct StreamUpdate {
    kind: String,
    id: String,
    data: Value,
}

impl LiveStream {
    async fn open(gateway: &Gateway, query: &str, last_id: Option<&str>) -> Self {
        Self::open_as(gateway, TOKEN, query, last_id).await
    }

    async fn open_as(gateway: &Gateway, token: &str, query: &str, last_id: Option<&str>) -> Self {
        let mut raw = gateway.connect_raw().await;
        let last_id = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0 avoids chunked encoding.
        let request = format!(
            "GET /api/v1/stream{query} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{last_id}\r\n"
        );
        raw.write(request).await;
        let head = raw.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{head}");
        Self(raw)
    }

    async fn next(&mut self) -> StreamUpdate {
        let block = self.0.read_until("\n\n").await;
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(field, _)| *field == name).map_or("", |(_, value)| value).to_owned()
        };
        let data = serde_json::from_str(&field("data")).unwrap_or(Value::Null);
        StreamUpdate { kind: field("event"), id: field("id"), data }
    }

    async fn expect(&mut self, kind: &str) -> StreamUpdate {
        let event = self.next().await;
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }
}

#[tokio::test]
async fn event_received_update_contains_kind() {
    let settings = "[[sources]]\nname = \"pay\"\nprovider = \"stripe\"\nverify = \"none\"\n";
    let gateway = Gateway::start_with(settings).await;
    let mut stream = LiveStream::open(&gateway, "?types=event.received", None).await;
    stream.expect("ready").await;

    gateway.post_accepted("pay", r#"{"id":"evt_1","type":"invoice.paid"}"#).await;
    gateway.post_accepted("pay", "not what it sends").await;

    assert_eq!(stream.expect("event.received").await.data["kind"], "invoice.paid");
    assert_eq!(stream.expect("event.received").await.data["kind"], Value::Null);
}

#[tokio::test]
async fn updates_are_streamed_in_order() {
    let sink = Sink::with_replies([Reply::status(200), Reply::status(404)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let mut stream = LiveStream::open(&gateway, "", None).await;
    stream.expect("ready").await;

    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let received = stream.expect("event.received").await;
    let changed = stream.expect("delivery.changed").await;
    gateway.post_accepted("in", r#"{"id":"b"}"#).await;
    stream.expect("event.received").await;
    let dead = stream.expect("delivery.changed").await;
    // A duplicate is not streamed as received.
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
        (&dead.data["status"], &dead.data["reason"]),
        (&json!("dead"), &json!("invalid_endpoint"))
    );
    assert_eq!((&put.data["name"], &put.data["change"]), (&json!("far"), &json!("put")));
    assert_eq!((&deleted.data["name"], &deleted.data["change"]), (&json!(null), &json!("deleted")));
}

#[tokio::test]
async fn operator_actions_are_streamed() {
    let gateway =
        Gateway::start_with(&route_settings("https://example.com/hook", "delay = \"1h\"")).await;
    let event = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&event, "pending").await["id"].clone();
    let mut stream = LiveStream::open(&gateway, "", None).await;
    stream.expect("ready").await;
    for change in ["pause", "resume"] {
        let path = format!("/destinations/out/{change}");
        gateway.post(&path, &json!({})).await.expect(200);
        let update = stream.expect("destination.changed").await.data;
        assert_eq!((&update["name"], &update["change"]), (&json!("out"), &json!("state")));
    }
    let path = format!("/deliveries/{}/cancel", delivery.as_str().unwrap());
    gateway.post(&path, &json!({})).await.expect(200);
    let update = stream.expect("delivery.changed").await.data;
    assert_eq!((&update["id"], &update["status"]), (&delivery, &json!("cancelled")));
}

#[tokio::test]
async fn stream_is_filtered_by_type_source_and_destination() {
    let gateway = Gateway::start_with(
        "[[sources]]\nname = \"a\"\nverify = \"none\"\n[[sources]]\nname = \"b\"\nverify = \"none\"\n\
         [[destinations]]\nname = \"inbox\"\nurl = \"builtin:inbox\"\n\
         [[routes]]\nfrom = \"a\"\nto = \"inbox\"",
    )
    .await;
    let mut only_b = LiveStream::open(&gateway, "?types=event.received&source=b", None).await;
    let mut inbox =
        LiveStream::open(&gateway, "?types=delivery.changed&destination=inbox", None).await;
    let mut none =
        LiveStream::open(&gateway, "?types=delivery.changed&destination=other", None).await;
    for stream in [&mut only_b, &mut inbox, &mut none] {
        stream.expect("ready").await;
    }
    let from_a = gateway.post_accepted("a", "{}").await;
    let from_b = gateway.post_accepted("b", "{}").await;

    assert_eq!(only_b.expect("event.received").await.data["id"], from_b);
    assert_eq!(inbox.expect("delivery.changed").await.data["event"], from_a);
    for bad in ["?types=all", "?types=", "?source=%20", "?destination=A", "?sinse=1"] {
        let response = gateway.get(&format!("/stream{bad}")).await.expect(422);
        assert_eq!(response.code(), "invalid", "case: {bad}");
    }
}

#[tokio::test]
async fn reconnected_stream_resumes_after_last_event_id() {
    let mut gateway = Gateway::start().await;
    let mut stream = LiveStream::open(&gateway, "?types=event.received", None).await;
    let ready = stream.expect("ready").await;
    assert_eq!(ready.data["id"], ready.id);
    let first = gateway.post_accepted("demo", "{}").await;
    let seen = stream.expect("event.received").await;
    assert_eq!(seen.data["id"], first);
    drop(stream);
    let second = gateway.post_accepted("demo", "{}").await;

    let by_query = format!("?types=event.received&since={}", seen.id);
    let mut back = LiveStream::open(&gateway, &by_query, None).await;
    back.expect("ready").await;
    assert_eq!(back.expect("event.received").await.data["id"], second);
    let mut from_the_start =
        LiveStream::open(&gateway, "?types=event.received", Some(&ready.id)).await;
    from_the_start.expect("ready").await;
    assert_eq!(from_the_start.expect("event.received").await.data["id"], first);
    assert_eq!(from_the_start.expect("event.received").await.data["id"], second);

    // Ids of an earlier run are unknown after a restart, so the stream sends a reset.
    gateway.restart().await;
    let mut late = LiveStream::open(&gateway, "?types=event.received", Some(&seen.id)).await;
    late.expect("ready").await;
    let reset = late.expect("reset").await;
    let third = gateway.post_accepted("demo", "{}").await;
    assert_eq!(late.expect("event.received").await.data["id"], third);
    assert_ne!(reset.id, seen.id);
}

#[tokio::test]
async fn fast_browsing_does_not_use_up_the_streams() {
    let gateway = Gateway::start().await;
    for _ in 0..200 {
        LiveStream::open(&gateway, "", None).await.expect("ready").await;
    }
}

#[tokio::test]
async fn streams_are_limited_and_closed_at_shutdown() {
    let mut gateway = Gateway::start().await;
    let mut open = Vec::new();
    for _ in 0..512 {
        let mut stream = LiveStream::open(&gateway, "", None).await;
        stream.expect("ready").await;
        open.push(stream);
    }
    let refused = gateway.get("/stream").await.expect(503);
    assert_eq!(refused.code(), "too_many_streams");
    assert!(!refused.header("retry-after").is_empty());
    // Closing a stream frees its slot.
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

    assert!(gateway.terminate().await.success(), "open streams must not delay shutdown");
    for mut stream in open {
        stream.0.read_until_closed().await;
    }
}

#[tokio::test]
async fn stream_is_closed_when_token_is_revoked() {
    let gateway = Gateway::start().await;
    let created = gateway.post("/tokens", &json!({ "role": "viewer" })).await.expect(201).json();
    let token = created["token"].as_str().unwrap();
    let mut stream = LiveStream::open_as(&gateway, token, "", None).await;
    stream.expect("ready").await;
    gateway.post_accepted("demo", r#"{"id":"before"}"#).await;
    stream.expect("event.received").await;

    gateway.delete(&format!("/tokens/{}", created["id"].as_str().unwrap())).await.expect(204);
    let after = gateway.post_accepted("demo", r#"{"id":"after"}"#).await;

    let rest = String::from_utf8(stream.0.read_until_closed().await).unwrap();
    assert!(!rest.contains(&after), "{rest}");
}

#[tokio::test]
async fn events_tail_prints_received_events() {
    let gateway = Gateway::start().await;
    let env = [
        ("SUREHOOK_SERVER".to_owned(), gateway.url("")),
        ("SUREHOOK_TOKEN".to_owned(), TOKEN.to_owned()),
    ];
    let tail = Process::spawn(gateway.folder(), &["events", "tail", "--json"], &env);
    // `tail` prints nothing when it is connected, so events are sent until one is printed.
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
