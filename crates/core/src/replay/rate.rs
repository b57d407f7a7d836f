//! How fast a job hands out deliveries: `50/s`, and the count of what may go now.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::time::Timestamp;

/// So many in a second, a minute or an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRate {
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
}

impl Unit {
    const ALL: [(Self, &'static str, u32); 3] =
        [(Self::Second, "s", 1), (Self::Minute, "m", 60), (Self::Hour, "h", 3600)];
}

/// The fastest pace: beyond it a job would take the writer's time from live traffic.
const PER_SECOND_MAX: u32 = 1000;
/// What was not used is kept for so long; a job that was held up does not make up for it in a rush.
const KEPT: Duration = Duration::from_millis(100);

impl Default for ReplayRate {
    /// Fast enough for most, and hardly felt beside live traffic.
    fn default() -> Self {
        Self { count: 50, unit: Unit::Second }
    }
}

impl ReplayRate {
    fn unit_seconds(self) -> u32 {
        Unit::ALL.iter().find(|(unit, ..)| *unit == self.unit).map_or(1, |(_, _, seconds)| *seconds)
    }

    /// How many in a second.
    pub fn per_second(self) -> f64 {
        f64::from(self.count) / f64::from(self.unit_seconds())
    }

    /// How long `many` take.
    pub fn time_for(self, many: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let seconds = many as f64 / self.per_second();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// A text that is no pace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a rate such as 50/s, 300/m or 1000/h, at most {PER_SECOND_MAX}/s")]
pub struct ParseReplayRateError;

impl FromStr for ReplayRate {
    type Err = ParseReplayRateError;

    fn from_str(text: &str) -> Result<Self, ParseReplayRateError> {
        let (count, unit) = text.split_once('/').ok_or(ParseReplayRateError)?;
        let (unit, _, seconds) =
            Unit::ALL.into_iter().find(|(_, name, _)| *name == unit).ok_or(ParseReplayRateError)?;
        let plain = count.bytes().all(|byte| byte.is_ascii_digit());
        let count: u32 = count.parse().ok().filter(|_| plain).ok_or(ParseReplayRateError)?;
        if count == 0 || count > PER_SECOND_MAX.saturating_mul(seconds) {
            return Err(ParseReplayRateError);
        }
        Ok(Self { count, unit })
    }
}

impl fmt::Display for ReplayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Unit::ALL.iter().find(|(unit, ..)| *unit == self.unit).map_or("s", |(_, name, _)| name);
        write!(f, "{}/{name}", self.count)
    }
}

impl Serialize for ReplayRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReplayRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Counts what may go now. Begins with one, and never owes more than a moment's worth.
#[derive(Clone, Copy, Debug)]
pub struct ReplayPacer {
    pace: ReplayRate,
    saved: f64,
    seen_at: Timestamp,
}

impl ReplayPacer {
    /// Begins to count at `now`.
    pub fn new(pace: ReplayRate, now: Timestamp) -> Self {
        Self { pace, saved: 1.0, seen_at: now }
    }

    /// How many may go at `now`.
    pub fn allowance(&mut self, now: Timestamp) -> usize {
        let per_second = self.pace.per_second();
        // One more, or the part of the next one would be lost at every look.
        let kept_max = 1.0 + per_second * KEPT.as_secs_f64();
        self.saved =
            (self.saved + now.since(self.seen_at).as_secs_f64() * per_second).min(kept_max);
        self.seen_at = now;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between zero and a tenth of the fastest pace"
        )]
        let whole = self.saved as usize;
        whole
    }

    /// How long it is from the last look until one more may go.
    pub fn next_in(&self) -> Duration {
        let missing = (1.0 - self.saved).max(0.0) / self.pace.per_second();
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }

    /// So many of them went.
    pub fn spend(&mut self, many: usize) {
        #[expect(clippy::cast_precision_loss, reason = "at most what allowance said")]
        let spent = many as f64;
        self.saved = (self.saved - spent).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_reads_as_people_write_it() {
        for text in ["50/s", "1/s", "1000/s", "300/m", "60000/m", "1/h"] {
            assert_eq!(text.parse::<ReplayRate>().unwrap().to_string(), text);
        }
        for text in ["", "50", "/s", "0/s", "1001/s", "60001/m", "-1/s", "+1/s", "5/d", "1.5/s"] {
            assert_eq!(text.parse::<ReplayRate>(), Err(ParseReplayRateError), "case: {text}");
        }
        assert_eq!(ReplayRate::default().time_for(1000), Duration::from_secs(20));
    }

    /// What goes in `seconds`, looked at every `every` milliseconds.
    fn gone(pace: &str, seconds: i64, every: usize) -> usize {
        let begin = Timestamp::from_millis(1_000_000);
        let mut pacer = ReplayPacer::new(pace.parse().unwrap(), begin);
        let mut gone = 0;
        for millis in (0..=seconds * 1000).step_by(every) {
            let many = pacer.allowance(begin + Duration::from_millis(millis.unsigned_abs()));
            pacer.spend(many);
            gone += many;
        }
        gone
    }

    #[test]
    fn over_time_as_many_go_as_the_pace_says() {
        for (pace, seconds, expected) in
            [("50/s", 20, 1000), ("7/s", 10, 70), ("1000/s", 5, 5000), ("30/m", 60, 30)]
        {
            let gone = gone(pace, seconds, 50);
            assert!((expected..=expected + 1).contains(&gone), "{pace}: {gone}");
        }
    }

    #[test]
    fn what_was_held_up_is_not_made_up_for() {
        let begin = Timestamp::from_millis(0);
        let mut pacer = ReplayPacer::new("100/s".parse().unwrap(), begin);
        assert_eq!(pacer.allowance(begin + Duration::from_secs(3600)), 11);
        // A clock that steps back gives nothing and takes nothing.
        assert_eq!(pacer.allowance(begin), 11);
        pacer.spend(11);
        assert_eq!(pacer.next_in(), Duration::from_millis(10));
        assert_eq!(pacer.allowance(begin), 0);
    }
}
