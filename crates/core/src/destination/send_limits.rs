//! How much a number sends in a day, and when it sends nothing.
//!
//! A number of an unofficial client that sends much is banned. So what it sends is counted by the days
//! of its calendar; from `warn_at` on somebody is warned, and at `stop_at` the rest waits.

use std::{borrow::Cow, fmt, num::NonZeroU64, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    kind::DestinationKind,
    sender::{SendingSpec, SendingSpecError},
};
use crate::time::Timestamp;

const MINUTE_MILLIS: i64 = 60_000;
const DAY_MINUTES: i64 = 24 * 60;
const DAY_MILLIS: i64 = DAY_MINUTES * MINUTE_MILLIS;
/// The calendar that is furthest ahead of or behind UTC.
const OFFSET_MAX_MINUTES: i64 = 14 * 60;

/// How far a calendar is ahead of UTC, as people write it: `-03:00`. It is the same all year.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtcOffset {
    minutes: i64,
}

/// A text that is no offset.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected how far local time is ahead of UTC, such as -03:00 or +05:30, at most 14:00; got `{0}`"
)]
pub struct ParseUtcOffsetError(String);

/// Hours of every day, as people write them: `22:00-08:00`. The end may be on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    /// Minutes after midnight.
    from: i64,
    to: i64,
}

/// A text that names no hours.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected hours of the day such as 22:00-08:00, with a beginning that is not the end; got `{0}`"
)]
pub struct ParseQuietHoursError(String);

impl UtcOffset {
    fn local_millis(self, at: Timestamp) -> i64 {
        at.as_millis().saturating_add(self.minutes * MINUTE_MILLIS)
    }

    /// The local day, in days since 1970.
    pub fn day(self, at: Timestamp) -> i32 {
        i32::try_from(self.local_millis(at).div_euclid(DAY_MILLIS)).unwrap_or_default()
    }

    /// When the next local day begins.
    pub fn next_day(self, at: Timestamp) -> Timestamp {
        at + span(DAY_MILLIS - self.millis_of_day(at))
    }

    fn millis_of_day(self, at: Timestamp) -> i64 {
        self.local_millis(at).rem_euclid(DAY_MILLIS)
    }
}

impl QuietHours {
    /// When they end, if they have begun at `at`.
    pub fn end(self, at: Timestamp, offset: UtcOffset) -> Option<Timestamp> {
        let now = offset.millis_of_day(at);
        let (from, to) = (self.from * MINUTE_MILLIS, self.to * MINUTE_MILLIS);
        let is_quiet = if from < to { (from..to).contains(&now) } else { now >= from || now < to };
        is_quiet.then(|| at + span((to - now).rem_euclid(DAY_MILLIS)))
    }
}

/// Of a number that is not negative.
fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// `HH:MM`, in minutes.
fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str, below: i64| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: i64 = digits.parse().ok().filter(|_| is_plain)?;
        (number < below).then_some(number)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}

impl FromStr for UtcOffset {
    type Err = ParseUtcOffsetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let signed = match text.split_at_checked(1) {
            Some(("+", rest)) => minutes(rest),
            Some(("-", rest)) => minutes(rest).map(|minutes| -minutes),
            Some(_) | None => None,
        };
        let minutes = signed.filter(|minutes| minutes.abs() <= OFFSET_MAX_MINUTES);
        minutes.map(|minutes| Self { minutes }).ok_or_else(|| ParseUtcOffsetError(shown(text)))
    }
}

impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minutes < 0 { '-' } else { '+' };
        let minutes = self.minutes.abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl FromStr for QuietHours {
    type Err = ParseQuietHoursError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (from, to) = text.split_once('-')?;
            let hours = Self { from: minutes(from)?, to: minutes(to)? };
            (hours.from != hours.to).then_some(hours)
        };
        read().ok_or_else(|| ParseQuietHoursError(shown(text)))
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

macro_rules! written_as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

