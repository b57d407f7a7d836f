//! Decides what follows from the outcome of an attempt.
//!
//! An [`AttemptOutcome`] is a fact, a [`FailureClass`] says what kind of failure it was, a
//! [`RetryDecision`] says what to do about it. All rules about answers are here and nowhere else.
//! A destination's own [`StatusRules`] override the status table.

use std::time::Duration;

use surehook_types::time::Timestamp;

use super::{
    failure::{DeadReason, FailureClass, ScheduleReason},
    outcome::{AmbiguousPolicy, AttemptFailure, AttemptOutcome, FailureScope, SendOutcome},
    policy::{RetryAfter, RetryPolicy},
    status_rules::{StatusAction, StatusRule, StatusRules},
};

/// Attempts of a delivery so far, including the one that just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptProgress {
    /// All attempts, throttled ones included.
    pub attempts: u32,
    /// How many of them were throttled.
    pub throttled: u32,
    /// Creation time of the delivery: its age is counted from here.
    pub created_at: Timestamp,
}

/// What to do with a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The delivery has arrived.
    Succeeded,
    /// Attempt it again at this time.
    RetryAt {
        /// Earliest time of the next attempt.
        due_at: Timestamp,
        /// The kind of failure.
        class: FailureClass,
        /// Where the time comes from.
        reason: ScheduleReason,
    },
    /// Pause the destination and keep the delivery, due at this time once the destination is
    /// resumed. The class is [`FailureClass::Config`].
    Pause {
        /// Earliest time of the next attempt.
        due_at: Timestamp,
    },
    /// Give up.
    Dead {
        /// Why it is given up.
        reason: DeadReason,
        /// The kind of failure.
        class: FailureClass,
    },
}

/// The settings of a destination that decide about retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryTerms<'a> {
    /// How often and when to retry.
    pub retry: &'a RetryPolicy,
    /// Exceptions from the status table.
    pub rules: &'a StatusRules,
}

/// Throttled attempts that do not count against the policy's maximum.
///
/// A destination that keeps asking to slow down must not lose its events, but one that never stops
/// asking must not keep them alive forever.
pub const FREE_THROTTLES: u32 = 50;

/// A shorter `Retry-After` is raised to this, so that `0` cannot cause a busy loop.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// A longer `Retry-After` is cut to this, so no cool-down is longer.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest cool-down of a lane when the answer does not say how long to wait.
pub(super) const COOL_DOWN_MAX: Duration = Duration::from_secs(60);

/// The kind of failure, or `None` for a success. Call it once per attempt and pass the result to
/// [`decide_retry`] and [`cool_until`].
pub fn classify(outcome: &AttemptOutcome, rules: &StatusRules) -> Option<FailureClass> {
    match outcome {
        AttemptOutcome::Answered { status, retry_after } => match rules.find(*status) {
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
            | AttemptFailure::NoResources
            | AttemptFailure::Interrupted => FailureClass::Transient,
            AttemptFailure::Filter
            | AttemptFailure::Transform
            | AttemptFailure::Unsignable
            | AttemptFailure::Unsendable
            | AttemptFailure::Exit => FailureClass::Permanent,
            AttemptFailure::Tls
            | AttemptFailure::Blocked
            | AttemptFailure::ProxyRefused
            | AttemptFailure::TokenRefused
            | AttemptFailure::NotStarted => FailureClass::Config,
        }),
        AttemptOutcome::Interpreted(outcome) => outcome.class,
    }
}

fn classify_status(status: u16, retry_after: Option<RetryAfter>) -> Option<FailureClass> {
    Some(match status {
        200..=299 => return None,
        429 => FailureClass::Throttled,
        503 if retry_after.is_some() => FailureClass::Throttled,
        // Moved permanently, unauthorized, missing: a person has to fix the settings.
        301 | 308 | 401 | 403 | 404 | 405 | 410 => FailureClass::Config,
        // The server gave up waiting, or asks to try again: the request itself is fine.
        408 | 425 => FailureClass::Transient,
        400..=499 => FailureClass::Permanent,
        _ => FailureClass::Transient,
    })
}

