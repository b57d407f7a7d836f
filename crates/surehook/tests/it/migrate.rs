//! Moving a running gateway to PostgreSQL and back, with the real binary.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::Method;
use serde_json::{Value, json};
use surehook_test_servers::TestPostgres;

use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, SECRET_KEY, keyed_route_settings},
    process::{CommandOutput, Process, run_surehook_within},
    sink::{Reply, Sink},
};

/// Runs `surehook migrate` with the key of the database.
async fn migrate(folder: &Path, args: &[&str]) -> CommandOutput {
    let env = [("SUREHOOK_SECRET_KEY".to_owned(), SECRET_KEY.to_owned())];
    let args = [&["migrate"], args].concat();
    run_surehook_within(2 * WAIT_LIMIT, folder, &args, &env).await
}

async fn migrate_frozen(gateway: &Gateway, from: &str, to: &str) -> Value {
    let url = gateway.url("");
    let args = ["--from", from, "--to", to, "--freeze", &url, "--token", gateway.token(), "--json"];
    let output = migrate(gateway.folder(), &args).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let report: Value = serde_json::from_str(output.stdout.trim()).unwrap();
    for table in report["tables"].as_array().unwrap() {
        assert_eq!(table["source_checksum"], table["target_checksum"], "{table}");
        assert_eq!(table["rows"], table["target_rows"], "{table}");
    }
    report
}

