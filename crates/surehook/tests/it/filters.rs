//! Events are found by what they owe and by what is in them; all requests are in one list; filters and
//! transforms can be tried.

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

/// A source with two destinations: one that refuses what comes first, and the inbox.
async fn two_ways(sink: &Sink) -> Gateway {
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

/// Waits until the list says that all was tried.
async fn both_ended(gateway: &Gateway) {
    eventually(WAIT_LIMIT, || async {
        let listed = rows(&gateway.get("/events").await.expect(200).json());
        let counts: Vec<_> = listed.iter().map(|row| row["deliveries"].clone()).collect();
        let expected = [json!({ "succeeded": 2 }), json!({ "dead": 1, "succeeded": 1 })];
        (counts == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn events_are_found_by_one_delivery_and_by_values() {
    let sink = Sink::with_replies([Reply::status(400), Reply::status(200)]).await;
    let gateway = two_ways(&sink).await;
    let big = "12345678901234567890";
    let bad = gateway.post_accepted("in", format!(r#"{{"id":"a","data":{{"n":{big}}}}}"#)).await;
    // The sink refuses what comes first, so that must be this one.
    let refused = gateway.find_delivery_to(&bad, "out").await.unwrap();
    gateway.wait_for_delivery_status(&refused, "dead").await;
    let good =
        gateway.post_accepted("in", r#"{"id":"b","data":{"n":7,"list":[{"ok":true}]}}"#).await;
    both_ended(&gateway).await;
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
        ("key=nobody", &vec![]),
        ("key=a&source=second", &vec![]),
    ] {
        let answer = gateway.get(&format!("/events?{query}")).await.expect(200).json();
        assert_eq!(&ids(&answer), expected, "case: {query}: {answer}");
        assert_eq!(answer["next_cursor"], Value::Null, "case: {query}");
        assert!(answer["searched"]["events"].is_u64(), "case: {query}");
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
        ("destination=nobody", "destination"),
        ("key=", "key"),
        ("body.=1", "body"),
        ("body.a..b=1", "body"),
        ("bodyx=1", "bodyx"),
        (&"body.a=1&".repeat(11), "at most 10"),
    ] {
        let answer = gateway.get(&format!("/events?{query}")).await.expect(422);
        assert!(answer.detail().contains(named), "case: {query}: {}", answer.detail());
    }
    let args = ["events", "list", "--destination", "out", "--code", "4xx", "--body", "id=a"];
    let told = gateway.cli(&args).await;
    assert!(told.stdout.contains(&bad) && !told.stdout.contains(&good), "{told:?}");
    let told = gateway.cli(&["events", "list", "--key", "b", "--json"]).await;
    assert!(told.stdout.contains(&good) && !told.stdout.contains(&bad), "{told:?}");
    let csv = gateway.get("/events?format=csv&body.id=a").await.expect(200).text();
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

#[tokio::test]
async fn a_key_is_found_in_all_sources_with_its_copies_counted() {
    let sink = Sink::ok().await;
    let gateway = two_ways(&sink).await;
    let first = gateway.post_accepted("in", r#"{"id":"same"}"#).await;
    let second = gateway.post_accepted("second", r#"{"id":"same"}"#).await;
    gateway.send_webhook("second", &[], r#"{"id":"same"}"#).await.expect(200);

    let found = eventually(WAIT_LIMIT, || async {
        let found = gateway.get("/events?key=same").await.expect(200).json();
        (found["data"][0]["duplicate_count"] == 1).then_some(found)
    })
    .await;

    assert_eq!(ids(&found), [second, first.clone()]);
    let one = gateway.get("/events?key=same&source=in").await.expect(200).json();
    assert_eq!(ids(&one), [first]);
}

#[tokio::test]
async fn all_that_came_to_the_door_is_in_one_list() {
    let sink = Sink::ok().await;
    let gateway = two_ways(&sink).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    gateway.send_webhook("in", &[], r#"{"id":"a"}"#).await.expect(200);
    gateway.send_webhook("in", &[], r#"{"id":"a","more":1}"#).await.expect(200);
    gateway.send_webhook("nobody", &[], "{}").await.expect(404);
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
    // Page by page it is the same list.
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
        let found = gateway.get(&format!("/requests?{query}")).await.expect(200).json();
        assert_eq!(rows(&found).len(), count, "case: {query}");
    }
    for (query, named) in [
        ("outcome=lost", "outcome"),
        ("outcome=accepted&reason=stale", "reason"),
        ("cursor=req_01h455vb4pex5vsknk084sn02q", "cursor"),
        ("since=now", "since"),
    ] {
        let answer = gateway.get(&format!("/requests?{query}")).await.expect(422);
        assert!(answer.detail().contains(named), "case: {query}: {}", answer.detail());
    }
    let told = gateway.cli(&["requests", "list", "--outcome", "duplicate"]).await;
    assert!(told.stdout.contains(&event) && !told.stdout.contains(&other), "{told:?}");
}

/// A trial with a token of its own.
async fn try_as(gateway: &Gateway, token: &str, wish: &Value) -> HttpResponse {
    gateway.api_as(token, Method::POST, "/routes/try", Some(wish)).await
}

#[tokio::test]
async fn a_filter_and_a_transform_are_tried_without_doing_anything() {
    let gateway = Gateway::start_with(&route_settings("https://example.com", "")).await;
    let body = r#"{"id":"a","n":9007199254740993,"password":"CANARY-secret"}"#;
    let event = gateway.post_accepted("in", body).await;
    let viewer = &gateway.create_token("viewer").await;

    let wish = json!({ "filter": ".n > 1", "transform": "{x: .password, n}", "event": event });
    let tried = try_as(&gateway, viewer, &wish).await.expect(200).json();
    assert_eq!((&tried["matches"], &tried["filter_error"]), (&json!(true), &Value::Null));
    assert_eq!(tried["output"], r#"{"x":"•••","n":9007199254740993}"#);
    assert_eq!((&tried["masked"], &tried["dropped"]), (&json!(1), &json!(false)));
    // An error quotes what it failed on.
    let wish =
        json!({ "filter": ".password | .a", "transform": "error(.password)", "event": event });
    let tried = try_as(&gateway, viewer, &wish).await.expect(200);
    assert!(!tried.text().contains("CANARY"), "{}", tried.text());
    assert!(tried.json()["filter_error"].is_string() && tried.json()["matches"].is_null());
    let wish = json!({ "transform": ".password", "event": event, "exact": true });
    let refused = try_as(&gateway, viewer, &wish).await.expect(403);
    assert_eq!(refused.code(), "forbidden");
    let exact = gateway.post("/routes/try", &wish).await.expect(200).json();
    assert_eq!((&exact["output"], &exact["input"]), (&json!("\"CANARY-secret\""), &json!(body)));

    for (wish, name, expected) in [
        (json!({ "filter": ".a", "body": { "a": null } }), "matches", json!(false)),
        (json!({ "filter": ".a", "body": "{\"a\":1}" }), "matches", json!(true)),
        (json!({ "transform": "empty", "body": {} }), "dropped", json!(true)),
        (json!({ "transform": ".", "body": [1, 2] }), "output", json!("[1,2]")),
        (json!({ "body": 1.50 }), "input", json!("1.5")),
    ] {
        let tried = gateway.post("/routes/try", &wish).await.expect(200).json();
        assert_eq!(tried[name], expected, "case: {wish}: {tried}");
    }
    let tried = gateway.post("/routes/try", &json!({ "filter": ".a ==", "body": {} })).await;
    let said = tried.expect(200).json()["filter_error"].as_str().unwrap().to_owned();
    assert!(said.contains("line 1, column"), "{said}");
    let nobody = json!({ "event": "evt_01h455vb4pex5vsknk084sn02q" });
    gateway.post("/routes/try", &nobody).await.expect(404);
    for wish in [json!({}), json!({ "event": event, "body": 1 }), json!({ "x": 1 })] {
        gateway.post("/routes/try", &wish).await.expect(422);
    }

    let told = gateway.cli(&["routes", "try", "--transform", ".n", "--event", &event]).await;
    assert_eq!((told.code, told.stdout.trim()), (Some(0), "9007199254740993"), "{told:?}");
    let told = gateway.cli(&["routes", "try", "--filter", ".n |", "--event", &event]).await;
    assert!(told.code != Some(0) && told.stderr.contains("column"), "{told:?}");
}
