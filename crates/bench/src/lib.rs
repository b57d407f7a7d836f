//! What `surehook bench` does: it measures a gateway on the machine it runs on.
//!
//! Every server is a child process of its own on 127.0.0.1 with a fresh folder; the load comes
//! from this process. All rates of one run stand beside L, **the limit**: what a bare hyper
//! server that stores nothing answers on this machine, in this minute, to this generator. A rate
//! alone says more about the machine than about the gateway; a share of L does not.
//!
//! ```text
//!   generator ──POST /in/{source}──► gateway (child) ──► sink (child)
//!       │                                                   │
//!       └───────────────── GET /arrivals ───────────────────┘
//! ```
//!
//! The binary calls [`run`] for `surehook bench`, [`limit_server`] for the hidden
//! `surehook bench-limit --listen ADDR` and [`sink_server`] for the hidden
//! `surehook bench-sink --listen ADDR [--mode answer|hang|refuse]`: [`run`] starts those as children.
//!
//! | room | job |
//! | --- | --- |
//! | `plan`, `load`, `sender`, `request`, `answer` | the generator |
//! | `limit`, `sink`, `listen` | the two bare servers |
//! | `child`, `control`, `usage` | a child process: start, ask, weigh, kill |
//! | `lab`, `gateway`, `destination` | the servers of one run |
//! | `rounds`, `backlog`, `isolation`, `replay`, `whatsapp`, `dashboard` | what is measured |
//! | `report`, `table` | what is told |

mod answer;
mod backlog;
mod child;
mod clock;
mod control;
mod dashboard;
mod destination;
mod gateway;
mod isolation;
mod lab;
mod latency;
mod limit;
mod listen;
mod load;
mod machine;
mod options;
mod plan;
mod progress;
mod replay;
mod report;
mod request;
mod rounds;
mod sender;
mod sink;
mod table;
mod usage;
mod whatsapp;

pub use backlog::BacklogReport;
pub use dashboard::{DashboardPageReport, DashboardReport};
pub use isolation::{IsolationReport, ScenarioReport};
pub use latency::LatencySummary;
pub use limit::limit_server;
pub use machine::MachineInfo;
pub use options::{BenchOptions, BenchPhase};
pub use replay::ReplayReport;
pub use report::{BenchReport, BenchSettings, DeliveredPhaseReport, PhaseReport};
pub use sink::{SinkMode, sink_server};
pub use whatsapp::WhatsAppReport;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

use crate::lab::BenchRun;
use crate::usage::OtherProcesses;

/// Measures what `options` ask for.
///
/// Fails if any answer of the gateway was not the expected one: a rate of wrong answers is no
/// rate. All children are dead and all folders are gone when this returns, also after SIGINT or
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
    let lab = BenchRun::open(options)?;
    let mut report = BenchReport::new(&lab);
    let others = OtherProcesses::watch();
    match lab.options.only {
        Some(BenchPhase::Backlog) => report.backlog = Some(backlog::measure(&lab).await?),
        Some(BenchPhase::Isolation) => report.isolation = Some(isolation::measure(&lab).await?),
        Some(BenchPhase::Replay) => report.replay = Some(replay::measure(&lab).await?),
        Some(BenchPhase::WhatsApp) => report.whatsapp = Some(whatsapp::measure(&lab).await?),
        Some(BenchPhase::Dashboard) => report.dashboard = Some(dashboard::measure(&lab).await?),
        None
        | Some(
            BenchPhase::Limit | BenchPhase::In | BenchPhase::Duplicates | BenchPhase::Delivered,
        ) => {
            report.phases = rounds::measure(&lab).await?;
        }
    }
    report.machine.others_cpu_share = others.cpu_share(report.machine.cores);
    Ok(report)
}
