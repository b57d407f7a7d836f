//! The real clock and the real dice.

// The one place where the time of the machine is read.
#![expect(clippy::disallowed_methods, reason = "this is what the injected clock is made of")]

use std::time::{SystemTime, UNIX_EPOCH};

use surehook_core::{
    rng::Rng,
    time::{Clock, Timestamp},
};

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The operating system's randomness, stretched by a generator a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn bits(&self) -> u128 {
        rand::random()
    }
}