written_as_text!(UtcOffset);
written_as_text!(QuietHours);

/// What an unofficial number may send in a day before somebody is warned.
const WARN_UNOFFICIAL_AT: u64 = 50;

/// How much a number sends in a day, and when it sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendLimits {
    /// Somebody is warned when so many were sent in a day.
    pub warn_at: Option<NonZeroU64>,
    /// No more are sent in a day.
    pub stop_at: Option<NonZeroU64>,
    quiet_hours: Option<QuietHours>,
    offset: UtcOffset,
}

/// Why nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendHold {
    /// These are its quiet hours.
    QuietHours,
    /// It has sent what it may on one day.
    DailyLimit,
}

impl SendHold {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuietHours => "quiet_hours",
            Self::DailyLimit => "daily_limit",
        }
    }
}

impl SendLimits {
    /// Reads what is written, and fills in what is usual for the kind.
    pub fn new(kind: DestinationKind, sending: &SendingSpec) -> Result<Self, SendingSpecError> {
        let usual = if kind.is_unofficial() { WARN_UNOFFICIAL_AT } else { 0 };
        let stop_at =
            sending.stop_at.map(|most| NonZeroU64::new(most).ok_or(SendingSpecError::StopAt));
        Ok(Self {
            warn_at: NonZeroU64::new(sending.warn_at.unwrap_or(usual)),
            stop_at: stop_at.transpose()?,
            quiet_hours: sending.quiet_hours,
            offset: sending.utc_offset.unwrap_or_default(),
        })
    }

    /// The day on which a message counts that is sent then, in days since 1970.
    pub fn day(&self, at: Timestamp) -> i32 {
        self.offset.day(at)
    }

    /// Until when nothing is sent, and why, if so many were sent today.
    pub fn hold(&self, now: Timestamp, sent_today: u64) -> Option<(Timestamp, SendHold)> {
        let quiet = self.quiet_hours.and_then(|hours| hours.end(now, self.offset));
        let quiet = quiet.map(|end| (end, SendHold::QuietHours));
        let is_full = self.remaining(sent_today) == 0;
        let full = is_full.then(|| (self.offset.next_day(now), SendHold::DailyLimit));
        quiet.into_iter().chain(full).max_by_key(|(end, _)| *end)
    }

    /// How many more may be sent today.
    pub fn remaining(&self, sent_today: u64) -> u64 {
        self.stop_at.map_or(u64::MAX, |most| most.get().saturating_sub(sent_today))
    }

    /// Whether so many in a day are worth a warning.
    pub fn is_over(&self, sent_today: u64) -> bool {
        self.warn_at.is_some_and(|many| sent_today >= many.get())
    }
}

/// What was sent on the current day of a number's calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailySendCounter {
    day: i32,
    sent: u64,
    /// Somebody has been warned on this day.
    is_warned: bool,
}

impl DailySendCounter {
    /// Goes on where somebody else was, who has also warned if that was due.
    pub fn new(day: i32, sent: u64, limits: &SendLimits) -> Self {
        Self { day, sent, is_warned: limits.is_over(sent) }
    }

    /// How many were sent on `day`. `None` if that is an earlier day, of which nothing is known here.
    pub fn on(&self, day: i32) -> Option<u64> {
        match day.cmp(&self.day) {
            std::cmp::Ordering::Equal => Some(self.sent),
            std::cmp::Ordering::Greater => Some(0),
            std::cmp::Ordering::Less => None,
        }
    }

