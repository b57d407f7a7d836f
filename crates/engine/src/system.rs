//! The system clock and random number generator.

// The only place that reads the system time.
#![expect(clippy::disallowed_methods, reason = "the implementation of the injected clock")]

use std::time::{SystemTime, UNIX_EPOCH};

use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

/// The wall clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A thread-local generator seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_u128(&self) -> u128 {
        rand::random()
    }
}
