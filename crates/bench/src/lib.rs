//! `surehook bench`: measures a gateway on the machine it runs on.
//!
//! Every server is a child process on 127.0.0.1 with a new folder; the load comes from this
//! process. Rates are compared with the **limit**: the rate of a bare hyper server that stores
//! nothing, measured on the same machine in the same minute by the same generator. A rate alone
//! says more about the machine than about the gateway; a share of the limit does not.
//!
//! The binary calls [`run`] for `surehook bench`. [`run`] starts the hidden commands `bench-limit`
//! and `bench-sink` as child processes.

mod attack;
mod backlog;
mod bench_run;
mod clock;
mod control;
mod dashboard;
mod database;
mod gateway;
mod growth;
mod idempotency;
mod isolation;
mod latency;
mod limit;
mod listen;
mod load;
mod machine;
mod options;
mod progress;
mod rate_limit;
mod replay;
mod report;
mod request;
mod response;
mod rounds;
mod scenario;
mod server_process;
mod sink;
mod sink_process;
mod table;
mod usage;
mod whatsapp;

pub use attack::{AttackReport, GoodputReport};
pub use backlog::BacklogReport;
pub use dashboard::{DashboardPageReport, DashboardReport};
pub use database::{DatabaseRates, DatabaseReport};
pub use growth::{GrowthRates, GrowthReport};
pub use idempotency::IdempotencyReport;
pub use isolation::IsolationReport;
pub use latency::LatencySummary;
pub use limit::run_limit_server;
pub use machine::MachineInfo;
pub use options::{BenchOptions, BenchPhase};
pub use rate_limit::RateLimitReport;
pub use replay::ReplayReport;
pub use report::{BenchReport, BenchResults, BenchSettings, DeliveredPhaseReport, PhaseReport};
pub use scenario::ScenarioReport;
pub use sink::{SinkMode, run_sink};
pub use whatsapp::WhatsAppReport;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

use crate::bench_run::BenchRun;
use crate::usage::OtherProcessesMeter;

/// Runs the benchmark.
///
/// Fails if the gateway gave an unexpected response: a rate of wrong responses means nothing. When
/// this returns, all child processes have ended and all folders are removed, also after SIGINT or
/// SIGTERM, which end it with an error.
pub async fn run(options: BenchOptions) -> Result<BenchReport> {
    options.check()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        report = measure(options) => report,
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    }
}

async fn measure(options: BenchOptions) -> Result<BenchReport> {
    let run = BenchRun::open(options)?;
    let mut machine = MachineInfo::read(run.folder());
    let other_processes = OtherProcessesMeter::start();
    let results = match run.options.only {
        _ if run.options.database.is_some() => {
            BenchResults::Database(database::measure(&run).await?)
        }
        Some(BenchPhase::Backlog) => BenchResults::Backlog(backlog::measure(&run).await?),
        Some(BenchPhase::Isolation) => BenchResults::Isolation(isolation::measure(&run).await?),
        Some(BenchPhase::Replay) => BenchResults::Replay(replay::measure(&run).await?),
        Some(BenchPhase::RateLimit) => BenchResults::RateLimit(rate_limit::measure(&run).await?),
        Some(BenchPhase::WhatsApp) => BenchResults::WhatsApp(whatsapp::measure(&run).await?),
        Some(BenchPhase::Attack) => BenchResults::Attack(attack::measure(&run).await?),
        Some(BenchPhase::Idempotency) => {
            BenchResults::Idempotency(idempotency::measure(&run).await?)
        }
        Some(BenchPhase::Growth) => BenchResults::Growth(growth::measure(&run).await?),
        Some(BenchPhase::Dashboard) => BenchResults::Dashboard(dashboard::measure(&run).await?),
        Some(
            BenchPhase::Limit
            | BenchPhase::Receive
            | BenchPhase::Duplicates
            | BenchPhase::Delivered,
        )
        | None => BenchResults::Phases(rounds::measure(&run).await?),
    };
    machine.other_processes_cpu_share = other_processes.cpu_share(machine.cores);
    let BenchOptions { seconds, rounds, connections, body_bytes, .. } = run.options;
    let settings = BenchSettings { seconds, rounds, connections, body_bytes };
    Ok(BenchReport { machine, settings, results })
}
