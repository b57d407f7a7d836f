//! How fast a service takes messages, and keeping to it.
//!
//! The numbers are Meta's. What comes in counts too, so a number that gets many messages can send
//! fewer. A number that reaches 1000 a second is unusable for up to a minute when it is raised to that
//! (131057).

use std::{collections::HashMap, time::Duration};

use sha2::{Digest, Sha256};

use super::Recipient;
use crate::lane::{Gcra, Rate};

/// Recipients that are remembered for one number. At 1000 messages a second, 6000 of them have
/// something to pay back at once.
const PAIRS_MAX: usize = 16_384;
/// A message that was told to wait is never told to wait longer, unless the service asked for that.
const BOOKED_AHEAD_MAX: Duration = Duration::from_secs(3600);
/// One that comes so much too early is taken, and pays later: timers and clocks differ a little, and
/// whoever is sent away again goes to the end of the line.
const PUNCTUAL: Duration = Duration::from_secs(1);
/// Between those that wait for the same recipient where no rule is known or minded: the Cloud API's.
const INTERVAL_WITHOUT_RULE: Duration = Duration::from_secs(6);

/// How fast a service takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelPacing {
    /// The most that a number may send; `None` is not known.
    pub number: Option<Rate>,
    /// The most that it may send to one recipient.
    pub pair: Option<RecipientPaceRule>,
}

/// How fast a number may write to one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecipientPaceRule {
    /// The rate in the long run, and how many may go at once.
    pub rate: Rate,
    /// Within this time a burst must be over. What it took is then paid back before the next.
    pub burst_span: Duration,
}

/// The Cloud API: 80 a second for a number, one in 6 s for a recipient with a burst of 45.
pub const CLOUD_API: ChannelPacing = ChannelPacing {
    number: Some(Rate::per_second(80)),
    pair: Some(RecipientPaceRule {
        rate: Rate::per_minute(10, 45),
        burst_span: Duration::from_secs(6),
    }),
};
/// A number that Meta has raised.
pub const CLOUD_API_RAISED: Rate = Rate::per_second(1000);
/// A number that is used with the WhatsApp Business app too.
pub const CLOUD_API_SHARED_WITH_APP: Rate = Rate::per_second(20);

/// One recipient of a number. A recipient is a person: only a hash of them is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecipientKey([u8; 16]);

impl RecipientKey {
    /// The key of a recipient.
    pub fn new(recipient: &Recipient) -> Self {
        Self::from_text(recipient.as_str())
    }

    fn from_text(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(key)
    }
}

/// Keeps to a [`RecipientPaceRule`], and to what the service asks for, for all recipients of one number. Times
/// are counted from any fixed moment, on a clock that never steps.
#[derive(Debug)]
pub struct RecipientPacer {
    rule: Option<RecipientPaceRule>,
    pairs: HashMap<RecipientKey, Pair>,
    pairs_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    /// What was sent; only while there is a rule.
    gcra: Option<Gcra>,
    /// When the burst began.
    since: Duration,
    /// The service asked to leave the recipient alone until then.
    held_until: Duration,
    /// When the last of those comes again that were told to.
    booked: Option<Duration>,
}

impl Pair {
    /// From when on nothing has to be remembered.
    fn forgotten_at(&self) -> Duration {
        let rested_at = self.gcra.map(|gcra| gcra.rested_at()).unwrap_or_default();
        rested_at.max(self.held_until).max(self.booked.unwrap_or_default())
    }

    /// How long the next message has to wait. Zero is now, and then it counts as sent.
    fn delay(&mut self, rule: Option<RecipientPaceRule>, now: Duration) -> Duration {
        if self.held_until > now {
            return self.held_until - now;
        }
        let (Some(rule), Some(gcra)) = (rule, &mut self.gcra) else { return Duration::ZERO };
        let rested_at = gcra.rested_at();
        let is_rested = rested_at <= now + PUNCTUAL;
        let is_burst = now.saturating_sub(self.since) < rule.burst_span;
        if !(is_rested || is_burst) || gcra.next_free(now) > now {
            return rested_at - now;
        }
        if is_rested {
            self.since = now;
        }
        gcra.take(now);
        Duration::ZERO
    }

    /// When one should come again that cannot go before `free_at`: behind those that were told before.
    fn book(&mut self, interval: Duration, free_at: Duration, now: Duration) -> Duration {
        let behind = self.booked.map_or(free_at, |last| free_at.max(last.saturating_add(interval)));
        let at = behind.min(free_at.max(now.saturating_add(BOOKED_AHEAD_MAX)));
        self.booked = self.booked.max(Some(at));
        at
    }
}

