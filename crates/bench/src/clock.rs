//! A clock that two processes share.
//!
//! The generator writes the send time into the body and the sink, another process, subtracts it
//! from the arrival time. `Instant` cannot leave its process, so this is the wall clock; a clock
//! step during a run shows as one absurd latency.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement between processes needs the system clock, not an injected one"
)]
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// One moment on both clocks, so that a sender reads the clock once per request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub(crate) instant: Instant,
    pub(crate) wall_ns: u64,
}

impl ClockReading {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), wall_ns: wall_ns() }
    }

    /// The wall clock at `instant`, which is not before this moment.
    pub(crate) fn wall_ns_at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.instant);
        self.wall_ns.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
