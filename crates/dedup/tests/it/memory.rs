//! The in-memory backend: the suite, and its limits.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletionRequest, DedupError, DedupLock,
    MemoryDedupLock, MemoryLimits,
    conformance::{CountingRng, DedupHarness, SteppedClock},
};

struct MemoryHarness {
    lock: Arc<MemoryDedupLock>,
    clock: Arc<SteppedClock>,
}

#[async_trait]
impl DedupHarness for MemoryHarness {
    fn lock(&self) -> Arc<dyn DedupLock> {
        self.lock.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        None
    }
}

fn open(limits: MemoryLimits) -> MemoryHarness {
    let clock = Arc::new(SteppedClock::default());
    let rng = Arc::new(CountingRng::default());
    MemoryHarness {
        lock: Arc::new(MemoryDedupLock::with_clock_and_rng(limits, clock.clone(), rng)),
        clock,
    }
}

async fn harness() -> Option<MemoryHarness> {
    Some(open(MemoryLimits::default()))
}

surehook_dedup::dedup_conformance!(suite, harness);

const MINUTE: Duration = Duration::from_secs(60);

fn request(name: &str) -> ClaimRequest {
    let key = ClaimKey::new("test", name).unwrap();
    ClaimRequest { key, fingerprint: None, lease: MINUTE, ttl: MINUTE * 2 }
}

fn completion(name: &str, claim: &Claim, result: &[u8]) -> CompletionRequest {
    let Claim::Claimed(grant) = claim else { panic!("not claimed: {claim:?}") };
    CompletionRequest {
        key: ClaimKey::new("test", name).unwrap(),
        token: grant.token,
        result: result.to_vec().into(),
        ttl: MINUTE * 2,
    }
}

#[tokio::test]
async fn full_store_refuses_new_keys_and_answers_known_ones() {
    let harness = open(MemoryLimits { keys_max: 3, ..MemoryLimits::default() });
    let lock = &harness.lock;
    let first = lock.claim(request("a")).await.unwrap();
    assert_eq!(lock.complete(completion("a", &first, b"r")).await, Ok(ClaimUpdate::Applied));
    for name in ["b", "c"] {
        assert!(matches!(lock.claim(request(name)).await, Ok(Claim::Claimed(_))));
    }
    for _ in 0..3 {
        let refused = lock.claim(request("d")).await;
        assert_eq!(refused, Err(DedupError::Full { limit: "3 keys".to_owned() }));
    }
    // Nothing was dropped for it.
    assert!(matches!(lock.claim(request("a")).await, Ok(Claim::Completed(_))));
    assert!(matches!(lock.claim(request("b")).await, Ok(Claim::InProgress { .. })));
    assert_eq!(lock.key_count(), 3);
}

#[tokio::test]
async fn expired_keys_make_room_for_new_ones() {
    let harness = open(MemoryLimits { keys_max: 100, ..MemoryLimits::default() });
    for round in 0..5 {
        for number in 0..100 {
            let name = format!("{round}-{number}");
            let claim = harness.lock.claim(request(&name)).await.unwrap();
            let completion = completion(&name, &claim, b"12345");
            assert_eq!(harness.lock.complete(completion).await, Ok(ClaimUpdate::Applied));
        }
        assert_eq!((harness.lock.key_count(), harness.lock.result_bytes()), (100, 500));
        harness.clock.advance(MINUTE * 2);
    }
    assert_eq!(harness.lock.prune(), 100);
    assert_eq!((harness.lock.key_count(), harness.lock.result_bytes()), (0, 0));
}

#[tokio::test]
async fn results_beyond_the_byte_limit_are_refused_and_the_claim_stays() {
    let harness = open(MemoryLimits { result_bytes_max: 10, ..MemoryLimits::default() });
    let lock = &harness.lock;
    let first = lock.claim(request("a")).await.unwrap();
    let second = lock.claim(request("b")).await.unwrap();
    assert_eq!(lock.complete(completion("a", &first, b"123456")).await, Ok(ClaimUpdate::Applied));
    let refused = lock.complete(completion("b", &second, b"123456")).await;
    assert_eq!(refused, Err(DedupError::Full { limit: "10 bytes of results".to_owned() }));
    // A completion that changes nothing costs nothing.
    assert_eq!(lock.complete(completion("a", &first, b"1234")).await, Ok(ClaimUpdate::Applied));
    assert_eq!(lock.complete(completion("b", &second, b"1234")).await, Ok(ClaimUpdate::Applied));
    assert_eq!(lock.result_bytes(), 10);
    harness.clock.advance(MINUTE * 2);
    // A new claim replaces the expired result.
    assert!(matches!(lock.claim(request("a")).await, Ok(Claim::Claimed(_))));
    lock.prune();
    assert_eq!(lock.result_bytes(), 0);
}

#[tokio::test]
async fn fence_grows_when_the_clock_goes_back() {
    let harness = open(MemoryLimits::default());
    let mut last = 0;
    for _ in 0..3 {
        let Claim::Claimed(grant) = harness.lock.claim(request("a")).await.unwrap() else {
            panic!("released key should be free")
        };
        assert!(grant.fence > last);
        last = grant.fence;
        let key = request("a").key;
        assert_eq!(harness.lock.release(&key, grant.token).await, Ok(ClaimUpdate::Applied));
        harness.clock.set_back(MINUTE * 60);
    }
}
