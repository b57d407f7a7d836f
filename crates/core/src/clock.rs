//! Whether the wall clock can be trusted.
//!
//! History, dedup keys and old deliveries are removed by age, so a clock that is wrong by weeks for a
//! few seconds would remove them all. [`ClockWatch`] compares the wall clock with a reading that only
//! runs forward, and across restarts with the last time that was stored ([`SavedClock`]). A clock that
//! is further off than [`CLOCK_MARGIN`] is *in doubt*: nothing expires because of the difference until
//! the clock is right again, a time service has set it, or a person confirms it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::time::{MachineTime, Timestamp};

/// A clock that is off by less is trusted: retention is counted in days, and a machine takes minutes
/// to restart.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(600);

/// A smaller step backwards delays nothing by more than this.
const STEP_BACK_MIN: Duration = Duration::from_secs(2);

/// One reading of all clocks.
#[derive(Clone, Debug)]
pub struct ClockSample {
    /// The wall clock.
    pub now: Timestamp,
    /// The latest time that the wall clock has shown since the reading before.
    pub latest: Timestamp,
    /// Runs forward only, from an arbitrary start in this process.
    pub elapsed: Duration,
    pub machine: Option<MachineTime>,
    /// Whether a time service of the machine agrees with the wall clock.
    pub is_synchronized: bool,
}

/// The trusted time as it is stored, so that the next start can judge its clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedClock {
    /// The trusted time.
    #[serde(rename = "believed")]
    pub trusted: Timestamp,
    /// The wall clock at that moment.
    pub wall: Timestamp,
    /// When that was by the clock of the machine; `None` if it has none.
    pub machine: Option<MachineTime>,
}

/// The times that the store holds at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredClock {
    pub saved: Option<SavedClock>,
    /// When the newest event was received, by the wall clock of then.
    pub newest_event: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStatus {
    /// The wall clock does not fit the time since it was last believed. Nothing expires because of the
    /// difference until it is right again or confirmed.
    pub in_doubt: bool,
    /// What the wall clock says.
    pub now: Timestamp,
    /// The time that was expected.
    pub expected: Timestamp,
    /// Since when the clock is in doubt, in expected time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The changes that a reading caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChange {
    /// The wall clock went back by this much.
    pub stepped_back: Option<Duration>,
    /// It is in doubt now and was not before, or the other way round.
    pub trust_changed: bool,
}

/// Follows the wall clock and judges each reading.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    /// The trusted time and when it was read by the other clocks.
    anchor: ClockAnchor,
    last_wall: Timestamp,
    last_elapsed: Duration,
    in_doubt_since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct ClockAnchor {
    trusted: Timestamp,
    elapsed: Duration,
    machine: Option<MachineTime>,
}

impl ClockAnchor {
    fn at(reading: &ClockSample) -> Self {
        let ClockSample { now, elapsed, machine, .. } = reading;
        Self { trusted: *now, elapsed: *elapsed, machine: machine.clone() }
    }

    fn expected(&self, elapsed: Duration) -> Timestamp {
        self.trusted - self.elapsed + elapsed
    }

    /// Whether the wall clock shows what is expected. The machine's own clock also counts the time that
    /// the machine slept.
    fn fits(&self, reading: &ClockSample) -> bool {
        let by_machine = elapsed_between(self.machine.as_ref(), reading.machine.as_ref())
            .map(|elapsed| self.trusted + elapsed);
        let expected = [Some(self.expected(reading.elapsed)), by_machine];
        expected.into_iter().flatten().any(|expected| is_close(reading.now, expected))
    }
}

/// The time between two readings of one machine since it was started.
fn elapsed_between(earlier: Option<&MachineTime>, later: Option<&MachineTime>) -> Option<Duration> {
    let (earlier, later) = (earlier?, later?);
    (earlier.boot == later.boot).then(|| later.uptime.checked_sub(earlier.uptime))?
}

fn is_close(a: Timestamp, b: Timestamp) -> bool {
    a.since(b).max(b.since(a)) <= CLOCK_MARGIN
}

impl ClockWatch {
    /// Judges the clock at a start. The change says whether it is behind what was stored.
    ///
    /// How long the process was stopped is known if the machine has been running since. Otherwise the
    /// machine was off for an unknown time, and the clock may be ahead by the time since it was started
    /// and the margin.
    pub fn start(stored: &StoredClock, reading: &ClockSample) -> (Self, ClockChange) {
        let now = reading.now;
        let last_wall = stored.saved.as_ref().map(|saved| saved.wall).max(stored.newest_event);
        let step = last_wall.map_or(Duration::ZERO, |wall| wall.since(now));
        let mut watch = Self {
            anchor: ClockAnchor::at(reading),
            last_wall: now,
            last_elapsed: reading.elapsed,
            in_doubt_since: None,
        };
        if let Some(expected) = unexpected_at_start(stored, reading)
            && !reading.is_synchronized
        {
            watch.anchor.trusted = expected;
            watch.in_doubt_since = Some(expected);
        }
        let change = ClockChange {
            stepped_back: (step >= STEP_BACK_MIN).then_some(step),
            trust_changed: watch.in_doubt_since.is_some(),
        };
        (watch, change)
    }

