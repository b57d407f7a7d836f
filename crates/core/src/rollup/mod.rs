//! Rollups: counts per time bucket that outlive the events they count.
//!
//! Events and attempts are removed by retention; the [`RollupCounts`] of each source and destination
//! per ten seconds, minute and hour are kept much longer. Counts can be merged: coarse buckets come
//! from fine ones, and totals from their parts. [`ChartGrid`] gives the points of a chart.

mod encoding;
mod grid;

use std::time::Duration;

use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, SourceId},
    time::Timestamp,
};

pub use self::{
    encoding::{DecodeRollupError, read_varint, write_varint},
    grid::{CHART_POINTS_MAX, ChartGrid, ChartGridError},
};
use crate::{
    histogram::Histogram,
    store::{NextStep, Settlement},
};

/// A counted metric. Its number is stored, so it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollupMetric {
    /// Events stored, of a source.
    Accepted = 0,
    /// Events stored without a key, of a source.
    NoKey = 1,
    /// Duplicates received, of a source.
    Duplicates = 2,
    /// Successful attempts, of a destination, like all attempts and dead deliveries below.
    Succeeded = 3,
    /// Attempts by failure class.
    Transient = 4,
    Throttled = 5,
    Permanent = 6,
    Config = 7,
    Ambiguous = 8,
    /// Dead deliveries by reason.
    DeadMaxRetries = 9,
    DeadInvalidEndpoint = 10,
    DeadPayloadError = 11,
    DeadUnrecoverable = 12,
    DeadExpired = 13,
    DeadAmbiguous = 14,
    /// Events stored with a key conflict, of a source.
    KeyConflicts = 15,
}

const METRICS: usize = 16;

impl RollupMetric {
    pub const ALL: [Self; METRICS] = [
        Self::Accepted,
        Self::NoKey,
        Self::Duplicates,
        Self::Succeeded,
        Self::Transient,
        Self::Throttled,
        Self::Permanent,
        Self::Config,
        Self::Ambiguous,
        Self::DeadMaxRetries,
        Self::DeadInvalidEndpoint,
        Self::DeadPayloadError,
        Self::DeadUnrecoverable,
        Self::DeadExpired,
        Self::DeadAmbiguous,
        Self::KeyConflicts,
    ];

    /// The metric of an attempt with this class; `None` is a success.
    pub const fn attempt(class: Option<FailureClass>) -> Self {
        match class {
            None => Self::Succeeded,
            Some(FailureClass::Transient) => Self::Transient,
            Some(FailureClass::Throttled) => Self::Throttled,
            Some(FailureClass::Permanent) => Self::Permanent,
            Some(FailureClass::Config) => Self::Config,
            Some(FailureClass::Ambiguous) => Self::Ambiguous,
        }
    }

    /// The metric of a dead delivery.
    pub const fn dead(reason: DeadReason) -> Self {
        match reason {
            DeadReason::MaxRetries => Self::DeadMaxRetries,
            DeadReason::InvalidEndpoint => Self::DeadInvalidEndpoint,
            DeadReason::PayloadError => Self::DeadPayloadError,
            DeadReason::Unrecoverable => Self::DeadUnrecoverable,
            DeadReason::Expired => Self::DeadExpired,
            DeadReason::Ambiguous => Self::DeadAmbiguous,
        }
    }
}

/// Counts and durations of a source or destination in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupCounts {
    counts: [u64; METRICS],
    /// Time from the creation of a delivery to its success.
    pub latency: Histogram,
    /// Duration of all attempts.
    pub attempt_time: Histogram,
    /// The most recent failed attempt.
    pub last_failure: Option<FailureMark>,
}

/// Which attempt failed, and when. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureMark {
    pub at: Timestamp,
    pub delivery: DeliveryId,
    /// Its number within the delivery.
    pub attempt: u32,
}

impl RollupCounts {
    /// Counts an attempt of a destination.
    pub fn record_attempt(&mut self, settlement: &Settlement) {
        let Settlement { delivery, created_at, at, attempt, next, .. } = settlement;
        self.add(RollupMetric::attempt(attempt.class), 1);
        self.attempt_time.record(attempt.took);
        if *next == NextStep::Succeeded {
            self.latency.record(at.since(*created_at));
        }
        if attempt.class.is_some() {
            let mark = FailureMark { at: *at, delivery: *delivery, attempt: attempt.number };
            self.last_failure = self.last_failure.max(Some(mark));
        }
    }

    pub fn add(&mut self, metric: RollupMetric, amount: u64) {
        let sum = &mut self.counts[metric as usize];
        *sum = sum.saturating_add(amount);
    }

    pub fn get(&self, metric: RollupMetric) -> u64 {
        self.counts[metric as usize]
    }

