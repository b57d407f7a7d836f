//! Binary encoding of rollup counts: varints, and only non-zero values.
//!
//! ```text
//!  rollup    = counts, latency, attempt_time
//!  counts    = length, then for each: metric number, value
//!  histogram = number of buckets, then for each: distance to the previous one, value
//! ```
//!
//! The last failure follows the counts as values with numbers of their own, so that rows which were
//! written before it was recorded stay readable.

use surehook_types::{ids::DeliveryId, time::Timestamp};
use uuid::Uuid;

use super::{FailureMark, RollupCounts, RollupMetric};
use crate::histogram::{BUCKETS, Histogram};

/// The number of the first value of a [`FailureMark`]. Metrics have smaller numbers.
const FIRST_MARK_NUMBER: u64 = 1000;

impl FailureMark {
    fn to_values(self) -> [u64; 4] {
        let (high, low) = self.delivery.uuid().as_u64_pair();
        [self.at.as_millis().cast_unsigned(), high, low, self.attempt.into()]
    }

    fn from_values(values: [Option<u64>; 4]) -> Result<Option<Self>, DecodeRollupError> {
        let [at, high, low, attempt] = values;
        let (Some(at), Some(high), Some(low), Some(attempt)) = (at, high, low, attempt) else {
            let is_absent = values.iter().all(Option::is_none);
            return if is_absent { Ok(None) } else { Err(DecodeRollupError) };
        };
        Ok(Some(Self {
            at: Timestamp::from_millis(at.cast_signed()),
            delivery: DeliveryId::from_uuid(Uuid::from_u64_pair(high, low)),
            attempt: u32::try_from(attempt).map_err(|_| DecodeRollupError)?,
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rollup encoding")]
pub struct DecodeRollupError;

/// Payload bits per byte; the eighth bit says that more bytes follow.
const BITS: u32 = 7;

pub fn write_varint(mut number: u64, to: &mut Vec<u8>) {
    while number >> BITS > 0 {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= BITS;
    }
    to.push((number & 0x7f) as u8);
}

/// Reads a number and advances `from` past it.
pub fn read_varint(from: &mut &[u8]) -> Result<u64, DecodeRollupError> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(BITS as usize) {
        let (byte, rest) = from.split_first().ok_or(DecodeRollupError)?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit only.
        if bits << shift >> shift != bits {
            return Err(DecodeRollupError);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(DecodeRollupError)
}

impl RollupCounts {
    pub fn encode(&self, to: &mut Vec<u8>) {
        let nonzero = || RollupMetric::ALL.into_iter().filter(|metric| self.get(*metric) > 0);
        let mark = self.last_failure.map(FailureMark::to_values);
        let mark_values = (FIRST_MARK_NUMBER..).zip(mark.into_iter().flatten());
        write_varint((nonzero().count() + mark.map_or(0, |mark| mark.len())) as u64, to);
        for metric in nonzero() {
            write_varint(metric as u64, to);
            write_varint(self.get(metric), to);
        }
        for (number, value) in mark_values {
            write_varint(number, to);
            write_varint(value, to);
        }
        write_histogram(&self.latency, to);
        write_histogram(&self.attempt_time, to);
    }

    /// Reads one and advances `from` past it.
    pub fn decode(from: &mut &[u8]) -> Result<Self, DecodeRollupError> {
        let mut counts = Self::default();
        let mut mark = [None; 4];
        for _ in 0..read_varint(from)? {
            let (number, value) = (read_varint(from)?, read_varint(from)?);
            if let Some(number) = number.checked_sub(FIRST_MARK_NUMBER) {
                let part = usize::try_from(number).ok().and_then(|number| mark.get_mut(number));
                *part.ok_or(DecodeRollupError)? = Some(value);
                continue;
            }
            let metric =
                usize::try_from(number).ok().and_then(|n| RollupMetric::ALL.get(n).copied());
            counts.add(metric.ok_or(DecodeRollupError)?, value);
        }
        counts.last_failure = FailureMark::from_values(mark)?;
        counts.latency = read_histogram(from)?;
        counts.attempt_time = read_histogram(from)?;
        Ok(counts)
    }
}

fn write_histogram(histogram: &Histogram, to: &mut Vec<u8>) {
    write_varint(histogram.buckets().count() as u64, to);
    let mut last = 0;
    for (bucket, value) in histogram.buckets() {
        write_varint((bucket - last) as u64, to);
        write_varint(value, to);
        last = bucket;
    }
}

fn read_histogram(from: &mut &[u8]) -> Result<Histogram, DecodeRollupError> {
    let mut histogram = Histogram::default();
    let mut bucket = 0_u64;
    for _ in 0..read_varint(from)? {
        bucket = bucket.checked_add(read_varint(from)?).ok_or(DecodeRollupError)?;
        let known = usize::try_from(bucket).ok().filter(|bucket| *bucket < BUCKETS);
        histogram.add(known.ok_or(DecodeRollupError)?, read_varint(from)?);
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn any_histogram() -> impl Strategy<Value = Histogram> {
        let durations = (any::<u64>(), 0..64_u32).prop_map(|(v, s)| Duration::from_micros(v >> s));
        prop::collection::vec(durations, 0..20).prop_map(|durations| {
            let mut histogram = Histogram::default();
            durations.into_iter().for_each(|duration| histogram.record(duration));
            histogram
        })
    }

    fn any_counts() -> impl Strategy<Value = RollupCounts> {
        let pairs = prop::collection::vec((0..RollupMetric::ALL.len(), any::<u64>()), 0..8);
        let mark = prop::option::of((any::<i64>(), any::<u128>(), any::<u32>()));
        let parts = (pairs, any_histogram(), any_histogram(), mark);
        parts.prop_map(|(pairs, latency, attempt_time, mark)| {
            let last_failure = mark.map(|(at, delivery, attempt)| FailureMark {
                at: Timestamp::from_millis(at),
                delivery: DeliveryId::from_uuid(Uuid::from_u128(delivery)),
                attempt,
            });
            let mut counts =
                RollupCounts { latency, attempt_time, last_failure, ..RollupCounts::default() };
            pairs
                .into_iter()
                .for_each(|(number, value)| counts.add(RollupMetric::ALL[number], value));
            counts
        })
    }

    fn encode(counts: &RollupCounts) -> Vec<u8> {
        let mut bytes = Vec::new();
        counts.encode(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn rollup_counts_round_trip(counts in any_counts(), next in any::<u8>()) {
            let mut bytes = encode(&counts);
            bytes.push(next);
            let mut from = &bytes[..];
            prop_assert_eq!(RollupCounts::decode(&mut from).unwrap(), counts);
            prop_assert_eq!(from, [next]);
        }

        #[test]
        fn truncated_rollup_is_rejected(counts in any_counts(), share in 0.0..1.0_f64) {
            let bytes = encode(&counts);
            let cut = (bytes.len() as f64 * share) as usize;
            prop_assert_eq!(RollupCounts::decode(&mut &bytes[..cut]), Err(DecodeRollupError));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _result = RollupCounts::decode(&mut &bytes[..]);
        }

        #[test]
        fn varint_round_trips(number in any::<u64>(), shift in 0..64_u32) {
            let mut bytes = Vec::new();
            write_varint(number >> shift, &mut bytes);
            prop_assert_eq!(read_varint(&mut &bytes[..]), Ok(number >> shift));
        }

        #[test]
        fn merging_is_commutative(left in any_counts(), right in any_counts()) {
            let (mut a, mut b) = (left.clone(), right.clone());
            a.merge(&right);
            b.merge(&left);
            prop_assert_eq!(a, b);
        }
    }

    #[test]
    fn invalid_rollup_encodings_are_rejected() {
        let cases: [(&str, &[u8]); 6] = [
            ("an unknown metric", &[1, 99, 1, 0, 0]),
            ("a part of a mark", &[1, 0xe8, 0x07, 1, 0, 0]),
            ("an unknown part of a mark", &[1, 0xec, 0x07, 1, 0, 0]),
            ("a bucket that does not exist", &[0, 1, 0xff, 0x7f, 1, 0]),
            ("an endless number", &[0xff; 11]),
            (
                "a number that does not fit",
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            ),
        ];
        for (name, bytes) in cases {
            assert_eq!(
                RollupCounts::decode(&mut &bytes[..]),
                Err(DecodeRollupError),
                "case: {name}"
            );
        }
    }

    #[test]
    fn few_counts_take_few_bytes() {
        let mut counts = RollupCounts::default();
        counts.add(RollupMetric::Accepted, 1000);
        assert_eq!(encode(&counts), [1, 0, 0xe8, 0x07, 0, 0]);
    }
}
