//! Sources, destinations and routes through the API: created, updated, rejected, deleted.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, TOKEN},
    sink::Sink,
};

/// Starts a gateway with a source, a destination and a route.
async fn start_configured() -> Gateway {
    let gateway = Gateway::start().await;
    gateway.post("/sources", &json!({ "name": "in", "verify": "none" })).await.expect(201);
    let destination = json!({ "name": "out", "url": "https://example.com/hook" });
    gateway.post("/destinations", &destination).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "out" })).await.expect(201);
    gateway
}

fn names(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn source_is_created_read_updated_and_deleted() {
    let gateway = Gateway::start().await;
    let created = gateway.post("/sources", &json!({ "name": "in", "verify": "none" })).await;
    let created = created.expect(201).json();
    let id = created["id"].as_str().unwrap();
    assert!(id.starts_with("src_"), "{created}");
    assert_eq!((&created["enabled"], &created["provider"]), (&json!(true), &json!("generic")));

    assert_eq!(gateway.get("/sources/in").await.expect(200).json(), created);
    assert_eq!(gateway.get(&format!("/sources/{id}")).await.expect(200).json(), created);
    gateway.post_accepted("in", "{}").await;

    let off = json!({ "name": "renamed", "verify": "none", "enabled": false });
    let changed = gateway.put("/sources/in", &off).await.expect(200).json();
    assert_eq!((&changed["id"], &changed["name"]), (&json!(id), &json!("renamed")));
    assert_eq!(changed["created_at"], created["created_at"]);
    assert_eq!(gateway.send_webhook("in", &[], "{}").await.expect(404).code(), "unknown_source");
    assert_eq!(
        gateway.send_webhook("renamed", &[], "{}").await.expect(503).code(),
        "source_disabled"
    );

    gateway.delete("/sources/renamed").await.expect(204);
    gateway.get(&format!("/sources/{id}")).await.expect(404);
    gateway.delete(&format!("/sources/{id}")).await.expect(404);
    assert_eq!(
        gateway.send_webhook("renamed", &[], "{}").await.expect(404).code(),
        "unknown_source"
    );
    // Its events are kept.
    assert_eq!(gateway.stats().await["total"], 1);
}

#[tokio::test]
async fn duplicate_name_is_rejected() {
    let gateway = start_configured().await;
    for (path, spec) in [
        ("/sources", json!({ "name": "in", "verify": "none" })),
        ("/destinations", json!({ "name": "out", "url": "https://example.com" })),
    ] {
        let again = gateway.post(path, &spec).await.expect(409);
        assert_eq!(again.code(), "name_taken", "case: {path}");
        let other = if path == "/sources" { "demo" } else { "inbox" };
        let renamed = gateway.put(&format!("{path}/{other}"), &spec).await.expect(409);
        assert_eq!(renamed.code(), "name_taken", "case: {path}");
    }
    let sources = gateway.get("/sources").await.expect(200).json();
    let mut names = names(&sources);
    names.sort_unstable();
    assert_eq!(names, ["demo", "in"]);
    // The name of a deleted source is free again.
    gateway.delete("/sources/in").await.expect(204);
    gateway.post("/sources", &json!({ "name": "in", "verify": "none" })).await.expect(201);
}

#[tokio::test]
async fn deleting_a_source_deletes_its_routes() {
    let gateway = start_configured().await;
    let routes = gateway.get("/routes").await.expect(200).json();
    let route = |list: &Value| {
        list["data"].as_array().unwrap().iter().find(|route| route["from"] == "in").cloned()
    };
    let id = route(&routes).unwrap()["id"].as_str().unwrap().to_owned();

    let filtered = json!({ "from": "in", "to": "inbox", "filter": ".a" });
    let changed = gateway.put(&format!("/routes/{id}"), &filtered).await.expect(200).json();
    assert_eq!((&changed["to"], &changed["filter"]), (&json!("inbox"), &json!(".a")));
    gateway.delete("/sources/in").await.expect(204);

    assert_eq!(route(&gateway.get("/routes").await.expect(200).json()), None);
    gateway.get(&format!("/routes/{id}")).await.expect(404);
}

/// Path, spec, and the text that the problem must contain.
type InvalidSpecCase = (&'static str, Value, &'static str);

async fn assert_all_rejected(cases: Vec<InvalidSpecCase>) {
    let gateway = start_configured().await;
    let before = gateway.get("/configuration").await.expect(200).json();
    for (path, spec, named) in cases {
        let response = gateway.post(path, &spec).await.expect(422);
        assert_eq!(response.code(), "invalid", "case: {spec}");
        assert!(response.detail().contains(named), "case: {spec}: {}", response.detail());
    }
    assert_eq!(gateway.get("/configuration").await.expect(200).json(), before);
}

#[tokio::test]
async fn invalid_source_or_route_field_is_named_in_the_problem() {
    let source = |field: &'static str, value: Value| {
        let mut spec = json!({ "name": "bad", "verify": "none" });
        spec[field] = value;
        ("/sources", spec, field)
    };
    let signed = |secrets: Value| {
        let verify = json!({ "hmac": { "header": "x-sig" } });
        let spec = json!({ "name": "bad", "verify": verify, "secrets": secrets });
        ("/sources", spec, "secret")
    };
    let route = |spec: Value, named| ("/routes", spec, named);
    assert_all_rejected(vec![
        ("/sources", json!({ "name": "bad" }), "verify"),
        ("/sources", json!({ "verify": "none" }), "name"),
        ("/sources", json!({ "name": "bad", "verify": "maybe" }), "maybe"),
        source("nam", json!("typo")),
        source("id", json!("src_01h455vb4pex5vsknk084sn02q")),
        source("name", json!("Not A Name")),
        source("name", json!("../etc")),
        source("provider", json!("unknown")),
        source("keys", json!(["cookie:id"])),
        source("keys", json!(["jq:.a |"])),
        source("dedup_window", json!("0s")),
        source("dedup_window", json!("1000d")),
        source("max_body_bytes", json!(0)),
        source("secrets", json!(["unused-secret"])),
        signed(json!([])),
        signed(json!([""])),
        signed(json!(["  "])),
        ("/sources", json!({ "name": "bad", "verify": { "hmac": { "header": "x-sig" } }, "secrets": ["env:NOT_SET_ANYWHERE"] }), "allow_env"),
        route(json!({ "from": "unknown", "to": "out" }), "unknown"),
        route(json!({ "from": "in", "to": "unknown" }), "unknown"),
        route(json!({ "from": "in", "to": "out", "filter": ".a |" }), "filter"),
        route(json!({ "from": "in", "to": "out", "when": ".a" }), "when"),
    ])
    .await;
}

