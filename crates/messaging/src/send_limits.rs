//! Daily sending limits and quiet hours of a messaging destination.
//!
//! WhatsApp bans numbers of unofficial clients that send too much. Messages are counted per local day: at
//! `warn_at` a warning is logged, and at `stop_at` the rest waits for the next day. The local time is that
//! of a time zone, which follows daylight-saving changes, or of a fixed UTC offset.

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use jiff::tz::{TimeZone, TimeZoneDatabase};
use surehook_types::{json_text, string_enum, time::Timestamp};

use super::{
    Channel,
    sender::{SendingSpec, SendingSpecError},
};

const MINUTE_MILLIS: i64 = 60_000;
const DAY_MINUTES: i64 = 24 * 60;
const DAY_MILLIS: i64 = DAY_MINUTES * MINUTE_MILLIS;
/// Largest UTC offset in use.
const OFFSET_MAX_MINUTES: i64 = 14 * 60;

/// A fixed UTC offset, such as `-03:00`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtcOffset {
    minutes: i64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a UTC offset such as -03:00 or +05:30, at most 14:00; got `{0}`")]
pub struct ParseUtcOffsetError(String);

/// Daily quiet hours, such as `22:00-08:00`. The end may be on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    /// Minutes after local midnight.
    from: i64,
    to: i64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected hours such as 22:00-08:00, with different start and end; got `{0}`")]
pub struct ParseQuietHoursError(String);

/// The local time of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LocalClock {
    Offset(UtcOffset),
    Zone(TimeZone),
}

impl Default for LocalClock {
    fn default() -> Self {
        Self::Offset(UtcOffset::default())
    }
}

impl LocalClock {
    fn new(sending: &SendingSpec) -> Result<Self, SendingSpecError> {
        match (&sending.time_zone, sending.utc_offset) {
            (Some(_), Some(_)) => Err(SendingSpecError::TwoTimeZones),
            (None, offset) => Ok(Self::Offset(offset.unwrap_or_default())),
            (Some(name), None) => {
                // The bundled database makes the result independent of the machine.
                let zone = TimeZoneDatabase::bundled().get(name).ok();
                let zone = zone.filter(|zone| !zone.is_unknown());
                zone.map(Self::Zone).ok_or_else(|| SendingSpecError::TimeZone(shorten(name)))
            }
        }
    }

    fn offset_millis(&self, at: Timestamp) -> i64 {
        match self {
            Self::Offset(offset) => offset.minutes * MINUTE_MILLIS,
            // Beyond the year 9999, where there are no time zones, it is UTC.
            Self::Zone(zone) => jiff::Timestamp::from_millisecond(at.as_millis())
                .map_or(0, |at| i64::from(zone.to_offset(at).seconds()) * 1000),
        }
    }

    /// When the UTC offset changes next.
    fn next_transition(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Offset(_) => None,
            Self::Zone(zone) => {
                let at = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
                let transition = zone.following(at).next()?;
                Some(Timestamp::from_millis(transition.timestamp().as_millisecond()))
            }
        }
    }

    fn local_millis(&self, at: Timestamp) -> i64 {
        at.as_millis().saturating_add(self.offset_millis(at))
    }

    fn millis_of_day(&self, at: Timestamp) -> i64 {
        self.local_millis(at).rem_euclid(DAY_MILLIS)
    }

    /// The local day, as days since 1970-01-01.
    fn day(&self, at: Timestamp) -> i32 {
        i32::try_from(self.local_millis(at).div_euclid(DAY_MILLIS)).unwrap_or_default()
    }

    /// The start of the next local day.
    fn next_day(&self, at: Timestamp) -> Timestamp {
        let today = self.day(at);
        self.next_time_of_day(at, 0, |time| self.day(time) > today)
    }

    /// The first time after `at` at which `is_reached` holds. It can only begin to hold when the local clock
    /// shows `time_of_day`, or when the UTC offset changes: a change may skip or repeat that time.
    fn next_time_of_day(
        &self,
        at: Timestamp,
        time_of_day: i64,
        is_reached: impl Fn(Timestamp) -> bool,
    ) -> Timestamp {
        let mut time = at;
        loop {
            let wait = (time_of_day - self.millis_of_day(time)).rem_euclid(DAY_MILLIS);
            let wait = if wait == 0 { DAY_MILLIS } else { wait };
            let by_clock = time + duration_from_millis(wait);
            let transition = self.next_transition(time);
            let next = transition.map_or(by_clock, |transition| transition.min(by_clock));
            // At the end of time, additions saturate and nothing follows.
            if is_reached(next) || next <= time {
                return next;
            }
            time = next;
        }
    }
}

