//! Replay: does a job that delivers again in bulk hold up live traffic to the same destination?
//!
//! A source gets events at a modest fixed rate; what counts is the time from sending to arrival.
//! This is done **alone**, and **beside** a job that delivers stored events to the same destination
//! once more. Each arm has a fresh gateway with as many stored events; the arms take turns in being
//! the first, so that a machine that grows slower does not favour one.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::destination::{SinkProcess, drained};
use crate::gateway::{Gateway, GatewayConfig};
use crate::isolation::{ScenarioReport, ScenarioSample, arm};
use crate::lab::{BenchRun, load};
use crate::latency::median;
use crate::plan::{LoadPlan, SendRate, StopCondition};
use crate::sink::SinkMode;

const LIVE: &str = "live";
const STORED: &str = "stored";
const SINK: &str = "sink";
const LIVE_PER_SECOND: f64 = 500.0;
/// At 500 events a second each connection has 32 ms to answer before the next is due.
const LIVE_CONNECTIONS: usize = 16;
const JOB_PER_SECOND: u64 = 200;
/// Not counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// The job has work for so much longer than it is measured.
const SPARE_SECONDS: u64 = 20;
const P99_RATIO_TARGET: f64 = 1.5;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How far a job was felt by live traffic.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    pub live_per_second: f64,
    pub job_per_second: u64,
    pub alone: ScenarioReport,
    pub beside_job: ScenarioReport,
    /// The p99 beside the job as a multiple of the p99 alone.
    pub p99_ratio: f64,
    pub p99_ratio_target: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayScenario {
    Baseline,
    WithJob,
}

pub(crate) async fn measure(lab: &BenchRun) -> Result<ReplayReport> {
    lab.progress.expect(2 * lab.options.rounds as u64);
    let bench = ReplayBench { lab, sink: [lab.destination(SinkMode::Answer).await?] };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..lab.options.rounds {
        let mut order = [ReplayScenario::Baseline, ReplayScenario::WithJob];
        order.rotate_left(round % 2);
        for company in order {
            let (name, samples) = match company {
                ReplayScenario::Baseline => ("alone", &mut alone),
                ReplayScenario::WithJob => ("beside a replay job", &mut beside),
            };
            lab.progress.step(format!("round {} of {}: {name}", round + 1, lab.options.rounds));
            let sample = bench.arm(company).await;
            samples.push(sample.with_context(|| format!("live traffic {name} failed"))?);
            lab.progress.done();
        }
    }
    let p99 = |samples: &[ScenarioSample]| {
        median(samples.iter().map(|(latency, _)| latency.p99_us as f64))
    };
    Ok(ReplayReport {
        live_per_second: LIVE_PER_SECOND,
        job_per_second: JOB_PER_SECOND,
        alone: arm(&alone),
        beside_job: arm(&beside),
        // A histogram's lowest value is one microsecond; zero would mean no events at all.
        p99_ratio: p99(&beside) / p99(&alone).max(1.0),
        p99_ratio_target: P99_RATIO_TARGET,
    })
}

struct ReplayBench<'a> {
    lab: &'a BenchRun,
    sink: [SinkProcess; 1],
}

impl ReplayBench<'_> {
    async fn arm(&self, company: ReplayScenario) -> Result<ScenarioSample> {
        let config = GatewayConfig::default()
            .joined(LIVE, SINK, self.sink[0].addr())
            .source(STORED)
            .route(STORED, SINK);
        let gateway = self.lab.gateway(&config).await?;
        self.store(&gateway).await?;
        let job = match company {
            ReplayScenario::Baseline => None,
            ReplayScenario::WithJob => Some(begin_job(&gateway).await?),
        };
        self.send(&gateway, WARM_UP).await?;
        let sample = self.send(&gateway, Duration::from_secs(self.lab.options.seconds)).await?;
        if let Some(job) = job {
            let job = gateway.api("GET", &job, None).await?;
            ensure!(job["state"] == "running", "the job did not last for the measurement: {job}");
        }
        Ok(sample)
    }

    /// Delivers what the job delivers again.
    async fn store(&self, gateway: &Gateway) -> Result<()> {
        let seconds = self.lab.options.seconds + WARM_UP.as_secs() + SPARE_SECONDS;
        self.sink[0].clear().await?;
        let plan = LoadPlan {
            until: StopCondition::Answers(JOB_PER_SECOND * seconds),
            ..self.lab.plan(gateway.child.addr(), STORED)
        };
        let stored = load(&gateway.child, plan).await?;
        drained(&self.sink, stored.answered).await?;
        Ok(())
    }

    /// Sends for `span`, waits until all of it has arrived, and says how long that took each event.
    async fn send(&self, gateway: &Gateway, span: Duration) -> Result<ScenarioSample> {
        self.sink[0].clear().await?;
        let plan = LoadPlan {
            until: StopCondition::Elapsed(span),
            pace: SendRate::PerSecond(LIVE_PER_SECOND),
            connections: LIVE_CONNECTIONS,
            ..self.lab.plan(gateway.child.addr(), LIVE)
        };
        let live = load(&gateway.child, plan).await?;
        let arrivals = drained(&self.sink, live.answered).await?;
        Ok((arrivals.latency()?, arrivals.count))
    }
}

/// Makes the job and waits until it hands out; gives back where it is found.
async fn begin_job(gateway: &Gateway) -> Result<String> {
    let asked = json!({
        "verb": "force_resend",
        "filter": { "source": STORED },
        "rate": format!("{JOB_PER_SECOND}/s"),
    });
    let made = gateway.api("POST", "/api/v1/replays", Some(&asked)).await?;
    let id = made["id"].as_str().context("the job has no id")?;
    let path = format!("/api/v1/replays/{id}");
    let handed_out = |job: &Value| job["dispatched"].as_u64().unwrap_or(0);
    while handed_out(&gateway.api("GET", &path, None).await?) == 0 {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(path)
}
