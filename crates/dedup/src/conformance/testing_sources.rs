//! A clock that tests move, and random numbers that repeat.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct SteppedClock {
    millis: AtomicI64,
}

/// In November 2026.
impl Default for SteppedClock {
    fn default() -> Self {
        Self { millis: AtomicI64::new(1_794_700_800_000) }
    }
}

impl SteppedClock {
    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.millis.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Moves the time back, like a clock that is corrected.
    pub fn set_back(&self, by: Duration) {
        self.millis.fetch_sub(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.millis.load(Ordering::SeqCst)).unwrap())
    }
}

/// The numbers 1, 2, 3, …
#[derive(Debug, Default)]
pub struct CountingRng {
    last: AtomicU64,
}

impl Rng for CountingRng {
    fn next_u128(&self) -> u128 {
        u128::from(self.last.fetch_add(1, Ordering::SeqCst)) + 1
    }
}
