//! How two requests are known to be one event.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{WAIT_LIMIT, client::HttpResponse, eventually, gateway::Gateway};

fn key(answer: &Value) -> &Value {
    &answer["events"][0]["key"]
}

fn id(answer: &Value) -> &str {
    answer["events"][0]["id"].as_str().unwrap()
}

async fn gateway_with(source: &str) -> Gateway {
    Gateway::start_with(&format!("[[sources]]\nname = \"in\"\nverify = \"none\"\n{source}")).await
}

async fn send(gateway: &Gateway, headers: &[(&str, &str)], body: &str) -> Value {
    gateway.send_webhook("in", headers, body.to_owned()).await.expect(200).json()
}

/// Every usual place, each in a request that has all the later ones too.
#[tokio::test]
async fn the_usual_places_are_tried_in_order() {
    let gateway = gateway_with("").await;
    let body = json!({
        "id": "4", "event_id": "5", "idempotency_key": "6", "messageId": "7",
        "data": { "idempotency_key": "8", "messageId": "9" },
    });
    let headers = [("idempotency-key", "1"), ("webhook-id", "2"), ("x-event-id", "3")];
    let mut body = body;
    let mut found = Vec::new();
    for first in 0..headers.len() {
        let answer = send(&gateway, &headers[first..], &body.to_string()).await;
        found.push(key(&answer).as_str().unwrap().to_owned());
    }
    for place in ["/id", "/event_id", "/idempotency_key", "/messageId"] {
        found.push(key(&send(&gateway, &[], &body.to_string()).await).as_str().unwrap().to_owned());
        body.as_object_mut().unwrap().remove(&place[1..]).unwrap();
    }
    for name in ["idempotency_key", "messageId"] {
        found.push(key(&send(&gateway, &[], &body.to_string()).await).as_str().unwrap().to_owned());
        body["data"].as_object_mut().unwrap().remove(name).unwrap();
    }

    assert_eq!(found, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(*key(&send(&gateway, &[], &body.to_string()).await), Value::Null);
}

#[tokio::test]
async fn an_own_list_takes_the_place_of_the_usual_ones() {
    let gateway =
        gateway_with(r#"keys = ["header:X-Own", "pointer:/a/0/b", "jq:.x + \"-\" + .y"]"#).await;
    let own = [("x-own", "from-header"), ("idempotency-key", "ignored")];
    let body = r#"{"id":"ignored","a":[{"b":7}],"x":"left","y":"right"}"#;
    let cases = [
        ("header first", &own[..], body, json!("from-header")),
        ("then the pointer", &own[1..], body, json!("7")),
        ("then jq", &own[1..], r#"{"id":"ignored","x":"left","y":"right"}"#, json!("left-right")),
        // jq fails here, and a filter that fails has found nothing.
        ("nothing", &own[1..], r#"{"id":"ignored","x":1,"y":"right"}"#, json!(null)),
    ];
    for (name, headers, body, expected) in cases {
        assert_eq!(*key(&send(&gateway, headers, body).await), expected, "case: {name}");
    }
}

#[tokio::test]
async fn a_duplicate_gets_the_id_of_the_original() {
    let gateway = gateway_with("").await;
    let first = send(&gateway, &[], r#"{"id":"a"}"#).await;
    assert_eq!(first["status"], "accepted");
    assert_eq!(first.get("skipped"), None);

    let second = send(&gateway, &[], r#"{"id":"a"}"#).await;
    let third = send(&gateway, &[("x-other", "header")], r#"{"id":"a"}"#).await;

    for again in [&second, &third] {
        assert_eq!((&again["status"], &again["skipped"]), (&json!("duplicate"), &json!(true)));
        assert_eq!(again["events"][0]["status"], "duplicate");
        assert_eq!(id(again), id(&first));
    }
    // Duplicates are counted behind the answer.
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

// B43: nobody is told that the second body was delivered, and nobody has to guess what it was.
#[tokio::test]
async fn a_duplicate_with_another_body_is_shown() {
    let gateway = gateway_with("").await;
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

// Whoever sends decides how many and how large they are; the event must open all the same.
#[tokio::test]
async fn many_large_duplicates_do_not_make_an_event_large() {
    let gateway = gateway_with("").await;
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
    for seen in duplicates {
        assert_eq!((&seen["body"], &seen["body_left_out"]), (&json!(null), &json!(true)));
    }
}

// B38.
#[tokio::test]
async fn what_is_no_value_is_no_key() {
    let gateway = gateway_with("keys = [\"pointer:/id\"]").await;
    let nothing = [
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
    for body in nothing {
        let twice = [send(&gateway, &[], body).await, send(&gateway, &[], body).await];
        for answer in &twice {
            assert_eq!(answer["status"], "accepted", "case: {body}");
            assert_eq!(*key(answer), Value::Null, "case: {body}");
        }
        assert_ne!(id(&twice[0]), id(&twice[1]), "case: {body}");
        assert_eq!(gateway.event(id(&twice[0])).await["no_key"], true, "case: {body}");
    }
    assert_eq!(gateway.stats().await["no_key"], nothing.len() * 2);

    for (body, expected) in [
        (r#"{"id":7}"#, "7"),
        (r#"{"id":7.0}"#, "7.0"),
        (r#"{"id":12345678901234567890123}"#, "12345678901234567890123"),
        (r#"{"id":"7 "}"#, "7 "),
        (r#"{"id":"null"}"#, "null"),
        // The last one counts, as in most JSON libraries.
        (r#"{"id":"x","id":"y"}"#, "y"),
    ] {
        let answer = send(&gateway, &[], body).await;
        assert_eq!(answer["status"], "accepted", "case: {body}");
        assert_eq!(*key(&answer), expected, "case: {body}");
    }
}

// B47: keys are bytes.
#[tokio::test]
async fn keys_that_only_look_alike_are_two() {
    let gateway = gateway_with("").await;
    let composed = r#"{"id":"é"}"#;
    let decomposed = "{\"id\":\"e\u{301}\"}";
    for body in [composed, decomposed, r#"{"id":"É"}"#, r#"{"id":"e"}"#] {
        assert_eq!(send(&gateway, &[], body).await["status"], "accepted", "case: {body}");
    }
    // The escape is only another spelling of the same text.
    assert_eq!(send(&gateway, &[], r#"{"id":"\u00e9"}"#).await["status"], "duplicate");
}

// B44.
#[tokio::test]
async fn a_key_belongs_to_its_source() {
    let gateway = Gateway::start_with(
        "[[sources]]\nname = \"in\"\nverify = \"none\"\n\
         [[sources]]\nname = \"other\"\nverify = \"none\"",
    )
    .await;

    let here = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let there = gateway.post_accepted("other", r#"{"id":"a"}"#).await;

    assert_ne!(here, there);
    let found = gateway.get("/events?source=other&key=a").await.expect(200).json();
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
    assert_eq!(found["data"][0]["id"], there);
}

#[tokio::test]
async fn a_content_hash_is_a_key_where_it_is_asked_for() {
    let gateway = gateway_with("content_hash_window = \"1h\"").await;

    let first = send(&gateway, &[], "same").await;
    let second = send(&gateway, &[], "same").await;
    let other = send(&gateway, &[], "other").await;
    let keyed = send(&gateway, &[("idempotency-key", "k")], "same").await;

    assert_eq!(second["status"], "duplicate");
    assert_eq!(id(&second), id(&first));
    assert!(key(&first).as_str().unwrap().starts_with("hash:"), "{first}");
    assert_eq!(other["status"], "accepted");
    // A key of its own says more than equal bytes.
    assert_eq!((&keyed["status"], key(&keyed)), (&json!("accepted"), &json!("k")));
}

// B46.
#[tokio::test]
async fn after_its_window_a_key_is_new_again() {
    let gateway = gateway_with("dedup_window = \"1s\"").await;
    let first = send(&gateway, &[], r#"{"id":"a"}"#).await;

    let next = eventually(WAIT_LIMIT, || async {
        let answer = send(&gateway, &[], r#"{"id":"a"}"#).await;
        (answer["status"] == "accepted").then_some(answer)
    })
    .await;

    assert_ne!(id(&next), id(&first));
}

// B42.
#[tokio::test]
async fn of_many_at_once_one_is_the_original() {
    let gateway = gateway_with("").await;
    let copies = (0..50).map(|_| gateway.send_webhook("in", &[], r#"{"id":"a"}"#));

    let answers: Vec<Value> = {
        let answers: Vec<HttpResponse> = futures_util::future::join_all(copies).await;
        answers.into_iter().map(|answer| answer.expect(200).json()).collect()
    };

    let accepted = answers.iter().filter(|answer| answer["status"] == "accepted").count();
    let ids: HashSet<&str> = answers.iter().map(id).collect();
    assert_eq!((accepted, ids.len()), (1, 1));
    assert_eq!(gateway.stats().await["total"], 1);
}
