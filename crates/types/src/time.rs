//! Timestamps, durations in settings, and the clock.

use std::{
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::json_text;

/// A point in time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time this many milliseconds after 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Seconds since 1970, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The time in the format of e-mail headers.
    pub fn to_rfc_2822(self) -> String {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        // Fails only for years before 0.
        jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_string(&time).unwrap_or_default()
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Rounds down to milliseconds; times before 1970 become 1970.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(0) + time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// RFC 3339 in UTC with milliseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// The text is not an RFC 3339 time.
#[derive(Debug, thiserror::Error)]
#[error("invalid time; use RFC 3339, for example 2026-11-15T08:00:00Z")]
pub struct ParseTimestampError;

impl FromStr for Timestamp {
    type Err = ParseTimestampError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time: jiff::Timestamp = text.parse().map_err(|_| ParseTimestampError)?;
        Ok(Self(time.as_millisecond()))
    }
}

json_text!(Timestamp, "Timestamp", {
    "format": "date-time",
    "description": "RFC 3339; the answers are in UTC with milliseconds.",
    "examples": ["2026-11-15T08:00:00.123Z"],
});

/// Source of the current time, passed in so that tests can control it.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary start in this process. It runs forward only, whatever happens to the
    /// wall clock.
    fn elapsed(&self) -> Duration;

    /// The machine's own clock; `None` if it has none that can be read.
    fn machine(&self) -> Option<MachineTime> {
        None
    }

    /// Whether a time service of the machine has set the clock, and agrees with it.
    fn is_synchronized(&self) -> bool {
        false
    }
}

/// How long the machine has been running, counting the time it slept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineTime {
    /// Differs between two starts of the machine.
    pub boot: String,
    /// Time since this start of the machine.
    pub uptime: Duration,
}

/// A duration as written in settings: `250ms`, `30s`, `5m`, `2h`, `8d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(pub Duration);

/// The text is not a valid [`HumanDuration`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration `{0}`; use for example 250ms, 30s, 5m, 2h or 8d")]
pub struct ParseDurationError(String);

impl HumanDuration {
    /// This many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

// `ms` before `s`, which it ends with.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl FromStr for HumanDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseDurationError(text.to_owned());
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let amount: u64 = digits.parse().map_err(|_| invalid())?;
        let millis = amount.checked_mul(*factor).ok_or_else(invalid)?;
        // Durations are added to timestamps; limit them to a thousand years.
        if millis > 365_000 * 86_400_000 {
            return Err(invalid());
        }
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let (name, factor) = UNITS
            .iter()
            .rev()
            .find(|(_, factor)| millis >= *factor && millis % factor == 0)
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", millis / factor)
    }
}

json_text!(HumanDuration, "Duration", {
    "description": "A duration: a whole number and ms, s, m, h or d.",
    "pattern": "^[0-9]+(ms|s|m|h|d)$",
    "examples": ["250ms", "30s", "8d"],
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_written() {
        let cases = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("8d", Some(691_200_000)),
            ("0s", Some(0)),
            ("", None),
            ("s", None),
            ("5", None),
            ("-5s", None),
            ("+5s", None),
            ("1.5s", None),
            ("5 s", None),
            ("5w", None),
            ("99999999999999999999s", None),
            ("999999999999d", None),
            ("５s", None),
        ];
        for (text, millis) in cases {
            let parsed = text.parse::<HumanDuration>().ok().map(|span| span.0.as_millis());
            assert_eq!(parsed, millis, "case: {text}");
        }
    }

    #[test]
    fn duration_is_displayed_in_its_largest_whole_unit() {
        for text in ["250ms", "90s", "5m", "25h", "8d", "0ms"] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn timestamps_are_displayed_as_rfc_3339() {
        let time = Timestamp::from_millis(1_763_193_600_123);
        assert_eq!(time.to_string(), "2025-11-15T08:00:00.123Z");
        assert_eq!("2025-11-15T08:00:00.123Z".parse::<Timestamp>().unwrap(), time);
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9223372036854775807ms");
    }
}
