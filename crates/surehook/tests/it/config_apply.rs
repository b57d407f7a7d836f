//! `surehook diff`, `apply` and `export`: configuration as a file.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, route_settings};

/// Two routes with the same source and destination, secrets from the environment, several verifications.
const FULL: &str = r#"
[[sources]]
name = "signed"
verify = { hmac = { header = ["x-a", "x-b"], prefix = "sha256=", tolerance = "1m" } }
secrets = ["env:TEST_SECRET"]
keys = ["header:x-id", "jq:.a | .b"]

[[sources]]
name = "plain"
verify = "none"

[[destinations]]
name = "crm"
url = "https://example.com/hook"
retry = { schedule = ["1s", "5m"], jitter = 0.5 }
headers = { "x-key" = "env:TEST_SECRET" }

[[destinations]]
name = "erp"
url = "https://example.com/erp"
retry = { initial_delay = "2s", jitter = "decorrelated" }

[[routes]]
from = "signed"
to = "crm"
filter = '.type == "a\"b"'

[[routes]]
from = "signed"
to = "crm"
filter = ".other"
"#;

async fn gateway_with_full_configuration() -> Gateway {
    Gateway::builder().env("TEST_SECRET", "s3cret-s3cret-s3cret").settings(FULL).start().await
}

#[tokio::test]
async fn diff_is_printed_and_sets_exit_code() {
    let gateway = Gateway::start_with(&route_settings("https://example.com/old", "")).await;
    let file = gateway.folder().join("next.toml");
    let next = route_settings("https://example.com/new", "concurrency = 3");
    std::fs::write(&file, format!("{next}\n[[sources]]\nname = \"two\"\nverify = \"none\""))
        .unwrap();

    for args in [&["diff", "next.toml"][..], &["apply", "next.toml", "--dry-run"]] {
        let diff = gateway.cli(args).await;
        assert_eq!(diff.code, Some(9), "{diff:?}");
        for line in [
            "+ source two\n",
            "~ destination out\n",
            "    concurrency: 32 → 3\n",
            "    url: \"https://example.com/old\" → \"https://example.com/new\"\n",
        ] {
            assert!(diff.stdout.contains(line), "{line}: {diff:?}");
        }
        assert!(diff.stderr.contains("1 to create, 1 to update, 0 to delete"), "{diff:?}");
        assert!(!diff.stderr.contains("error"), "{diff:?}");
        gateway.get("/sources/two").await.expect(404);
    }
    let json = gateway.cli(&["diff", "next.toml", "--json"]).await;
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &report["dry_run"]), (Some(9), &json!(true)), "{json:?}");

    let done = gateway.cli(&["apply", "next.toml"]).await;
    let after = gateway.cli(&["diff", "next.toml"]).await;

    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!((after.code, &*after.stdout), (Some(0), ""), "{after:?}");
    gateway.get("/sources/two").await.expect(200);
    // `diff` rejects an invalid file before anything is applied.
    std::fs::write(&file, "[[routes]]\nfrom = \"in\"\nto = \"absent\"").unwrap();
    let wrong = gateway.cli(&["diff", "next.toml"]).await;
    assert_eq!(wrong.code, Some(5), "{wrong:?}");
    assert!(wrong.stderr.contains("absent"), "{wrong:?}");
}

#[tokio::test]
async fn apply_removes_unlisted_items_only_with_prune() {
    let gateway = Gateway::start().await;
    std::fs::write(gateway.folder().join("all.toml"), route_settings("https://example.com/", ""))
        .unwrap();

    let applied = gateway.cli(&["apply", "all.toml"]).await;
    let diff = gateway.cli(&["diff", "all.toml", "--prune"]).await;
    let remaining = gateway.get("/sources/demo").await;
    let pruned = gateway.cli(&["apply", "all.toml", "--prune"]).await;

    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert_eq!((diff.code, remaining.status.as_u16()), (Some(9), 200), "{diff:?}");
    for line in ["- route demo to inbox\n", "- source demo\n", "- destination inbox\n"] {
        assert!(diff.stdout.contains(line) && pruned.stdout.contains(line), "{diff:?} {pruned:?}");
    }
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    gateway.get("/sources/demo").await.expect(404);
    gateway.get("/sources/in").await.expect(200);
}

