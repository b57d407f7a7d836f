//! A worker process that claims keys on command, over any shared backend.
//!
//!     cargo run -p surehook-dedup --all-features --example claim_worker -- sqlite:/tmp/dedup.db
//!     cargo run -p surehook-dedup --all-features --example claim_worker -- postgres://user@host/db
//!     cargo run -p surehook-dedup --all-features --example claim_worker -- redis://127.0.0.1
//!
//! Reads lines `claim KEY LEASE_MS` and `complete KEY TOKEN RESULT`, and answers each with one line.
//! Start two of them, claim in one, kill it with `kill -9`, and claim the same key in the other.

#![expect(clippy::print_stdout, reason = "the answers of the worker")]

mod backend;

use std::{
    error::Error,
    io::{BufRead as _, stdin},
    time::Duration,
};

use surehook_dedup::{Claim, ClaimKey, ClaimRequest, ClaimUpdate, CompletionRequest, DedupLock};

const HOUR: Duration = Duration::from_secs(3600);

async fn answer(lock: &dyn DedupLock, line: &str) -> Result<String, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["claim", name, lease_ms] => {
            let lease = Duration::from_millis(lease_ms.parse()?);
            let key = ClaimKey::new("worker", name)?;
            let request = ClaimRequest { key, fingerprint: None, lease, ttl: HOUR };
            Ok(match lock.claim(request).await? {
                Claim::Claimed(grant) => {
                    let kind = if grant.is_resumed { "resumed" } else { "claimed" };
                    let operation = u128::from_be_bytes(grant.operation.id);
                    format!("{kind} {} {} {operation:032x}", grant.token, grant.fence)
                }
                Claim::InProgress { retry_after } => {
                    format!("in_progress {}", retry_after.as_millis())
                }
                Claim::Completed(done) => {
                    format!("completed {}", String::from_utf8_lossy(&done.result))
                }
                Claim::OtherFingerprint => "other_fingerprint".to_owned(),
            })
        }
        ["complete", name, token, result] => {
            let key = ClaimKey::new("worker", name)?;
            let result = result.to_owned().into();
            let request = CompletionRequest { key, token: token.parse()?, result, ttl: HOUR };
            Ok(match lock.complete(request).await? {
                ClaimUpdate::Applied => "applied".to_owned(),
                ClaimUpdate::StaleToken => "stale_token".to_owned(),
            })
        }
        _ => Err("use `claim KEY LEASE_MS` or `complete KEY TOKEN RESULT`".into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: claim_worker ADDRESS")?;
    let lock = backend::open(&address).await?;
    println!("ready");
    for line in stdin().lock().lines() {
        match answer(&*lock, &line?).await {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {error}"),
        }
    }
    Ok(())
}
