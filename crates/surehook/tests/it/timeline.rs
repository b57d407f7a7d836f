//! Timelines of events, and stored samples of refused requests.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

fn texts(event: &Value) -> Vec<String> {
    let timeline = event["decisions"].as_array().unwrap();
    timeline.iter().map(|entry| entry["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn timeline_lists_all_decisions_in_order() {
    let sink =
        Sink::with_replies([Reply::status(503), Reply::status(400), Reply::status(200)]).await;
    let settings = format!(
        r#"{}
        [[destinations]]
        name = "other"
        url = "builtin:inbox"

        [[routes]]
        from = "in"
        to = "other"
        filter = '.id == "b"'

        [[routes]]
        from = "in"
        to = "out"
        "#,
        route_settings(&sink.url(), r#"retry = { schedule = ["100ms"] }"#)
    );
    let gateway = Gateway::start_with(&settings).await;

    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    gateway.wait_for_delivery(&event, "dead").await;
    let again = gateway.send_webhook("in", &[], r#"{"id":"a"}"#).await.expect(200).json();
    assert_eq!((&again["status"], again.get("skipped")), (&"revived".into(), None), "{again}");
    assert_eq!(again["events"][0]["status"], "revived", "{again}");
    sink.wait_for_requests(3).await;
    let event_after = eventually(WAIT_LIMIT, || async {
        let event_after = gateway.event(&event).await;
        let all = event_after["deliveries"].as_array().unwrap();
        all.iter().any(|delivery| delivery["status"] == "succeeded").then_some(event_after)
    })
    .await;

    let texts = texts(&event_after);
    let expected = [
        "received with 10 bytes",
        "not verified: the source does not require it",
        "the key is `a`, found in pointer:/id",
        "not sent to `other`: the filter did not match",
        "not sent to `out` again: an earlier route already does",
        "delivery to `out` created",
        "attempt 1 to `out` failed (transient): status 503 after",
        "attempt 2 to `out` failed (permanent): status 400 after",
        "delivery to `out` created, replacing dlv_",
        "duplicate received",
        "a duplicate revived the delivery to `out`",
        "attempt 1 to `out` succeeded: status 200 after",
    ];
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.starts_with(expected), "{text:?} is not {expected:?} in {texts:#?}");
    }
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    assert!(texts[6].contains("; next attempt at "), "{}", texts[6]);
    assert!(texts[7].ends_with("; given up: payload_error"), "{}", texts[7]);
    let shown = gateway.cli(&["events", "show", &event]).await;
    assert!(shown.stdout.contains("a duplicate revived the delivery to `out`"), "{shown:?}");
}

#[tokio::test]
async fn timeline_contains_replays_and_cancellations() {
    let (good, bad) = (Sink::ok().await, Sink::with_replies([Reply::Hang]).await);
    let settings = format!(
        r#"{}
        [[destinations]]
        name = "hanging"
        url = "{}"

        [[routes]]
        from = "in"
        to = "hanging"
        "#,
        route_settings(&good.url(), ""),
        bad.url()
    );
    let gateway = Gateway::start_with(&settings).await;
    let event = gateway.post_accepted("in", "{}").await;
    let done = gateway.find_delivery_to(&event, "out").await.unwrap();
    gateway.wait_for_delivery_status(&done, "succeeded").await;

    gateway.post(&format!("/deliveries/{done}/replay"), &json!({})).await.expect(202);
    gateway.delete("/destinations/hanging").await.expect(204);

    let event_after = gateway.event(&event).await;
    let texts = texts(&event_after);
    assert!(texts.contains(&"the delivery to `out` was replayed".to_owned()), "{texts:#?}");
    let cancelled = "the delivery to a deleted destination was cancelled".to_owned();
    assert!(texts.contains(&cancelled), "{texts:#?}");
    let timeline = event_after["decisions"].as_array().unwrap();
    let replayed = timeline.iter().find(|entry| entry["kind"] == "replayed").unwrap();
    assert_eq!(replayed["detail"]["replay_of"], done.as_str());
}

/// A source `in` that requires a token.
fn token_source(more: &str) -> String {
    format!(
        r#"
        [[sources]]
        name = "in"
        verify = {{ token = {{ header = "x-token" }} }}
        secrets = ["right-and-long-enough"]
        {more}
        "#
    )
}

async fn refused_requests(gateway: &Gateway, query: &str, count: usize) -> Vec<Value> {
    eventually(WAIT_LIMIT, || async {
        let list = gateway.get(&format!("/requests?limit=1000{query}")).await.expect(200).json();
        Some(list["data"].as_array().unwrap().clone()).filter(|all| all.len() >= count)
    })
    .await
}

#[tokio::test]
async fn refused_requests_are_stored_without_secrets() {
    let gateway = Gateway::start_with(&token_source("")).await;
    let headers = [("x-token", "wrong-one"), ("authorization", "Bearer hush"), ("x-mine", "1")];

    gateway.send_webhook("in", &headers, "{}").await.expect(401);
    gateway.send_webhook("absent?token=hush&a=1", &[], "{}").await.expect(404);
    gateway.request(Method::GET, "/in/in/deep", &[], "").await.expect(405);

    let all = refused_requests(&gateway, "", 3).await;
    let of = |reason: &str| all.iter().find(|entry| entry["reason"] == reason).unwrap();
    let (wrong, unknown) = (of("mismatch"), of("unknown_source"));
    assert_eq!((&wrong["outcome"], &wrong["http_status"]), (&"refused".into(), &401.into()));
    assert_eq!((&wrong["source"], &wrong["body_bytes"]), (&"in".into(), &2.into()));
    assert!(wrong["what_to_do"].as_str().unwrap().contains("secret"), "{wrong}");
    assert_eq!((&unknown["source"], &unknown["query"]), (&Value::Null, &"token=•••&a=1".into()));
    // The path after the source name may contain a secret.
    assert_eq!(of("method_not_allowed")["path"], "/in/in/•••");
    let path = format!("/requests/{}", wrong["id"].as_str().unwrap());
    let request = gateway.get(&path).await.expect(200);
    assert!(!request.text().contains("hush") && !request.text().contains("wrong-one"));
    let headers = request.json()["headers"].as_array().unwrap().clone();
    let header = |name: &str| {
        headers.iter().find(|line| line["name"] == name).unwrap()["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!((header("x-token"), header("x-mine")), ("•••".to_owned(), "1".to_owned()));
    assert_eq!(request.json()["body"], Value::Null, "bodies are not stored by default");
    assert_eq!(refused_requests(&gateway, "&source=in&reason=mismatch", 1).await.len(), 1);
    let listed = gateway.cli(&["requests", "list", "--source", "in"]).await;
    assert!(listed.stdout.contains("mismatch") && !listed.stdout.contains("unknown"), "{listed:?}");
    gateway.get("/requests/req_01h455vb4pex5vsknk084sn02q").await.expect(404);
    let export = gateway.get("/requests?format=ndjson").await.expect(200).text();
    let exported: Vec<Value> =
        export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exported, refused_requests(&gateway, "", 3).await);
}

#[tokio::test]
async fn refused_request_body_is_stored_when_configured() {
    let gateway = Gateway::start_with(&token_source("keep_refused_bodies = true")).await;

    gateway.send_webhook("in", &[], "refused body").await.expect(401);

    let all = refused_requests(&gateway, "", 1).await;
    let path = format!("/requests/{}", all[0]["id"].as_str().unwrap());
    let request = gateway.get(&path).await.expect(200).json();
    assert_eq!(
        (&request["body"]["text"], &request["body_bytes"]),
        (&"refused body".into(), &12.into())
    );
}

#[tokio::test]
async fn flood_of_refused_requests_is_counted_and_sampled() {
    const FLOOD: usize = 300;
    let gateway = Gateway::start_with(&token_source("")).await;

    for _ in 0..FLOOD {
        gateway.send_webhook("in", &[("x-token", "wrong-one")], "{}").await.expect(401);
    }
    gateway.send_webhook("in", &[], "{}").await.expect(401);

    // The last request is stored, so all earlier ones have been stored or skipped.
    refused_requests(&gateway, "&reason=missing_credentials", 1).await;
    let sampled = refused_requests(&gateway, "&reason=mismatch", 1).await.len();
    assert!((20..=100).contains(&sampled), "{sampled} of {FLOOD}");
    let metrics = gateway.metrics().await;
    let counted = metrics.lines().find(|line| {
        line.starts_with("surehook_requests_total") && line.contains("reason=\"mismatch\"")
    });
    assert!(counted.is_some_and(|line| line.ends_with(&format!(" {FLOOD}"))), "{counted:?}");
}
