//! Retry policies, backoff and `Retry-After`.
//!
//! The delay is a pure function of the attempt number and a random roll. Nothing here waits: the
//! schedule is stored as a due time.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Visitor},
};
use surehook_types::{
    object,
    time::{HumanDuration, Timestamp},
};

/// Maximum number of attempts that a policy may allow.
const ATTEMPTS_LIMIT: u32 = 1000;
/// Longest delay that a policy may have, as in the settings: a thousand years.
const DELAY_LIMIT: Duration = Duration::from_secs(365_000 * 86_400);
/// The usual factor of [`Jitter::Decorrelated`].
const DECORRELATED_BASE: f64 = 3.0;
const JITTER_ERROR: RetrySpecError = RetrySpecError::OutOfRange {
    field: "jitter",
    expected: "between 0 and 1, full, equal, decorrelated, or a duration on top such as +500ms",
};

/// The value of a `Retry-After` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// A number of seconds.
    Delay(Duration),
    /// An HTTP date.
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

/// How a delay is spread, so that many callers that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// Anything between zero and the delay: spreads best.
    Full,
    /// Half of the delay, and anything up to the other half.
    Equal,
    /// Anything between the initial delay and the previous delay times the base, at most the longest
    /// delay. Spreads as far as `Full`, and never waits less than the initial delay.
    Decorrelated,
    /// Plus or minus this share of the delay, 0 to 1.
    Share(f64),
    /// Up to this much on top.
    Plus(Duration),
}

