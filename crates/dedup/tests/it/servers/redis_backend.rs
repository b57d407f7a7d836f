//! The Redis backend on real servers: single, Sentinel and Cluster.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, DedupError, DedupLock, RedisDedupConfig, RedisDedupLock,
    conformance::DedupHarness,
};

use super::support::{eventually, redis_server::TestRedis};

struct RedisHarness {
    server: TestRedis,
    lock: RedisDedupLock,
}

/// Makes every claim older, because the clock of a server cannot be moved.
const AGE: &str = "
    for _, key in ipairs(redis.call('KEYS', '*:claim:*')) do
        local times = redis.call('HMGET', key, 'l', 'e')
        for index, field in ipairs({'l', 'e'}) do
            if times[index] then
                local older = string.format('%.0f', tonumber(times[index]) - tonumber(ARGV[1]))
                redis.call('HSET', key, field, older)
                if field == 'e' then redis.call('PEXPIREAT', key, older) end
            end
        end
    end";

#[async_trait]
impl DedupHarness for RedisHarness {
    fn lock(&self) -> Arc<dyn DedupLock> {
        Arc::new(self.lock.clone())
    }

    async fn advance(&self, by: Duration) {
        let millis = by.as_millis().to_string();
        self.server.run::<redis::Value>(&["EVAL", AGE, "0", &millis]).await;
    }

    async fn reopen(&self) -> Option<Arc<dyn DedupLock>> {
        Some(Arc::new(open(&self.server)))
    }
}

fn open(server: &TestRedis) -> RedisDedupLock {
    RedisDedupLock::new(RedisDedupConfig::single(&server.url()).unwrap())
}

async fn harness() -> Option<RedisHarness> {
    let server = TestRedis::start(&[]).await?;
    let lock = open(&server);
    Some(RedisHarness { server, lock })
}

surehook_dedup::dedup_conformance!(suite, harness);

fn request(name: &str) -> ClaimRequest {
    let key = ClaimKey::new("test", name).unwrap();
    let (lease, ttl) = (Duration::from_secs(60), Duration::from_secs(120));
    ClaimRequest { key, fingerprint: None, lease, ttl }
}

async fn claim_fence(lock: &RedisDedupLock, name: &str) -> u64 {
    match lock.claim(request(name)).await.unwrap() {
        Claim::Claimed(grant) => grant.fence,
        other @ (Claim::InProgress { .. } | Claim::Completed(_) | Claim::OtherFingerprint) => {
            panic!("{name} should be free: {other:?}")
        }
    }
}

#[tokio::test]
async fn fence_grows_over_flushall() {
    let Some(harness) = harness().await else { return };
    let before = claim_fence(&harness.lock, "key").await;
    harness.server.run::<redis::Value>(&["FLUSHALL"]).await;
    assert!(claim_fence(&harness.lock, "key").await > before);
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let Some(harness) = harness().await else { return };
    claim_fence(&harness.lock, "one").await;
    harness.server.run::<redis::Value>(&["SCRIPT", "FLUSH"]).await;
    claim_fence(&harness.lock, "two").await;
}

#[tokio::test]
async fn connection_speaks_resp3() {
    let Some(harness) = harness().await else { return };
    claim_fence(&harness.lock, "key").await;
    let clients: String = harness.server.run(&["CLIENT", "LIST"]).await;
    let ours = clients.lines().find(|line| line.contains("cmd=evalsha")).unwrap();
    assert!(ours.contains("resp=3"), "{ours}");
}

#[tokio::test]
async fn claim_key_expires_in_redis_with_its_ttl() {
    let Some(harness) = harness().await else { return };
    claim_fence(&harness.lock, "key").await;
    let rest: i64 = harness.server.run(&["PTTL", "surehook-dedup:claim:test/key"]).await;
    assert!((60_000..=120_000).contains(&rest), "{rest}");
}

#[tokio::test]
async fn key_of_another_type_is_an_error_and_not_an_answer() {
    let Some(harness) = harness().await else { return };
    let key = "surehook-dedup:claim:test/key";
    harness.server.run::<redis::Value>(&["SET", key, "something else"]).await;
    let claim = harness.lock.claim(request("key")).await;
    assert!(matches!(claim, Err(DedupError::Unavailable(_))), "{claim:?}");
}

#[tokio::test]
async fn heavy_restarted_redis_is_found_again() {
    let Some(mut harness) = harness().await else { return };
    let before = claim_fence(&harness.lock, "key").await;
    harness.server.kill();
    let refused = harness.lock.claim(request("key")).await;
    assert!(matches!(refused, Err(DedupError::Unavailable(_))), "{refused:?}");
    harness.server.start_again().await;
    let claim = eventually("the lock is connected again", || async {
        harness.lock.claim(request("key")).await.ok()
    });
    let Claim::Claimed(grant) = claim.await else { panic!("Redis has forgotten the key") };
    assert!(grant.fence > before);
}

#[tokio::test]
async fn heavy_cluster_of_three_serves_keys_of_all_slots() {
    let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
    let mut servers = Vec::new();
    for _ in 0..3 {
        let Some(server) = TestRedis::start(&options).await else { return };
        servers.push(server);
    }
    for (server, slots) in servers.iter().zip(["0 5460", "5461 10922", "10923 16383"]) {
        let (first, last) = slots.split_once(' ').unwrap();
        server.run::<redis::Value>(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await;
    }
    for server in &servers[1..] {
        let port = servers[0].port().to_string();
        server.run::<redis::Value>(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
    }
    for server in &servers {
        eventually("the cluster is complete", || async {
            let info: String = server.run(&["CLUSTER", "INFO"]).await;
            let is_complete = info.contains("cluster_state:ok")
                && info.contains("cluster_known_nodes:3")
                && info.contains("cluster_slots_ok:16384");
            is_complete.then_some(())
        })
        .await;
    }
    let lock = RedisDedupLock::new(RedisDedupConfig::cluster(&[&servers[0].url()]).unwrap());
    let names: Vec<String> = (0..100).map(|number| format!("key-{number}")).collect();
    let requests: Vec<_> = names.iter().map(|name| request(name)).collect();
    let claims = lock.claim_many(requests.clone()).await;
    assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Claimed(_)))), "{claims:?}");
    let claims = lock.claim_many(requests).await;
    assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::InProgress { .. }))));
    for server in &servers {
        let keys: u64 = server.run(&["DBSIZE"]).await;
        assert!(keys > 0, "every node has a part of the keys");
    }
}
