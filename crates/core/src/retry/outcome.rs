//! What came of an attempt, as a fact or in the words of whoever knows the protocol.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeadReason, FailureClass, RetryAfter};

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The destination answered.
    Answered { status: u16, retry_after: Option<RetryAfter> },
    /// There was no whole answer.
    Failed(AttemptFailure),
    /// The destination speaks a protocol of its own, in which a status alone would mislead: somebody
    /// who knows it says what the answer means.
    Interpreted(SendOutcome),
}

impl AttemptOutcome {
    /// The status of the answer, if there was one.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed(_) => None,
            Self::Interpreted(meant) => meant.status,
        }
    }

    /// Why there was no answer.
    pub const fn failure(&self) -> Option<AttemptFailure> {
        match self {
            Self::Answered { .. } => None,
            Self::Failed(failure) => Some(*failure),
            Self::Interpreted(meant) => meant.failure,
        }
    }
}

/// What an answer means, in our words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOutcome {
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why there was none.
    pub failure: Option<AttemptFailure>,
    /// What kind of failure it was; `None` is a success.
    pub class: Option<FailureClass>,
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
    pub scope: FailureScope,
    /// What to do if the class is `ambiguous`.
    pub on_ambiguous: AmbiguousPolicy,
}

impl SendOutcome {
    /// A meaning that says nothing but its class.
    pub const fn of(class: Option<FailureClass>) -> Self {
        Self {
            status: None,
            failure: None,
            class,
            wait: None,
            retry_after: None,
            tries: None,
            reason: None,
            scope: FailureScope::ByClass,
            on_ambiguous: AmbiguousPolicy::Retry,
        }
    }
}

/// What an answer says about its destination as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// What its class says about it.
    ByClass,
    /// Nothing: others may well pass.
    ThisDelivery,
    /// Nothing about it, but this recipient wants to be left alone for a while.
    ThisRecipient,
    /// It wants to be left alone for a while.
    CoolDownDestination,
    /// Nothing passes until somebody has mended it.
    PauseDestination,
}

impl FailureScope {
    pub(super) const fn spares_destination(self) -> bool {
        matches!(self, Self::ThisDelivery | Self::ThisRecipient)
    }
}

/// What to do when nobody knows whether something arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbiguousPolicy {
    /// Try again: it does no harm, or the destination's settings want it.
    Retry,
    /// Wait so long for a word of it, and only then try again.
    RetryAfterWait(Duration),
    /// Leave it to a person.
    Park,
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptFailure {
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

impl AttemptFailure {
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
    pub fn parse(word: &str) -> Option<Self> {
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
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Interrupted | Self::Transform | Self::Unsignable | Self::Unsendable)
    }
}
