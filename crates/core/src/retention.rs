//! How long things are kept, and what may go when.
//!
//! Every span is counted from when the event was received. The first rule: what is not final is
//! not touched, however old it is. The second: a dead letter is an open matter. Somebody will want
//! to read why it died and to send it again, so while a delivery is dead its event keeps body and
//! attempts for a span of its own, which is that of the event unless the source says otherwise.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::{HumanDuration, Timestamp};

/// Shorter than this, nobody could look at what came in.
const SPAN_MIN: Duration = Duration::from_secs(1);
/// Ten years; longer is a mistake in the unit.
const SPAN_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// How long a source's things are kept, as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionSpec {
    /// Events, with all that belongs to them; the server's span when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<HumanDuration>,
    /// Bodies and heads of requests; as long as the event when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bodies: Option<HumanDuration>,
    /// Attempts; as long as the event when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<HumanDuration>,
    /// Bodies and attempts of events that have a dead letter; as long as the event when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<HumanDuration>,
}

/// Spans that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionSpecError {
    /// A span is out of its range.
    #[error("{0} must be between 1s and 3650d")]
    Range(&'static str),
    /// A part would outlive the whole.
    #[error("{0} must not be longer than events: what belongs to an event goes with it")]
    LongerThanEvents(&'static str),
    /// Dead letters would lose what the others keep.
    #[error("dead_letters must not be shorter than {0}: a dead letter needs more, not less")]
    DeadLettersShorter(&'static str),
}

impl RetentionSpec {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the spans make sense together.
    pub fn check(&self) -> Result<(), RetentionSpecError> {
        let parts = [("bodies", self.bodies), ("attempts", self.attempts)];
        let dead_letters = ("dead_letters", self.dead_letters);
        for (name, span) in parts.iter().chain([&("events", self.events), &dead_letters]) {
            if span.is_some_and(|span| !(SPAN_MIN..=SPAN_MAX).contains(&span.0)) {
                return Err(RetentionSpecError::Range(name));
            }
        }
        for (name, span) in parts.iter().chain([&dead_letters]) {
            if self.events.is_some_and(|events| span.is_some_and(|span| span > events)) {
                return Err(RetentionSpecError::LongerThanEvents(name));
            }
        }
        for (name, span) in parts {
            if self.dead_letters.is_some_and(|dead| span.is_some_and(|span| span > dead)) {
                return Err(RetentionSpecError::DeadLettersShorter(name));
            }
        }
        Ok(())
    }

    /// What it means on a server that keeps events for `server`. A part never outlives its event,
    /// also when the server's span is the shorter one.
    pub fn keep(&self, server: Duration) -> RetentionPolicy {
        let events = self.events.map_or(server, |span| span.0);
        let part = |span: Option<HumanDuration>| span.map_or(events, |span| span.0.min(events));
        let (bodies, attempts) = (part(self.bodies), part(self.attempts));
        let dead_letters = part(self.dead_letters).max(bodies).max(attempts);
        RetentionPolicy { events, bodies, attempts, dead_letters }
    }

    /// The shortest span that it names.
    pub fn shortest_duration(&self) -> Option<Duration> {
        let all = [self.events, self.bodies, self.attempts, self.dead_letters];
        all.into_iter().flatten().map(|span| span.0).min()
    }
}

/// How long the things of one source are kept, as it is meant. No part outlives its event, and
/// dead letters keep no less than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Events.
    pub events: Duration,
    /// Bodies and heads of requests.
    pub bodies: Duration,
    /// Attempts.
    pub attempts: Duration,
    /// Bodies and attempts where a delivery is dead.
    pub dead_letters: Duration,
}

/// How an event stands, by its delivery that weighs most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventStanding {
    /// All deliveries have ended, and none is dead.
    Ended,
    /// All have ended, and one is dead.
    Dead,
    /// One is not final.
    Pending,
}

/// What of an event is past its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredParts {
    /// The event with all that belongs to it.
    pub event: bool,
    /// Its body and the head of its request.
    pub body: bool,
    /// The attempts of its deliveries.
    pub attempts: bool,
}

impl RetentionPolicy {
    /// What of an event that was received `received_at` may go at `now`.
    pub fn expired_parts(
        &self,
        received_at: Timestamp,
        standing: EventStanding,
        now: Timestamp,
    ) -> ExpiredParts {
        let past = |span: Duration| received_at < now - span;
        match standing {
            EventStanding::Pending => ExpiredParts::default(),
            EventStanding::Dead => {
                let open = !past(self.dead_letters);
                let part = |span| past(span) && !open;
                ExpiredParts {
                    event: past(self.events),
                    body: part(self.bodies),
                    attempts: part(self.attempts),
                }
            }
            EventStanding::Ended => ExpiredParts {
                event: past(self.events),
                body: past(self.bodies),
                attempts: past(self.attempts),
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
    fn spans_that_contradict_each_other_are_refused_by_name() {
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
    fn what_is_left_out_lasts_as_long_as_the_event() {
        let server = Duration::from_secs(30 * DAY);
        let keep = |events: u64, bodies: u64, attempts: u64, dead_letters: u64| {
            let days = |days: u64| Duration::from_secs(days * DAY);
            RetentionPolicy {
                events: days(events),
                bodies: days(bodies),
                attempts: days(attempts),
                dead_letters: days(dead_letters),
            }
        };
        let cases = [
            (spec(None, None, None, None), keep(30, 30, 30, 30)),
            (spec(days(9), None, None, None), keep(9, 9, 9, 9)),
            (spec(None, days(7), None, None), keep(30, 7, 30, 30)),
            (spec(None, days(7), days(1), days(8)), keep(30, 7, 1, 8)),
            // The server's span is shorter than what the source says of its bodies.
            (spec(None, days(90), None, None), keep(30, 30, 30, 30)),
            // Attempts last as long as the event, and then those of dead letters do too.
            (spec(None, None, None, days(2)), keep(30, 30, 30, 30)),
        ];
        for (spec, expected) in cases {
            assert_eq!(spec.keep(server), expected, "case: {spec:?}");
        }
    }

    #[test]
    fn only_what_has_ended_is_ever_due() {
        let span = Duration::from_secs;
        let keep = RetentionPolicy {
            events: span(100),
            bodies: span(10),
            attempts: span(20),
            dead_letters: span(50),
        };
        let due = |event, body, attempts| ExpiredParts { event, body, attempts };
        let nothing = ExpiredParts::default();
        let cases = [
            (EventStanding::Ended, 10, nothing),
            (EventStanding::Ended, 11, due(false, true, false)),
            (EventStanding::Ended, 21, due(false, true, true)),
            (EventStanding::Ended, 100, due(false, true, true)),
            (EventStanding::Ended, 101, due(true, true, true)),
            (EventStanding::Dead, 21, nothing),
            (EventStanding::Dead, 50, nothing),
            (EventStanding::Dead, 51, due(false, true, true)),
            (EventStanding::Dead, 101, due(true, true, true)),
            (EventStanding::Pending, 101, nothing),
            (EventStanding::Pending, 1_000_000, nothing),
        ];
        let now = Timestamp::from_millis(1_800_000_000_000);
        for (standing, age, expected) in cases {
            let told = keep.expired_parts(now - span(age), standing, now);
            assert_eq!(told, expected, "case: {standing:?} after {age} s");
        }
    }
}
