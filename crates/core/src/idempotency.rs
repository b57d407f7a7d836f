//! `Idempotency-Key`: a request that is sent twice is executed once.
//!
//! The response is stored with the key and returned again. Guarantees across a crash:
//!
//! - The **claim** of a key is durable before the request is executed, with the time and the random
//!   seed of its first try. A retry uses the same time and seed, so what it creates has the same ids
//!   and is created once.
//! - A claim without a response never blocks a retry ([`IdempotencyClaim::Pending`] is resumed). Only
//!   a request that is being executed in this process does.

use std::time::Duration;

use async_trait::async_trait;
pub use surehook_types::idempotency_key::{KEY_BYTES_MAX, ParseIdempotencyKeyError, parse_key};
use surehook_types::{
    ids::{Id, IdKind},
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::key::fingerprint;

/// How long a response is stored with its key.
pub const KEY_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of stored keys; further ones are refused, because dropping one early would break
/// its guarantee.
pub const KEYS_MAX: u64 = 100_000;
/// A larger response is not stored; the request can still be retried, see [`IdempotentRequest`].
pub const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// A key within its scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Hash of the API token, so that keys of two clients never collide.
    pub scope: [u8; 32],
    pub key: String,
}

/// Time and random seed of a request, the same for every retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// Time of the first try.
    pub at: Timestamp,
    pub seed: [u8; 16],
}

impl IdempotentRequest {
    /// The id of an object that the request creates. `what` distinguishes several objects.
    pub fn id<K: IdKind>(&self, what: &str) -> Id<K> {
        let text = [&self.seed[..], K::PREFIX.as_bytes(), b"/", what.as_bytes()].concat();
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
    pub body: Vec<u8>,
}

/// The result of claiming a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyClaim {
    /// The key is new, or its process died before it responded: execute the request.
    Pending(IdempotentRequest),
    /// A response is stored.
    Answered(StoredResponse),
    /// The key was used for a different request.
    OtherRequest,
    /// Too many keys are stored.
    Full,
}

/// What idempotency needs of a store.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Claims a key for a request, or returns the state of the claim that exists. Durable after `Ok`.
    ///
    /// A key that is older than [`KEY_RETENTION`] at `as_of` counts as new. That is the current time,
    /// or an earlier one while the clock is in doubt.
    async fn claim_key(
        &self,
        key: IdempotencyKey,
        request: [u8; 32],
        idempotent: IdempotentRequest,
        as_of: Timestamp,
    ) -> Result<IdempotencyClaim, StoreError>;

    /// Stores the response of a claimed key. Durable after `Ok`.
    async fn store_response(
        &self,
        key: IdempotencyKey,
        response: StoredResponse,
    ) -> Result<(), StoreError>;

    /// Releases a claimed key whose request was not executed. Keeps a stored response.
    async fn release_key(&self, key: IdempotencyKey) -> Result<(), StoreError>;

    /// Removes one bounded slice of the keys claimed before `before`; returns how many.
    async fn prune_idempotency_keys(&self, before: Timestamp) -> Result<usize, StoreError>;
}

#[cfg(test)]
mod tests {
    use surehook_types::ids::{DeliveryIdKind, RouteIdKind};

    use super::*;

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
