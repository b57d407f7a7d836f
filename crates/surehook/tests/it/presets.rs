//! Provider presets: what the provider is answered and what is delivered.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::json;
use sha2::Sha256;

use crate::support::{gateway::Gateway, sink::Sink, unix_now};

const SECRET: &str = "the-current-shared-secret";
const PREVIOUS: &str = "the-previous-shared-secret";

fn hex(secret: &str, text: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(text);
    HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// A gateway with one source of this preset, routed to a sink.
async fn gateway(preset: &str, sink: &Sink) -> Gateway {
    let url = sink.url();
    Gateway::start_with(&format!(
        "[[sources]]\nname = \"in\"\nprovider = \"{preset}\"\nsecrets = [\"{SECRET}\", \"{PREVIOUS}\"]\n\
         [[destinations]]\nname = \"out\"\nurl = \"{url}\"\n\
         [[routes]]\nfrom = \"in\"\nto = \"out\""
    ))
    .await
}

#[tokio::test]
async fn slack_challenge_is_echoed_and_events_get_empty_response() {
    let sink = Sink::ok().await;
    let gateway = gateway("slack", &sink).await;
    let now = unix_now().to_string();
    let send = async |kind: &str, more: &[(&str, &str)], secret: &str, body: &'static str| {
        let signature = format!("v0={}", hex(secret, &format!("v0:{now}:{body}")));
        let mut headers = vec![
            ("content-type", kind),
            ("x-slack-request-timestamp", now.as_str()),
            ("x-slack-signature", signature.as_str()),
        ];
        headers.extend(more);
        gateway.send_webhook("in", &headers, body).await
    };
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let challenge = r#"{"type":"url_verification","challenge":"3eZbrw1a"}"#;
    let event = r#"{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"message","channel":"C1"}}"#;
    let command = "team_id=T1&channel_id=C1&command=%2Fdeploy&trigger_id=1.2.3";

    let challenged = send(json, &[], SECRET, challenge).await.expect(200);
    assert_eq!(
        (challenged.text().as_str(), challenged.header("content-type")),
        ("3eZbrw1a", "text/plain; charset=utf-8")
    );
    assert_eq!(challenged.header("x-content-type-options"), "nosniff");
    let refused = send(json, &[], "wrong", challenge).await.expect(401);
    assert_eq!(
        (&*refused.code(), refused.header("x-content-type-options")),
        ("mismatch", "nosniff")
    );
    assert_eq!(gateway.stats().await["total"], 0, "a challenge is not stored");

    assert_eq!(send(json, &[], SECRET, event).await.expect(200).text(), "");
    let again = [("x-slack-retry-num", "1"), ("x-slack-retry-reason", "http_timeout")];
    assert_eq!(send(json, &again, PREVIOUS, event).await.expect(200).text(), "");
    // A retry whose first try never arrived.
    assert_eq!(send(form, &again, SECRET, command).await.expect(200).text(), "");

    let arrived = sink.wait_for_requests(2).await;
    let mut bodies: Vec<_> = arrived.iter().map(|arrival| arrival.body.as_ref()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [command.as_bytes(), event.as_bytes()]);
    assert_eq!(gateway.stats().await["total"], 2);
}

#[tokio::test]
async fn zoom_validation_is_answered_with_matching_secret() {
    let sink = Sink::ok().await;
    let gateway = gateway("zoom", &sink).await;
    let now = unix_now().to_string();
    let body =
        r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8"},"event_ts":1}"#;
    for secret in [SECRET, PREVIOUS] {
        let signature = format!("v0={}", hex(secret, &format!("v0:{now}:{body}")));
        let headers = [("x-zm-request-timestamp", now.as_str()), ("x-zm-signature", &signature)];

        let response = gateway.send_webhook("in", &headers, body).await.expect(200);

        let expected = json!({ "plainToken": "qgg8", "encryptedToken": hex(secret, "qgg8") });
        assert_eq!(response.json(), expected);
    }
    assert_eq!(gateway.stats().await["total"], 0);
}

