//! The simulator: its command, and whether it agrees with the real gateway.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use http::Method;
use serde_json::Value;
use surehook_simulator::{
    DestinationBehavior as _, PolicySpec, Scenario, SimulatedRequest, rng::SeededRng,
};
use tokio::task::JoinSet;

use crate::support::{
    client::Client,
    gateway::Gateway,
    millis,
    process::{CommandOutput, run_surehook},
    sink::{Reply, Sink},
};

/// The longest run of the scenario, on a busy machine.
const LONG_WAIT: Duration = Duration::from_secs(120);

async fn simulate(args: &[&str]) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("own.toml"), "retry = { max_attempts = 2 }\nrate = '50/s'\n")
        .unwrap();
    fs::write(folder.path().join("bad.toml"), "retry = { max_attempts = 0 }\n").unwrap();
    run_surehook(folder.path(), &[&["simulate"], args].concat(), &[]).await
}

#[tokio::test]
async fn equal_seeds_print_equal_bytes_and_policies_are_compared() {
    let args = [
        "--seed",
        "7",
        "--deliveries",
        "2000",
        "--failure-rate",
        "0.3",
        "--timeout-rate",
        "0.05",
        "--compare",
        "quick,short,own.toml",
        "--json",
    ];
    let (first, second) = tokio::join!(simulate(&args), simulate(&args));
    assert_eq!((first.code, &first.stderr[..]), (Some(0), ""), "{first:?}");
    assert_eq!(first.stdout, second.stdout);
    let reports: Vec<Value> =
        first.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = reports.iter().map(|report| report["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["quick", "short", "own"]);
    for report in &reports {
        assert_eq!(report["deliveries"], 2000);
    }
    assert_eq!(reports[2]["attempts"]["distribution"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn comparison_histogram_and_plot_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["simulate", "--preset", "outage", "--deliveries", "3000", "--plot", "out.svg"];
    let output = run_surehook(folder.path(), &args, &[]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    for expected in ["QUICK", "STANDARD", "circuit open", "by number of attempts", "█"] {
        assert!(output.stdout.contains(expected), "{expected}: {output:?}");
    }
    let svg = fs::read_to_string(folder.path().join("out.svg")).unwrap();
    assert!(svg.contains("Attempts per second"));
}

#[tokio::test]
async fn invalid_rates_policies_and_files_are_refused_with_their_reason() {
    for (args, code, expected) in [
        (&["--failure-rate", "1.5"][..], 2, "between 0 and 1"),
        (&["--timeout-rate", "often"], 2, "between 0 and 1"),
        (&["--arrival-rate", "fast"], 2, "invalid rate"),
        (&["--deliveries", "0"], 2, "not in 1.."),
        (&["--preset", "flood"], 2, "outage"),
        (&["--compare", "slow"], 5, "unknown retry policy `slow`"),
        (&["--compare", "bad.toml"], 5, "max_attempts"),
        (&["--compare", "absent.toml"], 1, "cannot read absent.toml"),
    ] {
        let output = simulate(args).await;
        assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{args:?}: {output:?}");
    }
}

const DELIVERIES: u64 = 5000;
const SENDERS: u64 = 16;
/// The two runs are samples of their own: only the rates are common.
const SIMULATION_SEED: u64 = 7;
const SINK_SEED: u64 = 8;
/// Fields of both destinations.
const SETTINGS: &str = "concurrency = 128\ntimeout = \"1s\"\n";
const SCENARIO: &str = r#"
    [arrivals]
    deliveries = 5000
    over = "25s"
    pattern = "constant"

    [[destinations]]
    behavior = { failure_rate = 0.3, timeout_rate = 0.05, latency = { p50 = "20ms", p99 = "200ms" } }
"#;
/// Each with its name.
const POLICIES: [(&str, &str); 2] = [
    ("quick", "retry = \"quick\"\n"),
    (
        "own",
        "retry = { max_attempts = 5, initial_delay = \"2500ms\", max_delay = \"8s\", jitter = \"equal\" }\n",
    ),
];

/// The figures that must agree.
#[derive(Debug)]
struct OutcomeFigures {
    success_rate: f64,
    mean_attempts: f64,
    p95_seconds: f64,
}

impl OutcomeFigures {
    fn of_simulation(scenario: &Scenario, policy: &PolicySpec) -> Self {
        let report = scenario.simulate(policy, SIMULATION_SEED, &mut |_| {}).unwrap();
        Self {
            success_rate: report.success_rate,
            mean_attempts: report.attempts.mean,
            p95_seconds: report.delivery_seconds.p95,
        }
    }

    fn of_rows(rows: &[Value]) -> Self {
        let count = rows.len() as f64;
        let mut times: Vec<i64> = rows
            .iter()
            .filter(|row| row["status"] == "succeeded")
            .map(|row| millis(&row["ended_at"]) - millis(&row["created_at"]))
            .collect();
        times.sort_unstable();
        let attempts: u64 = rows.iter().map(|row| row["attempts"].as_u64().unwrap()).sum();
        Self {
            success_rate: times.len() as f64 / count,
            mean_attempts: attempts as f64 / count,
            p95_seconds: times[times.len() * 95 / 100] as f64 / 1000.0,
        }
    }

    #[track_caller]
    fn assert_agree(&self, real: &Self) {
        for (name, simulated, real) in [
            ("success rate", self.success_rate, real.success_rate),
            ("mean attempts", self.mean_attempts, real.mean_attempts),
            ("p95 delay", self.p95_seconds, real.p95_seconds),
        ] {
            assert!((simulated / real - 1.0).abs() <= 0.05, "{name}: {simulated} and {real}");
        }
    }
}

/// A sink with one path per policy, which answers as the modelled destination does.
async fn modelled_sink(scenario: &Scenario) -> Sink {
    let behavior = scenario.destinations[0].behavior.build().unwrap();
    let behavior = Mutex::new(behavior);
    let attempts: Mutex<HashMap<(String, u64), u32>> = Mutex::default();
    let started = Instant::now();
    Sink::with_script(move |_, request| {
        let delivery = std::str::from_utf8(&request.body).unwrap().parse().unwrap();
        let attempt = {
            let mut attempts = attempts.lock().unwrap();
            let made = attempts.entry((request.path.clone(), delivery)).or_default();
            *made += 1;
            *made
        };
        let simulated = SimulatedRequest {
            at: started.elapsed(),
            delivery,
            customer: 0,
            attempt,
            timeout: Duration::from_secs(1),
        };
        let rng = SeededRng::for_attempt(SINK_SEED, delivery, attempt);
        let response = behavior.lock().unwrap().respond(&simulated, &rng);
        match response.outcome.status() {
            Some(status) => Reply::status(status).after(response.took),
            None => Reply::Hang,
        }
    })
    .await
}

/// Sends the events at the times of the scenario.
async fn send_paced(gateway: &Gateway, over: Duration) {
    let interval = over / u32::try_from(DELIVERIES).unwrap();
    let url: Arc<str> = gateway.url("/in/in").into();
    let started = tokio::time::Instant::now();
    let mut senders = JoinSet::new();
    for first in 0..SENDERS {
        let url = Arc::clone(&url);
        senders.spawn(async move {
            let client = Client::new();
            for number in (first..DELIVERIES).step_by(usize::try_from(SENDERS).unwrap()) {
                let due = started + interval * u32::try_from(number).unwrap();
                tokio::time::sleep_until(due).await;
                client.send(Method::POST, &url, &[], number.to_string()).await.unwrap().expect(200);
            }
        });
    }
    senders.join_all().await;
}

async fn all_deliveries(gateway: &Gateway) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut path = "/deliveries?limit=1000".to_owned();
    loop {
        let mut page = gateway.get(&path).await.expect(200).json();
        let Value::Array(data) = page["data"].take() else { panic!("{path} is not a list") };
        rows.extend(data);
        let Some(cursor) = page["next_cursor"].as_str() else { return rows };
        path = format!("/deliveries?limit=1000&cursor={cursor}");
    }
}

#[tokio::test]
async fn heavy_simulator_agrees_with_reality() {
    let scenario = Scenario::from_toml(SCENARIO).unwrap();
    let sink = modelled_sink(&scenario).await;
    let mut settings = "[[sources]]\nname = \"in\"\nverify = \"none\"\n".to_owned();
    for (name, retry) in POLICIES {
        let url = format!("{}/{name}", sink.origin());
        settings.push_str(&format!(
            "[[routes]]\nfrom = \"in\"\nto = \"{name}\"\n\
             [[destinations]]\nname = \"{name}\"\nurl = \"{url}\"\n{SETTINGS}{retry}"
        ));
    }
    let gateway = Gateway::start_with(&settings).await;
    send_paced(&gateway, scenario.arrivals.over.0).await;
    let total = DELIVERIES * u64::try_from(POLICIES.len()).unwrap();
    gateway
        .wait_for_stats(LONG_WAIT, |stats| {
            let count = |status: &str| stats["by_status"][status].as_u64().unwrap_or(0);
            count("succeeded") + count("dead") == total
        })
        .await;

    let rows = all_deliveries(&gateway).await;
    for (name, retry) in POLICIES {
        let rows: Vec<Value> =
            rows.iter().filter(|row| row["destination"] == name).cloned().collect();
        assert_eq!(rows.len() as u64, DELIVERIES, "{name}");
        let policy = PolicySpec::from_toml(name, &format!("{SETTINGS}{retry}")).unwrap();
        let simulated = OutcomeFigures::of_simulation(&scenario, &policy);
        let real = OutcomeFigures::of_rows(&rows);
        simulated.assert_agree(&real);
    }
}
