//! CLI: `send-test`, read-only commands on a data folder, `config`, completions, man pages, colors.

use std::fs;

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, route_settings},
    process::run_surehook,
};

const SIGNED: &str = r#"
[[sources]]
name = "stripe-like"
verify = { hmac = { header = "x-sig", template = "{timestamp}.{body}", signature_param = "v1", timestamp_param = "t" } }
secrets = ["env:THE_SECRET"]

[[sources]]
name = "standard"
verify = { hmac = { header = "webhook-signature", prefix = "v1,", encoding = "base64", template = "{id}.{timestamp}.{body}", timestamp_header = "webhook-timestamp", id_header = "webhook-id" } }
secrets = ["written-out-secret"]

[[sources]]
name = "basic"
verify = { basic = { user = "ada" } }
secrets = ["lovelace-lovelace"]
"#;

#[tokio::test]
async fn send_test_signs_event_for_its_source() {
    let gateway =
        Gateway::builder().env("THE_SECRET", "s3cret-s3cret-s3cret").settings(SIGNED).start().await;
    let server = vec![
        ("SUREHOOK_SERVER".to_owned(), gateway.url("")),
        ("SUREHOOK_TOKEN".to_owned(), gateway.token().to_owned()),
    ];
    let mut with_secret = server.clone();
    with_secret.push(("THE_SECRET".to_owned(), "s3cret-s3cret-s3cret".to_owned()));

    let env = run_surehook(gateway.folder(), &["send-test", "stripe-like"], &with_secret).await;
    let args = ["send-test", "standard", "--secret", "written-out-secret", "--json"];
    let output = run_surehook(gateway.folder(), &args, &server).await;
    let args = ["send-test", "basic", "--secret", "lovelace-lovelace", "--count", "2", "--dup"];
    let twice = run_surehook(gateway.folder(), &args, &server).await;

    assert_eq!(env.code, Some(0), "{env:?}");
    let id = env.stdout.trim_end().strip_prefix("200  accepted  ").unwrap();
    assert!(gateway.event(id).await["key"].as_str().unwrap().starts_with("test_"));
    assert_eq!(output.code, Some(0), "{output:?}");
    let response: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(response["answer"]["status"], "accepted", "{output:?}");
    let statuses: Vec<&str> =
        twice.stdout.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(statuses, ["accepted", "duplicate", "accepted", "duplicate"], "{twice:?}");

    for (name, args, code, expected) in [
        ("secret not known", &["send-test", "standard"][..], 5, "--secret"),
        ("wrong secret", &["send-test", "basic", "--secret", "guess"], 5, "--secret"),
        ("no such source", &["send-test", "absent"], 4, "No such source"),
        (
            "no such file",
            &["send-test", "basic", "--secret", "x", "--body", "no"],
            1,
            "cannot read",
        ),
    ] {
        let output = run_surehook(gateway.folder(), args, &server).await;
        assert_eq!(output.code, Some(code), "case: {name}: {output:?}");
        assert!(output.stderr.contains(expected), "case: {name}: {output:?}");
    }
    fs::write(gateway.folder().join("body.json"), "{\"id\":\"mine\"}").unwrap();
    let args = ["send-test", "basic", "--secret", "lovelace-lovelace", "--body", "body.json"];
    let own = run_surehook(gateway.folder(), &args, &server).await;
    let id = own.stdout.trim_end().strip_prefix("200  accepted  ").unwrap();
    assert_eq!(gateway.event(id).await["key"], "mine");
}

