//! One-shot webhooks to URLs without a configured destination, and callbacks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT,
    client::HttpResponse,
    eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

/// A token that may deliver to the paths below `/hooks/` and `/done` of a sink.
async fn create_url_token(gateway: &Gateway, sink: &Sink) -> String {
    let urls = [format!("{}/hooks/*", sink.origin()), format!("{}/done", sink.origin())];
    let token = json!({ "role": "operator", "urls": urls });
    let created = gateway.post("/tokens", &token).await.expect(201).json();
    assert_eq!(created["urls"], json!(urls));
    created["token"].as_str().unwrap().to_owned()
}

async fn send(gateway: &Gateway, token: &str, message: &Value) -> HttpResponse {
    gateway.api_as(token, Method::POST, "/messages", Some(message)).await
}

fn text(response: &Value, name: &str) -> String {
    response[name].as_str().unwrap().to_owned()
}

/// The callbacks that arrived, by the end that they report.
fn callbacks(sink: &Sink) -> Vec<Value> {
    let requests = sink.requests();
    let at_done = requests.iter().filter(|request| request.path == "/done");
    at_done.map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

#[tokio::test]
async fn url_is_delivered_to_without_a_configured_destination() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start().await;
    let token = create_url_token(&gateway, &sink).await;
    let url = format!("{}/hooks/7?shop=a%20b", sink.origin());
    let message = json!({ "url": url, "type": "order.paid", "headers": { "x-shop": "7" }, "body": { "n": 1 } });

    let first = send(&gateway, &token, &message).await.expect(202).json();
    gateway.wait_for_delivery(&text(&first, "id"), "succeeded").await;
    // A list of a token survives a restart, and the second request uses the same destination.
    gateway.restart().await;
    let second = send(&gateway, &token, &message).await.expect(202).json();
    gateway.wait_for_delivery(&text(&second, "id"), "succeeded").await;

    let requests = sink.wait_for_requests(2).await;
    assert_eq!((&*requests[0].path, &*requests[0].query), ("/hooks/7", "shop=a%20b"));
    assert_eq!((requests[0].header("x-shop"), requests[0].id()), ("7", &*text(&first, "id")));
    let mut origins = gateway.list("/destinations").await;
    origins.retain(|destination| destination["kind"] == "origin");
    assert_eq!(origins.len(), 1, "{origins:?}");
    assert_eq!(first["destination"], origins[0]["name"]);
}

#[tokio::test]
async fn url_outside_the_list_of_the_token_is_refused_and_nothing_is_stored() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start().await;
    let token = create_url_token(&gateway, &sink).await;
    let allowed = format!("{}/hooks/1", sink.origin());
    let other = format!("{}/admin", sink.origin());
    let traversal = format!("{}/hooks/../admin", sink.origin());
    let cases = [
        (json!({ "url": other, "body": 1 }), 403, "url_not_allowed"),
        (json!({ "url": traversal, "body": 1 }), 403, "url_not_allowed"),
        (json!({ "url": "http://127.0.0.2:8080/hooks/1", "body": 1 }), 403, "url_not_allowed"),
        (
            json!({ "url": allowed, "body": 1, "callback": { "url": other } }),
            403,
            "url_not_allowed",
        ),
        (json!({ "url": "ftp://a.example/", "body": 1 }), 422, "invalid"),
        (json!({ "url": format!("{allowed}?token=x"), "body": 1 }), 422, "invalid"),
        (json!({ "url": allowed, "destination": "out", "body": 1 }), 422, "invalid"),
        (json!({ "url": allowed, "body": 1, "retry": "never-heard-of" }), 422, "invalid"),
        (json!({ "url": allowed, "body": 1, "callback": {} }), 422, "invalid"),
        (json!({ "body": 1 }), 422, "invalid"),
    ];
    for (message, status, code) in cases {
        let refused = send(&gateway, &token, &message).await.expect(status);
        assert_eq!(refused.code(), code, "case: {message}");
    }
    // Not even an admin may, without a list.
    let refused =
        gateway.post("/messages", &json!({ "url": allowed, "body": 1 })).await.expect(403);
    assert!(refused.detail().contains("This token may not deliver to URLs"), "{}", refused.text());
    for urls in [json!([]), json!(["*"]), json!(["https://*/"])] {
        gateway.post("/tokens", &json!({ "role": "operator", "urls": urls })).await.expect(422);
    }
    assert_eq!(gateway.list("/messages").await.len(), 0);
    assert_eq!(sink.count(), 0);
}

