//! Isolation phase: does a destination that never answers slow down the healthy ones?
//!
//! Twenty sources, each with its own destination process, get events at a modest fixed rate; the
//! result is the time from sending to arrival. One more source has a destination that hangs. The
//! **baseline**, without traffic to it, is compared with a run in which it gets the same rate. Each
//! scenario has a new gateway, because hanging deliveries would still be retried in the next.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::{Gateway, GatewayConfig};
use crate::load::{LoadPlan, SendRate, StopCondition};
use crate::scenario::{ScenarioReport, ScenarioSample, measure_scenarios, p99_ratio};
use crate::sink::SinkMode;
use crate::sink_process::{SinkProcess, wait_for_arrivals};

const HEALTHY_DESTINATIONS: usize = 20;
const EVENTS_PER_SECOND_EACH: f64 = 50.0;
/// Per source. At 50 events a second each connection has 80 ms to answer before the next is due.
const CONNECTIONS_EACH: usize = 4;
/// Not counted. Long enough for the hanging destination to use all the concurrency it may take.
const WARM_UP: Duration = Duration::from_secs(2);
const HANGING_NAME: &str = "hanging";
const P99_RATIO_TARGET: f64 = 1.2;

/// Latency of healthy destinations without and with a hanging one.
#[derive(Clone, Debug, Serialize)]
pub struct IsolationReport {
    pub healthy_destinations: usize,
    pub per_second_each: f64,
    pub baseline: ScenarioReport,
    pub with_hanging: ScenarioReport,
    /// The p99 with the hanging destination as a multiple of the baseline p99.
    pub p99_ratio: f64,
    pub p99_ratio_target: f64,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<IsolationReport> {
    let mut healthy = Vec::new();
    for _ in 0..HEALTHY_DESTINATIONS {
        healthy.push(run.start_sink(SinkMode::Answer).await?);
    }
    let hanging = run.start_sink(SinkMode::Hang).await?;
    let bench = IsolationBench { run, healthy, hanging };
    let [baseline, with_hanging] =
        measure_scenarios(run, "with a hanging destination", async |with_hanging| {
            bench.measure_scenario(with_hanging).await
        })
        .await?;
    Ok(build_report(&baseline, &with_hanging))
}

fn build_report(baseline: &[ScenarioSample], with_hanging: &[ScenarioSample]) -> IsolationReport {
    IsolationReport {
        healthy_destinations: HEALTHY_DESTINATIONS,
        per_second_each: EVENTS_PER_SECOND_EACH,
        baseline: ScenarioReport::from_samples(baseline),
        with_hanging: ScenarioReport::from_samples(with_hanging),
        p99_ratio: p99_ratio(with_hanging, baseline),
        p99_ratio_target: P99_RATIO_TARGET,
    }
}

/// The destinations, which serve all scenarios.
struct IsolationBench<'a> {
    run: &'a BenchRun,
    healthy: Vec<SinkProcess>,
    hanging: SinkProcess,
}

impl IsolationBench<'_> {
    async fn measure_scenario(&self, with_hanging: bool) -> Result<ScenarioSample> {
        // The gateway has the hanging destination in both scenarios; only the traffic differs.
        let mut config =
            GatewayConfig::default().connected(HANGING_NAME, HANGING_NAME, self.hanging.addr());
        for (index, destination) in self.healthy.iter().enumerate() {
            let name = healthy_name(index);
            config = config.connected(&name, &name, destination.addr());
        }
        let gateway = self.run.start_gateway(&config).await?;
        self.hanging.reset().await?;
        self.measure_latency(&gateway, with_hanging, WARM_UP).await?;
        if with_hanging {
            wait_for_arrivals(std::slice::from_ref(&self.hanging), 1)
                .await
                .context("nothing reached the hanging destination")?;
        }
        self.measure_latency(&gateway, with_hanging, Duration::from_secs(self.run.options.seconds))
            .await
    }

    /// Sends for `duration` and returns the latency of the healthy destinations.
    async fn measure_latency(
        &self,
        gateway: &Gateway,
        with_hanging: bool,
        duration: Duration,
    ) -> Result<ScenarioSample> {
        let hanging_plan = LoadPlan {
            until: StopCondition::Elapsed(duration),
            pace: SendRate::PerSecond(EVENTS_PER_SECOND_EACH),
            connections: CONNECTIONS_EACH,
            ..self.run.default_plan(gateway.child.addr(), HANGING_NAME)
        };
        let sources = (0..HEALTHY_DESTINATIONS).map(healthy_name).collect();
        let healthy_plan = LoadPlan { sources, ..hanging_plan.clone() };
        let to_hanging = async {
            if with_hanging {
                run_load(&gateway.child, hanging_plan).await?;
            }
            Ok(())
        };
        let to_healthy = ScenarioSample::measure(gateway, &self.healthy, healthy_plan);
        let (sample, ()) = tokio::try_join!(to_healthy, to_hanging)?;
        Ok(sample)
    }
}

fn healthy_name(index: usize) -> String {
    format!("healthy-{index:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::LatencySummary;

    #[test]
    fn ratio_compares_median_p99s() {
        let sample = |p99_us| ScenarioSample {
            latency: LatencySummary { p50_us: 1, p99_us, max_us: 99 },
            events: 10,
        };
        let report = build_report(
            &[sample(100), sample(900), sample(110)],
            &[sample(121), sample(10), sample(500)],
        );
        assert_eq!(report.p99_ratio, 1.1);
        assert_eq!(report.baseline.p99_us_rounds, [100, 900, 110]);
        assert_eq!(report.with_hanging.events, 30);
    }
}
