//! Secrets at rest: no configured secret is readable in a file, a log, an answer or a page; the key is
//! needed, is not in a backup, and is rotated without a moment in which the folder does not open.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use http::Method;
use serde_json::json;

use crate::{
    redaction::readable_paths,
    support::{
        WAIT_LIMIT,
        dashboard::DashboardClient,
        eventually,
        gateway::{Gateway, TOKEN},
        process::{Process, run_surehook},
        sink::{Reply, Sink},
    },
};

/// Every secret contains this text or one of [`ENCODED`], and nothing else does.
const CANARY: &str = "CANARY";
/// Secrets in other spellings: `whsec_` with the Base64 of `CANARY-…`, and `bob:CANARY-…` for Basic.
const ENCODED: [&str; 2] =
    ["Q0FOQVJZLXNpZ25pbmctMDEyMzQ1Njc4OWFi", "Ym9iOkNBTkFSWS1iYXNpYy0wMTIzNDU2Nzg5"];

fn settings(sink: &Sink) -> String {
    let url = sink.url();
    let whsec = ENCODED[0];
    format!(
        r#"
        log = "trace"
        allow_exec = ["/bin/true"]
        [[sources]]
        name = "gate"
        verify = {{ token = {{ header = "x-gate" }} }}
        secrets = ["CANARY-gate-0123456789", "CANARY-older-0123456789"]
        [[sources]]
        name = "basic"
        verify = {{ basic = {{ user = "bob" }} }}
        secrets = ["CANARY-basic-0123456789"]
        [[sources]]
        name = "evo"
        provider = "evolution-api"
        secrets = ["CANARY-evo-0123456789"]
        [[sources]]
        name = "meta"
        provider = "whatsapp-cloud"
        secrets = ["CANARY-meta-0123456789"]
        verify_token = "CANARY-verify-token-0123456789"
        [[sources]]
        name = "outdated"
        verify = {{ token = {{ header = "x-gate" }} }}
        secrets = ["CANARY-outdated-0123456789"]
        on_refusal = "quarantine"
        [[destinations]]
        name = "web"
        url = "{url}/key/CANARY-path/in?token=CANARY-query"
        headers = {{ X-Key = "CANARY-header {{{{event.id}}}}" }}
        signing_secrets = ["whsec_{whsec}"]
        auth = {{ bearer = "CANARY-bearer" }}
        retry = {{ max_attempts = 1 }}
        [[destinations]]
        name = "signed"
        url = "{url}/signed"
        sign_as = {{ provider = "stripe", secret = "CANARY-sign-as-0123456789" }}
        auth = {{ basic = {{ user = "u", password = "CANARY-password" }} }}
        retry = {{ max_attempts = 1 }}
        [[destinations]]
        name = "oauth"
        url = "{url}/oauth"
        auth = {{ oauth2 = {{ token_url = "{url}/issue?key=CANARY-token-url", client_id = "c", client_secret = "CANARY-client" }} }}
        retry = {{ max_attempts = 1 }}
        [[destinations]]
        name = "proxied"
        url = "{url}/proxied"
        proxy = "http://u:CANARY-proxy@127.0.0.1:9"
        retry = {{ max_attempts = 1 }}
        [[destinations]]
        name = "team"
        url = "https://hooks.slack.com/services/T0/B0/CANARY-slack"
        proxy = "http://127.0.0.1:9"
        retry = {{ max_attempts = 1 }}
        [[destinations]]
        name = "program"
        kind = "exec"
        exec = {{ command = ["/bin/true"], env = {{ A = "CANARY-env" }} }}
        [[destinations]]
        name = "wa"
        kind = "whatsapp-cloud"
        account = {{ sender = "106540352242922", token = "CANARY-account" }}
        {routes}
        "#,
        routes = ["web", "signed", "oauth", "proxied", "team", "program"]
            .map(|to| format!("[[routes]]\nfrom = \"gate\"\nto = \"{to}\"\n"))
            .join("")
    )
}

