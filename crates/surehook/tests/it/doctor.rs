//! `surehook doctor`: every problem has advice and an exit code.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, route_settings},
    process::{CommandOutput, run_surehook},
};

/// All findings as check, level and text; asserts that every problem has advice.
fn findings(output: &CommandOutput) -> Vec<(String, String, String)> {
    output
        .stdout
        .lines()
        .map(|line| {
            let finding: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
            let is_ok = finding["level"] == "ok";
            // A check that passed may have a recommendation.
            assert!(is_ok || !finding["advice"].is_null(), "{finding}");
            (text("check"), text("level"), text("finding"))
        })
        .collect()
}

#[track_caller]
fn assert_finding(output: &CommandOutput, check: &str, level: &str, part: &str) {
    let all = findings(output);
    let is_found = all.iter().any(|(c, l, f)| c == check && l == level && f.contains(part));
    assert!(is_found, "no {level} {check} with `{part}` in {output:?}");
}

async fn run_doctor(folder: &Path, options: &[&str]) -> CommandOutput {
    let mut args = vec!["doctor", "--json"];
    args.extend(options);
    run_surehook(folder, &args, &[]).await
}

#[tokio::test]
async fn doctor_reports_ok_with_and_without_a_running_gateway() {
    let mut gateway = Gateway::start().await;
    gateway.post_accepted("demo", "{}").await;
    // A message creates the outbox source, which needs no route: each message names its destination.
    let message = json!({ "destination": "inbox", "body": {} });
    gateway.post("/messages", &message).await.expect(202);

    let server = gateway.url("");
    let token = gateway.token().to_owned();
    let while_running =
        run_doctor(gateway.folder(), &["--server", &server, "--token", &token]).await;
    let table = run_surehook(gateway.folder(), &["doctor"], &[]).await;
    gateway.terminate().await;
    let stopped = run_doctor(gateway.folder(), &[]).await;

    assert_eq!(while_running.code, Some(0), "{while_running:?}");
    for (check, part) in [
        ("settings", "surehook.toml"),
        ("folder", "is private"),
        ("disk", "MiB free"),
        ("fsync", "ms"),
        ("store", "in use by a gateway"),
        ("schema", "version"),
        ("integrity", "passed"),
        ("log", "MiB"),
        ("clock", "20"),
        ("configuration", "2 sources"),
        ("server", "is ready"),
        ("token", "accepted"),
    ] {
        assert_finding(&while_running, check, "ok", part);
    }
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.contains("ok    store"), "{table:?}");
    assert!(table.stderr.contains("0 failed, 0 warnings"), "{table:?}");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_finding(&stopped, "store", "ok", "not in use");
}

#[tokio::test]
async fn doctor_names_each_problem_with_advice() {
    let settings = format!(
        "{}\n[[sources]]\nname = \"lonely\"\nverify = {{ token = {{ header = \"x-t\" }} }}\nsecrets = [\"env:MISSING_HERE\"]",
        route_settings("http://127.0.0.1:1999/", "")
    );
    let mut gateway = Gateway::builder()
        .env("MISSING_HERE", "a-secret-of-the-gateway")
        .settings(&settings)
        .start()
        .await;
    gateway.kill9();
    let folder = gateway.folder();
    fs::set_permissions(folder.join("data"), fs::Permissions::from_mode(0o755)).unwrap();

    let output = run_doctor(folder, &["--probe", "--server", "http://127.0.0.1:1999"]).await;

    assert_eq!(output.code, Some(8), "{output:?}");
    assert_finding(&output, "folder", "warn", "mode 755");
    assert_finding(&output, "secrets", "warn", "MISSING_HERE");
    assert_finding(&output, "routes", "warn", "lonely");
    assert_finding(&output, "destination", "fail", "refused");
    assert_finding(&output, "server", "fail", "cannot reach");
    assert!(!output.stdout.contains("a-secret-of-the-gateway"), "{output:?}");
    // Without --probe no connection is made, so none can be refused.
    let without_probe = run_doctor(folder, &[]).await;
    assert_finding(&without_probe, "destination", "ok", "127.0.0.1");
    // Without `allow_networks` the same address is blocked.
    fs::write(folder.join("other.toml"), settings).unwrap();
    let blocked = run_doctor(folder, &["--config", "other.toml", "--data", "data"]).await;
    assert_finding(&blocked, "destination", "fail", "127.0.0.1");
}

