//! What follows from the outcome of an attempt.
//!
//! An [`Outcome`] is a fact, a [`Class`] is what kind of failure it was, a [`Verdict`] is what we
//! do about it. All rules of the failure table stand here and nowhere else. A destination may
//! have rules of its own for single statuses ([`rules`]); they come before the table.

pub mod rules;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::rules::{StatusRules, Then};
use super::retry::{RetryAfter, RetryPolicy};
use crate::time::Timestamp;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination answered.
    Answered { status: u16, retry_after: Option<RetryAfter> },
    /// There was no whole answer.
    Failed(Failure),
    /// The destination speaks a protocol of its own, in which a status alone would mislead: somebody
    /// who knows it says what the answer means.
    Meant(Meant),
}

impl Outcome {
    /// The status of the answer, if there was one.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed(_) => None,
            Self::Meant(meant) => meant.status,
        }
    }

    /// Why there was no answer.
    pub const fn failure(&self) -> Option<Failure> {
        match self {
            Self::Answered { .. } => None,
            Self::Failed(failure) => Some(*failure),
            Self::Meant(meant) => meant.failure,
        }
    }
}

/// What an answer means, in our words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meant {
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why there was none.
    pub failure: Option<Failure>,
    /// What kind of failure it was; `None` is a success.
    pub class: Option<Class>,
    /// How long to wait at least.
    pub wait: Option<Duration>,
    /// What the answer asked for in `Retry-After`.
    pub retry_after: Option<RetryAfter>,
    /// How many attempts in all make sense.
    pub tries: Option<u32>,
    /// Why the delivery is dead, where its class alone does not say it. A `config` without a reason
    /// stays owed.
    pub reason: Option<DeadReason>,
    /// What it says about the destination as a whole.
    pub affects: Affects,
    /// What to do if the class is `ambiguous`.
    pub unsure: Unsure,
}

impl Meant {
    /// A meaning that says nothing but its class.
    pub const fn of(class: Option<Class>) -> Self {
        Self {
            status: None,
            failure: None,
            class,
            wait: None,
            retry_after: None,
            tries: None,
            reason: None,
            affects: Affects::Usual,
            unsure: Unsure::Again,
        }
    }
}

/// What an answer says about its destination as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affects {
    /// What its class says about it.
    Usual,
    /// Nothing: others may well pass.
    ThisOnly,
    /// Nothing about it, but this recipient wants to be left alone for a while.
    ThisRecipient,
    /// It wants to be left alone for a while.
    CoolsAll,
    /// Nothing passes until somebody has mended it.
    StopsAll,
}

impl Affects {
    const fn spares_others(self) -> bool {
        matches!(self, Self::ThisOnly | Self::ThisRecipient)
    }
}

/// What to do when nobody knows whether something arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsure {
    /// Try again: it does no harm, or the destination's settings want it.
    Again,
    /// Wait so long for a word of it, and only then try again.
    AfterWait(Duration),
    /// Leave it to a person.
    Park,
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The name did not resolve.
    Dns,
    /// Nobody listens there.
    Refused,
    /// No way to the address.
    Unreachable,
    /// The connection broke.
    Reset,
    /// The deadline passed.
    Timeout,
    /// The certificate or the handshake was not acceptable.
    Tls,
    /// The address policy forbids the address.
    Blocked,
    /// The answer was not HTTP.
    Protocol,
    /// The proxy could not carry the request on for now.
    Proxy,
    /// The proxy does not let us through.
    ProxyRefused,
    /// The token endpoint gives no token for now.
    Token,
    /// The token endpoint does not give us one.
    TokenRefused,
    /// The gateway was shut down while it waited.
    Interrupted,
    /// The route's transform made no body; nothing was sent.
    Transform,
    /// It could not be signed as `sign_as` wants it; nothing was sent.
    Unsignable,
    /// It is no message that the service could send; nothing was sent.
    Unsendable,
    /// The program could not be started, or may not be.
    NotStarted,
    /// The program ended without having done its work.
    Exit,
    /// What is no HTTP answered that it did not do it.
    ErrorReply,
}

