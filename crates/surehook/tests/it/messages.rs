//! `POST /messages`: what is accepted, what is rejected, and that each message is sent once.

use std::{collections::HashSet, sync::Arc};

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT,
    client::HttpResponse,
    dashboard::DashboardClient,
    eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
};

async fn send(gateway: &Gateway, key: &str, message: &Value) -> HttpResponse {
    let key = [("idempotency-key", key)];
    gateway.request_as_admin(Method::POST, "/messages", &key, &message.to_string()).await
}

/// Waits until a message has this status.
async fn wait_for_message(gateway: &Gateway, id: &str, status: &str) -> Value {
    eventually(WAIT_LIMIT, || async {
        let message = gateway.get(&format!("/messages/{id}")).await.expect(200).json();
        (message["status"] == status).then_some(message)
    })
    .await
}

fn text(response: &Value, name: &str) -> String {
    response[name].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn webhook_message_is_sent_byte_for_byte_and_tracked() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    // The body contains a number that no float can hold, and a space; both must be preserved.
    let body = r#"{"destination":"out","type":"order.paid","headers":{"x-shop":"7"},"body":{"total": 12345678901234567890123}}"#;

    let response =
        gateway.request_as_admin(Method::POST, "/messages", &[], body).await.expect(202).json();

    assert_eq!(response["status"], "accepted");
    assert_eq!(response["destination"], "out");
    let id = text(&response, "id");
    let message = wait_for_message(&gateway, &id, "sent").await;
    assert_eq!(message["delivery_id"], response["delivery_id"]);
    assert_eq!((&message["type"], &message["to"]), (&json!("order.paid"), &Value::Null));
    assert_eq!(message["delivery"]["status"], "succeeded");
    let arrivals = sink.wait_for_requests(1).await;
    assert_eq!(arrivals[0].body, r#"{"total": 12345678901234567890123}"#);
    assert_eq!(arrivals[0].id(), id);
    assert_eq!(arrivals[0].header("x-shop"), "7");
    assert_eq!(arrivals[0].header("content-type"), "application/json");
    // A message is an event of the source `outbox`.
    let event = gateway.event(&id).await;
    assert_eq!((&event["source"], &event["kind"]), (&json!("outbox"), &json!("order.paid")));
    let events = gateway.get("/events?kind=order.paid").await.expect(200).json();
    assert_eq!(events["data"][0]["id"], id.as_str());
}

#[tokio::test]
async fn accepted_message_survives_kill() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    let message = json!({ "destination": "out", "body": [1, 2] });
    let response = gateway.post("/messages", &message).await.expect(202).json();
    gateway.kill9();
    gateway.restart().await;
    let id = text(&response, "id");
    let held = wait_for_message(&gateway, &id, "accepted").await;
    assert_eq!(held["delivery"]["status"], "held");

    gateway.post("/destinations/out/resume", &json!({})).await.expect(200);

    wait_for_message(&gateway, &id, "sent").await;
    assert_eq!(sink.wait_for_requests(1).await[0].body, "[1,2]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_concurrent_requests_with_one_idempotency_key_send_one_message() {
    let sink = Sink::ok().await;
    let gateway = Arc::new(Gateway::start_with(&route_settings(&sink.url(), "")).await);
    let message = json!({ "destination": "out", "type": "order.paid", "body": { "n": 1 } });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (gateway, message) = (Arc::clone(&gateway), message.clone());
        tasks.spawn(async move { send(&gateway, "order-1", &message).await });
    }

    let answers = tasks.join_all().await;

    let bodies: HashSet<_> =
        answers.into_iter().map(|response| response.expect(202).body).collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let only: Value = serde_json::from_slice(bodies.iter().next().unwrap()).unwrap();
    wait_for_message(&gateway, &text(&only, "id"), "sent").await;
    assert_eq!(gateway.list("/messages").await.len(), 1);
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn repeated_idempotency_key_after_kill_sends_nothing_again() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let message = json!({ "destination": "out", "body": "hi" });
    let first = send(&gateway, "a", &message).await.expect(202);
    wait_for_message(&gateway, &text(&first.json(), "id"), "sent").await;
    gateway.kill9();
    gateway.restart().await;

    let again = send(&gateway, "a", &message).await.expect(202);

    assert_eq!(again.body, first.body);
    let other = send(&gateway, "b", &message).await.expect(202).json();
    wait_for_message(&gateway, &text(&other, "id"), "sent").await;
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn invalid_message_is_rejected_and_not_stored() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let cases = [
        (json!({ "body": {} }), "invalid", "`destination` is missing"),
        (json!({ "destination": "absent", "body": {} }), "unknown_destination", "`absent`"),
        (json!({ "destination": "out" }), "invalid", "body"),
        (json!({ "destination": "out", "body": {}, "text": "hi" }), "invalid", "text"),
        (
            json!({ "destination": "out", "to": "+551", "text": "hi" }),
            "invalid",
            "receives webhooks",
        ),
        (json!({ "destination": "out", "body": {}, "type": "" }), "invalid", "type"),
        (
            json!({ "destination": "out", "body": {}, "headers": { "authorization": "x" } }),
            "invalid",
            "authorization",
        ),
        (json!({ "destination": "out", "body": {}, "delay": "31d" }), "invalid", "30d"),
        (json!({ "destination": 7, "body": {} }), "invalid", "destination"),
    ];
    for (message, code, detail) in cases {
        let response = gateway.post("/messages", &message).await.expect(422);
        assert_eq!(response.code(), code, "case: {message}");
        assert!(response.detail().contains(detail), "case: {message}: {}", response.detail());
    }
    assert_eq!(gateway.list("/events").await.len(), 0);
    gateway.get("/messages/evt_01jz0000000000000000000000").await.expect(404);
}

