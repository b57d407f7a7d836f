//! Synchronous sources: the sender waits for one destination and gets its result.
//!
//! The event is stored in any case, and the gateway delivers it. A "retry" response never means that it
//! was lost: the sender's retry finds the same delivery by its key and waits for it
//! (`IngestStore::join`), so nothing is delivered twice.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    name::Name,
    time::{HumanDuration, Timestamp},
};

use crate::store::NextStep;

/// Default waiting time of a sender. Most providers give up after 10 to 30 s.
pub const DEFAULT_DEADLINE: HumanDuration = HumanDuration::from_secs(10);
/// Longest waiting time; the connection stays open meanwhile.
const DEADLINE_MAX: Duration = Duration::from_secs(120);

/// What the sender gets when the deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncTimeoutPolicy {
    /// 500, so that the sender retries.
    #[default]
    Retry,
    /// 200: the gateway delivers the event in the background.
    Accepted,
}

/// Synchronous delivery of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncSpec {
    /// The destination the sender waits for; there must be a route to it.
    pub destination: Name,
    /// How long the sender waits.
    #[serde(default = "default_deadline")]
    pub deadline: HumanDuration,
    /// What the sender gets when the deadline passes.
    #[serde(default)]
    pub on_timeout: SyncTimeoutPolicy,
}

fn default_deadline() -> HumanDuration {
    DEFAULT_DEADLINE
}

impl SyncSpec {
    pub fn is_within_bounds(&self) -> bool {
        (Duration::from_millis(100)..=DEADLINE_MAX).contains(&self.deadline.0)
    }
}

/// The result of the awaited attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResult {
    pub next: NextStep,
    pub class: Option<FailureClass>,
    /// The stored part of the destination's response.
    pub response: Vec<u8>,
}

/// The response to a waiting sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncResponse {
    Success {
        /// The destination's response, if it is JSON and completely stored.
        result: Option<String>,
    },
    /// Nothing was done, and a retry would not change that.
    Skipped {
        /// Reason code.
        reason: String,
        /// The destination's response, if it is JSON and completely stored.
        result: Option<String>,
    },
    /// The sender should slow down.
    Throttled {
        /// In seconds.
        retry_after: u64,
    },
    /// The sender should retry.
    Retry {
        /// Reason code.
        reason: &'static str,
    },
    /// The event is stored; the gateway delivers it in the background.
    Accepted,
}

impl SyncResponse {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Success { .. } => "success",
            Self::Skipped { .. } => "skipped",
            Self::Throttled { .. } => "rate_limited",
            Self::Retry { .. } => "error",
            Self::Accepted => "accepted",
        }
    }

    /// The detail stored in the timeline; the result itself is stored with the attempt.
    pub fn detail(&self) -> Value {
        let status = self.as_str();
        match self {
            Self::Success { .. } | Self::Accepted => json!({ "answer": status }),
            Self::Skipped { reason, .. } => json!({ "answer": status, "reason": reason }),
            Self::Throttled { retry_after } => {
                json!({ "answer": status, "retry_after": retry_after })
            }
            Self::Retry { reason } => json!({ "answer": status, "reason": reason }),
        }
    }

    /// Combines the responses for two events of one request. If one event must be retried, the sender
    /// retries the whole request; the other event is then recognized by its key.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Throttled { retry_after: a }, Self::Throttled { retry_after: b }) => {
                Self::Throttled { retry_after: a.max(b) }
            }
            (throttled @ Self::Throttled { .. }, _) | (_, throttled @ Self::Throttled { .. }) => {
                throttled
            }
            (retry @ Self::Retry { .. }, _) | (_, retry @ Self::Retry { .. }) => retry,
            (Self::Accepted, _) | (_, Self::Accepted) => Self::Accepted,
            (Self::Skipped { reason, .. }, Self::Skipped { .. }) => {
                Self::Skipped { reason, result: None }
            }
            // Several results cannot be combined.
            (Self::Success { .. } | Self::Skipped { .. }, _) => Self::Success { result: None },
        }
    }

    pub fn throttled(until: Timestamp, now: Timestamp) -> Self {
        let millis = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
        Self::Throttled { retry_after: millis.div_ceil(1000).max(1) }
    }

    /// The response to a sender without a key. Its retry could not be recognized and would be delivered
    /// twice, so it is not asked to retry.
    pub fn for_sender_without_key(self) -> Self {
        match self {
            Self::Throttled { .. } | Self::Retry { .. } => Self::Accepted,
            Self::Success { .. } | Self::Skipped { .. } | Self::Accepted => self,
        }
    }
}

