//! The rate of a replay job, and the pacer that enforces it.

use std::{fmt, str::FromStr, time::Duration};

use surehook_retry::rate::RateUnit;
use surehook_types::{json_text, time::Timestamp};

/// Deliveries per second, minute or hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRate {
    count: u32,
    per: RateUnit,
}

/// The highest rate: beyond it a job would slow down live traffic.
const PER_SECOND_MAX: u32 = 1000;
/// Unused allowance is kept for this long, so that a delayed job does not catch up in a burst.
const ALLOWANCE_KEPT: Duration = Duration::from_millis(100);

impl Default for ReplayRate {
    /// Fast enough for most jobs, and hardly noticeable for live traffic.
    fn default() -> Self {
        Self { count: 50, per: RateUnit::Second }
    }
}

impl ReplayRate {
    pub fn per_second(self) -> f64 {
        f64::from(self.count) / f64::from(self.per.secs())
    }

    /// Estimated time for `count` deliveries.
    pub fn time_for(self, count: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let seconds = count as f64 / self.per_second();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rate; use for example 50/s, 300/m or 1000/h, at most {PER_SECOND_MAX}/s")]
pub struct ParseReplayRateError;

impl FromStr for ReplayRate {
    type Err = ParseReplayRateError;

    fn from_str(text: &str) -> Result<Self, ParseReplayRateError> {
        let (count, unit) = text.split_once('/').ok_or(ParseReplayRateError)?;
        let per = RateUnit::parse(unit).ok_or(ParseReplayRateError)?;
        let is_digits = count.bytes().all(|byte| byte.is_ascii_digit());
        let count: u32 = count.parse().ok().filter(|_| is_digits).ok_or(ParseReplayRateError)?;
        if count == 0 || count > PER_SECOND_MAX.saturating_mul(per.secs()) {
            return Err(ParseReplayRateError);
        }
        Ok(Self { count, per })
    }
}

impl fmt::Display for ReplayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.as_str())
    }
}

json_text!(ReplayRate, "ReplayRate", {
    "description": "Number of deliveries a job creates per second, minute or hour; at most 1000/s.",
    "pattern": "^[1-9][0-9]{0,6}/[smh]$",
    "examples": ["50/s"],
});

/// Enforces a rate. Starts with an allowance of one.
#[derive(Clone, Copy, Debug)]
pub struct ReplayPacer {
    rate: ReplayRate,
    saved: f64,
    seen_at: Timestamp,
}

impl ReplayPacer {
    pub fn new(rate: ReplayRate, now: Timestamp) -> Self {
        Self { rate, saved: 1.0, seen_at: now }
    }

    /// Number of deliveries that may be created at `now`.
    pub fn allowance(&mut self, now: Timestamp) -> usize {
        let per_second = self.rate.per_second();
        // Plus one, or the fraction of the next delivery would be lost at every call.
        let kept_max = 1.0 + per_second * ALLOWANCE_KEPT.as_secs_f64();
        self.saved =
            (self.saved + now.since(self.seen_at).as_secs_f64() * per_second).min(kept_max);
        self.seen_at = now;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between zero and a tenth of the fastest rate"
        )]
        let available = self.saved as usize;
        available
    }

    /// Time from the last [`Self::allowance`] until one more is allowed.
    pub fn next_in(&self) -> Duration {
        let missing = (1.0 - self.saved).max(0.0) / self.rate.per_second();
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }

    /// Uses up part of the allowance.
    pub fn spend(&mut self, count: usize) {
        #[expect(clippy::cast_precision_loss, reason = "at most what allowance said")]
        let spent = count as f64;
        self.saved = (self.saved - spent).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_rates_parse_and_display_as_written() {
        for text in ["50/s", "1/s", "1000/s", "300/m", "60000/m", "1/h"] {
            assert_eq!(text.parse::<ReplayRate>().unwrap().to_string(), text);
        }
        for text in ["", "50", "/s", "0/s", "1001/s", "60001/m", "-1/s", "+1/s", "5/d", "1.5/s"] {
            assert_eq!(text.parse::<ReplayRate>(), Err(ParseReplayRateError), "case: {text}");
        }
        assert_eq!(ReplayRate::default().time_for(1000), Duration::from_secs(20));
    }

    /// Deliveries created in `seconds`, with a call every `every` milliseconds.
    fn created_in(rate: &str, seconds: i64, every: usize) -> usize {
        let begin = Timestamp::from_millis(1_000_000);
        let mut pacer = ReplayPacer::new(rate.parse().unwrap(), begin);
        let mut created = 0;
        for millis in (0..=seconds * 1000).step_by(every) {
            let count = pacer.allowance(begin + Duration::from_millis(millis.unsigned_abs()));
            pacer.spend(count);
            created += count;
        }
        created
    }

    #[test]
    fn pacer_reaches_its_rate_over_time() {
        for (rate, seconds, expected) in
            [("50/s", 20, 1000), ("7/s", 10, 70), ("1000/s", 5, 5000), ("30/m", 60, 30)]
        {
            let created = created_in(rate, seconds, 50);
            assert!((expected..=expected + 1).contains(&created), "{rate}: {created}");
        }
    }

    #[test]
    fn delayed_pacer_does_not_catch_up() {
        let begin = Timestamp::from_millis(0);
        let mut pacer = ReplayPacer::new("100/s".parse().unwrap(), begin);
        assert_eq!(pacer.allowance(begin + Duration::from_secs(3600)), 11);
        // A clock that steps back changes nothing.
        assert_eq!(pacer.allowance(begin), 11);
        pacer.spend(11);
        assert_eq!(pacer.next_in(), Duration::from_millis(10));
        assert_eq!(pacer.allowance(begin), 0);
    }
}
