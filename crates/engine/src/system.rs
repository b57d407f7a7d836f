//! The system clock and random number generator.

// The only place that reads the system time.
#![expect(clippy::disallowed_methods, reason = "the implementation of the injected clock")]

use std::{
    fs,
    sync::{
        LazyLock,
        atomic::{AtomicI64, Ordering},
    },
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

/// Differences below this are not worth a step of the clock.
const OFFSET_TOLERANCE: Duration = Duration::from_millis(20);
/// A larger difference between the clocks of a machine and of its database is reported.
const OFFSET_REPORTED: Duration = Duration::from_secs(1);

/// The clock that all nodes of a database share: the machine's, moved by how much the server's is ahead.
///
/// With clocks of their own, what one node makes due now would be due minutes later for another.
#[derive(Debug, Default)]
pub struct SharedClock {
    offset_ms: AtomicI64,
}

impl SharedClock {
    /// Sets how much the server's clock is ahead of the machine's, measured with this error. What is within
    /// the error would only move the clock to and fro.
    pub fn set_offset(&self, offset_ms: i64, error: Duration) {
        let current = self.offset_ms.load(Ordering::Relaxed);
        let change = Duration::from_millis(offset_ms.abs_diff(current));
        if change <= error.max(OFFSET_TOLERANCE) {
            return;
        }
        self.offset_ms.store(offset_ms, Ordering::Relaxed);
        if change > OFFSET_REPORTED {
            tracing::warn!(
                offset_ms,
                "the clock of this machine differs from the database's, which is used; set it with NTP"
            );
        }
    }
}

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        let offset = self.offset_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(SystemClock.now().as_millis().saturating_add(offset))
    }

    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }

    fn machine(&self) -> Option<MachineTime> {
        SystemClock.machine()
    }

    fn is_synchronized(&self) -> bool {
        SystemClock.is_synchronized()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_clock_follows_the_server_beyond_the_error_of_measuring() {
        let clock = SharedClock::default();
        let offset = || clock.now().as_millis() - SystemClock.now().as_millis();
        let is_near = |expected: i64| (offset() - expected).abs() < 5_000;
        clock.set_offset(-420_000, Duration::from_millis(3));
        assert!(is_near(-420_000));
        // Within the error.
        clock.set_offset(-410_000, Duration::from_secs(30));
        assert!(is_near(-420_000));
        clock.set_offset(60_000, Duration::from_millis(3));
        assert!(is_near(60_000));
    }
}
