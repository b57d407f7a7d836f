//! `/api/v1/stats/series`: counts over time, for charts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::stats::{Percentiles, Series, SeriesPoint, SeriesValue};
use surehook_core::{destination::DestinationSpec, source::SourceSpec};
use surehook_core::{
    histogram::Histogram,
    rollup::{ChartGrid, RollupCounts, RollupMetric, RollupQuery, RollupSubject},
    store::Configuration,
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    name::Name,
    time::{HumanDuration, Timestamp},
};

use super::{extract::QueryParams, find_by_name};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

const SPAN_DEFAULT: Duration = Duration::from_secs(3600);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesQuery {
    /// Metric to return; each is counted either per source or per destination.
    #[schemars(regex(
        pattern = "^(accepted|no_key|key_conflicts|duplicates|attempts|failed|dead|latency|attempt_time)$"
    ))]
    metric: String,
    /// Name of the source.
    source: Option<Name>,
    /// Name of the destination.
    destination: Option<Name>,
    /// Start; one hour before `until` by default.
    since: Option<Timestamp>,
    /// End; now by default.
    until: Option<Timestamp>,
    /// Duration of one point, a multiple of 10 s.
    width: Option<HumanDuration>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation = Operation::new("get_stats_series", "Get counts over time, for charts.")
        .query::<SeriesQuery>()
        .returns::<Series>(200);
    api.get("/api/v1/stats/series", get_stats_series, operation)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesMetric {
    Accepted,
    NoKey,
    KeyConflicts,
    Duplicates,
    Attempts,
    Failed,
    Dead,
    Latency,
    AttemptTime,
}

impl SeriesMetric {
    const ALL: [(&'static str, Self); 9] = [
        ("accepted", Self::Accepted),
        ("no_key", Self::NoKey),
        ("key_conflicts", Self::KeyConflicts),
        ("duplicates", Self::Duplicates),
        ("attempts", Self::Attempts),
        ("failed", Self::Failed),
        ("dead", Self::Dead),
        ("latency", Self::Latency),
        ("attempt_time", Self::AttemptTime),
    ];

    fn parse(text: &str) -> Result<Self, Problem> {
        let metric = Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, metric)| *metric);
        metric.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Problem::invalid(format!("`metric` must be one of: {}", names.join(", ")))
        })
    }

    /// Whether the metric is counted per source; otherwise per destination.
    fn is_per_source(self) -> bool {
        match self {
            Self::Accepted | Self::NoKey | Self::KeyConflicts | Self::Duplicates => true,
            Self::Attempts | Self::Failed | Self::Dead | Self::Latency | Self::AttemptTime => false,
        }
    }

    fn value(self, counts: &RollupCounts) -> SeriesValue {
        let without_percentiles = |value, by| SeriesValue { value, by, percentiles: None };
        let count = |metric| without_percentiles(counts.get(metric), None);
        match self {
            Self::Accepted => count(RollupMetric::Accepted),
            Self::NoKey => count(RollupMetric::NoKey),
            Self::KeyConflicts => count(RollupMetric::KeyConflicts),
            Self::Duplicates => count(RollupMetric::Duplicates),
            Self::Attempts => {
                let mut by = counts_by_class(counts);
                by.insert("succeeded".to_owned(), counts.get(RollupMetric::Succeeded));
                without_percentiles(counts.attempts(), Some(by))
            }
            Self::Failed => {
                without_percentiles(counts.failed_attempts(), Some(counts_by_class(counts)))
            }
            Self::Dead => {
                without_percentiles(counts.dead_deliveries(), Some(counts_by_reason(counts)))
            }
            Self::Latency => percentiles(&counts.latency),
            Self::AttemptTime => percentiles(&counts.attempt_time),
        }
    }
}

fn counts_by_class(counts: &RollupCounts) -> BTreeMap<String, u64> {
    let entry = |class: FailureClass| {
        (class.as_str().to_owned(), counts.get(RollupMetric::attempt(Some(class))))
    };
    FailureClass::ALL.into_iter().map(entry).collect()
}

fn counts_by_reason(counts: &RollupCounts) -> BTreeMap<String, u64> {
    let entry =
        |reason: DeadReason| (reason.as_str().to_owned(), counts.get(RollupMetric::dead(reason)));
    DeadReason::ALL.into_iter().map(entry).collect()
}

fn percentiles(histogram: &Histogram) -> SeriesValue {
    let millis = |percent| histogram.percentile(percent).map(|span| span.as_secs_f64() * 1000.0);
    let percentiles = Percentiles {
        p50_ms: millis(50),
        p90_ms: millis(90),
        p95_ms: millis(95),
        p99_ms: millis(99),
    };
    SeriesValue { value: histogram.count(), by: None, percentiles: Some(percentiles) }
}

pub(crate) async fn get_stats_series(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<SeriesQuery>,
) -> Result<Json<Series>, Problem> {
    let metric = SeriesMetric::parse(&query.metric)?;
    let store = server.engine.store();
    let subject = find_subject(metric, &query, &store.load_configuration().await?)?;
    let grid = build_grid(&query, server.engine.clock().now())?;
    let ChartGrid { since, until, base, .. } = grid;
    let buckets = store.list_rollups(RollupQuery { subject, width: base, since, until }).await?;
    let points = grid.points(buckets);
    let mut total = RollupCounts::default();
    points.iter().for_each(|(_, counts)| total.merge(counts));
    let point = |(at, counts): &(Timestamp, RollupCounts)| SeriesPoint {
        at: *at,
        value: metric.value(counts),
    };
    Ok(Json(Series {
        metric: query.metric,
        source: query.source.map(|name| name.to_string()),
        destination: query.destination.map(|name| name.to_string()),
        since,
        until,
        width: HumanDuration::from_secs(grid.secs),
        total: metric.value(&total),
        points: points.iter().map(point).collect(),
    }))
}

fn find_subject(
    metric: SeriesMetric,
    query: &SeriesQuery,
    configuration: &Configuration,
) -> Result<RollupSubject, Problem> {
    match (metric.is_per_source(), &query.source, &query.destination) {
        (true, source, None) => {
            let source = find_by_name::<SourceSpec>(configuration, source.as_ref())?;
            Ok(RollupSubject::Source(source))
        }
        (false, None, destination) => {
            let to = find_by_name::<DestinationSpec>(configuration, destination.as_ref())?;
            Ok(RollupSubject::Destination(to))
        }
        (true, _, Some(_)) => {
            Err(Problem::invalid("This metric is counted per source. Remove `destination`."))
        }
        (false, Some(_), _) => {
            Err(Problem::invalid("This metric is counted per destination. Remove `source`."))
        }
    }
}

fn build_grid(query: &SeriesQuery, now: Timestamp) -> Result<ChartGrid, Problem> {
    let until = query.until.unwrap_or(now);
    let since = query.since.unwrap_or(until - SPAN_DEFAULT);
    ChartGrid::new(since, until, query.width, now)
        .map_err(|error| Problem::invalid(error.to_string()))
}
