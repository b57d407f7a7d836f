//! Isolation: does one destination that never answers hold up the healthy ones?
//!
//! Twenty sources, each with a destination of its own in its own process, get events at a modest
//! fixed rate; what counts is the time from sending to arrival. This is done **alone**, and
//! **beside** one more source at the same rate whose destination hangs. Each arm has a fresh
//! gateway, because what hangs in one would still be retried in the next. The arms take turns in
//! being the first, so that a machine that grows slower does not favour one.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::destination::{SinkProcess, drained};
use crate::gateway::{Gateway, GatewayConfig};
use crate::lab::{BenchRun, load};
use crate::latency::{LatencySummary, median};
use crate::plan::{LoadPlan, SendRate, StopCondition};
use crate::sink::SinkMode;

const HEALTHY: usize = 20;
const PER_SECOND_EACH: f64 = 50.0;
/// For each source. At 50 events a second each has 80 ms to answer before the next is due.
const CONNECTIONS_EACH: usize = 4;
/// Not counted. Long enough for the hanging destination to fill every place it may take.
const WARM_UP: Duration = Duration::from_secs(2);
const HANGING: &str = "hanging";
const P99_RATIO_TARGET: f64 = 1.2;

/// How far a hanging destination was felt by the healthy ones.
#[derive(Clone, Debug, Serialize)]
pub struct IsolationReport {
    pub healthy_destinations: usize,
    pub per_second_each: f64,
    pub alone: ScenarioReport,
    pub beside_hanging: ScenarioReport,
    /// The p99 beside the hanging one as a multiple of the p99 alone.
    pub p99_ratio: f64,
    pub p99_ratio_target: f64,
}

/// What was measured under one condition.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioReport {
    /// From sending to arrival, medians over the rounds.
    pub latency: LatencySummary,
    pub p99_us_rounds: Vec<u64>,
    /// Events that arrived, over all rounds.
    pub events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsolationScenario {
    Baseline,
    WithHanging,
}

pub(crate) async fn measure(lab: &BenchRun) -> Result<IsolationReport> {
    lab.progress.expect(2 * lab.options.rounds as u64);
    let mut healthy = Vec::new();
    for _ in 0..HEALTHY {
        healthy.push(lab.destination(SinkMode::Answer).await?);
    }
    let hanging = lab.destination(SinkMode::Hang).await?;
    let bench = IsolationBench { lab, healthy, hanging };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..lab.options.rounds {
        let mut order = [IsolationScenario::Baseline, IsolationScenario::WithHanging];
        order.rotate_left(round % 2);
        for company in order {
            let (name, samples) = match company {
                IsolationScenario::Baseline => ("alone", &mut alone),
                IsolationScenario::WithHanging => ("beside a hanging one", &mut beside),
            };
            lab.progress.step(format!("round {} of {}: {name}", round + 1, lab.options.rounds));
            let sample = bench.arm(company).await;
            samples.push(sample.with_context(|| format!("the healthy ones {name} failed"))?);
            lab.progress.done();
        }
    }
    Ok(report(&alone, &beside))
}

/// One arm of one round: the latency, and of how many events.
pub(crate) type ScenarioSample = (LatencySummary, u64);

fn report(alone: &[ScenarioSample], beside: &[ScenarioSample]) -> IsolationReport {
    let p99 = |samples: &[ScenarioSample]| {
        median(samples.iter().map(|(latency, _)| latency.p99_us as f64))
    };
    IsolationReport {
        healthy_destinations: HEALTHY,
        per_second_each: PER_SECOND_EACH,
        alone: arm(alone),
        beside_hanging: arm(beside),
        // A histogram's lowest value is one microsecond; zero would mean no events at all.
        p99_ratio: p99(beside) / p99(alone).max(1.0),
        p99_ratio_target: P99_RATIO_TARGET,
    }
}

pub(crate) fn arm(samples: &[ScenarioSample]) -> ScenarioReport {
    let latencies: Vec<LatencySummary> = samples.iter().map(|(latency, _)| *latency).collect();
    ScenarioReport {
        latency: LatencySummary::over_rounds(&latencies),
        p99_us_rounds: latencies.iter().map(|latency| latency.p99_us).collect(),
        events: samples.iter().map(|(_, events)| events).sum(),
    }
}

/// The destinations, which serve all arms.
struct IsolationBench<'a> {
    lab: &'a BenchRun,
    healthy: Vec<SinkProcess>,
    hanging: SinkProcess,
}

impl IsolationBench<'_> {
    async fn arm(&self, company: IsolationScenario) -> Result<ScenarioSample> {
        // The gateway knows the hanging destination in both arms; only the traffic differs.
        let mut config = GatewayConfig::default().joined(HANGING, HANGING, self.hanging.addr());
        for (index, destination) in self.healthy.iter().enumerate() {
            let name = healthy_name(index);
            config = config.joined(&name, &name, destination.addr());
        }
        let gateway = self.lab.gateway(&config).await?;
        self.hanging.clear().await?;
        self.send(&gateway, company, WARM_UP).await?;
        if company == IsolationScenario::WithHanging {
            drained(std::slice::from_ref(&self.hanging), 1)
                .await
                .context("nothing reached the hanging destination")?;
        }
        self.send(&gateway, company, Duration::from_secs(self.lab.options.seconds)).await
    }

    /// Sends for `span`, waits until the healthy destinations have it all, and says how long
    /// that took each event.
    async fn send(
        &self,
        gateway: &Gateway,
        company: IsolationScenario,
        span: Duration,
    ) -> Result<ScenarioSample> {
        for destination in &self.healthy {
            destination.clear().await?;
        }
        let plan = LoadPlan {
            until: StopCondition::Elapsed(span),
            pace: SendRate::PerSecond(PER_SECOND_EACH),
            connections: CONNECTIONS_EACH,
            ..self.lab.plan(gateway.child.addr(), HANGING)
        };
        let to_healthy =
            LoadPlan { sources: (0..HEALTHY).map(healthy_name).collect(), ..plan.clone() };
        let to_hanging = async {
            match company {
                IsolationScenario::Baseline => Ok(None),
                IsolationScenario::WithHanging => load(&gateway.child, plan).await.map(Some),
            }
        };
        let (healthy, _) = tokio::try_join!(load(&gateway.child, to_healthy), to_hanging)?;
        let arrivals = drained(&self.healthy, healthy.answered).await?;
        Ok((arrivals.latency()?, arrivals.count))
    }
}

fn healthy_name(index: usize) -> String {
    format!("healthy-{index:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_compares_median_p99s() {
        let sample = |p99_us| (LatencySummary { p50_us: 1, p99_us, max_us: 99 }, 10);
        let report = report(
            &[sample(100), sample(900), sample(110)],
            &[sample(121), sample(10), sample(500)],
        );
        assert_eq!(report.p99_ratio, 1.1);
        assert_eq!(report.alone.p99_us_rounds, [100, 900, 110]);
        assert_eq!(report.beside_hanging.events, 30);
    }
}
