//! `surehook init` and `surehook demo`: the first minutes with a gateway.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use surehook_webhooks::provider::preset_names;

use crate::support::{
    WAIT_LIMIT, eventually, free_port,
    process::{Process, run_surehook},
};

#[tokio::test]
async fn generated_settings_of_every_provider_pass_the_check() {
    let folder = tempfile::tempdir().unwrap();
    for provider in preset_names() {
        let file = format!("{provider}.toml");
        let written =
            run_surehook(folder.path(), &["init", provider, "--output", &file], &[]).await;
        assert_eq!(written.code, Some(0), "{written:?}");
        assert!(written.stdout.contains("/in/"), "{written:?}");
        assert!(written.stdout.contains("docs/guides/providers/"), "{written:?}");

        let checked = run_surehook(folder.path(), &["config", "check", &file], &[]).await;
        assert_eq!(checked.code, Some(0), "{provider}: {checked:?}");
        let text = fs::read_to_string(folder.path().join(&file)).unwrap();
        assert!(text.starts_with("# ") && text.contains("env:"), "{text}");
        assert!(!text.contains("**") && !text.contains("]("), "{provider}: {text}");
    }
}

#[tokio::test]
async fn init_refuses_to_overwrite_and_to_guess() {
    let folder = tempfile::tempdir().unwrap();
    let init =
        async |args: &[&str]| run_surehook(folder.path(), &[&["init"], args].concat(), &[]).await;
    let url = "https://app.example.com/my-hook";
    let written = init(&["stripe", "--to", url, "--json"]).await;
    let answer: Value = serde_json::from_str(&written.stdout).unwrap();
    assert_eq!(answer["variables"], serde_json::json!(["STRIPE_WEBHOOK_SECRET"]));
    assert_eq!(answer["path"], "/in/stripe");
    let path = folder.path().join("surehook.toml");
    let before = fs::read_to_string(&path).unwrap();
    assert!(before.contains(&format!("url = \"{url}\"")), "{before}");

    let again = init(&["github"]).await;
    assert_eq!(again.code, Some(5), "{again:?}");
    assert!(again.stderr.contains("not overwritten"), "{again:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let typed_wrong = init(&["strype", "--output", "other.toml"]).await;
    assert!(typed_wrong.stderr.contains("Did you mean `stripe`"), "{typed_wrong:?}");
    let unnamed = init(&["--output", "other.toml"]).await;
    assert!(unnamed.code == Some(5) && unnamed.stderr.contains("not a terminal"), "{unnamed:?}");
    assert!(!folder.path().join("other.toml").exists());
    let listed = init(&["--list"]).await;
    assert_eq!(listed.stdout.lines().count(), preset_names().len(), "{listed:?}");
}

fn start_demo(folder: &Path, args: &[&str]) -> (Process, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let args = [&["demo", "--listen", &address], args].concat();
    let env = [("TMPDIR".to_owned(), folder.display().to_string())];
    (Process::spawn(folder, &args, &env), address)
}

async fn wait_for_output(demo: &Process, text: &str) {
    eventually(WAIT_LIMIT, || async { demo.stdout.text().contains(text).then_some(()) }).await;
}

#[tokio::test]
async fn demo_has_traffic_duplicates_refusals_and_an_outage_and_stops_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let (mut demo, address) = start_demo(folder.path(), &["--data", "kept"]);
    wait_for_output(&demo, "The outage of `crm` begins.").await;
    assert!(demo.stdout.text().contains(&format!("http://{address}/")), "{:?}", demo.stdout.text());
    // In the outage deliveries fail and the circuit opens.
    tokio::time::timeout(WAIT_LIMIT, wait_for_output(&demo, "is back.")).await.unwrap();
    demo.signal(Signal::INT);
    assert_eq!(demo.wait_for_exit().await.code(), Some(0), "{}", demo.stderr.text());
    assert!(std::net::TcpStream::connect(&address).is_err(), "the gateway has stopped");

    let read = async |args: &[&str]| -> Vec<Value> {
        let args = [args, &["--data", "kept/data", "--json", "--limit", "1000"]].concat();
        let output = run_surehook(folder.path(), &args, &[]).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let events = read(&["events", "list"]).await;
    for source in ["whatsapp", "stripe", "github"] {
        let mut of_source = events.iter().filter(|event| event["source"] == source);
        assert!(of_source.next().is_some(), "no event of {source}");
    }
    let is_repeated = |event: &&Value| event["duplicate_count"].as_u64() > Some(0);
    assert!(events.iter().any(|event| is_repeated(&event)), "no duplicate");
    let refused = read(&["requests", "list"]).await;
    assert!(refused.iter().any(|request| request["reason"] == "mismatch"), "nothing was forged");
}

#[tokio::test]
async fn demo_removes_its_temporary_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (mut demo, _) = start_demo(folder.path(), &[]);
    wait_for_output(&demo, "The demo gateway is ready").await;
    let count = || fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(count(), 1);
    demo.signal(Signal::TERM);
    assert_eq!(demo.wait_for_exit().await.code(), Some(0), "{}", demo.stderr.text());
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn demo_reports_why_the_gateway_did_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut demo = Process::spawn(
        folder.path(),
        &["demo", "--listen", &address],
        &[("TMPDIR".to_owned(), folder.path().display().to_string())],
    );
    let status = tokio::time::timeout(Duration::from_secs(60), demo.wait_for_exit()).await.unwrap();
    assert_eq!(status.code(), Some(78));
    assert!(demo.stderr.text().contains("--listen"), "{}", demo.stderr.text());
}