    /// Judges another reading.
    pub fn observe(&mut self, reading: &ClockSample) -> ClockChange {
        let continued = self.last_wall + reading.elapsed.saturating_sub(self.last_elapsed);
        let step = continued.max(reading.latest).since(reading.now);
        let was_in_doubt = self.in_doubt_since.is_some();
        if reading.is_synchronized || self.anchor.fits(reading) {
            self.trust(reading);
        } else {
            let expected = self.anchor.expected(reading.elapsed);
            self.in_doubt_since.get_or_insert(expected);
        }
        (self.last_wall, self.last_elapsed) = (reading.now, reading.elapsed);
        ClockChange {
            stepped_back: (step >= STEP_BACK_MIN).then_some(step),
            trust_changed: was_in_doubt != self.in_doubt_since.is_some(),
        }
    }

    /// Trusts the wall clock: a person has confirmed it.
    pub fn trust(&mut self, reading: &ClockSample) {
        self.anchor = ClockAnchor::at(reading);
        self.in_doubt_since = None;
    }

    /// The time to be expected, whatever the wall clock says.
    pub fn expected(&self, elapsed: Duration) -> Timestamp {
        self.anchor.expected(elapsed)
    }

    pub fn status(&self, now: Timestamp, elapsed: Duration) -> ClockStatus {
        let (in_doubt, since) = (self.in_doubt_since.is_some(), self.in_doubt_since);
        let expected = if in_doubt { self.expected(elapsed) } else { now };
        ClockStatus { in_doubt, now, expected, since }
    }

    /// The part of this reading to store. The reading must have been observed.
    pub fn to_saved(&self, reading: &ClockSample) -> SavedClock {
        SavedClock {
            trusted: self.expected(reading.elapsed),
            wall: reading.now,
            machine: reading.machine.clone(),
        }
    }
}