/// How often something is attempted and how long to wait in between.
///
/// Use a named policy ([`RetryPolicy::NAMES`]), or build one from numbers:
///
/// ```
/// use std::time::Duration;
/// use surehook_retry::{Jitter, RetryPolicy};
///
/// let policy = RetryPolicy::builder()
///     .max_attempts(4)
///     .initial_delay(Duration::from_millis(100))
///     .max_delay(Duration::from_secs(2))
///     .jitter(Jitter::Equal)
///     .build()?;
/// let delays: Vec<_> = policy.plain_delays().map(|delay| delay.as_millis()).collect();
/// assert_eq!(delays, [100, 200, 400]);
/// # Ok::<(), surehook_retry::RetrySpecError>(())
/// ```
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
    /// The names that [`RetryPolicy::named`] knows.
    pub const NAMES: [&'static str; 3] = ["quick", "short", "standard"];

    /// The policy with this name: `quick`, `short` or `standard`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "quick" => Some(Self::quick()),
            "short" => Some(Self::short()),
            "standard" => Some(Self::standard()),
            _ => None,
        }
    }

    /// Builds a policy from numbers; those that are not set are taken from `short`.
    pub fn builder() -> RetryPolicyBuilder {
        RetryPolicyBuilder::default()
    }

    /// Three attempts within about 6 s: 2^n s and up to 0.5 s more after attempt n, at most 8 s.
    pub fn quick() -> Self {
        Self {
            attempts_max: 3,
            backoff: Backoff::Exponential { initial: Duration::from_secs(2), base: 2.0 },
            delay_max: Duration::from_secs(8),
            jitter: Jitter::Plus(Duration::from_millis(500)),
            age_max: None,
        }
    }

    /// Five attempts within about 15 s: 1 s × 2^(n-1) after attempt n, at most 300 s, ±10 %.
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

    /// Longest delay. Only [`Jitter::Share`] can exceed it, by its share.
    pub fn delay_max(&self) -> Duration {
        self.delay_max
    }

    /// How the delays are spread.
    pub fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// Whether a delivery would exceed the policy's maximum age at `due_at`.
    pub fn is_expired(&self, created_at: Timestamp, due_at: Timestamp) -> bool {
        self.age_max.is_some_and(|age_max| due_at > created_at + age_max)
    }

    /// The delays between the attempts before jitter, one fewer than there are attempts.
    pub fn plain_delays(&self) -> impl Iterator<Item = Duration> + '_ {
        (1..self.attempts_max).map(|attempt| self.plain_delay(attempt).min(self.delay_max))
    }

    /// The delay after attempt number `attempt` (from 1). `roll` is in `0.0..1.0`.
    ///
    /// Without the previous delay, [`Jitter::Decorrelated`] draws the delays before this one again: the
    /// result is spread as if they had been kept.
    pub fn delay_after(&self, attempt: u32, roll: f64) -> Duration {
        if self.jitter != Jitter::Decorrelated {
            return self.delay_after_previous(attempt, None, roll);
        }
        let mut rolls = RollSequence(roll.to_bits());
        (0..attempt.clamp(1, ATTEMPTS_LIMIT))
            .fold(None, |previous, _| Some(self.decorrelated_delay(previous, rolls.next_roll())))
            .unwrap_or_default()
    }

    /// The delay after attempt number `attempt` (from 1), where `previous` is what this returned after
    /// the attempt before; `None` after the first. Only [`Jitter::Decorrelated`] depends on it.
    pub fn delay_after_previous(
        &self,
        attempt: u32,
        previous: Option<Duration>,
        roll: f64,
    ) -> Duration {
        let plain = self.plain_delay(attempt).min(self.delay_max).as_secs_f64();
        let cap = self.delay_max.as_secs_f64();
        let roll = roll.clamp(0.0, 1.0);
        let secs = match self.jitter {
            Jitter::Full => plain * roll,
            Jitter::Equal => plain * (0.5 + 0.5 * roll),
            Jitter::Decorrelated => return self.decorrelated_delay(previous, roll),
            Jitter::Share(share) => plain * (1.0 + share * (2.0 * roll - 1.0)),
            Jitter::Plus(extra) => (plain + extra.as_secs_f64() * roll).min(cap),
        };
        Duration::from_secs_f64(secs.max(0.0))
    }

    fn decorrelated_delay(&self, previous: Option<Duration>, roll: f64) -> Duration {
        let (initial, base) = match &self.backoff {
            Backoff::Exponential { initial, base } => (*initial, *base),
            // A schedule is refused together with this jitter.
            Backoff::Schedule(delays) => (delays[0], DECORRELATED_BASE),
        };
        let low = initial.min(self.delay_max).as_secs_f64();
        let previous = previous.unwrap_or(initial).min(self.delay_max).as_secs_f64();
        let high = (previous * base).max(low);
        let secs = (low + (high - low) * roll).min(self.delay_max.as_secs_f64());
        Duration::from_secs_f64(secs.max(0.0))
    }

    fn plain_delay(&self, attempt: u32) -> Duration {
        let step = attempt.max(1) - 1;
        match &self.backoff {
            Backoff::Exponential { initial, base } => {
                let exponent = i32::try_from(step).unwrap_or(i32::MAX);
                // Not infinite: zero times infinity is not a number.
                let factor = base.powi(exponent).min(f64::MAX);
                let secs = (initial.as_secs_f64() * factor).min(self.delay_max.as_secs_f64());
                Duration::from_secs_f64(secs)
            }
            Backoff::Schedule(delays) => {
                let index = usize::try_from(step).unwrap_or(usize::MAX).min(delays.len() - 1);
                delays[index]
            }
        }
    }
}

/// Pseudo-random numbers from one seed, by the algorithm `SplitMix64`.
struct RollSequence(u64);

impl RollSequence {
    fn next_roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 without loss")]
        let numerator = (mixed >> 11) as f64;
        numerator / (1u64 << 53) as f64
    }
}

/// Builds a [`RetryPolicy`] from numbers, with the limits of the settings.
#[derive(Clone, Debug, Default)]
pub struct RetryPolicyBuilder {
    spec: CustomRetrySpec,
    jitter: Option<Jitter>,
}

