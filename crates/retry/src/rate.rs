//! Rate limit of attempts by the generic cell rate algorithm (GCRA).
//!
//! Each attempt moves the *theoretical arrival time* of the next one by the interval of the rate. An
//! attempt may start once that time is no further ahead than the burst allows. The state is a single
//! number, and nothing has to be refilled.

use std::{fmt, str::FromStr, time::Duration};

use surehook_types::{json_text, string_enum};

/// Maximum of count and burst.
const COUNT_MAX: u32 = 1_000_000;
/// The default burst is what the rate allows in this time: enough to make up for a late timer, and
/// hardly more per second than the rate.
const BURST_SPAN: Duration = Duration::from_millis(100);

string_enum! {
    /// The time that a rate counts in.
    pub enum RateUnit {
        /// One second.
        Second = "s",
        /// One minute.
        Minute = "m",
        /// One hour.
        Hour = "h",
    }
}

impl RateUnit {
    /// Its length in seconds.
    pub const fn secs(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }
}

/// A rate limit such as `50/s`, `100/m`, `5000/h`, or `50/s burst 10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: RateUnit,
    burst: Option<u32>,
}

/// The text is not a valid [`Rate`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid rate `{0}`; use for example 50/s, 100/m, 5000/h or `50/s burst 10`, with numbers from 1 to {COUNT_MAX}"
)]
pub struct ParseRateError(String);

impl Rate {
    /// A constant rate. The count must not be 0.
    pub const fn per_second(count: u32) -> Self {
        Self { count, per: RateUnit::Second, burst: None }
    }

    /// A rate with a burst. Neither number may be 0.
    pub const fn per_minute(count: u32, burst: u32) -> Self {
        Self { count, per: RateUnit::Minute, burst: Some(burst) }
    }

    /// The time between two attempts at a constant rate.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.per.secs().into()) / self.count
    }

    /// How many may start at once after a pause.
    pub fn burst(&self) -> u32 {
        let usual = BURST_SPAN.as_nanos() / self.interval().as_nanos().max(1);
        self.burst.unwrap_or_else(|| u32::try_from(usual).unwrap_or(COUNT_MAX).max(1))
    }

    fn effective(&self, share: LimitShare) -> EffectiveRate {
        let interval = self.interval().saturating_mul(share.of);
        EffectiveRate { interval, burst: share.part_of(self.burst()).max(1) }
    }
}

/// The part of a limit that one of several equal holders may use. The parts of all holders together are
/// the whole limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitShare {
    index: u32,
    of: u32,
}

impl LimitShare {
    /// Of the only holder.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Of the holder with this index, from 0, among `of`.
    pub const fn new(index: u32, of: u32) -> Self {
        Self { index, of: if of == 0 { 1 } else { of } }
    }

    /// The part of a number. The first holders get what cannot be divided.
    pub const fn part_of(self, number: u32) -> u32 {
        number / self.of + if self.index < number % self.of { 1 } else { 0 }
    }
}

impl Default for LimitShare {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseRateError(text.chars().take(64).collect());
        let number = |digits: &str| {
            let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            let number: Option<u32> = digits.parse().ok().filter(|_| is_digits);
            number.filter(|number| (1..=COUNT_MAX).contains(number)).ok_or_else(invalid)
        };
        let mut words = text.split(' ');
        let (count, unit) =
            words.next().and_then(|rate| rate.split_once('/')).ok_or_else(invalid)?;
        let per = RateUnit::parse(unit).ok_or_else(invalid)?;
        let burst = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("burst"), Some(burst), None) => Some(number(burst)?),
            (Some(_), ..) => return Err(invalid()),
        };
        Ok(Self { count: number(count)?, per, burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.as_str())?;
        self.burst.map_or(Ok(()), |burst| write!(f, " burst {burst}"))
    }
}

json_text!(Rate, "Rate", {
    "description": "Maximum number of attempts per second, minute or hour, and how many may start at once.",
    "pattern": "^([1-9][0-9]{0,5}|1000000)/[smh]( burst ([1-9][0-9]{0,5}|1000000))?$",
    "examples": ["50/s", "100/m burst 10"],
});

/// The interval and burst that apply at the moment.
#[derive(Clone, Copy, Debug)]
struct EffectiveRate {
    interval: Duration,
    burst: u32,
}

