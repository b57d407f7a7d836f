//! Backups of a running gateway, and gateways started from a restored backup.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, route_settings},
    process::{CommandOutput, run_surehook},
    sink::{Reply, Sink},
};

/// Runs a command that needs no gateway.
async fn run(folder: &Path, args: &[&str]) -> CommandOutput {
    run_surehook(folder, args, &[]).await
}

#[track_caller]
fn json(output: &CommandOutput) -> Value {
    assert_eq!(output.code, Some(0), "{output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

fn utf8(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Senders that run until they are stopped, and the events acknowledged so far.
struct LoadGenerator {
    acknowledged: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<()>,
}

impl LoadGenerator {
    fn start(gateway: &Gateway) -> Self {
        let (acknowledged, stop) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let mut tasks = tokio::task::JoinSet::new();
        for sender in 0..8 {
            let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
            let (url, client) = (gateway.url("/in/in"), Client::new());
            tasks.spawn(async move {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    number += 1;
                    let body = format!("{{\"id\":\"{sender}-{number}\"}}");
                    let response = client.send(http::Method::POST, &url, &[], body).await.unwrap();
                    let id = response.expect(200).event_id();
                    acknowledged.lock().unwrap().push(id);
                }
            });
        }
        Self { acknowledged, stop, tasks }
    }

    fn acknowledged_events(&self) -> Vec<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    async fn wait_for(&self, count: usize) {
        eventually(WAIT_LIMIT, || async {
            (self.acknowledged_events().len() >= count).then_some(())
        })
        .await;
    }

    async fn finish(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// Copies the key, which is not part of a backup, to another machine.
fn copy_secret_key(gateway: &Gateway, to: &Path) {
    let file = "data/secret.key";
    fs::copy(gateway.folder().join(file), to.join(file)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_backup_under_load_contains_every_event_acknowledged_before_it() {
    let sink = Sink::ok().await;
    let settings = route_settings(&sink.url(), "");
    let gateway = Gateway::start_with(&settings).await;
    let load = LoadGenerator::start(&gateway);
    load.wait_for(1_000).await;

    let before = load.acknowledged_events();
    let made = json(&run(gateway.folder(), &["backup", "copy.db", "--json"]).await);
    let during = load.acknowledged_events().len() - before.len();
    // The gateway accepts events during and after the backup.
    load.wait_for(before.len() + during + 100).await;
    load.finish().await;

    assert!(made["events"].as_u64().unwrap() >= before.len() as u64, "{made}");
    let copy = gateway.folder().join("copy.db");
    let sum = fs::read_to_string(gateway.folder().join("copy.db.sha256")).unwrap();
    assert_eq!(sum, format!("{}  copy.db\n", made["sha256"].as_str().unwrap()));
    let other = tempfile::tempdir().unwrap();
    let data = other.path().join("data");
    let restored =
        json(&run(other.path(), &["restore", utf8(&copy), "--data", utf8(&data), "--json"]).await);
    assert_eq!(restored["events"], made["events"]);
    copy_secret_key(&gateway, other.path());
    let second = Gateway::builder().settings(&settings).start_in(other).await;
    for id in &before {
        second.event(id).await;
    }
    let stats = second
        .wait_for_stats(WAIT_LIMIT, |stats| stats["by_status"]["succeeded"] == stats["total"])
        .await;
    assert_eq!(stats["total"], made["events"]);
    // Dedup keys are part of the backup: a repeated webhook is still a duplicate.
    let again = second.send_webhook("in", &[], "{\"id\":\"0-1\"}").await.expect(200).json();
    assert_eq!(again["status"], "duplicate", "{again}");
}

#[tokio::test]
async fn in_flight_delivery_is_delivered_after_restore() {
    let sink = Sink::with_replies([Reply::Hang, Reply::status(200)]).await;
    let settings = route_settings(&sink.url(), "");
    let gateway = Gateway::start_with(&settings).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    sink.wait_for_requests(1).await;

    let made = json(&run(gateway.folder(), &["backup", "copy.db", "--json"]).await);

    assert_eq!(made["waiting"], 1, "{made}");
    let other = tempfile::tempdir().unwrap();
    let copy = gateway.folder().join("copy.db");
    let restored = run(other.path(), &["restore", utf8(&copy)]).await;
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(restored.stderr.contains("1 of them in progress"), "{restored:?}");
    copy_secret_key(&gateway, other.path());
    let second = Gateway::builder().settings(&settings).start_in(other).await;
    second.wait_for_delivery(&event, "succeeded").await;
    assert_eq!(sink.wait_for_requests(2).await[1].id(), event);
}

#[tokio::test]
async fn backup_and_restore_overwrite_only_with_force_and_keep_the_old_database() {
    let mut gateway = Gateway::start().await;
    let first = gateway.post_accepted("demo", r#"{"id":"a"}"#).await;
    let folder = gateway.folder().to_owned();
    json(&run(&folder, &["backup", "copy.db", "--json"]).await);
    let later = gateway.post_accepted("demo", r#"{"id":"b"}"#).await;

    let there = run(&folder, &["backup", "copy.db"]).await;
    let onto = run(&folder, &["backup", "data/surehook.db", "--force"]).await;
    let running = run(&folder, &["restore", "copy.db", "--force"]).await;
    gateway.kill9();
    let occupied = run(&folder, &["restore", "copy.db"]).await;
    let forced = json(&run(&folder, &["restore", "copy.db", "--force", "--json"]).await);

    for (name, output, hint) in [
        ("a backup is there", &there, "--force"),
        ("it is the original", &onto, "another name"),
        ("a gateway runs", &running, "Stop the gateway"),
        ("a database is there", &occupied, "--force"),
    ] {
        assert_eq!(output.code, Some(5), "case: {name}: {output:?}");
        assert!(output.stderr.contains(hint), "case: {name}: {output:?}");
    }
    // The replaced database can still be read.
    let replaced = forced["set_aside"].as_str().unwrap();
    let old = run(&folder, &["events", "show", &later, "--data", replaced]).await;
    assert_eq!(old.code, Some(0), "{old:?}");
    gateway.restart().await;
    gateway.event(&first).await;
    gateway.get(&format!("/events/{later}")).await.expect(404);
}

#[tokio::test]
async fn damaged_or_foreign_file_is_not_restored() {
    let gateway = Gateway::start().await;
    gateway.post_accepted("demo", r#"{"id":"a"}"#).await;
    let folder = gateway.folder();
    json(&run(folder, &["backup", "copy.db", "--json"]).await);
    let good = fs::read(folder.join("copy.db")).unwrap();
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle..middle + 64].fill(0xa5);
    fs::write(folder.join("flipped.db"), &flipped).unwrap();
    fs::copy(folder.join("copy.db.sha256"), folder.join("flipped.db.sha256")).unwrap();
    fs::write(folder.join("cut.db"), &good[..good.len() / 2]).unwrap();
    fs::write(folder.join("text.db"), "this is a text, and not a database at all").unwrap();

    for (name, file, code) in [
        ("not the file of the checksum", "flipped.db", 1),
        ("cut off", "cut.db", 1),
        ("no database", "text.db", 1),
        ("not there", "nothing.db", 4),
    ] {
        let output = run(folder, &["restore", file, "--data", "other"]).await;
        assert_eq!(output.code, Some(code), "case: {name}: {output:?}");
        assert!(output.stderr.contains("error: "), "case: {name}: {output:?}");
        assert!(!folder.join("other/surehook.db").exists(), "case: {name}");
    }
    let empty = run(folder, &["backup", "b.db", "--data", "nowhere"]).await;
    assert_eq!(empty.code, Some(4), "{empty:?}");
    assert!(!folder.join("b.db").exists() && !folder.join("b.db.part").exists());
}

#[tokio::test]
async fn serve_refuses_to_start_after_an_interrupted_restore() {
    let mut gateway = Gateway::start().await;
    let event = gateway.post_accepted("demo", r#"{"id":"a"}"#).await;
    let folder = gateway.folder().to_owned();
    json(&run(&folder, &["backup", "copy.db", "--json"]).await);
    gateway.kill9();
    // The state after a kill between moving the old files and renaming the new one.
    let data = folder.join("data");
    fs::write(data.join("restore-in-progress"), "").unwrap();
    fs::create_dir(data.join("replaced-1")).unwrap();
    for entry in fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()) {
        if utf8(&entry).contains("surehook.db") {
            fs::rename(&entry, data.join("replaced-1").join(entry.file_name().unwrap())).unwrap();
        }
    }

    let refused = run(&folder, &["serve", "--listen", "127.0.0.1:0"]).await;
    let again = run(&folder, &["restore", "copy.db"]).await;

    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("surehook restore"), "{refused:?}");
    assert_eq!(again.code, Some(0), "{again:?}");
    gateway.restart().await;
    gateway.event(&event).await;
}