impl SyncResult {
    /// The response to the sender. `can_revive`: whether a retry would revive a dead delivery.
    pub fn to_response(&self, can_revive: bool, now: Timestamp) -> SyncResponse {
        match self.next {
            NextStep::Succeeded => match is_skipped_response(&self.response) {
                true => SyncResponse::Skipped {
                    reason: "by_destination".to_owned(),
                    result: self.result(),
                },
                false => SyncResponse::Success { result: self.result() },
            },
            NextStep::RetryAt(due_at) if self.class == Some(FailureClass::Throttled) => {
                SyncResponse::throttled(due_at, now)
            }
            NextStep::RetryAt(_) => SyncResponse::Retry { reason: "failed" },
            NextStep::Dead(reason) if can_revive && is_revivable(reason) => {
                SyncResponse::Retry { reason: reason.as_str() }
            }
            NextStep::Dead(reason) => {
                SyncResponse::Skipped { reason: reason.as_str().to_owned(), result: None }
            }
        }
    }

    /// The response body, unchanged, if it is valid JSON.
    fn result(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.response).ok()?.trim();
        serde_json::from_str::<IgnoredAny>(text).ok()?;
        Some(text.to_owned())
    }
}

/// Whether a destination answers that it did nothing: `{"status":"skipped"}` or `{"skipped":true}`,
/// with any other fields.
pub fn is_skipped_response(response: &[u8]) -> bool {
    let Ok(json) = serde_json::from_slice::<Value>(response) else {
        return false;
    };
    json["status"] == "skipped" || json["skipped"] == true
}

/// Whether a duplicate may revive a delivery that is dead for this reason.
///
/// Not if the destination refused this event: its answer is the final result. Nor if the event may have
/// arrived: only a user may send it again.
pub const fn is_revivable(reason: DeadReason) -> bool {
    match reason {
        DeadReason::MaxRetries | DeadReason::InvalidEndpoint | DeadReason::Expired => true,
        DeadReason::PayloadError | DeadReason::Unrecoverable | DeadReason::Ambiguous => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn result(next: NextStep, class: Option<FailureClass>, response: &str) -> SyncResult {
        SyncResult { next, class, response: response.as_bytes().to_vec() }
    }

    #[test]
    fn each_attempt_result_has_its_response() {
        use FailureClass::{Ambiguous, Permanent, Throttled, Transient};
        use NextStep::{Dead, Succeeded};
        let success = |text: &str| SyncResponse::Success { result: Some(text.to_owned()) };
        let later = NextStep::RetryAt(NOW + Duration::from_millis(2100));
        let skipped =
            |reason: &str| SyncResponse::Skipped { reason: reason.to_owned(), result: None };
        let cases = [
            (result(Succeeded, None, ""), SyncResponse::Success { result: None }),
            (result(Succeeded, None, "thanks"), SyncResponse::Success { result: None }),
            (
                result(Succeeded, None, " {\"id\":9007199254740993}\n"),
                success("{\"id\":9007199254740993}"),
            ),
            (result(Succeeded, None, "{\"skipped\":false}"), success("{\"skipped\":false}")),
            (
                result(Succeeded, None, r#"{"status":"skipped"}"#),
                SyncResponse::Skipped {
                    reason: "by_destination".to_owned(),
                    result: Some(r#"{"status":"skipped"}"#.to_owned()),
                },
            ),
            (result(later, Some(Throttled), ""), SyncResponse::Throttled { retry_after: 3 }),
            (result(later, Some(Transient), ""), SyncResponse::Retry { reason: "failed" }),
            (
                result(Dead(DeadReason::MaxRetries), Some(Transient), ""),
                SyncResponse::Retry { reason: "max_retries" },
            ),
            (
                result(Dead(DeadReason::PayloadError), Some(Permanent), "{}"),
                skipped("payload_error"),
            ),
            (result(Dead(DeadReason::Ambiguous), Some(Ambiguous), ""), skipped("ambiguous")),
        ];
        for (result, expected) in cases {
            assert_eq!(result.to_response(true, NOW), expected, "{result:?}");
        }
        let given_up = result(Dead(DeadReason::MaxRetries), Some(Transient), "");
        assert_eq!(
            given_up.to_response(false, NOW),
            skipped("max_retries"),
            "a retry would not revive it"
        );
    }

    #[test]
    fn sender_without_key_is_never_asked_to_retry() {
        let success = SyncResponse::Success { result: None };
        assert_eq!(success.clone().for_sender_without_key(), success);
        assert_eq!(
            SyncResponse::Retry { reason: "failed" }.for_sender_without_key(),
            SyncResponse::Accepted
        );
        let throttled = SyncResponse::throttled(NOW, NOW);
        assert_eq!(throttled, SyncResponse::Throttled { retry_after: 1 });
        assert_eq!(throttled.for_sender_without_key(), SyncResponse::Accepted);
    }
}