impl RetryPolicyBuilder {
    /// Maximum number of attempts, the first included: 1 to 1000.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.spec.max_attempts = Some(attempts);
        self
    }

    /// Delay after the first attempt.
    #[must_use]
    pub fn initial_delay(mut self, delay: Duration) -> Self {
        self.spec.initial_delay = Some(HumanDuration(delay));
        self
    }

    /// Longest delay, before jitter.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.spec.max_delay = Some(HumanDuration(delay));
        self
    }

    /// Factor by which the delay grows, 1 to 100.
    #[must_use]
    pub fn base(mut self, base: f64) -> Self {
        self.spec.base = Some(base);
        self
    }

    /// How the delays are spread.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Explicit delays, instead of `initial_delay` and `base`; the last one repeats.
    #[must_use]
    pub fn schedule(mut self, delays: impl IntoIterator<Item = Duration>) -> Self {
        self.spec.schedule = Some(delays.into_iter().map(HumanDuration).collect());
        self
    }

    /// Give up when the next attempt would begin later than this after the first.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.spec.max_age = Some(HumanDuration(age));
        self
    }

    /// The policy, unless a number is out of its range or two contradict each other.
    pub fn build(self) -> Result<RetryPolicy, RetrySpecError> {
        self.spec.resolve(self.jitter)
    }
}

/// A retry policy in the settings: a name, or custom values.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RetrySpec {
    /// `quick`, `short` or `standard`.
    Named(#[schemars(regex(pattern = "^(quick|short|standard)$"))] String),
    /// Custom values; defaults are those of `short`.
    Custom(CustomRetrySpec),
}

impl From<String> for RetrySpec {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<CustomRetrySpec> for RetrySpec {
    fn from(custom: CustomRetrySpec) -> Self {
        Self::Custom(custom)
    }
}

impl<'de> Deserialize<'de> for RetrySpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "\"quick\", \"short\", \"standard\", or a table such as \
                        { max_attempts = 5, initial_delay = \"1s\" }";
        object::or_text::<D, Self, CustomRetrySpec>(from, expected)
    }
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
    /// How the delays vary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterSpec>,
    /// Explicit delays, instead of `initial_delay` and `base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 999))]
    pub schedule: Option<Vec<HumanDuration>>,
    /// Give up when the next attempt would be later than this after the delivery was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<HumanDuration>,
}

/// Jitter in the settings: a share of the delay, or a kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum JitterSpec {
    /// Share of the delay by which it may vary, 0 to 1; 1 is `full`.
    Share(#[schemars(range(min = 0, max = 1))] f64),
    /// `full`, `equal`, `decorrelated`, or up to a duration on top such as `+500ms`.
    Kind(#[schemars(regex(pattern = r"^(full|equal|decorrelated|\+[0-9]+(ms|s|m|h|d))$"))] String),
}

struct JitterVisitor;

impl Visitor<'_> for JitterVisitor {
    type Value = JitterSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a share such as 0.1, \"full\", \"equal\", \"decorrelated\", or a duration such as \"+500ms\"",
        )
    }

    fn visit_f64<E: de::Error>(self, share: f64) -> Result<JitterSpec, E> {
        Ok(JitterSpec::Share(share))
    }

    fn visit_u64<E: de::Error>(self, share: u64) -> Result<JitterSpec, E> {
        self.visit_f64(share as f64)
    }

    fn visit_i64<E: de::Error>(self, share: i64) -> Result<JitterSpec, E> {
        self.visit_f64(share as f64)
    }

    fn visit_str<E: de::Error>(self, kind: &str) -> Result<JitterSpec, E> {
        Ok(JitterSpec::Kind(kind.to_owned()))
    }
}

impl<'de> Deserialize<'de> for JitterSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JitterVisitor)
    }
}

/// Why the settings of a retry policy are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetrySpecError {
    /// There is no policy of this name.
    #[error("unknown retry policy `{0}`; use quick, short or standard")]
    UnknownName(String),
    /// A value is out of its range, or contradicts another one.
    #[error("retry.{field} must be {expected}")]
    OutOfRange {
        /// Name of the setting.
        field: &'static str,
        /// What is allowed.
        expected: &'static str,
    },
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self::Named("standard".to_owned())
    }
}