#[tokio::test]
async fn read_only_commands_work_on_data_folder_without_gateway() {
    let mut gateway =
        Gateway::start_with(&route_settings("http://127.0.0.1:1999/", "retry = \"quick\"")).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let delivery = gateway.event(&event).await["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let folder = gateway.folder().to_owned();

    for round in ["running", "killed", "stopped"] {
        for args in [
            &["events", "list"][..],
            &["events", "list", "--source", "in", "--key", "a"],
            &["events", "show", &event],
            &["dlq", "list"],
            &["dlq", "show", &delivery],
            &["dlq", "stats"],
            &["export"],
        ] {
            let mut args = args.to_vec();
            args.extend(["--data", "data", "--json"]);
            let output = run_surehook(&folder, &args, &[]).await;
            assert_eq!(output.code, Some(0), "case: {round}: {args:?}: {output:?}");
            let is_exempt = args.contains(&"dlq") || args.contains(&"export");
            assert!(
                is_exempt || output.stdout.contains(&event),
                "case: {round}: {args:?}: {output:?}"
            );
        }
        match round {
            "running" => gateway.kill9(),
            "killed" => {
                gateway.restart().await;
                gateway.terminate().await;
            }
            _ => {}
        }
    }
    for (name, args, code, expected) in [
        ("writes", &["dlq", "replay", &*delivery, "--data", "data"][..], 5, "read-only"),
        ("no folder", &["events", "list", "--data", "nowhere"], 4, "nowhere"),
        (
            "not there",
            &["events", "show", "evt_01h455vb4pex5vsknk084sn02q", "--data", "data"],
            4,
            "No such",
        ),
    ] {
        let output = run_surehook(&folder, args, &[]).await;
        assert_eq!(output.code, Some(code), "case: {name}: {output:?}");
        assert!(output.stderr.contains(expected), "case: {name}: {output:?}");
    }
}

#[tokio::test]
async fn config_show_prints_origins_and_config_check_reports_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "log = \"warn\"\nallow_networks = [\"127.0.0.0/8\"]\n[limits]\nconnections_max = 7\n{}",
        route_settings("http://127.0.0.1:1999/", "headers = { \"x-key\" = \"hunter2\" }")
    );
    fs::write(folder.path().join("surehook.toml"), &file).unwrap();
    let env = [("SUREHOOK_LISTEN".to_owned(), "127.0.0.1:1".to_owned())];

    let args = ["config", "show", "--origin", "--json", "--data", "d"];
    let shown = run_surehook(folder.path(), &args, &env).await;

    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(!shown.stdout.contains("hunter2") && shown.stdout.contains("•••"), "{shown:?}");
    let rows: Vec<Value> =
        shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (key, value, origin) in [
        ("data", "\"d\"", "--data"),
        ("listen", "\"127.0.0.1:1\"", "SUREHOOK_LISTEN"),
        ("log", "\"warn\"", "surehook.toml:1"),
        ("limits.connections_max", "7", "surehook.toml:4"),
        ("limits.body_bytes_max", "1048576", "default"),
        ("log_format", "\"auto\"", "default"),
    ] {
        let row = rows.iter().find(|row| row["key"] == key).unwrap();
        assert_eq!(
            (row["value"].to_string(), &row["origin"]),
            (value.to_owned(), &Value::from(origin))
        );
    }
    let good = run_surehook(folder.path(), &["config", "check", "surehook.toml"], &[]).await;
    assert_eq!(good.code, Some(0), "{good:?}");
    for (name, text, expected) in [
        ("unknown key", "listem = 1", "listem"),
        ("bad number", "[limits]\nconnections_max = 0", "connections_max"),
        ("unknown source and destination", "[[routes]]\nfrom = \"a\"\nto = \"b\"", "there is no"),
        ("no verification", "[[sources]]\nname = \"a\"", "verify"),
        ("private address", &*file.replace("allow_networks", "#"), "allow_networks"),
    ] {
        fs::write(folder.path().join("bad.toml"), text).unwrap();
        let bad = run_surehook(folder.path(), &["config", "check", "bad.toml"], &[]).await;
        assert_eq!(bad.code, Some(78), "case: {name}: {bad:?}");
        assert!(bad.stderr.contains(expected), "case: {name}: {bad:?}");
        assert!(bad.stderr.contains("error: bad.toml:"), "case: {name}: {bad:?}");
    }
    let unset = "[[sources]]\nname = \"a\"\nverify = { token = { header = \"x\" } }\nsecrets = [\"env:NOT_HERE\"]";
    fs::write(folder.path().join("unset.toml"), unset).unwrap();
    let warned = run_surehook(folder.path(), &["config", "check", "unset.toml"], &[]).await;
    assert_eq!(warned.code, Some(0), "{warned:?}");
    assert!(warned.stderr.contains("NOT_HERE"), "{warned:?}");
}

#[tokio::test]
async fn completions_and_man_pages_cover_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run_surehook(folder.path(), &["completions", shell], &[]).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(
            output.stdout.contains("send-test") && !output.stdout.contains("bench-sink"),
            "{shell}"
        );
    }
    let page = run_surehook(folder.path(), &["man"], &[]).await;
    assert!(page.stdout.contains(".TH surehook 1"), "{page:?}");
    let all = run_surehook(folder.path(), &["man", "pages"], &[]).await;
    assert_eq!(all.code, Some(0), "{all:?}");
    for name in ["surehook.1", "surehook-token-create.1", "surehook-events-list.1"] {
        assert!(folder.path().join("pages").join(name).is_file(), "{name}");
    }
    let unknown = run_surehook(folder.path(), &["completions", "tcsh"], &[]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}

#[tokio::test]
async fn color_and_quiet_options_control_output() {
    let gateway = Gateway::start().await;
    for number in 0..3 {
        gateway.post_accepted("demo", format!("{{\"id\":\"{number}\"}}")).await;
    }
    let base = [
        ("SUREHOOK_SERVER".to_owned(), gateway.url("")),
        ("SUREHOOK_TOKEN".to_owned(), gateway.token().to_owned()),
    ];
    let list = ["events", "list", "--limit", "1"];
    for (name, more, variable, has_color) in [
        ("not a terminal", None, None, false),
        ("always", Some("--color=always"), None, true),
        ("always beats NO_COLOR", Some("--color=always"), Some("NO_COLOR"), true),
        ("forced", None, Some("CLICOLOR_FORCE"), true),
        ("never beats force", Some("--color=never"), Some("CLICOLOR_FORCE"), false),
    ] {
        let args: Vec<&str> = list.into_iter().chain(more).collect();
        let mut env = base.to_vec();
        env.extend(variable.map(|variable| (variable.to_owned(), "1".to_owned())));
        let output = run_surehook(gateway.folder(), &args, &env).await;
        assert_eq!(output.stdout.contains('\u{1b}'), has_color, "case: {name}: {output:?}");
        // Notes go to stderr and never into the list on stdout.
        assert!(
            output.stderr.contains("--cursor") && !output.stdout.contains("--cursor"),
            "{output:?}"
        );
    }
    let args = ["-q", "events", "list", "--limit", "1"];
    let quiet = run_surehook(gateway.folder(), &args, &base).await;
    assert_eq!((quiet.code, &*quiet.stderr), (Some(0), ""), "{quiet:?}");
}
