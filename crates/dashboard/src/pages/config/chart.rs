//! Numbers of a source or a destination by time, and the small line that shows them.

use serde::Deserialize;

use crate::{
    client::{Address, Trouble},
    visitor::Visitor,
};

/// Above so many lines a list has no charts: each is a question of its own.
pub(super) const CHARTS_MAX: usize = 60;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Series {
    pub(super) total: Total,
    points: Vec<Point>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Total {
    pub(super) value: u64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Point {
    value: u64,
}

/// How wide and high the line is drawn.
const WIDTH: u64 = 96;
const HEIGHT: u64 = 22;

impl Series {
    /// The last 24 hours, an hour a point. `whose` is `source` or `destination`.
    pub(super) async fn of_day(
        visitor: &Visitor,
        metric: &str,
        whose: &str,
        name: &str,
    ) -> Result<Self, Trouble> {
        let since = visitor.now() - std::time::Duration::from_secs(86_400);
        let address = Address::new(&["stats", "series"])
            .with("metric", metric)
            .with(whose, name)
            .with("since", &since.to_string())
            .with("width", "1h");
        visitor.get(address).await
    }

    /// The points of the line, as an SVG writes them.
    pub(super) fn line(&self) -> String {
        line(&self.points.iter().map(|point| point.value).collect::<Vec<_>>())
    }
}

fn line(values: &[u64]) -> String {
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let steps = u64::try_from(values.len().saturating_sub(1)).unwrap_or_default().max(1);
    let point = |(at, value): (u64, &u64)| {
        let y = HEIGHT - 1 - u64::try_from(u128::from(*value) * 20 / u128::from(most)).unwrap_or(0);
        format!("{},{y}", at * WIDTH / steps)
    };
    (0..).zip(values).map(point).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_in_its_picture() {
        for (values, expected) in [
            (vec![], ""),
            (vec![0], "0,21"),
            (vec![0, 5, 10], "0,21 48,11 96,1"),
            (vec![u64::MAX, 0], "0,1 96,21"),
        ] {
            assert_eq!(line(&values), expected, "case: {values:?}");
        }
    }
}