#[tokio::test]
async fn invalid_destination_field_is_named_in_the_problem() {
    let with = |field: &str, value: Value, named| {
        let mut spec = json!({ "name": "bad", "url": "https://example.com" });
        spec[field] = value;
        ("/destinations", spec, named)
    };
    assert_all_rejected(vec![
        with("name", json!(""), "name"),
        with("urll", json!("typo"), "urll"),
        with("url", json!("not a url"), "url"),
        with("url", json!("ftp://example.com/"), "ftp"),
        with("url", json!("file:///etc/passwd"), "file"),
        with("url", json!("https://user:pass@example.com/"), "user name"),
        with("url", json!("https://example.com:6379/"), "6379"),
        with("url", json!("https://example.com/#part"), "fragment"),
        with("retry", json!("eager"), "eager"),
        with("retry", json!({ "max_attempts": 0 }), "max_attempts"),
        with("retry", json!({ "jitter": "wild" }), "full, equal, decorrelated"),
        with("concurrency", json!(0), "concurrency"),
        with("timeout", json!("1h"), "timeout"),
        with("headers", json!({ "x-a": "b\r\nx-evil: 1" }), "x-a"),
        with("headers", json!({ "x a": "b" }), "x a"),
        with("headers", json!({ "Host": "evil" }), "Host"),
        with("headers", json!({ "Content-Length": "0" }), "Content-Length"),
        with("headers", json!({ "webhook-signature": "v1," }), "webhook-signature"),
        with("headers", json!({ "X-A": "1", "x-a": "2" }), "twice"),
        with("signing_secrets", json!(["whsec_c2hvcnQ="]), "signing_secrets"),
        with("signing_secrets", json!(["not-a-secret"]), "whsec_"),
    ])
    .await;
}

