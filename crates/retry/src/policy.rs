//! Retry policies, backoff and `Retry-After`.
//!
//! The delay is a pure function of the attempt number and a random roll. Nothing here waits: the
//! schedule is stored as a due time.

use std::time::{Duration, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::time::{HumanDuration, Timestamp};

/// The value of a `Retry-After` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    Delay(Duration),
    At(Timestamp),
}

impl RetryAfter {
    /// Parses both forms of RFC 9110 §10.2.3; anything else counts as absent.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // A number too large for u64 still means "very long".
            let secs = text.parse().unwrap_or(u64::MAX / 1000);
            return Some(Self::Delay(Duration::from_secs(secs)));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        let millis = date.duration_since(UNIX_EPOCH).ok()?.as_millis();
        Some(Self::At(Timestamp::from_millis(i64::try_from(millis).ok()?)))
    }

    /// The delay from `now`; zero for a date in the past.
    pub fn delay_from(self, now: Timestamp) -> Duration {
        match self {
            Self::Delay(delay) => delay,
            Self::At(at) => at.since(now),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Jitter {
    /// Uniform between zero and the delay: spreads retries best.
    Full,
    /// Plus or minus this share of the delay.
    Share(f64),
    /// Up to this many seconds on top.
    Plus(f64),
}

/// How often a delivery is attempted and how long to wait in between.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    attempts_max: u32,
    backoff: Backoff,
    delay_max: Duration,
    jitter: Jitter,
    age_max: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum Backoff {
    /// `initial × base^(n-1)` after attempt n.
    Exponential { initial: Duration, base: f64 },
    /// The n-th entry after attempt n; the last entry repeats.
    Schedule(Vec<Duration>),
}

impl RetryPolicy {
    /// Three attempts within seconds: `min(2^n + U(0, 0.5), 8)` s.
    pub fn quick() -> Self {
        Self {
            attempts_max: 3,
            backoff: Backoff::Exponential { initial: Duration::from_secs(2), base: 2.0 },
            delay_max: Duration::from_secs(8),
            jitter: Jitter::Plus(0.5),
            age_max: None,
        }
    }

    /// Five attempts within a minute or so: 1 s × 2^n, at most 300 s, ±10 %.
    pub fn short() -> Self {
        Self {
            attempts_max: 5,
            backoff: Backoff::Exponential { initial: Duration::from_secs(1), base: 2.0 },
            delay_max: Duration::from_secs(300),
            jitter: Jitter::Share(0.1),
            age_max: None,
        }
    }

    /// Ten attempts over about three days, with full jitter.
    ///
    /// With full jitter the mean wait is half of each entry: the means add up to three days.
    pub fn standard() -> Self {
        const SCHEDULE_SECS: [u64; 9] =
            [10, 120, 1_200, 3_600, 14_400, 36_000, 72_000, 144_000, 259_200];
        Self {
            attempts_max: 10,
            backoff: Backoff::Schedule(SCHEDULE_SECS.map(Duration::from_secs).to_vec()),
            delay_max: Duration::from_secs(259_200),
            jitter: Jitter::Full,
            age_max: None,
        }
    }

    /// Maximum number of counted attempts.
    pub fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// Longest delay, before jitter.
    pub fn delay_max(&self) -> Duration {
        self.delay_max
    }

    /// Whether a delivery would exceed the policy's maximum age at `due_at`.
    pub fn is_expired(&self, created_at: Timestamp, due_at: Timestamp) -> bool {
        self.age_max.is_some_and(|age_max| due_at > created_at + age_max)
    }

    /// The delay after attempt number `attempt` (from 1). `roll` is in `0.0..1.0`.
    pub fn delay_after(&self, attempt: u32, roll: f64) -> Duration {
        let plain = self.plain_delay(attempt).min(self.delay_max).as_secs_f64();
        let cap = self.delay_max.as_secs_f64();
        let secs = match self.jitter {
            Jitter::Full => plain * roll,
            Jitter::Share(share) => plain * (1.0 + share * (2.0 * roll - 1.0)),
            Jitter::Plus(secs) => (plain + secs * roll).min(cap),
        };
        Duration::from_secs_f64(secs.max(0.0))
    }

    fn plain_delay(&self, attempt: u32) -> Duration {
        let step = attempt.max(1) - 1;
        match &self.backoff {
            Backoff::Exponential { initial, base } => {
                // A larger exponent than 64 would overflow to infinity; the cap is reached long before.
                let factor = base.powi(i32::try_from(step.min(64)).unwrap_or(64));
                let secs = (initial.as_secs_f64() * factor).min(self.delay_max.as_secs_f64());
                Duration::from_secs_f64(secs)
            }
            Backoff::Schedule(delays) => {
                let at = usize::try_from(step).unwrap_or(usize::MAX).min(delays.len() - 1);
                delays[at]
            }
        }
    }
}

/// A retry policy in the settings: a name, or custom values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RetrySpec {
    /// `quick`, `short` or `standard`.
    Named(#[schemars(regex(pattern = "^(quick|short|standard)$"))] String),
    /// Custom values; defaults are those of `short`.
    Custom(#[serde(deserialize_with = "surehook_types::object::required")] CustomRetrySpec),
}

/// Custom values of a retry policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomRetrySpec {
    /// Maximum number of attempts, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: Option<u32>,
    /// Delay after the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<HumanDuration>,
    /// Longest delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<HumanDuration>,
    /// Factor by which the delay grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub base: Option<f64>,
    /// Share of the delay by which it may vary, 0 to 1; 1 is full jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub jitter: Option<f64>,
    /// Explicit delays, instead of `initial_delay` and `base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 999))]
    pub schedule: Option<Vec<HumanDuration>>,
    /// Give up when the next attempt would be later than this after the delivery was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<HumanDuration>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetrySpecError {
    #[error("unknown retry policy `{0}`; use quick, short or standard")]
    UnknownName(String),
    #[error("retry.{field} must be {expected}")]
    OutOfRange { field: &'static str, expected: &'static str },
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self::Named("standard".to_owned())
    }
}

impl RetrySpec {
    pub fn policy(&self) -> Result<RetryPolicy, RetrySpecError> {
        match self {
            Self::Named(name) => match name.as_str() {
                "quick" => Ok(RetryPolicy::quick()),
                "short" => Ok(RetryPolicy::short()),
                "standard" => Ok(RetryPolicy::standard()),
                _ => Err(RetrySpecError::UnknownName(name.clone())),
            },
            Self::Custom(custom) => custom.policy(),
        }
    }
}

impl CustomRetrySpec {
    fn policy(&self) -> Result<RetryPolicy, RetrySpecError> {
        let out = |field, expected| Err(RetrySpecError::OutOfRange { field, expected });
        let default = RetryPolicy::short();
        let base = self.base.unwrap_or(2.0);
        if !(1.0..=100.0).contains(&base) {
            return out("base", "between 1 and 100");
        }
        let jitter = match self.jitter {
            None => default.jitter,
            Some(1.0) => Jitter::Full,
            Some(share) if (0.0..1.0).contains(&share) => Jitter::Share(share),
            Some(_) => return out("jitter", "between 0 and 1"),
        };
        let backoff = match &self.schedule {
            Some(_) if self.initial_delay.is_some() || self.base.is_some() => {
                return out("schedule", "given without initial_delay and base");
            }
            Some(delays) if delays.is_empty() || delays.len() > 999 => {
                return out("schedule", "a list of 1 to 999 durations");
            }
            Some(delays) => Backoff::Schedule(delays.iter().map(|delay| delay.0).collect()),
            None => Backoff::Exponential {
                initial: self.initial_delay.map_or(Duration::from_secs(1), |span| span.0),
                base,
            },
        };
        let attempts_max = self.max_attempts.unwrap_or(match &backoff {
            Backoff::Schedule(delays) => u32::try_from(delays.len()).unwrap_or(999) + 1,
            Backoff::Exponential { .. } => default.attempts_max,
        });
        if !(1..=1000).contains(&attempts_max) {
            return out("max_attempts", "between 1 and 1000");
        }
        let longest = match &backoff {
            Backoff::Schedule(delays) => delays.iter().max().copied(),
            Backoff::Exponential { .. } => None,
        };
        let delay_max = self.max_delay.map(|span| span.0).or(longest).unwrap_or(default.delay_max);
        Ok(RetryPolicy {
            attempts_max,
            backoff,
            delay_max,
            jitter,
            age_max: self.max_age.map(|span| span.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_763_193_600_000);

    #[test]
    fn retry_after_parses_seconds_and_http_dates_only() {
        let date = NOW + Duration::from_secs(90);
        let cases = [
            ("120", Some(RetryAfter::Delay(Duration::from_secs(120)))),
            (" 0 ", Some(RetryAfter::Delay(Duration::ZERO))),
            ("Sat, 15 Nov 2025 08:01:30 GMT", Some(RetryAfter::At(date))),
            ("Saturday, 15-Nov-25 08:01:30 GMT", Some(RetryAfter::At(date))),
            ("Sat Nov 15 08:01:30 2025", Some(RetryAfter::At(date))),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(RetryAfter::parse(text), expected, "case: {text}");
        }
        let huge = RetryAfter::parse("99999999999999999999999").unwrap();
        assert!(huge.delay_from(NOW) > Duration::from_secs(1 << 40));
    }

    #[test]
    fn named_policies_follow_their_formulas() {
        let cases = [
            ("quick 1", RetryPolicy::quick(), 1, 2.0, 2.5),
            ("quick 2", RetryPolicy::quick(), 2, 4.0, 4.5),
            ("quick 9", RetryPolicy::quick(), 9, 8.0, 8.0),
            ("short 1", RetryPolicy::short(), 1, 0.9, 1.1),
            ("short 4", RetryPolicy::short(), 4, 7.2, 8.8),
            ("short 20", RetryPolicy::short(), 20, 270.0, 330.0),
            ("standard 1", RetryPolicy::standard(), 1, 0.0, 10.0),
        ];
        for (name, policy, attempt, low, high) in cases {
            for roll in [0.0, 0.25, 0.5, 0.999_999] {
                let secs = policy.delay_after(attempt, roll).as_secs_f64();
                assert!((low..=high).contains(&secs), "case: {name}, roll {roll}: {secs}");
            }
        }
    }

    #[test]
    fn standard_policy_covers_about_three_days() {
        let policy = RetryPolicy::standard();
        let total: f64 =
            (1..policy.attempts_max()).map(|n| policy.delay_after(n, 0.5).as_secs_f64()).sum();
        let days = total / 86_400.0;
        assert!((2.5..=3.5).contains(&days), "{days}");
    }

    #[test]
    fn custom_policy_values_are_validated() {
        let parse = |text: &str| serde_json::from_str::<RetrySpec>(text).unwrap().policy();
        let cases = [
            (r#""quick""#, true),
            (r#""slow""#, false),
            (r#"{"max_attempts":3,"initial_delay":"10ms","jitter":0}"#, true),
            (r#"{"max_attempts":0}"#, false),
            (r#"{"max_attempts":1001}"#, false),
            (r#"{"jitter":1}"#, true),
            (r#"{"jitter":1.5}"#, false),
            (r#"{"base":0.5}"#, false),
            (r#"{"schedule":["1s","5s"]}"#, true),
            (r#"{"schedule":[]}"#, false),
            (r#"{"schedule":["1s"],"base":2}"#, false),
        ];
        for (text, good) in cases {
            assert_eq!(parse(text).is_ok(), good, "case: {text}");
        }
    }

    #[test]
    fn schedule_is_followed_and_its_last_entry_repeats() {
        let text = r#"{"schedule":["1s","5s","2s"],"max_attempts":9,"jitter":0}"#;
        let policy = serde_json::from_str::<RetrySpec>(text).unwrap().policy().unwrap();
        let secs: Vec<_> = (1..=5).map(|n| policy.delay_after(n, 0.3).as_secs()).collect();
        assert_eq!(secs, [1, 5, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn delay_never_exceeds_the_maximum(attempt in 0u32..5000, roll in 0.0f64..1.0) {
            for policy in [RetryPolicy::quick(), RetryPolicy::short(), RetryPolicy::standard()] {
                let limit = policy.delay_max.as_secs_f64() * 1.1 + 0.001;
                prop_assert!(policy.delay_after(attempt, roll).as_secs_f64() <= limit);
            }
        }
    }
}
