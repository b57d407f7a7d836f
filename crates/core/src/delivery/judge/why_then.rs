//! Why the next attempt is made when it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the time of the next attempt comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WhyThen {
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

impl WhyThen {
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
    pub fn from_word(word: &str) -> Option<Self> {
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
        for why in WhyThen::ALL {
            assert_eq!(WhyThen::from_word(why.as_str()), Some(why));
            assert_eq!(serde_json::to_value(why).unwrap(), why.as_str());
            assert!(!why.text(3).is_empty());
        }
        assert_eq!(WhyThen::from_word("whim"), None);
    }
}
