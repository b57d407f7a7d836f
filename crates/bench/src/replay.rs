//! Replay phase: does a replay job slow down live traffic to the same destination?
//!
//! A source gets events at a modest fixed rate; the result is the time from sending to arrival. The
//! **baseline** is compared with a run during a job that resends stored events to the same
//! destination. Each scenario has a new gateway with as many stored events.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::{Gateway, GatewayConfig};
use crate::load::{LoadPlan, SendRate, StopCondition};
use crate::scenario::{ScenarioReport, ScenarioSample, measure_scenarios, p99_ratio};
use crate::sink::SinkMode;
use crate::sink_process::{SinkProcess, wait_until_drained};

const LIVE: &str = "live";
const STORED: &str = "stored";
const SINK: &str = "sink";
const LIVE_PER_SECOND: f64 = 500.0;
/// At 500 events a second each connection has 32 ms to answer before the next is due.
const LIVE_CONNECTIONS: usize = 16;
const JOB_PER_SECOND: u64 = 200;
/// Not counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// How much longer the job has work than the measurement lasts.
const SPARE_SECONDS: u64 = 20;
const P99_RATIO_TARGET: f64 = 1.5;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Latency of live traffic without and with a replay job.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    pub live_per_second: f64,
    pub job_per_second: u64,
    pub baseline: ScenarioReport,
    pub with_job: ScenarioReport,
    /// The p99 with the job as a multiple of the baseline p99.
    pub p99_ratio: f64,
    pub p99_ratio_target: f64,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<ReplayReport> {
    let bench = ReplayBench { run, sink: [run.start_sink(SinkMode::Answer).await?] };
    let measure = async |with_job| bench.measure_scenario(with_job).await;
    let [baseline, with_job] = measure_scenarios(run, "with a replay job", measure).await?;
    Ok(ReplayReport {
        live_per_second: LIVE_PER_SECOND,
        job_per_second: JOB_PER_SECOND,
        baseline: ScenarioReport::from_samples(&baseline),
        with_job: ScenarioReport::from_samples(&with_job),
        p99_ratio: p99_ratio(&with_job, &baseline),
        p99_ratio_target: P99_RATIO_TARGET,
    })
}

struct ReplayBench<'a> {
    run: &'a BenchRun,
    sink: [SinkProcess; 1],
}

impl ReplayBench<'_> {
    async fn measure_scenario(&self, with_job: bool) -> Result<ScenarioSample> {
        let config = GatewayConfig::default()
            .connected(LIVE, SINK, self.sink[0].addr())
            .source(STORED)
            .route(STORED, SINK);
        let gateway = self.run.start_gateway(&config).await?;
        self.store_events(&gateway).await?;
        let job = if with_job { Some(start_job(&gateway).await?) } else { None };
        self.send(&gateway, WARM_UP).await?;
        let sample = self.send(&gateway, Duration::from_secs(self.run.options.seconds)).await?;
        if let Some(job) = job {
            let job = gateway.api("GET", &job, None).await?;
            ensure!(job["state"] == "running", "the job ended before the measurement did: {job}");
        }
        Ok(sample)
    }

    /// Delivers the events that the job will resend.
    async fn store_events(&self, gateway: &Gateway) -> Result<()> {
        let seconds = self.run.options.seconds + WARM_UP.as_secs() + SPARE_SECONDS;
        self.sink[0].reset().await?;
        let plan = LoadPlan {
            until: StopCondition::Answers(JOB_PER_SECOND * seconds),
            ..self.run.default_plan(gateway.child.addr(), STORED)
        };
        let stored = run_load(&gateway.child, plan).await?;
        wait_until_drained(&self.sink, stored.answered).await?;
        Ok(())
    }

    async fn send(&self, gateway: &Gateway, duration: Duration) -> Result<ScenarioSample> {
        let plan = LoadPlan {
            until: StopCondition::Elapsed(duration),
            pace: SendRate::PerSecond(LIVE_PER_SECOND),
            connections: LIVE_CONNECTIONS,
            ..self.run.default_plan(gateway.child.addr(), LIVE)
        };
        ScenarioSample::measure(gateway, &self.sink, plan).await
    }
}

/// Creates the job, waits until it dispatches deliveries, and returns its API path.
async fn start_job(gateway: &Gateway) -> Result<String> {
    let spec = json!({
        "verb": "force_resend",
        "filter": { "source": STORED },
        "rate": format!("{JOB_PER_SECOND}/s"),
    });
    let created = gateway.api("POST", "/api/v1/replays", Some(&spec)).await?;
    let id = created["id"].as_str().context("the job has no id")?;
    let path = format!("/api/v1/replays/{id}");
    let dispatched = |job: &Value| job["dispatched"].as_u64().unwrap_or(0);
    while dispatched(&gateway.api("GET", &path, None).await?) == 0 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(path)
}
