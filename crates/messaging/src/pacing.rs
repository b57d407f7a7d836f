//! Rate limits of channels, and pacing per recipient.
//!
//! The limits are Meta's. Incoming messages count too, so a number that receives many can send fewer.
//! While Meta raises a number to 1000 messages per second, it is unavailable for up to a minute (131057).

use std::{collections::HashMap, time::Duration};

use sha2::{Digest, Sha256};
use surehook_retry::rate::{Gcra, Rate};

use super::Recipient;

/// Maximum number of recipients tracked for one phone number. At 1000 messages per second, 6000 are
/// within their interval at the same time.
const RECIPIENTS_MAX: usize = 16_384;
/// Longest wait for a slot, unless the service asks for more.
const RESERVED_AHEAD_MAX: Duration = Duration::from_secs(3600);
/// A message this much too early is sent and delays the next one: timers are not exact, and a message
/// that is postponed again would go to the end of the queue.
const EARLY_TOLERANCE: Duration = Duration::from_secs(1);
/// Interval between postponed messages to one recipient without a rule: that of the Cloud API.
const INTERVAL_WITHOUT_RULE: Duration = Duration::from_secs(6);

/// The rate limits of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelPacing {
    /// Limit of one sending number; `None` if unknown.
    pub per_number: Option<Rate>,
    /// Limit of one number to one recipient.
    pub per_recipient: Option<RecipientPaceRule>,
}

/// How fast a number may send to one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecipientPaceRule {
    /// Sustained rate and burst size.
    pub rate: Rate,
    /// Longest burst. Afterwards nothing is sent until the rate has caught up.
    pub burst_span: Duration,
}

/// The Cloud API: 80 per second for a number, one per 6 s for a recipient with a burst of 45.
pub const CLOUD_API: ChannelPacing = ChannelPacing {
    per_number: Some(Rate::per_second(80)),
    per_recipient: Some(RecipientPaceRule {
        rate: Rate::per_minute(10, 45),
        burst_span: Duration::from_secs(6),
    }),
};

/// Key of a recipient. A recipient is a person, so only a hash is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecipientKey([u8; 16]);

impl RecipientKey {
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

/// Enforces a [`RecipientPaceRule`] and the backoff requests of the service for all recipients of one
/// number. Times are measured on a monotonic clock from any fixed start.
#[derive(Debug)]
pub struct RecipientPacer {
    rule: Option<RecipientPaceRule>,
    recipients: HashMap<RecipientKey, RecipientState>,
    recipients_max: usize,
    /// When each recipient may have got a message from an earlier owner of the number.
    assumed_sent_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct RecipientState {
    /// Messages sent; only while there is a rule.
    gcra: Option<Gcra>,
    /// Start of the current burst, if there can be one.
    burst_start: Option<Duration>,
    /// Backoff that the service asked for.
    held_until: Duration,
    /// The latest slot given to a postponed message.
    last_reserved: Option<Duration>,
}

impl RecipientState {
    /// When this state is no longer needed.
    fn expires_at(&self) -> Duration {
        let refilled_at = self.gcra.map(|gcra| gcra.refilled_at()).unwrap_or_default();
        refilled_at.max(self.held_until).max(self.last_reserved.unwrap_or_default())
    }

    /// The wait before the next message. Zero means now, and the message counts as sent.
    fn delay(&mut self, rule: Option<RecipientPaceRule>, now: Duration) -> Duration {
        if self.held_until > now {
            return self.held_until - now;
        }
        let (Some(rule), Some(gcra)) = (rule, &mut self.gcra) else { return Duration::ZERO };
        let refilled_at = gcra.refilled_at();
        let is_refilled = refilled_at <= now + EARLY_TOLERANCE;
        let is_burst =
            self.burst_start.is_some_and(|start| now.saturating_sub(start) < rule.burst_span);
        if !(is_refilled || is_burst) || gcra.next_free(now) > now {
            return refilled_at - now;
        }
        if is_refilled {
            self.burst_start = Some(now);
        }
        gcra.take(now);
        Duration::ZERO
    }

    /// The slot of a message that cannot be sent before `free_at`: after the slots given out before.
    fn reserve_slot(&mut self, interval: Duration, free_at: Duration, now: Duration) -> Duration {
        let after_others =
            self.last_reserved.map_or(free_at, |last| free_at.max(last.saturating_add(interval)));
        let slot = after_others.min(free_at.max(now.saturating_add(RESERVED_AHEAD_MAX)));
        self.last_reserved = self.last_reserved.max(Some(slot));
        slot
    }
}

impl RecipientPacer {
    /// Without a rule, only the backoff requests of the service are enforced.
    pub fn new(rule: Option<RecipientPaceRule>) -> Self {
        let recipients = HashMap::new();
        Self { rule, recipients, recipients_max: RECIPIENTS_MAX, assumed_sent_at: None }
    }

    /// An earlier owner of the lane may just have sent something to any recipient.
    pub fn assume_all_were_sent_to(&mut self, now: Duration) {
        self.assumed_sent_at = Some(now);
    }

