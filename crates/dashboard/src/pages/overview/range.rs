//! The time range of the charts: a preset, or a range marked in a chart.

use std::time::Duration;

use serde::Deserialize;
use surehook_core::rollup::ChartGrid;
use surehook_types::time::{HumanDuration, Timestamp};

/// Presets: name, length and width of a point in seconds.
const CHOICES: [(&str, u64, u64); 5] = [
    ("15m", 15 * 60, 10),
    ("1h", 3600, 60),
    ("6h", 6 * 3600, 300),
    ("24h", 86_400, 900),
    ("7d", 7 * 86_400, 7200),
];
const DEFAULT_CHOICE: usize = 1;

/// Point widths for marked ranges. Each is a multiple of a rollup bucket.
const WIDTHS: [u64; 9] = [10, 30, 60, 300, 900, 3600, 7200, 21_600, 86_400];
/// Maximum number of points in a chart.
const POINTS_MAX: u64 = 100;

#[derive(Debug, Default, Deserialize)]
pub(super) struct RangeQuery {
    range: Option<String>,
    since: Option<String>,
    until: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeRange {
    /// The preset; `None` for a range marked in a chart.
    pub(super) preset_name: Option<&'static str>,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) width: HumanDuration,
}

impl TimeRange {
    /// Invalid ranges fall back to the default preset.
    pub(super) fn from_query(query: &RangeQuery, now: Timestamp) -> Self {
        if let Some(marked) = Self::from_marked(query, now) {
            return marked;
        }
        let choice = CHOICES.iter().find(|(preset, ..)| query.range.as_deref() == Some(preset));
        let (preset, secs, width) = *choice.unwrap_or(&CHOICES[DEFAULT_CHOICE]);
        let since = now - Duration::from_secs(secs);
        Self {
            preset_name: Some(preset),
            since,
            until: now,
            width: HumanDuration::from_secs(width),
        }
    }

    fn from_marked(query: &RangeQuery, now: Timestamp) -> Option<Self> {
        let since: Timestamp = query.since.as_deref()?.parse().ok()?;
        let until: Timestamp = query.until.as_deref()?.parse().ok()?;
        let secs = until.since(since).as_secs();
        let fits = |width: &u64| {
            let has_few_points = secs / width <= POINTS_MAX;
            has_few_points
                && ChartGrid::new(since, until, Some(HumanDuration::from_secs(*width)), now).is_ok()
        };
        let width = WIDTHS.into_iter().find(fits)?;
        Some(Self { preset_name: None, since, until, width: HumanDuration::from_secs(width) })
    }

    /// All presets, and whether each is selected.
    pub(super) fn choices(self) -> impl Iterator<Item = (&'static str, bool)> {
        CHOICES.into_iter().map(move |(preset, ..)| (preset, self.preset_name == Some(preset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(
        range: Option<&str>,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> RangeQuery {
        RangeQuery {
            range: range.map(str::to_owned),
            since: since.map(|at| at.to_string()),
            until: until.map(|at| at.to_string()),
        }
    }

    #[test]
    fn every_preset_range_is_supported_by_the_rollups() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        for (preset, ..) in CHOICES {
            let range = TimeRange::from_query(&query(Some(preset), None, None), now);
            assert_eq!(range.preset_name, Some(preset));
            assert!(
                ChartGrid::new(range.since, range.until, Some(range.width), now).is_ok(),
                "{preset}"
            );
        }
        for unknown in [None, Some("1y"), Some("")] {
            assert_eq!(
                TimeRange::from_query(&query(unknown, None, None), now).preset_name,
                Some("1h")
            );
        }
    }

    #[test]
    fn marked_range_uses_the_finest_available_point_width() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let ago = |secs| now - Duration::from_secs(secs);
        for (since, until, expected) in [
            (ago(600), now, Some(10)),
            (ago(2000), ago(100), Some(30)),
            (ago(86_400), ago(86_000), Some(60)),
            (ago(30 * 86_400), ago(30 * 86_400 - 7200), Some(3600)),
            (ago(90 * 86_400), now, Some(86_400)),
            (now, ago(60), None),
        ] {
            let range = TimeRange::from_query(&query(None, Some(since), Some(until)), now);
            let width = range.preset_name.is_none().then_some(range.width);
            assert_eq!(width, expected.map(HumanDuration::from_secs), "case: {since} to {until}");
        }
    }
}
