//! Retention: how long events, bodies and attempts are stored.
//!
//! All durations count from the receipt of the event. Two rules: nothing of an event with an unfinished
//! delivery is removed, however old it is. And an event with a dead letter keeps its body and attempts
//! for a duration of its own, so that the cause can be inspected and the event replayed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::time::{HumanDuration, Timestamp};

/// Anything shorter would remove events before they can be inspected.
const RETENTION_MIN: Duration = Duration::from_secs(1);
/// Ten years; a longer value is probably a wrong unit.
const RETENTION_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// Retention settings of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionSpec {
    /// Events with everything that belongs to them; the server's setting when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<HumanDuration>,
    /// Request bodies and headers; by default as long as the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bodies: Option<HumanDuration>,
    /// Attempts; by default as long as the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<HumanDuration>,
    /// Bodies and attempts of events that have a dead letter; by default as long as the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<HumanDuration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionSpecError {
    #[error("{0} must be between 1s and 3650d")]
    Range(&'static str),
    #[error("{0} must not be longer than events, because it is removed with the event")]
    LongerThanEvents(&'static str),
    #[error("dead_letters must not be shorter than {0}")]
    DeadLettersShorter(&'static str),
}

impl RetentionSpec {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Validates the durations.
    pub fn check(&self) -> Result<(), RetentionSpecError> {
        let parts = [("bodies", self.bodies), ("attempts", self.attempts)];
        let dead_letters = ("dead_letters", self.dead_letters);
        for (name, duration) in parts.iter().chain([&("events", self.events), &dead_letters]) {
            if duration
                .is_some_and(|duration| !(RETENTION_MIN..=RETENTION_MAX).contains(&duration.0))
            {
                return Err(RetentionSpecError::Range(name));
            }
        }
        for (name, duration) in parts.iter().chain([&dead_letters]) {
            if self.events.is_some_and(|events| duration.is_some_and(|duration| duration > events))
            {
                return Err(RetentionSpecError::LongerThanEvents(name));
            }
        }
        for (name, duration) in parts {
            if self
                .dead_letters
                .is_some_and(|dead| duration.is_some_and(|duration| duration > dead))
            {
                return Err(RetentionSpecError::DeadLettersShorter(name));
            }
        }
        Ok(())
    }

    /// The policy on a server that keeps events for `server_default`. A part never outlives its event, also
    /// when the server's duration is the shorter one.
    pub fn resolve(&self, server_default: Duration) -> RetentionPolicy {
        let events = self.events.map_or(server_default, |duration| duration.0);
        let part = |duration: Option<HumanDuration>| {
            duration.map_or(events, |duration| duration.0.min(events))
        };
        let (bodies, attempts) = (part(self.bodies), part(self.attempts));
        let dead_letters = part(self.dead_letters).max(bodies).max(attempts);
        RetentionPolicy { events, bodies, attempts, dead_letters }
    }

    /// The shortest configured duration.
    pub fn shortest_duration(&self) -> Option<Duration> {
        let all = [self.events, self.bodies, self.attempts, self.dead_letters];
        all.into_iter().flatten().map(|duration| duration.0).min()
    }
}

/// Retention of one source. No part outlives its event, and dead letters keep at least as much as other
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub events: Duration,
    pub bodies: Duration,
    pub attempts: Duration,
    /// Bodies and attempts of events with a dead delivery.
    pub dead_letters: Duration,
}

/// How far an event is delivered, which decides its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventProgress {
    /// All deliveries have ended, none is dead.
    Ended,
    /// All deliveries have ended, at least one is dead.
    Dead,
    /// At least one delivery has not ended.
    Pending,
}

/// The parts of an event whose retention is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredParts {
    /// The event with everything that belongs to it.
    pub event: bool,
    /// Its body and request headers.
    pub body: bool,
    pub attempts: bool,
}