impl QuietHours {
    /// The end of the quiet hours, if `at` is within them. It is quiet whenever the local clock shows a time
    /// within the hours: an hour that the clock repeats is quiet twice, and a skipped one never.
    fn end(self, at: Timestamp, clock: &LocalClock) -> Option<Timestamp> {
        let end = self.to * MINUTE_MILLIS;
        let is_over = |time| !self.contains(clock.millis_of_day(time));
        (!is_over(at)).then(|| clock.next_time_of_day(at, end, is_over))
    }

    fn contains(self, millis_of_day: i64) -> bool {
        let (from, to) = (self.from * MINUTE_MILLIS, self.to * MINUTE_MILLIS);
        if from < to {
            (from..to).contains(&millis_of_day)
        } else {
            millis_of_day >= from || millis_of_day < to
        }
    }
}

fn duration_from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// Parses `HH:MM` as minutes.
fn parse_minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str, below: i64| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: i64 = digits.parse().ok().filter(|_| is_plain)?;
        (number < below).then_some(number)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

fn shorten(text: &str) -> String {
    text.chars().take(32).collect()
}

impl FromStr for UtcOffset {
    type Err = ParseUtcOffsetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let signed = match text.split_at_checked(1) {
            Some(("+", rest)) => parse_minutes(rest),
            Some(("-", rest)) => parse_minutes(rest).map(|minutes| -minutes),
            Some(_) | None => None,
        };
        let minutes = signed.filter(|minutes| minutes.abs() <= OFFSET_MAX_MINUTES);
        minutes.map(|minutes| Self { minutes }).ok_or_else(|| ParseUtcOffsetError(shorten(text)))
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
        let parse = || {
            let (from, to) = text.split_once('-')?;
            let hours = Self { from: parse_minutes(from)?, to: parse_minutes(to)? };
            (hours.from != hours.to).then_some(hours)
        };
        parse().ok_or_else(|| ParseQuietHoursError(shorten(text)))
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

json_text!(UtcOffset, "UtcOffset", {
    "description": "How far local time is ahead of UTC, all year.",
    "pattern": "^[+-](0[0-9]:[0-5][0-9]|1[0-3]:[0-5][0-9]|14:00)$",
    "examples": ["-03:00"],
});
json_text!(QuietHours, "QuietHours", {
    "description": "Daily hours; the end may be on the next day and must differ from the beginning.",
    "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$",
    "examples": ["22:00-08:00"],
});

/// Default `warn_at` of unofficial clients.
const UNOFFICIAL_WARN_AT: u64 = 50;

/// The sending limits of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendLimits {
    /// Daily number of messages that triggers a warning.
    pub warn_at: Option<NonZeroU64>,
    /// Daily limit.
    pub stop_at: Option<NonZeroU64>,
    quiet_hours: Option<QuietHours>,
    clock: LocalClock,
}

string_enum! {
    /// Why nothing is sent at the moment.
    pub enum SendHold {
        QuietHours = "quiet_hours",
        DailyLimit = "daily_limit",
    }
}

impl SendLimits {
    /// Checks the settings and fills in the defaults of the channel.
    pub fn new(channel: &dyn Channel, sending: &SendingSpec) -> Result<Self, SendingSpecError> {
        let default_warn_at = if channel.is_unofficial() { UNOFFICIAL_WARN_AT } else { 0 };
        let stop_at =
            sending.stop_at.map(|limit| NonZeroU64::new(limit).ok_or(SendingSpecError::StopAt));
        Ok(Self {
            warn_at: NonZeroU64::new(sending.warn_at.unwrap_or(default_warn_at)),
            stop_at: stop_at.transpose()?,
            quiet_hours: sending.quiet_hours,
            clock: LocalClock::new(sending)?,
        })
    }

    /// The local day on which a message sent at `at` counts, as days since 1970-01-01.
    pub fn day(&self, at: Timestamp) -> i32 {
        self.clock.day(at)
    }

    /// Until when nothing is sent, and why.
    pub fn hold(&self, now: Timestamp, sent_today: u64) -> Option<(Timestamp, SendHold)> {
        let quiet = self.quiet_hours.and_then(|hours| hours.end(now, &self.clock));
        let quiet = quiet.map(|end| (end, SendHold::QuietHours));
        let is_used_up = self.remaining(sent_today) == 0;
        let limit = is_used_up.then(|| (self.clock.next_day(now), SendHold::DailyLimit));
        quiet.into_iter().chain(limit).max_by_key(|(end, _)| *end)
    }