impl Failure {
    /// Every failure.
    pub const ALL: [Self; 19] = [
        Self::Dns,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Timeout,
        Self::Tls,
        Self::Blocked,
        Self::Protocol,
        Self::Proxy,
        Self::ProxyRefused,
        Self::Token,
        Self::TokenRefused,
        Self::Interrupted,
        Self::Transform,
        Self::Unsignable,
        Self::Unsendable,
        Self::NotStarted,
        Self::Exit,
        Self::ErrorReply,
    ];

    /// The failure that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.as_str() == word)
    }

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::Blocked => "blocked",
            Self::Protocol => "protocol",
            Self::Proxy => "proxy",
            Self::ProxyRefused => "proxy_refused",
            Self::Token => "token",
            Self::TokenRefused => "token_refused",
            Self::Interrupted => "interrupted",
            Self::Transform => "transform",
            Self::Unsignable => "unsignable",
            Self::Unsendable => "unsendable",
            Self::NotStarted => "not_started",
            Self::Exit => "exit",
            Self::ErrorReply => "error_reply",
        }
    }

    /// Whether it says nothing about the destination: nothing was sent, or nobody waited for the answer.
    pub const fn is_our_own(self) -> bool {
        matches!(self, Self::Interrupted | Self::Transform | Self::Unsignable | Self::Unsendable)
    }
}

/// What kind of failure an attempt was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// May well work later.
    Transient,
    /// The destination asks us to slow down.
    Throttled,
    /// This event will never be taken.
    Permanent,
    /// No event will be taken until somebody mends the settings.
    Config,
    /// Nobody knows whether it arrived.
    Ambiguous,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 5] =
        [Self::Transient, Self::Throttled, Self::Permanent, Self::Config, Self::Ambiguous];

    /// The class that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Permanent => "permanent",
            Self::Config => "config",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// Why a delivery was given up.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The policy's attempts are used up.
    MaxRetries,
    /// The destination is not what its settings say.
    InvalidEndpoint,
    /// The destination refuses this body.
    PayloadError,
    /// The destination refuses for good.
    Unrecoverable,
    /// Older than the policy allows.
    Expired,
    /// Nobody knows whether it arrived, and sending again is not wanted.
    Ambiguous,
}

impl DeadReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::MaxRetries,
        Self::InvalidEndpoint,
        Self::PayloadError,
        Self::Unrecoverable,
        Self::Expired,
        Self::Ambiguous,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxRetries => "max_retries",
            Self::InvalidEndpoint => "invalid_endpoint",
            Self::PayloadError => "payload_error",
            Self::Unrecoverable => "unrecoverable",
            Self::Expired => "expired",
            Self::Ambiguous => "ambiguous",
        }
    }

    /// The reason that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// How far a delivery has come when its latest attempt ended, that attempt included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Attempts made.
    pub attempts: u32,
    /// How many of them the destination throttled.
    pub throttled: u32,
    /// When the delivery was created: its age is counted from here.
    pub created_at: Timestamp,
}

/// What we do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Succeeded,
    /// Try again then.
    RetryAt { due_at: Timestamp, class: Class },
    /// Try again then, if by then the destination may be called: its rules ask for a pause. The
    /// class is [`Class::Config`].
    Pause { due_at: Timestamp },
    /// Give up.
    Dead { reason: DeadReason, class: Class },
}

/// What a destination agreed to: how often it is tried, and what its answers mean.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// How often and when.
    pub retry: &'a RetryPolicy,
    /// Its own rules about statuses.
    pub rules: &'a StatusRules,
}

/// Attempts that were throttled do not count against the policy's maximum, up to this many.
///
/// A destination that says "later" politely must not lose its events, one that says it for ever
/// must not keep them alive for ever.
pub const FREE_THROTTLES: u32 = 50;

/// `Retry-After` below this is rounded up, so that a `0` cannot make us spin.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// `Retry-After` above this is cut: nobody means ten years.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a whole lane cools down for an answer that does not say how long.
const COOL_DOWN_MAX: Duration = Duration::from_secs(60);

