//! Database phases: the rates of gateways on PostgreSQL, beside those of one on the embedded store, in the
//! same minutes on the same machine. The database server is not started here and is not part of the figures
//! of a process.

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bench_run::BenchRun;
use crate::gateway::{DatabaseProject, Gateway};
use crate::latency::median;
use crate::load::LoadPlan;
use crate::options::BenchPhase;
use crate::rounds::{PhaseSample, measure_gateway, phases_config};
use crate::sink::SinkMode;
use crate::sink_process::SinkProcess;

pub(crate) const DATABASE_PHASES: [BenchPhase; 3] =
    [BenchPhase::Receive, BenchPhase::Duplicates, BenchPhase::Delivered];
const CONNECTIONS: [usize; 2] = [64, 256];
/// The number of connections that the targets are for.
const TARGET_CONNECTIONS: usize = 64;
const NODES_SHARE_TARGET: f64 = 0.9;
const HALF_LOAD_P99_TARGET_US: u64 = 100_000;

/// Rates on a database, medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseReport {
    pub rates: Vec<DatabaseRates>,
    /// Nodes that were measured besides a single one; 1 for none.
    pub nodes: usize,
    pub nodes_share_target: f64,
    pub half_load_p99_target_us: u64,
}

/// The rates of one phase with a number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseRates {
    pub phase: BenchPhase,
    pub connections: usize,
    pub embedded_per_second: f64,
    pub embedded_per_second_rounds: Vec<f64>,
    pub database_per_second: f64,
    pub database_per_second_rounds: Vec<f64>,
    /// The rate on the database divided by the embedded one of the same round; the median.
    pub share_of_embedded: f64,
    pub share_target: Option<f64>,
    /// With several nodes.
    pub nodes_per_second: Option<f64>,
    pub nodes_per_second_rounds: Vec<f64>,
    pub nodes_share_of_one: Option<f64>,
    /// From sending to the first attempt, at half of the rate of this phase.
    pub embedded_half_load_p99_us: Option<u64>,
    pub database_half_load_p99_us: Option<u64>,
}

/// Where the events are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    Embedded,
    /// With this many nodes.
    Database(usize),
}

pub(crate) async fn measure(run: &BenchRun) -> Result<DatabaseReport> {
    let phases: Vec<BenchPhase> =
        DATABASE_PHASES.into_iter().filter(|phase| run.options.measures(*phase)).collect();
    let mut backends = vec![Backend::Embedded, Backend::Database(1)];
    if run.options.nodes > 1 {
        backends.push(Backend::Database(run.options.nodes));
    }
    let rounds = run.options.rounds;
    run.progress.set_total((rounds * CONNECTIONS.len() * backends.len() * phases.len()) as u64);
    let mut rates = Vec::new();
    for connections in CONNECTIONS {
        // By backend, round and phase.
        let mut samples: Vec<Vec<Vec<PhaseSample>>> = backends.iter().map(|_| Vec::new()).collect();
        for round in 1..=rounds {
            for (backend, samples) in backends.iter().zip(&mut samples) {
                let measured = measure_backend(run, *backend, &phases, connections, round).await;
                samples.push(measured.with_context(|| format!("{backend:?} failed"))?);
            }
        }
        rates.extend(phases.iter().enumerate().map(|(index, phase)| {
            let of = |backend: &Vec<Vec<PhaseSample>>| -> Vec<BackendSample> {
                backend
                    .iter()
                    .filter_map(|round| round.get(index))
                    .map(BackendSample::new)
                    .collect()
            };
            let all: Vec<Vec<BackendSample>> = samples.iter().map(of).collect();
            summarize(*phase, connections, &all)
        }));
    }
    Ok(DatabaseReport {
        rates,
        nodes: run.options.nodes,
        nodes_share_target: NODES_SHARE_TARGET,
        half_load_p99_target_us: HALF_LOAD_P99_TARGET_US,
    })
}

/// Measures all phases with new servers and an empty store.
async fn measure_backend(
    run: &BenchRun,
    backend: Backend,
    phases: &[BenchPhase],
    connections: usize,
    round: usize,
) -> Result<Vec<PhaseSample>> {
    let sink = run.start_sink(SinkMode::Answer).await?;
    let config = phases_config(&sink);
    let (nodes, project) = match backend {
        Backend::Embedded => (vec![run.start_gateway(&config).await?], None),
        Backend::Database(count) => {
            let project = DatabaseProject::new(&database_url(run)?);
            let mut nodes = Vec::new();
            for _ in 0..count {
                nodes.push(run.start_node(&config, &project).await?);
            }
            (nodes, Some(project))
        }
    };
    let mut samples = Vec::new();
    let mut result = Ok(());
    for phase in phases {
        let rounds = run.options.rounds;
        run.progress.start_step(format!(
            "{connections} connections, round {round} of {rounds}, {backend:?}: {phase}"
        ));
        match measure_phase(run, *phase, &nodes, &sink, connections).await {
            Ok(sample) => samples.push(sample),
            Err(error) => {
                result = Err(error.context(format!("phase `{phase}` failed")));
                break;
            }
        }
        run.progress.finish_step();
    }
    drop(nodes);
    if let Some(project) = project {
        run.remove_project(&project)?;
    }
    result.map(|()| samples)
}