#[tokio::test]
async fn outbox_source_is_built_in_and_cannot_be_removed() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let own = json!({ "name": "outbox", "verify": "none" });
    let refused = gateway.post("/sources", &own).await.expect(422);
    assert!(refused.detail().contains("this name is reserved"), "{}", refused.detail());
    gateway.get("/sources/outbox").await.expect(404);
    let message = json!({ "destination": "out", "body": {} });
    gateway.post("/messages", &message).await.expect(202);

    // It does not receive webhooks.
    let response = gateway.send_webhook("outbox", &[], "{}").await.expect(404);
    assert_eq!(response.code(), "unknown_source");
    // It is not exported, and applying a configuration does not change it.
    let exported = gateway.get("/configuration").await.expect(200).json();
    let names: Vec<_> =
        exported["sources"].as_array().unwrap().iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["in"]);
    let report = gateway.put("/configuration?prune=true", &exported).await.expect(200).json();
    assert_eq!(report["deleted"], json!([]));
    gateway.get("/sources/outbox").await.expect(200);
    gateway.delete("/sources/outbox").await.expect(422);
    gateway.put("/sources/outbox", &own).await.expect(422);
    // Its few settings can be changed, and then it is exported.
    let spec = json!({ "name": "outbox", "provider": "outbox", "retention": { "bodies": "1d" } });
    gateway.put("/sources/outbox", &spec).await.expect(200);
    let exported = gateway.get("/configuration").await.expect(200).json();
    assert_eq!(exported["sources"].as_array().unwrap().len(), 2);
    gateway.put("/configuration?prune=true", &exported).await.expect(200);
    gateway.post("/messages", &message).await.expect(202);
}

