//! Whether and when to try again: retry policies, failure classes, rate limits, circuit breakers.
//!
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod budget;
pub mod circuit;
mod classifier;
mod decide;
mod failure;
#[cfg(feature = "tower")]
mod layer;
mod outcome;
mod policy;
pub mod rate;
mod retrier;
mod status_rules;
#[cfg(any(feature = "blocking", feature = "tokio"))]
mod system;
#[cfg(test)]
mod tests;

#[cfg(feature = "tower")]
pub use self::layer::{RetryLayer, RetryService};
#[cfg(feature = "blocking")]
pub use self::system::{ThreadSleeper, retry_blocking};
#[cfg(feature = "tokio")]
pub use self::system::{TokioSleeper, retry};
pub use self::{
    budget::{RetryBudget, RetryBudgetConfig, RetryBudgetError, RetryPermit},
    classifier::{
        AttemptClass, Classify, ErrorClassifier, EveryErrorClassifier, HttpClassifier, on_error,
    },
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
    retrier::{
        AttemptContext, BlockingSleeper, Retrier, RetryError, RetryEvent, RetryReport,
        RetrySummary, Sleeper, StopReason,
    },
    status_rules::{
        STATUS_RULES_MAX, StatusAction, StatusRange, StatusRule, StatusRuleError, StatusRules,
    },
};
