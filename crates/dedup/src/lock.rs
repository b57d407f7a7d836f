//! The trait that every backend implements.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    DedupError, LimitError,
    claim::{BATCH_MAX, Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest},
};

/// A lock per key that remembers the result of the work.
///
/// # Guarantees of every backend
///
/// - Of all callers that claim a key at the same time, exactly one gets [`Claim::Claimed`]. Until its
///   lease ends, it is released, or it is completed, the others get [`Claim::InProgress`].
/// - After [`complete`](Self::complete), every claim gets [`Claim::Completed`] with the result until the
///   ttl of the completion ends.
/// - When a lease ends without a completion, the next claim is granted, with the **same**
///   [`operation`](crate::ClaimGrant::operation) and `is_resumed`. After a release, or when the ttl has
///   ended, the next claim starts a new operation.
/// - A step succeeds only with the token of the last grant ([`ClaimUpdate::StaleToken`] otherwise). A
///   holder whose lease has ended but whose key was not claimed again still holds it: it may extend,
///   complete and release.
/// - The fence of a key grows strictly with each grant as long as the key is remembered: through
///   expired leases and releases, until the ttl of its last claim or completion has ended. A key that
///   was forgotten continues at the current time in microseconds, which is larger as long as the clock
///   has not gone back.
///
/// What a backend keeps through a crash differs; see its type.
///
/// A future that is dropped before it is ready may or may not have taken effect.
#[async_trait]
pub trait DedupLock: Send + Sync {
    /// Claims a key.
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError>;

    /// Lets the lease end `lease` from now. The claim is remembered at least as long.
    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError>;

    /// Stores the result for later claims. Doing it again with the same token succeeds and changes
    /// nothing, so that a lost answer can be asked for again.
    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError>;

    /// Gives the key back without a result: the next claim starts anew.
    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError>;

    /// Claims up to [`BATCH_MAX`] keys, with one answer for each, in order. A key that occurs twice is
    /// claimed by its first occurrence. This is not a transaction: some may fail and others succeed.
    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        if let Err(error) = check_batch(requests.len()) {
            return vec![Err(error); requests.len()];
        }
        let mut claims = Vec::with_capacity(requests.len());
        for request in requests {
            claims.push(self.claim(request).await);
        }
        claims
    }

    /// Completes up to [`BATCH_MAX`] claims, with one answer for each, in order.
    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        if let Err(error) = check_batch(requests.len()) {
            return vec![Err(error); requests.len()];
        }
        let mut updates = Vec::with_capacity(requests.len());
        for request in requests {
            updates.push(self.complete(request).await);
        }
        updates
    }
}

/// Checks the number of items of a batch.
pub fn check_batch(items: usize) -> Result<(), DedupError> {
    if items > BATCH_MAX { Err(LimitError::Batch(items).into()) } else { Ok(()) }
}

#[async_trait]
impl<L: DedupLock + ?Sized> DedupLock for Arc<L> {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        (**self).claim(request).await
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        (**self).extend(key, token, lease).await
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        (**self).complete(request).await
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        (**self).release(key, token).await
    }

    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        (**self).claim_many(requests).await
    }

    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        (**self).complete_many(requests).await
    }
}