/// A rate limiter. Times are durations since a fixed moment of a monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Gcra {
    rate: Rate,
    share: LimitShare,
    /// A temporarily reduced rate.
    slowed: Option<EffectiveRate>,
    /// The theoretical arrival time of the next attempt.
    next: Duration,
}

impl Gcra {
    /// A limiter with the whole burst available.
    pub fn new(rate: Rate) -> Self {
        Self::of_share(rate, LimitShare::WHOLE)
    }

    /// A limiter of one of several holders of a rate. A burst of fewer than one for each holder would be
    /// exceeded.
    pub fn of_share(rate: Rate, share: LimitShare) -> Self {
        Self { rate, share, slowed: None, next: Duration::ZERO }
    }

    /// The rate when it is not reduced, of all holders together.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Number of attempts that fit into `span` when the rate is not reduced.
    pub fn within(&self, span: Duration) -> u32 {
        let fit = span.as_nanos() / self.rate.effective(self.share).interval.as_nanos().max(1);
        u32::try_from(fit).unwrap_or(u32::MAX)
    }

    /// How many may start at once after a pause when the rate is not reduced.
    pub fn burst(&self) -> u32 {
        self.rate.effective(self.share).burst
    }

    /// Reduces the rate to the share `allowed / full`, without bursts; restores it when both are equal.
    pub fn slow_to(&mut self, allowed: u32, full: u32) {
        self.slowed = (allowed < full).then(|| {
            let EffectiveRate { interval, .. } = self.rate.effective(self.share);
            EffectiveRate { interval: interval.saturating_mul(full) / allowed.max(1), burst: 1 }
        });
    }

    fn effective(&self) -> EffectiveRate {
        self.slowed.unwrap_or_else(|| self.rate.effective(self.share))
    }

    /// When the next attempt may start; `now` if immediately.
    pub fn next_free(&self, now: Duration) -> Duration {
        let EffectiveRate { interval, burst } = self.effective();
        let ahead = interval.saturating_mul(burst.saturating_sub(1));
        self.next.saturating_sub(ahead).max(now)
    }

    /// When the whole burst is available again.
    pub fn refilled_at(&self) -> Duration {
        self.next
    }

    /// Counts an attempt that starts.
    pub fn take(&mut self, now: Duration) {
        self.next = self.next.max(now).saturating_add(self.effective().interval);
    }

    /// Counts as many attempts as may start at once: another process may have started them, but none for
    /// the time `idle`.
    pub fn use_up(&mut self, now: Duration, idle: Duration) {
        let EffectiveRate { interval, burst } = self.effective();
        let wait = interval.saturating_mul(burst).saturating_sub(idle);
        self.next = self.next.max(now.saturating_add(wait));
    }