#[tokio::test]
async fn github_ping_is_stored_and_not_delivered() {
    let sink = Sink::ok().await;
    let gateway = gateway("github", &sink).await;
    let send = async |event: &str, delivery: &str, body: &'static str| {
        let signature = format!("sha256={}", hex(SECRET, body));
        let headers = [
            ("x-github-event", event),
            ("x-github-delivery", delivery),
            ("x-hub-signature-256", &signature),
        ];
        gateway.send_webhook("in", &headers, body).await.expect(200).event_id()
    };
    let ping = send("ping", "d-1", r#"{"zen":"Keep it logically awesome."}"#).await;
    let push = send("push", "d-2", r#"{"ref":"refs/heads/main"}"#).await;
    let again = send("push", "d-2", r#"{"ref":"refs/heads/main"}"#).await;

    assert_eq!(push, again);
    let arrived = sink.wait_for_requests(1).await;
    assert_eq!(arrived[0].id(), push);
    // The sender's signature still matches the body, so it is forwarded.
    assert!(arrived[0].header("x-hub-signature-256").starts_with("sha256="));
    let ping = gateway.event(&ping).await;
    assert_eq!(ping["deliveries"], json!([]), "{ping}");
}

#[tokio::test]
async fn secret_header_is_not_forwarded() {
    let cases = [
        ("provider = \"gitlab\"", "x-gitlab-token"),
        ("provider = \"telegram\"", "x-telegram-bot-api-secret-token"),
        ("provider = \"evolution-api\"", "apikey"),
        ("verify = { token = { header = \"X-Shared\" } }", "x-shared"),
    ];
    for (source, header) in cases {
        let sink = Sink::ok().await;
        let url = sink.url();
        let gateway = Gateway::start_with(&format!(
            "[[sources]]\nname = \"in\"\n{source}\nsecrets = [\"{SECRET}\"]\n\
             [[destinations]]\nname = \"out\"\nurl = \"{url}\"\n\
             [[routes]]\nfrom = \"in\"\nto = \"out\""
        ))
        .await;
        let headers = [(header, SECRET), ("x-other", "1"), ("x-gitlab-event", "Push Hook")];

        gateway.send_webhook("in", &headers, r#"{"update_id":1}"#).await.expect(200);

        let arrived = &sink.wait_for_requests(1).await[0];
        assert_eq!(arrived.header("x-other"), "1", "{source}");
        assert!(!format!("{:?}", arrived.headers).contains(SECRET), "{source}");
    }
}

#[tokio::test]
async fn checks_of_the_url_are_answered_and_are_no_events() {
    let sink = Sink::ok().await;
    let gateway = gateway("okta", &sink).await;
    for preset in ["asana", "trello", "intercom"] {
        let public_url = "https://hooks.example.com";
        let spec = json!({
            "name": preset, "provider": preset, "secrets": [SECRET], "public_url": public_url,
        });
        gateway.post("/sources", &spec).await.expect(201);
    }
    let challenge = [("x-okta-verification-challenge", &b"Me_rShK8JHsTnbyY"[..])];
    let answered = gateway.request(Method::GET, "/in/in", &challenge, "").await.expect(200);
    assert_eq!(answered.json(), json!({ "verification": "Me_rShK8JHsTnbyY" }));
    assert_eq!(answered.header("content-type"), "application/json");
    gateway.request(Method::GET, "/in/in", &[], "").await.expect(405);
    gateway.request(Method::HEAD, "/in/in", &[], "").await.expect(405);

    for preset in ["trello", "intercom"] {
        let path = format!("/in/{preset}");
        gateway.request(Method::HEAD, &path, &[], "").await.expect(200);
        gateway.request(Method::GET, &path, &[], "").await.expect(405);
        gateway.request(Method::POST, &path, &[], "{}").await.expect(401);
    }

    let secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let handshake = [("x-hook-secret", secret.as_bytes())];
    let answered = gateway.request(Method::POST, "/in/asana", &handshake, "{}").await.expect(200);
    assert_eq!((answered.header("x-hook-secret"), &*answered.text()), (secret, ""));
    // The secret is echoed and not believed.
    let events = r#"{"events":[{"action":"changed","resource":{"gid":"1"}}]}"#;
    let signature = hex(secret, events);
    let refused = gateway.send_webhook("asana", &[("x-hook-signature", &signature)], events).await;
    assert_eq!(refused.expect(401).code(), "mismatch");
    let signature = hex(SECRET, events);
    let signed = [("x-hook-signature", signature.as_str())];
    gateway.send_webhook("asana", &signed, events).await.expect(200);
    assert_eq!(gateway.stats().await["total"], 1);
}

#[tokio::test]
async fn token_that_notion_sends_is_kept_for_an_operator_to_read() {
    const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";
    let sink = Sink::ok().await;
    let gateway = gateway("notion", &sink).await;
    let body = json!({ "verification_token": TOKEN }).to_string();
    let signature = format!("sha256={}", hex(TOKEN, &body));
    let signed = [("x-notion-signature", signature.as_str())];

    assert_eq!(gateway.send_webhook("in", &signed, body.clone()).await.expect(200).text(), "");

    let kept = gateway.list("/quarantine?source=in").await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    let id = kept[0]["id"].as_str().unwrap();
    let shown = gateway.cli(&["quarantine", "show", id]).await;
    assert!(!shown.stdout.contains(TOKEN) && shown.stdout.contains("•••"), "{shown:?}");
    let shown = gateway.cli(&["quarantine", "show", id, "--exact"]).await;
    assert!(shown.stdout.contains(&body), "{shown:?}");
    let viewer = gateway.create_token("viewer").await;
    let exact = format!("/quarantine/{id}?exact=true");
    gateway.api_as(&viewer, Method::GET, &exact, None).await.expect(403);
    let operator = gateway.create_token("operator").await;
    gateway.api_as(&operator, Method::GET, &exact, None).await.expect(200);

    // With the token as the secret, the request verifies and is no event.
    let spec = json!({ "name": "in", "provider": "notion", "secrets": [TOKEN] });
    gateway.put("/sources/in", &spec).await.expect(200);
    let released = gateway.cli(&["quarantine", "release", "--source", "in"]).await;
    assert!(released.code == Some(0), "{released:?}");
    assert_eq!(gateway.list("/quarantine?source=in").await, Vec::<serde_json::Value>::new());
    assert_eq!(gateway.send_webhook("in", &signed, body).await.expect(200).text(), "");
    assert_eq!(gateway.stats().await["total"], 0);

    let event = r#"{"id":"e1","type":"page.created","entity":{"id":"p1"}}"#;
    gateway.send_webhook("in", &[("x-notion-signature", "sha256=00")], event).await.expect(401);
    let signature = format!("sha256={}", hex(TOKEN, event));
    let signed = [("x-notion-signature", signature.as_str())];
    let stored = gateway.send_webhook("in", &signed, event).await.expect(200).event_id();
    assert_eq!(gateway.event(&stored).await["kind"], "page.created");
}