#[tokio::test]
async fn request_body_that_is_not_json_is_rejected() {
    let gateway = Gateway::start().await;
    let authorization = format!("Bearer {TOKEN}");
    let cases: [(&[u8], &[u8], u16, &str); 6] = [
        (b"text/plain", b"{}", 415, "not_json"),
        (b"application/x-www-form-urlencoded", b"name=in", 415, "not_json"),
        (b"application/json", b"", 400, "bad_json"),
        (b"application/json", b"{", 400, "bad_json"),
        (b"application/json", b"\xff", 400, "bad_json"),
        (b"application/json; charset=utf-8", b"[]", 422, "invalid"),
    ];
    for (kind, body, status, code) in cases {
        let headers: [(&str, &[u8]); 2] =
            [("authorization", authorization.as_bytes()), ("content-type", kind)];
        let response = gateway.request(Method::POST, "/api/v1/sources", &headers, body).await;
        let name = String::from_utf8_lossy(body);
        assert_eq!(response.clone().expect(status).code(), code, "case: {name}");
    }
    // Nested deeply enough to overflow the stack of a recursive parser.
    let deep = format!(r#"{{"name":"in","url":"x","retry":{}"#, "[".repeat(100_000));
    let headers: [(&str, &[u8]); 2] =
        [("authorization", authorization.as_bytes()), ("content-type", b"application/json")];
    gateway.request(Method::POST, "/api/v1/destinations", &headers, deep).await.expect(422);
    let large = vec![b' '; 2 << 20];
    let response = gateway.request(Method::POST, "/api/v1/sources", &headers, large).await;
    assert_eq!(response.expect(413).code(), "body_too_large");
}

#[tokio::test]
async fn configured_secrets_are_never_returned() {
    let gateway = Gateway::builder()
        .env("FROM_ENV", "canary-env-value-0123456")
        .env("SUREHOOK_ALLOW_ENV", "[\"FROM_ENV\"]")
        .start()
        .await;
    let source = json!({
        "name": "in",
        "verify": { "hmac": { "header": "x-sig" } },
        "secrets": ["canary-literal-secret", "env:FROM_ENV"],
    });
    let destination = json!({
        "name": "out",
        "url": "https://example.com",
        "headers": { "Authorization": "Bearer canary-header" },
        "signing_secrets": ["whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5"],
    });

    let mut shown = vec![
        gateway.post("/sources", &source).await.expect(201),
        gateway.post("/destinations", &destination).await.expect(201),
    ];
    for path in ["/sources", "/sources/in", "/destinations", "/destinations/out", "/configuration"]
    {
        shown.push(gateway.get(path).await.expect(200));
    }

    for response in &shown {
        assert!(!response.text().contains("canary"), "{}", response.text());
        assert!(!response.text().contains("Y2FuYXJ5"), "{}", response.text());
    }
    assert_eq!(shown[0].json()["secrets"], json!(["•••", "env:FROM_ENV"]));
    assert_eq!(shown[1].json()["headers"], json!({ "Authorization": "•••" }));
    // A form that sends back a mask must not store the mask as the secret: a mask that stands for a
    // stored secret keeps it, any other is rejected.
    let masked = json!({
        "name": "in", "verify": { "hmac": { "header": "x-sig" } }, "secrets": ["•••", "•••"],
    });
    let refused = gateway.put("/sources/in", &masked).await.expect(422);
    assert!(refused.detail().contains("write the secret itself"), "{}", refused.detail());
}

#[tokio::test]
async fn secrets_in_a_destination_url_are_used_and_never_returned() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start().await;
    let spec = json!({ "name": "out", "url": format!("{}?a=1&token=canary", sink.url()) });
    let shown = format!("{}?a=1&token=•••", sink.url());
    let created = gateway.post("/destinations", &spec).await.expect(201);
    gateway.post("/sources", &json!({ "name": "in", "verify": "none" })).await.expect(201);
    gateway.post("/routes", &json!({ "from": "in", "to": "out" })).await.expect(201);

    let answers = [
        created,
        gateway.get("/destinations").await.expect(200),
        gateway.get("/destinations/out").await.expect(200),
        gateway.get("/configuration").await.expect(200),
        gateway.put("/destinations/out", &json!({ "name": "out", "url": shown })).await.expect(200),
    ];
    for response in answers {
        assert!(response.text().contains(&shown), "{}", response.text());
        assert!(!response.text().contains("canary"), "{}", response.text());
    }
    let list = gateway.cli(&["destinations", "list", "--json"]).await;
    let export = gateway.cli(&["export"]).await;
    for output in [&list, &export] {
        let text = &output.stdout;
        assert!(text.contains("token=•••") && !text.contains("canary"), "{output:?}");
    }
    assert!(export.stdout.contains("#   destinations.out.url\n"), "{export:?}");

    gateway.post_accepted("in", "{}").await;
    assert_eq!(sink.wait_for_requests(1).await[0].query, "a=1&token=canary");
    // A mask that stands for no stored secret is rejected.
    let document = gateway.get("/configuration").await.expect(200).json();
    for refused in [
        gateway.put("/configuration", &document).await,
        gateway.post("/destinations", &json!({ "name": "new", "url": shown })).await,
    ] {
        let detail = refused.expect(422).detail();
        assert!(detail.contains("enter the value itself"), "{detail}");
    }
}

