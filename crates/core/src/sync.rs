//! Synchronous sources: the sender waits for one destination and is told what came of it.
//!
//! Whatever the sender is told, the event is stored and its delivery is ours. So "please try again"
//! never means that it was lost: the sender's next try finds the same delivery by its key and waits
//! for that one (`IngestStore::join`), and nothing runs twice.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    delivery::{DeadReason, FailureClass},
    name::Name,
    store::NextStep,
    time::{HumanDuration, Timestamp},
};

/// How long a sender waits unless its source says otherwise. Most providers give up after 10 to 30 s.
pub const DEFAULT_DEADLINE: HumanDuration = HumanDuration::from_secs(10);
/// Nobody waits longer than this; a connection is held for as long.
const DEADLINE_MAX: Duration = Duration::from_secs(120);

/// What a sender is told when the deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncTimeoutPolicy {
    /// To try again: 500.
    #[default]
    Retry,
    /// That we have it and go on by ourselves: 200.
    Accepted,
}

/// The part of a source that makes it synchronous, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncSpec {
    /// The destination whose answer the sender waits for; a route must lead there.
    pub destination: Name,
    /// How long it waits.
    #[serde(default = "deadline")]
    pub deadline: HumanDuration,
    /// What it is told when that time is over.
    #[serde(default)]
    pub on_timeout: SyncTimeoutPolicy,
}

fn deadline() -> HumanDuration {
    DEFAULT_DEADLINE
}

impl SyncSpec {
    /// Whether the deadline is one that can be kept.
    pub fn is_within_bounds(&self) -> bool {
        (Duration::from_millis(100)..=DEADLINE_MAX).contains(&self.deadline.0)
    }
}

/// How an attempt ended, as far as a sender that waits wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResult {
    /// What follows from it.
    pub next: NextStep,
    /// What kind of failure it was.
    pub class: Option<FailureClass>,
    /// What is kept of the destination's answer.
    pub response: Vec<u8>,
}

/// What a sender is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncResponse {
    /// It is done.
    Success {
        /// What the destination said, if it is JSON and was kept whole.
        result: Option<String>,
    },
    /// Nothing was done, and nothing would be at another try.
    Skipped {
        /// Why, in a word.
        reason: String,
        /// What the destination said, if it is JSON and was kept whole.
        result: Option<String>,
    },
    /// To slow down.
    Throttled {
        /// How many seconds to wait.
        retry_after: u64,
    },
    /// To try again.
    Retry {
        /// Why, in a word.
        reason: &'static str,
    },
    /// We have it and go on by ourselves.
    Accepted,
}

impl SyncResponse {
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Success { .. } => "success",
            Self::Skipped { .. } => "skipped",
            Self::Throttled { .. } => "rate_limited",
            Self::Retry { .. } => "error",
            Self::Accepted => "accepted",
        }
    }

    /// What is kept of it in the story of the event; the result is kept with the attempt.
    pub fn detail(&self) -> Value {
        let answer = self.as_str();
        match self {
            Self::Success { .. } | Self::Accepted => json!({ "answer": answer }),
            Self::Skipped { reason, .. } => json!({ "answer": answer, "reason": reason }),
            Self::Throttled { retry_after } => {
                json!({ "answer": answer, "retry_after": retry_after })
            }
            Self::Retry { reason } => json!({ "answer": answer, "reason": reason }),
        }
    }

    /// What the sender of both is told: if it is to send one of them again, it is to send both, and
    /// then finds the other one done.
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
            // Each has a result of its own; they cannot all be told.
            (Self::Success { .. } | Self::Skipped { .. }, _) => Self::Success { result: None },
        }
    }

    /// To slow down until `until`.
    pub fn throttled(until: Timestamp, now: Timestamp) -> Self {
        let millis = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
        Self::Throttled { retry_after: millis.div_ceil(1000).max(1) }
    }

    /// What a sender is told that gave no key. Its next try could not be recognized, and would run
    /// beside ours; so it is not asked for one.
    pub fn without_key(self) -> Self {
        match self {
            Self::Throttled { .. } | Self::Retry { .. } => Self::Accepted,
            Self::Success { .. } | Self::Skipped { .. } | Self::Accepted => self,
        }
    }
}

