//! Idempotency keys: a piece of work that is asked for twice is done once, and its result is stored.
//!
//! The rules (claim, lease, fence, result) are those of `surehook-dedup`; here are the types and the store
//! trait of the gateway for them. There are two users:
//!
//! - The **service** (`/api/v1/idempotency`): keys of other programs, in namespaces of their own. A holder
//!   that does not complete its claim keeps it until its lease ends, also across a restart of the gateway.
//! - The `Idempotency-Key` of **API requests** ([`api_key`]): the response is the result. Only this process
//!   executes them, so their leases have no length: whatever is running is known in memory, and a claim
//!   without a response never blocks a retry. A retry gets the operation of the first attempt, so what it
//!   creates has the same ids and is created once.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use surehook_dedup::{
    Claim, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
    LimitError,
};
pub use surehook_types::idempotency_key::{KEY_BYTES_MAX, ParseIdempotencyKeyError, parse_key};
use surehook_types::{
    ids::{Id, IdKind},
    rng::Rng,
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::key::fingerprint;

use crate::{access::TokenHash, store::PageRequest};

/// How long a response is stored with its key.
pub const KEY_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of stored `Idempotency-Key`s; further ones are refused, because dropping one early
/// would break its guarantee.
pub const API_KEYS_MAX: u64 = 100_000;
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// A larger response is not stored; the request can still be retried, see [`IdempotentRequest`].
pub const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// Namespaces of API requests begin with this. [`service_key`] rejects it.
pub const API_NAMESPACE_PREFIX: &str = "api:";

/// The `Idempotency-Key` of an API request: keys of two clients never collide.
pub fn api_key(token: &TokenHash, key: &str) -> Result<ClaimKey, LimitError> {
    ClaimKey::new(&format!("{API_NAMESPACE_PREFIX}{}", HEXLOWER.encode(token)), key)
}

pub fn is_api_key(key: &ClaimKey) -> bool {
    key.namespace().starts_with(API_NAMESPACE_PREFIX)
}

/// A key of the service.
pub fn service_key(namespace: &str, key: &str) -> Result<ClaimKey, ServiceKeyError> {
    check_namespace(namespace)?;
    let is_short = key.len() <= KEY_BYTES_MAX;
    let key = ClaimKey::new(namespace, key).map_err(|_| ServiceKeyError::Key)?;
    if is_short { Ok(key) } else { Err(ServiceKeyError::Key) }
}

pub fn check_namespace(namespace: &str) -> Result<(), ServiceKeyError> {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let is_valid = (1..=NAMESPACE_BYTES_MAX).contains(&namespace.len());
    if is_valid && namespace.bytes().all(is_allowed) {
        Ok(())
    } else {
        Err(ServiceKeyError::Namespace)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceKeyError {
    #[error(
        "Invalid namespace. Use 1 to {NAMESPACE_BYTES_MAX} of the characters a-z, 0-9, `.`, `_` and `-`."
    )]
    Namespace,
    #[error("Invalid key. Use 1 to {KEY_BYTES_MAX} bytes of UTF-8 without control characters.")]
    Key,
}

/// Time and random seed of a request, the same for every retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// Time of the first attempt.
    pub at: Timestamp,
    pub seed: [u8; 16],
}

impl From<ClaimOperation> for IdempotentRequest {
    fn from(operation: ClaimOperation) -> Self {
        Self { at: operation.started_at, seed: operation.id }
    }
}

impl IdempotentRequest {
    /// The id of an object that the request creates: the same each time the request is carried out.
    /// `label` distinguishes several objects of one kind; empty for a single one.
    pub fn id<K: IdKind>(&self, label: &str) -> Id<K> {
        let text = [&self.seed[..], K::PREFIX.as_bytes(), b"/", label.as_bytes()].concat();
        let mut bits = [0; 16];
        bits.copy_from_slice(&fingerprint(&text)[..16]);
        Id::new(self.at, u128::from_be_bytes(bits))
    }
}

/// A response to be returned again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// Names and values of the headers to return.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

