//! Failure classes, the reasons for giving up, and the reasons for the time of the next attempt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// May succeed later.
    Transient,
    /// The destination asks to slow down.
    Throttled,
    /// The destination will never accept this event.
    Permanent,
    /// The destination accepts no event until its settings are fixed.
    Config,
    /// It is unknown whether the event arrived.
    Ambiguous,
}

impl FailureClass {
    pub const ALL: [Self; 5] =
        [Self::Transient, Self::Throttled, Self::Permanent, Self::Config, Self::Ambiguous];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

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
    /// The retry policy's attempts are used up.
    MaxRetries,
    /// The settings of the destination are wrong.
    InvalidEndpoint,
    /// The destination rejects this body.
    PayloadError,
    /// The destination rejects the event permanently.
    Unrecoverable,
    /// Older than the retry policy allows.
    Expired,
    /// It is unknown whether it arrived, and it must not be sent twice.
    Ambiguous,
}

impl DeadReason {
    pub const ALL: [Self; 6] = [
        Self::MaxRetries,
        Self::InvalidEndpoint,
        Self::PayloadError,
        Self::Unrecoverable,
        Self::Expired,
        Self::Ambiguous,
    ];

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

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// Where the time of the next attempt comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleReason {
    /// The backoff of the retry policy, jitter included.
    Backoff,
    /// The destination sent `Retry-After`.
    RetryAfter,
    /// The service asked to back off for this long.
    ServiceWait,
    /// It is unknown whether it arrived; a status update may tell until then.
    StatusAwaited,
    /// The answer paused the destination; it has to be resumed first.
    Paused,
    /// Later deliveries of its ordering key wait for it, so it is not given up.
    KeepsOrder,
    /// The gateway shut down during the attempt.
    Interrupted,
    /// A status update during the attempt said that it failed and when to retry.
    StatusFailed,
}

impl ScheduleReason {
    pub const ALL: [Self; 8] = [
        Self::Backoff,
        Self::RetryAfter,
        Self::ServiceWait,
        Self::StatusAwaited,
        Self::Paused,
        Self::KeepsOrder,
        Self::Interrupted,
        Self::StatusFailed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::RetryAfter => "retry_after",
            Self::ServiceWait => "service_wait",
            Self::StatusAwaited => "status_awaited",
            Self::Paused => "paused",
            Self::KeepsOrder => "keeps_order",
            Self::Interrupted => "interrupted",
            Self::StatusFailed => "status_failed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Explanation for people, for the attempt with this number.
    pub fn describe(self, number: u32) -> String {
        let text = match self {
            Self::Backoff => {
                return format!("retry policy backoff after attempt {number}");
            }
            Self::RetryAfter => "the destination sent Retry-After",
            Self::ServiceWait => "the service asked us to back off",
            Self::StatusAwaited => "waiting for a status update",
            Self::Paused => "the destination is paused; resume it first",
            Self::KeepsOrder => "later deliveries of its ordering key wait for it",
            Self::Interrupted => "the gateway shut down during the attempt",
            Self::StatusFailed => "a status update reported a failure",
        };
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schedule_reason_parses_from_its_name_and_serializes_to_it() {
        for reason in ScheduleReason::ALL {
            assert_eq!(ScheduleReason::parse(reason.as_str()), Some(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            assert!(!reason.describe(3).is_empty());
        }
        assert_eq!(ScheduleReason::parse("whim"), None);
    }
}