#[tokio::test]
async fn callback_reports_success_with_the_last_response() {
    let sink = Sink::with_script(|_, _| Reply::status(200).body("thanks")).await;
    let gateway = Gateway::start().await;
    let token = create_url_token(&gateway, &sink).await;
    let done = format!("{}/done", sink.origin());
    let message = json!({ "url": format!("{}/hooks/1", sink.origin()), "body": 1, "callback": { "url": done } });

    let sent = send(&gateway, &token, &message).await.expect(202).json();
    sink.wait_for_requests(2).await;

    let [callback] = &callbacks(&sink)[..] else { panic!("{:?}", callbacks(&sink)) };
    assert_eq!(callback["type"], "delivery.succeeded");
    assert_eq!(callback["message_id"], sent["id"]);
    assert_eq!(callback["delivery_id"], sent["delivery_id"]);
    assert_eq!((&callback["attempts"], &callback["reason"]), (&json!(1), &Value::Null));
    assert_eq!(callback["last_attempt"]["response"], "thanks");
    let id = text(&sent, "id");
    let posted = eventually(WAIT_LIMIT, || async {
        let timeline = gateway.event(&id).await["decisions"].clone();
        let posted =
            timeline.as_array().unwrap().iter().find(|row| row["kind"] == "callback_posted");
        posted.map(|row| row["detail"]["event"].clone())
    })
    .await;
    let callback_event = gateway.event(posted.as_str().unwrap()).await;
    assert_eq!(callback_event["kind"], "delivery.succeeded");
}

#[tokio::test]
async fn callback_reports_death_and_the_success_of_a_replay() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let sink = Sink::with_script(move |_, request| {
        let fails = request.path != "/done" && broken.load(Ordering::SeqCst);
        Reply::status(if fails { 500 } else { 200 })
    })
    .await;
    let gateway = Gateway::start().await;
    let token = create_url_token(&gateway, &sink).await;
    let message = json!({
        "url": format!("{}/hooks/1", sink.origin()),
        "body": 1,
        "retry": { "max_attempts": 2, "initial_delay": "1ms", "max_delay": "1ms" },
        "callback": { "url": format!("{}/done", sink.origin()), "on": ["dead", "succeeded"] },
    });

    let sent = send(&gateway, &token, &message).await.expect(202).json();
    let dead = eventually(WAIT_LIMIT, || async { callbacks(&sink).pop() }).await;
    is_broken.store(false, Ordering::SeqCst);
    let replay = format!("/deliveries/{}/replay", text(&sent, "delivery_id"));
    gateway.post(&replay, &json!({})).await.expect(202);
    let all = eventually(WAIT_LIMIT, || async {
        Some(callbacks(&sink)).filter(|callbacks| callbacks.len() == 2)
    })
    .await;

    assert_eq!((&dead["type"], &dead["reason"]), (&json!("delivery.dead"), &json!("max_retries")));
    assert_eq!((&dead["attempts"], &dead["last_attempt"]["status"]), (&json!(2), &json!(500)));
    assert_eq!(all[1]["type"], "delivery.succeeded");
    assert_eq!(all[1]["message_id"], sent["id"]);
}

