//! Guards what is removed by age against a wrong wall clock; the rules are in `surehook_core::clock`.
//!
//! A task reads all clocks every second, stores the trusted time, and shortens waits when the wall
//! clock went back. Ages are measured by [`ClockGuard::expiry_time`], which
//! compares with the monotonic clock itself: a jump between two seconds removes nothing either.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use surehook_core::{
    clock::{
        CLOCK_MARGIN, ClockChange, ClockSample, ClockStatus, ClockWatch, SavedClock, StoredClock,
    },
    event::KeyWindow,
};
use surehook_types::{
    store_error::StoreError,
    time::{Clock, Timestamp},
};

use crate::{Engine, lock::lock};

/// How often the clocks are compared.
pub(crate) const WATCH_EVERY: Duration = Duration::from_secs(1);
/// How often the trusted time is stored if nothing unusual happens.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// A clock that remembers the latest time it has shown: what was computed by that time may wait too
/// long after a step back.
#[derive(Debug)]
pub(crate) struct RecordingClock {
    clock: Arc<dyn Clock>,
    latest: AtomicI64,
}

impl RecordingClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, latest: AtomicI64::new(i64::MIN) }
    }

    fn read(&self) -> ClockSample {
        let now = self.clock.now();
        let latest = self.latest.swap(now.as_millis(), Ordering::Relaxed);
        ClockSample {
            now,
            latest: Timestamp::from_millis(latest).max(now),
            elapsed: self.clock.elapsed(),
            machine: self.clock.machine(),
            is_synchronized: self.clock.is_synchronized(),
        }
    }
}

impl Clock for RecordingClock {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        // Most calls are in the same millisecond as the one before.
        if now.as_millis() > self.latest.load(Ordering::Relaxed) {
            self.latest.fetch_max(now.as_millis(), Ordering::Relaxed);
        }
        now
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }
}

#[derive(Debug)]
pub(crate) struct ClockGuard {
    clock: Arc<RecordingClock>,
    watch: Mutex<ClockWatch>,
    /// The expected time when [`Clock::elapsed`] was zero, in milliseconds.
    origin: AtomicI64,
    /// When the trusted time is stored again, by [`Clock::elapsed`].
    save_at: Mutex<Duration>,
}

fn log_doubt(status: &ClockStatus) {
    let ClockStatus { now, expected, .. } = status;
    tracing::warn!(
        clock = %now,
        %expected,
        "the clock is in doubt: nothing expires because of the difference; set the clock, or confirm it with `surehook clock confirm`"
    );
}

impl ClockGuard {
    /// Trusts the clock until [`Self::check_start`].
    pub(crate) fn new(clock: Arc<RecordingClock>) -> Self {
        let (watch, _) = ClockWatch::start(&StoredClock::default(), &clock.read());
        let guard = Self {
            clock,
            watch: Mutex::new(watch),
            origin: AtomicI64::new(0),
            save_at: Mutex::default(),
        };
        guard.set_origin(&lock(&guard.watch));
        guard
    }

    fn set_origin(&self, watch: &ClockWatch) {
        self.origin.store(watch.expected(Duration::ZERO).as_millis(), Ordering::Relaxed);
    }

    /// Compares the clock with what the store knows of the time before.
    pub(crate) fn check_start(&self, stored: &StoredClock) -> ClockChange {
        let reading = self.clock.read();
        let (watch, change) = ClockWatch::start(stored, &reading);
        if change.trust_changed {
            log_doubt(&watch.status(reading.now, reading.elapsed));
        }
        self.set_origin(&watch);
        *lock(&self.watch) = watch;
        change
    }

    /// Compares the clocks. Also returns what is to be stored, if it is time for that.
    fn observe(&self) -> (ClockChange, Option<SavedClock>) {
        let reading = self.clock.read();
        let mut watch = lock(&self.watch);
        let change = watch.observe(&reading);
        self.set_origin(&watch);
        let status = watch.status(reading.now, reading.elapsed);
        let saved = watch.to_saved(&reading);
        drop(watch);
        if change.trust_changed {
            if status.in_doubt {
                log_doubt(&status);
            } else {
                tracing::info!(clock = %reading.now, "the clock is trusted again");
            }
        }
        if let Some(step) = change.stepped_back {
            tracing::warn!(seconds = step.as_secs(), "the clock went back; waits are shortened");
        }
        let is_unusual = change != ClockChange::default();
        let is_due = is_unusual || reading.elapsed >= *lock(&self.save_at);
        (change, is_due.then_some(saved))
    }

    fn note_saved(&self) {
        *lock(&self.save_at) = self.clock.elapsed() + SAVE_EVERY;
    }

    fn confirm(&self) -> SavedClock {
        let reading = self.clock.read();
        let mut watch = lock(&self.watch);
        watch.trust(&reading);
        self.set_origin(&watch);
        tracing::info!(clock = %reading.now, "the clock was confirmed");
        watch.to_saved(&reading)
    }

    pub(crate) fn status(&self) -> ClockStatus {
        lock(&self.watch).status(self.clock.now(), self.clock.elapsed())
    }

    fn expected(&self) -> Timestamp {
        Timestamp::from_millis(self.origin.load(Ordering::Relaxed)) + self.clock.elapsed()
    }

    /// The time by which the age of something is measured when it is `now` by the wall clock: never
    /// later than expected.
    pub(crate) fn expiry_time(&self, now: Timestamp) -> Timestamp {
        let expected = self.expected();
        if now.since(expected) > CLOCK_MARGIN { expected } else { now }
    }

