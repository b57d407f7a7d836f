//! The charts. Each is rendered as a table, and the browser draws the table as a chart.

use std::time::Duration;

use surehook_api::{
    ApiCall, ApiTransport as _, calls,
    stats::{Series, SeriesValue},
};
use surehook_types::time::{HumanDuration, Timestamp};

use super::range::TimeRange;
use crate::{
    client::ApiError, current_user::CurrentUser, format::format_duration, lang::Lang,
    translations::OverviewTexts,
};

/// Time window of the current rate.
pub(super) const RATE_WINDOW: Duration = Duration::from_secs(60);

pub(super) fn succeeded(attempts: &SeriesValue) -> u64 {
    attempts.by.as_ref().and_then(|by| by.get("succeeded")).copied().unwrap_or_default()
}

/// Data of the charts and tiles in one time range.
pub(super) struct OverviewMetrics {
    pub(super) accepted: Series,
    duplicates: Series,
    pub(super) attempts: Series,
    dead: Series,
    pub(super) latency: Series,
    pub(super) last_minute: Series,
}

impl OverviewMetrics {
    pub(super) async fn load(user: &CurrentUser, range: TimeRange) -> Result<Self, ApiError> {
        let series = |metric: &'static str| user.call(series_call(metric, range));
        let now = user.now();
        let just_now = TimeRange {
            preset_name: None,
            since: now - RATE_WINDOW,
            until: now,
            width: HumanDuration::from_secs(10),
        };
        let (accepted, duplicates, attempts, dead, latency, last_minute) = tokio::try_join!(
            series("accepted"),
            series("duplicates"),
            series("attempts"),
            series("dead"),
            series("latency"),
            user.call(series_call("accepted", just_now)),
        )?;
        Ok(Self { accepted, duplicates, attempts, dead, latency, last_minute })
    }
}

pub(super) fn series_call(metric: &str, range: TimeRange) -> ApiCall<Series> {
    calls::get_stats_series(metric)
        .query("since", &range.since.to_string())
        .query("until", &range.until.to_string())
        .query("width", &range.width.to_string())
}

/// A column of the table: a line, or one part of stacked bars.
pub(super) struct ChartColumn {
    pub(super) name: &'static str,
    /// Color name in the style sheet.
    pub(super) tone: &'static str,
}

/// Formatted text, and the value for the script.
pub(super) struct ChartCell {
    pub(super) text: String,
    pub(super) value: String,
}

impl ChartCell {
    fn count(lang: Lang, count: u64) -> Self {
        Self { text: lang.number(count), value: count.to_string() }
    }

    /// Without deliveries there is no latency, which is not zero.
    fn millis(lang: Lang, millis: Option<f64>) -> Self {
        match millis {
            Some(millis) => {
                Self { text: format_millis(lang, millis), value: format!("{millis:.3}") }
            }
            None => Self { text: "–".to_owned(), value: String::new() },
        }
    }
}

pub(super) fn format_millis(lang: Lang, millis: f64) -> String {
    if millis < 10.0 {
        return format!("{} ms", lang.decimal(millis, 1));
    }
    format_duration(lang, Duration::from_secs_f64(millis.max(0.0) / 1000.0))
}

pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) lead: &'static str,
    /// `bars` (stacked) or `lines`.
    pub(super) form: &'static str,
    /// `count` or `ms`.
    pub(super) unit: &'static str,
    pub(super) columns: Vec<ChartColumn>,
    pub(super) rows: Vec<(Timestamp, Vec<ChartCell>)>,
}

pub(super) fn build_charts(
    metrics: &OverviewMetrics,
    t: &'static OverviewTexts,
    lang: Lang,
) -> [Chart; 3] {
    let column = |name, tone| ChartColumn { name, tone };
    let count = |count| ChartCell::count(lang, count);
    let received = metrics.accepted.points.iter().zip(&metrics.duplicates.points);
    let received = received.map(|(accepted, duplicates)| {
        (accepted.at, vec![count(accepted.value.value), count(duplicates.value.value)])
    });
    let attempts = metrics.attempts.points.iter().zip(&metrics.dead.points);
    let attempts = attempts.map(|(attempts, dead)| {
        let (total, succeeded) = (attempts.value.value, succeeded(&attempts.value));
        let dead = dead.value.value;
        // The last attempt of a dead delivery is counted as dead, not as failed.
        let retried = total.saturating_sub(succeeded).saturating_sub(dead);
        (attempts.at, vec![count(succeeded), count(retried), count(dead)])
    });
    let latency = metrics.latency.points.iter().map(|point| {
        let times = point.value.percentiles.clone().unwrap_or_default();
        let cells = [times.p50_ms, times.p95_ms, times.p99_ms];
        (point.at, cells.into_iter().map(|millis| ChartCell::millis(lang, millis)).collect())
    });
    [
        Chart {
            id: "chart-in",
            title: t.chart_in,
            lead: t.chart_in_lead,
            form: "bars",
            unit: "count",
            columns: vec![column(t.accepted, "accent"), column(t.duplicates, "held")],
            rows: received.collect(),
        },
        Chart {
            id: "chart-out",
            title: t.chart_out,
            lead: t.chart_out_lead,
            form: "bars",
            unit: "count",
            columns: vec![
                column(t.succeeded, "ok"),
                column(t.failed, "warn"),
                column(t.died, "bad"),
            ],
            rows: attempts.collect(),
        },
        Chart {
            id: "chart-latency",
            title: t.chart_latency,
            lead: t.chart_latency_lead,
            form: "lines",
            unit: "ms",
            columns: vec![column("p50", "ok"), column("p95", "warn"), column("p99", "bad")],
            rows: latency.collect(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use surehook_api::stats::SeriesPoint;

    use super::*;

    fn series(value: u64, by: &[(&str, u64)]) -> Series {
        let by = by.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let at = Timestamp::from_millis(0);
        let value = SeriesValue { value, by: Some(by), percentiles: None };
        Series {
            metric: String::new(),
            source: None,
            destination: None,
            since: at,
            until: at,
            width: HumanDuration::from_secs(10),
            total: SeriesValue::default(),
            points: vec![SeriesPoint { at, value }],
        }
    }

    #[test]
    fn each_attempt_is_counted_in_one_chart_column() {
        let metrics = OverviewMetrics {
            accepted: series(5, &[]),
            duplicates: series(1, &[]),
            attempts: series(10, &[("succeeded", 6), ("transient", 4)]),
            dead: series(1, &[]),
            latency: series(0, &[]),
            last_minute: series(0, &[]),
        };
        let charts = build_charts(&metrics, OverviewTexts::of(Lang::En), Lang::En);
        let values = |at: usize| -> Vec<_> {
            charts[at].rows[0].1.iter().map(|cell| cell.value.clone()).collect()
        };
        assert_eq!(values(0), ["5", "1"]);
        assert_eq!(values(1), ["6", "3", "1"]);
        assert_eq!(values(2), ["", "", ""], "no delivery, no latency");
        for chart in &charts {
            assert_eq!(chart.columns.len(), chart.rows[0].1.len());
        }
    }

    #[test]
    fn short_durations_have_one_decimal() {
        assert_eq!(format_millis(Lang::En, 4.25), "4.2 ms");
        assert_eq!(format_millis(Lang::Pt, 4.25), "4,2 ms");
        assert_eq!(format_millis(Lang::En, 850.4), "850 ms");
        assert_eq!(format_millis(Lang::En, 2359.2), "2.4 s");
    }
}
