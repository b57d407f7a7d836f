//! The rules of `surehook-dedup` on this store: its conformance suite, limits and a full disk.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use surehook_core::idempotency::{
    API_KEYS_MAX, ClaimContext, ClaimStep, ClaimStepResult, IdempotencyStore, KEY_RETENTION,
    KeyLimit, KeyLimits, api_key, service_key,
};
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest, DedupError,
    DedupLock, ThreadRandom, check_batch,
    claim::check_lease,
    conformance::{DedupHarness, SteppedClock},
};
use surehook_store::{SqliteOptions, SqliteStore};
use surehook_types::{
    store_error::StoreError,
    time::{Clock as _, Timestamp},
};
use tempfile::TempDir;

use crate::harness::{NOW, open, open_file};

/// The store as a lock.
struct StoreLock {
    store: Arc<SqliteStore>,
    clock: Arc<SteppedClock>,
}

fn context(now: Timestamp) -> ClaimContext {
    ClaimContext {
        as_of: now,
        counted_from: now,
        limits: KeyLimits::default(),
        rng: Arc::new(ThreadRandom),
    }
}

fn unavailable(error: &StoreError) -> DedupError {
    DedupError::Unavailable(error.to_string())
}

fn claim_of(result: ClaimStepResult) -> Claim {
    match result {
        ClaimStepResult::Claim(claim) => claim,
        other @ (ClaimStepResult::Update(_) | ClaimStepResult::Full(_)) => panic!("{other:?}"),
    }
}

fn update_of(result: ClaimStepResult) -> ClaimUpdate {
    match result {
        ClaimStepResult::Update(update) => update,
        other @ (ClaimStepResult::Claim(_) | ClaimStepResult::Full(_)) => panic!("{other:?}"),
    }
}

impl StoreLock {
    async fn run(&self, steps: Vec<ClaimStep>) -> Result<Vec<ClaimStepResult>, DedupError> {
        let context = context(self.clock.now());
        self.store.run_claim_steps(steps, context).await.map_err(|error| unavailable(&error))
    }

    /// Runs the steps that are valid in one transaction.
    async fn run_checked<T>(
        &self,
        steps: Vec<Result<ClaimStep, DedupError>>,
        read: impl Fn(ClaimStepResult) -> T,
    ) -> Vec<Result<T, DedupError>> {
        if let Err(error) = check_batch(steps.len()) {
            return steps.iter().map(|_| Err(error.clone())).collect();
        }
        let valid = steps.iter().filter_map(|step| step.as_ref().ok().cloned()).collect();
        let mut results = self.run(valid).await.unwrap().into_iter();
        steps.into_iter().map(|step| step.map(|_| read(results.next().unwrap()))).collect()
    }
}

#[async_trait]
impl DedupLock for StoreLock {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, DedupError> {
        self.claim_many(vec![request]).await.remove(0)
    }

    async fn extend(
        &self,
        key: &ClaimKey,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<ClaimUpdate, DedupError> {
        check_lease(lease)?;
        let step = ClaimStep::Extend { key: key.clone(), token, lease };
        Ok(update_of(self.run(vec![step]).await?.remove(0)))
    }

    async fn complete(&self, request: CompletionRequest) -> Result<ClaimUpdate, DedupError> {
        self.complete_many(vec![request]).await.remove(0)
    }

    async fn release(&self, key: &ClaimKey, token: ClaimToken) -> Result<ClaimUpdate, DedupError> {
        let step = ClaimStep::Release { key: key.clone(), token: Some(token) };
        Ok(update_of(self.run(vec![step]).await?.remove(0)))
    }

    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Result<Claim, DedupError>> {
        let step = |request: ClaimRequest| request.check().map(|()| ClaimStep::Claim(request));
        self.run_checked(requests.into_iter().map(step).collect(), claim_of).await
    }

    async fn complete_many(
        &self,
        requests: Vec<CompletionRequest>,
    ) -> Vec<Result<ClaimUpdate, DedupError>> {
        let step =
            |request: CompletionRequest| request.check().map(|()| ClaimStep::Complete(request));
        self.run_checked(requests.into_iter().map(step).collect(), update_of).await
    }
}

struct StoreLockHarness {
    folder: TempDir,
    store: Arc<SqliteStore>,
    clock: Arc<SteppedClock>,
}

async fn lock_harness() -> Option<StoreLockHarness> {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SteppedClock::default());
    let store =
        Arc::new(SqliteStore::open(&SqliteOptions::new(folder.path()), clock.now()).unwrap());
    Some(StoreLockHarness { folder, store, clock })
}

