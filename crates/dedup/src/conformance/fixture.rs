//! The backend under test, with short calls for the cases of the suite.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::DedupHarness;
use crate::{
    Claim, ClaimGrant, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletedClaim,
    CompletionRequest, DedupLock, Fingerprint, Rng as _, ThreadRandom,
};

/// Long enough that the duration of a test does not matter.
pub(super) const LEASE: Duration = Duration::from_secs(600);
pub(super) const TTL: Duration = Duration::from_secs(24 * 3600);
/// Tolerance for backends whose clock cannot be stopped.
pub(super) const DRIFT: Duration = Duration::from_secs(120);

/// A backend under test, with a namespace of its own.
pub struct ClaimFixture {
    harness: Box<dyn DedupHarness>,
    pub(super) lock: Arc<dyn DedupLock>,
    namespace: String,
}

impl std::fmt::Debug for ClaimFixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimFixture").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// A namespace that no other test uses.
pub(super) fn new_namespace() -> String {
    format!("case-{:032x}", ThreadRandom.next_u128())
}

impl ClaimFixture {
    /// A fixture over a new backend.
    pub fn new(harness: impl DedupHarness + 'static) -> Self {
        let lock = harness.lock();
        Self { harness: Box::new(harness), lock, namespace: new_namespace() }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) async fn advance(&self, by: Duration) {
        self.harness.advance(by).await;
    }

    pub(super) async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        self.harness.reopen().await
    }

    pub(super) fn key(&self, name: &str) -> ClaimKey {
        ClaimKey::new(&self.namespace, name).unwrap()
    }

    pub(super) fn request(&self, name: &str) -> ClaimRequest {
        ClaimRequest { key: self.key(name), fingerprint: None, lease: LEASE, ttl: TTL }
    }

    pub(super) async fn claim(&self, name: &str) -> Claim {
        self.lock.claim(self.request(name)).await.unwrap()
    }

    pub(super) async fn claim_with_fingerprint(
        &self,
        name: &str,
        fingerprint: Option<Fingerprint>,
    ) -> Claim {
        let request = ClaimRequest { fingerprint, ..self.request(name) };
        self.lock.claim(request).await.unwrap()
    }

    /// Claims a key that is free.
    pub(super) async fn grant(&self, name: &str) -> ClaimGrant {
        expect_grant(self.claim(name).await)
    }

    pub(super) fn completion(
        &self,
        name: &str,
        token: ClaimToken,
        result: &[u8],
    ) -> CompletionRequest {
        let result = Bytes::copy_from_slice(result);
        CompletionRequest { key: self.key(name), token, result, ttl: TTL }
    }

    pub(super) async fn complete(
        &self,
        name: &str,
        token: ClaimToken,
        result: &[u8],
    ) -> ClaimUpdate {
        self.lock.complete(self.completion(name, token, result)).await.unwrap()
    }

    pub(super) async fn extend(
        &self,
        name: &str,
        token: ClaimToken,
        lease: Duration,
    ) -> ClaimUpdate {
        self.lock.extend(&self.key(name), token, lease).await.unwrap()
    }

    pub(super) async fn release(&self, name: &str, token: ClaimToken) -> ClaimUpdate {
        self.lock.release(&self.key(name), token).await.unwrap()
    }
}

#[track_caller]
pub(super) fn expect_grant(claim: Claim) -> ClaimGrant {
    match claim {
        Claim::Claimed(grant) => grant,
        other @ (Claim::InProgress { .. } | Claim::Completed(_) | Claim::OtherFingerprint) => {
            panic!("the key should be free: {other:?}")
        }
    }
}

#[track_caller]
pub(super) fn expect_retry_after(claim: Claim) -> Duration {
    match claim {
        Claim::InProgress { retry_after } => retry_after,
        other @ (Claim::Claimed(_) | Claim::Completed(_) | Claim::OtherFingerprint) => {
            panic!("the key should be in progress: {other:?}")
        }
    }
}

#[track_caller]
pub(super) fn expect_completed(claim: Claim) -> CompletedClaim {
    match claim {
        Claim::Completed(completed) => completed,
        other @ (Claim::Claimed(_) | Claim::InProgress { .. } | Claim::OtherFingerprint) => {
            panic!("the key should be completed: {other:?}")
        }
    }
}

/// Checks a duration that a backend counts by a clock that cannot be stopped.
#[track_caller]
pub(super) fn assert_about(actual: Duration, expected: Duration) {
    let slack = Duration::from_secs(1);
    assert!(
        actual <= expected + slack && actual + DRIFT >= expected,
        "{actual:?} is not about {expected:?}"
    );
}