/// The expected time, if the clock does not fit it at a start.
pub fn unexpected_at_start(stored: &StoredClock, reading: &ClockSample) -> Option<Timestamp> {
    let now = reading.now;
    let saved = match &stored.saved {
        Some(saved) => saved.clone(),
        // Written by a version that did not store the time. An event from the future proves nothing.
        None => SavedClock {
            trusted: stored.newest_event.filter(|at| *at <= now)?,
            wall: now,
            machine: None,
        },
    };
    if let Some(stopped) = elapsed_between(saved.machine.as_ref(), reading.machine.as_ref()) {
        let expected = saved.trusted + stopped;
        return (!is_close(now, expected)).then_some(expected);
    }
    let uptime = reading.machine.as_ref().map_or(Duration::ZERO, |machine| machine.uptime);
    let is_plausible =
        now + CLOCK_MARGIN >= saved.trusted && now.since(saved.trusted) <= uptime + CLOCK_MARGIN;
    (!is_plausible).then_some(saved.trusted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(86_400);

    fn machine(boot: &str, uptime: Duration) -> Option<MachineTime> {
        Some(MachineTime { boot: boot.to_owned(), uptime })
    }

    /// A reading `elapsed` after the start, on a machine that was started an hour before.
    fn reading(now: Timestamp, elapsed: Duration) -> ClockSample {
        let machine = machine("a", HOUR + elapsed);
        ClockSample { now, latest: now, elapsed, machine, is_synchronized: false }
    }

    fn stored_at_noon() -> StoredClock {
        let saved = SavedClock { trusted: NOON, wall: NOON, machine: machine("a", HOUR) };
        StoredClock { saved: Some(saved), newest_event: Some(NOON - HOUR) }
    }

    fn watch_at_noon() -> ClockWatch {
        ClockWatch::start(&StoredClock::default(), &reading(NOON, Duration::ZERO)).0
    }

    #[test]
    fn restart_on_a_running_machine_expects_exactly_the_time_it_was_stopped() {
        let cases = [
            ("stopped for 30 days", NOON + 30 * DAY, 30 * DAY, false),
            ("ahead by 60 days", NOON + 60 * DAY, 8 * SECOND, true),
            ("ahead by an hour", NOON + HOUR, 8 * SECOND, true),
            ("ahead by less than the margin", NOON + 500 * SECOND, 8 * SECOND, false),
            ("behind by a day", NOON - DAY, 8 * SECOND, true),
        ];
        for (name, now, stopped, in_doubt) in cases {
            let (watch, _) = ClockWatch::start(&stored_at_noon(), &reading(now, stopped));
            let status = watch.status(now, stopped);
            assert_eq!(status.in_doubt, in_doubt, "case: {name}");
            let expected = if in_doubt { NOON + stopped } else { now };
            assert_eq!(status.expected, expected, "case: {name}");
        }
    }

    #[test]
    fn restart_of_the_machine_allows_its_uptime_and_the_margin() {
        let cases = [
            ("rebooted", NOON + 300 * SECOND, 60 * SECOND, false),
            ("high uptime on another machine", NOON + 9 * DAY, 10 * DAY, false),
            ("off for weeks, or wrong", NOON + 60 * DAY, 60 * SECOND, true),
            ("ten years ahead", NOON + 3650 * DAY, 60 * SECOND, true),
            ("without a battery", Timestamp::from_millis(0), 60 * SECOND, true),
        ];
        for (name, now, uptime, in_doubt) in cases {
            let reading = ClockSample { machine: machine("b", uptime), ..reading(now, SECOND) };
            let (watch, _) = ClockWatch::start(&stored_at_noon(), &reading);
            assert_eq!(watch.status(now, SECOND).in_doubt, in_doubt, "case: {name}");
        }
    }

    #[test]
    fn newest_event_stands_in_for_a_time_that_was_never_stored() {
        let start = |newest_event, now| {
            let stored = StoredClock { saved: None, newest_event };
            ClockWatch::start(&stored, &reading(now, SECOND)).0.status(now, SECOND).in_doubt
        };
        assert!(!start(None, NOON), "a new data folder");
        assert!(!start(Some(NOON - HOUR), NOON));
        assert!(start(Some(NOON - 60 * DAY), NOON));
        assert!(!start(Some(NOON + DAY), NOON), "an event from the future proves nothing");
    }

    #[test]
    fn synchronized_clock_is_trusted() {
        let (now, stored) = (NOON + 60 * DAY, stored_at_noon());
        let synchronized = ClockSample { is_synchronized: true, ..reading(now, SECOND) };
        assert!(!ClockWatch::start(&stored, &synchronized).0.status(now, SECOND).in_doubt);
        let (mut watch, _) = ClockWatch::start(&stored, &reading(now, SECOND));
        assert!(watch.status(now, SECOND).in_doubt);
        assert!(watch.observe(&synchronized).trust_changed);
        assert!(!watch.status(now, SECOND).in_doubt);
    }

    #[test]
    fn jump_while_running_is_in_doubt_until_the_clock_is_right_again() {
        for (name, wrong) in [("ahead", NOON + DAY), ("behind", NOON - DAY)] {
            let mut watch = watch_at_noon();
            assert!(watch.observe(&reading(wrong + SECOND, SECOND)).trust_changed, "{name}");
            assert!(!watch.observe(&reading(wrong + HOUR, HOUR)).trust_changed, "{name}");
            let status = watch.status(wrong + HOUR, HOUR);
            assert_eq!((status.in_doubt, status.expected), (true, NOON + HOUR), "{name}");
            let right = reading(NOON + HOUR + SECOND, HOUR + SECOND);
            assert!(watch.observe(&right).trust_changed, "{name}");
            assert!(!watch.status(right.now, right.elapsed).in_doubt, "{name}");
        }
    }

    #[test]
    fn jump_is_trusted_once_a_person_confirms_it() {
        let mut watch = watch_at_noon();
        let ahead = reading(NOON + DAY, SECOND);
        watch.observe(&ahead);
        watch.trust(&ahead);
        assert!(!watch.observe(&reading(NOON + DAY + SECOND, 2 * SECOND)).trust_changed);
        assert_eq!(watch.expected(3 * SECOND), NOON + DAY + 2 * SECOND);
    }

    #[test]
    fn clock_is_trusted_after_sleep_and_follows_slow_drift() {
        let mut watch = watch_at_noon();
        let awake = ClockSample {
            machine: machine("a", HOUR + DAY + SECOND),
            ..reading(NOON + DAY + SECOND, SECOND)
        };
        assert_eq!(watch.observe(&awake), ClockChange::default());
        let mut now = NOON + DAY;
        for second in 2..5000u32 {
            now = now + SECOND + SECOND / 2;
            watch.observe(&ClockSample { machine: None, ..reading(now, second * SECOND) });
        }
        assert!(!watch.status(now, 5000 * SECOND).in_doubt);
    }

    #[test]
    fn step_back_is_measured_while_running_and_at_a_start() {
        let mut watch = watch_at_noon();
        let step = |change: ClockChange| change.stepped_back;
        assert_eq!(step(watch.observe(&reading(NOON + 10 * SECOND, 10 * SECOND))), None);
        assert_eq!(step(watch.observe(&reading(NOON + 10 * SECOND, 11 * SECOND))), None);
        let back = watch.observe(&reading(NOON + 11 * SECOND - DAY, 12 * SECOND));
        assert_eq!(step(back), Some(DAY));
        assert_eq!(step(watch.observe(&reading(NOON + DAY, 13 * SECOND))), None, "forward");
        let now = NOON + DAY + SECOND;
        let sample = ClockSample { latest: now + HOUR, ..reading(now, 14 * SECOND) };
        assert_eq!(
            step(watch.observe(&sample)),
            Some(HOUR),
            "forward and back between two readings"
        );

        let start = |now| step(ClockWatch::start(&stored_at_noon(), &reading(now, SECOND)).1);
        assert_eq!(start(NOON + SECOND), None);
        assert_eq!(start(NOON - DAY), Some(DAY));
        let newest = StoredClock { saved: None, newest_event: Some(NOON + DAY) };
        let (_, change) = ClockWatch::start(&newest, &reading(NOON, SECOND));
        assert_eq!(step(change), Some(DAY), "the newest event shows a clock that was ahead");
    }
}
