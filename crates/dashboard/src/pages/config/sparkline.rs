//! Metrics of a source or destination in the last 24 hours, drawn as a sparkline.

use surehook_api::{ApiTransport as _, calls, stats::Series};

use crate::{client::ApiError, current_user::CurrentUser};

/// Longer lists have no sparklines: each needs its own API call.
pub(super) const CHARTS_MAX: usize = 60;

const WIDTH: u64 = 96;
const HEIGHT: u64 = 22;

/// Loads 24 hourly points. `subject` is `source` or `destination`.
pub(super) async fn load_day(
    user: &CurrentUser,
    metric: &str,
    subject: &str,
    name: &str,
) -> Result<Series, ApiError> {
    let since = user.now() - std::time::Duration::from_secs(86_400);
    let call = calls::get_stats_series(metric)
        .query(subject, name)
        .query("since", &since.to_string())
        .query("width", "1h");
    user.call(call).await
}

/// Points of an SVG polyline.
pub(super) fn sparkline(series: &Series) -> String {
    sparkline_points(&series.points.iter().map(|point| point.value.value).collect::<Vec<_>>())
}

fn sparkline_points(values: &[u64]) -> String {
    let max = values.iter().copied().max().unwrap_or_default().max(1);
    let steps = u64::try_from(values.len().saturating_sub(1)).unwrap_or_default().max(1);
    let point = |(index, value): (u64, &u64)| {
        let y = HEIGHT - 1 - u64::try_from(u128::from(*value) * 20 / u128::from(max)).unwrap_or(0);
        format!("{},{y}", index * WIDTH / steps)
    };
    (0..).zip(values).map(point).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_stays_within_its_view_box() {
        for (values, expected) in [
            (vec![], ""),
            (vec![0], "0,21"),
            (vec![0, 5, 10], "0,21 48,11 96,1"),
            (vec![u64::MAX, 0], "0,1 96,21"),
        ] {
            assert_eq!(sparkline_points(&values), expected, "case: {values:?}");
        }
    }
}