#[async_trait]
impl DedupHarness for StoreLockHarness {
    fn lock(&self) -> Arc<dyn DedupLock> {
        Arc::new(StoreLock { store: Arc::clone(&self.store), clock: Arc::clone(&self.clock) })
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        self.store.close().await;
        let options = SqliteOptions::new(self.folder.path());
        let store = Arc::new(SqliteStore::open(&options, self.clock.now()).unwrap());
        Some(Arc::new(StoreLock { store, clock: Arc::clone(&self.clock) }))
    }
}

surehook_dedup::dedup_conformance!(dedup, lock_harness);

fn request(key: ClaimKey) -> ClaimRequest {
    let lease = Duration::from_secs(30);
    ClaimRequest { key, fingerprint: None, lease, ttl: KEY_RETENTION }
}

#[tokio::test]
async fn api_keys_beyond_the_limit_are_refused_until_old_ones_expire() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let expires_at = (NOW + Duration::from_secs(60)).as_millis();
    let insert = "
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
        INSERT INTO surehook_dedup_claims (namespace, name, state, token, fence, operation,
                                           started_at, lease_until, expires_at)
        SELECT 'api:' || hex(n), n, 0, zeroblob(16), 1, zeroblob(16), 1, 1, ?2 FROM numbers";
    let limit = i64::try_from(API_KEYS_MAX).unwrap();
    open_file(folder.path()).execute(insert, [limit, expires_at]).unwrap();
    let store = open(folder.path());
    let claim = async |key: ClaimKey, now| {
        let steps = vec![ClaimStep::Claim(request(key))];
        store.run_claim_steps(steps, context(now)).await.unwrap().remove(0)
    };
    let key = || api_key(&[1; 32], "new").unwrap();

    assert_eq!(claim(key(), NOW).await, ClaimStepResult::Full(KeyLimit::ApiKeys));
    let other = claim(service_key("orders", "new").unwrap(), NOW).await;
    assert!(matches!(other, ClaimStepResult::Claim(Claim::Claimed(_))), "{other:?}");
    let later = claim(key(), NOW + Duration::from_secs(60)).await;
    assert!(matches!(later, ClaimStepResult::Claim(Claim::Claimed(_))), "{later:?}");
}

#[tokio::test]
async fn full_disk_refuses_new_keys_and_completes_claimed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let run = async |step| store.run_claim_steps(vec![step], context(NOW)).await;
    let key = |name: &str| service_key("orders", name).unwrap();
    let claimed = run(ClaimStep::Claim(request(key("held")))).await.unwrap().remove(0);
    let Claim::Claimed(grant) = claim_of(claimed) else { panic!("not granted") };

    store.limit_pages(1).await.unwrap();
    let mut number = 0;
    loop {
        number += 1;
        assert!(number < 100_000, "the disk never filled up");
        match run(ClaimStep::Claim(request(key(&format!("{number:0>200}"))))).await {
            Ok(_) => {}
            Err(StoreError::Full) => break,
            Err(other) => panic!("{other}"),
        }
    }
    let completion = CompletionRequest {
        key: key("held"),
        token: grant.token,
        result: "done".into(),
        ttl: KEY_RETENTION,
    };
    let done = run(ClaimStep::Complete(completion)).await.unwrap().remove(0);
    assert_eq!(update_of(done), ClaimUpdate::Applied);

    store.limit_pages(u32::MAX).await.unwrap();
    run(ClaimStep::Claim(request(key("new")))).await.unwrap();
}
