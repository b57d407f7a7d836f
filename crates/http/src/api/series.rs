//! `/api/v1/stats/series`: what happened in each piece of time, for charts.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use surehook_core::{
    delivery::{DeadReason, FailureClass},
    histogram::Histogram,
    name::Name,
    rollup::{ChartGrid, RollupCounts, RollupMetric, RollupQuery, RollupSubject},
    store::Configuration,
    time::{HumanDuration, Timestamp},
};

use super::input::Asked;
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// How far back a chart goes when nobody says.
const SINCE_DEFAULT: Duration = Duration::from_secs(3600);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesQuery {
    /// What is counted.
    #[schemars(regex(
        pattern = "^(accepted|no_key|duplicates|attempts|failed|dead|latency|attempt_time)$"
    ))]
    metric: String,
    /// Only of this source; goes with what sources have.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only of this destination; goes with what destinations have.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// From when on; an hour before `until` when left out.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Until when; now when left out.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// How long a point is, a whole multiple of 10 s.
    #[schemars(with = "Option<HumanDuration>")]
    width: Option<String>,
}

/// What was counted, in a point or in all.
#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    /// How many.
    value: u64,
    /// How many of each kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Map<String, Value>>,
    /// How long they took; null when there were none.
    #[serde(flatten)]
    percentiles: Option<Percentiles>,
}

/// How long half of them took at most, and so on.
#[derive(Debug, Serialize, JsonSchema)]
struct Percentiles {
    p50_ms: Option<f64>,
    p90_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// A piece of time.
#[derive(Debug, Serialize, JsonSchema)]
struct Point {
    /// When it begins.
    at: Timestamp,
    #[serde(flatten)]
    counted: Counted,
}

/// The points of a chart.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Series {
    metric: String,
    source: Option<String>,
    destination: Option<String>,
    since: Timestamp,
    until: Timestamp,
    width: HumanDuration,
    /// All points together.
    total: Counted,
    /// Oldest first; also those in which nothing happened.
    points: Vec<Point>,
}

pub(crate) fn routes(api: Api) -> Api {
    let op = Op::new("series", "Counts by time, for charts.")
        .query::<SeriesQuery>()
        .answers::<Series>(200);
    api.get("/api/v1/stats/series", series, op)
}

/// What a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Accepted,
    NoKey,
    Duplicates,
    Attempts,
    Failed,
    Dead,
    Latency,
    AttemptTime,
}

impl Metric {
    const ALL: [(&'static str, Self); 8] = [
        ("accepted", Self::Accepted),
        ("no_key", Self::NoKey),
        ("duplicates", Self::Duplicates),
        ("attempts", Self::Attempts),
        ("failed", Self::Failed),
        ("dead", Self::Dead),
        ("latency", Self::Latency),
        ("attempt_time", Self::AttemptTime),
    ];

    fn parse(word: &str) -> Result<Self, Problem> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, metric)| *metric);
        found.ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Problem::invalid(format!("metric is one of {}", known.join(", ")))
        })
    }

    /// Whether sources have it; otherwise destinations do.
    fn is_of_sources(self) -> bool {
        match self {
            Self::Accepted | Self::NoKey | Self::Duplicates => true,
            Self::Attempts | Self::Failed | Self::Dead | Self::Latency | Self::AttemptTime => false,
        }
    }

    /// What a point, or the whole, says of it.
    fn shown(self, tally: &RollupCounts) -> Counted {
        let plain = |value, by| Counted { value, by, percentiles: None };
        let count = |count| plain(tally.get(count), None);
        match self {
            Self::Accepted => count(RollupMetric::Accepted),
            Self::NoKey => count(RollupMetric::NoKey),
            Self::Duplicates => count(RollupMetric::Duplicates),
            Self::Attempts => {
                let mut by = classes(tally);
                by.insert("succeeded".to_owned(), json!(tally.get(RollupMetric::Succeeded)));
                plain(tally.attempts(), Some(by))
            }
            Self::Failed => plain(tally.failed(), Some(classes(tally))),
            Self::Dead => plain(tally.dead(), Some(reasons(tally))),
            Self::Latency => percentiles(&tally.latency),
            Self::AttemptTime => percentiles(&tally.attempt_time),
        }
    }
}