    /// Replaces the rule. Backoff requests stay in force.
    pub fn set_rule(&mut self, rule: Option<RecipientPaceRule>) {
        if rule != self.rule {
            self.rule = rule;
            self.recipients.values_mut().for_each(|state| state.gcra = new_gcra(rule));
        }
    }

    /// The wait before the next message to a recipient. Zero means now, and the message counts as sent.
    ///
    /// Postponed messages get slots one interval apart, up to an hour ahead, so that they do not all
    /// return at once. A slot is not guaranteed: a message in between may have used it.
    pub fn reserve(&mut self, recipient: RecipientKey, now: Duration) -> Duration {
        let rule = self.rule;
        if rule.is_none() && !self.recipients.contains_key(&recipient) {
            return Duration::ZERO;
        }
        let state = self.state(recipient, now);
        let delay = state.delay(rule, now);
        if delay.is_zero() {
            return delay;
        }
        let interval = rule.map_or(INTERVAL_WITHOUT_RULE, |rule| rule.rate.interval());
        state.reserve_slot(interval, now.saturating_add(delay), now).saturating_sub(now)
    }

    /// Sends nothing to a recipient for `wait`, because the service asked for it (131056).
    pub fn hold(&mut self, recipient: RecipientKey, wait: Duration, now: Duration) {
        let until = now.saturating_add(wait);
        let state = self.state(recipient, now);
        state.held_until = state.held_until.max(until);
    }

    fn state(&mut self, key: RecipientKey, now: Duration) -> &mut RecipientState {
        if self.recipients.len() >= self.recipients_max && !self.recipients.contains_key(&key) {
            self.prune(now);
        }
        let mut gcra = new_gcra(self.rule);
        if let (Some(gcra), Some(at)) = (&mut gcra, self.assumed_sent_at) {
            gcra.take(at);
        }
        let new = RecipientState {
            gcra,
            burst_start: self.assumed_sent_at.is_none().then_some(now),
            held_until: Duration::ZERO,
            last_reserved: None,
        };
        self.recipients.entry(key).or_insert(new)
    }