/// Why a permanently refused delivery is dead: the status rule's reason, or by the status table,
/// where some refusals are about the body.
fn permanent_reason(outcome: &AttemptOutcome, rules: &StatusRules) -> DeadReason {
    if let Some(reason) = matching_rule(outcome, rules).and_then(|rule| rule.reason) {
        return reason;
    }
    match outcome {
        AttemptOutcome::Answered { status: 400 | 406 | 411 | 413 | 415 | 422, .. }
        | AttemptOutcome::Failed(
            AttemptFailure::Filter
            | AttemptFailure::Transform
            | AttemptFailure::Unsignable
            | AttemptFailure::Unsendable,
        ) => DeadReason::PayloadError,
        AttemptOutcome::Interpreted(SendOutcome { reason: Some(reason), .. }) => *reason,
        AttemptOutcome::Answered { .. }
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interpreted(_) => DeadReason::Unrecoverable,
    }
}

fn matching_rule<'r>(outcome: &AttemptOutcome, rules: &'r StatusRules) -> Option<&'r StatusRule> {
    match outcome {
        AttemptOutcome::Answered { status, .. } => rules.find(*status),
        AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => None,
    }
}

/// Whether a status rule, or the answer itself, asks to pause the destination until a person has
/// fixed it. Also true when the delivery itself is given up.
pub fn should_pause_destination(outcome: &AttemptOutcome, rules: &StatusRules) -> bool {
    match outcome {
        AttemptOutcome::Interpreted(outcome) => outcome.scope == FailureScope::PauseDestination,
        AttemptOutcome::Answered { .. } | AttemptOutcome::Failed(_) => {
            matching_rule(outcome, rules).is_some_and(|rule| rule.then == StatusAction::Pause)
        }
    }
}

fn spares_destination(outcome: &AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Interpreted(outcome) if outcome.scope.spares_destination())
}

/// Whether the failure means that the settings of the destination are wrong.
pub fn is_destination_misconfigured(outcome: &AttemptOutcome, class: Option<FailureClass>) -> bool {
    class == Some(FailureClass::Config) && !spares_destination(outcome)
}

/// Decides what happens to a delivery after an attempt with this outcome.
///
/// `class` is what [`classify`] returned for it, `roll` a number in `0.0..1.0` for the jitter.
pub fn decide_retry(
    outcome: &AttemptOutcome,
    class: Option<FailureClass>,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    roll: f64,
) -> RetryDecision {
    let backoff = match class {
        None => Duration::ZERO,
        // The delay grows with every attempt, free ones included.
        Some(_) => terms.retry.delay_after(progress.attempts, roll),
    };
    match decide_wait(outcome, class, progress, terms, now, backoff) {
        WaitDecision::Succeeded => RetryDecision::Succeeded,
        WaitDecision::Wait { delay, class, reason } => {
            RetryDecision::RetryAt { due_at: now + delay, class, reason }
        }
        WaitDecision::Pause { delay } => RetryDecision::Pause { due_at: now + delay },
        WaitDecision::Dead { reason, class } => RetryDecision::Dead { reason, class },
    }
}

/// A [`RetryDecision`] that says how long to wait instead of until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitDecision {
    Succeeded,
    Wait { delay: Duration, class: FailureClass, reason: ScheduleReason },
    Pause { delay: Duration },
    Dead { reason: DeadReason, class: FailureClass },
}

/// Decides like [`decide_retry`], with the backoff of the policy as an argument.
pub(super) fn decide_wait(
    outcome: &AttemptOutcome,
    class: Option<FailureClass>,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    backoff: Duration,
) -> WaitDecision {
    let RetryTerms { retry: policy, rules } = terms;
    let Some(class) = class else { return WaitDecision::Succeeded };
    let pauses = should_pause_destination(outcome, rules);
    // A delivery that waits for a person must not run out of attempts or age by waiting.
    let keeps_pending = is_kept_pending(outcome);
    match class {
        FailureClass::Permanent => {
            return WaitDecision::Dead { reason: permanent_reason(outcome, rules), class };
        }
        // A pause is meant to fix the destination without losing what arrives meanwhile.
        FailureClass::Config if pauses || keeps_pending => {}
        FailureClass::Config => {
            return WaitDecision::Dead { reason: DeadReason::InvalidEndpoint, class };
        }
        FailureClass::Ambiguous if ambiguous_policy(outcome) == AmbiguousPolicy::Park => {
            return WaitDecision::Dead { reason: DeadReason::Ambiguous, class };
        }
        FailureClass::Ambiguous | FailureClass::Transient | FailureClass::Throttled => {}
    }
    if *outcome == AttemptOutcome::Failed(AttemptFailure::Interrupted) {
        // Caused by our own shutdown: the next process retries at once.
        let (delay, reason) = (Duration::ZERO, ScheduleReason::Interrupted);
        return WaitDecision::Wait { delay, class, reason };
    }
    let spent = progress.attempts - progress.throttled.min(FREE_THROTTLES).min(progress.attempts);
    if spent >= attempts_max(outcome, policy) && !keeps_pending {
        let is_ambiguous = class == FailureClass::Ambiguous;
        let reason = if is_ambiguous { DeadReason::Ambiguous } else { DeadReason::MaxRetries };
        return WaitDecision::Dead { reason, class };
    }
    let requested = requested_delay(outcome, now).filter(|(delay, _)| *delay >= backoff);
    let (delay, reason) = requested.unwrap_or((backoff, ScheduleReason::Backoff));
    if policy.is_expired(progress.created_at, now + delay) && !keeps_pending {
        return WaitDecision::Dead { reason: DeadReason::Expired, class };
    }
    if pauses { WaitDecision::Pause { delay } } else { WaitDecision::Wait { delay, class, reason } }
}

