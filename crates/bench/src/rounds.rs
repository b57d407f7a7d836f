//! The rates: the phases limit, receive, duplicates and delivered, repeated in rounds.
//!
//! A shared machine is fast in one minute and slow in the next. So each round runs every phase with
//! new processes, and the report gives the medians over the rounds. A rate is divided by the limit
//! of its own round, which was measured shortly before it.

use std::slice;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::{Gateway, GatewayConfig};
use crate::latency::{LatencySummary, median};
use crate::load::LoadResult;
use crate::load::{KeyPlan, LoadPlan, SendRate, StopCondition};
use crate::options::BenchPhase;
use crate::report::{DeliveredPhaseReport, PhaseReport};
use crate::request::KeySeries;
use crate::response::EventVerdict;
use crate::server_process::ServerProcess;
use crate::sink::{ArrivalReport, SinkMode};
use crate::sink_process::{SinkProcess, wait_until_drained};
use crate::usage::{ResourceUsage, UsageMeter};

const SOURCE_RECEIVE: &str = "receive";
const SOURCE_DELIVERED: &str = "delivered";
/// Number of keys that are repeated. Enough that no two connections use one key at once.
const DUPLICATE_KEYS: u64 = 10_000;
/// The phases of a round, in order.
const PHASES: [BenchPhase; 4] =
    [BenchPhase::Limit, BenchPhase::Receive, BenchPhase::Duplicates, BenchPhase::Delivered];

/// Measures the selected rates.
pub(crate) async fn measure(run: &BenchRun) -> Result<Vec<PhaseReport>> {
    let phases: Vec<BenchPhase> =
        PHASES.into_iter().filter(|phase| run.options.measures(*phase)).collect();
    run.progress.set_total((phases.len() * run.options.rounds) as u64);
    let mut rounds: Vec<Vec<PhaseSample>> = phases.iter().map(|_| Vec::new()).collect();
    for number in 1..=run.options.rounds {
        let mut round = MeasurementRound { run, servers: None };
        for (phase, samples) in phases.iter().zip(&mut rounds) {
            run.progress.start_step(format!("round {number} of {}: {phase}", run.options.rounds));
            let sample = round.measure_phase(*phase).await;
            samples.push(sample.with_context(|| format!("phase `{phase}` failed"))?);
            run.progress.finish_step();
        }
    }
    Ok(summarize(&phases, &rounds))
}

/// The result of one phase in one round.
#[derive(Debug)]
pub(crate) struct PhaseSample {
    pub(crate) per_second: f64,
    latency: LatencySummary,
    cpu_per_event: Option<Duration>,
    rss_peak_bytes: Option<u64>,
    pub(crate) delivery: Option<DeliverySample>,
}

#[derive(Debug)]
pub(crate) struct DeliverySample {
    drain: Duration,
    first_attempt_latency: LatencySummary,
    half_load_per_second: f64,
    pub(crate) half_load_first_attempt_latency: LatencySummary,
    duplicate_arrivals: u64,
}

impl PhaseSample {
    fn new(outcome: &LoadResult, used: ResourceUsage) -> Self {
        let events = u32::try_from(outcome.answered.max(1)).unwrap_or(u32::MAX);
        Self {
            per_second: outcome.per_second(),
            latency: LatencySummary::from_histogram(&outcome.latency),
            cpu_per_event: used.cpu.map(|cpu| cpu / events),
            rss_peak_bytes: used.rss_peak_bytes,
            delivery: None,
        }
    }
}

/// One round. Its gateway and sink serve all its phases.
struct MeasurementRound<'a> {
    run: &'a BenchRun,
    servers: Option<(Gateway, SinkProcess)>,
}

impl MeasurementRound<'_> {
    async fn measure_phase(&mut self, phase: BenchPhase) -> Result<PhaseSample> {
        if phase == BenchPhase::Limit {
            let child = self.run.start_limit_server().await?;
            return measure_with_usage(&child, self.run.default_plan(child.addr(), SOURCE_RECEIVE))
                .await;
        }
        // Started after the limit server has ended: an idle gateway must not use its cores.
        if self.servers.is_none() {
            self.servers = Some(start_servers(self.run).await?);
        }
        let (gateway, sink) = self.servers.as_ref().context("the servers were not started")?;
        measure_gateway(phase, &gateway.child, sink, |source| {
            self.run.default_plan(gateway.child.addr(), source)
        })
        .await
    }
}

