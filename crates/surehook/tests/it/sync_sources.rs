//! Sources with `sync`: the sender waits for the result of the delivery.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::{sync::Barrier, task::JoinSet};

use crate::support::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    gateway::{Gateway, Route, route_settings},
    sink::{ArrivalsByRun, Reply, Sink},
};

/// A source `in` whose senders wait for the result of `out`; `sync` and `out` are further settings.
fn sync_settings(url: &str, sync: &str, out: &str) -> String {
    filtered_sync_settings(url, sync, "", out)
}

fn filtered_sync_settings(url: &str, sync: &str, filter: &str, out: &str) -> String {
    let source = format!("verify = \"none\"\nsync = {{ destination = \"out\"{sync} }}");
    let destination = format!("url = \"{url}\"\n{out}");
    Route { source: &source, route: filter, destination: &destination }.settings()
}

async fn send(gateway: &Gateway, key: &str) -> HttpResponse {
    gateway.send_webhook("in", &[], format!(r#"{{"id":"{key}"}}"#)).await
}

fn event_of(response: &Value) -> String {
    response["events"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn success_is_answered_with_result_and_repeated_to_duplicates_across_restart() {
    let result = r#"{"reply":9007199254740993123,"x":1.50}"#;
    let sink = Sink::with_replies([Reply::status(200).body(result)]).await;
    let mut gateway = Gateway::start_with(&sync_settings(&sink.url(), "", "")).await;

    let first = send(&gateway, "a").await.expect(200);

    let response = first.json();
    assert_eq!(
        (&response["status"], &response["retry"]),
        (&"success".into(), &false.into()),
        "{response}"
    );
    assert!(first.text().contains(&format!(r#""result":{result}"#)), "{}", first.text());
    assert_eq!(send(&gateway, "a").await.expect(200).text(), first.text());
    gateway.restart().await;
    assert_eq!(send(&gateway, "a").await.expect(200).text(), first.text());
    assert_eq!(sink.requests().len(), 1);
    let event = gateway.event(&event_of(&response)).await;
    assert_eq!(event["duplicate_count"], 2, "{event}");
}

#[tokio::test]
async fn twenty_concurrent_duplicates_share_one_attempt_and_response() {
    const REQUESTS: usize = 20;
    let slow = Reply::status(200).body(r#"{"n":1}"#).after(Duration::from_millis(200));
    let sink = Sink::with_replies([slow, Reply::status(500)]).await;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", "")).await;
    let (start, url) = (Arc::new(Barrier::new(REQUESTS)), gateway.url("/in/in"));
    let mut racing = JoinSet::new();
    for _ in 0..REQUESTS {
        let (start, url, client) = (Arc::clone(&start), url.clone(), Client::new());
        racing.spawn(async move {
            start.wait().await;
            client.send(Method::POST, &url, &[], r#"{"id":"a"}"#).await.unwrap()
        });
    }

    let answers = racing.join_all().await;

    for response in &answers {
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.text(), answers[0].text());
        assert_eq!(response.json()["result"]["n"], 1);
    }
    assert_eq!(sink.requests().len(), 1);
}

#[tokio::test]
async fn resend_after_failure_is_attempted_immediately() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    // Without the resend the gateway would retry in an hour.
    let retry = r#"retry = { schedule = ["1h"] }"#;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", retry)).await;

    let failed = send(&gateway, "a").await.expect(500).json();
    let done = send(&gateway, "a").await.expect(200).json();

    assert_eq!((&failed["status"], &failed["retry"]), (&"error".into(), &true.into()), "{failed}");
    assert_eq!(done["status"], "success", "{done}");
    assert_eq!(event_of(&failed), event_of(&done));
    let delivery = gateway.wait_for_delivery(&event_of(&done), "succeeded").await;
    assert_eq!(delivery["attempts"], 2, "{delivery}");
    assert_eq!(sink.requests().len(), 2);
    let metrics = gateway.metrics().await;
    for response in ["error", "success"] {
        let line = format!(r#"surehook_sync_answers_total{{source="in",answer="{response}"}} 1"#);
        assert!(metrics.lines().any(|other| other == line), "no {line} in {metrics}");
    }
    let kinds = kinds(&gateway, &event_of(&done)).await;
    assert!(kinds.contains(&"hastened".to_owned()), "{kinds:?}");
    eventually(WAIT_LIMIT, || async {
        let answers = self::kinds(&gateway, &event_of(&done)).await;
        (answers.iter().filter(|kind| *kind == "answered").count() == 2).then_some(())
    })
    .await;
}

async fn kinds(gateway: &Gateway, event: &str) -> Vec<String> {
    let timeline = gateway.event(event).await["decisions"].as_array().unwrap().clone();
    timeline.iter().map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn resend_revives_dead_delivery() {
    let sink =
        Sink::with_replies([Reply::status(500), Reply::status(404), Reply::status(200)]).await;
    let retry = "retry = { max_attempts = 1 }";
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", retry)).await;

    let reasons = [
        send(&gateway, "a").await.expect(500).json()["reason"].clone(),
        send(&gateway, "a").await.expect(500).json()["reason"].clone(),
    ];
    let done = send(&gateway, "a").await.expect(200).json();

    assert_eq!(reasons, ["max_retries", "invalid_endpoint"]);
    assert_eq!(done["status"], "success", "{done}");
    let event = gateway.event(&event_of(&done)).await;
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 3, "{event}");
    assert_eq!(sink.requests().len(), 3);
}

#[tokio::test]
async fn rejected_payload_is_answered_as_skipped_and_stays_skipped() {
    let sink = Sink::with_replies([
        Reply::status(422).body("no such order"),
        Reply::status(200).body(r#"{"skipped":true}"#),
        Reply::status(500),
    ])
    .await;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", "")).await;

    let refused = send(&gateway, "a").await.expect(200);
    let skipped = send(&gateway, "b").await.expect(200);

    assert_eq!(refused.json()["status"], "skipped", "{}", refused.text());
    assert_eq!(refused.json()["reason"], "payload_error");
    assert_eq!(refused.json()["retry"], false);
    assert_eq!(skipped.json()["status"], "skipped", "{}", skipped.text());
    assert_eq!(skipped.json()["result"]["skipped"], true);
    assert_eq!(send(&gateway, "a").await.expect(200).text(), refused.text());
    assert_eq!(send(&gateway, "b").await.expect(200).text(), skipped.text());
    assert_eq!(sink.requests().len(), 2);
    let dead = gateway.get("/dead-letters").await.expect(200).json();
    assert_eq!(dead["data"][0]["reason"], "payload_error", "{dead}");
}

#[tokio::test]
async fn event_matched_by_no_route_is_answered_as_skipped() {
    let sink = Sink::ok().await;
    let filter = "filter = '.id == \"wanted\"'";
    let settings = filtered_sync_settings(&sink.url(), "", filter, "");
    let gateway = Gateway::start_with(&settings).await;

    for _ in 0..2 {
        let response = send(&gateway, "other").await.expect(200).json();
        assert_eq!(
            (&response["status"], &response["reason"]),
            (&"skipped".into(), &"not_routed".into())
        );
    }
    assert_eq!(send(&gateway, "wanted").await.expect(200).json()["status"], "success");
    assert_eq!(sink.requests().len(), 1);
}

#[tokio::test]
async fn retry_after_of_destination_is_passed_to_sender() {
    let sink =
        Sink::with_replies([Reply::status(429).header("retry-after", "30"), Reply::status(200)])
            .await;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", "")).await;

    let first = send(&gateway, "a").await.expect(429);
    // The cooldown is longer than the sync deadline, so the sender is answered immediately.
    let second = send(&gateway, "b").await.expect(429);
    let again = send(&gateway, "a").await.expect(429);

    for response in [first, second, again] {
        let seconds: u64 = response.header("retry-after").parse().unwrap();
        assert!((1..=31).contains(&seconds), "{seconds}");
        assert_eq!(response.json()["status"], "rate_limited", "{}", response.text());
        assert_eq!(response.json()["retry_after"], seconds);
    }
    assert_eq!(sink.requests().len(), 1);
}

#[tokio::test]
async fn resend_after_deadline_gets_the_result() {
    let slow = Reply::status(200).body(r#"{"n":1}"#).after(Duration::from_millis(1500));
    let sink = Sink::with_replies([slow, Reply::status(500)]).await;
    let gateway =
        Gateway::start_with(&sync_settings(&sink.url(), r#", deadline = "300ms""#, "")).await;

    let late = send(&gateway, "a").await.expect(500).json();

    assert_eq!((&late["reason"], &late["retry"]), (&"deadline".into(), &true.into()), "{late}");
    gateway.wait_for_delivery(&event_of(&late), "succeeded").await;
    let done = send(&gateway, "a").await.expect(200).json();
    assert_eq!((&done["status"], &done["result"]["n"]), (&"success".into(), &1.into()), "{done}");
    assert_eq!(sink.requests().len(), 1);
}

#[tokio::test]
async fn on_timeout_accepted_answers_accepted_at_deadline() {
    let sink = Sink::with_replies([Reply::status(200).after(Duration::from_secs(1))]).await;
    let sync = r#", deadline = "200ms", on_timeout = "accepted""#;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), sync, "")).await;

    let response = send(&gateway, "a").await.expect(200).json();

    assert_eq!(response["status"], "accepted", "{response}");
    gateway.wait_for_delivery(&event_of(&response), "succeeded").await;
}

#[tokio::test]
async fn failed_event_without_key_is_answered_as_accepted() {
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let retry = r#"retry = { schedule = ["100ms"] }"#;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", retry)).await;

    let response = gateway.send_webhook("in", &[], r#"{"no":"key"}"#).await.expect(200).json();

    assert_eq!(
        response["status"], "accepted",
        "without a key a resend could not be recognized: {response}"
    );
    gateway.wait_for_delivery(&event_of(&response), "succeeded").await;
    assert_eq!(sink.requests().len(), 2);
}

#[tokio::test]
async fn heavy_kill_while_sender_waits_loses_nothing() {
    let runs = Arc::new(AtomicUsize::new(0));
    let sink = Sink::with_script({
        let runs = Arc::clone(&runs);
        move |_, _| match runs.load(Ordering::SeqCst) {
            0 => Reply::Hang,
            _ => Reply::status(200).body(r#"{"done":true}"#),
        }
    })
    .await;
    let mut gateway =
        Gateway::start_with(&sync_settings(&sink.url(), r#", deadline = "1m""#, "")).await;
    let url = gateway.url("/in/in");
    let sender =
        tokio::spawn(
            async move { Client::new().send(Method::POST, &url, &[], r#"{"id":"a"}"#).await },
        );
    let id = sink.wait_for_requests(1).await[0].id().to_owned();

    gateway.kill9();
    assert!(sender.await.unwrap().is_err(), "the sender was cut off");
    runs.store(1, Ordering::SeqCst);
    gateway.restart().await;
    let response = send(&gateway, "a").await.expect(200).json();

    assert_eq!(
        (&response["status"], &response["result"]["done"]),
        (&"success".into(), &true.into())
    );
    assert_eq!(event_of(&response), id);
    assert_eq!(sink.requests().len(), 2, "once in each run");
    let kinds = kinds(&gateway, &id).await;
    assert!(kinds.contains(&"recovered".to_owned()), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_waiting_senders_get_their_own_result_across_kills() {
    const SENDERS: usize = 16;
    const EACH: usize = 12;
    let sink = Sink::with_script(|_, arrival| {
        let reply = Reply::status(200).body(format!(r#"{{"for":"{}"}}"#, arrival.id()));
        reply.after(Duration::from_millis(30))
    })
    .await;
    let mut arrivals = ArrivalsByRun::default();
    let mut gateway = Gateway::start_with(&sync_settings(&sink.url(), "", "")).await;
    let address = Arc::new(Mutex::new(gateway.url("/in/in")));
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let address = Arc::clone(&address);
        senders.spawn(async move {
            let client = Client::new();
            let mut responses = Vec::new();
            while responses.len() < EACH {
                let body = format!(r#"{{"id":"{sender}-{}"}}"#, responses.len());
                let url = address.lock().unwrap().clone();
                // The connection broke, or the sender is asked to retry: send the same event again.
                match client.send(Method::POST, &url, &[], body).await {
                    Ok(response) if response.status == 200 => responses.push(response.json()),
                    Ok(_) | Err(_) => tokio::task::yield_now().await,
                }
            }
            responses
        });
    }
    for kills in 1..=5 {
        sink.wait_for_requests(kills * SENDERS).await;
        gateway.kill9();
        sink.wait_until_disconnected().await;
        arrivals.end_run(&sink);
        gateway.restart().await;
        *address.lock().unwrap() = gateway.url("/in/in");
    }

    let responses: Vec<Value> = senders.join_all().await.into_iter().flatten().collect();

    let events: HashSet<String> = responses.iter().map(event_of).collect();
    assert_eq!((responses.len(), events.len()), (SENDERS * EACH, SENDERS * EACH));
    for response in &responses {
        assert_eq!(response["status"], "success", "{response}");
        assert_eq!(response["result"]["for"], event_of(response).as_str(), "{response}");
    }
    assert_eq!(gateway.stats().await["total"], events.len(), "one event for each key");
    arrivals.end_run(&sink);
    arrivals.assert_none_repeated_in_one_run();
}

#[tokio::test]
async fn invalid_sync_settings_are_rejected() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&sync_settings(&sink.url(), "", "")).await;
    let source = |sync: Value| json!({ "name": "s", "verify": "none", "sync": sync });

    for (sync, what) in [
        (json!({ "destination": "out" }), "no route leads there"),
        (json!({ "destination": "out", "deadline": "1h" }), "deadline"),
        (json!({ "destination": "out", "dedline": "1s" }), "dedline"),
    ] {
        let refused = gateway.post("/sources", &source(sync)).await.expect(422);
        assert!(refused.detail().contains(what), "{}", refused.text());
    }
    // A destination that a sync source waits for cannot be deleted.
    let refused = gateway.delete("/destinations/out").await.expect(422);
    assert!(refused.detail().contains("source `in`"), "{}", refused.text());
    assert_eq!(send(&gateway, "a").await.expect(200).json()["status"], "success");
}

/// Sends in the background; returns the pending response and the id of the delivery.
async fn send_in_background(
    gateway: &Gateway,
    body: &str,
) -> (tokio::task::JoinHandle<HttpResponse>, String) {
    let (url, body) = (gateway.url("/in/in"), body.to_owned());
    let sending =
        tokio::spawn(
            async move { Client::new().send(Method::POST, &url, &[], body).await.unwrap() },
        );
    let delivery = eventually(WAIT_LIMIT, || async {
        let listed = gateway.get("/deliveries").await.expect(200).json();
        listed["data"][0]["id"].as_str().map(str::to_owned)
    })
    .await;
    (sending, delivery)
}

#[tokio::test]
async fn cancelled_delivery_answers_waiting_sender() {
    let sink = Sink::ok().await;
    let gateway =
        Gateway::start_with(&sync_settings(&sink.url(), r#", deadline = "20s""#, "")).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    let (sending, delivery) = send_in_background(&gateway, r#"{"id":"a"}"#).await;

    let cancel = format!("/deliveries/{delivery}/cancel");
    gateway.post(&cancel, &json!({})).await.expect(200);

    let response = sending.await.unwrap().expect(200).json();
    assert_eq!(
        (&response["status"], &response["reason"]),
        (&"skipped".into(), &"cancelled".into())
    );
}

#[tokio::test]
async fn deleted_destination_answers_waiting_sender() {
    let sink = Sink::with_replies([Reply::status(200).after(Duration::from_secs(30))]).await;
    let gateway =
        Gateway::start_with(&sync_settings(&sink.url(), r#", deadline = "20s""#, "")).await;
    let (sending, _) = send_in_background(&gateway, r#"{"id":"a"}"#).await;
    sink.wait_for_requests(1).await;

    // The source must stop waiting for it before it can be deleted.
    let plain = json!({ "name": "in", "verify": "none" });
    gateway.put("/sources/in", &plain).await.expect(200);
    gateway.delete("/destinations/out").await.expect(204);

    let response = sending.await.unwrap().expect(200).json();
    assert_eq!(
        (&response["status"], &response["reason"]),
        (&"skipped".into(), &"cancelled".into())
    );
}

#[tokio::test]
async fn damaged_body_answers_waiting_sender() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    let body = r#"{"id":"a"}"#;
    gateway.post_accepted("in", body).await;
    gateway.terminate().await;
    let settings = sync_settings(&sink.url(), r#", deadline = "20s""#, "");
    let settings = format!("allow_networks = [\"127.0.0.0/8\"]\n{settings}");
    std::fs::write(gateway.folder().join("surehook.toml"), settings).unwrap();
    let file = rusqlite::Connection::open(gateway.folder().join("data/surehook.db")).unwrap();
    file.execute("UPDATE payloads SET body = x'00'", []).unwrap();
    drop(file);
    gateway.restart().await;
    let (again, delivery) = send_in_background(&gateway, body).await;
    gateway.wait_for_stats(WAIT_LIMIT, |stats| stats["duplicates"] == 1).await;

    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);

    let response = again.await.unwrap().expect(200).json();
    assert_eq!(
        (&response["status"], &response["reason"]),
        (&"skipped".into(), &"unrecoverable".into())
    );
    gateway.wait_for_delivery_status(&delivery, "dead").await;
}

#[tokio::test]
async fn long_skipped_response_is_stored_for_later_duplicate() {
    let long = format!(r#"{{"status":"skipped","why":"{}"}}"#, "x".repeat(3000));
    let reply = Reply::status(200).body(long.clone()).after(Duration::from_millis(800));
    let sink = Sink::with_replies([reply]).await;
    let gateway =
        Gateway::start_with(&sync_settings(&sink.url(), r#", deadline = "200ms""#, "")).await;
    let late = send(&gateway, "a").await.expect(500).json();
    gateway.wait_for_delivery(&event_of(&late), "succeeded").await;

    let response = send(&gateway, "a").await.expect(200).json();

    assert_eq!(
        (&response["status"], &response["reason"]),
        (&"skipped".into(), &"by_destination".into())
    );
    assert_eq!(response["result"]["why"].as_str().map(str::len), Some(3000));
}
