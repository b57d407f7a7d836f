//! What follows from the outcome of an attempt.
//!
//! An [`Outcome`] is a fact, a [`Class`] is what kind of failure it was, a [`Verdict`] is what we
//! do about it. All rules of the failure table stand here and nowhere else. A destination may
//! have rules of its own for single statuses ([`rules`]); they come before the table.

mod class;
mod outcome;
pub mod rules;
#[cfg(test)]
mod tests;
mod why_then;

use std::time::Duration;

use self::rules::{StatusRules, Then};
pub use self::{
    class::{Class, DeadReason},
    outcome::{Affects, Failure, Meant, Outcome, Unsure},
    why_then::WhyThen,
};
use super::retry::{RetryAfter, RetryPolicy};
use crate::time::Timestamp;

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
    RetryAt { due_at: Timestamp, class: Class, why: WhyThen },
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
        return Verdict::RetryAt { due_at: now, class, why: WhyThen::Interrupted };
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
    let asked = asked(outcome, now).filter(|(asked, _)| *asked >= delay);
    let (delay, why) = asked.unwrap_or((delay, WhyThen::Backoff));
    let due_at = now + delay;
    if policy.is_too_old(progress.created_at, due_at) && !stays_owed {
        return Verdict::Dead { reason: DeadReason::Expired, class };
    }
    if pauses { Verdict::Pause { due_at } } else { Verdict::RetryAt { due_at, class, why } }
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
    asked(outcome, now).map(|(delay, _)| delay)
}

/// For how long it should be left alone, and who says so.
fn asked(outcome: &Outcome, now: Timestamp) -> Option<(Duration, WhyThen)> {
    let bounded = |asked: RetryAfter| {
        (asked.delay_from(now).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX), WhyThen::RetryAfter)
    };
    match outcome {
        Outcome::Answered { retry_after, .. } => retry_after.map(bounded),
        Outcome::Failed(_) => None,
        Outcome::Meant(Meant { class: Some(Class::Ambiguous), unsure, .. }) => match unsure {
            Unsure::AfterWait(wait) => Some((*wait, WhyThen::StatusAwaited)),
            Unsure::Again | Unsure::Park => None,
        },
        Outcome::Meant(meant) => {
            let by_table = meant.wait.map(|wait| (wait, WhyThen::ServiceWait));
            by_table.max(meant.retry_after.map(bounded))
        }
    }
}
