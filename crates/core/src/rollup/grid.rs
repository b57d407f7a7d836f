//! The points of a chart: whole buckets from one time to another, none left out.

use std::time::Duration;

use super::{SLACK, Tally, Width, align};
use crate::time::{Span, Timestamp};

/// Points of one chart. Six hours of ten seconds fit.
pub const POINTS_MAX: u64 = 2500;

/// Widths that are tried when none is asked for.
const USUAL: [u64; 4] = [10, 60, 3600, 86_400];

/// Points that cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGrid {
    /// Nothing lies between the ends.
    #[error("since must be before until")]
    Empty,
    /// The width is not made of whole buckets.
    #[error("width must be a whole multiple of 10s, at most 400d")]
    Width,
    /// There would be too many points.
    #[error(
        "that would be more than {POINTS_MAX} points; ask for a larger width or a shorter time"
    )]
    TooMany,
    /// The buckets were removed.
    #[error("points of {0} are kept for {1}; ask for a larger width or a shorter time")]
    Gone(Span, Span),
}

/// Where the points lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// When the first one begins.
    pub since: Timestamp,
    /// When the last one ends.
    pub until: Timestamp,
    /// How wide one is, in seconds.
    pub secs: u64,
    /// Of which buckets they are made.
    pub base: Width,
}

impl Grid {
    /// The points that cover `since` to `until`, each `width` wide, or of the finest usual width
    /// that is there for the whole time.
    pub fn new(
        since: Timestamp,
        until: Timestamp,
        width: Option<Span>,
        now: Timestamp,
    ) -> Result<Self, InvalidGrid> {
        if since >= until {
            return Err(InvalidGrid::Empty);
        }
        if let Some(width) = width {
            return Self::of_width(since, until, whole_secs(width.0)?, now);
        }
        let mut tried = Err(InvalidGrid::TooMany);
        for secs in USUAL {
            tried = Self::of_width(since, until, secs, now);
            if tried.is_ok() {
                break;
            }
        }
        tried
    }

    fn of_width(
        since: Timestamp,
        until: Timestamp,
        secs: u64,
        now: Timestamp,
    ) -> Result<Self, InvalidGrid> {
        let base = Width::ALL.into_iter().rev().find(|width| secs.is_multiple_of(width.secs()));
        let base = base.ok_or(InvalidGrid::Width)?;
        let first = align(since, secs);
        // The last point is the one that holds the last moment before `until`.
        let last = align(until - Duration::from_millis(1), secs);
        let grid = Self { since: first, until: last + Duration::from_secs(secs), secs, base };
        if grid.len() > POINTS_MAX {
            return Err(InvalidGrid::TooMany);
        }
        if since + SLACK < now - base.kept() {
            return Err(InvalidGrid::Gone(Span::from_secs(base.secs()), Span(base.kept())));
        }
        Ok(grid)
    }

    fn len(&self) -> u64 {
        self.until.since(self.since).as_secs() / self.secs
    }

    /// Adds buckets up to the points in which they lie. A point without any is a tally of zeros.
    pub fn points(
        &self,
        buckets: impl IntoIterator<Item = (Timestamp, Tally)>,
    ) -> Vec<(Timestamp, Tally)> {
        let mut points: Vec<(Timestamp, Tally)> = (0..self.len())
            .map(|n| (self.since + Duration::from_secs(n * self.secs), Tally::default()))
            .collect();
        for (start, tally) in buckets {
            let place = start.since(self.since).as_secs() / self.secs;
            let point = usize::try_from(place).ok().and_then(|place| points.get_mut(place));
            if let Some((_, sum)) = point.filter(|_| start >= self.since) {
                sum.merge(&tally);
            }
        }
        points
    }
}

