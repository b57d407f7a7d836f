//! The points of a chart: contiguous buckets of a period.

use std::time::Duration;

use surehook_types::time::{HumanDuration, Timestamp};

use super::{BucketWidth, QUERY_TOLERANCE, RollupCounts, align};

/// Maximum number of points of a chart. Six hours of ten seconds fit.
pub const CHART_POINTS_MAX: u64 = 2500;

/// Widths tried in order when none is requested.
const DEFAULT_WIDTHS: [u64; 4] = [10, 60, 3600, 86_400];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChartGridError {
    #[error("since must be before until")]
    Empty,
    #[error("width must be a multiple of 10s, at most 400d")]
    Width,
    #[error("more than {CHART_POINTS_MAX} points; use a larger width or a shorter period")]
    TooMany,
    #[error("points of {0} are kept for {1}; use a larger width or a shorter period")]
    Gone(HumanDuration, HumanDuration),
}

/// The positions of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartGrid {
    /// Start of the first point.
    pub since: Timestamp,
    /// End of the last point.
    pub until: Timestamp,
    /// Width of a point in seconds.
    pub secs: u64,
    /// The stored buckets that points are made of.
    pub base: BucketWidth,
}

impl ChartGrid {
    /// The points that cover `since` to `until`, with this `width` or the finest default width that is
    /// stored for the whole period.
    pub fn new(
        since: Timestamp,
        until: Timestamp,
        width: Option<HumanDuration>,
        now: Timestamp,
    ) -> Result<Self, ChartGridError> {
        if since >= until {
            return Err(ChartGridError::Empty);
        }
        if let Some(width) = width {
            return Self::of_width(since, until, whole_secs(width.0)?, now);
        }
        let mut result = Err(ChartGridError::TooMany);
        for secs in DEFAULT_WIDTHS {
            result = Self::of_width(since, until, secs, now);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn of_width(
        since: Timestamp,
        until: Timestamp,
        secs: u64,
        now: Timestamp,
    ) -> Result<Self, ChartGridError> {
        let base =
            BucketWidth::ALL.into_iter().rev().find(|width| secs.is_multiple_of(width.secs()));
        let base = base.ok_or(ChartGridError::Width)?;
        let first = align(since, secs);
        // The last point contains the last moment before `until`.
        let last = align(until - Duration::from_millis(1), secs);
        let grid = Self { since: first, until: last + Duration::from_secs(secs), secs, base };
        if grid.len() > CHART_POINTS_MAX {
            return Err(ChartGridError::TooMany);
        }
        if since + QUERY_TOLERANCE < now - base.retention() {
            return Err(ChartGridError::Gone(
                HumanDuration::from_secs(base.secs()),
                HumanDuration(base.retention()),
            ));
        }
        Ok(grid)
    }

    fn len(&self) -> u64 {
        self.until.since(self.since).as_secs() / self.secs
    }

    /// Merges buckets into their points. A point without buckets has zero counts.
    pub fn points(
        &self,
        buckets: impl IntoIterator<Item = (Timestamp, RollupCounts)>,
    ) -> Vec<(Timestamp, RollupCounts)> {
        let mut points: Vec<(Timestamp, RollupCounts)> = (0..self.len())
            .map(|n| (self.since + Duration::from_secs(n * self.secs), RollupCounts::default()))
            .collect();
        for (start, counts) in buckets {
            let index = start.since(self.since).as_secs() / self.secs;
            let point = usize::try_from(index).ok().and_then(|index| points.get_mut(index));
            if let Some((_, sum)) = point.filter(|_| start >= self.since) {
                sum.merge(&counts);
            }
        }
        points
    }
}

fn whole_secs(width: Duration) -> Result<u64, ChartGridError> {
    let is_valid = width.subsec_nanos() == 0
        && width > Duration::ZERO
        && width <= BucketWidth::Hour.retention();
    if is_valid { Ok(width.as_secs()) } else { Err(ChartGridError::Width) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rollup::RollupMetric;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const HOUR: u64 = 3600;
    const DAY: u64 = 86_400;

    fn ago(secs: u64) -> Timestamp {
        NOW - Duration::from_secs(secs)
    }

    fn accepted(count: u64) -> RollupCounts {
        let mut counts = RollupCounts::default();
        counts.add(RollupMetric::Accepted, count);
        counts
    }

    #[test]
    fn default_width_follows_from_the_period() {
        let cases = [
            (60, 10, BucketWidth::TenSeconds),
            (HOUR, 10, BucketWidth::TenSeconds),
            (6 * HOUR, 10, BucketWidth::TenSeconds),
            (7 * HOUR, 60, BucketWidth::Minute),
            (DAY, 60, BucketWidth::Minute),
            (7 * DAY, HOUR, BucketWidth::Hour),
            (90 * DAY, HOUR, BucketWidth::Hour),
            (365 * DAY, DAY, BucketWidth::Hour),
        ];
        for (secs, width, base) in cases {
            let grid = ChartGrid::new(ago(secs), NOW, None, NOW).unwrap();
            assert_eq!((grid.secs, grid.base), (width, base), "case: {secs} s");
        }
    }

    #[test]
    fn invalid_grids_are_rejected_with_a_reason() {
        let duration = |secs| Some(HumanDuration::from_secs(secs));
        let expired_at = |width: BucketWidth| {
            ChartGridError::Gone(
                HumanDuration::from_secs(width.secs()),
                HumanDuration(width.retention()),
            )
        };
        let cases = [
            (0, None, ChartGridError::Empty),
            (60, duration(0), ChartGridError::Width),
            (60, duration(15), ChartGridError::Width),
            (60, Some(HumanDuration(Duration::from_millis(10_500))), ChartGridError::Width),
            (60, duration(401 * DAY), ChartGridError::Width),
            (DAY, duration(10), ChartGridError::TooMany),
            (7 * HOUR, duration(20), expired_at(BucketWidth::TenSeconds)),
            (9 * DAY, duration(30 * 60), expired_at(BucketWidth::Minute)),
            (500 * DAY, duration(DAY), expired_at(BucketWidth::Hour)),
            (500 * DAY, None, expired_at(BucketWidth::Hour)),
        ];
        for (secs, width, expected) in cases {
            let found = ChartGrid::new(ago(secs), NOW, width, NOW);
            assert_eq!(found, Err(expected), "case: {secs} s of {width:?}");
        }
    }

    #[test]
    fn points_are_aligned_and_contiguous() {
        let at = Timestamp::from_millis;
        let grid =
            ChartGrid::new(at(25_000), at(60_001), Some(HumanDuration::from_secs(20)), at(70_000))
                .unwrap();
        let buckets =
            [(at(20_000), accepted(1)), (at(30_000), accepted(2)), (at(70_000), accepted(4))];

        let points = grid.points(buckets);

        let expected =
            [(at(20_000), accepted(3)), (at(40_000), accepted(0)), (at(60_000), accepted(4))];
        assert_eq!(points, expected);
    }

    proptest! {
        #[test]
        fn no_bucket_of_the_period_is_lost(
            starts in prop::collection::vec(0..2000_i64, 0..60),
            since in 0..20_000_000_i64,
            duration in 1..5_000_000_i64,
            width in prop::sample::select(vec![None, Some(30), Some(60), Some(90), Some(HOUR)]),
        ) {
            let at = Timestamp::from_millis;
            let now = at(21_000_000);
            let grid = ChartGrid::new(at(since), at(since + duration), width.map(HumanDuration::from_secs), now);
            let Ok(grid) = grid else { return Ok(()) };
            prop_assert!(grid.since <= at(since) && at(since + duration) <= grid.until);
            let buckets: Vec<_> = starts.iter().map(|n| (at(n * 10_000), accepted(1))).collect();
            let within = buckets.iter().filter(|(s, _)| (grid.since..grid.until).contains(s)).count();

            let points = grid.points(buckets);

            let sum: u64 = points.iter().map(|(_, counts)| counts.get(RollupMetric::Accepted)).sum();
            prop_assert_eq!(sum, within as u64);
            prop_assert!(points.len() as u64 <= CHART_POINTS_MAX);
        }
    }
}