impl SyncResult {
    /// What it means for the sender. `revives` says whether its next try would revive what is dead.
    pub fn to_response(&self, revives: bool, now: Timestamp) -> SyncResponse {
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
            NextStep::Dead(reason) if revives && is_revivable(reason) => {
                SyncResponse::Retry { reason: reason.as_str() }
            }
            NextStep::Dead(reason) => {
                SyncResponse::Skipped { reason: reason.as_str().to_owned(), result: None }
            }
        }
    }

    /// The answer as JSON, spelled as it came.
    fn result(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.response).ok()?.trim();
        serde_json::from_str::<IgnoredAny>(text).ok()?;
        Some(text.to_owned())
    }
}

/// Whether a destination's answer says that nothing was done: `{"status":"skipped"}` or
/// `{"skipped":true}`, with whatever else.
pub fn is_skipped_response(response: &[u8]) -> bool {
    let Ok(said) = serde_json::from_slice::<Value>(response) else {
        return false;
    };
    said["status"] == "skipped" || said["skipped"] == true
}

/// Whether another try makes sense for what is dead.
///
/// Not if the destination has refused this very event: what it said then is the result, and stays it.
/// Nor if it may have arrived: only a person sends that again.
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

    fn ending(next: NextStep, class: Option<FailureClass>, response: &str) -> SyncResult {
        SyncResult { next, class, response: response.as_bytes().to_vec() }
    }

    #[test]
    fn each_ending_has_its_answer() {
        let success = |text: &str| SyncResponse::Success { result: Some(text.to_owned()) };
        let later = NextStep::RetryAt(NOW + Duration::from_millis(2100));
        let skipped =
            |reason: &str| SyncResponse::Skipped { reason: reason.to_owned(), result: None };
        let cases = [
            (ending(NextStep::Succeeded, None, ""), SyncResponse::Success { result: None }),
            (ending(NextStep::Succeeded, None, "thanks"), SyncResponse::Success { result: None }),
            (
                ending(NextStep::Succeeded, None, " {\"id\":9007199254740993}\n"),
                success("{\"id\":9007199254740993}"),
            ),
            (
                ending(NextStep::Succeeded, None, "{\"skipped\":false}"),
                success("{\"skipped\":false}"),
            ),
            (
                ending(NextStep::Succeeded, None, r#"{"status":"skipped"}"#),
                SyncResponse::Skipped {
                    reason: "by_destination".to_owned(),
                    result: Some(r#"{"status":"skipped"}"#.to_owned()),
                },
            ),
            (
                ending(later, Some(FailureClass::Throttled), ""),
                SyncResponse::Throttled { retry_after: 3 },
            ),
            (
                ending(later, Some(FailureClass::Transient), ""),
                SyncResponse::Retry { reason: "failed" },
            ),
            (
                ending(NextStep::Dead(DeadReason::MaxRetries), Some(FailureClass::Transient), ""),
                SyncResponse::Retry { reason: "max_retries" },
            ),
            (
                ending(
                    NextStep::Dead(DeadReason::PayloadError),
                    Some(FailureClass::Permanent),
                    "{}",
                ),
                skipped("payload_error"),
            ),
            (
                ending(NextStep::Dead(DeadReason::Ambiguous), Some(FailureClass::Ambiguous), ""),
                skipped("ambiguous"),
            ),
        ];
        for (ending, expected) in cases {
            assert_eq!(ending.to_response(true, NOW), expected, "{ending:?}");
        }
        let given_up =
            ending(NextStep::Dead(DeadReason::MaxRetries), Some(FailureClass::Transient), "");
        assert_eq!(
            given_up.to_response(false, NOW),
            skipped("max_retries"),
            "nobody would revive it"
        );
    }

    #[test]
    fn without_a_key_nobody_is_asked_to_try_again() {
        let done = SyncResponse::Success { result: None };
        assert_eq!(done.clone().without_key(), done);
        assert_eq!(SyncResponse::Retry { reason: "failed" }.without_key(), SyncResponse::Accepted);
        let slower = SyncResponse::throttled(NOW, NOW);
        assert_eq!(slower, SyncResponse::Throttled { retry_after: 1 });
        assert_eq!(slower.without_key(), SyncResponse::Accepted);
    }
}
