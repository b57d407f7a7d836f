//! What follows from the outcome of an attempt.
//!
//! An [`AttemptOutcome`] is a fact, a [`FailureClass`] is what kind of failure it was, a [`RetryDecision`] is what we
//! do about it. All rules of the failure table stand here and nowhere else. A destination may
//! have rules of its own for single statuses ([`StatusRules`]); they come before the table.

use std::time::Duration;

use super::{
    failure::{DeadReason, FailureClass, ScheduleReason},
    outcome::{AmbiguousPolicy, AttemptFailure, AttemptOutcome, FailureScope, SendOutcome},
    policy::{RetryAfter, RetryPolicy},
    status_rules::{StatusAction, StatusRule, StatusRules},
};
use crate::time::Timestamp;

/// How far a delivery has come when its latest attempt ended, that attempt included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptProgress {
    /// Attempts made.
    pub attempts: u32,
    /// How many of them the destination throttled.
    pub throttled: u32,
    /// When the delivery was created: its age is counted from here.
    pub created_at: Timestamp,
}

/// What we do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Done.
    Succeeded,
    /// Try again then.
    RetryAt { due_at: Timestamp, class: FailureClass, why: ScheduleReason },
    /// Try again then, if by then the destination may be called: its rules ask for a pause. The
    /// class is [`FailureClass::Config`].
    Pause { due_at: Timestamp },
    /// Give up.
    Dead { reason: DeadReason, class: FailureClass },
}

/// What a destination agreed to: how often it is tried, and what its answers mean.
#[derive(Clone, Copy, Debug)]
pub struct RetryTerms<'a> {
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
pub(super) const COOL_DOWN_MAX: Duration = Duration::from_secs(60);

/// The kind of failure, or `None` for a success.
pub fn classify(outcome: &AttemptOutcome, rules: &StatusRules) -> Option<FailureClass> {
    match outcome {
        AttemptOutcome::Answered { status, retry_after } => match rules.about(*status) {
            Some(rule) => rule.then.class(),
            None => classify_status(*status, *retry_after),
        },
        AttemptOutcome::Failed(failure) => Some(match failure {
            AttemptFailure::Dns
            | AttemptFailure::Refused
            | AttemptFailure::Unreachable
            | AttemptFailure::Reset
            | AttemptFailure::Timeout
            | AttemptFailure::Protocol
            | AttemptFailure::Proxy
            | AttemptFailure::Token
            | AttemptFailure::ErrorReply
            | AttemptFailure::Interrupted => FailureClass::Transient,
            AttemptFailure::Transform
            | AttemptFailure::Unsignable
            | AttemptFailure::Unsendable
            | AttemptFailure::Exit => FailureClass::Permanent,
            AttemptFailure::Tls
            | AttemptFailure::Blocked
            | AttemptFailure::ProxyRefused
            | AttemptFailure::TokenRefused
            | AttemptFailure::NotStarted => FailureClass::Config,
        }),
        AttemptOutcome::Interpreted(meant) => meant.class,
    }
}

fn classify_status(status: u16, retry_after: Option<RetryAfter>) -> Option<FailureClass> {
    Some(match status {
        200..=299 => return None,
        429 => FailureClass::Throttled,
        503 if retry_after.is_some() => FailureClass::Throttled,
        // Moved for good, not allowed, not there: settings that somebody must mend.
        301 | 308 | 401 | 403 | 404 | 405 | 410 => FailureClass::Config,
        // The server gave up waiting, or asks to try again: the request itself is fine.
        408 | 425 => FailureClass::Transient,
        400..=499 => FailureClass::Permanent,
        _ => FailureClass::Transient,
    })
}