#[tokio::test]
async fn doctor_warns_about_a_sender_without_a_status_source() {
    let folder = tempfile::tempdir().unwrap();
    let sender = "[[destinations]]\nname = \"wa\"\nkind = \"whatsapp-cloud\"\naccount = { sender = \"1\", token = \"t\" }\n";
    let source = "[[sources]]\nname = \"statuses\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"an-app-secret-of-meta\"]\n";
    let file = folder.path().join("surehook.toml");
    fs::write(&file, sender).unwrap();
    let without_source = run_doctor(folder.path(), &[]).await;
    fs::write(&file, format!("{sender}{source}")).unwrap();
    let with_source = run_doctor(folder.path(), &[]).await;

    assert_finding(&without_source, "statuses", "warn", "`wa`");
    assert!(!with_source.stdout.contains("statuses of its messages"), "{with_source:?}");
}

#[tokio::test]
async fn doctor_only_warns_about_certificates_from_missing_variables() {
    let folder = tempfile::tempdir().unwrap();
    let tls = r#"tls = { ca = "env:THEIR_CA", client_certificate = "env:OUR_CERT", client_key = "env:OUR_KEY" }"#;
    let settings = route_settings("https://93.184.216.34/", tls);
    fs::write(folder.path().join("surehook.toml"), settings).unwrap();

    let output = run_doctor(folder.path(), &[]).await;

    for name in ["THEIR_CA", "OUR_CERT", "OUR_KEY"] {
        assert_finding(&output, "secrets", "warn", name);
    }
    assert!(!output.stdout.contains("tls."), "{output:?}");
}

#[tokio::test]
async fn doctor_finds_damaged_database_and_invalid_settings() {
    let gateway = Gateway::start().await;
    for number in 0..200 {
        gateway.post_accepted("demo", format!("{{\"id\":\"{number}\"}}")).await;
    }
    let folder = gateway.folder();
    // A restored database has no write-ahead log that could hide the damage.
    for args in [&["backup", "copy.db"][..], &["restore", "copy.db", "--data", "damaged"]] {
        let output = run_surehook(folder, args, &[]).await;
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    let file = folder.join("damaged/surehook.db");
    let mut bytes = fs::read(&file).unwrap();
    let from = bytes.len() / 2;
    bytes[from..].fill(0xa5);
    fs::write(&file, bytes).unwrap();
    fs::write(folder.join("surehook.toml"), "listem = \"x\"").unwrap();

    let output = run_doctor(folder, &["--data", "damaged"]).await;

    assert_eq!(output.code, Some(8), "{output:?}");
    assert_finding(&output, "settings", "fail", "listem");
    let all = findings(&output);
    let is_reported = all
        .iter()
        .any(|(check, level, _)| (check == "integrity" || check == "store") && level == "fail");
    assert!(is_reported, "{output:?}");
    let without_folder = run_doctor(folder, &["--config", "none.toml", "--data", "nowhere"]).await;
    assert_eq!(without_folder.code, Some(8), "{without_folder:?}");
    assert_finding(&without_folder, "folder", "warn", "nowhere");
}

#[tokio::test]
async fn doctor_warns_about_risky_source_settings() {
    let folder = tempfile::tempdir().unwrap();
    let twilio =
        "[[sources]]\nname = \"sms\"\nprovider = \"twilio\"\nsecrets = [\"0123456789abcdef\"]\n";
    let go = "[[sources]]\nname = \"go\"\nprovider = \"evolution-go\"\nsecrets = [\"YQ==/+\"]\nallow_short_secrets = true\n";
    fs::write(folder.path().join("surehook.toml"), format!("{twilio}{go}")).unwrap();
    let output = run_doctor(folder.path(), &[]).await;
    assert_finding(&output, "configuration", "fail", "source `sms`: `public_url` is missing");
    assert_finding(&output, "verify", "warn", "`go`: secret 1 cannot be part of a URL");

    let with_public_url = format!("public_url = \"https://hooks.example.com\"\n{twilio}");
    fs::write(folder.path().join("surehook.toml"), with_public_url).unwrap();
    let output = run_doctor(folder.path(), &[]).await;
    assert!(!output.stdout.contains("public_url"), "{output:?}");
}