/// A configuration failure that does not end the delivery.
fn is_kept_pending(outcome: &AttemptOutcome) -> bool {
    matches!(
        outcome,
        AttemptOutcome::Interpreted(SendOutcome {
            class: Some(FailureClass::Config),
            reason: None,
            ..
        })
    )
}

/// What to do about an ambiguous outcome. For webhooks a person decides.
fn ambiguous_policy(outcome: &AttemptOutcome) -> AmbiguousPolicy {
    match outcome {
        AttemptOutcome::Interpreted(outcome) => outcome.on_ambiguous,
        AttemptOutcome::Answered { .. } | AttemptOutcome::Failed(_) => AmbiguousPolicy::Park,
    }
}

fn attempts_max(outcome: &AttemptOutcome, policy: &RetryPolicy) -> u32 {
    let by_policy = policy.attempts_max();
    match outcome {
        AttemptOutcome::Interpreted(SendOutcome { tries: Some(tries), .. }) => {
            by_policy.min(*tries)
        }
        AttemptOutcome::Answered { .. }
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interpreted(_) => by_policy,
    }
}

/// Until when the whole lane must not call the destination, if it was throttled. Applies also when
/// the throttled delivery itself is given up.
///
/// Without an explicit wait the cool-down is a minute at most: the throttled delivery may have to
/// wait for days by now, but the deliveries behind it must not.
pub fn cool_until(
    outcome: &AttemptOutcome,
    class: Option<FailureClass>,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    roll: f64,
) -> Option<Timestamp> {
    let is_throttled = class == Some(FailureClass::Throttled) && !spares_destination(outcome);
    is_throttled.then(|| {
        let backoff = || terms.retry.delay_after(progress.attempts, roll).min(COOL_DOWN_MAX);
        now + requested_delay(outcome, now).map_or_else(backoff, |(delay, _)| delay)
    })
}

/// How long to send nothing to the recipient of a message, if the channel asked for that.
pub fn recipient_backoff(outcome: &AttemptOutcome, now: Timestamp) -> Option<Duration> {
    match outcome {
        AttemptOutcome::Interpreted(SendOutcome { scope: FailureScope::ThisRecipient, .. }) => {
            requested_delay(outcome, now).map(|(delay, _)| delay)
        }
        AttemptOutcome::Answered { .. }
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interpreted(_) => None,
    }
}

/// The delay that the answer asks for, and what it comes from.
fn requested_delay(outcome: &AttemptOutcome, now: Timestamp) -> Option<(Duration, ScheduleReason)> {
    let bounded = |requested: RetryAfter| {
        let delay = requested.delay_from(now).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
        (delay, ScheduleReason::RetryAfter)
    };
    match outcome {
        AttemptOutcome::Answered { retry_after, .. } => retry_after.map(bounded),
        AttemptOutcome::Failed(_) => None,
        AttemptOutcome::Interpreted(SendOutcome {
            class: Some(FailureClass::Ambiguous),
            on_ambiguous,
            ..
        }) => match on_ambiguous {
            AmbiguousPolicy::RetryAfterWait(wait) => Some((*wait, ScheduleReason::StatusAwaited)),
            AmbiguousPolicy::Retry | AmbiguousPolicy::Park => None,
        },
        AttemptOutcome::Interpreted(outcome) => {
            let by_table = outcome.wait.map(|wait| (wait, ScheduleReason::ServiceWait));
            by_table.max(outcome.retry_after.map(bounded))
        }
    }
}