/// The kind of failure, or `None` for a success.
pub fn classify(outcome: &Outcome, rules: &StatusRules) -> Option<Class> {
    match outcome {
        Outcome::Answered { status, retry_after } => match rules.about(*status) {
            Some(rule) => rule.then.class(),
            None => classify_status(*status, *retry_after),
        },
        Outcome::Failed(failure) => Some(match failure {
            Failure::Dns
            | Failure::Refused
            | Failure::Unreachable
            | Failure::Reset
            | Failure::Timeout
            | Failure::Protocol
            | Failure::Proxy
            | Failure::Token
            | Failure::ErrorReply
            | Failure::Interrupted => Class::Transient,
            Failure::Transform | Failure::Unsignable | Failure::Unsendable | Failure::Exit => {
                Class::Permanent
            }
            Failure::Tls
            | Failure::Blocked
            | Failure::ProxyRefused
            | Failure::TokenRefused
            | Failure::NotStarted => Class::Config,
        }),
        Outcome::Meant(meant) => meant.class,
    }
}

fn classify_status(status: u16, retry_after: Option<RetryAfter>) -> Option<Class> {
    Some(match status {
        200..=299 => return None,
        429 => Class::Throttled,
        503 if retry_after.is_some() => Class::Throttled,
        // Moved for good, not allowed, not there: settings that somebody must mend.
        301 | 308 | 401 | 403 | 404 | 405 | 410 => Class::Config,
        // The server gave up waiting, or asks to try again: the request itself is fine.
        408 | 425 => Class::Transient,
        400..=499 => Class::Permanent,
        _ => Class::Transient,
    })
}

/// Why a delivery is dead after a permanent refusal: what the rule says, or by the table, where
/// some of the refusals are about the body.
fn permanent_reason(outcome: &Outcome, rules: &StatusRules) -> DeadReason {
    if let Some(reason) = rule_about(outcome, rules).and_then(|rule| rule.reason) {
        return reason;
    }
    match outcome {
        Outcome::Answered { status: 400 | 406 | 411 | 413 | 415 | 422, .. }
        | Outcome::Failed(Failure::Transform | Failure::Unsignable | Failure::Unsendable) => {
            DeadReason::PayloadError
        }
        Outcome::Meant(Meant { reason: Some(reason), .. }) => *reason,
        Outcome::Answered { .. } | Outcome::Failed(_) | Outcome::Meant(_) => {
            DeadReason::Unrecoverable
        }
    }
}

fn rule_about<'r>(outcome: &Outcome, rules: &'r StatusRules) -> Option<&'r rules::StatusRule> {
    match outcome {
        Outcome::Answered { status, .. } => rules.about(*status),
        Outcome::Failed(_) | Outcome::Meant(_) => None,
    }
}

/// Whether a rule, or the answer itself, asks to leave the destination alone until somebody has looked
/// at it. That holds also when the delivery itself is given up.
pub fn asks_for_pause(outcome: &Outcome, rules: &StatusRules) -> bool {
    match outcome {
        Outcome::Meant(meant) => meant.affects == Affects::StopsAll,
        Outcome::Answered { .. } | Outcome::Failed(_) => {
            rule_about(outcome, rules).is_some_and(|rule| rule.then == Then::Pause)
        }
    }
}

fn spares_others(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Meant(meant) if meant.affects.spares_others())
}

/// Whether it speaks against the settings of its destination.
pub fn accuses_settings(outcome: &Outcome, class: Option<Class>) -> bool {
    let only_this = spares_others(outcome);
    class == Some(Class::Config) && !only_this
}