fn whole_secs(width: Duration) -> Result<u64, InvalidGrid> {
    let good = width.subsec_nanos() == 0 && width > Duration::ZERO && width <= Width::Hour.kept();
    if good { Ok(width.as_secs()) } else { Err(InvalidGrid::Width) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rollup::Count;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const HOUR: u64 = 3600;
    const DAY: u64 = 86_400;

    fn ago(secs: u64) -> Timestamp {
        NOW - Duration::from_secs(secs)
    }

    fn accepted(many: u64) -> Tally {
        let mut tally = Tally::default();
        tally.add(Count::Accepted, many);
        tally
    }

    #[test]
    fn the_width_follows_from_the_time_when_none_is_asked_for() {
        let cases = [
            (60, 10, Width::TenSeconds),
            (HOUR, 10, Width::TenSeconds),
            (6 * HOUR, 10, Width::TenSeconds),
            (7 * HOUR, 60, Width::Minute),
            (DAY, 60, Width::Minute),
            (7 * DAY, HOUR, Width::Hour),
            (90 * DAY, HOUR, Width::Hour),
            (365 * DAY, DAY, Width::Hour),
        ];
        for (secs, width, base) in cases {
            let grid = Grid::new(ago(secs), NOW, None, NOW).unwrap();
            assert_eq!((grid.secs, grid.base), (width, base), "case: {secs} s");
        }
    }

    #[test]
    fn what_cannot_be_given_is_refused_with_a_reason() {
        let span = |secs| Some(Span::from_secs(secs));
        let gone =
            |width: Width| InvalidGrid::Gone(Span::from_secs(width.secs()), Span(width.kept()));
        let cases = [
            (0, None, InvalidGrid::Empty),
            (60, span(0), InvalidGrid::Width),
            (60, span(15), InvalidGrid::Width),
            (60, Some(Span(Duration::from_millis(10_500))), InvalidGrid::Width),
            (60, span(401 * DAY), InvalidGrid::Width),
            (DAY, span(10), InvalidGrid::TooMany),
            (7 * HOUR, span(20), gone(Width::TenSeconds)),
            (9 * DAY, span(30 * 60), gone(Width::Minute)),
            (500 * DAY, span(DAY), gone(Width::Hour)),
            (500 * DAY, None, gone(Width::Hour)),
        ];
        for (secs, width, expected) in cases {
            let told = Grid::new(ago(secs), NOW, width, NOW);
            assert_eq!(told, Err(expected), "case: {secs} s of {width:?}");
        }
    }

    #[test]
    fn points_are_aligned_and_none_is_left_out() {
        let at = Timestamp::from_millis;
        let grid =
            Grid::new(at(25_000), at(60_001), Some(Span::from_secs(20)), at(70_000)).unwrap();
        let buckets =
            [(at(20_000), accepted(1)), (at(30_000), accepted(2)), (at(70_000), accepted(4))];

        let points = grid.points(buckets);

        let expected =
            [(at(20_000), accepted(3)), (at(40_000), accepted(0)), (at(60_000), accepted(4))];
        assert_eq!(points, expected);
    }

    proptest! {
        #[test]
        fn no_bucket_of_the_time_is_lost(
            starts in prop::collection::vec(0..2000_i64, 0..60),
            since in 0..20_000_000_i64,
            span in 1..5_000_000_i64,
            width in prop::sample::select(vec![None, Some(30), Some(60), Some(90), Some(HOUR)]),
        ) {
            let at = Timestamp::from_millis;
            let now = at(21_000_000);
            let grid = Grid::new(at(since), at(since + span), width.map(Span::from_secs), now);
            let Ok(grid) = grid else { return Ok(()) };
            prop_assert!(grid.since <= at(since) && at(since + span) <= grid.until);
            let buckets: Vec<_> = starts.iter().map(|n| (at(n * 10_000), accepted(1))).collect();
            let within = buckets.iter().filter(|(s, _)| (grid.since..grid.until).contains(s)).count();

            let points = grid.points(buckets);

            let sum: u64 = points.iter().map(|(_, tally)| tally.get(Count::Accepted)).sum();
            prop_assert_eq!(sum, within as u64);
            prop_assert!(points.len() as u64 <= POINTS_MAX);
        }
    }
}