    /// Counts a message. Says how many there are today if somebody must be warned now.
    pub fn count(&mut self, day: i32, limits: &SendLimits) -> Option<u64> {
        if day > self.day {
            *self = Self { day, sent: 0, is_warned: false };
        }
        self.sent += u64::from(day == self.day);
        let is_due = limits.is_over(self.sent) && !self.is_warned;
        self.is_warned |= is_due;
        is_due.then_some(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offset(text: &str) -> UtcOffset {
        text.parse().unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn offsets_and_hours_read_as_people_write_them() {
        for text in ["+00:00", "-03:00", "+05:30", "+14:00", "-12:00"] {
            assert_eq!(offset(text).to_string(), text);
        }
        let offsets =
            ["", "Z", "03:00", "-3:00", "-03", "+14:01", "-24:00", "+00:60", "+-1:00", "é3:00"];
        for text in offsets {
            assert!(text.parse::<UtcOffset>().is_err(), "case: {text}");
        }
        for text in ["22:00-08:00", "00:00-06:30", "12:00-13:00", "23:59-00:00"] {
            assert_eq!(text.parse::<QuietHours>().unwrap().to_string(), text);
        }
        let hours =
            ["", "22:00", "22-8", "22:00-22:00", "22:00-24:00", "22:00 - 08:00", "9:00-10:00"];
        for text in hours {
            assert!(text.parse::<QuietHours>().is_err(), "case: {text}");
        }
    }

    #[test]
    fn a_day_begins_at_local_midnight() {
        let day = |text: &str, of: &str| offset(of).day(at(text));
        assert_eq!(day("1970-01-01T00:00:00Z", "+00:00"), 0);
        assert_eq!(day("1970-01-02T02:59:59.999Z", "-03:00"), 0);
        assert_eq!(day("1970-01-02T03:00:00Z", "-03:00"), 1);
        assert_eq!(day("1970-01-01T18:30:00Z", "+05:30"), 1);
        assert_eq!(day("1970-01-01T00:00:00Z", "-03:00"), -1);
    }

    #[test]
    fn quiet_hours_may_span_midnight() {
        let cases = [
            ("22:00-08:00", "+00:00", "2026-11-15T21:59:59.999Z", None),
            ("22:00-08:00", "+00:00", "2026-11-15T22:00:00Z", Some("2026-11-16T08:00:00Z")),
            ("22:00-08:00", "+00:00", "2026-11-16T07:59:59.999Z", Some("2026-11-16T08:00:00Z")),
            ("22:00-08:00", "+00:00", "2026-11-16T08:00:00Z", None),
            ("22:00-08:00", "-03:00", "2026-11-16T00:59:00Z", None),
            ("22:00-08:00", "-03:00", "2026-11-16T01:00:00Z", Some("2026-11-16T11:00:00Z")),
            ("12:00-13:30", "+05:30", "2026-11-16T07:00:00Z", Some("2026-11-16T08:00:00Z")),
            ("12:00-13:30", "+05:30", "2026-11-16T06:29:59Z", None),
            ("23:59-00:00", "+00:00", "2026-11-16T23:59:30Z", Some("2026-11-17T00:00:00Z")),
        ];
        for (hours, of, now, expected) in cases {
            let hours: QuietHours = hours.parse().unwrap();
            let end = hours.end(at(now), offset(of));
            assert_eq!(end, expected.map(at), "case: {hours} {of} {now}");
        }
    }

    fn limits(kind: &str, sending: &str) -> Result<SendLimits, SendingSpecError> {
        let kind: DestinationKind = serde_json::from_value(serde_json::json!(kind)).unwrap();
        SendLimits::new(kind, &serde_json::from_str(sending).unwrap())
    }

    #[test]
    fn unofficial_numbers_are_watched_unless_somebody_says_otherwise() {
        let cases = [
            ("evolution-go", "{}", 50),
            ("evolution-api", "{}", 50),
            ("whatsapp-cloud", "{}", 0),
            ("whatsapp-cloud", r#"{"warn_at":1000}"#, 1000),
            ("evolution-go", r#"{"warn_at":0}"#, 0),
        ];
        for (kind, sending, expected) in cases {
            let warn_at = limits(kind, sending).unwrap().warn_at;
            assert_eq!(warn_at.map_or(0, NonZeroU64::get), expected, "case: {kind} {sending}");
        }
        let error = limits("evolution-go", r#"{"stop_at":0}"#).unwrap_err().to_string();
        assert!(error.contains("at least 1"), "{error}");
    }

    #[test]
    fn nothing_is_sent_in_quiet_hours_and_beyond_the_daily_limit() {
        use SendHold::{DailyLimit, QuietHours};
        let night = r#"{"quiet_hours":"22:00-08:00","stop_at":3,"utc_offset":"-03:00"}"#;
        let cases = [
            ("{}", "2026-11-15T23:00:00Z", 1_000_000, None),
            (night, "2026-11-15T12:00:00Z", 2, None),
            (night, "2026-11-15T12:00:00Z", 3, Some(("2026-11-16T03:00:00Z", DailyLimit))),
            (night, "2026-11-15T12:00:00Z", 4, Some(("2026-11-16T03:00:00Z", DailyLimit))),
            (night, "2026-11-16T02:00:00Z", 0, Some(("2026-11-16T11:00:00Z", QuietHours))),
            // The later of two ends.
            (night, "2026-11-16T02:00:00Z", 3, Some(("2026-11-16T11:00:00Z", QuietHours))),
            (night, "2026-11-16T10:00:00Z", 3, Some(("2026-11-17T03:00:00Z", DailyLimit))),
        ];
        for (sending, now, sent, expected) in cases {
            let hold = limits("evolution-go", sending).unwrap().hold(at(now), sent);
            let expected = expected.map(|(until, why)| (at(until), why));
            assert_eq!(hold, expected, "case: {sending} {now} {sent}");
        }
    }

    #[test]
    fn a_day_is_counted_from_its_beginning_and_warned_about_once() {
        let limits = limits("evolution-go", r#"{"warn_at":2}"#).unwrap();
        let mut today = DailySendCounter::new(7, 0, &limits);
        let warned: Vec<Option<u64>> = (0..4).map(|_| today.count(7, &limits)).collect();
        assert_eq!(warned, [None, Some(2), None, None]);
        assert_eq!((today.on(6), today.on(7), today.on(8)), (None, Some(4), Some(0)));
        // What ended before midnight and is counted after it belongs to a day that is over.
        assert_eq!((today.count(8, &limits), today.count(7, &limits)), (None, None));
        assert_eq!(today.on(8), Some(1));
        assert_eq!(today.count(8, &limits), Some(2));
    }

    #[test]
    fn one_that_starts_again_does_not_warn_again_and_a_lower_threshold_does() {
        let at_two = limits("evolution-go", r#"{"warn_at":2}"#).unwrap();
        let mut today = DailySendCounter::new(7, 2, &at_two);
        assert_eq!(today.count(7, &at_two), None);
        let at_nine = limits("evolution-go", r#"{"warn_at":9}"#).unwrap();
        let mut today = DailySendCounter::new(7, 5, &at_nine);
        assert_eq!(today.count(7, &at_nine), None);
        assert_eq!(today.count(7, &at_two), Some(7));
    }

    proptest! {
        /// Quiet hours are over when they say so, and the next day begins where the day changes.
        #[test]
        fn an_end_is_an_end(
            millis in 0..4_000_000_000_000_i64,
            minutes in -OFFSET_MAX_MINUTES..=OFFSET_MAX_MINUTES,
            (from, to) in (0..DAY_MINUTES, 0..DAY_MINUTES).prop_filter("equal", |(a, b)| a != b),
        ) {
            let (now, offset) = (Timestamp::from_millis(millis), UtcOffset { minutes });
            let hours = QuietHours { from, to };
            if let Some(end) = hours.end(now, offset) {
                prop_assert!(end > now);
                prop_assert_eq!(hours.end(end, offset), None);
                prop_assert!(hours.end(end - Duration::from_millis(1), offset) == Some(end));
            }
            let next = offset.next_day(now);
            prop_assert_eq!(offset.day(next), offset.day(now) + 1);
            prop_assert_eq!(offset.day(next - Duration::from_millis(1)), offset.day(now));
        }
    }
}
