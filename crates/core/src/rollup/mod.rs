//! Counts by time that outlive what they count.
//!
//! Events and attempts go when their time has passed; what happened in each ten seconds, minute and
//! hour stays much longer, as a [`RollupCounts`] of a source or of a destination. Tallies can be added:
//! that is how coarse buckets come from fine ones, and a whole from its parts.
//!
//! - [`RollupCounts`]: what is counted; `code` is how it is kept.
//! - [`BucketWidth`]: which buckets are kept, and for how long.
//! - [`ChartGrid`]: the points of a chart.

mod code;
mod grid;

use std::time::Duration;

use crate::{
    delivery::{DeadReason, FailureClass},
    histogram::Histogram,
    ids::{DestinationId, SourceId},
    time::Timestamp,
};

pub use self::{
    code::{DecodeRollupError, read_varint, write_varint},
    grid::{CHART_POINTS_MAX, ChartGrid, ChartGridError},
};

/// Something that is counted. The number is how it is kept, so it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollupMetric {
    /// Events stored; of a source.
    Accepted = 0,
    /// Events stored without a key; of a source.
    NoKey = 1,
    /// Duplicates seen; of a source.
    Duplicates = 2,
    /// Attempts that went well; of a destination, like all that follow.
    Succeeded = 3,
    /// Attempts that failed for now.
    Transient = 4,
    /// Attempts that were told to slow down.
    Throttled = 5,
    /// Attempts whose event was refused for good.
    Permanent = 6,
    /// Attempts that failed by the settings.
    Config = 7,
    /// Attempts of which nobody knows.
    Ambiguous = 8,
    /// Deliveries given up, by reason.
    DeadMaxRetries = 9,
    /// See [`DeadReason::InvalidEndpoint`].
    DeadInvalidEndpoint = 10,
    /// See [`DeadReason::PayloadError`].
    DeadPayloadError = 11,
    /// See [`DeadReason::Unrecoverable`].
    DeadUnrecoverable = 12,
    /// See [`DeadReason::Expired`].
    DeadExpired = 13,
    /// See [`DeadReason::Ambiguous`].
    DeadAmbiguous = 14,
}

/// Counts that exist.
const COUNTS: usize = 15;

impl RollupMetric {
    /// Every count, in the order of their numbers.
    pub const ALL: [Self; COUNTS] = [
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
    ];

    /// What an attempt counts as: `None` is a success.
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

    /// What a death counts as.
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

/// What happened at a source or a destination in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupCounts {
    counts: [u64; COUNTS],
    /// From when a delivery was created to its success.
    pub latency: Histogram,
    /// How long attempts took, whatever came of them.
    pub attempt_time: Histogram,
}

impl RollupCounts {
    /// Counts something.
    pub fn add(&mut self, count: RollupMetric, many: u64) {
        let sum = &mut self.counts[count as usize];
        *sum = sum.saturating_add(many);
    }

    /// How often something was counted.
    pub fn get(&self, count: RollupMetric) -> u64 {
        self.counts[count as usize]
    }

    /// Adds what `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for count in RollupMetric::ALL {
            self.add(count, other.get(count));
        }
        self.latency.merge(&other.latency);
        self.attempt_time.merge(&other.attempt_time);
    }

    /// Attempts of all outcomes.
    pub fn attempts(&self) -> u64 {
        self.get(RollupMetric::Succeeded) + self.failed()
    }

    /// Attempts that failed, of all classes.
    pub fn failed(&self) -> u64 {
        FailureClass::ALL
            .into_iter()
            .map(|class| self.get(RollupMetric::attempt(Some(class))))
            .sum()
    }

    /// Deliveries given up, for all reasons.
    pub fn dead(&self) -> u64 {
        DeadReason::ALL.into_iter().map(|reason| self.get(RollupMetric::dead(reason))).sum()
    }
}

/// The time that may pass between a wish and its answer, and by which clocks may differ.
const SLACK: Duration = Duration::from_secs(600);

/// The buckets that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketWidth {
    /// Ten seconds, for the last six hours.
    TenSeconds,
    /// A minute, for eight days.
    Minute,
    /// An hour, for four hundred days.
    Hour,
}

impl BucketWidth {
    /// Every width, the finest first.
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Hour];

    /// How wide it is.
    pub const fn secs(self) -> u64 {
        match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// How long its buckets can be asked for.
    pub const fn retention(self) -> Duration {
        match self {
            Self::TenSeconds => Duration::from_secs(6 * 3600),
            Self::Minute => Duration::from_secs(8 * 86_400),
            Self::Hour => Duration::from_secs(400 * 86_400),
        }
    }

    /// When its buckets are removed: a little after they can be asked for last, so that whoever
    /// asks for all of them gets all of them.
    pub fn prune_after(self) -> Duration {
        self.retention() + 2 * SLACK
    }

    /// When the bucket that holds `at` begins.
    pub const fn start(self, at: Timestamp) -> Timestamp {
        align(at, self.secs())
    }
}

/// The last whole multiple of `secs` since 1970.
const fn align(at: Timestamp, secs: u64) -> Timestamp {
    let millis = secs.saturating_mul(1000).cast_signed();
    Timestamp::from_millis(at.as_millis() - at.as_millis().rem_euclid(millis))
}

/// Whose tallies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollupSubject {
    /// Of a source, or of all sources together, also of those that were deleted.
    Source(Option<SourceId>),
    /// Of a destination, or of all.
    Destination(Option<DestinationId>),
}

/// Which buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupQuery {
    /// Whose.
    pub subject: RollupSubject,
    /// How wide.
    pub width: BucketWidth,
    /// Those that begin at this time or later.
    pub since: Timestamp,
    /// Those that begin before this time.
    pub until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_their_order() {
        for (number, count) in RollupMetric::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, number, "{count:?}");
        }
    }

    #[test]
    fn each_outcome_and_each_reason_has_a_count_of_its_own() {
        let outcomes = [None].into_iter().chain(FailureClass::ALL.into_iter().map(Some));
        let all: std::collections::BTreeSet<RollupMetric> = outcomes
            .map(RollupMetric::attempt)
            .chain(DeadReason::ALL.into_iter().map(RollupMetric::dead))
            .collect();
        assert_eq!(all.len(), 1 + FailureClass::ALL.len() + DeadReason::ALL.len());
    }

    #[test]
    fn sums_are_over_all_parts() {
        let mut tally = RollupCounts::default();
        for (many, count) in (1..).zip(RollupMetric::ALL) {
            tally.add(count, many);
        }
        assert_eq!(tally.failed(), 5 + 6 + 7 + 8 + 9);
        assert_eq!(tally.attempts(), 4 + tally.failed());
        assert_eq!(tally.dead(), 10 + 11 + 12 + 13 + 14 + 15);
    }

    #[test]
    fn buckets_begin_at_whole_multiples() {
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
