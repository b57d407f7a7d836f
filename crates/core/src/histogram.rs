//! Histogram of durations with logarithmic buckets: histograms can be merged and still give
//! percentiles.
//!
//! There are four buckets per octave, so a percentile, reported as the middle of its bucket, is off
//! by at most an eighth. For percentiles over several histograms merge them first; percentiles
//! themselves cannot be averaged.

use std::time::Duration;

/// Buckets per octave, as a power of two.
const SUB_BITS: u32 = 2;
const SUB_BUCKETS: u64 = 1 << SUB_BITS;
/// Longer durations count as this long: more than two years in microseconds.
const VALUE_MAX: u64 = (1 << 46) - 1;
/// Number of buckets; the last one also holds everything longer.
pub const BUCKETS: usize = bucket(VALUE_MAX) + 1;

/// The bucket of a value. Values below eight have a bucket of their own.
const fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS {
        return value as usize;
    }
    let octave = value.ilog2() - SUB_BITS;
    let sub_bucket = (value >> octave) - SUB_BUCKETS;
    (SUB_BUCKETS * (octave as u64 + 1) + sub_bucket) as usize
}

/// The smallest value of a bucket.
const fn floor(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket;
    }
    let octave = bucket / SUB_BUCKETS - 1;
    (SUB_BUCKETS + bucket % SUB_BUCKETS) << octave
}

/// The value reported for a bucket: its middle.
const fn middle(bucket: usize) -> u64 {
    let (low, next) = (floor(bucket), floor(bucket + 1));
    low + (next - 1 - low) / 2
}

#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// By bucket; buckets past the end are empty.
    counts: Vec<u64>,
}

/// Compares the counts, whatever the length of the vectors.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.buckets().eq(other.buckets())
    }
}

impl Eq for Histogram {}

impl Histogram {
    pub fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.add(bucket(micros.min(VALUE_MAX)), 1);
    }

    /// Adds `count` to a bucket; an unknown bucket counts as the last one.
    pub fn add(&mut self, bucket: usize, count: u64) {
        let bucket = bucket.min(BUCKETS - 1);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.buckets() {
            self.add(bucket, count);
        }
    }

    /// Non-empty buckets with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn is_empty(&self) -> bool {
        self.buckets().next().is_none()
    }

    /// The duration that `percent` of all do not exceed, within an eighth; `None` if empty.
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let count = u128::from(self.count());
        // 1-based rank, rounded up.
        let rank = (count * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut cumulative = 0;
        self.buckets()
            .find(|(_, count)| {
                cumulative += u128::from(*count);
                cumulative >= rank
            })
            .map(|(bucket, _)| Duration::from_micros(middle(bucket)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram_of(micros: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        micros.iter().for_each(|value| histogram.record(Duration::from_micros(*value)));
        histogram
    }

    /// The percentile of a list by definition.
    fn exact(values: &[u64], percent: u8) -> u64 {
        let mut sorted: Vec<u64> = values.iter().map(|value| (*value).min(VALUE_MAX)).collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * usize::from(percent)).div_ceil(100).max(1);
        sorted[rank - 1]
    }

    #[test]
    fn buckets_are_contiguous() {
        for n in 0..BUCKETS {
            assert_eq!(bucket(floor(n)), n);
            assert_eq!(bucket(floor(n + 1) - 1), n, "the last value of bucket {n}");
        }
        assert_eq!(floor(BUCKETS), VALUE_MAX + 1);
    }

    #[test]
    fn small_values_are_exact() {
        for value in 0..8 {
            assert_eq!(histogram_of(&[value]).percentile(50), Some(Duration::from_micros(value)));
        }
    }

    #[test]
    fn percentiles_match_the_sorted_list() {
        let histogram = histogram_of(&[1, 2, 3, 4, 5, 6, 7, 7, 7, 1_000_000]);
        let cases = [(0, 1), (10, 1), (50, 5), (90, 7), (91, 983_039), (100, 983_039)];
        for (percent, micros) in cases {
            let percentile = histogram.percentile(percent);
            assert_eq!(percentile, Some(Duration::from_micros(micros)), "case: {percent}");
        }
        assert_eq!(Histogram::default().percentile(50), None);
    }

    #[test]
    fn value_above_the_maximum_counts_in_the_last_bucket() {
        let histogram = histogram_of(&[u64::MAX]);
        assert_eq!(histogram.count(), 1);
        assert!(histogram.percentile(50) > Some(Duration::from_secs(86_400 * 365 * 2)));
        let mut odd = Histogram::default();
        odd.add(usize::MAX, 2);
        assert_eq!(odd.count(), 2);
    }

    /// Small and large values.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((any::<u64>(), 0..64_u32).prop_map(|(v, shift)| v >> shift), 1..200)
    }

    proptest! {
        #[test]
        fn merged_histogram_equals_the_histogram_of_all_values(left in values(), right in values()) {
            let mut merged = histogram_of(&left);
            merged.merge(&histogram_of(&right));
            let all = histogram_of(&[left, right].concat());
            prop_assert_eq!(&merged, &all);
            prop_assert_eq!(merged.percentile(95), all.percentile(95));
        }

        #[test]
        fn percentile_is_off_by_at_most_an_eighth(values in values(), percent in 0..=100_u8) {
            let reported = u64::try_from(histogram_of(&values).percentile(percent).unwrap().as_micros()).unwrap();
            let exact = exact(&values, percent);
            prop_assert!(reported.abs_diff(exact) * 8 <= exact, "{reported} for {exact}");
        }

        #[test]
        fn percentiles_never_decrease_with_the_rank(values in values(), low in 0..=100_u8, high in 0..=100_u8) {
            let histogram = histogram_of(&values);
            let (low, high) = (low.min(high), low.max(high));
            prop_assert!(histogram.percentile(low) <= histogram.percentile(high));
        }
    }
}