#[tokio::test]
async fn configuration_is_applied_completely_or_not_at_all() {
    let gateway = Gateway::start().await;
    let good = json!({
        "sources": [{ "name": "in", "verify": "none" }],
        "destinations": [{ "name": "out", "url": "https://example.com" }],
        "routes": [{ "from": "in", "to": "out" }],
    });
    let mut bad = good.clone();
    bad["routes"][0]["to"] = json!("unknown");

    assert_eq!(gateway.put("/configuration", &bad).await.expect(422).code(), "invalid");
    gateway.get("/sources/in").await.expect(404);
    let report = gateway.put("/configuration", &good).await.expect(200).json();
    let again = gateway.put("/configuration", &good).await.expect(200).json();
    let mut changed = good;
    changed["routes"][0]["filter"] = json!(".a");
    let third = gateway.put("/configuration", &changed).await.expect(200).json();

    let summary = |report: &Value| {
        json!({
            "created": report["created"], "updated": report["updated"],
            "unchanged": report["unchanged"],
        })
    };
    let all = ["source in", "destination out", "route in to out"];
    assert_eq!(summary(&report), json!({ "created": all, "updated": [], "unchanged": 0 }));
    assert_eq!(summary(&again), json!({ "created": [], "updated": [], "unchanged": 3 }));
    assert_eq!(
        summary(&third),
        json!({ "created": [], "updated": ["route in to out"], "unchanged": 2 })
    );
    // Objects that it does not name are kept.
    gateway.get("/sources/demo").await.expect(200);
}