#[tokio::test]
async fn route_from_outbox_receives_every_message() {
    let (sink, log) = (Sink::ok().await, Sink::ok().await);
    let more = format!(
        "[[destinations]]\nname = \"log\"\nurl = \"{}\"\n[[routes]]\nfrom = \"outbox\"\nto = \"log\"\n[[routes]]\nfrom = \"outbox\"\nto = \"out\"\n",
        log.url()
    );
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &more)).await;

    let response = gateway.post("/messages", &json!({ "destination": "out", "body": {} })).await;

    let id = text(&response.expect(202).json(), "id");
    log.wait_for_requests(1).await;
    sink.wait_for_requests(1).await;
    let event = gateway.event(&id).await;
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 2, "{event}");
    wait_for_message(&gateway, &id, "sent").await;
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn delayed_message_can_be_cancelled() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let message = json!({ "destination": "out", "body": {}, "delay": "1h" });
    let response = gateway.post("/messages", &message).await.expect(202).json();
    let (id, delivery) = (text(&response, "id"), text(&response, "delivery_id"));
    wait_for_message(&gateway, &id, "accepted").await;

    gateway.post(&format!("/deliveries/{delivery}/cancel"), &json!({})).await.expect(200);

    wait_for_message(&gateway, &id, "cancelled").await;
    assert_eq!(sink.count(), 0);
}

#[tokio::test]
async fn messages_are_filtered_by_destination_and_status() {
    let sink = Sink::with_replies([Reply::status(200), Reply::status(400)]).await;
    let more = "[[destinations]]\nname = \"inbox\"\nurl = \"builtin:inbox\"\n";
    let gateway = Gateway::start_with(&route_settings(&sink.url(), more)).await;
    assert_eq!(gateway.get("/messages").await.expect(200).json()["data"], json!([]));
    let mut ids = Vec::new();
    for (destination, status) in [("out", "sent"), ("out", "failed"), ("inbox", "sent")] {
        let message = json!({ "destination": destination, "body": {} });
        let response = gateway.post("/messages", &message).await.expect(202).json();
        wait_for_message(&gateway, &text(&response, "id"), status).await;
        ids.push(text(&response, "id"));
    }
    let cases: [(&str, &[usize]); 6] = [
        ("", &[2, 1, 0]),
        ("?destination=out", &[1, 0]),
        ("?destination=inbox", &[2]),
        ("?status=sent", &[2, 0]),
        ("?destination=out&status=failed", &[1]),
        ("?status=read", &[]),
    ];
    for (query, expected) in cases {
        let list = gateway.get(&format!("/messages{query}")).await.expect(200).json();
        let listed_ids: Vec<_> =
            list["data"].as_array().unwrap().iter().map(|row| text(row, "id")).collect();
        let expected: Vec<_> = expected.iter().map(|index| ids[*index].clone()).collect();
        assert_eq!(listed_ids, expected, "case: {query}");
    }
    gateway.get("/messages?status=lost").await.expect(422);
    gateway.get("/messages?destination=absent").await.expect(422);
}

#[tokio::test]
async fn message_is_found_by_its_created_at_time() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    // The first message creates the outbox source, so accepting it takes some time.
    let message = json!({ "destination": "out", "body": {} });
    let id = text(&send(&gateway, "k", &message).await.expect(202).json(), "id");
    let shown =
        text(&gateway.get(&format!("/messages/{id}")).await.expect(200).json(), "created_at");

    for (filter, expected) in [("since", 1), ("until", 0)] {
        let path = format!("/messages?{filter}={shown}");
        let page = gateway.get(&path).await.expect(200).json();
        assert_eq!(page["data"].as_array().unwrap().len(), expected, "{path}: {page}");
    }
}

