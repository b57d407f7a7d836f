//! Deduplication keys: where they are read from and which requests are duplicates.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{WAIT_LIMIT, client::HttpResponse, eventually, gateway::Gateway};

fn key(response: &Value) -> &Value {
    &response["events"][0]["key"]
}

fn id(response: &Value) -> &str {
    response["events"][0]["id"].as_str().unwrap()
}

async fn gateway_with(source: &str) -> Gateway {
    Gateway::start_with(&format!("[[sources]]\nname = \"in\"\nverify = \"none\"\n{source}")).await
}

async fn send(gateway: &Gateway, headers: &[(&str, &str)], body: &str) -> Value {
    gateway.send_webhook("in", headers, body.to_owned()).await.expect(200).json()
}

/// Each request contains one default location fewer than the one before; the first that is left must win.
#[tokio::test]
async fn default_key_locations_are_tried_in_order() {
    let gateway = gateway_with("").await;
    let mut body = json!({
        "id": "4", "event_id": "5", "idempotency_key": "6", "messageId": "7",
        "data": { "idempotency_key": "8", "messageId": "9" },
    });
    let headers = [("idempotency-key", "1"), ("webhook-id", "2"), ("x-event-id", "3")];
    let mut keys = Vec::new();
    for first in 0..headers.len() {
        let response = send(&gateway, &headers[first..], &body.to_string()).await;
        keys.push(key(&response).as_str().unwrap().to_owned());
    }
    for pointer in ["/id", "/event_id", "/idempotency_key", "/messageId"] {
        keys.push(key(&send(&gateway, &[], &body.to_string()).await).as_str().unwrap().to_owned());
        body.as_object_mut().unwrap().remove(&pointer[1..]).unwrap();
    }
    for name in ["idempotency_key", "messageId"] {
        keys.push(key(&send(&gateway, &[], &body.to_string()).await).as_str().unwrap().to_owned());
        body["data"].as_object_mut().unwrap().remove(name).unwrap();
    }

    assert_eq!(keys, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(*key(&send(&gateway, &[], &body.to_string()).await), Value::Null);
}

#[tokio::test]
async fn configured_key_locations_replace_the_defaults() {
    let gateway =
        gateway_with(r#"keys = ["header:X-Own", "pointer:/a/0/b", "jq:.x + \"-\" + .y"]"#).await;
    let headers = [("x-own", "from-header"), ("idempotency-key", "ignored")];
    let body = r#"{"id":"ignored","a":[{"b":7}],"x":"left","y":"right"}"#;
    let cases = [
        ("header first", &headers[..], body, json!("from-header")),
        ("then the pointer", &headers[1..], body, json!("7")),
        (
            "then jq",
            &headers[1..],
            r#"{"id":"ignored","x":"left","y":"right"}"#,
            json!("left-right"),
        ),
        // The jq filter fails here, which counts as no key.
        ("nothing", &headers[1..], r#"{"id":"ignored","x":1,"y":"right"}"#, json!(null)),
    ];
    for (name, headers, body, expected) in cases {
        assert_eq!(*key(&send(&gateway, headers, body).await), expected, "case: {name}");
    }
}

#[tokio::test]
async fn duplicate_is_answered_with_id_of_original() {
    let gateway = gateway_with("").await;
    let first = send(&gateway, &[], r#"{"id":"a"}"#).await;
    assert_eq!(first["status"], "accepted");
    assert_eq!(first.get("skipped"), None);

    let second = send(&gateway, &[], r#"{"id":"a"}"#).await;
    let third = send(&gateway, &[("x-other", "header")], r#"{"id":"a"}"#).await;

    for repeat in [&second, &third] {
        assert_eq!((&repeat["status"], &repeat["skipped"]), (&json!("duplicate"), &json!(true)));
        assert_eq!(repeat["events"][0]["status"], "duplicate");
        assert_eq!(id(repeat), id(&first));
    }
    // Duplicates are counted after the response is sent.
    eventually(WAIT_LIMIT, || async {
        let event = gateway.event(id(&first)).await;
        let counted = event["duplicate_count"] == 2 && event["last_duplicate_at"].is_string();
        let listed = event["duplicates"].as_array().unwrap();
        (counted && listed.iter().all(|row| row["bytes_differ"] == false)).then_some(())
    })
    .await;
    let stats = gateway.stats().await;
    assert_eq!((&stats["total"], &stats["duplicates"]), (&json!(1), &json!(2)));
}

// The second body is not delivered, so it must be visible on the event.
#[tokio::test]
async fn duplicate_with_different_body_is_shown_on_event() {
    let gateway = gateway_with("keys = [\"pointer:/id\"]").await;
    let first = send(&gateway, &[], r#"{"id":"a","amount":1}"#).await;

    let second = send(&gateway, &[], r#"{"id":"a","amount":2}"#).await;

    assert_eq!((second["status"].as_str(), id(&second)), (Some("duplicate"), id(&first)));
    let event = eventually(WAIT_LIMIT, || async {
        let event = gateway.event(id(&first)).await;
        (event["duplicate_count"] == 1).then_some(event)
    })
    .await;
    let duplicate = &event["duplicates"][0];
    assert_eq!(duplicate["bytes_differ"], true, "{event}");
    assert_eq!(duplicate["body"]["text"], r#"{"id":"a","amount":2}"#);
}

// Senders control number and size of duplicates; the event must stay readable.
#[tokio::test]
async fn event_response_stays_small_with_many_large_duplicates() {
    let gateway = gateway_with("keys = [\"pointer:/id\"]").await;
    let text = "x".repeat(1_000_000);
    let body = |n: usize| format!(r#"{{"id":"a","amount":{n},"text":"{text}"}}"#);
    let first = send(&gateway, &[], &body(0)).await;
    for n in 1..=60 {
        send(&gateway, &[], &body(n)).await;
    }
    let event = eventually(WAIT_LIMIT, || async {
        let event = gateway.event(id(&first)).await;
        (event["duplicate_count"] == 60).then_some(event)
    })
    .await;

    assert!(event.to_string().len() < 2 << 20, "{} bytes", event.to_string().len());
    let duplicates = event["duplicates"].as_array().unwrap();
    assert_eq!(duplicates.len(), 60);
    for duplicate in duplicates {
        assert_eq!((&duplicate["body"], &duplicate["body_omitted"]), (&json!(null), &json!(true)));
    }
}

#[tokio::test]
async fn missing_or_non_scalar_value_gives_no_key() {
    let gateway = gateway_with("keys = [\"pointer:/id\"]").await;
    let without_key = [
        "{}",
        r#"{"id":null}"#,
        r#"{"id":""}"#,
        r#"{"id":" \t"}"#,
        r#"{"id":{"a":1}}"#,
        r#"{"id":[1]}"#,
        r#"{"id":true}"#,
        "",
        "null",
        "not JSON",
    ];
    for body in without_key {
        let twice = [send(&gateway, &[], body).await, send(&gateway, &[], body).await];
        for response in &twice {
            assert_eq!(response["status"], "accepted", "case: {body}");
            assert_eq!(*key(response), Value::Null, "case: {body}");
        }
        assert_ne!(id(&twice[0]), id(&twice[1]), "case: {body}");
        assert_eq!(gateway.event(id(&twice[0])).await["no_key"], true, "case: {body}");
    }
    assert_eq!(gateway.stats().await["no_key"], without_key.len() * 2);

    for (body, expected) in [
        (r#"{"id":7}"#, "7"),
        (r#"{"id":7.0}"#, "7.0"),
        (r#"{"id":12345678901234567890123}"#, "12345678901234567890123"),
        (r#"{"id":"7 "}"#, "7 "),
        (r#"{"id":"null"}"#, "null"),
        // The last one of repeated names wins, as in most JSON libraries.
        (r#"{"id":"x","id":"y"}"#, "y"),
    ] {
        let response = send(&gateway, &[], body).await;
        assert_eq!(response["status"], "accepted", "case: {body}");
        assert_eq!(*key(&response), expected, "case: {body}");
    }
}

#[tokio::test]
async fn keys_are_compared_byte_by_byte() {
    let gateway = gateway_with("keys = [\"pointer:/id\"]").await;
    let composed = r#"{"id":"é"}"#;
    let decomposed = "{\"id\":\"e\u{301}\"}";
    for body in [composed, decomposed, r#"{"id":"É"}"#, r#"{"id":"e"}"#] {
        assert_eq!(send(&gateway, &[], body).await["status"], "accepted", "case: {body}");
    }
    // A JSON escape is another spelling of the same text.
    assert_eq!(send(&gateway, &[], r#"{"id":"\u00e9"}"#).await["status"], "duplicate");
}

#[tokio::test]
async fn same_key_in_two_sources_is_two_events() {
    let gateway = Gateway::start_with(
        "[[sources]]\nname = \"in\"\nverify = \"none\"\n\
         [[sources]]\nname = \"other\"\nverify = \"none\"",
    )
    .await;

    let first = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let second = gateway.post_accepted("other", r#"{"id":"a"}"#).await;

    assert_ne!(first, second);
    let events = gateway.list("/events?source=other&key=a").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["id"], second);
}

#[tokio::test]
async fn content_hash_is_used_as_key_when_configured() {
    let gateway = gateway_with("content_hash_window = \"1h\"").await;

    let first = send(&gateway, &[], "same").await;
    let second = send(&gateway, &[], "same").await;
    let other = send(&gateway, &[], "other").await;
    let keyed = send(&gateway, &[("idempotency-key", "k")], "same").await;

    assert_eq!(second["status"], "duplicate");
    assert_eq!(id(&second), id(&first));
    assert!(key(&first).as_str().unwrap().starts_with("hash:"), "{first}");
    assert_eq!(other["status"], "accepted");
    // An explicit key takes precedence over the content hash.
    assert_eq!((&keyed["status"], key(&keyed)), (&json!("accepted"), &json!("k")));
}

#[tokio::test]
async fn key_is_accepted_again_after_dedup_window() {
    let gateway = gateway_with("dedup_window = \"1s\"").await;
    let first = send(&gateway, &[], r#"{"id":"a"}"#).await;

    let next = eventually(WAIT_LIMIT, || async {
        let response = send(&gateway, &[], r#"{"id":"a"}"#).await;
        (response["status"] == "accepted").then_some(response)
    })
    .await;

    assert_ne!(id(&next), id(&first));
}

#[tokio::test]
async fn concurrent_requests_with_one_key_create_one_event() {
    let gateway = gateway_with("").await;
    let requests = (0..50).map(|_| gateway.send_webhook("in", &[], r#"{"id":"a"}"#));

    let answers: Vec<Value> = {
        let responses: Vec<HttpResponse> = futures_util::future::join_all(requests).await;
        responses.into_iter().map(|response| response.expect(200).json()).collect()
    };

    let accepted = answers.iter().filter(|response| response["status"] == "accepted").count();
    let ids: HashSet<&str> = answers.iter().map(id).collect();
    assert_eq!((accepted, ids.len()), (1, 1));
    assert_eq!(gateway.stats().await["total"], 1);
}
