//! What-if on recorded history: API, command, and whether its predictions come true.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use surehook_simulator::rng::SeededRng;
use surehook_types::rng::Rng as _;
use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    client::Client,
    gateway::{Gateway, Route},
    sink::{Reply, Sink},
};

/// The longest run of the script, on a busy machine.
const LONG_WAIT: Duration = Duration::from_secs(120);
const DELIVERIES: u64 = 3200;
const SENDERS: u64 = 8;
const ARRIVE_WITHIN: Duration = Duration::from_secs(26);
/// An outage of eight seconds, and ten seconds in which most attempts fail.
const OUTAGE: std::ops::Range<u64> = 3..11;
const FLAKY: std::ops::Range<u64> = 13..23;
const FLAKY_FAILURES: f64 = 0.6;

const RECORDED: &str = r#"{ max_attempts = 3, initial_delay = "500ms", jitter = 0.1 }"#;

fn other_policy() -> Value {
    json!({ "max_attempts": 4, "initial_delay": "700ms", "jitter": 0.1 })
}

/// A destination that follows the script from its first request on.
async fn scripted_sink(seed: u64) -> Sink {
    let attempts: Mutex<HashMap<u64, u32>> = Mutex::default();
    let started = OnceLock::new();
    Sink::with_script(move |_, request| {
        let number = std::str::from_utf8(&request.body).unwrap().parse().unwrap();
        let attempt = {
            let mut attempts = attempts.lock().unwrap();
            let count = attempts.entry(number).or_default();
            *count += 1;
            *count
        };
        let roll = SeededRng::for_attempt(seed, number, attempt).next_f64();
        let second = started.get_or_init(Instant::now).elapsed().as_secs();
        let failures = match second {
            second if OUTAGE.contains(&second) => 1.0,
            second if FLAKY.contains(&second) => FLAKY_FAILURES,
            _ => 0.01,
        };
        Reply::status(if roll < failures { 503 } else { 200 }).after(Duration::from_millis(10))
    })
    .await
}

fn settings(url: &str, retry: &str) -> String {
    let destination =
        format!("url = \"{url}\"\nretry = {retry}\ncircuit = \"off\"\nconcurrency = 128");
    Route { destination: &destination, ..Route::default() }.settings()
}

async fn send_paced(gateway: &Gateway) {
    let interval = ARRIVE_WITHIN / u32::try_from(DELIVERIES).unwrap();
    let url: Arc<str> = gateway.url("/in/in").into();
    let started = Instant::now();
    let mut senders = JoinSet::new();
    for first in 0..SENDERS {
        let url = Arc::clone(&url);
        senders.spawn(async move {
            let client = Client::new();
            for number in (first..DELIVERIES).step_by(usize::try_from(SENDERS).unwrap()) {
                tokio::time::sleep_until(started + interval * u32::try_from(number).unwrap()).await;
                client.send(Method::POST, &url, &[], number.to_string()).await.unwrap().expect(200);
            }
        });
    }
    senders.join_all().await;
}

/// Runs the script under a policy until everything has ended.
async fn run_script(seed: u64, retry: &str) -> Gateway {
    let sink = scripted_sink(seed).await;
    let gateway = Gateway::start_with(&settings(&sink.url(), retry)).await;
    send_paced(&gateway).await;
    gateway
        .wait_for_stats(LONG_WAIT, |stats| {
            let count = |status: &str| stats["by_status"][status].as_u64().unwrap_or(0);
            count("succeeded") + count("dead") == DELIVERIES
        })
        .await;
    gateway
}

async fn predict(gateway: &Gateway, change: &Value) -> Value {
    gateway.post("/destinations/out/what-if", change).await.expect(200).json()
}

fn number(report: &Value, result: &str, field: &str) -> f64 {
    report[result][field].as_f64().unwrap_or_else(|| panic!("{result}.{field} in {report}"))
}

#[tokio::test]
async fn heavy_what_if_predicts_another_policy_within_ten_percent() {
    let other = r#"{ max_attempts = 4, initial_delay = "700ms", jitter = 0.1 }"#;
    // The prediction knows nothing of the second gateway, so both may run at the same time.
    let (recorded, real) = tokio::join!(run_script(7, RECORDED), run_script(8, other));

    let report = predict(&recorded, &json!({ "retry": other_policy() })).await;
    let truth = predict(&real, &json!({})).await;

    assert_eq!(report["recorded"]["deliveries"], DELIVERIES);
    for field in ["dead", "attempts"] {
        let truth = number(&truth, "recorded", field);
        let predicted = number(&report, "predicted", field);
        assert!((predicted / truth - 1.0).abs() <= 0.1, "{field}: {predicted} for {truth}");
        // The prediction is not simply the recorded number.
        let recorded = number(&report, "recorded", field);
        assert!((recorded / truth - 1.0).abs() > 0.1, "{field}: {recorded} for {truth}");
        let baseline = number(&report, "baseline", field);
        assert!((baseline / recorded - 1.0).abs() <= 0.1, "{field}: {baseline} for {recorded}");
    }
    assert_eq!(report["confidence"]["level"], "high");
    let notes = report["confidence"]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["kind"] == "jitter"), "{notes:?}");
}