    /// Takes back the last counted attempt, which did not start.
    pub fn give_back(&mut self) {
        self.next = self.next.saturating_sub(self.effective().interval);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn used_up_limiter_allows_one_attempt_per_interval() {
        let now = Duration::from_secs(9);
        let mut gcra = Gcra::new(rate("50/s burst 10"));
        gcra.use_up(now, Duration::ZERO);
        let interval = Duration::from_millis(20);
        for n in 1..=3 {
            let at = gcra.next_free(now);
            assert_eq!(at, now + interval * n);
            gcra.take(at);
        }
    }

    #[test]
    fn used_up_limiter_allows_what_it_has_gained_while_idle() {
        let now = Duration::from_secs(9);
        let allowed_at_once = |idle_millis| {
            let mut gcra = Gcra::new(rate("50/s burst 10"));
            gcra.use_up(now, Duration::from_millis(idle_millis));
            (0..)
                .take_while(|_| {
                    let is_free = gcra.next_free(now) == now;
                    gcra.take(now);
                    is_free
                })
                .count()
        };
        assert_eq!([0, 19, 20, 70, 200, 10_000].map(allowed_at_once), [0, 0, 1, 3, 10, 10]);
    }

    #[test]
    fn rates_parse_and_display_as_written() {
        let cases = [
            ("50/s", Some((20_000, 5))),
            ("1/s", Some((1_000_000, 1))),
            ("100/m", Some((600_000, 1))),
            ("3600/h", Some((1_000_000, 1))),
            ("50/s burst 10", Some((20_000, 10))),
            ("1000000/s burst 1", Some((1, 1))),
            ("0/s", None),
            ("50", None),
            ("50/", None),
            ("50/d", None),
            ("+5/s", None),
            ("-5/s", None),
            ("5.5/s", None),
            ("50 /s", None),
            ("50/s burst", None),
            ("50/s burst 0", None),
            ("50/s burst 1 2", None),
            ("50/s fast", None),
            ("9999999/s", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<Rate>().ok();
            let meant = parsed.map(|rate| (rate.interval().as_micros(), rate.burst()));
            assert_eq!(meant, expected, "case: {text}");
            if let Some(rate) = parsed {
                assert_eq!(rate.to_string(), text, "case: {text}");
            }
        }
    }

    #[test]
    fn late_timer_costs_nothing_within_the_burst() {
        let mut gcra = Gcra::new(rate("50/s"));
        let mut now = Duration::ZERO;
        let mut started = 0;
        // Each wait ends 3 ms late, more than a timer usually is.
        while now < Duration::from_secs(20) {
            let free = gcra.next_free(now);
            now = if free > now { free + Duration::from_millis(3) } else { now };
            gcra.take(now);
            started += 1;
        }
        assert!((995..=1006).contains(&started), "{started} in 20 s at 50/s");
    }

    #[test]
    fn reduced_rate_has_no_burst() {
        let mut gcra = Gcra::new(rate("100/s burst 10"));
        gcra.slow_to(1, 4);
        gcra.take(Duration::ZERO);
        assert_eq!(gcra.next_free(Duration::ZERO), Duration::from_millis(40));
        gcra.slow_to(4, 4);
        assert_eq!(gcra.next_free(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn shares_of_a_limit_add_up_to_it() {
        for (number, of) in [(32, 5), (4, 4), (7, 3), (1, 1), (64, 64)] {
            let parts = (0..of).map(|index| LimitShare::new(index, of).part_of(number));
            let parts: Vec<u32> = parts.collect();
            assert_eq!(parts.iter().sum::<u32>(), number, "{parts:?}");
            assert!(parts.iter().all(|part| (number / of..=number / of + 1).contains(part)));
        }
    }

    #[test]
    fn holders_of_a_rate_start_no_more_than_it_allows_together() {
        let rate = rate("50/s burst 7");
        let seconds = 4;
        let mut starts = 0;
        for index in 0..3 {
            let mut gcra = Gcra::of_share(rate, LimitShare::new(index, 3));
            let mut now = Duration::ZERO;
            while now < Duration::from_secs(seconds) {
                gcra.take(now);
                starts += 1;
                now = gcra.next_free(now);
            }
        }
        assert!((190..=50 * seconds + 7).contains(&starts), "{starts}");
    }

    #[test]
    fn attempt_given_back_frees_its_slot() {
        let mut gcra = Gcra::new(rate("1/s"));
        gcra.take(Duration::from_secs(5));
        gcra.give_back();
        assert_eq!(gcra.next_free(Duration::from_secs(5)), Duration::from_secs(5));
        gcra.take(Duration::from_secs(5));
        assert_eq!(gcra.next_free(Duration::from_secs(5)), Duration::from_secs(6));
    }

    proptest! {
        /// No interval contains more attempts than the rate allows for its length plus one burst.
        #[test]
        fn no_interval_exceeds_the_rate_and_one_burst(
            count in 1..2_000_u32,
            burst in 1..50_u32,
            rests in prop::collection::vec(0..200_u64, 1..80),
        ) {
            let mut gcra = Gcra::new(rate(&format!("{count}/s burst {burst}")));
            let mut now = Duration::ZERO;
            let mut starts = Vec::new();
            for rest in rests {
                now = gcra.next_free(now + Duration::from_millis(rest));
                gcra.take(now);
                starts.push(now);
            }
            let interval = rate(&format!("{count}/s")).interval();
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let many = u32::try_from(last - first + 1).unwrap();
                    let least = interval * many.saturating_sub(burst);
                    prop_assert!(*to - *from + Duration::from_nanos(1) >= least);
                }
            }
        }
    }
}
