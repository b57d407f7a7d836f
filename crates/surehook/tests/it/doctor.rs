//! `surehook doctor`: what is well is said, what is not has a remedy and an exit code.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, route_settings},
    process::{CommandOutput, run_surehook},
};

/// All findings, by check; what is not well must say what to do.
fn findings(ran: &CommandOutput) -> Vec<(String, String, String)> {
    ran.stdout
        .lines()
        .map(|line| {
            let finding: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
            let is_well = finding["level"] == "ok";
            assert_eq!(finding["advice"].is_null(), is_well, "{finding}");
            (text("check"), text("level"), text("finding"))
        })
        .collect()
}

#[track_caller]
fn found(ran: &CommandOutput, check: &str, level: &str, part: &str) {
    let all = findings(ran);
    let there = all.iter().any(|(c, l, f)| c == check && l == level && f.contains(part));
    assert!(there, "no {level} {check} with `{part}` in {ran:?}");
}

async fn doctor(folder: &Path, more: &[&str]) -> CommandOutput {
    let mut args = vec!["doctor", "--json"];
    args.extend(more);
    run_surehook(folder, &args, &[]).await
}

#[tokio::test]
async fn doctor_reports_ok_with_and_without_a_running_gateway() {
    let mut gateway = Gateway::start().await;
    gateway.post_accepted("demo", "{}").await;
    // A message makes the outbox, which needs no route: each says itself where it goes.
    let message = json!({ "destination": "inbox", "body": {} });
    gateway.post("/messages", &message).await.expect(202);

    let server = gateway.url("");
    let token = gateway.token().to_owned();
    let beside = doctor(gateway.folder(), &["--server", &server, "--token", &token]).await;
    let people = run_surehook(gateway.folder(), &["doctor"], &[]).await;
    gateway.terminate().await;
    let after = doctor(gateway.folder(), &[]).await;

    assert_eq!(beside.code, Some(0), "{beside:?}");
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
        found(&beside, check, "ok", part);
    }
    assert_eq!(people.code, Some(0), "{people:?}");
    assert!(people.stdout.contains("ok    store"), "{people:?}");
    assert!(people.stderr.contains("0 failed, 0 warnings"), "{people:?}");
    assert_eq!(after.code, Some(0), "{after:?}");
    found(&after, "store", "ok", "not in use");
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

    let ran = doctor(folder, &["--probe", "--server", "http://127.0.0.1:1999"]).await;

    assert_eq!(ran.code, Some(8), "{ran:?}");
    found(&ran, "folder", "warn", "mode 755");
    found(&ran, "secrets", "warn", "MISSING_HERE");
    found(&ran, "routes", "warn", "lonely");
    found(&ran, "destination", "fail", "refused");
    found(&ran, "server", "fail", "cannot reach");
    assert!(!ran.stdout.contains("a-secret-of-the-gateway"), "{ran:?}");
    // Without --probe nobody is called, so nobody can refuse.
    let quiet = doctor(folder, &[]).await;
    found(&quiet, "destination", "ok", "127.0.0.1");
    // With another allowance the same address is out of bounds.
    fs::write(folder.join("other.toml"), settings).unwrap();
    let blocked = doctor(folder, &["--config", "other.toml", "--data", "data"]).await;
    found(&blocked, "destination", "fail", "127.0.0.1");
}

#[tokio::test]
async fn doctor_warns_about_a_sender_without_a_status_source() {
    let folder = tempfile::tempdir().unwrap();
    let sender = "[[destinations]]\nname = \"wa\"\nkind = \"whatsapp-cloud\"\naccount = { sender = \"1\", token = \"t\" }\n";
    let source =
        "[[sources]]\nname = \"statuses\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"s\"]\n";
    let file = folder.path().join("surehook.toml");
    fs::write(&file, sender).unwrap();
    let unheard = doctor(folder.path(), &[]).await;
    fs::write(&file, format!("{sender}{source}")).unwrap();
    let heard = doctor(folder.path(), &[]).await;

    found(&unheard, "statuses", "warn", "`wa`");
    assert!(!heard.stdout.contains("statuses of its messages"), "{heard:?}");
}

#[tokio::test]
async fn doctor_only_warns_about_certificates_from_missing_variables() {
    let folder = tempfile::tempdir().unwrap();
    let tls = r#"tls = { ca = "env:THEIR_CA", client_certificate = "env:OUR_CERT", client_key = "env:OUR_KEY" }"#;
    let settings = route_settings("https://93.184.216.34/", tls);
    fs::write(folder.path().join("surehook.toml"), settings).unwrap();

    let ran = doctor(folder.path(), &[]).await;

    for name in ["THEIR_CA", "OUR_CERT", "OUR_KEY"] {
        found(&ran, "secrets", "warn", name);
    }
    assert!(!ran.stdout.contains("tls."), "{ran:?}");
}

#[tokio::test]
async fn doctor_finds_damaged_database_and_invalid_settings() {
    let gateway = Gateway::start().await;
    for number in 0..200 {
        gateway.post_accepted("demo", format!("{{\"id\":\"{number}\"}}")).await;
    }
    let folder = gateway.folder();
    // A restored one has no log yet that could cover the damage.
    for args in [&["backup", "copy.db"][..], &["restore", "copy.db", "--data", "hurt"]] {
        let ran = run_surehook(folder, args, &[]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let file = folder.join("hurt/surehook.db");
    let mut bytes = fs::read(&file).unwrap();
    let from = bytes.len() / 2;
    bytes[from..].fill(0xa5);
    fs::write(&file, bytes).unwrap();
    fs::write(folder.join("surehook.toml"), "listem = \"x\"").unwrap();

    let ran = doctor(folder, &["--data", "hurt"]).await;

    assert_eq!(ran.code, Some(8), "{ran:?}");
    found(&ran, "settings", "fail", "listem");
    let bad = findings(&ran);
    let told = bad
        .iter()
        .any(|(check, level, _)| (check == "integrity" || check == "store") && level == "fail");
    assert!(told, "{ran:?}");
    let nowhere = doctor(folder, &["--config", "none.toml", "--data", "nowhere"]).await;
    assert_eq!(nowhere.code, Some(8), "{nowhere:?}");
    found(&nowhere, "folder", "warn", "nowhere");
}

#[tokio::test]
async fn doctor_warns_about_risky_source_settings() {
    let folder = tempfile::tempdir().unwrap();
    let twilio =
        "[[sources]]\nname = \"sms\"\nprovider = \"twilio\"\nsecrets = [\"0123456789abcdef\"]\n";
    let go = "[[sources]]\nname = \"go\"\nprovider = \"evolution-go\"\nsecrets = [\"YQ==/+\"]\n";
    fs::write(folder.path().join("surehook.toml"), format!("{twilio}{go}")).unwrap();
    let told = doctor(folder.path(), &[]).await;
    found(&told, "verify", "warn", "`sms`: the signature covers the address");
    found(&told, "verify", "warn", "`go`: secret 1 cannot stand in an address");

    let known = format!("public_url = \"https://hooks.example.com\"\n{twilio}");
    fs::write(folder.path().join("surehook.toml"), known).unwrap();
    let told = doctor(folder.path(), &[]).await;
    assert!(!told.stdout.contains("covers the address"), "{told:?}");
}