#[tokio::test]
async fn concurrent_request_with_same_key_is_answered_409_after_wait() {
    let sink = Sink::with_replies([Reply::Hang]).await;
    let limits = "[limits]\nidempotency_wait = \"1ms\"\n";
    let settings = format!("{limits}{}", route_settings(&sink.url(), "timeout = \"10m\""));
    let gateway = Arc::new(Gateway::start_with(&settings).await);
    gateway.post("/destinations/out/pause", &json!({})).await.expect(200);
    gateway.post_accepted("in", "{}").await;
    let probe = |gateway: Arc<Gateway>| async move {
        let key = [("idempotency-key", "probe")];
        gateway.request_as_admin(Method::POST, "/destinations/out/probe", &key, "").await
    };
    let first = tokio::spawn(probe(Arc::clone(&gateway)));
    sink.wait_for_requests(1).await;

    let second = probe(Arc::clone(&gateway)).await.expect(409);

    assert_eq!(second.code(), "idempotency_in_flight");
    assert_eq!(second.header("retry-after"), "1");
    first.abort();
}

/// Settings with a destination `wa` that sends through a fake Cloud API, and a source `meta` that receives
/// its status updates.
fn whatsapp_settings(sink: &Sink) -> String {
    let base = sink.url().replace("/hook", "/v23.0");
    format!(
        r#"
        [[sources]]
        name = "meta"
        provider = "whatsapp-cloud"
        verify = "none"

        [[destinations]]
        name = "wa"
        kind = "whatsapp-cloud"
        url = "{base}"
        account = {{ sender = "106540352242922", token = "t0ken" }}
        "#
    )
}

fn accepted_reply(wamid: &str) -> Reply {
    let body = json!({ "messaging_product": "whatsapp", "messages": [{ "id": wamid }] });
    Reply::status(200).header("content-type", "application/json").body(body.to_string())
}

/// A status update as Meta sends it.
fn status_update(wamid: &str, state: &str, errors: &Value) -> String {
    json!({
        "object": "whatsapp_business_account",
        "entry": [{ "id": "1", "changes": [{ "field": "messages", "value": {
            "messaging_product": "whatsapp",
            "metadata": { "phone_number_id": "106540352242922", "display_phone_number": "1" },
            "statuses": [{
                "id": wamid, "status": state, "timestamp": "1700000000",
                "recipient_id": "5511987654321", "errors": errors,
            }],
        } }] }],
    })
    .to_string()
}