/// The configuration of a gateway for all phases.
pub(crate) fn phases_config(sink: &SinkProcess) -> GatewayConfig {
    GatewayConfig::default().source(SOURCE_RECEIVE).connected(SOURCE_DELIVERED, "sink", sink.addr())
}

async fn start_servers(run: &BenchRun) -> Result<(Gateway, SinkProcess)> {
    let sink = run.start_sink(SinkMode::Answer).await?;
    Ok((run.start_gateway(&phases_config(&sink)).await?, sink))
}

/// Measures one phase of a gateway that runs; `plan` gives the load to a source.
pub(crate) async fn measure_gateway(
    phase: BenchPhase,
    gateway: &ServerProcess,
    sink: &SinkProcess,
    plan: impl Fn(&str) -> LoadPlan,
) -> Result<PhaseSample> {
    match phase {
        BenchPhase::Receive => measure_with_usage(gateway, plan(SOURCE_RECEIVE)).await,
        BenchPhase::Duplicates => measure_duplicates(gateway, plan(SOURCE_RECEIVE)).await,
        BenchPhase::Delivered => measure_delivered(gateway, sink, plan(SOURCE_DELIVERED)).await,
        BenchPhase::Limit
        | BenchPhase::Backlog
        | BenchPhase::Isolation
        | BenchPhase::Replay
        | BenchPhase::RateLimit
        | BenchPhase::WhatsApp
        | BenchPhase::Dashboard
        | BenchPhase::Attack
        | BenchPhase::Idempotency
        | BenchPhase::Growth => anyhow::bail!("{phase} is not a phase of a round"),
    }
}

async fn measure_with_usage(child: &ServerProcess, plan: LoadPlan) -> Result<PhaseSample> {
    let meter = UsageMeter::start(child.pid());
    let outcome = run_load(child, plan).await?;
    Ok(PhaseSample::new(&outcome, meter.read()))
}

async fn measure_duplicates(gateway: &ServerProcess, plan: LoadPlan) -> Result<PhaseSample> {
    let keys = KeyPlan::Fixed { series: KeySeries::random(), count: DUPLICATE_KEYS };
    let plan = LoadPlan { keys, ..plan };
    let originals = LoadPlan { until: StopCondition::Answers(DUPLICATE_KEYS), ..plan.clone() };
    run_load(gateway, originals).await.context("sending the originals failed")?;
    measure_with_usage(gateway, LoadPlan { expected: EventVerdict::Duplicate, ..plan }).await
}

async fn measure_delivered(
    gateway: &ServerProcess,
    sink: &SinkProcess,
    plan: LoadPlan,
) -> Result<PhaseSample> {
    let full = FullLoad::measure(gateway, sink, plan.clone()).await?;
    let FullLoad { outcome, arrivals, used, per_second } = full;

    // At full load the first attempt waits in a queue that the closed loop keeps filling. Users see
    // the wait at a load that the gateway can sustain.
    let half_load_per_second = per_second / 2.0;
    sink.reset().await?;
    let half =
        run_load(gateway, LoadPlan { pace: SendRate::PerSecond(half_load_per_second), ..plan })
            .await?;
    let half_arrivals = wait_until_drained(slice::from_ref(sink), half.answered).await?;

    let delivery = DeliverySample {
        drain: Duration::from_nanos(arrivals.last_ns.saturating_sub(outcome.ended_ns())),
        first_attempt_latency: arrivals.latency()?,
        half_load_per_second,
        half_load_first_attempt_latency: half_arrivals.latency()?,
        duplicate_arrivals: (arrivals.count + half_arrivals.count)
            .saturating_sub(outcome.answered + half.answered),
    };
    Ok(PhaseSample { per_second, delivery: Some(delivery), ..PhaseSample::new(&outcome, used) })
}

/// A load whose every event was delivered.
pub(crate) struct FullLoad {
    pub(crate) outcome: LoadResult,
    arrivals: ArrivalReport,
    pub(crate) used: ResourceUsage,
    /// Events that arrived per second, from the first send to the last arrival.
    pub(crate) per_second: f64,
}