    /// How many more messages may be sent today.
    pub fn remaining(&self, sent_today: u64) -> u64 {
        self.stop_at.map_or(u64::MAX, |limit| limit.get().saturating_sub(sent_today))
    }

    /// Whether the warning threshold is reached.
    pub fn should_warn(&self, sent_today: u64) -> bool {
        self.warn_at.is_some_and(|threshold| sent_today >= threshold.get())
    }
}

/// Counts the messages of the current local day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailySendCounter {
    day: i32,
    sent: u64,
    /// The warning of this day was given.
    is_warned: bool,
}

impl DailySendCounter {
    /// Resumes from a stored count. If it has reached the threshold, the warning was already given.
    pub fn new(day: i32, sent: u64, limits: &SendLimits) -> Self {
        Self { day, sent, is_warned: limits.should_warn(sent) }
    }

    /// Messages sent on `day`. `None` for an earlier day, which is not counted here.
    pub fn count_on(&self, day: i32) -> Option<u64> {
        match day.cmp(&self.day) {
            std::cmp::Ordering::Equal => Some(self.sent),
            std::cmp::Ordering::Greater => Some(0),
            std::cmp::Ordering::Less => None,
        }
    }

    /// Counts a message. Returns the count of today if a warning is due now.
    pub fn count(&mut self, day: i32, limits: &SendLimits) -> Option<u64> {
        if day > self.day {
            *self = Self { day, sent: 0, is_warned: false };
        }
        self.sent += u64::from(day == self.day);
        let is_due = limits.should_warn(self.sent) && !self.is_warned;
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
    fn offsets_and_quiet_hours_are_parsed() {
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
    fn day_begins_at_local_midnight() {
        let day =
            |text: &str, utc_offset: &str| LocalClock::Offset(offset(utc_offset)).day(at(text));
        assert_eq!(day("1970-01-01T00:00:00Z", "+00:00"), 0);
        assert_eq!(day("1970-01-02T02:59:59.999Z", "-03:00"), 0);
        assert_eq!(day("1970-01-02T03:00:00Z", "-03:00"), 1);
        assert_eq!(day("1970-01-01T18:30:00Z", "+05:30"), 1);
        assert_eq!(day("1970-01-01T00:00:00Z", "-03:00"), -1);
    }

    #[test]
    fn quiet_hours_can_span_midnight() {
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
        for (hours, utc_offset, now, expected) in cases {
            let hours: QuietHours = hours.parse().unwrap();
            let end = hours.end(at(now), &LocalClock::Offset(offset(utc_offset)));
            assert_eq!(end, expected.map(at), "case: {hours} {utc_offset} {now}");
        }
    }

    const ZONES: [&str; 7] = [
        "America/Sao_Paulo",
        "America/New_York",
        "America/St_Johns",
        "Europe/Berlin",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];

    fn zone(name: &str) -> LocalClock {
        let sending = SendingSpec { time_zone: Some(name.to_owned()), ..SendingSpec::default() };
        LocalClock::new(&sending).unwrap()
    }

    #[test]
    fn quiet_hours_follow_daylight_saving_changes() {
        let (night, berlin, new_york) = ("22:00-08:00", "Europe/Berlin", "America/New_York");
        let cases = [
            (night, "America/Sao_Paulo", "2026-11-16T00:59:00Z", None),
            (night, "America/Sao_Paulo", "2026-11-16T01:00:00Z", Some("2026-11-16T11:00:00Z")),
            // The nights in which clocks change are an hour shorter and longer.
            (night, new_york, "2026-03-08T03:00:00Z", Some("2026-03-08T12:00:00Z")),
            (night, new_york, "2026-11-01T02:00:00Z", Some("2026-11-01T13:00:00Z")),
            (night, new_york, "2026-11-01T12:59:59Z", Some("2026-11-01T13:00:00Z")),
            // The end is skipped: quiet until the clock jumps from 02:00 to 03:00.
            ("22:00-02:30", berlin, "2026-03-28T23:00:00Z", Some("2026-03-29T01:00:00Z")),
            ("22:00-02:30", berlin, "2026-03-29T01:00:00Z", None),
            // The beginning is skipped: quiet from the jump on.
            ("02:30-04:00", berlin, "2026-03-29T00:59:59Z", None),
            ("02:30-04:00", berlin, "2026-03-29T01:00:00Z", Some("2026-03-29T02:00:00Z")),
            // All of it is skipped.
            ("02:15-02:45", berlin, "2026-03-29T00:59:59Z", None),
            ("02:15-02:45", berlin, "2026-03-29T01:00:00Z", None),
            // The hour from 02:00 to 03:00 is repeated.
            ("01:30-02:30", berlin, "2026-10-24T23:30:00Z", Some("2026-10-25T00:30:00Z")),
            ("01:30-02:30", berlin, "2026-10-25T00:45:00Z", None),
            ("01:30-02:30", berlin, "2026-10-25T01:00:00Z", Some("2026-10-25T01:30:00Z")),
            ("01:30-03:00", berlin, "2026-10-24T23:30:00Z", Some("2026-10-25T02:00:00Z")),
        ];
        for (hours, name, now, expected) in cases {
            let hours: QuietHours = hours.parse().unwrap();
            let end = hours.end(at(now), &zone(name));
            assert_eq!(end, expected.map(at), "case: {hours} {name} {now}");
        }
    }

    #[test]
    fn sending_day_follows_daylight_saving_changes() {
        let cases = [
            ("America/Sao_Paulo", "2026-11-16T02:59:59Z", "2026-11-16T03:00:00Z", 1),
            // A day of 23 hours and one of 25.
            ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", 1),
            ("America/New_York", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", 1),
            // The day begins at 01:00, because midnight is skipped.
            ("America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-04T03:00:00Z", 1),
            // The hour before midnight is repeated.
            ("America/Sao_Paulo", "2019-02-17T01:30:00Z", "2019-02-17T03:00:00Z", 1),
            ("America/Sao_Paulo", "2019-02-17T02:30:00Z", "2019-02-17T03:00:00Z", 1),
            // Clocks went back from 00:01 to 23:01 of the day before.
            ("America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-08T03:30:00Z", 1),
            ("America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T03:30:00Z", 1),
            // 30 December 2011 was skipped.
            ("Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z", 2),
        ];
        for (name, now, expected, days) in cases {
            let clock = zone(name);
            let next = clock.next_day(at(now));
            assert_eq!(next, at(expected), "case: {name} {now}");
            assert_eq!(clock.day(next) - clock.day(at(now)), days, "case: {name} {now}");
        }
        assert_eq!(zone("America/Sao_Paulo").day(at("1970-01-01T00:00:00Z")), -1);
    }

    #[test]
    fn invalid_time_zone_settings_are_rejected() {
        let cases = [
            (r#"{"time_zone":"America/Sao_Paulo"}"#, None),
            (r#"{"time_zone":"UTC"}"#, None),
            (r#"{"time_zone":"America/Sao Paulo"}"#, Some("unknown time zone `America/Sao Paulo`")),
            (r#"{"time_zone":"-03:00"}"#, Some("unknown time zone `-03:00`")),
            (r#"{"time_zone":"Etc/Unknown"}"#, Some("unknown time zone")),
            (r#"{"time_zone":""}"#, Some("unknown time zone ``")),
            (
                r#"{"time_zone":"America/Sao_Paulo","utc_offset":"-03:00"}"#,
                Some("`time_zone` and `utc_offset` are both set"),
            ),
        ];
        for (sending, expected) in cases {
            let error = limits("evolution-go", sending).err().map(|error| error.to_string());
            match (&error, expected) {
                (None, None) => {}
                (Some(error), Some(part)) => {
                    assert!(error.contains(part), "case: {sending}: {error}");
                }
                (Some(_), None) | (None, Some(_)) => panic!("case: {sending}: {error:?}"),
            }
        }
    }

    fn limits(kind: &str, sending: &str) -> Result<SendLimits, SendingSpecError> {
        SendLimits::new(crate::find_channel(kind).unwrap(), &serde_json::from_str(sending).unwrap())
    }

    #[test]
    fn unofficial_numbers_have_default_warning_threshold() {
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
    fn quiet_hours_and_daily_limit_hold_sending() {
        use SendHold::{DailyLimit, QuietHours};
        let night = r#"{"quiet_hours":"22:00-08:00","stop_at":3,"utc_offset":"-03:00"}"#;
        let cases = [
            ("{}", "2026-11-15T23:00:00Z", 1_000_000, None),
            (night, "2026-11-15T12:00:00Z", 2, None),
            (night, "2026-11-15T12:00:00Z", 3, Some(("2026-11-16T03:00:00Z", DailyLimit))),
            (night, "2026-11-15T12:00:00Z", 4, Some(("2026-11-16T03:00:00Z", DailyLimit))),
            (night, "2026-11-16T02:00:00Z", 0, Some(("2026-11-16T11:00:00Z", QuietHours))),
            // The later end counts.
            (night, "2026-11-16T02:00:00Z", 3, Some(("2026-11-16T11:00:00Z", QuietHours))),
            (night, "2026-11-16T10:00:00Z", 3, Some(("2026-11-17T03:00:00Z", DailyLimit))),
        ];
        for (sending, now, sent, expected) in cases {
            let hold = limits("evolution-go", sending).unwrap().hold(at(now), sent);
            let expected = expected.map(|(until, reason)| (at(until), reason));
            assert_eq!(hold, expected, "case: {sending} {now} {sent}");
        }
    }

    #[test]
    fn messages_are_counted_per_day_and_warned_once() {
        let limits = limits("evolution-go", r#"{"warn_at":2}"#).unwrap();
        let mut today = DailySendCounter::new(7, 0, &limits);
        let warned: Vec<Option<u64>> = (0..4).map(|_| today.count(7, &limits)).collect();
        assert_eq!(warned, [None, Some(2), None, None]);
        assert_eq!(
            (today.count_on(6), today.count_on(7), today.count_on(8)),
            (None, Some(4), Some(0))
        );
        // A message of the previous day that is counted after midnight does not count today.
        assert_eq!((today.count(8, &limits), today.count(7, &limits)), (None, None));
        assert_eq!(today.count_on(8), Some(1));
        assert_eq!(today.count(8, &limits), Some(2));
    }

    #[test]
    fn restart_does_not_warn_again_but_lower_threshold_does() {
        let at_two = limits("evolution-go", r#"{"warn_at":2}"#).unwrap();
        let mut today = DailySendCounter::new(7, 2, &at_two);
        assert_eq!(today.count(7, &at_two), None);
        let at_nine = limits("evolution-go", r#"{"warn_at":9}"#).unwrap();
        let mut today = DailySendCounter::new(7, 5, &at_nine);
        assert_eq!(today.count(7, &at_nine), None);
        assert_eq!(today.count(7, &at_two), Some(7));
    }

    proptest! {
        /// Quiet hours end at their end, and the next day starts where the day changes.
        #[test]
        fn hold_ends_exactly_at_its_end(
            millis in 0..4_000_000_000_000_i64,
            minutes in -OFFSET_MAX_MINUTES..=OFFSET_MAX_MINUTES,
            from_and_to in (0..DAY_MINUTES, 0..DAY_MINUTES).prop_filter("equal", |(a, b)| a != b),
        ) {
            let now = Timestamp::from_millis(millis);
            let clock = LocalClock::Offset(UtcOffset { minutes });
            let (from, to) = from_and_to;
            let hours = QuietHours { from, to };
            if let Some(end) = hours.end(now, &clock) {
                prop_assert!(end > now);
                prop_assert_eq!(hours.end(end, &clock), None);
                prop_assert!(hours.end(end - Duration::from_millis(1), &clock) == Some(end));
            }
            let next = clock.next_day(now);
            prop_assert_eq!(clock.day(next), clock.day(now) + 1);
            prop_assert_eq!(clock.day(next - Duration::from_millis(1)), clock.day(now));
        }

        /// The same holds in time zones with daylight saving, changes at midnight and a skipped day.
        #[test]
        fn hold_ends_exactly_at_its_end_in_time_zones(
            millis in 946_684_800_000..2_145_916_800_000_i64,
            name in prop::sample::select(&ZONES[..]),
            from_and_to in (0..DAY_MINUTES, 0..DAY_MINUTES).prop_filter("equal", |(a, b)| a != b),
        ) {
            let (now, clock) = (Timestamp::from_millis(millis), zone(name));
            let (from, to) = from_and_to;
            let hours = QuietHours { from, to };
            if let Some(end) = hours.end(now, &clock) {
                prop_assert!(end > now);
                prop_assert_eq!(hours.end(end, &clock), None);
                prop_assert!(hours.end(end - Duration::from_millis(1), &clock) == Some(end));
            }
            let next = clock.next_day(now);
            prop_assert!(next > now);
            prop_assert!(clock.day(next) > clock.day(now));
            prop_assert!(clock.day(next - Duration::from_millis(1)) <= clock.day(now));
        }
    }
}
