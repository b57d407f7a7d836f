//! Quarantine: requests that fail verification are stored, and released after the secret is fixed.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{
    WAIT_LIMIT,
    client::HttpResponse,
    eventually,
    gateway::{Gateway, Route},
    sink::Sink,
    unix_now,
};

const RIGHT: &str = "the right secret of sixteen bytes";
const WRONG: &str = "the wrong secret of sixteen bytes";

/// A Stripe source that is configured with a wrong secret.
fn settings(url: &str, more: &str) -> String {
    let source = format!("provider = \"stripe\"\nsecrets = [\"{WRONG}\"]\n{more}");
    let destination = format!("url = \"{url}\"");
    Route { source: &source, route: "", destination: &destination }.settings()
}

fn signature(body: &str, secret: &str) -> String {
    let time = unix_now();
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .unwrap()
        .chain_update(format!("{time}.{body}"));
    format!("t={time},v1={}", data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes()))
}

async fn send(gateway: &Gateway, body: &str, secret: &str) -> HttpResponse {
    let signature = signature(body, secret);
    let headers = [("stripe-signature", signature.as_str()), ("x-token", "a-secret-canary")];
    gateway.send_webhook("in", &headers, body.to_owned()).await
}

async fn quarantined(gateway: &Gateway) -> Vec<Value> {
    gateway.list("/quarantine?source=in").await
}

async fn fix_secret(gateway: &Gateway) {
    let spec = json!({
        "name": "in", "provider": "stripe", "secrets": [RIGHT], "on_refusal": "quarantine",
    });
    gateway.put("/sources/in", &spec).await.expect(200);
}

