//! Idempotency keys: claims with waiting, and completions in memory. The API and its `Idempotency-Key`
//! call this; the rules are in `surehook-dedup`, and every step is a transaction of the store.
//!
//! A completion in memory was read from the store, so it is committed, and it does not change until it
//! expires: a duplicate is answered without a write. Nothing else is answered from memory.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use quick_cache::{Weighter, sync::Cache};
use surehook_core::idempotency::{
    ClaimContext, ClaimStep, ClaimStepResult, IdempotencyStore, KeyLimits,
};
use surehook_dedup::{Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletedClaim, Fingerprint};
use surehook_types::{store_error::StoreError, time::Timestamp};
use tokio::{sync::Notify, time::Instant};

use crate::{Engine, lock::lock, run_to_completion::RunToCompletion};

/// Memory for completions.
const COMPLETIONS_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Memory of a completion besides its key and its result, about.
const COMPLETION_OVERHEAD: u64 = 256;

/// The state of idempotency keys in this process.
#[derive(Debug)]
pub(crate) struct ClaimMemory {
    completions: Cache<ClaimKey, CommittedCompletion, CompletionWeighter>,
    waits: KeyWaits,
    limits: KeyLimits,
}

impl ClaimMemory {
    pub(crate) fn new(limits: KeyLimits) -> Self {
        let items = usize::try_from(COMPLETIONS_BYTES_MAX / COMPLETION_OVERHEAD).unwrap_or(0);
        Self {
            completions: Cache::with_weighter(items, COMPLETIONS_BYTES_MAX, CompletionWeighter),
            waits: KeyWaits::default(),
            limits,
        }
    }

    /// The answer to a claim of a key that is known to be completed.
    fn find_completed(&self, request: &ClaimRequest, as_of: Timestamp) -> Option<CompletedClaim> {
        let known = self.completions.get(&request.key)?;
        // Another fingerprint than the one that was compared before is compared in the store.
        let is_compared = request.fingerprint.is_none() || request.fingerprint == known.fingerprint;
        let is_alive = as_of < known.expires_at;
        (is_compared && is_alive).then(|| CompletedClaim {
            expires_in: known.expires_at.since(as_of),
            ..known.completed
        })
    }

    fn remember(&self, request: &ClaimRequest, completed: &CompletedClaim, as_of: Timestamp) {
        let completion = CommittedCompletion {
            expires_at: as_of + completed.expires_in,
            completed: completed.clone(),
            fingerprint: request.fingerprint,
        };
        self.completions.insert(request.key.clone(), completion);
    }
}

/// A completion as the store returned it.
#[derive(Clone, Debug)]
struct CommittedCompletion {
    completed: CompletedClaim,
    expires_at: Timestamp,
    /// Of the request that was answered: the stored one is equal, or there is none.
    fingerprint: Option<Fingerprint>,
}

#[derive(Clone, Debug)]
struct CompletionWeighter;

impl Weighter<ClaimKey, CommittedCompletion> for CompletionWeighter {
    fn weight(&self, key: &ClaimKey, completion: &CommittedCompletion) -> u64 {
        let bytes = key.namespace().len() + key.name().len() + completion.completed.result.len();
        COMPLETION_OVERHEAD + u64::try_from(bytes).unwrap_or(u64::MAX / 2)
    }
}

/// Requests that wait for the holder of a key.
#[derive(Debug, Default)]
struct KeyWaits(Mutex<HashMap<ClaimKey, Arc<Notify>>>);

impl KeyWaits {
    fn watch<'a>(&'a self, key: &'a ClaimKey) -> KeyWait<'a> {
        let notify = Arc::clone(lock(&self.0).entry(key.clone()).or_default());
        KeyWait { waits: self, key, notify }
    }

    /// Wakes all requests that wait for the key.
    fn wake(&self, key: &ClaimKey) {
        if let Some(notify) = lock(&self.0).get(key) {
            notify.notify_waiters();
        }
    }
}

/// One waiting request; unregistered when dropped.
struct KeyWait<'a> {
    waits: &'a KeyWaits,
    key: &'a ClaimKey,
    notify: Arc<Notify>,
}