/// Decides what happens to a delivery whose attempt came to `outcome`.
///
/// `roll` is a number in `0.0..1.0` for the jitter.
pub fn judge(
    outcome: &Outcome,
    progress: Progress,
    terms: Terms<'_>,
    now: Timestamp,
    roll: f64,
) -> Verdict {
    let Terms { retry: policy, rules } = terms;
    let Some(class) = classify(outcome, rules) else { return Verdict::Succeeded };
    let pauses = asks_for_pause(outcome, rules);
    match class {
        Class::Permanent => {
            return Verdict::Dead { reason: permanent_reason(outcome, rules), class };
        }
        // Whoever asks for a pause wants to mend it, not to lose what comes meanwhile.
        Class::Config if pauses => {}
        Class::Config if stays_owed(outcome) => {}
        Class::Config => return Verdict::Dead { reason: DeadReason::InvalidEndpoint, class },
        Class::Ambiguous if unsure(outcome) == Unsure::Park => {
            return Verdict::Dead { reason: DeadReason::Ambiguous, class };
        }
        Class::Ambiguous | Class::Transient | Class::Throttled => {}
    }
    if *outcome == Outcome::Failed(Failure::Interrupted) {
        // Our own doing: the next process tries at once.
        return Verdict::RetryAt { due_at: now, class };
    }
    let spent = progress.attempts - progress.throttled.min(FREE_THROTTLES).min(progress.attempts);
    // What waits for somebody to mend something must not be used up by waiting, nor grow too old.
    let stays_owed = stays_owed(outcome);
    if spent >= attempts_max(outcome, policy) && !stays_owed {
        let is_unsure = class == Class::Ambiguous;
        let reason = if is_unsure { DeadReason::Ambiguous } else { DeadReason::MaxRetries };
        return Verdict::Dead { reason, class };
    }
    // The delay grows with every attempt, also with those that were free.
    let delay = policy.delay_after(progress.attempts, roll);
    let asked = asked_delay(outcome, now);
    let due_at = now + asked.map_or(delay, |asked| asked.max(delay));
    if policy.is_too_old(progress.created_at, due_at) && !stays_owed {
        return Verdict::Dead { reason: DeadReason::Expired, class };
    }
    if pauses { Verdict::Pause { due_at } } else { Verdict::RetryAt { due_at, class } }
}

/// A failure of the settings that does not end the delivery.
fn stays_owed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Meant(Meant { class: Some(Class::Config), reason: None, .. }))
}

/// What to do when nobody knows. A webhook is left to a person.
fn unsure(outcome: &Outcome) -> Unsure {
    match outcome {
        Outcome::Meant(meant) => meant.unsure,
        Outcome::Answered { .. } | Outcome::Failed(_) => Unsure::Park,
    }
}

fn attempts_max(outcome: &Outcome, policy: &RetryPolicy) -> u32 {
    let most = policy.attempts_max();
    match outcome {
        Outcome::Meant(Meant { tries: Some(tries), .. }) => most.min(*tries),
        Outcome::Answered { .. } | Outcome::Failed(_) | Outcome::Meant(_) => most,
    }
}

/// Until when the whole lane must leave the destination alone, if it asked for that. It does so
/// also when the delivery that was refused is given up.
///
/// One that does not say for how long is left alone for a minute at most: the delivery may have to
/// wait for days by now, but what waits behind it has done nothing.
pub fn cool_until(
    outcome: &Outcome,
    progress: Progress,
    terms: Terms<'_>,
    now: Timestamp,
    roll: f64,
) -> Option<Timestamp> {
    let asked = || asked_delay(outcome, now);
    let only_this = spares_others(outcome);
    let is_throttled = classify(outcome, terms.rules) == Some(Class::Throttled);
    (is_throttled && !only_this).then(|| {
        let unasked = || terms.retry.delay_after(progress.attempts, roll).min(COOL_DOWN_MAX);
        now + asked().unwrap_or_else(unasked)
    })
}

/// How long the recipient of a message must be left alone, if the service asked for that.
pub fn recipient_wait(outcome: &Outcome, now: Timestamp) -> Option<Duration> {
    match outcome {
        Outcome::Meant(Meant { affects: Affects::ThisRecipient, .. }) => asked_delay(outcome, now),
        Outcome::Answered { .. } | Outcome::Failed(_) | Outcome::Meant(_) => None,
    }
}