#[tokio::test]
async fn message_is_sent_through_channel_and_tracked_by_status_updates() {
    let sink = Sink::with_replies([accepted_reply("wamid.A")]).await;
    let gateway = Gateway::start_with(&whatsapp_settings(&sink)).await;
    let message = json!({ "destination": "wa", "to": "+55 (11) 98765-4321", "text": "hi" });

    let id = text(&gateway.post("/messages", &message).await.expect(202).json(), "id");

    let sent = wait_for_message(&gateway, &id, "sent").await;
    assert_eq!((&sent["type"], &sent["to"]), (&json!("text"), &json!("5511987654321")));
    assert_eq!(sent["message_id"], "wamid.A");
    assert_eq!(sent["statuses"], json!([]));
    let arrived = &sink.wait_for_requests(1).await[0];
    assert_eq!(arrived.path, "/v23.0/106540352242922/messages");
    let body: Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!(body["text"]["body"], "hi");
    assert!(body["biz_opaque_callback_data"].as_str().unwrap().starts_with(&id));

    // Updates arrive out of order, and one of them twice.
    for state in ["read", "delivered", "delivered", "sent"] {
        gateway
            .send_webhook("meta", &[], status_update("wamid.A", state, &Value::Null))
            .await
            .expect(200);
    }

    let read = wait_for_message(&gateway, &id, "read").await;
    let states: Vec<_> = read["statuses"].as_array().unwrap().iter().map(|s| &s["state"]).collect();
    assert_eq!(states, ["read", "delivered", "sent"]);
    for query in ["?to=551187654321", "?destination=wa", "?status=read"] {
        let list = gateway.get(&format!("/messages{query}")).await.expect(200).json();
        assert_eq!(list["data"][0]["id"], id.as_str(), "case: {query}");
    }
    // A search by phone finds the message and its status updates.
    assert_eq!(gateway.list("/events?phone=5511987654321").await.len(), 4);
    // The conversation page shows the message with its state.
    let session = DashboardClient::new(&gateway).await;
    for query in ["phone=%2B55+11+98765-4321".to_owned(), format!("event={id}")] {
        let page = session.page(&format!("/conversations?{query}")).await.html;
        let (_, line) = page.split_once(r#"<li class="outgoing">"#).unwrap();
        let (line, _) = line.split_once("</li>").unwrap();
        assert!(line.contains("hi") && line.contains("#i-eye"), "case: {query}: {line}");
    }
}

#[tokio::test]
async fn failed_status_update_shows_error_of_message() {
    let sink = Sink::with_replies([accepted_reply("wamid.B")]).await;
    let gateway = Gateway::start_with(&whatsapp_settings(&sink)).await;
    let message = json!({ "destination": "wa", "to": "5511987654321", "text": "hi" });
    let id = text(&gateway.post("/messages", &message).await.expect(202).json(), "id");
    wait_for_message(&gateway, &id, "sent").await;
    let errors = json!([{ "code": 131_026, "title": "Message undeliverable" }]);

    gateway
        .send_webhook("meta", &[], status_update("wamid.B", "failed", &errors))
        .await
        .expect(200);

    let failed = wait_for_message(&gateway, &id, "failed").await;
    let update = &failed["statuses"][0];
    assert_eq!((&update["error_code"], &update["state"]), (&json!("131026"), &json!("failed")));
    assert_eq!(update["error_title"], "Message undeliverable");
}

#[tokio::test]
async fn message_unsupported_by_channel_is_rejected_and_not_stored() {
    let sink = Sink::with_replies([accepted_reply("wamid.A")]).await;
    let gateway = Gateway::start_with(&whatsapp_settings(&sink)).await;
    let cases = [
        (
            json!({ "to": "12345", "text": "hi" }),
            "invalid_message",
            "`to` is not a valid recipient",
        ),
        (json!({ "to": "5511987654321" }), "invalid_message", "has no content"),
        (json!({ "to": "5511987654321", "txt": "hi" }), "invalid_message", "txt"),
        (json!({ "to": "5511987654321", "body": {} }), "invalid_message", "body"),
        (json!({ "to": "120363@g.us", "text": "hi" }), "unsendable", "Groups API"),
    ];
    for (mut message, code, detail) in cases {
        message["destination"] = json!("wa");
        let response = gateway.post("/messages", &message).await.expect(422);
        assert_eq!(response.code(), code, "case: {message}");
        assert!(response.detail().contains(detail), "case: {message}: {}", response.detail());
    }
    assert_eq!(gateway.get("/events").await.expect(200).json()["data"], json!([]));
    assert_eq!(sink.count(), 0);
}

#[tokio::test]
async fn cli_sends_every_message_type() {
    let sink = Sink::with_replies([accepted_reply("wamid.A")]).await;
    let gateway = Gateway::start_with(&whatsapp_settings(&sink)).await;
    let to = ["send", "wa", "--to", "5511987654321", "--wait"];
    let cases: [(&[&str], Value); 7] = [
        (&["--text", "hi"], json!({ "text": { "body": "hi", "preview_url": false } })),
        (
            &["--image", "https://a.test/i.jpg", "--caption", "look"],
            json!({ "image": { "link": "https://a.test/i.jpg", "caption": "look" } }),
        ),
        (
            &["--audio", "https://a.test/a.ogg", "--voice"],
            json!({ "audio": { "link": "https://a.test/a.ogg", "voice": true } }),
        ),
        (
            &["--location", "-23.5,-46.6", "--name", "Office"],
            json!({ "location": { "latitude": -23.5, "longitude": -46.6, "name": "Office" } }),
        ),
        (
            &["--react", "👍", "--message-id", "wamid.X"],
            json!({ "reaction": { "message_id": "wamid.X", "emoji": "👍" } }),
        ),
        (
            &["--template", "order", "--language", "pt_BR", "--param", "Ana", "--param", "7"],
            json!({ "template": { "name": "order", "language": { "code": "pt_BR" }, "components": [
                { "type": "body", "parameters": [
                    { "type": "text", "text": "Ana" }, { "type": "text", "text": "7" },
                ] },
            ] } }),
        ),
        (
            &["--text", "yes", "--reply-to", "wamid.X"],
            json!({ "context": { "message_id": "wamid.X" } }),
        ),
    ];
    for (number, (args, expected)) in cases.into_iter().enumerate() {
        let output = gateway.cli(&[&to[..], args].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains("wamid.A"), "{output:?}");
        let arrived = sink.wait_for_requests(number + 1).await;
        let body: Value = serde_json::from_slice(&arrived[number].body).unwrap();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(body[name], *value, "case: {args:?}");
        }
    }
    let contacts = [&to[..], &["--contact", "Ana Lima:+55 11 98765-4321"]].concat();
    assert_eq!(gateway.cli(&contacts).await.code, Some(0));
    // Invalid arguments are rejected before anything is sent.
    for args in [
        &["--text", "hi", "--image", "https://a.test/i.jpg"][..],
        &["--react", "x"],
        &["--text", "hi", "--caption", "x"],
        &[],
    ] {
        let output = gateway.cli(&[&to[..], args].concat()).await;
        assert_eq!(output.code, Some(2), "case: {args:?} {output:?}");
    }
    assert_eq!(sink.count(), 8);
}