#[tokio::test]
async fn callback_to_a_destination_reports_only_the_requested_ends() {
    let (sink, notified) = (Sink::ok().await, Sink::ok().await);
    let gateway = Gateway::start_with(&route_settings(&notified.url(), "")).await;
    let token = create_url_token(&gateway, &sink).await;
    let url = format!("{}/hooks/1", sink.origin());
    let send_with = async |on: Value| {
        let callback = json!({ "destination": "out", "on": on });
        let message = json!({ "url": url, "body": 1, "callback": callback, "delay": "1h" });
        send(&gateway, &token, &message).await.expect(202).json()
    };
    for on in [json!(["dead"]), json!(["cancelled"])] {
        let sent = send_with(on).await;
        let cancel = format!("/deliveries/{}/cancel", text(&sent, "delivery_id"));
        gateway.post(&cancel, &json!({})).await.expect(200);
    }

    let requests = notified.wait_for_requests(1).await;

    let callback: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!(callback["type"], "delivery.cancelled");
    gateway.wait_until_idle().await;
    assert_eq!((notified.count(), sink.count()), (1, 0));
}

#[tokio::test]
async fn heavy_kills_lose_no_callback_and_repeat_none_under_another_id() {
    const MESSAGES: usize = 60;
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start().await;
    let token = create_url_token(&gateway, &sink).await;
    let (url, done) = (format!("{}/hooks/1", sink.origin()), format!("{}/done", sink.origin()));
    let mut sent = Vec::new();
    for number in 0..MESSAGES {
        let message = json!({ "url": url, "body": number, "callback": { "url": done } });
        let accepted = send(&gateway, &token, &message).await.expect(202).json();
        sent.push(text(&accepted, "id"));
        if number % 10 == 9 {
            gateway.kill9();
            gateway.restart().await;
        }
    }

    eventually(WAIT_LIMIT * 4, || async {
        let reported: Vec<_> =
            callbacks(&sink).iter().map(|callback| text(callback, "message_id")).collect();
        sent.iter().all(|id| reported.contains(id)).then_some(())
    })
    .await;

    gateway.wait_until_idle().await;
    let kinds = gateway.list("/events?kind=delivery.succeeded&limit=1000").await;
    assert_eq!(kinds.len(), MESSAGES, "one callback event per message");
}

#[tokio::test]
async fn destination_of_kind_origin_takes_no_routes_and_no_message_without_url() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with("[[sources]]\nname = \"in\"\nverify = \"none\"\n").await;
    let origin = json!({ "name": "host", "kind": "origin", "url": sink.origin() });
    gateway.post("/destinations", &origin).await.expect(201);

    let with_path = json!({ "name": "other", "kind": "origin", "url": sink.url() });
    let refused = gateway.post("/destinations", &with_path).await.expect(422);
    assert!(refused.detail().contains("remove the path"), "{}", refused.text());
    let route = gateway.post("/routes", &json!({ "from": "in", "to": "host" })).await.expect(422);
    assert!(route.detail().contains("no route may lead to it"), "{}", route.text());
    let message = json!({ "destination": "host", "body": 1 });
    let refused = gateway.post("/messages", &message).await.expect(422);
    assert!(refused.detail().contains("Set `url`"), "{}", refused.text());
}

#[tokio::test]
async fn send_command_delivers_to_a_url_with_a_callback() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start().await;
    let pattern = format!("{}/*", sink.origin());
    let create = ["token", "create", "--role", "operator", "--url-pattern", &pattern];
    let created = gateway.cli(&create).await;
    let (url, done) = (format!("{}/hooks/9", sink.origin()), format!("{}/done", sink.origin()));
    let token = created.stdout.trim().to_owned();

    let args = ["send", &url, "--body", "{\"n\":1}", "--callback", &done, "--wait"];
    let sent = gateway.cli_as(&token, &args).await;
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);

    sink.wait_for_requests(2).await;
    assert_eq!(callbacks(&sink).len(), 1);
}