#[track_caller]
fn assert_no_secret(bytes: &[u8], case: &str) {
    for secret in [CANARY, ENCODED[0], ENCODED[1]] {
        let position = bytes.windows(secret.len()).position(|window| window == secret.as_bytes());
        if let Some(position) = position {
            let context = &bytes[position.saturating_sub(200)..(position + 100).min(bytes.len())];
            panic!("{case}: {}", String::from_utf8_lossy(context));
        }
    }
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

#[track_caller]
fn assert_no_secret_in_files(folder: &Path) {
    let files = all_files(folder);
    assert!(files.iter().any(|file| file.ends_with("surehook.db")), "{files:?}");
    for file in files {
        assert_no_secret(&fs::read(&file).unwrap(), &file.display().to_string());
    }
}

/// Sends requests that carry secrets: accepted, refused, quarantined and repeated ones.
async fn send_requests(gateway: &Gateway) {
    let body = r#"{"id":"1","text":"hello"}"#;
    let gate = ("x-gate", "CANARY-gate-0123456789");
    gateway.send_webhook("gate", &[gate], body).await.expect(200);
    gateway.send_webhook("gate", &[gate], body).await.expect(200);
    let basic = format!("Basic {}", ENCODED[1]);
    gateway.send_webhook("basic", &[("authorization", &basic)], body).await.expect(200);
    let event = r#"{"event":"messages.upsert","instance":"i","data":{"key":{"id":"A1"}}}"#;
    gateway.send_webhook("evo/CANARY-evo-0123456789/messages-upsert", &[], event).await.expect(200);
    let apikey = ("apikey", "CANARY-evo-0123456789");
    gateway.send_webhook("evo", &[apikey], event.replace("A1", "A2")).await.expect(200);
    // Refused, with the secret in the wrong place or of another source.
    gateway.send_webhook("gate/CANARY-gate-0123456789", &[], body).await.expect(401);
    gateway.send_webhook("basic?token=CANARY-basic-0123456789", &[], body).await.expect(401);
    gateway.send_webhook("unknown", &[("authorization", &basic), gate], body).await.expect(404);
    gateway.send_webhook("meta", &[gate], body).await.expect(401);
    let handshake = "/in/meta?hub.mode=subscribe&hub.challenge=1&hub.verify_token=";
    for (token, status) in [("CANARY-verify-token-0123456789", 200), ("CANARY-wrong", 403)] {
        let path = format!("{handshake}{token}");
        let response = gateway.request(Method::GET, &path, &[], "").await;
        assert_eq!(response.status, status, "{}", response.text());
    }
    // Quarantined with the right secret, before the source is configured with it.
    let right = ("x-gate", "CANARY-right-0123456789");
    gateway.send_webhook("outdated/CANARY-path?token=CANARY", &[right], body).await.expect(503);
}

/// Creates and changes a source and destinations over the API.
async fn configure(gateway: &Gateway) {
    let post = async |path: &str, body: serde_json::Value| {
        let key = ("idempotency-key", body["name"].as_str().unwrap());
        let body = body.to_string();
        gateway.request_as_admin(Method::POST, path, &[key], &body).await.expect(201)
    };
    let source =
        json!({ "name": "api", "provider": "stripe", "secrets": ["CANARY-api-0123456789"] });
    assert_no_secret(&post("/sources", source).await.body, "created source");
    let url = "https://discord.com/api/webhooks/12/CANARY-discord";
    let destination = json!({ "name": "chat", "url": url, "headers": { "X-Key": "CANARY-api" } });
    assert_no_secret(&post("/destinations", destination).await.body, "created destination");
    // A change that sends the masks back keeps the secrets.
    let masked = gateway.get("/destinations/chat").await.json();
    let spec = json!({ "name": "chat", "url": masked["url"], "headers": masked["headers"],
        "concurrency": 3 });
    let changed = gateway.put("/destinations/chat", &spec).await.expect(200);
    assert_no_secret(&changed.body, "changed destination");
    assert_eq!(changed.json()["url"], "https://discord.com/api/webhooks/12/•••");
    update_outdated_source(gateway).await;
    let deleted = json!({ "name": "deleted", "provider": "stripe", "secrets": ["CANARY-deleted-0123456789"] });
    post("/sources", deleted).await;
    gateway.delete("/sources/deleted").await.expect(204);
}

/// Gives the source the secret of the quarantined request.
async fn update_outdated_source(gateway: &Gateway) {
    let source = json!({ "name": "outdated", "verify": { "token": { "header": "x-gate" } },
        "secrets": ["CANARY-right-0123456789"], "on_refusal": "quarantine" });
    gateway.put("/sources/outdated", &source).await.expect(200);
}

#[tokio::test]
async fn configured_secrets_are_found_in_no_file_log_answer_or_page() {
    let sink = Sink::with_script(|_, _| Reply::status(500).body("no")).await;
    let mut gateway = Gateway::builder().settings(&settings(&sink)).start().await;
    send_requests(&gateway).await;
    configure(&gateway).await;
    gateway.wait_until_idle().await;
    eventually(WAIT_LIMIT, || async {
        let refused = gateway.get("/requests?outcome=refused").await.json();
        (refused["data"].as_array().unwrap().len() >= 3).then_some(())
    })
    .await;

    // The secrets are used.
    let sent = sink.requests();
    let web = sent.iter().find(|request| request.path.contains("/key/")).unwrap();
    assert!(
        web.path.contains("CANARY-path") && web.headers["authorization"] == "Bearer CANARY-bearer"
    );
    assert!(!web.headers.contains_key("x-gate"), "the source's own secret is not forwarded");

    let viewer = gateway.create_token("viewer").await;
    for path in readable_paths(&gateway).await {
        for token in [TOKEN, &viewer] {
            let answer = gateway.api_as(token, Method::GET, &path, None).await;
            assert_no_secret(&answer.body, &path);
        }
    }
    let bearer = format!("Bearer {viewer}");
    let metrics =
        gateway.request(Method::GET, "/metrics", &[("authorization", bearer.as_bytes())], "").await;
    assert_no_secret(&metrics.expect(200).body, "metrics");
    let dashboard = DashboardClient::with_token(&gateway, &viewer).await;
    let events = gateway.get("/events").await.json();
    let mut pages: Vec<String> = [
        "/",
        "/events",
        "/requests",
        "/dead-letters",
        "/dead-letters/all",
        "/sources",
        "/destinations",
    ]
    .map(str::to_owned)
    .to_vec();
    pages.extend(["web", "team", "oauth", "chat"].map(|name| format!("/destinations/{name}")));
    pages.extend(["gate", "evo", "outdated"].map(|name| format!("/sources/{name}")));
    let ids = events["data"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap());
    pages.extend(ids.map(|id| format!("/events/{id}")));
    for path in pages {
        let page = dashboard.page(&path).await;
        assert_eq!(page.status, 200, "{path}");
        assert_no_secret(page.html.as_bytes(), &path);
    }
    let backup = gateway.folder().join("backup.db");
    let backup = backup.to_str().unwrap();
    for args in [
        vec!["export"],
        vec!["events", "list", "--json"],
        vec!["requests", "list"],
        vec!["config", "show"],
        vec!["doctor"],
        vec!["backup", backup, "--data", "data"],
    ] {
        let output = gateway.cli(&args).await;
        assert_no_secret((output.stdout + &output.stderr).as_bytes(), &format!("{args:?}"));
    }
    assert_no_secret(&fs::read(backup).unwrap(), "backup");

    assert_no_secret_in_files(&gateway.folder().join("data"));
    let log = gateway.log();
    gateway.restart().await;
    assert_no_secret_in_files(&gateway.folder().join("data"));
    gateway.terminate().await;
    assert_no_secret_in_files(&gateway.folder().join("data"));
    assert_no_secret((log + &gateway.log()).as_bytes(), "log");

    // The quarantined request still has its secret, and is accepted with it.
    gateway.restart().await;
    update_outdated_source(&gateway).await;
    let quarantined = gateway.get("/quarantine").await.json();
    let id = quarantined["data"][0]["id"].as_str().unwrap();
    gateway.post(&format!("/quarantine/{id}/release"), &json!({})).await.expect(200);
}

#[tokio::test]
async fn path_of_an_accepted_request_is_masked_for_viewers_only() {
    let gateway = Gateway::start().await;
    let id = gateway.post_accepted("demo/tenant-secret/messages-upsert", "{}").await;
    let (viewer, operator) =
        (gateway.create_token("viewer").await, gateway.create_token("operator").await);
    for (token, expected) in
        [(&viewer, "/•••/messages-upsert"), (&operator, "/tenant-secret/messages-upsert")]
    {
        let get =
            async |path: &str| gateway.api_as(token, Method::GET, path, None).await.expect(200);
        assert_eq!(get(&format!("/events/{id}")).await.json()["request"]["path"], expected);
        assert_eq!(get("/requests").await.json()["data"][0]["path"], expected);
        for format in ["csv", "ndjson"] {
            let exported = get(&format!("/requests?format={format}")).await.text();
            assert!(exported.contains(expected), "{exported}");
        }
    }
    let dashboard = DashboardClient::with_token(&gateway, &viewer).await;
    for path in ["/requests", &format!("/events/{id}")] {
        let page = dashboard.page(path).await;
        assert!(page.status == 200 && !page.html.contains("tenant-secret"), "{path}");
    }
}

#[tokio::test]
async fn key_file_in_the_data_folder_is_private_and_not_in_a_backup() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::builder().settings(&settings(&sink)).start().await;
    let data = gateway.folder().join("data");
    let key = data.join("secret.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let doctor = gateway.cli(&["doctor", "--data", "data", "--json"]).await;
    let finding = doctor.stdout.lines().find(|line| line.contains("secret key")).unwrap();
    assert!(
        finding.contains("\"level\":\"ok\"") && finding.contains("secret-key rotate"),
        "{finding}"
    );

    let backup = gateway.cli(&["backup", "backup.db", "--data", "data"]).await;
    assert_eq!(backup.code, Some(0), "{}", backup.stderr);
    let text = fs::read_to_string(&key).unwrap();
    let copied = fs::read(gateway.folder().join("backup.db")).unwrap();
    assert!(!copied.windows(64).any(|window| window == text.trim().as_bytes()));
    gateway.terminate().await;

    // On another machine.
    let other = tempfile::tempdir().unwrap();
    let env = [("SUREHOOK_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
    let from = gateway.folder().join("backup.db");
    let restored =
        run_surehook(other.path(), &["restore", from.to_str().unwrap(), "--data", "data"], &env)
            .await;
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    assert!(restored.stderr.contains("secret key"), "{}", restored.stderr);
    let serve = ["serve", "--data", "data", "--listen", "127.0.0.1:0"];
    let refused = run_surehook(other.path(), &serve, &env).await;
    assert_eq!(refused.code, Some(78), "{}", refused.stderr);
    assert!(refused.stderr.contains("secret_key_file"), "{}", refused.stderr);
    let listed = run_surehook(other.path(), &["events", "list", "--data", "data"], &env).await;
    assert_ne!(listed.code, Some(0));
    assert!(listed.stderr.contains("secret key"), "{}", listed.stderr);
    let with_key = [env[0].clone(), ("SUREHOOK_SECRET_KEY".to_owned(), text.trim().to_owned())];
    let listed = run_surehook(other.path(), &["events", "list", "--data", "data"], &with_key).await;
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
}

#[tokio::test]
async fn gateway_moves_to_an_external_key_and_refuses_another() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::builder().settings(&settings(&sink)).start().await;
    let rotate = ["secret-key", "rotate", "--data", "data", "--new-key-file", "external.key"];
    let running = gateway.cli(&rotate).await;
    assert!(
        running.code != Some(0) && running.stderr.contains("Stop the gateway"),
        "{}",
        running.stderr
    );
    gateway.terminate().await;

    let rotated = gateway.cli(&rotate).await;

    assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
    assert!(rotated.stderr.contains("secret_key_file = \"external.key\""), "{}", rotated.stderr);
    let data = gateway.folder().join("data");
    assert!(!data.join("secret.key").exists());
    let refused = gateway.try_restart().await.unwrap_err();
    assert!(refused.stderr.contains("is missing"), "{}", refused.stderr);
    gateway.set_env("SUREHOOK_SECRET_KEY_FILE", "external.key");
    gateway.restart().await;
    gateway.send_webhook("gate", &[("x-gate", "CANARY-gate-0123456789")], "{}").await.expect(200);
    gateway.terminate().await;

    gateway.remove_env("SUREHOOK_SECRET_KEY_FILE");
    gateway.set_env("SUREHOOK_SECRET_KEY", &"0b".repeat(32));
    let wrong = gateway.try_restart().await.unwrap_err();
    assert!(wrong.stderr.contains("but the key given is"), "{}", wrong.stderr);
    assert!(!wrong.stderr.contains("0b0b"), "{}", wrong.stderr);
    gateway.set_env("SUREHOOK_SECRET_KEY", "short");
    let invalid = gateway.try_restart().await.unwrap_err();
    assert!(invalid.stderr.contains("openssl rand -hex 32"), "{}", invalid.stderr);
    let key = fs::read_to_string(gateway.folder().join("external.key")).unwrap();
    gateway.set_env("SUREHOOK_SECRET_KEY", key.trim());
    gateway.restart().await;
    gateway.send_webhook("gate", &[("x-gate", "CANARY-gate-0123456789")], "{}").await.expect(200);
}

#[tokio::test]
async fn heavy_rotation_killed_at_any_moment_leaves_a_folder_that_opens() {
    let sink = Sink::ok().await;
    let mut gateway = Gateway::builder().settings(&settings(&sink)).start().await;
    gateway.terminate().await;
    let key_file = gateway.folder().join("data/secret.key");
    let rotate = ["secret-key", "rotate", "--data", "data"];
    let mut rotated = 0;
    for round in 0..20 {
        let before = fs::read_to_string(&key_file).ok();
        let mut process = Process::spawn(gateway.folder(), &rotate, &[]);
        tokio::time::sleep(Duration::from_millis(round * 8)).await;
        process.kill9();

        // Reads all specs.
        let listed = gateway.cli(&["events", "list", "--data", "data"]).await;
        assert_eq!(listed.code, Some(0), "round {round}: {}", listed.stderr);
        rotated += usize::from(before != fs::read_to_string(&key_file).ok());
    }
    let last = gateway.cli(&rotate).await;
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    gateway.restart().await;
    gateway.send_webhook("gate", &[("x-gate", "CANARY-gate-0123456789")], "{}").await.expect(200);
    assert_no_secret_in_files(&gateway.folder().join("data"));
    assert!(rotated < 20, "the first rotation is killed before it can complete");
}
