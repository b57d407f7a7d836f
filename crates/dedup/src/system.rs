//! The real clock and the real random numbers. Tests and simulations bring their own.

use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others inject")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        STARTED.elapsed()
    }
}

/// Unpredictable numbers of the process, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadRandom;

impl Rng for ThreadRandom {
    fn next_u128(&self) -> u128 {
        rand::random()
    }
}