/// Sends events until the gateway is frozen; returns the ids of those that were accepted.
async fn send_until_frozen(
    url: String,
    prefix: &'static str,
    is_frozen: Arc<AtomicBool>,
) -> Vec<String> {
    let client = Client::new();
    let mut accepted = Vec::new();
    while !is_frozen.load(Ordering::Relaxed) {
        let body = format!(r#"{{"id":"{prefix}-{}"}}"#, accepted.len());
        // A connection that is being closed is answered on the next one.
        let Ok(response) = client.send(Method::POST, &url, &[], body).await else { continue };
        match response.status.as_u16() {
            200 => accepted.push(response.event_id()),
            503 => {
                assert_eq!(response.header("retry-after"), "5");
                assert_eq!(response.code(), "frozen");
                is_frozen.store(true, Ordering::Relaxed);
            }
            status => panic!("{status}: {}", response.text()),
        }
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_gateway_is_moved_to_postgres_and_back_without_losing_anything() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let sink = Sink::with_replies([Reply::status(500), Reply::status(200)]).await;
    let settings = format!(
        "{}\nretry = {{ schedule = [\"3s\"], jitter = 0 }}\n",
        keyed_route_settings(&sink.url())
    );
    let mut first = Gateway::start_with(&settings).await;
    let retried = first.post_accepted("in", r#"{"id":"retried"}"#).await;
    first.wait_for_delivery(&retried, "scheduled").await;
    first.post("/destinations/out/pause", &json!({})).await.expect(200);
    let held = first.post_accepted("in", r#"{"id":"held"}"#).await;

    // There, while events arrive.
    let is_frozen = Arc::new(AtomicBool::new(false));
    let sender =
        tokio::spawn(send_until_frozen(first.url("/in/in"), "there", Arc::clone(&is_frozen)));
    let report = migrate_frozen(&first, "data", &server.url()).await;
    let mut accepted = sender.await.unwrap();
    assert!(is_frozen.load(Ordering::Relaxed) && !accepted.is_empty());
    accepted.extend([retried.clone(), held.clone()]);
    let events =
        report["tables"].as_array().unwrap().iter().find(|table| table["table"] == "events");
    assert_eq!(events.unwrap()["rows"], accepted.len());
    assert!(first.terminate().await.success());
    let refused = first.try_restart().await.unwrap_err();
    assert!(refused.stderr.contains("was moved to postgres://"), "{refused:?}");

    let mut second = Gateway::builder().database(&server.url()).settings(&settings).start().await;
    assert_moved(&second, &accepted).await;
    let duplicate = second.send_webhook("in", &[], r#"{"id":"held"}"#).await.expect(200);
    assert_eq!(duplicate.json()["events"][0]["status"], "duplicate");
    assert_eq!(duplicate.event_id(), held);
    assert_eq!(second.destination_state("out").await["paused"], true);
    second.post("/destinations/out/resume", &json!({})).await.expect(200);
    for event in &accepted {
        second.wait_for_delivery(event, "succeeded").await;
    }
    second.post("/destinations/out/pause", &json!({})).await.expect(200);
    let held_again = second.post_accepted("in", r#"{"id":"held-again"}"#).await;

    // And back.
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let is_frozen = Arc::new(AtomicBool::new(false));
    let sender =
        tokio::spawn(send_until_frozen(second.url("/in/in"), "back", Arc::clone(&is_frozen)));
    migrate_frozen(&second, &server.url(), data.to_str().unwrap()).await;
    accepted.extend(sender.await.unwrap());
    assert!(is_frozen.load(Ordering::Relaxed));
    accepted.push(held_again);
    assert!(second.terminate().await.success());
    let refused = second.try_restart().await.unwrap_err();
    assert!(refused.stderr.contains("was moved to the data folder"), "{refused:?}");

    let third = Gateway::builder()
        .settings(&settings)
        .env("SUREHOOK_SECRET_KEY", SECRET_KEY)
        .start_in(folder)
        .await;
    assert_moved(&third, &accepted).await;
    for key in ["retried", "held", "held-again"] {
        let duplicate =
            third.send_webhook("in", &[], format!(r#"{{"id":"{key}"}}"#)).await.expect(200);
        assert_eq!(duplicate.json()["events"][0]["status"], "duplicate", "{key}");
    }
    third.post("/destinations/out/resume", &json!({})).await.expect(200);
    for event in &accepted {
        third.wait_for_delivery(event, "succeeded").await;
    }
    // The first attempt of one event failed; nothing was delivered twice.
    eventually(WAIT_LIMIT, || async { (sink.count() == accepted.len() + 1).then_some(()) }).await;
}

/// All events are there, and no others.
async fn assert_moved(gateway: &Gateway, accepted: &[String]) {
    for event in accepted {
        gateway.get(&format!("/events/{event}")).await.expect(200);
    }
    let stats = gateway.stats().await;
    assert_eq!(stats["total"], accepted.len(), "{stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_folder_is_served_again_only_if_its_owner_insists() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let mut gateway = Gateway::start().await;
    let event = gateway.post_accepted("demo", r#"{"id":"a"}"#).await;
    gateway.terminate().await;
    let url = server.url();
    let planned = migrate(gateway.folder(), &["--from", "data", "--to", &url, "--dry-run"]).await;
    assert_eq!(planned.code, Some(0), "{planned:?}");
    assert!(planned.stdout.contains("Nothing was changed"), "{planned:?}");
    let moved = migrate(gateway.folder(), &["--from", "data", "--to", &url]).await;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    assert!(moved.stdout.contains("Moved and verified"), "{moved:?}");
    gateway.try_restart().await.unwrap_err();

    // Into a store that has data, or once more.
    let again = migrate(gateway.folder(), &["--from", "data", "--to", &url]).await;
    assert_eq!(again.code, Some(5), "{again:?}");
    let same = migrate(gateway.folder(), &["--from", "data", "--to", "data2"]).await;
    assert_eq!(same.code, Some(5), "{same:?}");

    let args = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--use-moved-data"];
    let mut insisting = Process::spawn(gateway.folder(), &args, &[]);
    eventually(WAIT_LIMIT, || async { insisting.stdout.text().contains("is ready").then_some(()) })
        .await;
    insisting.kill9();
    gateway.try_restart().await.unwrap();
    gateway.get(&format!("/events/{event}")).await.expect(200);
}

#[tokio::test]
async fn source_in_use_is_refused_after_the_wait() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let gateway = Gateway::start().await;
    let url = server.url();
    let args = ["--from", "data", "--to", &url, "--wait", "200ms"];

    let refused = migrate(gateway.folder(), &args).await;

    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("still in use after 200ms"), "{refused:?}");
    gateway.post_accepted("demo", r#"{"id":"still"}"#).await;
}

#[tokio::test]
async fn frozen_gateway_answers_503_until_it_is_stopped() {
    let mut gateway = Gateway::start().await;
    let operator = gateway.create_token("operator").await;
    gateway.api_as(&operator, Method::POST, "/freeze", None).await.expect(403);

    gateway.post("/freeze", &json!({})).await.expect(202);

    for (method, path) in [
        (Method::POST, "/in/demo"),
        (Method::GET, "/api/v1/stats"),
        (Method::GET, "/readyz"),
        (Method::GET, "/"),
    ] {
        let response = eventually(WAIT_LIMIT, || async {
            let client = Client::new();
            let response = client.send(method.clone(), &gateway.url(path), &[], "").await.ok()?;
            (response.status == 503 && response.code() == "frozen").then_some(response)
        })
        .await;
        assert_eq!(response.header("retry-after"), "5", "{path}");
    }
    Client::new().send(Method::GET, &gateway.url("/livez"), &[], "").await.unwrap().expect(200);
    assert!(gateway.terminate().await.success());
    gateway.restart().await;
    gateway.post_accepted("demo", r#"{"id":"after"}"#).await;
}