impl RecipientPacer {
    /// Begins to keep a rule; without one, only what the service asks for is kept.
    pub fn new(rule: Option<RecipientPaceRule>) -> Self {
        Self { rule, pairs: HashMap::new(), pairs_max: PAIRS_MAX }
    }

    /// Keeps another rule from now on.
    pub fn set_rule(&mut self, rule: Option<RecipientPaceRule>) {
        if rule != self.rule {
            self.rule = rule;
            self.pairs.values_mut().for_each(|pair| pair.gcra = new_gcra(rule));
        }
    }

    /// How long the next message to a recipient has to wait. Zero is now, and then it counts as sent.
    ///
    /// Those that have to wait get times that are one interval apart, up to an hour ahead, so that
    /// they do not all come again at once. It is not promised that they find their turn free then:
    /// what came in between may have taken it.
    pub fn reserve(&mut self, recipient: RecipientKey, now: Duration) -> Duration {
        let rule = self.rule;
        if rule.is_none() && !self.pairs.contains_key(&recipient) {
            return Duration::ZERO;
        }
        let pair = self.pair(recipient, now);
        let delay = pair.delay(rule, now);
        if delay.is_zero() {
            return delay;
        }
        let interval = rule.map_or(INTERVAL_WITHOUT_RULE, |rule| rule.rate.interval());
        pair.book(interval, now.saturating_add(delay), now).saturating_sub(now)
    }

    /// Leaves a recipient alone for `wait`, because the service said so (131056).
    pub fn hold(&mut self, recipient: RecipientKey, wait: Duration, now: Duration) {
        let until = now.saturating_add(wait);
        let pair = self.pair(recipient, now);
        pair.held_until = pair.held_until.max(until);
    }

    fn pair(&mut self, key: RecipientKey, now: Duration) -> &mut Pair {
        if self.pairs.len() >= self.pairs_max && !self.pairs.contains_key(&key) {
            self.forget(now);
        }
        let gcra = new_gcra(self.rule);
        let fresh = Pair { gcra, since: now, held_until: Duration::ZERO, booked: None };
        self.pairs.entry(key).or_insert(fresh)
    }

    /// Forgets who has nothing to wait for. If that is nobody, the half with the least to wait for
    /// goes: the service still refuses what is too much.
    fn forget(&mut self, now: Duration) {
        self.pairs.retain(|_, pair| pair.forgotten_at() > now);
        if self.pairs.len() < self.pairs_max {
            return;
        }
        let mut ends: Vec<Duration> = self.pairs.values().map(Pair::forgotten_at).collect();
        let (_, middle, _) = ends.select_nth_unstable(self.pairs_max / 2);
        let middle = *middle;
        self.pairs.retain(|_, pair| pair.forgotten_at() > middle);
    }
}

