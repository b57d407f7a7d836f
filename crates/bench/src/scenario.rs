//! One of two scenarios that are compared: the same traffic without and with a disturbance.

use serde::Serialize;

use crate::latency::{LatencySummary, median};

/// The result of one scenario in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScenarioSample {
    /// From sending to arrival.
    pub(crate) latency: LatencySummary,
    pub(crate) events: u64,
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