impl RetrySpec {
    /// Validates the settings.
    pub fn build(&self) -> Result<RetryPolicy, RetrySpecError> {
        match self {
            Self::Named(name) => {
                RetryPolicy::named(name).ok_or_else(|| RetrySpecError::UnknownName(name.clone()))
            }
            Self::Custom(custom) => custom.build(),
        }
    }
}

impl JitterSpec {
    fn jitter(&self) -> Option<Jitter> {
        match self {
            Self::Share(share) => Some(Jitter::Share(*share)),
            Self::Kind(kind) => match kind.as_str() {
                "full" => Some(Jitter::Full),
                "equal" => Some(Jitter::Equal),
                "decorrelated" => Some(Jitter::Decorrelated),
                other => {
                    let extra = other.strip_prefix('+')?.parse::<HumanDuration>().ok()?;
                    Some(Jitter::Plus(extra.0))
                }
            },
        }
    }
}

impl CustomRetrySpec {
    /// Validates the settings.
    pub fn build(&self) -> Result<RetryPolicy, RetrySpecError> {
        let jitter = match &self.jitter {
            None => None,
            Some(spec) => Some(spec.jitter().ok_or(JITTER_ERROR)?),
        };
        self.resolve(jitter)
    }

    /// Validates the numbers, and builds the policy with this `jitter` instead of [`Self::jitter`], which
    /// is text in the settings and a value in a [`RetryPolicyBuilder`].
    fn resolve(&self, jitter: Option<Jitter>) -> Result<RetryPolicy, RetrySpecError> {
        let out_of_range = |field, expected| Err(RetrySpecError::OutOfRange { field, expected });
        let default = RetryPolicy::short();
        let jitter = match jitter {
            None => default.jitter,
            Some(Jitter::Share(1.0)) => Jitter::Full,
            Some(Jitter::Share(share)) if !(0.0..1.0).contains(&share) => return Err(JITTER_ERROR),
            Some(Jitter::Plus(extra)) if extra > DELAY_LIMIT => return Err(JITTER_ERROR),
            Some(Jitter::Decorrelated) if self.schedule.is_some() => {
                return out_of_range("jitter", "other than decorrelated together with schedule");
            }
            Some(jitter) => jitter,
        };
        let usual_base = if jitter == Jitter::Decorrelated { DECORRELATED_BASE } else { 2.0 };
        let base = self.base.unwrap_or(usual_base);
        if !(1.0..=100.0).contains(&base) {
            return out_of_range("base", "between 1 and 100");
        }
        let backoff = match &self.schedule {
            Some(_) if self.initial_delay.is_some() || self.base.is_some() => {
                return out_of_range("schedule", "given without initial_delay and base");
            }
            Some(delays) if delays.is_empty() || delays.len() > 999 => {
                return out_of_range("schedule", "a list of 1 to 999 durations");
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
        if !(1..=ATTEMPTS_LIMIT).contains(&attempts_max) {
            return out_of_range("max_attempts", "between 1 and 1000");
        }
        let longest = match &backoff {
            Backoff::Schedule(delays) => delays.iter().max().copied(),
            Backoff::Exponential { .. } => None,
        };
        let delay_max = self.max_delay.map(|span| span.0).or(longest).unwrap_or(default.delay_max);
        if delay_max > DELAY_LIMIT {
            return out_of_range("max_delay", "at most 365000d");
        }
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
    fn delay_grows_until_the_maximum_however_small_the_base() {
        let delay = |initial: u64, base: f64, attempt: u32| {
            let policy = RetryPolicy::builder()
                .max_attempts(1000)
                .initial_delay(Duration::from_secs(initial))
                .base(base)
                .jitter(Jitter::Share(0.0));
            policy.build().unwrap().delay_after(attempt, 0.5).as_secs_f64()
        };
        let cases = [(1, 1.01, 101, 2.7048), (1, 1.01, 999, 300.0), (0, 100.0, 999, 0.0)];
        for (initial, base, attempt, secs) in cases {
            let found = delay(initial, base, attempt);
            assert!((found - secs).abs() < 1e-4, "case: {initial} {base} {attempt}: {found}");
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
        let parse = |text: &str| serde_json::from_str::<RetrySpec>(text).unwrap().build();
        let cases = [
            (r#""quick""#, true),
            (r#""slow""#, false),
            (r#"{"max_attempts":3,"initial_delay":"10ms","jitter":0}"#, true),
            (r#"{"max_attempts":0}"#, false),
            (r#"{"max_attempts":1001}"#, false),
            (r#"{"jitter":1}"#, true),
            (r#"{"jitter":1.5}"#, false),
            (r#"{"jitter":-0.1}"#, false),
            (r#"{"jitter":"full"}"#, true),
            (r#"{"jitter":"equal","schedule":["1s"]}"#, true),
            (r#"{"jitter":"decorrelated","base":4}"#, true),
            (r#"{"jitter":"decorrelated","schedule":["1s"]}"#, false),
            (r#"{"jitter":"+500ms"}"#, true),
            (r#"{"jitter":"500ms"}"#, false),
            (r#"{"jitter":"+soon"}"#, false),
            (r#"{"jitter":"Full"}"#, false),
            (r#"{"jitter":""}"#, false),
            (r#"{"base":0.5}"#, false),
            (r#"{"schedule":["1s","5s"]}"#, true),
            (r#"{"schedule":[]}"#, false),
            (r#"{"schedule":["1s"],"base":2}"#, false),
        ];
        for (text, is_valid) in cases {
            assert_eq!(parse(text).is_ok(), is_valid, "case: {text}");
        }
    }

    #[test]
    fn schedule_is_followed_and_its_last_entry_repeats() {
        let text = r#"{"schedule":["1s","5s","2s"],"max_attempts":9,"jitter":0}"#;
        let policy = serde_json::from_str::<RetrySpec>(text).unwrap().build().unwrap();
        let secs: Vec<_> = (1..=5).map(|n| policy.delay_after(n, 0.3).as_secs()).collect();
        assert_eq!(secs, [1, 5, 2, 2, 2]);
    }

    /// The shortest and the longest delay after each attempt follow the formulas that the policies are
    /// documented with.
    #[test]
    fn named_policies_equal_policies_built_from_their_numbers() {
        let secs = Duration::from_secs;
        let quick = RetryPolicy::builder()
            .max_attempts(3)
            .initial_delay(secs(2))
            .base(2.0)
            .max_delay(secs(8))
            .jitter(Jitter::Plus(Duration::from_millis(500)));
        let short = RetryPolicy::builder()
            .max_attempts(5)
            .initial_delay(secs(1))
            .base(2.0)
            .max_delay(secs(300))
            .jitter(Jitter::Share(0.1));
        let standard = [10, 120, 1200, 3600, 14_400, 36_000, 72_000, 144_000, 259_200].map(secs);
        let standard = RetryPolicy::builder().schedule(standard).jitter(Jitter::Full);
        let ends = |attempts: &[(f64, f64)]| attempts.to_vec();
        let cases = [
            ("quick", quick, ends(&[(2.0, 2.5), (4.0, 4.5)])),
            ("short", short, ends(&[(0.9, 1.1), (1.8, 2.2), (3.6, 4.4), (7.2, 8.8)])),
            ("standard", standard, ends(&[(0.0, 10.0), (0.0, 120.0), (0.0, 1200.0)])),
        ];
        for (name, by_numbers, delays) in cases {
            let policy = RetryPolicy::named(name).unwrap();
            assert_eq!(by_numbers.build().unwrap(), policy, "case: {name}");
            for (attempt, (low, high)) in (1..).zip(delays) {
                let delay = |roll| policy.delay_after(attempt, roll).as_secs_f64();
                assert!((delay(0.0) - low).abs() < 1e-6, "case: {name} {attempt}");
                assert!((delay(1.0) - high).abs() < 1e-6, "case: {name} {attempt}");
            }
        }
        let plain = |name| -> Vec<u64> {
            RetryPolicy::named(name).unwrap().plain_delays().map(|delay| delay.as_secs()).collect()
        };
        assert_eq!(plain("quick"), [2, 4]);
        assert_eq!(plain("short"), [1, 2, 4, 8]);
        assert_eq!(plain("standard").len(), 9);
        for name in RetryPolicy::NAMES {
            assert!(RetryPolicy::named(name).is_some(), "case: {name}");
        }
        assert_eq!(RetryPolicy::named("slow"), None);
    }

    #[test]
    fn stored_jitter_is_written_as_it_was_read() {
        let cases = [
            r#"{"jitter":0.1}"#,
            r#"{"jitter":1.0}"#,
            r#"{"jitter":"full"}"#,
            r#"{"jitter":"equal"}"#,
            r#"{"jitter":"decorrelated"}"#,
            r#"{"jitter":"+500ms"}"#,
            r#"{}"#,
        ];
        for text in cases {
            let spec: RetrySpec = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&spec).unwrap(), text);
            assert!(spec.build().is_ok(), "case: {text}");
        }
        // Both spellings of full jitter, and a whole number.
        let policy = |text: &str| serde_json::from_str::<RetrySpec>(text).unwrap().build();
        assert_eq!(policy(r#"{"jitter":1}"#), policy(r#"{"jitter":"full"}"#));
    }

    #[test]
    fn numbers_out_of_range_are_refused_and_never_panic() {
        let builder = RetryPolicy::builder;
        let refused = [
            builder().max_attempts(0),
            builder().base(f64::NAN),
            builder().base(f64::INFINITY),
            builder().jitter(Jitter::Share(f64::NAN)),
            builder().jitter(Jitter::Plus(Duration::MAX)),
            builder().max_delay(Duration::MAX),
            builder().schedule([Duration::MAX]),
            builder().schedule([]),
        ];
        for builder in refused {
            assert!(builder.clone().build().is_err(), "case: {builder:?}");
        }
        let policy = builder().initial_delay(Duration::MAX).jitter(Jitter::Full).build().unwrap();
        for roll in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 2.0] {
            assert!(policy.delay_after(u32::MAX, roll) <= policy.delay_max());
        }
    }

    fn policy_with(jitter: Jitter, initial: u64, base: f64, max: u64) -> RetryPolicy {
        RetryPolicy::builder()
            .max_attempts(1000)
            .initial_delay(Duration::from_millis(initial))
            .base(base)
            .max_delay(Duration::from_millis(max))
            .jitter(jitter)
            .build()
            .unwrap()
    }

    /// Mean and share of the values in the lower half of `low..high`, over a fixed sequence.
    fn spread(low: f64, high: f64, mut draw: impl FnMut(f64) -> f64) -> (f64, f64) {
        const DRAWS: u32 = 20_000;
        let mut rolls = RollSequence(7);
        let (mut sum, mut lower) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let value = draw(rolls.next_roll());
            assert!((low..=high).contains(&value), "{value} is not in {low}..={high}");
            sum += value;
            lower += f64::from(u8::from(value < (low + high) / 2.0));
        }
        (sum / f64::from(DRAWS), lower / f64::from(DRAWS))
    }

    #[test]
    fn jitter_is_uniform_between_its_ends() {
        let cases = [
            (Jitter::Full, 0.0, 4.0),
            (Jitter::Equal, 2.0, 4.0),
            (Jitter::Share(0.25), 3.0, 5.0),
            (Jitter::Plus(Duration::from_secs(3)), 4.0, 7.0),
        ];
        for (jitter, low, high) in cases {
            let policy = policy_with(jitter, 1000, 2.0, 60_000);
            let (mean, lower) = spread(low, high, |roll| policy.delay_after(3, roll).as_secs_f64());
            let width = high - low;
            assert!((mean - (low + high) / 2.0).abs() < 0.02 * width, "{jitter:?}: mean {mean}");
            assert!((lower - 0.5).abs() < 0.02, "{jitter:?}: {lower} in the lower half");
        }
        let policy = policy_with(Jitter::Decorrelated, 1000, 3.0, 60_000);
        let previous = Some(Duration::from_secs(2));
        let (mean, lower) =
            spread(1.0, 6.0, |roll| policy.delay_after_previous(2, previous, roll).as_secs_f64());
        assert!((mean - 3.5).abs() < 0.1 && (lower - 0.5).abs() < 0.02, "{mean} {lower}");
    }

    /// A stored delivery does not know its previous delay: the delays must be spread as if it did.
    #[test]
    fn decorrelated_delays_without_previous_delay_are_spread_alike() {
        let policy = policy_with(Jitter::Decorrelated, 1000, 3.0, 20_000);
        for attempt in 1..=6 {
            let (redrawn, redrawn_lower) =
                spread(1.0, 20.0, |roll| policy.delay_after(attempt, roll).as_secs_f64());
            let mut rolls = RollSequence(99);
            let (chained, chained_lower) = spread(1.0, 20.0, |_| {
                let chain = (1..=attempt).fold(None, |previous, number| {
                    Some(policy.delay_after_previous(number, previous, rolls.next_roll()))
                });
                chain.unwrap().as_secs_f64()
            });
            assert!((redrawn - chained).abs() < 0.2, "attempt {attempt}: {redrawn} and {chained}");
            assert!((redrawn_lower - chained_lower).abs() < 0.02, "attempt {attempt}");
        }
    }

    proptest! {
        #[test]
        fn delay_never_exceeds_the_maximum(attempt in 0u32..5000, roll in 0.0f64..1.0) {
            for policy in [RetryPolicy::quick(), RetryPolicy::short(), RetryPolicy::standard()] {
                let limit = policy.delay_max.as_secs_f64() * 1.1 + 0.001;
                prop_assert!(policy.delay_after(attempt, roll).as_secs_f64() <= limit);
            }
        }

        /// Bounds of each kind, whatever the numbers: no delay is longer than the maximum, and a
        /// larger maximum never makes a delay shorter.
        #[test]
        fn every_jitter_stays_within_its_bounds(
            initial in 1u64..5_000,
            base in 1.0f64..10.0,
            max in 1u64..100_000,
            more in 0u64..100_000,
            attempt in 1u32..200,
            previous in 0u64..200_000,
            roll in 0.0f64..1.0,
        ) {
            let plus = Duration::from_millis(300);
            let previous = Some(Duration::from_millis(previous));
            for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Plus(plus)] {
                let policy = policy_with(jitter, initial, base, max);
                let delay = policy.delay_after_previous(attempt, previous, roll);
                let plain = policy.plain_delay(attempt).min(policy.delay_max);
                let low = match jitter {
                    Jitter::Full => Duration::ZERO,
                    Jitter::Equal => plain / 2,
                    Jitter::Decorrelated => Duration::from_millis(initial.min(max)),
                    Jitter::Share(_) | Jitter::Plus(_) => plain,
                };
                let slack = Duration::from_micros(1);
                prop_assert!(delay + slack >= low, "{jitter:?}: {delay:?} is below {low:?}");
                prop_assert!(delay <= policy.delay_max + slack, "{jitter:?}: {delay:?}");
                let wider = policy_with(jitter, initial, base, max + more);
                let wider = wider.delay_after_previous(attempt, previous, roll);
                prop_assert!(wider + slack >= delay, "{jitter:?}: {wider:?} < {delay:?}");
                prop_assert!(policy.delay_after(attempt, roll) <= policy.delay_max + slack);
            }
        }
    }
}
