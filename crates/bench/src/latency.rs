//! Latencies: recorded in microseconds, summarized as three numbers, medians over the rounds.

use std::time::Duration;

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer latencies are recorded as this value; no phase waits longer.
const LONGEST_US: u64 = 3_600_000_000;

/// An empty histogram. All histograms have the same bounds, so that they can be added up.
pub(crate) fn histogram() -> Histogram<u64> {
    // Three significant digits, as in 12.3 ms.
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("bounds are constant and valid")
}

pub(crate) fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
}

/// The recorded values with their counts, small enough to be sent as JSON.
pub(crate) fn recorded_values(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
        .collect()
}

/// Adds the [`recorded_values`] of a histogram in another process.
pub(crate) fn add_recorded_values(
    histogram: &mut Histogram<u64>,
    values: &[(u64, u64)],
) -> Result<()> {
    for (value_us, count) in values {
        histogram
            .record_n(*value_us, *count)
            .with_context(|| format!("a latency of {value_us} µs is out of bounds"))?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

impl LatencySummary {
    pub(crate) fn from_histogram(histogram: &Histogram<u64>) -> Self {
        Self {
            p50_us: histogram.value_at_quantile(0.50),
            p99_us: histogram.value_at_quantile(0.99),
            max_us: histogram.max(),
        }
    }

    /// One summary for several rounds: the medians, and the maximum of all.
    pub(crate) fn over_rounds(rounds: &[Self]) -> Self {
        let middle = |part: fn(&Self) -> u64| {
            median(rounds.iter().map(|round| part(round) as f64)).round() as u64
        };
        Self {
            p50_us: middle(|round| round.p50_us),
            p99_us: middle(|round| round.p99_us),
            max_us: rounds.iter().map(|round| round.max_us).max().unwrap_or(0),
        }
    }
}

/// The middle value; the mean of the two middle values if their number is even; 0 if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_one_bad_round() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0]), 3.0);
        assert_eq!(median([50.0, 1.0, 49.0]), 49.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn histogram_survives_transfer_between_processes() {
        let mut sent = histogram();
        for ms in 1..=1000 {
            record(&mut sent, Duration::from_millis(ms));
        }
        let mut received = histogram();
        add_recorded_values(&mut received, &recorded_values(&sent)).unwrap();
        assert_eq!(
            LatencySummary::from_histogram(&received),
            LatencySummary::from_histogram(&sent)
        );
        assert_eq!(received.len(), 1000);
    }

    #[test]
    fn rounds_give_medians_and_the_worst_maximum() {
        let round = |p50_us, p99_us, max_us| LatencySummary { p50_us, p99_us, max_us };
        let joined =
            LatencySummary::over_rounds(&[round(1, 90, 100), round(3, 10, 20), round(2, 11, 900)]);
        assert_eq!(joined, round(2, 11, 900));
    }
}
