//! Failure classes, the reasons for giving up, and the reasons for the time of the next attempt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of failure an attempt was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
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

impl FailureClass {
    /// Every class.
    pub const ALL: [Self; 5] =
        [Self::Transient, Self::Throttled, Self::Permanent, Self::Config, Self::Ambiguous];

    /// The class that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
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
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// What the time of the next attempt comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleReason {
    /// The retry policy: its delay after so many attempts, jitter included.
    Backoff,
    /// The destination asked for it with `Retry-After`.
    RetryAfter,
    /// What the service answered means that it wants to be left alone for so long.
    ServiceWait,
    /// Nobody knows whether it arrived, and until then a status may tell.
    StatusAwaited,
    /// The destination is paused for what it answered, and has to be resumed before.
    Paused,
    /// Others wait in line behind it, so that it is not given up.
    KeepsOrder,
    /// The gateway stopped during the attempt.
    Interrupted,
    /// A status that came during the attempt says that it failed, and when to try again.
    StatusFailed,
}

impl ScheduleReason {
    /// Every one.
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

    /// The word for it.
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

    /// The one that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }

    /// The same for people, of the attempt with this number.
    pub fn text(self, number: u32) -> String {
        let text = match self {
            Self::Backoff => {
                return format!("the retry policy's delay after attempt {number}, with its jitter");
            }
            Self::RetryAfter => "the destination asked for it with Retry-After",
            Self::ServiceWait => "the service wants to be left alone for so long",
            Self::StatusAwaited => "until then a status may tell whether it arrived",
            Self::Paused => "the destination is paused for this, and has to be resumed before",
            Self::KeepsOrder => "others wait in line behind it, so it is not given up",
            Self::Interrupted => "the gateway stopped during the attempt",
            Self::StatusFailed => "a status says that it failed and when to try again",
        };
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_has_one_word_and_back_and_the_same_in_json() {
        for why in ScheduleReason::ALL {
            assert_eq!(ScheduleReason::parse(why.as_str()), Some(why));
            assert_eq!(serde_json::to_value(why).unwrap(), why.as_str());
            assert!(!why.text(3).is_empty());
        }
        assert_eq!(ScheduleReason::parse("whim"), None);
    }
}
