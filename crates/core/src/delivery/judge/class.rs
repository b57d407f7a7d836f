//! The kinds of failure, and why a delivery is given up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
