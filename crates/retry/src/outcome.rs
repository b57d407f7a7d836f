//! The outcome of an attempt: an HTTP status, a transport failure, or a meaning that a channel
//! derived from its own protocol.

use std::time::Duration;

use surehook_types::string_enum;

use super::{DeadReason, FailureClass, RetryAfter};

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// An HTTP answer.
    Answered {
        /// HTTP status.
        status: u16,
        /// Value of the header `Retry-After`.
        retry_after: Option<RetryAfter>,
    },
    /// There was no complete answer.
    Failed(AttemptFailure),
    /// The destination speaks its own protocol, where an HTTP status alone would mislead: the channel
    /// says what the answer means.
    Interpreted(SendOutcome),
}

impl AttemptOutcome {
    /// HTTP status, if there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed(_) => None,
            Self::Interpreted(meant) => meant.status,
        }
    }

    /// Why there was no usable answer.
    pub const fn failure(&self) -> Option<AttemptFailure> {
        match self {
            Self::Answered { .. } => None,
            Self::Failed(failure) => Some(*failure),
            Self::Interpreted(meant) => meant.failure,
        }
    }
}

/// What an answer means, as interpreted by a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOutcome {
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Why there was no usable answer.
    pub failure: Option<AttemptFailure>,
    /// `None` is a success.
    pub class: Option<FailureClass>,
    /// Minimum wait before the next attempt.
    pub wait: Option<Duration>,
    /// When the other side said to come back.
    pub retry_after: Option<RetryAfter>,
    /// Maximum number of attempts that make sense, if lower than the policy's.
    pub tries: Option<u32>,
    /// Why the delivery is dead, where the class alone does not say it. A `config` failure without a
    /// reason keeps the delivery pending.
    pub reason: Option<DeadReason>,
    /// What the failure affects beyond its delivery.
    pub scope: FailureScope,
    /// What to do about [`FailureClass::Ambiguous`].
    pub on_ambiguous: AmbiguousPolicy,
}

impl SendOutcome {
    /// An outcome with nothing but its class.
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

/// What a failure affects beyond its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// As the class implies.
    ByClass,
    /// Only this delivery; others may succeed.
    ThisDelivery,
    /// The recipient of the message: nothing is sent to them for a while.
    ThisRecipient,
    /// The destination: nothing is sent to it for a while.
    CoolDownDestination,
    /// The destination: it is paused until a person has fixed it.
    PauseDestination,
}

impl FailureScope {
    pub(super) const fn spares_destination(self) -> bool {
        matches!(self, Self::ThisDelivery | Self::ThisRecipient)
    }
}

/// What to do when it is unknown whether a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbiguousPolicy {
    /// Retry: sending twice does no harm, or the destination's settings accept it.
    Retry,
    /// Wait this long for a status update, then retry.
    RetryAfterWait(Duration),
    /// Give it up as `ambiguous`, for a person to decide.
    Park,
}

string_enum! {
    /// Why an attempt got no usable answer.
    pub enum AttemptFailure {
        /// The name did not resolve.
        Dns = "dns",
        /// Connection refused.
        Refused = "refused",
        /// Network or host unreachable.
        Unreachable = "unreachable",
        /// The connection was reset or closed.
        Reset = "reset",
        /// The attempt timed out.
        Timeout = "timeout",
        /// The certificate or the TLS handshake was not acceptable.
        Tls = "tls",
        /// The address policy forbids the address.
        Blocked = "blocked",
        /// The answer was not valid HTTP.
        Protocol = "protocol",
        /// The proxy could not forward the request; may work later.
        Proxy = "proxy",
        /// The proxy rejected the request.
        ProxyRefused = "proxy_refused",
        /// The token endpoint failed; may work later.
        Token = "token",
        /// The token endpoint rejected the client.
        TokenRefused = "token_refused",
        /// The gateway shut down during the attempt.
        Interrupted = "interrupted",
        /// The gateway itself had no free file, socket or memory; nothing was sent. The delivery is
        /// postponed and the attempt does not count.
        NoResources = "no_resources",
        /// The route's filter failed; nothing was sent.
        Filter = "filter",
        /// The route's transform failed; nothing was sent.
        Transform = "transform",
        /// The request could not be signed as `sign_as` requires; nothing was sent.
        Unsignable = "unsignable",
        /// The channel cannot send this message; nothing was sent.
        Unsendable = "unsendable",
        /// The program could not be started or is not allowed.
        NotStarted = "not_started",
        /// The program exited with an error.
        Exit = "exit",
        /// A destination other than HTTP answered with an error.
        ErrorReply = "error_reply",
    }
}

impl AttemptFailure {
    /// Whether the cause is on our side, so that it says nothing about the destination: nothing was
    /// sent, or the answer was not awaited.
    pub const fn is_local(self) -> bool {
        matches!(
            self,
            Self::Interrupted
                | Self::NoResources
                | Self::Filter
                | Self::Transform
                | Self::Unsignable
                | Self::Unsendable
        )
    }
}