async fn measure_phase(
    run: &BenchRun,
    phase: BenchPhase,
    nodes: &[Gateway],
    sink: &SinkProcess,
    connections: usize,
) -> Result<PhaseSample> {
    let first = &nodes.first().context("there is no node")?.child;
    measure_gateway(phase, first, sink, |source| LoadPlan {
        addrs: nodes.iter().map(|node| node.child.addr()).collect(),
        connections,
        ..run.default_plan(first.addr(), source)
    })
    .await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user names a variable instead of a URL with a password"
)]
fn database_url(run: &BenchRun) -> Result<String> {
    let url = run.options.database.as_deref().unwrap_or_default();
    match url.strip_prefix("env:") {
        Some(name) => std::env::var(name).with_context(|| format!("{name} is not set")),
        None => Ok(url.to_owned()),
    }
}

/// What is compared of a phase.
#[derive(Clone, Copy, Debug)]
struct BackendSample {
    per_second: f64,
    half_load_p99_us: Option<u64>,
}

impl BackendSample {
    fn new(sample: &PhaseSample) -> Self {
        let delivery = sample.delivery.as_ref();
        let half_load_p99_us =
            delivery.map(|delivery| delivery.half_load_first_attempt_latency.p99_us);
        Self { per_second: sample.per_second, half_load_p99_us }
    }
}

/// `samples` are those of the embedded store, of one node and of several, if they were measured.
fn summarize(
    phase: BenchPhase,
    connections: usize,
    samples: &[Vec<BackendSample>],
) -> DatabaseRates {
    let of = |index: usize| samples.get(index).map_or(&[][..], Vec::as_slice);
    let (embedded, database, nodes) = (of(0), of(1), of(2));
    DatabaseRates {
        phase,
        connections,
        embedded_per_second: median_rate(embedded).unwrap_or_default(),
        embedded_per_second_rounds: rates(embedded),
        database_per_second: median_rate(database).unwrap_or_default(),
        database_per_second_rounds: rates(database),
        share_of_embedded: median_share(database, embedded).unwrap_or_default(),
        share_target: (connections == TARGET_CONNECTIONS).then(|| share_target(phase)).flatten(),
        nodes_per_second: median_rate(nodes),
        nodes_per_second_rounds: rates(nodes),
        nodes_share_of_one: median_share(nodes, database),
        embedded_half_load_p99_us: median_p99(embedded),
        database_half_load_p99_us: median_p99(database),
    }
}

fn share_target(phase: BenchPhase) -> Option<f64> {
    match phase {
        BenchPhase::Receive | BenchPhase::Duplicates => Some(0.6),
        BenchPhase::Delivered => Some(0.75),
        BenchPhase::Limit
        | BenchPhase::Backlog
        | BenchPhase::Isolation
        | BenchPhase::Replay
        | BenchPhase::RateLimit
        | BenchPhase::WhatsApp
        | BenchPhase::Dashboard
        | BenchPhase::Attack
        | BenchPhase::Idempotency
        | BenchPhase::Growth => None,
    }
}

fn rates(samples: &[BackendSample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.per_second).collect()
}

fn median_rate(samples: &[BackendSample]) -> Option<f64> {
    (!samples.is_empty()).then(|| median(rates(samples)))
}

/// The median of the rates divided by those of the same rounds.
fn median_share(samples: &[BackendSample], reference: &[BackendSample]) -> Option<f64> {
    let shares: Vec<f64> = samples
        .iter()
        .zip(reference)
        .filter(|(_, reference)| reference.per_second > 0.0)
        .map(|(sample, reference)| sample.per_second / reference.per_second)
        .collect();
    (!shares.is_empty()).then(|| median(shares))
}

fn median_p99(samples: &[BackendSample]) -> Option<u64> {
    let known: Vec<f64> =
        samples.iter().filter_map(|sample| Some(sample.half_load_p99_us? as f64)).collect();
    (!known.is_empty()).then(|| median(known) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_compared_with_those_of_the_same_round() {
        let rates = |rates: [f64; 3]| -> Vec<BackendSample> {
            let sample = |per_second| BackendSample { per_second, half_load_p99_us: Some(7) };
            rates.map(sample).to_vec()
        };
        let samples = [rates([100.0, 50.0, 80.0]), rates([60.0, 45.0, 40.0])];
        let report = summarize(BenchPhase::Receive, 64, &samples);
        assert_eq!((report.embedded_per_second, report.database_per_second), (80.0, 45.0));
        assert_eq!((report.share_of_embedded, report.share_target), (0.6, Some(0.6)));
        assert_eq!((report.nodes_per_second, report.nodes_share_of_one), (None, None));
        assert_eq!(report.database_half_load_p99_us, Some(7));
        assert_eq!(summarize(BenchPhase::Receive, 256, &samples).share_target, None);
    }
}