fn classes(tally: &RollupCounts) -> Map<String, Value> {
    let entry = |class: FailureClass| {
        (class.as_str().to_owned(), json!(tally.get(RollupMetric::attempt(Some(class)))))
    };
    FailureClass::ALL.into_iter().map(entry).collect()
}

fn reasons(tally: &RollupCounts) -> Map<String, Value> {
    let entry = |reason: DeadReason| {
        (reason.as_str().to_owned(), json!(tally.get(RollupMetric::dead(reason))))
    };
    DeadReason::ALL.into_iter().map(entry).collect()
}

/// How many there were, and how long they took; no percentile of nothing.
fn percentiles(histogram: &Histogram) -> Counted {
    let millis = |percent| histogram.percentile(percent).map(|span| span.as_secs_f64() * 1000.0);
    let percentiles = Percentiles {
        p50_ms: millis(50),
        p90_ms: millis(90),
        p95_ms: millis(95),
        p99_ms: millis(99),
    };
    Counted { value: histogram.count(), by: None, percentiles: Some(percentiles) }
}

/// Points from one time to another, each a piece of time that begins `at`; none is left out.
pub(crate) async fn series(
    State(app): State<Arc<App>>,
    Asked(query): Asked<SeriesQuery>,
) -> Result<Json<Series>, Problem> {
    let metric = Metric::parse(&query.metric)?;
    let store = app.engine.store();
    let whose = whose(metric, &query, &store.configuration().await?)?;
    let grid = grid(&query, app.engine.clock().now())?;
    let ChartGrid { since, until, base, .. } = grid;
    let buckets = store.rollups(RollupQuery { whose, width: base, since, until }).await?;
    let points = grid.points(buckets);
    let mut whole = RollupCounts::default();
    points.iter().for_each(|(_, tally)| whole.merge(tally));
    let point =
        |(at, tally): &(Timestamp, RollupCounts)| Point { at: *at, counted: metric.shown(tally) };
    Ok(Json(Series {
        metric: query.metric,
        source: query.source,
        destination: query.destination,
        since,
        until,
        width: HumanDuration::from_secs(grid.secs),
        total: metric.shown(&whole),
        points: points.iter().map(point).collect(),
    }))
}

fn whose(
    metric: Metric,
    query: &SeriesQuery,
    configuration: &Configuration,
) -> Result<RollupSubject, Problem> {
    let unknown = |what: &str, name: &str| Problem::invalid(format!("there is no {what} `{name}`"));
    match (metric.is_of_sources(), &query.source, &query.destination) {
        (true, None, None) => Ok(RollupSubject::Source(None)),
        (false, None, None) => Ok(RollupSubject::Destination(None)),
        (true, Some(name), None) => {
            let found = configuration.sources.iter().find(|s| s.spec.name.as_str() == name);
            found.map(|s| RollupSubject::Source(Some(s.id))).ok_or_else(|| unknown("source", name))
        }
        (false, None, Some(name)) => {
            let found = configuration.destinations.iter().find(|d| d.spec.name.as_str() == name);
            let found = found.map(|d| RollupSubject::Destination(Some(d.id)));
            found.ok_or_else(|| unknown("destination", name))
        }
        (true, _, Some(_)) => {
            Err(Problem::invalid("this metric is counted by source; give no `destination`"))
        }
        (false, Some(_), _) => {
            Err(Problem::invalid("this metric is counted by destination; give no `source`"))
        }
    }
}

fn grid(query: &SeriesQuery, now: Timestamp) -> Result<ChartGrid, Problem> {
    let time = |name: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(str::parse::<Timestamp>).transpose();
        parsed.map_err(|error| Problem::invalid(format!("{name}: {error}")))
    };
    let until = time("until", &query.until)?.unwrap_or(now);
    let since = time("since", &query.since)?.unwrap_or(until - SINCE_DEFAULT);
    let width = query.width.as_deref().map(str::parse::<HumanDuration>).transpose();
    let width = width.map_err(|error| Problem::invalid(format!("width: {error}")))?;
    ChartGrid::new(since, until, width, now).map_err(|error| Problem::invalid(error.to_string()))
}
