//! Whether and when to try again: retry policies, failure classes, rate limits, circuit breakers.
//!
//! Pure and without knowledge of deliveries or stores: the time and a random number are arguments.
//! A lane calls [`classify`] once per attempt and passes the class to [`decide_retry`]. A destination may
//! override the status table with its own [`StatusRules`]. [`rate`] limits attempts over time, and
//! [`circuit`] stops calling a destination that keeps failing.

pub mod circuit;
mod decide;
mod failure;
mod outcome;
mod policy;
pub mod rate;
mod status_rules;
#[cfg(test)]
mod tests;

pub use self::{
    decide::{
        AttemptProgress, FREE_THROTTLES, RETRY_AFTER_MAX, RetryDecision, RetryTerms, classify,
        cool_until, decide_retry, is_destination_misconfigured, recipient_backoff,
        should_pause_destination,
    },
    failure::{DeadReason, FailureClass, ScheduleReason},
    outcome::{AmbiguousPolicy, AttemptFailure, AttemptOutcome, FailureScope, SendOutcome},
    policy::{
        CustomRetrySpec, Jitter, JitterSpec, RetryAfter, RetryPolicy, RetryPolicyBuilder,
        RetrySpec, RetrySpecError,
    },
    status_rules::{
        STATUS_RULES_MAX, StatusAction, StatusRange, StatusRule, StatusRuleError, StatusRules,
    },
};