impl Drop for KeyWait<'_> {
    fn drop(&mut self) {
        let mut waits = lock(&self.waits.0);
        // Only the map and this one hold it, so no other request waits.
        if Arc::strong_count(&self.notify) == 2 {
            waits.remove(self.key);
        }
    }
}

/// The step in metrics.
fn action(step: &ClaimStep) -> &'static str {
    match step {
        ClaimStep::Claim(_) => "claim",
        ClaimStep::Extend { .. } => "extend",
        ClaimStep::Complete(_) => "complete",
        ClaimStep::Release { .. } => "release",
    }
}

impl Engine {
    /// The stored idempotency keys, for lists and lookups.
    pub fn idempotency_store(&self) -> &dyn IdempotencyStore {
        &*self.store
    }

    /// Claims a key. While another holder works on it, waits up to `wait` until that completes or
    /// releases it, or lets its lease run out.
    pub async fn claim_key(
        self: &Arc<Self>,
        request: ClaimRequest,
        wait: Duration,
    ) -> Result<ClaimStepResult, StoreError> {
        let result = self.claim_or_wait(request, wait).await?;
        self.telemetry.count_claim_step("claim", &result);
        Ok(result)
    }

    async fn claim_or_wait(
        self: &Arc<Self>,
        request: ClaimRequest,
        wait: Duration,
    ) -> Result<ClaimStepResult, StoreError> {
        let deadline = Instant::now() + wait;
        let key = request.key.clone();
        let waiting = (!wait.is_zero()).then(|| self.claims.waits.watch(&key));
        loop {
            // Before the claim: what changes after it is noticed.
            let changed = waiting.as_ref().map(|waiting| waiting.notify.notified());
            let mut changed = pin!(changed);
            if let Some(changed) = changed.as_mut().as_pin_mut() {
                changed.enable();
            }
            if let Some(completed) = self.claims.find_completed(&request, self.expiry_time()) {
                return Ok(ClaimStepResult::Claim(Claim::Completed(completed)));
            }
            let result = self.run_step(ClaimStep::Claim(request.clone())).await?;
            let ClaimStepResult::Claim(Claim::InProgress { retry_after }) = result else {
                return Ok(result);
            };
            let (Some(changed), now) = (changed.as_pin_mut(), Instant::now()) else {
                return Ok(result);
            };
            if now >= deadline {
                return Ok(result);
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(deadline.min(now + retry_after)) => {}
                () = self.shared.stop.cancelled() => return Ok(result),
            }
        }
    }

    /// Runs a step of the service: extends, completes or releases a claim.
    pub async fn update_claim(
        self: &Arc<Self>,
        step: ClaimStep,
    ) -> Result<ClaimStepResult, StoreError> {
        let action = action(&step);
        let result = self.run_step(step).await?;
        self.telemetry.count_claim_step(action, &result);
        Ok(result)
    }

    /// Runs several steps of the service in order, in one transaction.
    pub async fn run_claim_steps(
        self: &Arc<Self>,
        steps: Vec<ClaimStep>,
    ) -> Result<Vec<ClaimStepResult>, StoreError> {
        let actions: Vec<&str> = steps.iter().map(action).collect();
        let results = self.commit_claim_steps(steps).await?;
        for (action, result) in actions.into_iter().zip(&results) {
            self.telemetry.count_claim_step(action, result);
        }
        Ok(results)
    }

    /// Runs a step for the `Idempotency-Key` of an API request.
    pub async fn run_api_claim_step(
        self: &Arc<Self>,
        step: ClaimStep,
    ) -> Result<ClaimStepResult, StoreError> {
        self.run_step(step).await
    }

    async fn run_step(self: &Arc<Self>, step: ClaimStep) -> Result<ClaimStepResult, StoreError> {
        let result = self.commit_claim_steps(vec![step]).await?.pop();
        result.ok_or_else(|| StoreError::Refused("the claim step has no result".to_owned()))
    }

