//! How much a number sends in a day, and when it sends nothing.
//!
//! A number of an unofficial client that sends much is banned. So what it sends is counted by the days
//! of its calendar; from `warn_at` on somebody is warned, and at `stop_at` the rest waits.

use std::num::NonZeroU64;

use super::{
    kind::DestinationKind,
    quiet::{QuietHours, UtcOffset},
    sender::{InvalidSender, SendingSpec},
};
use crate::time::Timestamp;

/// What an unofficial number may send in a day before somebody is warned.
const WARN_UNOFFICIAL_AT: u64 = 50;

/// How much a number sends in a day, and when it sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Somebody is warned when so many were sent in a day.
    pub warn_at: Option<NonZeroU64>,
    /// No more are sent in a day.
    pub stop_at: Option<NonZeroU64>,
    quiet_hours: Option<QuietHours>,
    offset: UtcOffset,
}

/// Why nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// These are its quiet hours.
    QuietHours,
    /// It has sent what it may on one day.
    DailyLimit,
}

impl Hold {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuietHours => "quiet_hours",
            Self::DailyLimit => "daily_limit",
        }
    }
}

impl Limits {
    /// Reads what is written, and fills in what is usual for the kind.
    pub fn new(kind: DestinationKind, sending: &SendingSpec) -> Result<Self, InvalidSender> {
        let usual = if kind.is_unofficial() { WARN_UNOFFICIAL_AT } else { 0 };
        let stop_at =
            sending.stop_at.map(|most| NonZeroU64::new(most).ok_or(InvalidSender::StopAt));
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
    pub fn hold(&self, now: Timestamp, sent_today: u64) -> Option<(Timestamp, Hold)> {
        let quiet = self.quiet_hours.and_then(|hours| hours.end(now, self.offset));
        let quiet = quiet.map(|end| (end, Hold::QuietHours));
        let is_full = self.room(sent_today) == 0;
        let full = is_full.then(|| (self.offset.next_day(now), Hold::DailyLimit));
        quiet.into_iter().chain(full).max_by_key(|(end, _)| *end)
    }

    /// How many more may be sent today.
    pub fn room(&self, sent_today: u64) -> u64 {
        self.stop_at.map_or(u64::MAX, |most| most.get().saturating_sub(sent_today))
    }

    /// Whether so many in a day are worth a warning.
    pub fn is_over(&self, sent_today: u64) -> bool {
        self.warn_at.is_some_and(|many| sent_today >= many.get())
    }
}

/// What was sent on the current day of a number's calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentToday {
    day: i32,
    sent: u64,
    /// Somebody has been warned on this day.
    is_warned: bool,
}

impl SentToday {
    /// Goes on where somebody else was, who has also warned if that was due.
    pub fn new(day: i32, sent: u64, limits: &Limits) -> Self {
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
    pub fn count(&mut self, day: i32, limits: &Limits) -> Option<u64> {
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
    use super::*;

    fn limits(kind: &str, sending: &str) -> Result<Limits, InvalidSender> {
        let kind: DestinationKind = serde_json::from_value(serde_json::json!(kind)).unwrap();
        Limits::new(kind, &serde_json::from_str(sending).unwrap())
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
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
        use Hold::{DailyLimit, QuietHours};
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
        let mut today = SentToday::new(7, 0, &limits);
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
        let mut today = SentToday::new(7, 2, &at_two);
        assert_eq!(today.count(7, &at_two), None);
        let at_nine = limits("evolution-go", r#"{"warn_at":9}"#).unwrap();
        let mut today = SentToday::new(7, 5, &at_nine);
        assert_eq!(today.count(7, &at_nine), None);
        assert_eq!(today.count(7, &at_two), Some(7));
    }
}
