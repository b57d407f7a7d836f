//! Randomness for ids, tokens and jitter, passed in so that tests can control it.

use std::fmt;

use crate::{
    ids::{Id, IdKind},
    time::Timestamp,
};

/// A source of random numbers.
pub trait Rng: fmt::Debug + Send + Sync {
    /// 128 unpredictable bits.
    fn next_u128(&self) -> u128;

    /// A uniform number in `0.0..1.0`, for jitter.
    fn next_f64(&self) -> f64 {
        // 53 bits are what an f64 holds without rounding up to 1.0.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 without loss")]
        let numerator = (self.next_u128() >> 75) as f64;
        numerator / (1u64 << 53) as f64
    }
}

/// A new id of any kind, sorted by `at`.
pub fn new_id<K: IdKind>(rng: &dyn Rng, at: Timestamp) -> Id<K> {
    Id::new(at, rng.next_u128())
}
