//! The result of a run, for programs (JSON) and for people (a table).

use std::fmt;

use serde::Serialize;

use crate::backlog::BacklogReport;
use crate::bench_run::BenchRun;
use crate::dashboard::DashboardReport;
use crate::isolation::IsolationReport;
use crate::latency::LatencySummary;
use crate::machine::MachineInfo;
use crate::options::BenchPhase;
use crate::replay::ReplayReport;
use crate::whatsapp::WhatsAppReport;

/// Target for the p99 from sending to the first attempt at half load.
pub(crate) const FIRST_ATTEMPT_P99_TARGET_US: u64 = 50_000;

/// The result of a run. Its `Display` is JSON or a table, depending on the options.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub machine: MachineInfo,
    pub settings: BenchSettings,
    /// The rates; the limit is first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<BacklogReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whatsapp: Option<WhatsAppReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dashboard: Option<DashboardReport>,
    #[serde(skip)]
    format: ReportFormat,
}

/// The options that affect the numbers.
#[derive(Clone, Debug, Serialize)]
pub struct BenchSettings {
    pub seconds: u64,
    pub rounds: usize,
    pub connections: usize,
    pub body_bytes: usize,
}

/// One rate: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    pub phase: BenchPhase,
    /// Requests answered per second; for `delivered`, events that arrived per second from the first
    /// send to the last arrival.
    pub per_second: f64,
    pub per_second_rounds: Vec<f64>,
    /// The rate as a share of the limit.
    pub of_limit: Option<f64>,
    pub of_limit_target: Option<f64>,
    /// From sending a request to receiving its response.
    pub latency: LatencySummary,
    /// CPU time of the server, all threads.
    pub cpu_us_per_event: Option<f64>,
    /// Peak memory of the server in its worst round.
    pub rss_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveredPhaseReport>,
}

/// Additional results of the phase `delivered`.
#[derive(Clone, Debug, Serialize)]
pub struct DeliveredPhaseReport {
    /// From the last response to the last arrival.
    pub drain_ms: f64,
    /// From sending to arrival at the sink, while the closed loop keeps the queue full.
    pub first_attempt: LatencySummary,
    /// Half of the rate of this phase.
    pub half_load_per_second: f64,
    /// From sending to arrival at the sink, at half load.
    pub half_load_first_attempt: LatencySummary,
    /// Arrivals beyond one per accepted event, over all rounds.
    pub repeated: u64,
}

#[derive(Clone, Copy, Debug)]
enum ReportFormat {
    Table,
    Json,
}

impl BenchReport {
    pub(crate) fn new(run: &BenchRun) -> Self {
        let options = &run.options;
        Self {
            machine: MachineInfo::read(run.folder()),
            settings: BenchSettings {
                seconds: options.seconds,
                rounds: options.rounds,
                connections: options.connections,
                body_bytes: options.body_bytes,
            },
            phases: Vec::new(),
            backlog: None,
            isolation: None,
            replay: None,
            whatsapp: None,
            dashboard: None,
            format: if options.json { ReportFormat::Json } else { ReportFormat::Table },
        }
    }

    /// The report as one JSON document.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report has only string keys")
    }

    /// The report as text for a person, with the targets beside the numbers.
    pub fn table(&self) -> String {
        crate::table::render(self)
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            ReportFormat::Table => out.write_str(&self.table()),
            ReportFormat::Json => out.write_str(&self.json()),
        }
    }
}