    /// The time for which a dedup key is claimed that is received `now` and lasts for `window`.
    pub(crate) fn key_window(&self, now: Timestamp, window: Duration) -> KeyWindow {
        let (expires_at, as_of) = (self.creation_time(now) + window, self.expiry_time(now));
        KeyWindow { expires_at, as_of }
    }

    /// The time from which the life of something new is counted: never earlier than expected, so that
    /// it does not end early when a clock that is behind is set right.
    pub(crate) fn creation_time(&self, now: Timestamp) -> Timestamp {
        let expected = self.expected();
        if expected.since(now) > CLOCK_MARGIN { expected } else { now }
    }
}

impl Engine {
    /// Compares the clock at the start with the last stored time, and shortens what would wait because
    /// an earlier clock was ahead.
    pub(crate) async fn check_clock_at_start(&self) -> Result<(), StoreError> {
        let change = self.shared.guard.check_start(&self.store.load_clock().await?);
        if let Some(step) = change.stepped_back {
            let now = self.shared.clock.now();
            let shortened = self.store.shorten_waits(now, step).await?;
            tracing::warn!(
                seconds = step.as_secs(),
                shortened,
                "the clock is behind the last stored time; waits are shortened"
            );
        }
        Ok(())
    }

    /// Compares the clocks, stores the trusted time and shortens waits after a step back.
    pub(crate) async fn watch_clock(&self) -> Result<Option<Duration>, StoreError> {
        let (change, saved) = self.shared.guard.observe();
        if let Some(step) = change.stepped_back {
            let registry = self.registry.load();
            registry.all_lanes().for_each(|lane| lane.shorten_waits(step));
            self.store.shorten_waits(self.shared.clock.now(), step).await?;
            registry.all_lanes().for_each(|lane| lane.wake());
        }
        if let Some(saved) = saved {
            self.store.save_clock(saved).await?;
            self.shared.guard.note_saved();
        }
        Ok(None)
    }

    /// Whether the wall clock is trusted.
    pub fn clock_status(&self) -> ClockStatus {
        self.shared.guard.status()
    }

    /// Believes the wall clock, on request of a person.
    pub async fn confirm_clock(&self) -> Result<ClockStatus, StoreError> {
        self.store.save_clock(self.shared.guard.confirm()).await?;
        // Data kept because of the doubt may be removed now.
        self.changed.notify_waiters();
        Ok(self.clock_status())
    }

    /// The time from which the life of a new idempotency key is counted.
    pub fn creation_time(&self) -> Timestamp {
        self.shared.guard.creation_time(self.shared.clock.now())
    }

    /// The time by which ages are measured: not the wall clock while that is in doubt.
    pub fn expiry_time(&self) -> Timestamp {
        self.shared.guard.expiry_time(self.shared.clock.now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const NOON: i64 = 1_800_000_000_000;
    const DAY: Duration = Duration::from_secs(86_400);

    #[derive(Debug, Default)]
    struct ShiftedClock {
        shift: AtomicI64,
        elapsed: AtomicU64,
    }

    impl Clock for ShiftedClock {
        fn now(&self) -> Timestamp {
            let shifted = NOON + self.shift.load(Ordering::Relaxed);
            Timestamp::from_millis(shifted) + self.elapsed()
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.elapsed.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn jump_is_noticed_before_the_next_observation() {
        let clock = Arc::new(ShiftedClock::default());
        let guard = ClockGuard::new(Arc::new(RecordingClock::new(clock.clone())));
        let noon = Timestamp::from_millis(NOON);
        let day = i64::try_from(DAY.as_millis()).unwrap();
        clock.shift.store(day, Ordering::Relaxed);
        assert_eq!(guard.expiry_time(clock.now()), noon);
        assert_eq!(guard.creation_time(clock.now()), noon + DAY);
        clock.shift.store(-day, Ordering::Relaxed);
        assert_eq!(guard.expiry_time(clock.now()), noon - DAY);
        assert_eq!(guard.creation_time(clock.now()), noon);
        clock.shift.store(5000, Ordering::Relaxed);
        assert_eq!(guard.expiry_time(clock.now()), clock.now());
        assert_eq!(guard.creation_time(clock.now()), clock.now());
    }

    #[test]
    fn unusual_reading_is_stored_at_once_and_others_once_a_minute() {
        let clock = Arc::new(ShiftedClock::default());
        let guard = ClockGuard::new(Arc::new(RecordingClock::new(clock.clone())));
        assert!(guard.observe().1.is_some());
        guard.note_saved();
        clock.elapsed.store(1000, Ordering::Relaxed);
        assert!(guard.observe().1.is_none());
        clock.shift.store(7_200_000, Ordering::Relaxed);
        assert!(guard.observe().1.is_some());
        clock.elapsed.store(61_000, Ordering::Relaxed);
        assert!(guard.observe().1.is_some());
    }

    #[test]
    fn step_forward_and_back_between_two_observations_is_noticed() {
        let clock = Arc::new(ShiftedClock::default());
        let recording = Arc::new(RecordingClock::new(clock.clone()));
        let guard = ClockGuard::new(Arc::clone(&recording));
        clock.shift.store(7_200_000, Ordering::Relaxed);
        recording.now();
        clock.shift.store(0, Ordering::Relaxed);
        assert_eq!(guard.observe().0.stepped_back, Some(Duration::from_secs(7200)));
        assert_eq!(guard.observe().0.stepped_back, None);
    }
}