#[tokio::test]
async fn requests_quarantined_for_wrong_secret_are_released_after_fix() {
    let sink = Sink::ok().await;
    let toml = settings(&sink.url(), "on_refusal = \"quarantine\"");
    let mut gateway = Gateway::start_with(&toml).await;

    for body in [r#"{"id":"evt_1"}"#, r#"{"id":"evt_2"}"#, r#"{"id":"evt_1"}"#] {
        let response = send(&gateway, body, RIGHT).await.expect(503);
        assert_eq!(response.code(), "quarantined");
        assert!(response.headers.contains_key("retry-after"));
    }

    // The requests were on disk before they were answered.
    gateway.kill9();
    gateway.restart().await;
    let requests = quarantined(&gateway).await;
    let rows: Vec<_> = requests.iter().map(|row| (&row["times"], &row["reason"])).collect();
    assert_eq!(rows, [(&json!(1), &json!("mismatch")), (&json!(2), &json!("mismatch"))]);
    let first = requests[1]["id"].as_str().unwrap();
    assert!(first.starts_with("req_"), "{first}");
    let shown = gateway.get(&format!("/quarantine/{first}")).await.expect(200).json();
    assert_eq!(shown["body"]["text"], r#"{"id":"evt_1"}"#);
    assert!(!shown.to_string().contains("canary"), "{shown}");
    let refused = gateway.get("/requests?source=in").await.expect(200).json();
    assert_eq!(refused["data"], json!([]), "a quarantined request is not stored as refused too");

    let still = gateway.post(&format!("/quarantine/{first}/release"), &json!({})).await.expect(409);
    assert_eq!(still.code(), "still_wrong");
    let many = gateway.post("/quarantine/release", &json!({ "source": "in" })).await.expect(200);
    assert_eq!((&many.json()["released"], &many.json()["left"]), (&json!(0), &json!(2)));

    fix_secret(&gateway).await;
    // The sender has sent one of them again meanwhile.
    send(&gateway, r#"{"id":"evt_2"}"#, RIGHT).await.expect(200);
    let many = gateway.post("/quarantine/release", &json!({ "source": "in" })).await.expect(200);
    let expected = json!({ "released": 1, "events": 1, "duplicates": 0, "left": 0 });
    assert_eq!(many.json(), expected);
    assert_eq!(quarantined(&gateway).await, Vec::<Value>::new());
    let mut bodies: Vec<_> =
        sink.wait_for_requests(2).await.into_iter().map(|request| request.body).collect();
    bodies.sort();
    assert_eq!(bodies, [r#"{"id":"evt_1"}"#, r#"{"id":"evt_2"}"#]);
    gateway.post(&format!("/quarantine/{first}/release"), &json!({})).await.expect(404);
    let events = gateway.get("/events?source=in").await.expect(200).json();
    let requests: Vec<_> =
        events["data"].as_array().unwrap().iter().map(|event| &event["request_id"]).collect();
    assert!(requests.contains(&&json!(first)), "{requests:?}");
}

#[tokio::test]
async fn unverifiable_request_is_force_released_or_discarded() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings(&sink.url(), "on_refusal = \"quarantine\"")).await;
    for body in ["{\"id\":\"evt_1\"}", "{\"id\":\"evt_2\"}"] {
        gateway.send_webhook("in", &[], body).await.expect(503);
    }
    let ids: Vec<String> = quarantined(&gateway)
        .await
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();

    let plain = gateway.cli(&["quarantine", "release", &ids[0]]).await;
    let forced = gateway.cli(&["quarantine", "release", &ids[0], "--force", "--json"]).await;
    let list = gateway.cli(&["quarantine", "list"]).await;
    let shown = gateway.cli(&["quarantine", "show", &ids[1]]).await;
    let discarded = gateway.cli(&["quarantine", "discard", &ids[1]]).await;
    let missing = gateway.cli(&["quarantine", "discard", &ids[1]]).await;

    assert_eq!(plain.code, Some(5), "{plain:?}");
    assert!(plain.stderr.contains("force"), "{plain:?}");
    assert_eq!(forced.code, Some(0), "{forced:?}");
    let response: Value = serde_json::from_str(&forced.stdout).unwrap();
    let event = response["answer"]["events"][0]["id"].as_str().unwrap();
    let timeline = gateway.event(event).await["decisions"].to_string();
    assert!(timeline.contains("not verified: released by a user"), "{timeline}");
    assert!(
        list.stdout.contains("missing_signature") && !list.stdout.contains(&ids[0]),
        "{list:?}"
    );
    assert!(shown.stdout.contains("evt_1"), "{shown:?}");
    assert_eq!((discarded.code, missing.code), (Some(0), Some(4)), "{discarded:?} {missing:?}");
    assert_eq!(sink.wait_for_requests(1).await[0].body, "{\"id\":\"evt_2\"}");
    assert_eq!(quarantined(&gateway).await, Vec::<Value>::new());
}

#[tokio::test]
async fn quarantine_source_answers_refusals_with_503() {
    let sink = Sink::ok().await;
    let toml = settings(
        &sink.url(),
        "on_refusal = \"quarantine\"\n        keys = [\"header:idempotency-key\"]",
    );
    let toml = toml.replace(WRONG, RIGHT);
    let gateway = Gateway::start_with(&toml).await;
    let body = r#"{"id":"evt_1"}"#;
    let signature = signature(body, RIGHT);

    let headers = [
        ("stripe-signature", signature.as_str()),
        ("idempotency-key", "1"),
        ("idempotency-key", "2"),
    ];
    let twice = gateway.send_webhook("in", &headers, body).await.expect(503);
    let mut raw = gateway.connect_raw().await;
    let two_hosts = "POST /in/in HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 2\r\n\r\n{}";
    raw.write(two_hosts.as_bytes()).await;
    let hosts = raw.read_response().await.unwrap();

    assert_eq!(twice.code(), "quarantined");
    let row = &quarantined(&gateway).await[0];
    assert_eq!(row["reason"], "repeated_key");
    assert_eq!(hosts.status, 503, "{hosts:?}");
    let path = format!("/quarantine/{}/release", row["id"].as_str().unwrap());
    gateway.post(&path, &json!({})).await.expect(409);
    let forced = gateway.post(&path, &json!({ "force": true })).await.expect(200).json();
    assert_eq!(forced["events"][0]["key"], Value::Null, "{forced}");
}

#[tokio::test]
async fn evolution_api_request_with_wrong_path_secret_is_quarantined() {
    const UPSERT: &str =
        include_str!("../../../../testdata/payloads/evolution_api.messages.upsert.text.json");
    let source =
        |secret: &str| json!({ "name": "evo", "provider": "evolution-api", "secrets": [secret] });
    let gateway = Gateway::start().await;
    gateway.post("/sources", &source("9f3c1a7e5b2d4f60-old")).await.expect(201);
    let path = "/in/evo/9f3c1a7e5b2d4f60-new/messages-upsert";

    for _ in 0..2 {
        let response = gateway.request(Method::POST, path, &[], UPSERT).await.expect(503);
        assert_eq!(response.code(), "quarantined");
    }

    let list = gateway.get("/quarantine").await.expect(200).json();
    let row = &list["data"][0];
    assert_eq!((&row["times"], &row["path"]), (&json!(2), &json!("/•••/messages-upsert")));
    let id = row["id"].as_str().unwrap();
    let shown = gateway.get(&format!("/quarantine/{id}")).await.expect(200).json();
    assert!(!shown.to_string().contains("9f3c1a7e5b2d4f60"), "{shown}");
    gateway.put("/sources/evo", &source("9f3c1a7e5b2d4f60-new")).await.expect(200);
    let released = gateway.cli(&["quarantine", "release", "--source", "evo"]).await;
    assert!(released.stdout.starts_with("1 released: 1 new events"), "{released:?}");
    let again = gateway.request(Method::POST, path, &[], UPSERT).await.expect(200).json();
    assert_eq!(again["status"], "duplicate");
    assert!(!gateway.log().contains("9f3c1a7e5b2d4f60"));
}

#[tokio::test]
async fn without_quarantine_bad_signature_is_401_and_not_stored() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings(&sink.url(), "")).await;

    send(&gateway, "{}", RIGHT).await.expect(401);

    assert_eq!(quarantined(&gateway).await, Vec::<Value>::new());
    let unknown = gateway.get("/quarantine?source=absent").await.expect(404);
    assert_eq!(unknown.code(), "not_found");
    gateway.request_as_admin(Method::GET, "/quarantine?cursor=x", &[], "").await.expect(422);
}