#[tokio::test]
async fn cli_send_with_idempotency_key_sends_webhook_once() {
    let sink = Sink::with_replies([Reply::status(200), Reply::status(400)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let once = ["send", "out", "--type", "order.paid", "--json", "--idempotency-key", "k-1"];
    let mut ids = HashSet::new();
    for _ in 0..2 {
        let output = gateway.cli(&[&once[..], &["--wait", "--body", r#"{"n": 1}"#]].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        let first: Value = serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap();
        let last: Value = serde_json::from_str(output.stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&first["idempotency_key"], &last["status"]), (&json!("k-1"), &json!("sent")));
        ids.insert(text(&first, "id"));
    }
    assert_eq!((ids.len(), sink.count()), (1, 1));
    assert_eq!(sink.requests()[0].body, r#"{"n": 1}"#);

    let failed = gateway.cli(&["send", "out", "--body", "{}", "--wait"]).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("not sent"), "{failed:?}");
    let wrong = gateway.cli(&["send", "out", "--body", "{"]).await;
    assert_eq!(wrong.code, Some(5), "{wrong:?}");
}

#[tokio::test]
async fn status_update_settles_ambiguous_message() {
    let sink = Sink::with_replies([Reply::Close]).await;
    let parked = format!("{}\nsending = {{ on_ambiguous = \"park\" }}\n", whatsapp_settings(&sink));
    let gateway = Gateway::start_with(&parked).await;
    let message = json!({ "destination": "wa", "to": "5511987654321", "text": "hi" });
    let id = text(&gateway.post("/messages", &message).await.expect(202).json(), "id");
    let failed = wait_for_message(&gateway, &id, "failed").await;
    assert_eq!((&failed["reason"], &failed["message_id"]), (&json!("ambiguous"), &Value::Null));
    let sent: Value = serde_json::from_slice(&sink.requests()[0].body).unwrap();
    let mut update: Value =
        serde_json::from_str(&status_update("wamid.C", "read", &Value::Null)).unwrap();
    update["entry"][0]["changes"][0]["value"]["statuses"][0]["biz_opaque_callback_data"] =
        sent["biz_opaque_callback_data"].clone();

    gateway.send_webhook("meta", &[], update.to_string()).await.expect(200);

    wait_for_message(&gateway, &id, "read").await;
}