    /// Even if the client disconnects, waiting requests are woken after the commit.
    async fn commit_claim_steps(
        self: &Arc<Self>,
        steps: Vec<ClaimStep>,
    ) -> Result<Vec<ClaimStepResult>, StoreError> {
        let engine = Arc::clone(self);
        let work = async move {
            let as_of = engine.expiry_time();
            let context = ClaimContext {
                as_of,
                counted_from: engine.creation_time(),
                limits: engine.claims.limits,
                rng: Arc::clone(&engine.shared.rng),
            };
            let results = engine.store.run_claim_steps(steps.clone(), context).await?;
            for (step, result) in steps.iter().zip(&results) {
                engine.after_commit(step, result, as_of);
            }
            Ok(results)
        };
        RunToCompletion::new(work, &self.shared.tasks).await
    }

    fn after_commit(&self, step: &ClaimStep, result: &ClaimStepResult, as_of: Timestamp) {
        match (step, result) {
            (ClaimStep::Claim(request), ClaimStepResult::Claim(Claim::Completed(completed))) => {
                self.claims.remember(request, completed, as_of);
            }
            (
                ClaimStep::Complete(_) | ClaimStep::Release { .. },
                ClaimStepResult::Update(ClaimUpdate::Applied),
            ) => self.claims.waits.wake(step.key()),
            (
                ClaimStep::Claim(_)
                | ClaimStep::Extend { .. }
                | ClaimStep::Complete(_)
                | ClaimStep::Release { .. },
                ClaimStepResult::Claim(_) | ClaimStepResult::Update(_) | ClaimStepResult::Full(_),
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use surehook_core::idempotency::service_key;
    use surehook_dedup::ClaimOperation;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn request(fingerprint: Option<u8>) -> ClaimRequest {
        ClaimRequest {
            key: service_key("orders", "a").unwrap(),
            fingerprint: fingerprint.map(|byte| Fingerprint::from_bytes([byte; 32])),
            lease: Duration::from_secs(30),
            ttl: Duration::from_secs(60),
        }
    }

    fn completed() -> CompletedClaim {
        CompletedClaim {
            result: Bytes::from_static(b"done"),
            fence: 1,
            operation: ClaimOperation { id: [0; 16], started_at: NOW },
            completed_at: NOW,
            expires_in: Duration::from_secs(60),
        }
    }

    #[test]
    fn completion_is_answered_from_memory_until_it_expires() {
        let memory = ClaimMemory::new(KeyLimits::default());
        assert_eq!(memory.find_completed(&request(None), NOW), None);
        memory.remember(&request(None), &completed(), NOW);
        let later = NOW + Duration::from_secs(59);
        let expected = CompletedClaim { expires_in: Duration::from_secs(1), ..completed() };
        assert_eq!(memory.find_completed(&request(None), later), Some(expected));
        assert_eq!(memory.find_completed(&request(None), NOW + Duration::from_secs(60)), None);
    }

    #[test]
    fn fingerprint_that_was_not_compared_is_left_to_the_store() {
        let memory = ClaimMemory::new(KeyLimits::default());
        memory.remember(&request(Some(1)), &completed(), NOW);
        for (fingerprint, is_answered) in [(Some(1), true), (None, true), (Some(2), false)] {
            let found = memory.find_completed(&request(fingerprint), NOW);
            assert_eq!(found.is_some(), is_answered, "case: {fingerprint:?}");
        }
        memory.remember(&request(None), &completed(), NOW);
        assert_eq!(memory.find_completed(&request(Some(1)), NOW), None);
    }

    #[tokio::test]
    async fn waiting_request_is_woken_and_unregistered() {
        let waits = KeyWaits::default();
        let key = request(None).key;
        let (first, second) = (waits.watch(&key), waits.watch(&key));
        {
            let mut woken = pin!(first.notify.notified());
            woken.as_mut().enable();
            waits.wake(&key);
            woken.await;
        }
        drop(second);
        assert_eq!(lock(&waits.0).len(), 1, "the first one still waits");
        drop(first);
        assert!(lock(&waits.0).is_empty());
    }
}