/// The environment of the gateway holds more than what its admins may send to a URL of their choice.
#[tokio::test]
async fn api_references_only_listed_variables_and_does_not_reveal_which_exist() {
    let sink = Sink::ok().await;
    let settings = format!(
        "[[destinations]]\nname = \"file\"\nurl = \"{}\"\nauth = {{ bearer = \"env:ONLY_IN_FILE\" }}",
        sink.url()
    );
    let gateway = Gateway::builder()
        .env("ONLY_IN_FILE", "canary-of-the-environment")
        .env("LISTED", "a-listed-value-of-32-characters-")
        .env("SUREHOOK_ALLOW_ENV", "[\"LISTED\"]")
        .settings(&settings)
        .start()
        .await;
    let with = |name: &str, variable: &str| {
        let bearer = format!("env:{variable}");
        json!({ "name": name, "url": sink.url(), "auth": { "bearer": bearer } })
    };

    gateway.post("/destinations", &with("listed", "LISTED")).await.expect(201);
    let mut answers = Vec::new();
    for name in ["ONLY_IN_FILE", "HOME", "NOT_SET_ANYWHERE"] {
        let refused = gateway.post("/destinations", &with("new", name)).await.expect(422);
        assert!(refused.detail().contains("allow_env"), "{}", refused.detail());
        answers.push(refused.detail().replace(name, "NAME"));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the answer depends on the environment: {answers:?}");
    let reserved = gateway.post("/destinations", &with("new", "SUREHOOK_ADMIN_TOKEN")).await;
    let detail = reserved.expect(422).detail();
    assert!(detail.contains("belong to the gateway"), "{detail}");

    // A variable that the settings file references may stay, as long as the URL stays the same.
    let mut stored = with("file", "ONLY_IN_FILE");
    stored["concurrency"] = json!(2);
    gateway.put("/destinations/file", &stored).await.expect(200);
    stored["url"] = json!("https://example.com/");
    gateway.put("/destinations/file", &stored).await.expect(422);
    let document = json!({ "destinations": [with("new", "ONLY_IN_FILE")] });
    for path in ["/configuration", "/configuration?dry_run=true"] {
        gateway.put(path, &document).await.expect(422);
    }
}

/// References that were stored before `allow_env` existed keep working.
#[tokio::test]
async fn stored_reference_that_is_no_longer_listed_works_and_doctor_warns() {
    let sink = Sink::ok().await;
    let gateway = Gateway::builder()
        .env("OLD_TOKEN", "a-token-of-the-old-days")
        .env("SUREHOOK_ALLOW_ENV", "[\"OLD_*\"]")
        .start()
        .await;
    let spec = json!({ "name": "old", "url": sink.url(), "auth": { "bearer": "env:OLD_TOKEN" } });
    gateway.post("/destinations", &spec).await.expect(201);
    gateway.post("/routes", &json!({ "from": "demo", "to": "old" })).await.expect(201);
    let mut gateway = gateway;
    gateway.remove_env("SUREHOOK_ALLOW_ENV");
    gateway.restart().await;

    gateway.post_accepted("demo", "{}").await;

    let request = &sink.wait_for_requests(1).await[0];
    assert_eq!(request.header("authorization"), "Bearer a-token-of-the-old-days");
    let doctor = gateway.cli(&["doctor", "--data", "data"]).await;
    assert!(doctor.stdout.contains("destination `old` references OLD_TOKEN"), "{doctor:?}");
}

#[tokio::test]
async fn short_secret_is_refused_unless_allowed() {
    let gateway = Gateway::builder()
        .env("SHORT", "fifteen-bytes-x")
        .env("SUREHOOK_ALLOW_ENV", "[\"SHORT\"]")
        .start()
        .await;
    let source = |secret: &str, allow_short: bool| {
        json!({
            "name": "shop", "provider": "stripe", "secrets": [secret],
            "allow_short_secrets": allow_short,
        })
    };
    for secret in ["fifteen-bytes-x", "env:SHORT"] {
        let refused = gateway.post("/sources", &source(secret, false)).await.expect(422);
        assert!(refused.detail().contains("allow_short_secrets"), "{}", refused.detail());
        assert!(!refused.text().contains("fifteen"), "{}", refused.text());
    }
    gateway.post("/sources", &source("fifteen-bytes-x", true)).await.expect(201);
    // A stored secret stays usable, whatever else changes.
    gateway.put("/sources/shop", &source("•••", false)).await.expect(200);
    gateway.put("/sources/shop", &source("another-short-1", false)).await.expect(422);
    let doctor = gateway.cli(&["doctor", "--data", "data"]).await;
    assert!(doctor.stdout.contains("secret 1 has 15 bytes"), "{doctor:?}");
    let sign_as = json!({ "provider": "stripe", "secret": "fifteen-bytes-x" });
    let mut out = json!({ "name": "d", "url": "https://example.com/", "sign_as": sign_as });
    let refused = gateway.post("/destinations", &out).await.expect(422);
    assert!(refused.detail().contains("allow_short_secret"), "{}", refused.detail());
    out["sign_as"]["allow_short_secret"] = json!(true);
    gateway.post("/destinations", &out).await.expect(201);
}

#[tokio::test]
async fn gateway_starts_with_variables_of_kubernetes_and_warns_of_unknown_ones() {
    let gateway = Gateway::builder()
        .env("SUREHOOK_PORT", "tcp://10.0.0.7:8080")
        .env("SUREHOOK_SERVICE_HOST", "10.0.0.7")
        .env("SUREHOOK_PORT_8080_TCP_ADDR", "10.0.0.7")
        .env("SUREHOOK_RETENTIO", "30d")
        .start()
        .await;

    let log = gateway.log();

    let warning =
        "SUREHOOK_RETENTIO is not a setting and is ignored; did you mean SUREHOOK_RETENTION?";
    assert!(log.contains(warning), "{log}");
    assert!(!log.contains("SUREHOOK_PORT") && !log.contains("SUREHOOK_SERVICE"), "{log}");
}