fn asked_delay(outcome: &Outcome, now: Timestamp) -> Option<Duration> {
    let bounded = |asked: RetryAfter| asked.delay_from(now).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
    match outcome {
        Outcome::Answered { retry_after, .. } => retry_after.map(bounded),
        Outcome::Failed(_) => None,
        Outcome::Meant(Meant { class: Some(Class::Ambiguous), unsure, .. }) => match unsure {
            Unsure::AfterWait(wait) => Some(*wait),
            Unsure::Again | Unsure::Park => None,
        },
        Outcome::Meant(meant) => meant.wait.max(meant.retry_after.map(bounded)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn a_late_attempt_does_not_stop_its_destination_for_days() {
        let retry = crate::delivery::RetrySpec::default().policy().unwrap();
        let rules = StatusRules::default();
        let terms = Terms { retry: &retry, rules: &rules };
        let progress = Progress { attempts: 9, throttled: 0, created_at: NOW };

        let until = cool_until(&answered(429), progress, terms, NOW, 0.99).unwrap();

        assert_eq!(until, NOW + COOL_DOWN_MAX);
    }

    fn answered(status: u16) -> Outcome {
        Outcome::Answered { status, retry_after: None }
    }

    const NO_RULES: &StatusRules = &StatusRules::none();

    fn classify(outcome: &Outcome) -> Option<Class> {
        super::classify(outcome, NO_RULES)
    }

    fn by_table(policy: &RetryPolicy) -> Terms<'_> {
        Terms { retry: policy, rules: NO_RULES }
    }

    fn progress(attempts: u32, throttled: u32) -> Progress {
        Progress { attempts, throttled, created_at: NOW }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn of(class: Class) -> Meant {
        Meant { status: Some(200), ..Meant::of(Some(class)) }
    }

    fn again(seconds: u64, class: Class) -> Verdict {
        Verdict::RetryAt { due_at: NOW + Duration::from_secs(seconds), class }
    }

    fn dead(reason: DeadReason, class: Class) -> Verdict {
        Verdict::Dead { reason, class }
    }

    /// What follows after so many attempts, with 1, 2, 4 … seconds between them and five at most.
    fn follows(cases: &[(&str, u32, Meant, Verdict)]) {
        let policy = r#"{"max_attempts":5,"initial_delay":"1s","base":2,"jitter":0}"#;
        let policy: crate::delivery::RetrySpec = serde_json::from_str(policy).unwrap();
        let policy = policy.policy().unwrap();
        for (name, attempts, meant, expected) in cases {
            let outcome = Outcome::Meant(*meant);
            let progress = progress(*attempts, 0);
            let verdict = judge(&outcome, progress, by_table(&policy), NOW, 0.5);
            assert_eq!(verdict, *expected, "case: {name}");
            let cools = cool_until(&outcome, progress, by_table(&policy), NOW, 0.5).is_some();
            assert_eq!(cools, *name == "all slower", "case: {name}");
            let stops = meant.affects == Affects::StopsAll;
            assert_eq!(asks_for_pause(&outcome, NO_RULES), stops, "case: {name}");
        }
    }

    #[test]
    fn what_somebody_says_it_means_comes_before_every_status() {
        use Class::{Permanent, Throttled, Transient};
        let (transient, throttled) = (of(Transient), of(Throttled));
        let only_this = Affects::ThisOnly;
        let refused = Meant { reason: Some(DeadReason::PayloadError), ..of(Permanent) };
        let max_retries = dead(DeadReason::MaxRetries, Transient);
        follows(&[
            ("sent", 1, Meant { status: Some(500), ..Meant::of(None) }, Verdict::Succeeded),
            ("again by the policy", 1, transient, again(1, Transient)),
            ("later", 1, Meant { wait: Some(HOUR), ..transient }, again(3600, Transient)),
            ("tries are used up", 2, Meant { tries: Some(2), ..transient }, max_retries),
            ("one is left", 2, Meant { tries: Some(3), ..transient }, again(2, Transient)),
            ("slower", 1, Meant { affects: only_this, ..throttled }, again(1, Throttled)),
            ("all slower", 1, throttled, again(1, Throttled)),
            ("never", 1, refused, dead(DeadReason::PayloadError, Permanent)),
            ("never ever", 1, of(Permanent), dead(DeadReason::Unrecoverable, Permanent)),
        ]);
    }

    #[test]
    fn what_somebody_must_mend_stays_owed_and_what_nobody_knows_is_not_hurried() {
        use Class::{Ambiguous, Config};
        let (config, ambiguous) = (of(Config), of(Ambiguous));
        let stops = Meant { affects: Affects::StopsAll, ..config };
        let held_up = Meant { affects: Affects::ThisOnly, wait: Some(HOUR), ..config };
        let wrong = Meant { reason: Some(DeadReason::InvalidEndpoint), ..config };
        let waits = Meant { unsure: Unsure::AfterWait(HOUR), ..ambiguous };
        let parked = Meant { unsure: Unsure::Park, ..ambiguous };
        let pause = Verdict::Pause { due_at: NOW + Duration::from_secs(16) };
        let given_up = dead(DeadReason::Ambiguous, Ambiguous);
        follows(&[
            ("all stop, however often it was tried", 5, stops, pause),
            ("only this is held up", 5, held_up, again(3600, Config)),
            ("wrong for good", 1, wrong, dead(DeadReason::InvalidEndpoint, Config)),
            ("unsure, and safe", 1, ambiguous, again(1, Ambiguous)),
            ("unsure, and a word may come", 1, waits, again(3600, Ambiguous)),
            ("unsure for the last time", 5, waits, given_up),
            ("unsure, and for a person to decide", 1, parked, given_up),
        ]);
        assert!(accuses_settings(&Outcome::Meant(stops), Some(Config)));
        assert!(!accuses_settings(&Outcome::Meant(held_up), Some(Config)));
    }

    #[test]
    fn what_somebody_must_mend_does_not_die_of_its_age() {
        let policy = r#"{"max_attempts":5,"max_age":"10s","jitter":0}"#;
        let policy: crate::delivery::RetrySpec = serde_json::from_str(policy).unwrap();
        let policy = policy.policy().unwrap();
        let old = Progress { created_at: Timestamp::from_millis(1), ..progress(1, 0) };
        let stops = Meant { affects: Affects::StopsAll, ..of(Class::Config) };
        let held_up = Meant { affects: Affects::ThisOnly, ..of(Class::Config) };
        let verdict = |meant| judge(&Outcome::Meant(meant), old, by_table(&policy), NOW, 0.5);
        assert!(matches!(verdict(stops), Verdict::Pause { .. }));
        assert!(matches!(verdict(held_up), Verdict::RetryAt { .. }));
        assert_eq!(verdict(of(Class::Transient)), dead(DeadReason::Expired, Class::Transient));
    }

    #[test]
    fn every_answer_has_its_class() {
        let cases = [
            (200, None),
            (204, None),
            (299, None),
            (100, Some(Class::Transient)),
            (301, Some(Class::Config)),
            (302, Some(Class::Transient)),
            (308, Some(Class::Config)),
            (400, Some(Class::Permanent)),
            (401, Some(Class::Config)),
            (403, Some(Class::Config)),
            (404, Some(Class::Config)),
            (408, Some(Class::Transient)),
            (409, Some(Class::Permanent)),
            (410, Some(Class::Config)),
            (422, Some(Class::Permanent)),
            (425, Some(Class::Transient)),
            (429, Some(Class::Throttled)),
            (500, Some(Class::Transient)),
            (503, Some(Class::Transient)),
            (600, Some(Class::Transient)),
            (999, Some(Class::Transient)),
        ];
        for (status, class) in cases {
            assert_eq!(classify(&answered(status)), class, "case: {status}");
        }
        let busy = Outcome::Answered {
            status: 503,
            retry_after: Some(RetryAfter::Delay(Duration::from_secs(1))),
        };
        assert_eq!(classify(&busy), Some(Class::Throttled));
        assert_eq!(classify(&Outcome::Failed(Failure::Blocked)), Some(Class::Config));
        assert_eq!(classify(&Outcome::Failed(Failure::Dns)), Some(Class::Transient));
    }

    #[test]
    fn what_cannot_work_is_buried_at_once_with_its_reason() {
        let cases = [
            (answered(400), DeadReason::PayloadError),
            (answered(422), DeadReason::PayloadError),
            (answered(409), DeadReason::Unrecoverable),
            (answered(404), DeadReason::InvalidEndpoint),
            (answered(410), DeadReason::InvalidEndpoint),
            (Outcome::Failed(Failure::Tls), DeadReason::InvalidEndpoint),
            (Outcome::Failed(Failure::Blocked), DeadReason::InvalidEndpoint),
        ];
        for (outcome, expected) in cases {
            let verdict =
                judge(&outcome, progress(1, 0), by_table(&RetryPolicy::standard()), NOW, 0.5);
            let Verdict::Dead { reason, .. } = verdict else {
                panic!("{outcome:?} gave {verdict:?}")
            };
            assert_eq!(reason, expected, "{outcome:?}");
        }
    }

    #[test]
    fn the_last_attempt_of_the_policy_is_the_last() {
        let policy = RetryPolicy::quick();
        let outcome = answered(500);
        assert!(matches!(
            judge(&outcome, progress(2, 0), by_table(&policy), NOW, 0.0),
            Verdict::RetryAt { .. }
        ));
        assert_eq!(
            judge(&outcome, progress(3, 0), by_table(&policy), NOW, 0.0),
            Verdict::Dead { reason: DeadReason::MaxRetries, class: Class::Transient }
        );
    }

    #[test]
    fn throttled_attempts_are_free_up_to_a_bound() {
        let policy = RetryPolicy::quick();
        let later = answered(429);
        assert!(matches!(
            judge(&later, progress(40, 40), by_table(&policy), NOW, 0.0),
            Verdict::RetryAt { .. }
        ));
        let at_bound = FREE_THROTTLES + policy.attempts_max();
        assert!(matches!(
            judge(&later, progress(at_bound, at_bound), by_table(&policy), NOW, 0.0),
            Verdict::Dead { reason: DeadReason::MaxRetries, .. }
        ));
    }

    #[test]
    fn retry_after_cools_the_lane_within_bounds() {
        let cases = [
            ("two seconds", RetryAfter::Delay(Duration::from_secs(2)), 2),
            ("zero is rounded up", RetryAfter::Delay(Duration::ZERO), 1),
            ("ten years are cut", RetryAfter::Delay(Duration::from_secs(315_360_000)), 86_400),
            ("a date", RetryAfter::At(NOW + Duration::from_secs(90)), 90),
            ("a date in the past", RetryAfter::At(Timestamp::from_millis(0)), 1),
        ];
        for (name, retry_after, secs) in cases {
            let outcome = Outcome::Answered { status: 429, retry_after: Some(retry_after) };
            let policy = RetryPolicy::quick();
            let cooled = NOW + Duration::from_secs(secs);
            let verdict = judge(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0);
            let Verdict::RetryAt { due_at, .. } = verdict else { panic!("{name}: {verdict:?}") };
            assert!(due_at >= cooled, "case: {name}");
            let until = cool_until(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0);
            assert_eq!(until, Some(cooled), "case: {name}");
        }
        assert_eq!(
            cool_until(&answered(500), progress(1, 0), by_table(&RetryPolicy::quick()), NOW, 0.0),
            None
        );
    }

    #[test]
    fn the_lane_cools_also_when_the_delivery_is_given_up() {
        let retry_after = Some(RetryAfter::Delay(Duration::from_secs(60)));
        let outcome = Outcome::Answered { status: 429, retry_after };
        let impatient = r#"{"max_attempts":9,"max_age":"10s"}"#;
        let policy = serde_json::from_str::<crate::delivery::RetrySpec>(impatient)
            .unwrap()
            .policy()
            .unwrap();
        assert!(matches!(
            judge(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0),
            Verdict::Dead { reason: DeadReason::Expired, .. }
        ));
        let until = cool_until(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0);
        assert_eq!(until, Some(NOW + Duration::from_secs(60)));
    }

    #[test]
    fn an_interrupted_attempt_is_due_at_once() {
        let verdict = judge(
            &Outcome::Failed(Failure::Interrupted),
            progress(99, 0),
            by_table(&RetryPolicy::quick()),
            NOW,
            0.5,
        );
        let expected = Verdict::RetryAt { due_at: NOW, class: Class::Transient };
        assert_eq!(verdict, expected);
    }
}