#[tokio::test]
async fn applying_an_export_changes_nothing() {
    let gateway = gateway_with_full_configuration().await;
    for format in ["toml", "json"] {
        let file = format!("export.{format}");
        let exported = gateway.cli(&["export", "--format", format]).await;
        assert_eq!((exported.code, &*exported.stderr), (Some(0), ""), "{exported:?}");
        assert!(exported.stdout.contains("env:TEST_SECRET"), "{exported:?}");
        std::fs::write(gateway.folder().join(&file), &exported.stdout).unwrap();

        let again = gateway.cli(&["diff", &file, "--prune"]).await;

        assert_eq!((again.code, &*again.stdout), (Some(0), ""), "{format}: {again:?}");
        let lines = gateway.cli(&["export", "--json"]).await;
        assert_eq!(lines.stdout.lines().count(), 1, "{lines:?}");
        let folder = gateway.cli(&["export", "--format", format, "--data", "data"]).await;
        assert_eq!(
            folder.stdout, exported.stdout,
            "export of the folder equals export of the gateway"
        );
    }
}

#[tokio::test]
async fn export_masks_literal_secrets_and_lists_them() {
    let literal = "headers = { \"x-key\" = \"hunter2-hunter2\" }";
    let gateway = Gateway::start_with(&route_settings("https://example.com/", literal)).await;

    let exported = gateway.cli(&["export"]).await;

    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert!(!exported.stdout.contains("hunter2"), "{exported:?}");
    let place = "destinations.out.headers.x-key";
    assert!(exported.stdout.contains(&format!("#   {place}\n")), "{exported:?}");
    assert!(exported.stderr.contains(place), "{exported:?}");
    std::fs::write(gateway.folder().join("masked.toml"), &exported.stdout).unwrap();
    let refused = gateway.cli(&["apply", "masked.toml"]).await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("write the secret itself"), "{refused:?}");
    // A changed secret is reported without its value.
    let changed = route_settings("https://example.com/", &literal.replace('2', "3"));
    std::fs::write(gateway.folder().join("changed.toml"), changed).unwrap();
    let diff = gateway.cli(&["diff", "changed.toml"]).await;
    assert_eq!(diff.code, Some(9), "{diff:?}");
    assert!(diff.stdout.contains("headers: secret changed"), "{diff:?}");
    assert!(!diff.stdout.contains("hunter"), "{diff:?}");
}

#[tokio::test]
async fn apply_and_diff_take_the_file_of_serve_and_say_what_they_ignore() {
    let gateway = Gateway::start_with(&route_settings("https://example.com/old", "")).await;
    let file = std::fs::read_to_string(gateway.folder().join("surehook.toml")).unwrap();
    let next = file.replace("/old", "/new");
    std::fs::write(gateway.folder().join("next.toml"), format!("log = \"warn\"\n{next}")).unwrap();

    let unchanged = gateway.cli(&["diff", "surehook.toml"]).await;
    let diff = gateway.cli(&["diff", "next.toml"]).await;
    let applied = gateway.cli(&["apply", "next.toml"]).await;

    assert_eq!((unchanged.code, &*unchanged.stdout), (Some(0), ""), "{unchanged:?}");
    assert_eq!((diff.code, applied.code), (Some(9), Some(0)), "{diff:?} {applied:?}");
    for output in [&diff, &applied] {
        let note = "ignored, as settings of the server: allow_networks, log; `surehook reload`";
        assert!(output.stderr.contains(note), "{output:?}");
        assert!(output.stdout.contains("~ destination out\n"), "{output:?}");
    }
    let out = gateway.get("/destinations/out").await.expect(200).json();
    assert_eq!(out["url"], "https://example.com/new");
}

#[tokio::test]
async fn refused_file_is_named_with_line_and_column() {
    let gateway = Gateway::start().await;
    for (text, code, expected) in [
        ("[[sources]]\nname = 5", 78, "next.toml:2:8: sources.0.name: "),
        (
            "[[destinations]]\nname = \"out\"\nurl = \"ftp://example.com/\"",
            5,
            "next.toml:3:7: destination `out`: url: ",
        ),
    ] {
        std::fs::write(gateway.folder().join("next.toml"), text).unwrap();
        let refused = gateway.cli(&["apply", "next.toml"]).await;
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{refused:?}");
    }
}
