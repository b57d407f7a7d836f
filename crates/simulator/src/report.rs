//! The report of a simulation.

use std::collections::BTreeMap;

use serde::Serialize;

/// The results of one policy, or of one destination under it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationReport {
    /// Of the policy, or of the destination.
    pub name: String,
    pub seed: u64,
    pub deliveries: u64,
    pub succeeded: u64,
    /// Of those that ended.
    pub success_rate: f64,
    pub dead: u64,
    pub dead_by_reason: BTreeMap<&'static str, u64>,
    /// Neither succeeded nor dead at the end: held by a pause, or still retried.
    pub unfinished: u64,
    /// Would have been created after the end.
    #[serde(skip_serializing_if = "is_zero")]
    pub unreached: u64,
    pub attempts: AttemptsReport,
    /// Time from creation to success.
    pub delivery_seconds: DeliveryTimeReport,
    pub load: LoadReport,
    /// Attempts that reached the destination although an earlier one may have been processed.
    pub possible_duplicates: u64,
    pub circuit: CircuitReport,
    /// For how long the lane waited because the destination had asked for it, while events arrived.
    pub cool_down_seconds: f64,
    /// For how long the destination was paused because of `config` failures, while events arrived.
    pub paused_seconds: f64,
    /// Virtual time until nothing was left to do.
    pub simulated_seconds: f64,
    pub timeline: TimelineReport,
    /// Each destination, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Self>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptsReport {
    pub total: u64,
    /// Per delivery that ended.
    pub mean: f64,
    /// `succeeded`, `timeout`, or the failure class.
    pub by_result: BTreeMap<&'static str, u64>,
    pub distribution: Vec<AttemptCount>,
}

/// How many deliveries took this many attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptCount {
    pub attempts: u32,
    pub deliveries: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeliveryTimeReport {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// The load on the destination.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// Attempts that started in one second.
    pub peak_per_second: u64,
    pub peak_at_seconds: u64,
    /// The same after an incident; `None` if there was none.
    pub recovery_peak_per_second: Option<u64>,
    /// Mean share of the lane's places that were in use while events arrived.
    pub busy_share: f64,
}

/// How the circuit held deliveries while events arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CircuitReport {
    pub opened: u64,
    /// Open or half-open.
    pub held_seconds: f64,
}

/// Counts over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineReport {
    /// The time between two points.
    pub point_seconds: f64,
    /// Attempts that started in each.
    pub attempts: Vec<u64>,
    /// Deliveries that succeeded in each.
    pub delivered: Vec<u64>,
}
