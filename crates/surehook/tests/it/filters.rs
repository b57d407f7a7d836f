//! Filters of the event and request lists, and trials of a route's filter and transform.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT,
    client::HttpResponse,
    eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

fn rows(list: &Value) -> Vec<Value> {
    list["data"].as_array().unwrap().clone()
}

fn ids(list: &Value) -> Vec<String> {
    rows(list).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// Two sources; `in` is routed to the sink as `out` and to the inbox as `other`.
async fn gateway_with_two_destinations(sink: &Sink) -> Gateway {
    let more = r#"
        [[destinations]]
        name = "other"
        url = "builtin:inbox"

        [[routes]]
        from = "in"
        to = "other"

        [[sources]]
        name = "second"
        verify = "none"
        "#;
    Gateway::start_with(&format!("{}{more}", route_settings(&sink.url(), ""))).await
}

/// Waits until the list shows the final result of all four deliveries.
async fn deliveries_end(gateway: &Gateway) {
    eventually(WAIT_LIMIT, || async {
        let listed = rows(&gateway.get("/events").await.expect(200).json());
        let counts: Vec<_> = listed.iter().map(|row| row["deliveries"].clone()).collect();
        let expected = [json!({ "succeeded": 2 }), json!({ "dead": 1, "succeeded": 1 })];
        (counts == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn events_are_filtered_by_delivery_and_body_values() {
    let sink = Sink::with_replies([Reply::status(400), Reply::status(200)]).await;
    let gateway = gateway_with_two_destinations(&sink).await;
    let big = "12345678901234567890";
    let bad = gateway.post_accepted("in", format!(r#"{{"id":"a","data":{{"n":{big}}}}}"#)).await;
    // The sink rejects its first request, so this event must be delivered first.
    let refused = gateway.find_delivery_to(&bad, "out").await.unwrap();
    gateway.wait_for_delivery_status(&refused, "dead").await;
    let good =
        gateway.post_accepted("in", r#"{"id":"b","data":{"n":7,"list":[{"ok":true}]}}"#).await;
    deliveries_end(&gateway).await;
    let (a, b) = (vec![bad.clone()], vec![good.clone()]);
    let both = vec![good.clone(), bad.clone()];
    for (query, expected) in [
        ("destination=out", &both),
        ("destination=out&status=dead", &a),
        ("destination=out&status=succeeded", &b),
        ("destination=other&status=dead", &vec![]),
        ("destination=other&status=succeeded", &both),
        ("code=400", &a),
        ("code=4xx", &a),
        ("code=5xx", &vec![]),
        ("code=200&destination=out", &b),
        ("class=permanent", &a),
        ("class=permanent&destination=other", &vec![]),
        ("reason=payload_error", &a),
        ("reason=expired", &vec![]),
        (&format!("body.data.n={big}"), &a),
        ("body.data.n=7", &b),
        ("body.data.n=7.0", &vec![]),
        ("body.data.list.0.ok=true", &b),
        ("body%2Edata.n=7&body.id=b", &b),
        ("body.data.n=7&body.id=a", &vec![]),
        ("body./data/n=7", &b),
        ("body.id=a&status=dead&code=4xx&source=in", &a),
        ("key=a", &a),
        ("key=absent", &vec![]),
        ("key=a&source=second", &vec![]),
    ] {
        let response = gateway.get(&format!("/events?{query}")).await.expect(200).json();
        assert_eq!(&ids(&response), expected, "case: {query}: {response}");
        assert_eq!(response["next_cursor"], Value::Null, "case: {query}");
        assert!(response["searched"]["events"].is_u64(), "case: {query}");
    }
    let listed = gateway.get("/events?limit=1").await.expect(200).json();
    assert_eq!(listed["searched"]["events"], 1);
    assert_eq!(listed["searched"]["until"], listed["data"][0]["received_at"]);
    for (query, named) in [
        ("code=6", "code"),
        ("code=abc", "code"),
        ("class=x", "class"),
        ("reason=x", "reason"),
        ("reason=payload_error&status=succeeded", "reason"),
        ("destination=absent", "destination"),
        ("key=", "key"),
        ("body.=1", "body"),
        ("body.a..b=1", "body"),
        ("bodyx=1", "bodyx"),
        (&"body.a=1&".repeat(11), "at most 10"),
    ] {
        let response = gateway.get(&format!("/events?{query}")).await.expect(422);
        assert!(response.detail().contains(named), "case: {query}: {}", response.detail());
    }
    let args = ["events", "list", "--destination", "out", "--code", "4xx", "--body", "id=a"];
    let output = gateway.cli(&args).await;
    assert!(output.stdout.contains(&bad) && !output.stdout.contains(&good), "{output:?}");
    let output = gateway.cli(&["events", "list", "--key", "b", "--json"]).await;
    assert!(output.stdout.contains(&good) && !output.stdout.contains(&bad), "{output:?}");
    let csv = gateway.get("/events?format=csv&body.id=a").await.expect(200).text();
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

#[tokio::test]
async fn key_filter_finds_events_of_all_sources_with_duplicate_count() {
    let sink = Sink::ok().await;
    let gateway = gateway_with_two_destinations(&sink).await;
    let first = gateway.post_accepted("in", r#"{"id":"same"}"#).await;
    let second = gateway.post_accepted("second", r#"{"id":"same"}"#).await;
    gateway.send_webhook("second", &[], r#"{"id":"same"}"#).await.expect(200);

    let events = eventually(WAIT_LIMIT, || async {
        let events = gateway.get("/events?key=same").await.expect(200).json();
        (events["data"][0]["duplicate_count"] == 1).then_some(events)
    })
    .await;

    assert_eq!(ids(&events), [second, first.clone()]);
    let one = gateway.get("/events?key=same&source=in").await.expect(200).json();
    assert_eq!(ids(&one), [first]);
}

#[tokio::test]
async fn request_list_contains_accepted_duplicate_and_refused_requests() {
    let sink = Sink::ok().await;
    let gateway = gateway_with_two_destinations(&sink).await;
    let key = [("idempotency-key", "a")];
    let event = gateway.send_webhook("in", &key, r#"{"id":"a"}"#).await.expect(200).event_id();
    gateway.send_webhook("in", &key, r#"{"id":"a"}"#).await.expect(200);
    gateway.send_webhook("in", &key, r#"{"id":"a","more":1}"#).await.expect(200);
    gateway.send_webhook("absent", &[], "{}").await.expect(404);
    let other = gateway.post_accepted("second?token=hush&b=1", r#"{"id":"a"}"#).await;

    let all = eventually(WAIT_LIMIT, || async {
        let all = gateway.get("/requests").await.expect(200).json();
        Some(all).filter(|all| rows(all).len() == 5)
    })
    .await;

    let all = rows(&all);
    let of = |outcome: &str| -> Vec<&Value> {
        all.iter().filter(|row| row["outcome"] == outcome).collect()
    };
    let (accepted, duplicate, refused) = (of("accepted"), of("duplicate"), of("refused"));
    assert_eq!([accepted.len(), duplicate.len(), refused.len()], [2, 2, 1]);
    assert_eq!((&accepted[0]["event"], &accepted[1]["event"]), (&json!(other), &json!(event)));
    assert_eq!((&accepted[0]["source"], &accepted[0]["events"]), (&json!("second"), &json!(1)));
    assert_eq!(
        (&accepted[0]["query"], &accepted[0]["path"]),
        (&json!("token=•••&b=1"), &json!(""))
    );
    assert!(duplicate.iter().all(|row| row["event"] == event && row["id"] == Value::Null));
    let differing = duplicate.iter().filter(|row| row["bytes_differ"] == true).count();
    assert_eq!(differing, 1);
    assert_eq!(refused[0]["reason"], "unknown_source");
    // Paging returns the same list.
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(&format!("/requests?limit=2{cursor}")).await.expect(200).json();
        paged.extend(rows(&page));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, all);
    let export = gateway.get("/requests?format=ndjson").await.expect(200).text();
    let exported: Vec<Value> =
        export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exported, all);
    for (query, count) in [
        ("outcome=accepted", 2),
        ("outcome=duplicate", 2),
        ("outcome=refused", 1),
        ("source=in", 3),
        ("source=second&outcome=duplicate", 0),
        ("reason=unknown_source", 1),
        ("reason=stale", 0),
        ("since=2001-01-01T00:00:00Z", 5),
        ("until=2001-01-01T00:00:00Z", 0),
    ] {
        let requests = gateway.get(&format!("/requests?{query}")).await.expect(200).json();
        assert_eq!(rows(&requests).len(), count, "case: {query}");
    }
    for (query, named) in [
        ("outcome=lost", "outcome"),
        ("outcome=accepted&reason=stale", "reason"),
        ("cursor=req_01h455vb4pex5vsknk084sn02q", "cursor"),
        ("since=now", "since"),
    ] {
        let response = gateway.get(&format!("/requests?{query}")).await.expect(422);
        assert!(response.detail().contains(named), "case: {query}: {}", response.detail());
    }
    let output = gateway.cli(&["requests", "list", "--outcome", "duplicate"]).await;
    assert!(output.stdout.contains(&event) && !output.stdout.contains(&other), "{output:?}");
}

/// Tries a route with the given token.
async fn try_route_as(gateway: &Gateway, token: &str, request: &Value) -> HttpResponse {
    gateway.api_as(token, Method::POST, "/routes/try", Some(request)).await
}

#[tokio::test]
async fn route_trial_runs_filter_and_transform_without_delivering() {
    let gateway = Gateway::start_with(&route_settings("https://example.com", "")).await;
    let body = r#"{"id":"a","n":9007199254740993,"password":"CANARY-secret"}"#;
    let event = gateway.post_accepted("in", body).await;
    let viewer = &gateway.create_token("viewer").await;

    let request = json!({ "filter": ".n > 1", "transform": "{x: .password, n}", "event": event });
    let trial = try_route_as(&gateway, viewer, &request).await.expect(200).json();
    assert_eq!((&trial["matches"], &trial["filter_error"]), (&json!(true), &Value::Null));
    assert_eq!(trial["output"], r#"{"x":"•••","n":9007199254740993}"#);
    assert_eq!((&trial["masked"], &trial["dropped"]), (&json!(1), &json!(false)));
    // A jq error quotes the value, which must be masked.
    let request =
        json!({ "filter": ".password | .a", "transform": "error(.password)", "event": event });
    let trial = try_route_as(&gateway, viewer, &request).await.expect(200);
    assert!(!trial.text().contains("CANARY"), "{}", trial.text());
    assert!(trial.json()["filter_error"].is_string() && trial.json()["matches"].is_null());
    let request = json!({ "transform": ".password", "event": event, "exact": true });
    let refused = try_route_as(&gateway, viewer, &request).await.expect(403);
    assert_eq!(refused.code(), "forbidden");
    let exact = gateway.post("/routes/try", &request).await.expect(200).json();
    assert_eq!((&exact["output"], &exact["input"]), (&json!("\"CANARY-secret\""), &json!(body)));

    for (request, name, expected) in [
        (json!({ "filter": ".a", "body": { "a": null } }), "matches", json!(false)),
        (json!({ "filter": ".a", "body": "{\"a\":1}" }), "matches", json!(true)),
        (json!({ "transform": "empty", "body": {} }), "dropped", json!(true)),
        (json!({ "transform": ".", "body": [1, 2] }), "output", json!("[1,2]")),
        (json!({ "body": 1.50 }), "input", json!("1.5")),
    ] {
        let trial = gateway.post("/routes/try", &request).await.expect(200).json();
        assert_eq!(trial[name], expected, "case: {request}: {trial}");
    }
    let trial = gateway.post("/routes/try", &json!({ "filter": ".a ==", "body": {} })).await;
    let error = trial.expect(200).json()["filter_error"].as_str().unwrap().to_owned();
    assert!(error.contains("line 1, column"), "{error}");
    let unknown = json!({ "event": "evt_01h455vb4pex5vsknk084sn02q" });
    gateway.post("/routes/try", &unknown).await.expect(404);
    for request in [json!({}), json!({ "event": event, "body": 1 }), json!({ "x": 1 })] {
        gateway.post("/routes/try", &request).await.expect(422);
    }

    let output = gateway.cli(&["routes", "try", "--transform", ".n", "--event", &event]).await;
    assert_eq!((output.code, output.stdout.trim()), (Some(0), "9007199254740993"), "{output:?}");
    let output = gateway.cli(&["routes", "try", "--filter", ".n |", "--event", &event]).await;
    assert!(output.code != Some(0) && output.stderr.contains("column"), "{output:?}");
}