impl FullLoad {
    /// Runs the load of `plan` and waits until every event has arrived at `sink`.
    pub(crate) async fn measure(
        gateway: &ServerProcess,
        sink: &SinkProcess,
        plan: LoadPlan,
    ) -> Result<Self> {
        sink.reset().await?;
        let meter = UsageMeter::start(gateway.pid());
        let outcome = run_load(gateway, plan).await?;
        let arrivals = wait_until_drained(slice::from_ref(sink), outcome.answered).await?;
        let used = meter.read();
        let span = Duration::from_nanos(arrivals.last_ns.saturating_sub(outcome.started.wall_ns));
        ensure!(
            !span.is_zero(),
            "the last arrival is not after the first send; was the system clock changed?"
        );
        let per_second = outcome.answered as f64 / span.as_secs_f64();
        Ok(Self { outcome, arrivals, used, per_second })
    }
}

fn summarize(phases: &[BenchPhase], rounds: &[Vec<PhaseSample>]) -> Vec<PhaseReport> {
    let limits = rounds.first().map_or(&[][..], Vec::as_slice);
    phases
        .iter()
        .zip(rounds)
        .map(|(phase, samples)| PhaseReport {
            phase: *phase,
            per_second: median(samples.iter().map(|sample| sample.per_second)),
            per_second_rounds: samples.iter().map(|sample| sample.per_second).collect(),
            share_of_limit: (*phase != BenchPhase::Limit)
                .then(|| share_of_limit(samples, limits))
                .flatten(),
            share_of_limit_target: phase.target(),
            latency: over_rounds(samples, |sample| sample.latency),
            cpu_us_per_event: known_median(samples, |sample| {
                Some(sample.cpu_per_event?.as_secs_f64() * 1e6)
            }),
            rss_peak_bytes: samples.iter().filter_map(|sample| sample.rss_peak_bytes).max(),
            delivery: delivery_report(samples),
        })
        .collect()
}

/// The median of the rates divided by the limits of the same rounds.
fn share_of_limit(samples: &[PhaseSample], limits: &[PhaseSample]) -> Option<f64> {
    let shares: Vec<f64> = samples
        .iter()
        .zip(limits)
        .filter(|(_, limit)| limit.per_second > 0.0)
        .map(|(sample, limit)| sample.per_second / limit.per_second)
        .collect();
    (!shares.is_empty()).then(|| median(shares))
}

fn delivery_report(samples: &[PhaseSample]) -> Option<DeliveredPhaseReport> {
    let rounds: Vec<&DeliverySample> =
        samples.iter().map(|sample| sample.delivery.as_ref()).collect::<Option<_>>()?;
    Some(DeliveredPhaseReport {
        drain_ms: median(rounds.iter().map(|round| round.drain.as_secs_f64() * 1e3)),
        first_attempt_latency: over_rounds(&rounds, |round| round.first_attempt_latency),
        half_load_per_second: median(rounds.iter().map(|round| round.half_load_per_second)),
        half_load_first_attempt_latency: over_rounds(&rounds, |round| {
            round.half_load_first_attempt_latency
        }),
        duplicate_arrivals: rounds.iter().map(|round| round.duplicate_arrivals).sum(),
    })
    .filter(|_| !rounds.is_empty())
}

fn over_rounds<T>(rounds: &[T], latency: impl Fn(&T) -> LatencySummary) -> LatencySummary {
    LatencySummary::over_rounds(&rounds.iter().map(latency).collect::<Vec<_>>())
}

fn known_median(
    samples: &[PhaseSample],
    value: impl Fn(&PhaseSample) -> Option<f64>,
) -> Option<f64> {
    let known: Vec<f64> = samples.iter().filter_map(value).collect();
    (!known.is_empty()).then(|| median(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(per_second: f64) -> PhaseSample {
        let latency = LatencySummary { p50_us: 1, p99_us: 2, max_us: 3 };
        PhaseSample {
            per_second,
            latency,
            cpu_per_event: None,
            rss_peak_bytes: None,
            delivery: None,
        }
    }

    #[test]
    fn rate_is_divided_by_the_limit_of_its_own_round() {
        let rounds = [
            vec![sample(100.0), sample(10.0), sample(90.0)],
            vec![sample(50.0), sample(40.0), sample(9.0)],
        ];
        let reports = summarize(&[BenchPhase::Limit, BenchPhase::Receive], &rounds);
        assert_eq!((reports[0].per_second, reports[0].share_of_limit), (90.0, None));
        assert_eq!((reports[1].per_second, reports[1].share_of_limit), (40.0, Some(0.5)));
        assert_eq!(reports[1].per_second_rounds, [50.0, 40.0, 9.0]);
        assert!(reports[1].delivery.is_none() && reports[1].cpu_us_per_event.is_none());
    }
}