/// The first line of a stored response.
#[derive(Serialize, Deserialize)]
struct StoredResponseHead {
    status: u16,
    headers: Vec<(String, String)>,
}

impl StoredResponse {
    /// Status and headers as one line of JSON, then the body.
    pub fn to_result(&self) -> Bytes {
        let head = StoredResponseHead { status: self.status, headers: self.headers.clone() };
        // Numbers and strings always serialize.
        let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    /// `None` if these are not the bytes of a response.
    pub fn from_result(result: &Bytes) -> Option<Self> {
        let end = result.iter().position(|byte| *byte == b'\n')?;
        let StoredResponseHead { status, headers } = serde_json::from_slice(&result[..end]).ok()?;
        Some(Self { status, headers, body: result.slice(end + 1..) })
    }
}

/// The time of a claim step and the limits that apply.
#[derive(Clone, Debug)]
pub struct ClaimContext {
    /// The time for judging age: the current time, or an earlier one while the clock is in doubt.
    pub as_of: Timestamp,
    /// The time from which retention is counted: the current time, or a later one while the
    /// clock is in doubt.
    pub counted_from: Timestamp,
    pub limits: KeyLimits,
    /// For tokens and operations.
    pub rng: Arc<dyn Rng>,
}

/// Maximum numbers of stored keys of the service. Further ones are refused, because dropping one early
/// would break its guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    pub per_namespace: u64,
    pub total: u64,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self { per_namespace: 5_000_000, total: 10_000_000 }
    }
}

/// A limit that refused a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLimit {
    /// [`API_KEYS_MAX`].
    ApiKeys,
    PerNamespace(u64),
    Total(u64),
}

/// One step of [`IdempotencyStore::run_claim_steps`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    Claim(ClaimRequest),
    Extend {
        key: ClaimKey,
        token: ClaimToken,
        lease: Duration,
    },
    Complete(CompletionRequest),
    /// Without a token, an operator releases the claim of any holder.
    Release {
        key: ClaimKey,
        token: Option<ClaimToken>,
    },
}

impl ClaimStep {
    pub fn key(&self) -> &ClaimKey {
        match self {
            Self::Claim(request) => &request.key,
            Self::Complete(request) => &request.key,
            Self::Extend { key, .. } | Self::Release { key, .. } => key,
        }
    }
}

/// The result of a [`ClaimStep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimStepResult {
    Claim(Claim),
    Update(ClaimUpdate),
    /// The key is new, and no more are stored.
    Full(KeyLimit),
}

/// The state of a stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredClaimStatus {
    InProgress {
        lease_until: Timestamp,
    },
    /// The lease ended without a completion: the next claim is granted.
    Abandoned {
        lease_until: Timestamp,
    },
    Completed {
        completed_at: Timestamp,
        result_bytes: u64,
    },
    /// Only its fence is stored.
    Released,
}

/// A stored key of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    pub key: ClaimKey,
    pub status: StoredClaimStatus,
    pub fence: u64,
    pub operation: ClaimOperation,
    pub expires_at: Timestamp,
}

/// Selects the keys of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClaimFilter {
    #[default]
    All,
    /// Those of a namespace that begin with a text, which may be empty.
    Namespace { namespace: String, key_prefix: String },
}

/// A stored key with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimDetail {
    pub row: ClaimRow,
    /// Set if it is completed.
    pub result: Option<Bytes>,
}

/// Counts of the keys stored for a namespace of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounts {
    pub namespace: String,
    pub in_progress: u64,
    pub abandoned: u64,
    pub completed: u64,
    pub released: u64,
    /// Bytes of all results.
    pub result_bytes: u64,
}

/// Counts of the keys stored in all namespaces, and of those of API requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimTotals {
    /// Keys of the service.
    pub keys: u64,
    /// Those of them that are under a lease.
    pub in_progress: u64,
    /// Keys of API requests.
    pub api_keys: u64,
}