/// Why a delivery is dead after a permanent refusal: what the rule says, or by the table, where
/// some of the refusals are about the body.
fn permanent_reason(outcome: &AttemptOutcome, rules: &StatusRules) -> DeadReason {
    if let Some(reason) = rule_about(outcome, rules).and_then(|rule| rule.reason) {
        return reason;
    }
    match outcome {
        AttemptOutcome::Answered { status: 400 | 406 | 411 | 413 | 415 | 422, .. }
        | AttemptOutcome::Failed(
            AttemptFailure::Transform | AttemptFailure::Unsignable | AttemptFailure::Unsendable,
        ) => DeadReason::PayloadError,
        AttemptOutcome::Interpreted(SendOutcome { reason: Some(reason), .. }) => *reason,
        AttemptOutcome::Answered { .. }
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interpreted(_) => DeadReason::Unrecoverable,
    }
}

fn rule_about<'r>(outcome: &AttemptOutcome, rules: &'r StatusRules) -> Option<&'r StatusRule> {
    match outcome {
        AttemptOutcome::Answered { status, .. } => rules.about(*status),
        AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => None,
    }
}

/// Whether a rule, or the answer itself, asks to leave the destination alone until somebody has looked
/// at it. That holds also when the delivery itself is given up.
pub fn should_pause_destination(outcome: &AttemptOutcome, rules: &StatusRules) -> bool {
    match outcome {
        AttemptOutcome::Interpreted(meant) => meant.affects == FailureScope::StopsAll,
        AttemptOutcome::Answered { .. } | AttemptOutcome::Failed(_) => {
            rule_about(outcome, rules).is_some_and(|rule| rule.then == StatusAction::Pause)
        }
    }
}

fn spares_others(outcome: &AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Interpreted(meant) if meant.affects.spares_others())
}

/// Whether it speaks against the settings of its destination.
pub fn is_destination_misconfigured(outcome: &AttemptOutcome, class: Option<FailureClass>) -> bool {
    let only_this = spares_others(outcome);
    class == Some(FailureClass::Config) && !only_this
}

/// Decides what happens to a delivery whose attempt came to `outcome`.
///
/// `roll` is a number in `0.0..1.0` for the jitter.
pub fn decide_retry(
    outcome: &AttemptOutcome,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    roll: f64,
) -> RetryDecision {
    let RetryTerms { retry: policy, rules } = terms;
    let Some(class) = classify(outcome, rules) else { return RetryDecision::Succeeded };
    let pauses = should_pause_destination(outcome, rules);
    match class {
        FailureClass::Permanent => {
            return RetryDecision::Dead { reason: permanent_reason(outcome, rules), class };
        }
        // Whoever asks for a pause wants to mend it, not to lose what comes meanwhile.
        FailureClass::Config if pauses => {}
        FailureClass::Config if stays_owed(outcome) => {}
        FailureClass::Config => {
            return RetryDecision::Dead { reason: DeadReason::InvalidEndpoint, class };
        }
        FailureClass::Ambiguous if unsure(outcome) == AmbiguousPolicy::Park => {
            return RetryDecision::Dead { reason: DeadReason::Ambiguous, class };
        }
        FailureClass::Ambiguous | FailureClass::Transient | FailureClass::Throttled => {}
    }
    if *outcome == AttemptOutcome::Failed(AttemptFailure::Interrupted) {
        // Our own doing: the next process tries at once.
        return RetryDecision::RetryAt { due_at: now, class, why: ScheduleReason::Interrupted };
    }
    let spent = progress.attempts - progress.throttled.min(FREE_THROTTLES).min(progress.attempts);
    // What waits for somebody to mend something must not be used up by waiting, nor grow too old.
    let stays_owed = stays_owed(outcome);
    if spent >= attempts_max(outcome, policy) && !stays_owed {
        let is_unsure = class == FailureClass::Ambiguous;
        let reason = if is_unsure { DeadReason::Ambiguous } else { DeadReason::MaxRetries };
        return RetryDecision::Dead { reason, class };
    }
    // The delay grows with every attempt, also with those that were free.
    let delay = policy.delay_after(progress.attempts, roll);
    let asked = asked(outcome, now).filter(|(asked, _)| *asked >= delay);
    let (delay, why) = asked.unwrap_or((delay, ScheduleReason::Backoff));
    let due_at = now + delay;
    if policy.is_too_old(progress.created_at, due_at) && !stays_owed {
        return RetryDecision::Dead { reason: DeadReason::Expired, class };
    }
    if pauses {
        RetryDecision::Pause { due_at }
    } else {
        RetryDecision::RetryAt { due_at, class, why }
    }
}

