//! How a tally is kept: numbers of seven bits a byte, and only what is not zero.
//!
//! ```text
//!  tally     = counts, latency, attempt_time
//!  counts    = how many, then for each: its number, its value
//!  histogram = how many buckets, then for each: how far behind the last one, its value
//! ```

use super::{RollupCounts, RollupMetric};
use crate::histogram::{BUCKETS, Histogram};

/// Bytes that are no tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a tally")]
pub struct DecodeRollupError;

/// Bits of a number in each byte; the eighth says that more follow.
const BITS: u32 = 7;

/// Appends a number.
pub fn write_varint(mut number: u64, to: &mut Vec<u8>) {
    while number >> BITS > 0 {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= BITS;
    }
    to.push((number & 0x7f) as u8);
}

/// Reads a number and moves `from` behind it.
pub fn read_varint(from: &mut &[u8]) -> Result<u64, DecodeRollupError> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(BITS as usize) {
        let (byte, rest) = from.split_first().ok_or(DecodeRollupError)?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        // The last byte has room for one bit only.
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
    /// Appends it.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let counted = || RollupMetric::ALL.into_iter().filter(|count| self.get(*count) > 0);
        write_varint(counted().count() as u64, to);
        for count in counted() {
            write_varint(count as u64, to);
            write_varint(self.get(count), to);
        }
        write_histogram(&self.latency, to);
        write_histogram(&self.attempt_time, to);
    }

    /// Reads one and moves `from` behind it.
    pub fn decode(from: &mut &[u8]) -> Result<Self, DecodeRollupError> {
        let mut tally = Self::default();
        for _ in 0..read_varint(from)? {
            let number = read_varint(from)?;
            let count =
                usize::try_from(number).ok().and_then(|n| RollupMetric::ALL.get(n).copied());
            tally.add(count.ok_or(DecodeRollupError)?, read_varint(from)?);
        }
        tally.latency = read_histogram(from)?;
        tally.attempt_time = read_histogram(from)?;
        Ok(tally)
    }
}

fn write_histogram(histogram: &Histogram, to: &mut Vec<u8>) {
    write_varint(histogram.buckets().count() as u64, to);
    let mut last = 0;
    for (bucket, many) in histogram.buckets() {
        write_varint((bucket - last) as u64, to);
        write_varint(many, to);
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

    fn a_histogram() -> impl Strategy<Value = Histogram> {
        let spans = (any::<u64>(), 0..64_u32).prop_map(|(v, s)| Duration::from_micros(v >> s));
        prop::collection::vec(spans, 0..20).prop_map(|spans| {
            let mut histogram = Histogram::default();
            spans.into_iter().for_each(|span| histogram.record(span));
            histogram
        })
    }

    fn a_tally() -> impl Strategy<Value = RollupCounts> {
        let counts = prop::collection::vec((0..RollupMetric::ALL.len(), any::<u64>()), 0..8);
        (counts, a_histogram(), a_histogram()).prop_map(|(counts, latency, attempt_time)| {
            let mut tally = RollupCounts { latency, attempt_time, ..RollupCounts::default() };
            counts
                .into_iter()
                .for_each(|(number, many)| tally.add(RollupMetric::ALL[number], many));
            tally
        })
    }

    fn written(tally: &RollupCounts) -> Vec<u8> {
        let mut bytes = Vec::new();
        tally.encode(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_tally_is_read_as_it_was_written(tally in a_tally(), next in any::<u8>()) {
            let mut bytes = written(&tally);
            bytes.push(next);
            let mut from = &bytes[..];
            prop_assert_eq!(RollupCounts::decode(&mut from).unwrap(), tally);
            prop_assert_eq!(from, [next]);
        }

        #[test]
        fn a_tally_that_is_cut_off_is_refused(tally in a_tally(), share in 0.0..1.0_f64) {
            let bytes = written(&tally);
            let cut = (bytes.len() as f64 * share) as usize;
            prop_assert_eq!(RollupCounts::decode(&mut &bytes[..cut]), Err(DecodeRollupError));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _whatever = RollupCounts::decode(&mut &bytes[..]);
        }

        #[test]
        fn a_number_is_read_as_it_was_written(number in any::<u64>(), shift in 0..64_u32) {
            let mut bytes = Vec::new();
            write_varint(number >> shift, &mut bytes);
            prop_assert_eq!(read_varint(&mut &bytes[..]), Ok(number >> shift));
        }

        #[test]
        fn adding_is_the_same_in_any_order(left in a_tally(), right in a_tally()) {
            let (mut one, mut other) = (left.clone(), right.clone());
            one.merge(&right);
            other.merge(&left);
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cases: [(&str, &[u8]); 4] = [
            ("a count that nobody knows", &[1, 99, 1, 0, 0]),
            ("a bucket that does not exist", &[0, 1, 0xff, 0x7f, 1, 0]),
            ("a number without an end", &[0xff; 11]),
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
    fn little_takes_little_room() {
        let mut tally = RollupCounts::default();
        tally.add(RollupMetric::Accepted, 1000);
        assert_eq!(written(&tally), [1, 0, 0xe8, 0x07, 0, 0]);
    }
}
