//! The result of a run, for programs (JSON) and for people (a table).

use serde::Serialize;

use crate::attack::AttackReport;
use crate::backlog::BacklogReport;
use crate::dashboard::DashboardReport;
use crate::database::DatabaseReport;
use crate::growth::GrowthReport;
use crate::idempotency::IdempotencyReport;
use crate::isolation::IsolationReport;
use crate::latency::LatencySummary;
use crate::machine::MachineInfo;
use crate::options::BenchPhase;
use crate::rate_limit::RateLimitReport;
use crate::replay::ReplayReport;
use crate::whatsapp::WhatsAppReport;

/// Target for the p99 from sending to the first attempt at half load.
pub(crate) const FIRST_ATTEMPT_P99_TARGET_US: u64 = 50_000;

#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub machine: MachineInfo,
    pub settings: BenchSettings,
    #[serde(flatten)]
    pub results: BenchResults,
}

/// Results of one special phase, or of the throughput phases.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchResults {
    /// Throughput phases; first `limit`, a bare server that stores nothing, as the upper bound.
    Phases(Vec<PhaseReport>),
    Backlog(BacklogReport),
    Isolation(IsolationReport),
    Replay(ReplayReport),
    RateLimit(RateLimitReport),
    #[serde(rename = "whatsapp")]
    WhatsApp(WhatsAppReport),
    Dashboard(DashboardReport),
    Attack(AttackReport),
    Idempotency(IdempotencyReport),
    Growth(GrowthReport),
    Database(DatabaseReport),
}

/// The options that affect the numbers.
#[derive(Clone, Debug, Serialize)]
pub struct BenchSettings {
    pub seconds: u64,
    pub rounds: usize,
    pub connections: usize,
    pub body_bytes: usize,
}

/// Throughput of one phase: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    pub phase: BenchPhase,
    /// Requests answered per second; for `delivered`, events that arrived per second from the first
    /// send to the last arrival.
    pub per_second: f64,
    pub per_second_rounds: Vec<f64>,
    /// The rate as a share of the limit.
    pub share_of_limit: Option<f64>,
    pub share_of_limit_target: Option<f64>,
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
    pub first_attempt_latency: LatencySummary,
    /// Half of the rate of this phase.
    pub half_load_per_second: f64,
    /// From sending to arrival at the sink, at half load.
    pub half_load_first_attempt_latency: LatencySummary,
    /// Arrivals beyond one per accepted event, over all rounds.
    pub duplicate_arrivals: u64,
}

impl BenchReport {
    /// The report as one JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report has only string keys")
    }

    /// The report as text for a person, with the targets beside the numbers.
    pub fn to_table(&self) -> String {
        crate::table::render(self)
    }
}
