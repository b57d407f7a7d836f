//! Redis in front of SQLite while Redis fails in every way: no false "completed", no lost completion.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::Signal;
use surehook_dedup::{
    Claim, ClaimRequest, ClaimUpdate, CompletionRequest, DedupLock, RedisDedupConfig,
    RedisDedupLock, RedisFastTier, SqliteDedupConfig, SqliteDedupLock, TwoTierDedupLock,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{
    support::{eventually, proxy::start_slow_proxy, redis_server::TestRedis},
    two_tier::request,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const WORKERS: usize = 4;
const KEYS_PER_WORKER: usize = 40;

type Tiers = TwoTierDedupLock<RedisFastTier, SqliteDedupLock>;

/// Workers that claim and complete until they are stopped, and check every answer.
struct CheckedLoad {
    _folder: TempDir,
    lock: Arc<Tiers>,
    is_stopped: Arc<AtomicBool>,
    workers: Vec<JoinHandle<HashMap<String, String>>>,
}

impl CheckedLoad {
    fn start(config: RedisDedupConfig, result_bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let durable =
            SqliteDedupLock::open(SqliteDedupConfig::new(folder.path().join("dedup.db"))).unwrap();
        let lock = Arc::new(TwoTierDedupLock::new(RedisFastTier::new(config), durable));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let workers = (0..WORKERS)
            .map(|worker| {
                tokio::spawn(run_worker(lock.clone(), worker, result_bytes, is_stopped.clone()))
            })
            .collect();
        Self { _folder: folder, lock, is_stopped, workers }
    }

    /// Waits until the fast tier has answered some more claims.
    async fn wait_for_hits(&self) {
        let before = self.lock.counts().hits;
        eventually("the fast tier answers", || async {
            (self.lock.counts().hits >= before + 50).then_some(())
        })
        .await;
    }

    /// Waits until some more claims were answered, by whichever tier.
    async fn wait_for_claims(&self) {
        let answered = || self.lock.counts().hits + self.lock.counts().durable;
        let before = answered();
        eventually("claims are answered", || async { (answered() >= before + 300).then_some(()) })
            .await;
    }

    /// Stops the workers. Every completion that was acknowledged is still there.
    async fn finish(self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let mut completions = 0;
        for worker in self.workers {
            for (name, result) in worker.await.unwrap() {
                let Ok(Claim::Completed(completed)) = self.lock.claim(request(&name)).await else {
                    panic!("{name} was completed")
                };
                assert_eq!(completed.result, result);
                completions += 1;
            }
        }
        assert!(completions > 10, "only {completions} completions");
    }
}

/// Each worker has keys of its own, so it knows what must be answered. It begins new ones all the time.
async fn run_worker(
    lock: Arc<Tiers>,
    worker: usize,
    result_bytes: usize,
    is_stopped: Arc<AtomicBool>,
) -> HashMap<String, String> {
    let mut completed: HashMap<String, String> = HashMap::new();
    let mut generation = 0_usize;
    while !is_stopped.load(Ordering::Relaxed) {
        generation += 1;
        for number in 0..KEYS_PER_WORKER {
            let name = format!("{worker}-{}", number + generation / 4);
            let claim = lock.claim(ClaimRequest { ttl: DAY, ..request(&name) }).await.unwrap();
            match claim {
                Claim::Completed(answer) => {
                    let expected = completed.get(&name);
                    assert_eq!(
                        Some(&answer.result[..]),
                        expected.map(String::as_bytes),
                        "false completion of {name}"
                    );
                }
                Claim::Claimed(grant) => {
                    assert!(!completed.contains_key(&name), "lost completion of {name}");
                    let result = format!("{name}-{}-{}", grant.fence, "x".repeat(result_bytes));
                    let completion = CompletionRequest {
                        key: request(&name).key,
                        token: grant.token,
                        result: result.clone().into(),
                        ttl: DAY,
                    };
                    assert_eq!(lock.complete(completion).await, Ok(ClaimUpdate::Applied));
                    completed.insert(name, result);
                }
                Claim::InProgress { .. } | Claim::OtherFingerprint => {
                    panic!("only this worker uses {name}: {claim:?}")
                }
            }
        }
    }
    completed
}

fn single(url: &str) -> RedisDedupConfig {
    RedisDedupConfig::single(url).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_flushed_and_restarted_redis_costs_no_completion() {
    let Some(mut server) = TestRedis::start(&[]).await else { return };
    let load = CheckedLoad::start(single(&server.url()), 10);
    for _ in 0..3 {
        load.wait_for_hits().await;
        server.run::<redis::Value>(&["FLUSHALL"]).await;
        load.wait_for_claims().await;
        load.wait_for_hits().await;
        server.kill();
        load.wait_for_claims().await;
        server.start_again().await;
    }
    load.wait_for_hits().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_hanging_redis_is_skipped_and_used_again_when_it_answers() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    let load = CheckedLoad::start(single(&server.url()), 10);
    load.wait_for_hits().await;
    server.signal(Signal::STOP);
    eventually("the tier is skipped", || async { load.lock.is_fast_tier_skipped().then_some(()) })
        .await;
    let before = load.lock.counts();
    load.wait_for_claims().await;
    let after = load.lock.counts();
    // A few probes cost their budget, all others nothing.
    let (asked, skipped) = (after.failures - before.failures, after.skipped - before.skipped);
    assert!(asked * 10 < skipped, "{asked} asked, {skipped} skipped");
    assert_eq!(after.hits, before.hits);
    server.signal(Signal::CONT);
    load.wait_for_hits().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_redis_that_is_100_ms_away_is_skipped() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    let proxy = start_slow_proxy(server.port(), Duration::from_millis(100)).await;
    let load = CheckedLoad::start(single(&format!("redis://{proxy}")), 10);
    eventually("the tier is skipped", || async { load.lock.is_fast_tier_skipped().then_some(()) })
        .await;
    let before = load.lock.counts();
    load.wait_for_claims().await;
    let after = load.lock.counts();
    assert!((after.failures - before.failures) * 10 < after.skipped - before.skipped);
    assert_eq!(after.hits, 0);
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_evicting_redis_costs_no_completion() {
    let options = ["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(server) = TestRedis::start(&options).await else { return };
    let load = CheckedLoad::start(single(&server.url()), 16 * 1024);
    load.wait_for_hits().await;
    eventually("keys are evicted", || async {
        let info: String = server.run(&["INFO", "stats"]).await;
        let evicted = info.lines().find_map(|line| line.strip_prefix("evicted_keys:"))?;
        (evicted.trim().parse::<u64>().unwrap() > 100).then_some(())
    })
    .await;
    load.wait_for_claims().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_redis_that_refuses_writes_costs_no_completion() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    let load = CheckedLoad::start(single(&server.url()), 10);
    load.wait_for_hits().await;
    // OOM on every write.
    server.run::<redis::Value>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    load.wait_for_claims().await;
    server.run::<redis::Value>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    load.wait_for_hits().await;
    // READONLY on every write, and MASTERDOWN on every read.
    server.run::<redis::Value>(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    server.run::<redis::Value>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    load.wait_for_claims().await;
    server.run::<redis::Value>(&["REPLICAOF", "NO", "ONE"]).await;
    load.wait_for_hits().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_loading_redis_is_a_miss_and_its_old_entries_count_afterwards() {
    // Reads its file slowly, and answers meanwhile.
    let options = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"];
    let Some(mut server) = TestRedis::start(&options).await else { return };
    let load = CheckedLoad::start(single(&server.url()), 1000);
    eventually("enough entries are stored", || async {
        (server.run::<u64>(&["DBSIZE"]).await >= 150).then_some(())
    })
    .await;
    server.run::<redis::Value>(&["SAVE"]).await;
    server.kill();
    server.launch_again();
    eventually("Redis is loading", || async { server.is_loading().await.then_some(()) }).await;
    load.wait_for_claims().await;
    load.wait_for_hits().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_garbage_in_redis_is_a_miss() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    let load = CheckedLoad::start(single(&server.url()), 10);
    load.wait_for_hits().await;
    // Every entry becomes that of another key, then a text, then a list.
    let rewrites = [
        "local keys = redis.call('KEYS', '*')
         local first = redis.call('GET', keys[1])
         for _, key in ipairs(keys) do
             first, keys.last = redis.call('GET', key), first
             redis.call('SET', key, keys.last)
         end",
        "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('SET', key, 'garbage') end",
        "for _, key in ipairs(redis.call('KEYS', '*')) do
             redis.call('DEL', key)
             redis.call('RPUSH', key, 'x')
         end",
    ];
    for rewrite in rewrites {
        server.run::<redis::Value>(&["EVAL", rewrite, "0"]).await;
        load.wait_for_claims().await;
    }
    server.run::<redis::Value>(&["FLUSHALL"]).await;
    load.wait_for_hits().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_node_without_slots_is_a_miss() {
    let Some(server) = TestRedis::start(&["--cluster-enabled", "yes"]).await else { return };
    // Asked as a single server, it answers CLUSTERDOWN, and MOVED once the slots are elsewhere.
    let load = CheckedLoad::start(single(&server.url()), 10);
    load.wait_for_claims().await;
    let Some(other) = TestRedis::start(&["--cluster-enabled", "yes"]).await else { return };
    other.run::<redis::Value>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let port = other.port().to_string();
    server.run::<redis::Value>(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
    eventually("the node redirects", || async {
        let info: String = server.run(&["CLUSTER", "INFO"]).await;
        info.contains("cluster_slots_ok:16384").then_some(())
    })
    .await;
    load.wait_for_claims().await;
    assert_eq!(load.lock.counts().hits, 0);
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_failover_by_sentinel_costs_no_completion() {
    let Some(mut primary) = TestRedis::start(&[]).await else { return };
    let primary_port = primary.port().to_string();
    let Some(replica) = TestRedis::start(&["--replicaof", "127.0.0.1", &primary_port]).await else {
        return;
    };
    eventually("the replica is connected", || async {
        let info: String = replica.try_run(&["INFO", "replication"]).await.ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    let configuration = format!(
        "sentinel monitor main 127.0.0.1 {primary_port} 1\n\
         sentinel down-after-milliseconds main 400\n\
         sentinel failover-timeout main 2000\n"
    );
    let Some(sentinel) = TestRedis::start_sentinel(&configuration).await else { return };
    eventually("Sentinel knows the replica", || async {
        let replicas: redis::RedisResult<Vec<redis::Value>> =
            sentinel.try_run(&["SENTINEL", "REPLICAS", "main"]).await;
        replicas.is_ok_and(|replicas| !replicas.is_empty()).then_some(())
    })
    .await;
    let url = sentinel.url();
    let config =
        || RedisDedupConfig::sentinel(&[&url], "main", redis::RedisConnectionInfo::default());
    let redis_lock = RedisDedupLock::new(config().unwrap().prefix("lock"));
    let Ok(Claim::Claimed(before)) = redis_lock.claim(request("key")).await else {
        panic!("the key is free")
    };
    let load = CheckedLoad::start(config().unwrap(), 10);
    load.wait_for_hits().await;
    primary.kill();
    load.wait_for_claims().await;
    eventually("the replica is the primary", || async {
        let info: String = replica.try_run(&["INFO", "replication"]).await.ok()?;
        info.contains("role:master").then_some(())
    })
    .await;
    load.wait_for_hits().await;
    load.finish().await;
    // A lock in Redis alone works again; what it knew may be lost, and its fence still grows.
    let claim = eventually("the lock finds the new primary", || async {
        redis_lock.claim(request("other")).await.ok()
    });
    assert!(matches!(claim.await, Claim::Claimed(grant) if grant.fence > before.fence));
}