#[tokio::test]
async fn path_secret_of_refused_request_is_never_shown() {
    let gateway = Gateway::start().await;
    for provider in ["evolution-api", "evolution-go"] {
        let spec = json!({ "name": provider, "provider": provider, "secrets": ["only-letters-and-dashes"] });
        gateway.post("/sources", &spec).await.expect(201);
        // The right secret, a wrong one, and ones in an unexpected position.
        for path in [
            "only-letters-and-dashes",
            "only-letters-and-dashes-too",
            "/only-letters-and-dashes",
            "x/only-letters-and-dashes",
        ] {
            let path = format!("/in/{provider}/{path}/messages-upsert");
            gateway.request(Method::GET, &path, &[], "").await.expect(405);
            gateway.request(Method::POST, &path, &[], "{}").await;
        }
    }
    gateway
        .request(Method::POST, "/in/absent/only-letters-and-dashes", &[], "{}")
        .await
        .expect(404);

    let refused = eventually(WAIT_LIMIT, || async {
        let list = gateway.get("/requests?limit=100").await.expect(200).json();
        let has =
            |reason: &str| list["data"].as_array().unwrap().iter().any(|r| r["reason"] == reason);
        (has("unknown_source") && has("method_not_allowed")).then_some(list)
    })
    .await;
    let quarantined = gateway.get("/quarantine?limit=100").await.expect(200).json();
    for list in [refused, quarantined] {
        let by_event =
            |row: &Value| row["path"].as_str().unwrap().ends_with("/•••/messages-upsert");
        assert!(list["data"].as_array().unwrap().iter().any(by_event), "{list}");
        assert!(!list.to_string().contains("only-letters-and-dashes"), "{list}");
    }
}

#[tokio::test]
async fn release_fetches_certificate_named_in_request() {
    let toml = settings("http://127.0.0.1:9999", "on_refusal = \"quarantine\"");
    let gateway = Gateway::start_with(&toml).await;
    let headers = [
        ("paypal-transmission-id", "t1"),
        ("paypal-transmission-time", "2026-05-17T13:19:58Z"),
        ("paypal-transmission-sig", "AAAA"),
        // The `.invalid` name guarantees that the host does not exist.
        ("paypal-cert-url", "https://nowhere.invalid.paypal.com/v1/notifications/certs/CERT-1"),
    ];
    gateway.send_webhook("in", &headers, "{}").await.expect(503);
    let spec = json!({ "name": "in", "provider": "paypal", "secrets": ["9XL90610J3647323C"] });
    gateway.put("/sources/in", &spec).await.expect(200);

    let id = quarantined(&gateway).await[0]["id"].as_str().unwrap().to_owned();
    let response = gateway.post(&format!("/quarantine/{id}/release"), &json!({})).await.expect(409);

    assert!(response.text().contains("cannot be fetched"), "{}", response.text());
}

