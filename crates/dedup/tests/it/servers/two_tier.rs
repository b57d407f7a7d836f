//! Two tiers: the suite, and what the fast tier may answer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletionRequest, DedupLock, DurableDedupLock,
    FastTier, Fingerprint, MemoryFastTier, RedisDedupConfig, RedisFastTier, SqliteDedupConfig,
    SqliteDedupLock, TwoTierDedupLock,
    conformance::{DedupHarness, SteppedClock, run_suite},
};

use super::support::{eventually, redis_server::TestRedis};
use crate::sqlite::SqliteHarness;

struct TwoTierHarness<F: FastTier> {
    sqlite: SqliteHarness,
    lock: Arc<TwoTierDedupLock<F, SqliteDedupLock>>,
    /// Keeps the server running.
    _server: Option<TestRedis>,
}

impl<F: FastTier> TwoTierHarness<F> {
    fn new(fast: F, server: Option<TestRedis>) -> Self {
        let sqlite = SqliteHarness::open();
        let lock = TwoTierDedupLock::with_clock(fast, sqlite.lock.clone(), sqlite.clock.clone());
        Self { sqlite, lock: Arc::new(lock), _server: server }
    }
}

#[async_trait]
impl<F: FastTier> DedupHarness for TwoTierHarness<F> {
    fn lock(&self) -> Arc<dyn DedupLock> {
        self.lock.clone()
    }

    async fn advance(&self, by: Duration) {
        self.sqlite.advance(by).await;
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        self.sqlite.reopen().await
    }
}

async fn over_memory() -> Option<TwoTierHarness<MemoryFastTier>> {
    Some(TwoTierHarness::new(MemoryFastTier::new(16 * 1024 * 1024), None))
}

fn redis_tier(server: &TestRedis) -> RedisFastTier {
    RedisFastTier::new(RedisDedupConfig::single(&server.url()).unwrap())
}

async fn over_redis() -> Option<TwoTierHarness<RedisFastTier>> {
    let server = TestRedis::start(&[]).await?;
    Some(TwoTierHarness::new(redis_tier(&server), Some(server)))
}

#[test]
fn heavy_conformance_suite_passes_with_memory_in_front_of_sqlite() {
    run_suite(over_memory);
}

#[test]
fn heavy_conformance_suite_passes_with_redis_in_front_of_sqlite() {
    run_suite(over_redis);
}

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn request(name: &str) -> ClaimRequest {
    let key = ClaimKey::new("test", name).unwrap();
    ClaimRequest { key, fingerprint: None, lease: MINUTE, ttl: MINUTE * 60 }
}

async fn complete(lock: &dyn DedupLock, name: &str, fingerprint: Option<Fingerprint>) {
    let request = ClaimRequest { fingerprint, ..request(name) };
    let Claim::Claimed(grant) = lock.claim(request.clone()).await.unwrap() else {
        panic!("{name} should be free")
    };
    let completion = CompletionRequest {
        key: request.key,
        token: grant.token,
        result: format!("result of {name}").into(),
        ttl: MINUTE * 60,
    };
    assert_eq!(lock.complete(completion).await, Ok(ClaimUpdate::Applied));
}

/// Claims until the fast tier answers.
async fn wait_for_hit<F: FastTier>(
    lock: &TwoTierDedupLock<F, SqliteDedupLock>,
    request: &ClaimRequest,
) {
    eventually("the fast tier answers", || async {
        let before = lock.counts().hits;
        assert!(matches!(lock.claim(request.clone()).await, Ok(Claim::Completed(_))));
        (lock.counts().hits > before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn known_completion_is_answered_by_the_fast_tier_until_it_expires() {
    let harness = over_memory().await.unwrap();
    complete(&*harness.lock, "key", None).await;
    wait_for_hit(&harness.lock, &request("key")).await;
    let durable = harness.lock.counts().durable;
    for _ in 0..10 {
        let Ok(Claim::Completed(completed)) = harness.lock.claim(request("key")).await else {
            panic!("the key is completed")
        };
        assert_eq!(completed.result.as_ref(), b"result of key");
        assert_eq!(completed.expires_in, MINUTE * 60);
    }
    assert_eq!(harness.lock.counts().durable, durable);
    harness.advance(MINUTE * 60).await;
    assert!(matches!(harness.lock.claim(request("key")).await, Ok(Claim::Claimed(_))));
}

#[tokio::test]
async fn other_fingerprint_is_decided_by_the_durable_store() {
    let harness = over_memory().await.unwrap();
    let fingerprint = |byte| Some(Fingerprint::from_bytes([byte; 32]));
    complete(&*harness.lock, "key", fingerprint(1)).await;
    let own = ClaimRequest { fingerprint: fingerprint(1), ..request("key") };
    let other = ClaimRequest { fingerprint: fingerprint(2), ..request("key") };
    wait_for_hit(&harness.lock, &own).await;
    assert_eq!(harness.lock.claim(other.clone()).await, Ok(Claim::OtherFingerprint));
    // An entry that was stored for a request without a fingerprint proves nothing about another's.
    complete(&*harness.lock, "second", fingerprint(1)).await;
    wait_for_hit(&harness.lock, &request("second")).await;
    let other = ClaimRequest { key: request("second").key, ..other };
    assert_eq!(harness.lock.claim(other).await, Ok(Claim::OtherFingerprint));
}

#[tokio::test]
async fn restored_store_with_a_new_epoch_ignores_what_redis_still_knows() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (live, backup) = (folder.path().join("live.db"), folder.path().join("backup.db"));
    let clock = Arc::new(SteppedClock::default());
    let open = |path| {
        let rng = Arc::new(surehook_dedup::ThreadRandom);
        SqliteDedupLock::open(SqliteDedupConfig::new(path).clock(clock.clone()).rng(rng)).unwrap()
    };
    let in_front_of =
        |durable| TwoTierDedupLock::with_clock(redis_tier(&server), durable, clock.clone());

    let durable = open(&live);
    assert!(durable.epoch().await.is_ok());
    let connection = rusqlite::Connection::open(&live).unwrap();
    connection.execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    let lock = in_front_of(durable);
    complete(&lock, "key", None).await;
    wait_for_hit(&lock, &request("key")).await;

    // The backup does not have the completion. Until its epoch is renewed it counts as the same store, so
    // the answer of Redis is used although the durable store has lost the completion.
    let restored = open(&backup);
    let with_old_epoch = in_front_of(restored.clone());
    let claim = eventually("Redis is connected", || async {
        let claim = with_old_epoch.claim(request("key")).await.unwrap();
        matches!(claim, Claim::Completed(_)).then_some(claim)
    });
    assert!(matches!(
        tokio::time::timeout(MINUTE, claim).await,
        Ok(Claim::Completed(completed)) if completed.result.as_ref() == b"result of key"
    ));
    // Ends the claim that may have been granted before Redis was connected.
    clock.advance(MINUTE);
    restored.renew_epoch().await.unwrap();
    let with_new_epoch = in_front_of(restored);
    assert!(matches!(with_new_epoch.claim(request("key")).await, Ok(Claim::Claimed(_))));
    clock.advance(MINUTE);
    // A lock that stays open during the restore notices it when it reads the epoch again.
    assert!(matches!(with_old_epoch.claim(request("key")).await, Ok(Claim::Claimed(_))));
}
