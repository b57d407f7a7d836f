//! The system clock and random number generator.

// The only place that reads the system time.
#![expect(clippy::disallowed_methods, reason = "the implementation of the injected clock")]

use std::{
    fs,
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use surehook_types::{
    rng::Rng,
    time::{Clock, MachineTime, Timestamp},
};

/// The origin of [`Clock::elapsed`].
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UPTIME: &str = "/proc/uptime";
/// systemd-timesyncd sets the time of this file whenever a server has answered it.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";
/// timesyncd asks a server at least every 34 minutes.
const SYNCHRONIZED_MAX_AGE: Duration = Duration::from_secs(3600);

/// The wall clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        STARTED.elapsed()
    }

    fn machine(&self) -> Option<MachineTime> {
        let boot = fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        let uptime = fs::read_to_string(UPTIME).ok()?;
        let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        Some(MachineTime { boot, uptime: Duration::try_from_secs_f64(seconds).ok()? })
    }

    /// The file has the time of the last answer by the clock of then: a clock that was moved since
    /// does not agree with it.
    fn is_synchronized(&self) -> bool {
        let Ok(synchronized_at) = fs::metadata(SYNCHRONIZED).and_then(|file| file.modified())
        else {
            return false;
        };
        let age = SystemTime::now().duration_since(synchronized_at);
        age.is_ok_and(|age| age <= SYNCHRONIZED_MAX_AGE)
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
