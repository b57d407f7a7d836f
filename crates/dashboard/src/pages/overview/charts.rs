//! The charts. Each is a table of numbers first; the browser draws what the table says.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use surehook_core::time::Span;

use super::range::Range;
use crate::{
    client::{Address, Trouble},
    lang::Lang,
    visitor::Visitor,
    words::Overview,
};

/// Over which time "now" is counted.
pub(super) const NOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Deserialize)]
pub(super) struct Series {
    pub(super) total: Counted,
    points: Vec<Point>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Counted {
    pub(super) value: u64,
    #[serde(default)]
    pub(super) by: BTreeMap<String, u64>,
    p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl Counted {
    pub(super) fn succeeded(&self) -> u64 {
        self.by.get("succeeded").copied().unwrap_or_default()
    }
}

#[derive(Debug, Deserialize)]
struct Point {
    at: String,
    #[serde(flatten)]
    counted: Counted,
}

/// Everything that the charts and the tiles say about a piece of time.
pub(super) struct Numbers {
    pub(super) accepted: Series,
    duplicates: Series,
    pub(super) attempts: Series,
    dead: Series,
    pub(super) latency: Series,
    /// What was accepted just now.
    pub(super) lately: Series,
}

impl Numbers {
    pub(super) async fn of(visitor: &Visitor, range: Range) -> Result<Self, Trouble> {
        let series = |metric: &'static str| visitor.get::<Series>(address(metric, range));
        let now = visitor.now();
        let just_now =
            Range { chosen: None, since: now - NOW, until: now, width: Span::from_secs(10) };
        let (accepted, duplicates, attempts, dead, latency, lately) = tokio::try_join!(
            series("accepted"),
            series("duplicates"),
            series("attempts"),
            series("dead"),
            series("latency"),
            visitor.get::<Series>(address("accepted", just_now)),
        )?;
        Ok(Self { accepted, duplicates, attempts, dead, latency, lately })
    }
}

pub(super) fn address(metric: &str, range: Range) -> Address {
    Address::new(&["stats", "series"])
        .with("metric", metric)
        .with("since", &range.since.to_string())
        .with("until", &range.until.to_string())
        .with("width", &range.width.to_string())
}

/// A column of a chart's table: a line, or a part of each bar.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// The colour, by its name in the styles.
    pub(super) tone: &'static str,
}

/// A number as a cell has it: for people and for the script.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) value: String,
}

impl Cell {
    fn count(lang: Lang, count: u64) -> Self {
        Self { text: lang.number(count), value: count.to_string() }
    }

    /// Nothing is empty, and no zero: nobody waited.
    fn millis(lang: Lang, millis: Option<f64>) -> Self {
        match millis {
            Some(millis) => Self { text: span(lang, millis), value: format!("{millis:.3}") },
            None => Self { text: "–".to_owned(), value: String::new() },
        }
    }
}

/// Milliseconds for people.
pub(super) fn span(lang: Lang, millis: f64) -> String {
    if millis < 10.0 {
        return format!("{} ms", lang.decimal(millis, 1));
    }
    crate::show::span(lang, Duration::from_secs_f64(millis.max(0.0) / 1000.0))
}

pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) lead: &'static str,
    /// `bars` on top of each other, or `lines`.
    pub(super) form: &'static str,
    /// What the numbers are: `count` or `ms`.
    pub(super) unit: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<(String, Vec<Cell>)>,
}

pub(super) fn charts(numbers: &Numbers, t: &'static Overview, lang: Lang) -> [Chart; 3] {
    let column = |name, tone| Column { name, tone };
    let count = |count| Cell::count(lang, count);
    let taken_in = numbers.accepted.points.iter().zip(&numbers.duplicates.points);
    let taken_in = taken_in.map(|(accepted, duplicates)| {
        (accepted.at.clone(), vec![count(accepted.counted.value), count(duplicates.counted.value)])
    });
    let attempts = numbers.attempts.points.iter().zip(&numbers.dead.points);
    let attempts = attempts.map(|(attempts, dead)| {
        let (made, succeeded) = (attempts.counted.value, attempts.counted.succeeded());
        let dead = dead.counted.value;
        // The attempt that a delivery died of is shown as its death.
        let again = made.saturating_sub(succeeded).saturating_sub(dead);
        (attempts.at.clone(), vec![count(succeeded), count(again), count(dead)])
    });
    let latency = numbers.latency.points.iter().map(|Point { at, counted }| {
        let cells = [counted.p50_ms, counted.p95_ms, counted.p99_ms];
        (at.clone(), cells.into_iter().map(|millis| Cell::millis(lang, millis)).collect())
    });
    [
        Chart {
            id: "chart-in",
            title: t.chart_in,
            lead: t.chart_in_lead,
            form: "bars",
            unit: "count",
            columns: vec![column(t.accepted, "accent"), column(t.duplicates, "held")],
            rows: taken_in.collect(),
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
    use super::*;

    fn series(value: u64, by: &[(&str, u64)]) -> Series {
        let by = by.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let counted = Counted { value, by, ..Counted::default() };
        Series { points: vec![Point { at: "t".to_owned(), counted }], ..Series::default() }
    }

    #[test]
    fn an_attempt_is_shown_once() {
        let numbers = Numbers {
            accepted: series(5, &[]),
            duplicates: series(1, &[]),
            attempts: series(10, &[("succeeded", 6), ("transient", 4)]),
            dead: series(1, &[]),
            latency: series(0, &[]),
            lately: series(0, &[]),
        };
        let charts = charts(&numbers, Overview::of(Lang::En), Lang::En);
        let values = |at: usize| -> Vec<_> {
            charts[at].rows[0].1.iter().map(|cell| cell.value.clone()).collect()
        };
        assert_eq!(values(0), ["5", "1"]);
        assert_eq!(values(1), ["6", "3", "1"]);
        assert_eq!(values(2), ["", "", ""], "nobody waited");
        for chart in &charts {
            assert_eq!(chart.columns.len(), chart.rows[0].1.len());
        }
    }

    #[test]
    fn short_spans_have_a_digit_more() {
        assert_eq!(span(Lang::En, 4.25), "4.2 ms");
        assert_eq!(span(Lang::Pt, 4.25), "4,2 ms");
        assert_eq!(span(Lang::En, 850.4), "850 ms");
        assert_eq!(span(Lang::En, 2359.2), "2.4 s");
    }
}