/// The store operations for idempotency keys.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Runs the steps in order, in one transaction, by the rules of `surehook-dedup`. Durable after
    /// `Ok`. The requests must have been checked.
    ///
    /// Steps that store new keys of the service are refused while the disk is full; all others finish
    /// what was begun. A released key of an API request is forgotten.
    async fn run_claim_steps(
        &self,
        steps: Vec<ClaimStep>,
        context: ClaimContext,
    ) -> Result<Vec<ClaimStepResult>, StoreError>;

    /// Keys of the service in their order.
    async fn list_claims(
        &self,
        filter: ClaimFilter,
        page: PageRequest<ClaimKey>,
        as_of: Timestamp,
    ) -> Result<Vec<ClaimRow>, StoreError>;

    async fn find_claim(
        &self,
        key: ClaimKey,
        as_of: Timestamp,
    ) -> Result<Option<ClaimDetail>, StoreError>;

    /// Namespaces of the service that have keys, at most [`NAMESPACES_LISTED_MAX`] in their order.
    /// Expired keys count until they are pruned.
    async fn count_claims(&self, as_of: Timestamp) -> Result<Vec<NamespaceCounts>, StoreError>;

    async fn count_all_claims(&self, as_of: Timestamp) -> Result<ClaimTotals, StoreError>;

    /// Removes one bounded slice of the keys that have expired; returns how many.
    async fn prune_claims(&self, as_of: Timestamp) -> Result<usize, StoreError>;
}

/// Maximum number of namespaces of [`IdempotencyStore::count_claims`].
pub const NAMESPACES_LISTED_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use surehook_types::ids::{DeliveryIdKind, RouteIdKind};

    use super::*;

    #[test]
    fn service_keys_and_api_keys_never_collide() {
        let long = "n".repeat(NAMESPACE_BYTES_MAX);
        for good in ["a", "orders", "a.b_c-9", &long] {
            assert_eq!(service_key(good, "k/1 é").unwrap().namespace(), good);
        }
        let too_long = "n".repeat(NAMESPACE_BYTES_MAX + 1);
        for bad in ["", "A", "a b", "api:00", "é", "a/b", &too_long] {
            assert_eq!(service_key(bad, "k"), Err(ServiceKeyError::Namespace), "case: {bad}");
        }
        let long = "k".repeat(KEY_BYTES_MAX);
        assert!(service_key("a", &long).is_ok());
        for bad in ["", "a\nb", &format!("{long}k")] {
            assert_eq!(service_key("a", bad), Err(ServiceKeyError::Key), "case: {bad}");
        }
        assert!(is_api_key(&api_key(&[7; 32], "k").unwrap()));
        assert!(!is_api_key(&service_key("api", "k").unwrap()));
    }

    #[test]
    fn stored_response_is_read_back_byte_for_byte() {
        let headers = vec![("etag".to_owned(), "\"a\nb\"".to_owned())];
        for body in [&b""[..], b"{}", b"\n\n", b"\0\xff"] {
            let response = StoredResponse {
                status: 201,
                headers: headers.clone(),
                body: Bytes::from_static(body),
            };
            assert_eq!(StoredResponse::from_result(&response.to_result()), Some(response));
        }
        for wrong in [&b""[..], b"{}", b"no json\nbody"] {
            assert_eq!(StoredResponse::from_result(&Bytes::from_static(wrong)), None);
        }
    }

    #[test]
    fn retried_request_creates_the_same_ids_and_other_requests_other_ids() {
        let request =
            IdempotentRequest { at: Timestamp::from_millis(1_763_193_600_123), seed: [7; 16] };
        let other = IdempotentRequest { seed: [8; 16], ..request };
        assert_eq!(request.id::<RouteIdKind>(""), request.id::<RouteIdKind>(""));
        assert_ne!(request.id::<RouteIdKind>(""), other.id::<RouteIdKind>(""));
        assert_ne!(request.id::<RouteIdKind>(""), request.id::<RouteIdKind>("second"));
        assert_ne!(request.id::<RouteIdKind>("").uuid(), request.id::<DeliveryIdKind>("").uuid());
    }
}
