//! Measures how many keys a second are claimed and completed over any shared backend.
//!
//!     cargo run --release -p surehook-dedup --all-features --example measure_claims -- postgres://user@host/db 64 10
//!
//! The arguments are the address, the number of callers, and the seconds. Each caller claims a new key and
//! completes it, again and again.

#![expect(clippy::print_stdout, reason = "the result")]

mod backend;

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use surehook_dedup::{Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletionRequest, DedupLock};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3600);
const LEASE: Duration = Duration::from_secs(30);

/// Claims and completes new keys until `end`; returns how long each pair took.
async fn complete_pairs(lock: Arc<dyn DedupLock>, caller: u32, end: Instant) -> Vec<Duration> {
    // Keys of an earlier run must not count as duplicates.
    let run = std::process::id();
    let mut took = Vec::new();
    while Instant::now() < end {
        let started = Instant::now();
        let name = format!("{run}-{caller}-{}", took.len());
        let key = ClaimKey::new("measure", &name).expect("a short name is a key");
        let request = ClaimRequest { key: key.clone(), fingerprint: None, lease: LEASE, ttl: HOUR };
        let Claim::Claimed(grant) = lock.claim(request).await.expect("the backend works") else {
            panic!("a new key is free");
        };
        let request =
            CompletionRequest { key, token: grant.token, result: "done".into(), ttl: HOUR };
        let update = lock.complete(request).await.expect("the backend works");
        assert_eq!(update, ClaimUpdate::Applied, "the lease has not ended");
        took.push(started.elapsed());
    }
    took
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: measure_claims ADDRESS CALLERS SECONDS";
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or(usage);
    let (address, callers, seconds) = (next()?, next()?.parse()?, next()?.parse()?);
    let lock = backend::open(&address).await?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tasks: JoinSet<Vec<Duration>> =
        (0..callers).map(|caller| complete_pairs(Arc::clone(&lock), caller, end)).collect();
    let mut took = Vec::new();
    while let Some(pairs) = tasks.join_next().await {
        took.extend(pairs?);
    }
    took.sort_unstable();
    let p99 = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
    println!("{} pairs/s, p99 {} ms", took.len() as u64 / seconds, p99.as_millis());
    Ok(())
}
