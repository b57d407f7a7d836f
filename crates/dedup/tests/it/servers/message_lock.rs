//! The plain `SET NX EX` lock: the scenarios of a lock per message id, and the flaw it has.

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, DedupLock, MemoryDedupLock, MemoryLimits, MessageDedupLock,
    RedisDedupConfig, RedisDedupLock, ThreadRandom, conformance::SteppedClock,
};

use super::support::redis_server::TestRedis;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_fifty_threads_acquires_a_message_in_redis() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    let lock = RedisDedupLock::new(RedisDedupConfig::single(&server.url()).unwrap());
    let lock = Arc::new(MessageDedupLock::new(lock, "whatsapp").unwrap());
    let (barrier, runtime) = (Arc::new(Barrier::new(50)), tokio::runtime::Handle::current());
    let threads: Vec<_> = (0..50)
        .map(|_| {
            let (lock, barrier, runtime) = (lock.clone(), barrier.clone(), runtime.clone());
            std::thread::spawn(move || {
                barrier.wait();
                runtime.block_on(lock.acquire("wamid.test")).unwrap()
            })
        })
        .collect();
    let wins = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won);
    assert_eq!(wins.count(), 1);
    assert!(lock.acquire("wamid.other").await.unwrap());
    let ttl: u64 = server.run(&["TTL", "surehook-dedup:claim:whatsapp/wamid.test"]).await;
    assert!(ttl <= 86_400 && ttl > 86_000, "expires after 24 hours: {ttl}");
}

#[tokio::test]
async fn crash_after_acquire_swallows_the_retry_for_a_day_and_a_claim_does_not() {
    let clock = Arc::new(SteppedClock::default());
    let limits = MemoryLimits::default();
    let lock = MemoryDedupLock::with_clock_and_rng(limits, clock.clone(), Arc::new(ThreadRandom));
    let lock = Arc::new(lock);
    let plain = MessageDedupLock::new(lock.clone(), "plain").unwrap();
    let key = ClaimKey::new("leased", "wamid.1").unwrap();
    let lease = Duration::from_secs(30);
    let request = ClaimRequest { key, fingerprint: None, lease, ttl: DAY };

    // Both holders crash now, so neither completes.
    assert!(plain.acquire("wamid.1").await.unwrap());
    assert!(matches!(lock.claim(request.clone()).await, Ok(Claim::Claimed(_))));

    // The sender tries again for an hour, and gives up.
    for _ in 0..6 {
        clock.advance(Duration::from_secs(600));
        assert!(!plain.acquire("wamid.1").await.unwrap(), "the message is lost");
    }
    assert!(matches!(lock.claim(request).await, Ok(Claim::Claimed(grant)) if grant.is_resumed));
    clock.advance(DAY);
    assert!(plain.acquire("wamid.1").await.unwrap());
}