    /// Removes expired states. If there are none, removes the half that expires first: the service still
    /// rejects messages that are too fast.
    fn prune(&mut self, now: Duration) {
        self.recipients.retain(|_, state| state.expires_at() > now);
        if self.recipients.len() < self.recipients_max {
            return;
        }
        let mut expiries: Vec<Duration> =
            self.recipients.values().map(RecipientState::expires_at).collect();
        let (_, middle, _) = expiries.select_nth_unstable(self.recipients_max / 2);
        let middle = *middle;
        self.recipients.retain(|_, state| state.expires_at() > middle);
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

    impl RecipientPacer {
        fn with_rule() -> Self {
            Self::new(Some(RULE))
        }

        fn delay(&mut self, recipient: &str, now: Duration) -> Duration {
            let rule = self.rule;
            self.state(RecipientKey::from_text(recipient), now).delay(rule, now)
        }
    }

    fn key(text: &str) -> RecipientKey {
        RecipientKey::from_text(text)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn recipient_gets_one_message_per_interval_and_others_are_unaffected() {
        let mut pacer = RecipientPacer::with_rule();
        assert_eq!(pacer.delay("a", seconds(100)), Duration::ZERO);
        // A burst is allowed for 6 s and delays the following messages.
        assert_eq!(pacer.delay("a", seconds(104)), Duration::ZERO);
        assert_eq!(pacer.delay("a", seconds(107)), seconds(5));
        assert_eq!(pacer.delay("b", seconds(107)), Duration::ZERO);
        // A message slightly too early is sent and delays the next one.
        assert_eq!(pacer.delay("a", seconds(111)), Duration::ZERO);
        assert_eq!(pacer.delay("c", seconds(111)), Duration::ZERO);
        assert_eq!(pacer.delay("a", seconds(116)), Duration::ZERO);
        assert_eq!(pacer.delay("a", seconds(118)), seconds(6));
    }

    #[test]
    fn recipient_of_an_earlier_owner_waits_one_interval() {
        let mut pacer = RecipientPacer::with_rule();
        pacer.assume_all_were_sent_to(seconds(100));
        assert_eq!(pacer.delay("a", seconds(101)), seconds(5));
        assert_eq!(pacer.delay("a", seconds(106)), Duration::ZERO);
        assert_eq!(pacer.delay("b", seconds(200)), Duration::ZERO, "long after");
    }

    #[test]
    fn burst_delays_following_messages() {
        let mut pacer = RecipientPacer::with_rule();
        let sent = (0..100).take_while(|_| pacer.delay("a", seconds(1)) == Duration::ZERO).count();
        assert_eq!(sent, 45);
        assert_eq!(pacer.delay("a", seconds(1)), seconds(45 * 6));
        // 20 at once: 2 minutes.
        for _ in 0..20 {
            assert_eq!(pacer.delay("b", seconds(1)), Duration::ZERO);
        }
        assert_eq!(pacer.delay("b", seconds(7)), seconds(20 * 6 - 6));
    }

    #[test]
    fn backoff_request_holds_only_its_recipient() {
        let mut pacer = RecipientPacer::with_rule();
        pacer.hold(key("a"), seconds(64), seconds(1));
        pacer.hold(key("a"), seconds(4), seconds(2));
        assert_eq!(pacer.delay("a", seconds(5)), seconds(60));
        assert_eq!(pacer.delay("b", seconds(5)), Duration::ZERO);
        assert_eq!(pacer.delay("a", seconds(65)), Duration::ZERO);
    }

    #[test]
    fn tracked_recipients_are_bounded_and_longest_wait_is_kept() {
        let mut pacer = RecipientPacer { recipients_max: 8, ..RecipientPacer::with_rule() };
        pacer.hold(key("worst"), seconds(3600), Duration::ZERO);
        for number in 0..1000 {
            pacer.delay(&number.to_string(), Duration::ZERO);
            assert!(pacer.recipients.len() <= 8);
        }
        assert_eq!(pacer.delay("worst", Duration::ZERO), seconds(3600));
        // All others have expired by now.
        for number in 0..8 {
            pacer.delay(&number.to_string(), seconds(7));
        }
        assert_eq!(pacer.delay("worst", seconds(7)), seconds(3593));
    }

    #[test]
    fn without_rule_only_backoff_requests_are_enforced() {
        let mut pacer = RecipientPacer::new(None);
        for _ in 0..100 {
            assert_eq!(pacer.reserve(key("a"), seconds(1)), Duration::ZERO);
        }
        assert!(pacer.recipients.is_empty());
        pacer.hold(key("a"), seconds(64), seconds(1));
        let delays: Vec<Duration> = (0..3).map(|_| pacer.reserve(key("a"), seconds(1))).collect();
        assert_eq!(delays, [seconds(64), seconds(70), seconds(76)]);
        assert_eq!(pacer.reserve(key("b"), seconds(1)), Duration::ZERO);
        assert_eq!(pacer.reserve(key("a"), seconds(65)), Duration::ZERO);
    }

    #[test]
    fn new_rule_applies_immediately_and_keeps_backoff_requests() {
        let mut pacer = RecipientPacer::with_rule();
        for _ in 0..45 {
            assert_eq!(pacer.reserve(key("a"), seconds(1)), Duration::ZERO);
        }
        pacer.hold(key("b"), seconds(10), seconds(1));
        pacer.set_rule(Some(RULE));
        assert_eq!(pacer.reserve(key("a"), seconds(1)), seconds(270));
        pacer.set_rule(None);
        assert_eq!(pacer.reserve(key("a"), seconds(1)), Duration::ZERO);
        assert_eq!(pacer.reserve(key("b"), seconds(1)), seconds(10));
    }

    #[test]
    fn reserved_wait_is_at_most_one_hour() {
        let mut pacer = RecipientPacer::with_rule();
        let longest = (0..5000).map(|_| pacer.reserve(key("a"), Duration::ZERO)).max().unwrap();
        assert_eq!(longest, RESERVED_AHEAD_MAX);
        pacer.hold(key("b"), seconds(7200), Duration::ZERO);
        assert_eq!(pacer.reserve(key("b"), Duration::ZERO), seconds(7200));
    }

    proptest! {
        /// Messages that are postponed together get slots one interval apart, and their slot is free if
        /// they return nearly on time.
        #[test]
        fn postponed_messages_get_separate_slots_and_can_send(
            count in 46..400_usize,
            late in prop::collection::vec(0..1000_u64, 400),
        ) {
            let mut pacer = RecipientPacer::with_rule();
            let start = seconds(10);
            let delays: Vec<Duration> = (0..count).map(|_| pacer.reserve(key("a"), start)).collect();
            let postponed: Vec<Duration> = delays.into_iter().filter(|wait| !wait.is_zero()).collect();
            prop_assert_eq!(postponed.len(), count - 45);
            for pair in postponed.windows(2) {
                prop_assert!(pair[1] - pair[0] >= RULE.rate.interval());
            }
            for (wait, late) in postponed.iter().zip(late) {
                let now = start + *wait + Duration::from_millis(late);
                prop_assert_eq!(pacer.reserve(key("a"), now), Duration::ZERO);
            }
        }

        /// In any period at most the rate plus one burst is sent, and a message can be sent after the
        /// returned wait.
        #[test]
        fn no_period_exceeds_rate_plus_one_burst(
            rests in prop::collection::vec(0..20_u64, 1..300),
        ) {
            let mut pacer = RecipientPacer::with_rule();
            let mut now = Duration::ZERO;
            let mut starts: Vec<Duration> = Vec::new();
            for rest in rests {
                now += seconds(rest);
                let delay = pacer.delay("a", now);
                if delay > Duration::ZERO {
                    now += delay;
                    prop_assert_eq!(pacer.delay("a", now), Duration::ZERO);
                }
                starts.push(now);
            }
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let count = u32::try_from(last - first + 1).unwrap();
                    prop_assert!(*to - *from >= seconds(6) * count.saturating_sub(45));
                }
            }
        }
    }
}
