//! Retention: what is removed when its time has passed, and the counts that remain.

use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

/// Keeps bodies for one second and everything else for the default time.
fn short_body_retention(url: &str, more: &str) -> String {
    let settings = route_settings(url, more);
    settings.replace("verify = \"none\"", "verify = \"none\"\nretention = { bodies = \"1s\" }")
}

/// Waits until the body of an event is removed; returns the problem.
async fn wait_until_body_is_removed(gateway: &Gateway, event: &str) -> Value {
    eventually(WAIT_LIMIT, || async {
        let response = gateway.get(&format!("/events/{event}/body")).await;
        (response.status != 200).then_some(response)
    })
    .await
    .expect(410)
    .json()
}

async fn series(gateway: &Gateway, query: &str) -> Value {
    gateway.get(&format!("/stats/series?{query}")).await.expect(200).json()
}

#[tokio::test]
async fn expired_body_is_removed_and_event_shows_it() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&short_body_retention(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;

    let problem = wait_until_body_is_removed(&gateway, &event).await;

    assert_eq!(problem["code"], "body_removed");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("`in`") && detail.contains("1s") && detail.contains("30d"), "{detail}");
    let shown = gateway.event(&event).await;
    assert_eq!((&shown["body_removed"], &shown["request"]), (&json!(true), &json!(null)));
    assert_eq!((&shown["key"], &shown["body_bytes"]), (&json!("a"), &json!(10)));
    let id = delivery["id"].as_str().unwrap();
    let sent = gateway.get(&format!("/deliveries/{id}/body")).await.expect(410);
    assert_eq!(sent.json(), problem, "the sent body is removed with the received one");
    let replay = gateway.post(&format!("/deliveries/{id}/replay"), &json!({})).await;
    assert_eq!(replay.expect(409).code(), "body_removed");
    let delivery = gateway.wait_for_delivery_status(id, "succeeded").await;
    assert_eq!(delivery["attempt_list"].as_array().unwrap().len(), 1);
    let again = gateway.send_webhook("in", &[], r#"{"id":"a"}"#).await.expect(200).json();
    assert_eq!(again["status"], "duplicate", "the dedup key outlives the body: {again}");
}

#[tokio::test]
async fn dead_letter_keeps_its_body_and_can_be_replayed() {
    let sink = Sink::with_replies([Reply::status(400), Reply::status(200)]).await;
    let gateway = Gateway::start_with(&short_body_retention(&sink.url(), "")).await;
    let dead = gateway.post_accepted("in", "to be refused").await;
    let delivery = gateway.wait_for_delivery(&dead, "dead").await;
    let other = gateway.post_accepted("in", "to be taken").await;
    gateway.wait_for_delivery(&other, "succeeded").await;

    wait_until_body_is_removed(&gateway, &other).await;

    let body = gateway.get(&format!("/events/{dead}/body")).await.expect(200);
    assert_eq!(body.text(), "to be refused");
    let id = delivery["id"].as_str().unwrap();
    let replay = gateway.post(&format!("/deliveries/{id}/replay"), &json!({})).await.expect(202);
    gateway
        .wait_for_delivery_status(replay.json()["delivery_id"].as_str().unwrap(), "succeeded")
        .await;
    // No delivery is dead any more, so its body expires too.
    wait_until_body_is_removed(&gateway, &dead).await;
}

#[tokio::test]
async fn expired_attempts_are_removed_and_still_counted() {
    let sink = Sink::ok().await;
    let settings = short_body_retention(&sink.url(), "").replace("bodies = ", "attempts = ");
    let gateway = Gateway::start_with(&settings).await;
    let event = gateway.post_accepted("in", "{}").await;
    let id =
        gateway.wait_for_delivery(&event, "succeeded").await["id"].as_str().unwrap().to_owned();

    let delivery = eventually(WAIT_LIMIT, || async {
        let delivery = gateway.wait_for_delivery_status(&id, "succeeded").await;
        (delivery["attempts_removed"] == true).then_some(delivery)
    })
    .await;

    assert_eq!((&delivery["attempts"], &delivery["attempt_list"]), (&json!(1), &json!([])));
    gateway.get(&format!("/events/{event}/body")).await.expect(200);
    assert_eq!(gateway.stats().await["attempts"], 1);
    let timeline = gateway.event(&event).await["decisions"].clone();
    let entry =
        timeline.as_array().unwrap().iter().find(|entry| entry["kind"] == "attempts_removed");
    let entry = entry.unwrap_or_else(|| panic!("{timeline:#}"));
    assert_eq!((&entry["delivery"], &entry["detail"]["count"]), (&json!(id), &json!(1)));
}

