//! Two scenarios that are compared: the same traffic without and with a disturbance.

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::Gateway;
use crate::latency::{LatencySummary, median};
use crate::load::LoadPlan;
use crate::sink_process::{SinkProcess, wait_until_drained};

/// Measures both scenarios in every round: the baseline and the disturbed one. Their order alternates,
/// so that a machine that gets slower favors none. `measure` is called with `true` for the disturbed one.
pub(crate) async fn measure_scenarios<T>(
    run: &BenchRun,
    disturbance: &str,
    measure: impl AsyncFn(bool) -> Result<T>,
) -> Result<[Vec<T>; 2]> {
    let rounds = run.options.rounds;
    run.progress.set_total(2 * rounds as u64);
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            let scenario = (round + turn) % 2;
            let name = ["baseline", disturbance][scenario];
            run.progress.start_step(format!("round {} of {rounds}: {name}", round + 1));
            let sample = measure(scenario == 1).await;
            samples[scenario].push(sample.with_context(|| format!("scenario `{name}` failed"))?);
            run.progress.finish_step();
        }
    }
    Ok(samples)
}

/// The result of one scenario in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScenarioSample {
    /// From sending to arrival.
    pub(crate) latency: LatencySummary,
    pub(crate) events: u64,
}

impl ScenarioSample {
    /// Runs the load of `plan`, waits until every event has arrived at `sinks`, and returns the
    /// latency from sending to arrival.
    pub(crate) async fn measure(
        gateway: &Gateway,
        sinks: &[SinkProcess],
        plan: LoadPlan,
    ) -> Result<Self> {
        for sink in sinks {
            sink.reset().await?;
        }
        let sent = run_load(&gateway.child, plan).await?;
        let arrivals = wait_until_drained(sinks, sent.answered).await?;
        Ok(Self { latency: arrivals.latency()?, events: arrivals.count })
    }
}

/// The result of one scenario over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioReport {
    /// From sending to arrival, medians over the rounds.
    pub latency: LatencySummary,
    pub p99_us_rounds: Vec<u64>,
    /// Events that arrived, over all rounds.
    pub events: u64,
}

impl ScenarioReport {
    pub(crate) fn from_samples(samples: &[ScenarioSample]) -> Self {
        let latencies: Vec<LatencySummary> = samples.iter().map(|sample| sample.latency).collect();
        Self {
            latency: LatencySummary::over_rounds(&latencies),
            p99_us_rounds: latencies.iter().map(|latency| latency.p99_us).collect(),
            events: samples.iter().map(|sample| sample.events).sum(),
        }
    }
}

/// The median p99 of `disturbed` as a multiple of that of `baseline`.
pub(crate) fn p99_ratio(disturbed: &[ScenarioSample], baseline: &[ScenarioSample]) -> f64 {
    let p99 = |samples: &[ScenarioSample]| {
        median(samples.iter().map(|sample| sample.latency.p99_us as f64))
    };
    // The lowest value of a histogram is one microsecond; zero would mean no events at all.
    p99(disturbed) / p99(baseline).max(1.0)
}