fn new_gcra(rule: Option<RecipientPaceRule>) -> Option<Gcra> {
    rule.map(|rule| Gcra::new(rule.rate))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: RecipientPaceRule =
        RecipientPaceRule { rate: Rate::per_minute(10, 45), burst_span: Duration::from_secs(6) };

    /// What the tests ask of a recipient.
    impl RecipientPacer {
        fn ruled() -> Self {
            Self::new(Some(RULE))
        }

        fn delay(&mut self, recipient: &str, now: Duration) -> Duration {
            let rule = self.rule;
            self.pair(RecipientKey::from_text(recipient), now).delay(rule, now)
        }
    }

    fn key(text: &str) -> RecipientKey {
        RecipientKey::from_text(text)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_recipient_in_six_seconds_and_the_others_are_free() {
        let mut pace = RecipientPacer::ruled();
        assert_eq!(pace.delay("a", seconds(100)), Duration::ZERO);
        // A burst is allowed for 6 s and has to be paid back.
        assert_eq!(pace.delay("a", seconds(104)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(107)), seconds(5));
        assert_eq!(pace.delay("b", seconds(107)), Duration::ZERO);
        // What comes a moment too early is taken and pays later.
        assert_eq!(pace.delay("a", seconds(111)), Duration::ZERO);
        assert_eq!(pace.delay("c", seconds(111)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(116)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(118)), seconds(6));
    }

    #[test]
    fn a_burst_borrows_from_the_future() {
        let mut pace = RecipientPacer::ruled();
        let sent = (0..100).take_while(|_| pace.delay("a", seconds(1)) == Duration::ZERO).count();
        assert_eq!(sent, 45);
        assert_eq!(pace.delay("a", seconds(1)), seconds(45 * 6));
        // 20 at once: 2 minutes.
        for _ in 0..20 {
            assert_eq!(pace.delay("b", seconds(1)), Duration::ZERO);
        }
        assert_eq!(pace.delay("b", seconds(7)), seconds(20 * 6 - 6));
    }

    #[test]
    fn a_recipient_is_left_alone_when_the_service_asks() {
        let mut pace = RecipientPacer::ruled();
        pace.hold(key("a"), seconds(64), seconds(1));
        pace.hold(key("a"), seconds(4), seconds(2));
        assert_eq!(pace.delay("a", seconds(5)), seconds(60));
        assert_eq!(pace.delay("b", seconds(5)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(65)), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_least_first() {
        let mut pace = RecipientPacer { pairs_max: 8, ..RecipientPacer::ruled() };
        pace.hold(key("worst"), seconds(3600), Duration::ZERO);
        for number in 0..1000 {
            pace.delay(&number.to_string(), Duration::ZERO);
            assert!(pace.pairs.len() <= 8);
        }
        assert_eq!(pace.delay("worst", Duration::ZERO), seconds(3600));
        // All others have rested by now.
        for number in 0..8 {
            pace.delay(&number.to_string(), seconds(7));
        }
        assert_eq!(pace.delay("worst", seconds(7)), seconds(3593));
    }

    #[test]
    fn without_a_rule_only_what_the_service_asks_for_is_kept() {
        let mut pace = RecipientPacer::new(None);
        for _ in 0..100 {
            assert_eq!(pace.reserve(key("a"), seconds(1)), Duration::ZERO);
        }
        assert!(pace.pairs.is_empty());
        pace.hold(key("a"), seconds(64), seconds(1));
        let waits: Vec<Duration> = (0..3).map(|_| pace.reserve(key("a"), seconds(1))).collect();
        assert_eq!(waits, [seconds(64), seconds(70), seconds(76)]);
        assert_eq!(pace.reserve(key("b"), seconds(1)), Duration::ZERO);
        assert_eq!(pace.reserve(key("a"), seconds(65)), Duration::ZERO);
    }

    #[test]
    fn another_rule_holds_from_now_on_and_what_was_asked_for_still_does() {
        let mut pace = RecipientPacer::ruled();
        for _ in 0..45 {
            assert_eq!(pace.reserve(key("a"), seconds(1)), Duration::ZERO);
        }
        pace.hold(key("b"), seconds(10), seconds(1));
        pace.set_rule(Some(RULE));
        assert_eq!(pace.reserve(key("a"), seconds(1)), seconds(270));
        pace.set_rule(None);
        assert_eq!(pace.reserve(key("a"), seconds(1)), Duration::ZERO);
        assert_eq!(pace.reserve(key("b"), seconds(1)), seconds(10));
    }

    #[test]
    fn nobody_is_told_to_wait_for_days() {
        let mut pace = RecipientPacer::ruled();
        let longest = (0..5000).map(|_| pace.reserve(key("a"), Duration::ZERO)).max().unwrap();
        assert_eq!(longest, BOOKED_AHEAD_MAX);
        pace.hold(key("b"), seconds(7200), Duration::ZERO);
        assert_eq!(pace.reserve(key("b"), Duration::ZERO), seconds(7200));
    }

    proptest! {
        /// Those that come together are told to come again one by one, an interval apart, and find
        /// their turn free if they are nearly on time.
        #[test]
        fn who_waits_comes_again_one_by_one_and_may_send(
            many in 46..400_usize,
            late in prop::collection::vec(0..1000_u64, 400),
        ) {
            let mut pace = RecipientPacer::ruled();
            let start = seconds(10);
            let waits: Vec<Duration> = (0..many).map(|_| pace.reserve(key("a"), start)).collect();
            let told: Vec<Duration> = waits.into_iter().filter(|wait| !wait.is_zero()).collect();
            prop_assert_eq!(told.len(), many - 45);
            for pair in told.windows(2) {
                prop_assert!(pair[1] - pair[0] >= RULE.rate.interval());
            }
            for (wait, late) in told.iter().zip(late) {
                let now = start + *wait + Duration::from_millis(late);
                prop_assert_eq!(pace.reserve(key("a"), now), Duration::ZERO);
            }
        }

        /// However a sender behaves, no stretch of time holds more than the rate and one burst, and
        /// who waits as long as it is told may send.
        #[test]
        fn no_stretch_holds_more_than_the_rate_and_one_burst(
            rests in prop::collection::vec(0..20_u64, 1..300),
        ) {
            let mut pace = RecipientPacer::ruled();
            let mut now = Duration::ZERO;
            let mut starts: Vec<Duration> = Vec::new();
            for rest in rests {
                now += seconds(rest);
                let delay = pace.delay("a", now);
                if delay > Duration::ZERO {
                    now += delay;
                    prop_assert_eq!(pace.delay("a", now), Duration::ZERO);
                }
                starts.push(now);
            }
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let many = u32::try_from(last - first + 1).unwrap();
                    prop_assert!(*to - *from >= seconds(6) * many.saturating_sub(45));
                }
            }
        }
    }
}
