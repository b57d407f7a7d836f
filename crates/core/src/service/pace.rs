//! How fast a service takes messages, and keeping to it.
//!
//! The numbers are Meta's. What comes in counts too, so a number that gets many messages can send
//! fewer. A number that reaches 1000 a second is unusable for up to a minute when it is raised to that
//! (131057).

use std::{collections::HashMap, time::Duration};

use sha2::{Digest, Sha256};

use crate::lane::{Gcra, Rate};

/// Recipients that are remembered for one number. At 1000 messages a second, 6000 of them have
/// something to pay back at once.
const PAIRS_MAX: usize = 16_384;

/// How fast a service takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// The most that a number may send; `None` is not known.
    pub number: Option<Rate>,
    /// The most that it may send to one recipient.
    pub pair: Option<PairRule>,
}

/// How fast a number may write to one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairRule {
    /// The rate in the long run, and how many may go at once.
    pub rate: Rate,
    /// Within this time a burst must be over. What it took is then paid back before the next.
    pub burst_span: Duration,
}

/// The Cloud API: 80 a second for a number, one in 6 s for a recipient with a burst of 45.
pub const CLOUD_API: Pacing = Pacing {
    number: Some(Rate::per_second(80)),
    pair: Some(PairRule { rate: Rate::per_minute(10, 45), burst_span: Duration::from_secs(6) }),
};
/// A number that Meta has raised.
pub const CLOUD_API_RAISED: Rate = Rate::per_second(1000);
/// A number that is used with the WhatsApp Business app too.
pub const CLOUD_API_SHARED_WITH_APP: Rate = Rate::per_second(20);

/// Keeps to a [`PairRule`], for all recipients of one number. Times are counted from any fixed moment,
/// on a clock that never steps.
#[derive(Debug)]
pub struct PairPace {
    rule: PairRule,
    pairs: HashMap<Key, Pair>,
    pairs_max: usize,
}

/// A recipient is a person: only a hash of them is kept.
type Key = [u8; 16];

#[derive(Clone, Copy, Debug)]
struct Pair {
    gcra: Gcra,
    /// When the burst began.
    since: Duration,
    /// The service asked to leave the recipient alone until then.
    held_until: Duration,
}

impl Pair {
    /// From when on nothing has to be remembered.
    fn forgotten_at(&self) -> Duration {
        self.gcra.rested_at().max(self.held_until)
    }
}

impl PairPace {
    /// Begins to keep a rule.
    pub fn new(rule: PairRule) -> Self {
        Self { rule, pairs: HashMap::new(), pairs_max: PAIRS_MAX }
    }

    /// How long the next message to `recipient` has to wait. Zero is now, and then it counts as sent.
    pub fn delay(&mut self, recipient: &str, now: Duration) -> Duration {
        let span = self.rule.burst_span;
        let pair = self.pair(recipient, now);
        if pair.held_until > now {
            return pair.held_until - now;
        }
        let rested_at = pair.gcra.rested_at();
        if rested_at <= now {
            pair.since = now;
        } else if now.saturating_sub(pair.since) >= span || pair.gcra.next_free(now) > now {
            return rested_at - now;
        }
        pair.gcra.take(now);
        Duration::ZERO
    }

    /// Leaves `recipient` alone for `wait`, because the service said so (131056).
    pub fn hold(&mut self, recipient: &str, wait: Duration, now: Duration) {
        let until = now.saturating_add(wait);
        let pair = self.pair(recipient, now);
        pair.held_until = pair.held_until.max(until);
    }

    fn pair(&mut self, recipient: &str, now: Duration) -> &mut Pair {
        let digest = Sha256::digest(recipient.as_bytes());
        let mut key = Key::default();
        key.copy_from_slice(&digest[..size_of::<Key>()]);
        if self.pairs.len() >= self.pairs_max && !self.pairs.contains_key(&key) {
            self.forget(now);
        }
        let gcra = Gcra::new(self.rule.rate);
        self.pairs.entry(key).or_insert(Pair { gcra, since: now, held_until: Duration::ZERO })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: PairRule =
        PairRule { rate: Rate::per_minute(10, 45), burst_span: Duration::from_secs(6) };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_recipient_in_six_seconds_and_the_others_are_free() {
        let mut pace = PairPace::new(RULE);
        assert_eq!(pace.delay("a", seconds(100)), Duration::ZERO);
        // A burst is allowed for 6 s and has to be paid back.
        assert_eq!(pace.delay("a", seconds(105)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(107)), seconds(5));
        assert_eq!(pace.delay("b", seconds(107)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(112)), Duration::ZERO);
    }

    #[test]
    fn a_burst_borrows_from_the_future() {
        let mut pace = PairPace::new(RULE);
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
        let mut pace = PairPace::new(RULE);
        pace.hold("a", seconds(64), seconds(1));
        pace.hold("a", seconds(4), seconds(2));
        assert_eq!(pace.delay("a", seconds(5)), seconds(60));
        assert_eq!(pace.delay("b", seconds(5)), Duration::ZERO);
        assert_eq!(pace.delay("a", seconds(65)), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_least_first() {
        let mut pace = PairPace { pairs_max: 8, ..PairPace::new(RULE) };
        pace.hold("worst", seconds(3600), Duration::ZERO);
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

    proptest! {
        /// However a sender behaves, no stretch of time holds more than the rate and one burst, and
        /// who waits as long as it is told may send.
        #[test]
        fn no_stretch_holds_more_than_the_rate_and_one_burst(
            rests in prop::collection::vec(0..20_u64, 1..300),
        ) {
            let mut pace = PairPace::new(RULE);
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