    pub fn merge(&mut self, other: &Self) {
        for metric in RollupMetric::ALL {
            self.add(metric, other.get(metric));
        }
        self.latency.merge(&other.latency);
        self.attempt_time.merge(&other.attempt_time);
        self.last_failure = self.last_failure.max(other.last_failure);
    }

    pub fn attempts(&self) -> u64 {
        self.get(RollupMetric::Succeeded) + self.failed_attempts()
    }

    pub fn failed_attempts(&self) -> u64 {
        FailureClass::ALL
            .into_iter()
            .map(|class| self.get(RollupMetric::attempt(Some(class))))
            .sum()
    }

    pub fn dead_deliveries(&self) -> u64 {
        DeadReason::ALL.into_iter().map(|reason| self.get(RollupMetric::dead(reason))).sum()
    }
}

/// A query may begin this much before the retention: it takes time to arrive, and clocks differ.
const QUERY_TOLERANCE: Duration = Duration::from_secs(600);

/// Width of the stored buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketWidth {
    /// Kept for six hours.
    TenSeconds,
    /// Kept for eight days.
    Minute,
    /// Kept for four hundred days.
    Hour,
}

impl BucketWidth {
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Hour];

    pub const fn secs(self) -> u64 {
        match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// How long buckets can be queried.
    pub const fn retention(self) -> Duration {
        match self {
            Self::TenSeconds => Duration::from_secs(6 * 3600),
            Self::Minute => Duration::from_secs(8 * 86_400),
            Self::Hour => Duration::from_secs(400 * 86_400),
        }
    }

    /// Age at which buckets are removed: later than [`Self::retention`] plus [`QUERY_TOLERANCE`],
    /// so that a query for the whole period gets all buckets.
    pub fn prune_after(self) -> Duration {
        self.retention() + 2 * QUERY_TOLERANCE
    }

    /// Start of the bucket that contains `at`.
    pub const fn start(self, at: Timestamp) -> Timestamp {
        align(at, self.secs())
    }
}

/// Rounds down to a multiple of `secs` since 1970.
const fn align(at: Timestamp, secs: u64) -> Timestamp {
    let millis = secs.saturating_mul(1000).cast_signed();
    Timestamp::from_millis(at.as_millis() - at.as_millis().rem_euclid(millis))
}

/// The source or destination that counts belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollupSubject {
    /// A source, or all sources together, deleted ones included.
    Source(Option<SourceId>),
    /// A destination, or all together.
    Destination(Option<DestinationId>),
}

/// The counts of a destination in one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationRollup {
    pub destination: DestinationId,
    /// Start of the bucket.
    pub start: Timestamp,
    pub counts: RollupCounts,
}

/// A query for buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupQuery {
    pub subject: RollupSubject,
    pub width: BucketWidth,
    /// Start of the first bucket, inclusive.
    pub since: Timestamp,
    /// End of the query, exclusive: no bucket starts at this time or later.
    pub until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_numbers_match_their_position() {
        for (number, metric) in RollupMetric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, number, "{metric:?}");
        }
    }

    #[test]
    fn each_class_and_each_dead_reason_has_its_own_metric() {
        let outcomes = [None].into_iter().chain(FailureClass::ALL.into_iter().map(Some));
        let all: std::collections::BTreeSet<RollupMetric> = outcomes
            .map(RollupMetric::attempt)
            .chain(DeadReason::ALL.into_iter().map(RollupMetric::dead))
            .collect();
        assert_eq!(all.len(), 1 + FailureClass::ALL.len() + DeadReason::ALL.len());
    }

    #[test]
    fn totals_include_all_metrics() {
        let mut counts = RollupCounts::default();
        for (amount, metric) in (1..).zip(RollupMetric::ALL) {
            counts.add(metric, amount);
        }
        assert_eq!(counts.failed_attempts(), 5 + 6 + 7 + 8 + 9);
        assert_eq!(counts.attempts(), 4 + counts.failed_attempts());
        assert_eq!(counts.dead_deliveries(), 10 + 11 + 12 + 13 + 14 + 15);
    }

    #[test]
    fn buckets_start_at_multiples_of_their_width() {
        let at = Timestamp::from_millis;
        let cases = [
            (BucketWidth::TenSeconds, 12_345, 10_000),
            (BucketWidth::TenSeconds, 10_000, 10_000),
            (BucketWidth::TenSeconds, 9_999, 0),
            (BucketWidth::Minute, 119_999, 60_000),
            (BucketWidth::Hour, 3_600_000, 3_600_000),
            (BucketWidth::TenSeconds, -1, -10_000),
        ];
        for (width, millis, start) in cases {
            assert_eq!(width.start(at(millis)), at(start), "case: {width:?} {millis}");
        }
    }
}
