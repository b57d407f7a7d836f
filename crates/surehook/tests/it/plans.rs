//! What is configured as a file: said before it is done, done, and written out again.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, route_settings};

/// Two routes between the same ends, secrets from the environment, every kind of verification.
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

[[routes]]
from = "signed"
to = "crm"
filter = '.type == "a\"b"'

[[routes]]
from = "signed"
to = "crm"
filter = ".other"
"#;

async fn with_full() -> Gateway {
    Gateway::builder().env("TEST_SECRET", "s3cret-s3cret-s3cret").settings(FULL).start().await
}

#[tokio::test]
async fn a_difference_is_said_and_has_its_exit_code() {
    let gateway = Gateway::start_with(&route_settings("https://example.com/old", "")).await;
    let file = gateway.folder().join("next.toml");
    let next = route_settings("https://example.com/new", "concurrency = 3");
    std::fs::write(&file, format!("{next}\n[[sources]]\nname = \"two\"\nverify = \"none\""))
        .unwrap();

    for args in [&["diff", "next.toml"][..], &["apply", "next.toml", "--dry-run"]] {
        let said = gateway.cli(args).await;
        assert_eq!(said.code, Some(9), "{said:?}");
        for line in [
            "+ source two\n",
            "~ destination out\n",
            "    concurrency: 32 → 3\n",
            "    url: \"https://example.com/old\" → \"https://example.com/new\"\n",
        ] {
            assert!(said.stdout.contains(line), "{line}: {said:?}");
        }
        assert!(said.stderr.contains("1 to create, 1 to update, 0 to delete"), "{said:?}");
        assert!(!said.stderr.contains("error"), "{said:?}");
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
    // What would be refused is refused before it is tried.
    std::fs::write(&file, "[[routes]]\nfrom = \"in\"\nto = \"nobody\"").unwrap();
    let wrong = gateway.cli(&["diff", "next.toml"]).await;
    assert_eq!(wrong.code, Some(5), "{wrong:?}");
    assert!(wrong.stderr.contains("nobody"), "{wrong:?}");
}

#[tokio::test]
async fn what_a_file_does_not_name_goes_only_when_asked() {
    let gateway = Gateway::start().await;
    std::fs::write(gateway.folder().join("all.toml"), route_settings("https://example.com/", ""))
        .unwrap();

    let kept = gateway.cli(&["apply", "all.toml"]).await;
    let said = gateway.cli(&["diff", "all.toml", "--prune"]).await;
    let there = gateway.get("/sources/demo").await;
    let pruned = gateway.cli(&["apply", "all.toml", "--prune"]).await;

    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!((said.code, there.status.as_u16()), (Some(9), 200), "{said:?}");
    for line in ["- route demo to inbox\n", "- source demo\n", "- destination inbox\n"] {
        assert!(said.stdout.contains(line) && pruned.stdout.contains(line), "{said:?} {pruned:?}");
    }
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    gateway.get("/sources/demo").await.expect(404);
    gateway.get("/sources/in").await.expect(200);
}

#[tokio::test]
async fn an_export_applied_again_changes_nothing() {
    let gateway = with_full().await;
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
        assert_eq!(folder.stdout, exported.stdout, "the folder says what the gateway says");
    }
}

#[tokio::test]
async fn an_export_hides_what_was_written_out_and_says_so() {
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
    // A change of a secret is told, and the secret is not.
    let changed = route_settings("https://example.com/", &literal.replace('2', "3"));
    std::fs::write(gateway.folder().join("changed.toml"), changed).unwrap();
    let said = gateway.cli(&["diff", "changed.toml"]).await;
    assert_eq!(said.code, Some(9), "{said:?}");
    assert!(said.stdout.contains("headers: secret changed"), "{said:?}");
    assert!(!said.stdout.contains("hunter"), "{said:?}");
}