impl RetentionPolicy {
    /// The parts of an event received at `received_at` that may be removed at `now`.
    pub fn expired_parts(
        &self,
        received_at: Timestamp,
        progress: EventProgress,
        now: Timestamp,
    ) -> ExpiredParts {
        let is_over = |duration: Duration| received_at < now - duration;
        match progress {
            EventProgress::Pending => ExpiredParts::default(),
            EventProgress::Dead => {
                let is_kept = !is_over(self.dead_letters);
                let part = |duration| is_over(duration) && !is_kept;
                ExpiredParts {
                    event: is_over(self.events),
                    body: part(self.bodies),
                    attempts: part(self.attempts),
                }
            }
            EventProgress::Ended => ExpiredParts {
                event: is_over(self.events),
                body: is_over(self.bodies),
                attempts: is_over(self.attempts),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn days(days: u64) -> Option<HumanDuration> {
        Some(HumanDuration::from_secs(days * DAY))
    }

    fn spec(
        events: Option<HumanDuration>,
        bodies: Option<HumanDuration>,
        attempts: Option<HumanDuration>,
        dead_letters: Option<HumanDuration>,
    ) -> RetentionSpec {
        RetentionSpec { events, bodies, attempts, dead_letters }
    }

    #[test]
    fn contradicting_durations_are_rejected_by_name() {
        use RetentionSpecError::{DeadLettersShorter, LongerThanEvents, Range};
        let none = Some(HumanDuration::from_secs(0));
        let cases = [
            (spec(None, None, None, None), Ok(())),
            (spec(days(30), days(7), days(14), days(20)), Ok(())),
            (spec(days(7), days(7), days(7), days(7)), Ok(())),
            (spec(None, days(90), None, None), Ok(())),
            (spec(none, None, None, None), Err(Range("events"))),
            (spec(None, none, None, None), Err(Range("bodies"))),
            (spec(None, None, days(3651), None), Err(Range("attempts"))),
            (spec(None, None, None, none), Err(Range("dead_letters"))),
            (spec(days(7), days(8), None, None), Err(LongerThanEvents("bodies"))),
            (spec(days(7), None, days(8), None), Err(LongerThanEvents("attempts"))),
            (spec(days(7), None, None, days(8)), Err(LongerThanEvents("dead_letters"))),
            (spec(None, days(3), None, days(2)), Err(DeadLettersShorter("bodies"))),
            (spec(None, None, days(3), days(2)), Err(DeadLettersShorter("attempts"))),
        ];
        for (spec, expected) in cases {
            assert_eq!(spec.check(), expected, "case: {spec:?}");
        }
    }

    #[test]
    fn omitted_durations_default_to_the_event() {
        let server = Duration::from_secs(30 * DAY);
        let policy = |events: u64, bodies: u64, attempts: u64, dead_letters: u64| {
            let days = |days: u64| Duration::from_secs(days * DAY);
            RetentionPolicy {
                events: days(events),
                bodies: days(bodies),
                attempts: days(attempts),
                dead_letters: days(dead_letters),
            }
        };
        let cases = [
            (spec(None, None, None, None), policy(30, 30, 30, 30)),
            (spec(days(9), None, None, None), policy(9, 9, 9, 9)),
            (spec(None, days(7), None, None), policy(30, 7, 30, 30)),
            (spec(None, days(7), days(1), days(8)), policy(30, 7, 1, 8)),
            // The server's duration is shorter than that of the source's bodies.
            (spec(None, days(90), None, None), policy(30, 30, 30, 30)),
            // Attempts last as long as the event, so those of dead letters do too.
            (spec(None, None, None, days(2)), policy(30, 30, 30, 30)),
        ];
        for (spec, expected) in cases {
            assert_eq!(spec.resolve(server), expected, "case: {spec:?}");
        }
    }

    #[test]
    fn unfinished_events_never_expire() {
        let seconds = Duration::from_secs;
        let policy = RetentionPolicy {
            events: seconds(100),
            bodies: seconds(10),
            attempts: seconds(20),
            dead_letters: seconds(50),
        };
        let expired = |event, body, attempts| ExpiredParts { event, body, attempts };
        let nothing = ExpiredParts::default();
        let cases = [
            (EventProgress::Ended, 10, nothing),
            (EventProgress::Ended, 11, expired(false, true, false)),
            (EventProgress::Ended, 21, expired(false, true, true)),
            (EventProgress::Ended, 100, expired(false, true, true)),
            (EventProgress::Ended, 101, expired(true, true, true)),
            (EventProgress::Dead, 21, nothing),
            (EventProgress::Dead, 50, nothing),
            (EventProgress::Dead, 51, expired(false, true, true)),
            (EventProgress::Dead, 101, expired(true, true, true)),
            (EventProgress::Pending, 101, nothing),
            (EventProgress::Pending, 1_000_000, nothing),
        ];
        let now = Timestamp::from_millis(1_800_000_000_000);
        for (progress, age, expected) in cases {
            let expired_parts = policy.expired_parts(now - seconds(age), progress, now);
            assert_eq!(expired_parts, expected, "case: {progress:?} after {age} s");
        }
    }
}
