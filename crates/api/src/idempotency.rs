//! The idempotency service: claims of keys, their results, and what is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use surehook_types::{
    string_enum,
    time::{HumanDuration, Timestamp},
};

/// Longest fingerprint of a claim, in bytes.
pub const FINGERPRINT_BYTES_MAX: usize = 256;

/// Request to claim a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimKeyRequest {
    /// How long the key is remembered if it is never completed: 1s to 30d, 24h by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
    /// How long you may work before others may take over: 1s to 1h, 30s by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<HumanDuration>,
    /// How long to wait for another holder: 0s to 30s, 0s by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<HumanDuration>,
    /// Identifies the content of the request. A claim of the same key with another fingerprint is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = FINGERPRINT_BYTES_MAX))]
    pub fingerprint: Option<String>,
}

string_enum! {
    /// The answer to a claim.
    pub enum ClaimAnswer {
        /// The key is yours: do the work, then complete or release it.
        Claimed = "claimed",
        /// Another holder works on it.
        InProgress = "in_progress",
        /// The work is done; `result` is its result.
        Completed = "completed",
        /// In a batch only: this item was refused; see `code` and `detail`.
        Error = "error",
    }
}

/// One piece of work, the same over all attempts at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Operation")]
pub struct OperationResponse {
    /// Random; 32 hexadecimal digits.
    pub id: String,
    /// When the key was first claimed.
    pub started_at: Timestamp,
}

/// Response to a claim. Which fields are set depends on `status`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClaimKeyResponse {
    pub status: ClaimAnswer,
    /// Needed to extend, complete and release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Grows with every grant of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationResponse>,
    /// Whether an earlier holder let its lease run out: its work may be half done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// Seconds until the holder's lease ends, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The result that the holder stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// In a batch: the problem code of an item that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In a batch: what is wrong and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Request to extend a lease.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendClaimRequest {
    pub token: String,
    /// The lease ends so long from now: 1s to 1h, 30s by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<HumanDuration>,
}

/// Request to complete a claim.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteClaimRequest {
    pub token: String,
    /// The result that later duplicates get: any JSON of at most 64 KiB; null by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub result: Option<Box<RawValue>>,
    /// How long the result is remembered: 1s to 30d, 24h by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
}

/// Request to release a claim: by its holder with the token, or by an operator with `force`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseClaimRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Release the key without its token. Its work may be done twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

string_enum! {
    /// Result of a change to a claim.
    pub enum ClaimUpdateAnswer {
        Extended = "extended",
        Completed = "completed",
        Released = "released",
        /// In a batch only: the claim is no longer yours. Nothing was changed.
        StaleToken = "stale_token",
        /// In a batch only: this item was refused; see `code` and `detail`.
        Error = "error",
    }
}

/// Response to a change of a claim.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClaimUpdateResponse {
    pub status: ClaimUpdateAnswer,
    /// In a batch: the problem code of an item that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In a batch: what is wrong and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A claim of a batch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchClaim {
    pub namespace: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<HumanDuration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = FINGERPRINT_BYTES_MAX))]
    pub fingerprint: Option<String>,
}

/// A completion of a batch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchCompletion {
    pub namespace: String,
    pub key: String,
    pub token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
}

/// Claims and completions in one commit: at most 100 items. Claims run first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBatchRequest {
    #[serde(default)]
    pub claims: Vec<BatchClaim>,
    #[serde(default)]
    pub completions: Vec<BatchCompletion>,
}

/// One answer for each item, in order.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClaimBatchResponse {
    pub claims: Vec<ClaimKeyResponse>,
    pub completions: Vec<ClaimUpdateResponse>,
}

string_enum! {
    /// The state of a stored key.
    pub enum ClaimState {
        /// Under a lease.
        InProgress = "in_progress",
        /// The lease ended without a completion: the next claim is granted.
        Abandoned = "abandoned",
        /// Has a result.
        Completed = "completed",
        /// Given back; only its fence is remembered.
        Released = "released",
    }
}

/// A stored key without its result.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IdempotencyKey")]
pub struct StoredKeyResponse {
    pub namespace: String,
    pub key: String,
    pub status: ClaimState,
    /// Of the last grant.
    pub fence: u64,
    pub operation: OperationResponse,
    /// When the key is forgotten.
    pub expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// Only when one key is requested. Secrets are masked for viewers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub result: Option<Box<RawValue>>,
}

/// Counts of the keys stored for a namespace. Expired keys count until they are removed, within about a
/// minute.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NamespaceStats")]
pub struct IdempotencyStats {
    pub namespace: String,
    pub in_progress: u64,
    pub abandoned: u64,
    pub completed: u64,
    pub released: u64,
    /// Bytes of all results.
    pub result_bytes: u64,
}