#[tokio::test]
async fn retention_change_applies_without_restart() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    let spec = |retention: Value| json!({ "name": "in", "verify": "none", "retention": retention });

    for (retention, named) in [
        (json!({ "bodies": "0s" }), "bodies"),
        (json!({ "events": "1d", "bodies": "2d" }), "bodies must not be longer than events"),
        (json!({ "events": "1d", "attempts": "2d" }), "attempts"),
        (json!({ "bodies": "2d", "dead_letters": "1d" }), "dead_letters"),
        (json!({ "body": "2d" }), "body"),
    ] {
        let refused = gateway.put("/sources/in", &spec(retention)).await.expect(422).json();
        assert!(refused["detail"].as_str().unwrap().contains(named), "case: {refused}");
    }
    let short = spec(json!({ "bodies": "1s" }));
    gateway.put("/sources/in", &short).await.expect(200);

    wait_until_body_is_removed(&gateway, &event).await;
    let shown = gateway.get("/sources/in").await.expect(200).json();
    assert_eq!(shown["retention"], json!({ "bodies": "1s" }));
}

#[tokio::test]
async fn series_counts_outlive_removed_events() {
    let sink = Sink::with_replies([Reply::status(400), Reply::status(200)]).await;
    let settings = short_body_retention(&sink.url(), "").replace("bodies = ", "events = ");
    let gateway = Gateway::start_with(&settings).await;
    let events = [
        gateway.post_accepted("in", "no key").await,
        gateway.post_accepted("in", r#"{"id":"b"}"#).await,
    ];
    gateway.send_webhook("in", &[], r#"{"id":"b"}"#).await.expect(200);

    for event in &events {
        eventually(WAIT_LIMIT, || async {
            (gateway.get(&format!("/events/{event}")).await.status == 404).then_some(())
        })
        .await;
    }

    for (metric, value) in [
        ("accepted", 2),
        ("no_key", 1),
        ("duplicates", 1),
        ("attempts", 2),
        ("failed", 1),
        ("dead", 1),
        ("latency", 1),
        ("attempt_time", 2),
    ] {
        // Duplicates found in memory are recorded a moment later.
        eventually(WAIT_LIMIT, || async {
            let total = &series(&gateway, &format!("metric={metric}")).await["total"]["value"];
            (*total == value).then_some(())
        })
        .await;
    }
    let attempts = series(&gateway, "metric=attempts&destination=out").await;
    assert_eq!(attempts["total"]["by"]["succeeded"], 1);
    assert_eq!(attempts["total"]["by"]["permanent"], 1);
    let dead = series(&gateway, "metric=dead").await;
    assert_eq!(dead["total"]["by"].as_object().unwrap().len(), 6);
    assert_eq!(gateway.stats().await["total"], 2);
}

#[tokio::test]
async fn series_points_are_aligned_and_empty_points_are_zero() {
    let gateway = Gateway::start().await;
    gateway.post_accepted("demo", "{}").await;

    let hour = series(&gateway, "metric=accepted&source=demo").await;

    assert_eq!(hour["width"], "10s");
    let points = hour["points"].as_array().unwrap();
    assert!((360..=361).contains(&points.len()), "{}", points.len());
    assert_eq!(points.iter().filter(|point| point["value"] == 1).count(), 1);
    assert_eq!(points.iter().filter(|point| point["value"] == 0).count(), points.len() - 1);
    assert_eq!(points[0]["at"], hour["since"]);
    assert!(points[0]["at"].as_str().unwrap().ends_with("0.000Z"), "{}", points[0]);
    let days = series(&gateway, "metric=latency&width=1d").await;
    let points = days["points"].as_array().unwrap();
    // The last hour lies within one day, or two around midnight.
    assert!((1..=2).contains(&points.len()), "{days}");
    for point in points {
        assert!(point["at"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{point}");
        assert_eq!(point["p95_ms"].is_null(), point["value"] == 0, "{point}");
    }
}

#[tokio::test]
async fn invalid_series_query_is_rejected_by_name() {
    let gateway = Gateway::start().await;
    for (query, named) in [
        ("", "metric"),
        ("metric=events", "must be one of: accepted"),
        ("metric=accepted&source=absent", "absent"),
        ("metric=dead&destination=absent", "absent"),
        ("metric=accepted&destination=inbox", "destination"),
        ("metric=dead&source=demo", "source"),
        ("metric=accepted&width=15s", "width"),
        ("metric=accepted&width=0s", "width"),
        ("metric=accepted&width=week", "width"),
        ("metric=accepted&since=yesterday", "since"),
        ("metric=accepted&since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z", "since"),
        ("metric=accepted&since=2001-01-01T00:00:00Z", "larger width"),
        ("metric=accepted&since=2001-01-01T00:00:00Z&width=10s", "points"),
        ("metric=accepted&since=-000100-01-01T00:00:00Z&width=400d", "kept"),
        ("metric=accepted&metrics=dead", "metrics"),
    ] {
        let refused = gateway.get(&format!("/stats/series?{query}")).await.expect(422);
        assert_eq!(refused.code(), "invalid", "case: {query}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(named), "case: {query}: {detail}");
    }
}

#[tokio::test]
async fn series_counts_survive_kill() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    for round in 1..=3 {
        for _ in 0..7 {
            gateway.post_accepted("in", "{}").await;
        }
        gateway.kill9();
        gateway.restart().await;
        let accepted = series(&gateway, "metric=accepted&source=in").await;
        assert_eq!(accepted["total"]["value"], round * 7, "round {round}");
    }
}