#[tokio::test]
async fn wrong_github_signature_is_401_and_quarantined() {
    let sink = Sink::ok().await;
    let toml = settings(&sink.url(), "").replace("stripe", "github");
    let gateway = Gateway::start_with(&toml).await;
    let body = r#"{"zen":"keep it"}"#;
    let mac = Hmac::<Sha256>::new_from_slice(RIGHT.as_bytes()).unwrap().chain_update(body);
    let mac = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
    let signature = format!("sha256={mac}");
    let named = [("x-github-event", "push"), ("x-github-delivery", "d-1")];

    let unsigned = gateway.send_webhook("in", &named, "{}").await.expect(401);
    let signed = [named[0], named[1], ("x-hub-signature-256", &signature)];
    let wrong = gateway.send_webhook("in", &signed, body).await.expect(401);

    assert_eq!(
        (unsigned.code().as_str(), wrong.code().as_str()),
        ("missing_signature", "mismatch")
    );
    let requests = quarantined(&gateway).await;
    let reasons: Vec<_> = requests.iter().map(|row| &row["reason"]).collect();
    assert_eq!(reasons, ["mismatch"]);
    let spec = json!({ "name": "in", "provider": "github", "secrets": [RIGHT] });
    gateway.put("/sources/in", &spec).await.expect(200);
    let many = gateway.post("/quarantine/release", &json!({ "source": "in" })).await.expect(200);
    assert_eq!(many.json()["events"], 1);
    assert_eq!(sink.wait_for_requests(1).await[0].body, body);
}

#[tokio::test]
async fn request_resent_by_sender_leaves_quarantine() {
    let sink = Sink::ok().await;
    let more = "on_refusal = \"quarantine\"";
    let mut gateway = Gateway::start_with(&settings(&sink.url(), more)).await;
    for body in [r#"{"id":"evt_1"}"#, r#"{"id":"evt_2"}"#] {
        send(&gateway, body, RIGHT).await.expect(503);
    }
    fix_secret(&gateway).await;
    send(&gateway, r#"{"id":"evt_1"}"#, RIGHT).await.expect(200);
    assert_eq!(quarantined(&gateway).await.len(), 1);

    // The sender's retry is matched after a restart too.
    gateway.kill9();
    gateway.restart().await;
    fix_secret(&gateway).await;
    send(&gateway, r#"{"id":"evt_2"}"#, RIGHT).await.expect(200);

    assert_eq!(quarantined(&gateway).await, Vec::<Value>::new());
}

#[tokio::test]
async fn large_unsigned_request_is_not_quarantined() {
    let more = "on_refusal = \"quarantine\"";
    let gateway = Gateway::start_with(&settings("http://127.0.0.1:9999", more)).await;
    let long = "x".repeat(65_537);

    let unsigned = gateway.send_webhook("in", &[], long.clone()).await.expect(503);
    assert_eq!(unsigned.code(), "missing_signature");
    assert_eq!(quarantined(&gateway).await, Vec::<Value>::new());
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("surehook_quarantine_dropped_total{source=\"in\"} 1"), "{metrics}");

    let signed = send(&gateway, &long, RIGHT).await.expect(503);
    assert_eq!(signed.code(), "quarantined");
}

#[tokio::test]
async fn flood_of_unsigned_requests_is_quarantined_at_a_bounded_rate() {
    let more = "on_refusal = \"quarantine\"";
    let gateway = Gateway::start_with(&settings("http://127.0.0.1:9999", more)).await;
    let mut stored = 0;
    for number in 0..120 {
        let response = gateway.send_webhook("in", &[], format!("{{\"id\":{number}}}")).await;
        stored += usize::from(response.expect(503).code() == "quarantined");
    }
    // A burst of 20, then one every other second.
    assert!((20..=60).contains(&stored), "{stored}");
    assert_eq!(quarantined(&gateway).await.len(), stored);

    // Requests with a signature have an allowance of their own.
    assert_eq!(send(&gateway, "{}", RIGHT).await.expect(503).code(), "quarantined");
}
