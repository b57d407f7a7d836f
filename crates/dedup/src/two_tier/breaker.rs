//! Stops asking a fast tier that keeps failing.
//!
//! Not the circuit of `surehook-retry`: that one protects a destination that recovers, by few calls at
//! a time. Here a refused call costs nothing, so the breaker opens quickly, closes at the first success,
//! and is asked on every claim without a lock.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// Failures in a row that open it.
const FAILURES_MAX: u32 = 3;
/// How long it stays open before one call probes.
const OPEN_FOR: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct TierBreaker {
    failures: AtomicU32,
    /// When the next call may be made while it is open, in milliseconds of the process clock.
    probe_at: AtomicU64,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl TierBreaker {
    /// Whether a call may be made. While it is open, one call per [`OPEN_FOR`] may.
    pub(super) fn permits(&self, elapsed: Duration) -> bool {
        if self.failures.load(Ordering::Relaxed) < FAILURES_MAX {
            return true;
        }
        let (now, probe_at) = (millis(elapsed), self.probe_at.load(Ordering::Relaxed));
        let next = millis(elapsed + OPEN_FOR);
        now >= probe_at
            && self
                .probe_at
                .compare_exchange(probe_at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn record(&self, is_success: bool, elapsed: Duration) {
        if is_success {
            self.failures.store(0, Ordering::Relaxed);
            return;
        }
        self.probe_at.store(millis(elapsed + OPEN_FOR), Ordering::Relaxed);
        // An open breaker lets few calls per second fail: it would take decades to wrap.
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_opens_after_failures_in_a_row_and_closes_with_one_success() {
        let breaker = TierBreaker::default();
        let at = Duration::from_millis;
        for failure in 0..FAILURES_MAX {
            assert!(breaker.permits(at(0)) && !breaker.is_open(), "after {failure} failures");
            breaker.record(false, at(0));
        }
        assert!(breaker.is_open() && !breaker.permits(at(499)));
        // One probe, and no second one beside it.
        assert!(breaker.permits(at(500)));
        assert!(!breaker.permits(at(500)) && !breaker.permits(at(999)));
        breaker.record(false, at(600));
        assert!(!breaker.permits(at(1099)) && breaker.permits(at(1100)));
        breaker.record(true, at(1101));
        assert!(!breaker.is_open() && breaker.permits(at(1101)) && breaker.permits(at(1101)));
    }
}