/// A gateway with one delivery that succeeded at once and one that died.
async fn small_history() -> (Gateway, Sink) {
    let replies = [200, 500, 500].map(Reply::status);
    let sink = Sink::with_replies(replies.into_iter().chain([Reply::status(200)])).await;
    let retry = r#"{ max_attempts = 2, initial_delay = "10ms" }"#;
    let gateway = Gateway::start_with(&settings(&sink.url(), retry)).await;
    let first = gateway.post_accepted("in", "1").await;
    gateway.wait_for_delivery(&first, "succeeded").await;
    let second = gateway.post_accepted("in", "2").await;
    gateway.wait_for_delivery(&second, "dead").await;
    (gateway, sink)
}

#[tokio::test]
async fn prediction_compares_with_the_record_and_changes_nothing() {
    let (gateway, sink) = small_history().await;
    let before = gateway.get("/destinations/out").await.expect(200).json();

    let report = predict(&gateway, &json!({ "retry": "standard", "rate": "10/s" })).await;

    let recorded = &report["recorded"];
    assert_eq!((&recorded["deliveries"], &recorded["succeeded"]), (&json!(2), &json!(1)));
    assert_eq!(recorded["dead_by_reason"], json!({ "max_retries": 1 }));
    assert_eq!(recorded["attempts"], 3);
    assert_eq!(report["baseline"]["deliveries"], 2);
    assert_eq!(report["predicted"]["deliveries"], 2);
    let dead = |result: &str| number(&report, result, "dead") as i64;
    assert_eq!(report["difference"]["dead"], dead("predicted") - dead("baseline"));
    assert!(report["confidence"]["level"].is_string());
    assert_eq!(gateway.get("/destinations/out").await.expect(200).json(), before);
    assert_eq!(sink.count(), 3);
    // An empty change predicts today's settings.
    let same = predict(&gateway, &json!({})).await;
    assert_eq!(same["baseline"], same["predicted"]);
}

#[tokio::test]
async fn viewer_may_predict_and_impossible_predictions_are_refused() {
    let (gateway, _sink) = small_history().await;
    let path = "/destinations/out/what-if";
    let viewer = gateway.create_token("viewer").await;
    let change = json!({ "retry": "quick" });
    gateway.api_as(&viewer, Method::POST, path, Some(&change)).await.expect(200);
    for (change, status, code, expected) in [
        (json!({ "retry": "slow" }), 422, "invalid", "retry"),
        (json!({ "url": "https://other.example/" }), 422, "invalid", "`url` has no effect"),
        (json!({ "concurrency": 0 }), 422, "invalid", "concurrency must be"),
        (
            json!({ "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z" }),
            422,
            "invalid",
            "`since` must be before",
        ),
        (
            json!({ "since": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z" }),
            409,
            "no_history",
            "Choose another time span",
        ),
    ] {
        let refused = gateway.post(path, &change).await.expect(status);
        assert_eq!(refused.code(), code, "{change}: {}", refused.text());
        assert!(refused.detail().contains(expected), "{change}: {}", refused.detail());
    }
    gateway.post("/destinations/none/what-if", &json!({})).await.expect(404);
}

#[tokio::test]
async fn command_prints_policies_side_by_side_and_what_is_unknown() {
    let (gateway, _sink) = small_history().await;
    let args = ["what-if", "out", "--since", "1h", "--compare", "quick,standard", "--rate", "20/s"];
    let output = gateway.cli(&args).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    for expected in [
        "2 deliveries to out",
        "RECORDED",
        "TODAY, SIMULATED",
        "QUICK",
        "STANDARD",
        "dead letters",
        "max_retries 1",
        "quick: confidence",
        "What the record cannot know:",
    ] {
        assert!(output.stdout.contains(expected), "{expected}: {}", output.stdout);
    }

    let folder = tempfile::tempdir().unwrap();
    let policy_file = folder.path().join("own.toml");
    fs::write(&policy_file, "retry = { max_attempts = 4 }\nrate = '9/s'\n").unwrap();
    let policy_file = policy_file.to_str().unwrap();
    let options = ["--retry", policy_file, "--rate", "none", "--circuit", "failures=3,open_for=1s"];
    let output = gateway.cli(&[&["what-if", "out", "--json"][..], &options].concat()).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let report: Value = serde_json::from_str(output.stdout.trim()).unwrap();
    assert_eq!((&report["name"], &report["recorded"]["deliveries"]), (&json!("own"), &json!(2)));
}

#[tokio::test]
async fn command_says_why_there_is_no_prediction() {
    let (gateway, _sink) = small_history().await;
    for (args, code, expected) in [
        (&["out"][..], 5, "nothing to compare with"),
        (&["out", "--retry", "slow"], 5, "unknown retry policy `slow`"),
        (&["out", "--retry", "quick", "--until", "1h"], 5, "No attempts to `out` are recorded"),
        (&["none", "--retry", "quick"], 4, "destination"),
        (&["out", "--circuit", "5"], 2, "use `off`"),
        (&["out", "--rate", "fast"], 2, "invalid rate"),
        (&["out", "--retry", "quick", "--compare", "short"], 2, "cannot be used with"),
    ] {
        let output = gateway.cli(&[&["what-if"], args].concat()).await;
        assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{args:?}: {output:?}");
    }
}