/// A failure of the settings that does not end the delivery.
fn stays_owed(outcome: &AttemptOutcome) -> bool {
    matches!(
        outcome,
        AttemptOutcome::Interpreted(SendOutcome {
            class: Some(FailureClass::Config),
            reason: None,
            ..
        })
    )
}

/// What to do when nobody knows. A webhook is left to a person.
fn unsure(outcome: &AttemptOutcome) -> AmbiguousPolicy {
    match outcome {
        AttemptOutcome::Interpreted(meant) => meant.unsure,
        AttemptOutcome::Answered { .. } | AttemptOutcome::Failed(_) => AmbiguousPolicy::Park,
    }
}

fn attempts_max(outcome: &AttemptOutcome, policy: &RetryPolicy) -> u32 {
    let most = policy.attempts_max();
    match outcome {
        AttemptOutcome::Interpreted(SendOutcome { tries: Some(tries), .. }) => most.min(*tries),
        AttemptOutcome::Answered { .. }
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interpreted(_) => most,
    }
}

/// Until when the whole lane must leave the destination alone, if it asked for that. It does so
/// also when the delivery that was refused is given up.
///
/// One that does not say for how long is left alone for a minute at most: the delivery may have to
/// wait for days by now, but what waits behind it has done nothing.
pub fn cool_until(
    outcome: &AttemptOutcome,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    roll: f64,
) -> Option<Timestamp> {
    let asked = || asked_delay(outcome, now);
    let only_this = spares_others(outcome);
    let is_throttled = classify(outcome, terms.rules) == Some(FailureClass::Throttled);
    (is_throttled && !only_this).then(|| {
        let unasked = || terms.retry.delay_after(progress.attempts, roll).min(COOL_DOWN_MAX);
        now + asked().unwrap_or_else(unasked)
    })
}

/// How long the recipient of a message must be left alone, if the service asked for that.
pub fn recipient_backoff(outcome: &AttemptOutcome, now: Timestamp) -> Option<Duration> {
    match outcome {
        AttemptOutcome::Interpreted(SendOutcome {
            affects: FailureScope::ThisRecipient, ..
        }) => asked_delay(outcome, now),
        AttemptOutcome::Answered { .. }
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interpreted(_) => None,
    }
}

fn asked_delay(outcome: &AttemptOutcome, now: Timestamp) -> Option<Duration> {
    asked(outcome, now).map(|(delay, _)| delay)
}

/// For how long it should be left alone, and who says so.
fn asked(outcome: &AttemptOutcome, now: Timestamp) -> Option<(Duration, ScheduleReason)> {
    let bounded = |asked: RetryAfter| {
        (asked.delay_from(now).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX), ScheduleReason::RetryAfter)
    };
    match outcome {
        AttemptOutcome::Answered { retry_after, .. } => retry_after.map(bounded),
        AttemptOutcome::Failed(_) => None,
        AttemptOutcome::Interpreted(SendOutcome {
            class: Some(FailureClass::Ambiguous),
            unsure,
            ..
        }) => match unsure {
            AmbiguousPolicy::AfterWait(wait) => Some((*wait, ScheduleReason::StatusAwaited)),
            AmbiguousPolicy::Again | AmbiguousPolicy::Park => None,
        },
        AttemptOutcome::Interpreted(meant) => {
            let by_table = meant.wait.map(|wait| (wait, ScheduleReason::ServiceWait));
            by_table.max(meant.retry_after.map(bounded))
        }
    }
}
