//! Do the work behind a key once, and answer every duplicate with its result.
//!
//! A webhook that is delivered twice, a job that two workers picked up, a request that a client sends
//! again because the answer was lost: each carries a key. The usual lock is one `SET key NX EX 86400`,
//! and it has a flaw: if its holder crashes before the work is done, the retry is taken for a
//! duplicate and the work is **never** done. This crate keeps the two apart:
//!
//! ```text
//!    claim ──► Claimed { token, fence, operation }     do the work, then complete with a result
//!          ──► InProgress { retry_after }              another caller has the lease
//!          ──► Completed { result }                    done before: answer with the result
//!          ──► OtherFingerprint                        the key was used for another request
//! ```
//!
//! - A claim is a **lease**. If its holder dies, the next claim after the lease gets the key.
//! - Every step is a compare-and-set by **token**: a holder that was too slow cannot complete or
//!   release what another one holds ([`ClaimUpdate::StaleToken`]).
//! - The **fence** grows with every grant, so that storage can refuse a holder that was too slow.
//! - The **operation** stays the same when a key is claimed again after a crash: ids derived from it
//!   ([`ClaimOperation::derive_id`]) let a resumed request create things once.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use surehook_dedup::{
//!     Claim, ClaimKey, ClaimRequest, CompletionRequest, DedupLock, MemoryDedupLock,
//! };
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let lock = MemoryDedupLock::default();
//!     // The provider sends the same message twice.
//!     assert_eq!(handle(&lock, "wamid.1").await?, "created 1 order");
//!     assert_eq!(handle(&lock, "wamid.1").await?, "created 1 order");
//!     Ok(())
//! }
//!
//! async fn handle(
//!     lock: &dyn DedupLock,
//!     message_id: &str,
//! ) -> Result<String, Box<dyn std::error::Error>> {
//!     let day = Duration::from_secs(24 * 3600);
//!     let key = ClaimKey::new("whatsapp", message_id)?;
//!     let request = ClaimRequest {
//!         key: key.clone(),
//!         fingerprint: None,
//!         lease: Duration::from_secs(30),
//!         ttl: day,
//!     };
//!     let grant = match lock.claim(request).await? {
//!         Claim::Claimed(grant) => grant,
//!         Claim::Completed(done) => return Ok(String::from_utf8(done.result.to_vec())?),
//!         Claim::InProgress { retry_after } => return Err(format!("wait {retry_after:?}").into()),
//!         Claim::OtherFingerprint => return Err("key was used for another request".into()),
//!     };
//!     // The work. With this id, a retry after a crash finds the order that exists already.
//!     let _order_id = grant.operation.derive_id("order");
//!     let result = "created 1 order";
//!     let done = CompletionRequest { key, token: grant.token, result: result.into(), ttl: day };
//!     if !lock.complete(done).await?.is_applied() {
//!         return Err("the lease ran out and another worker took over".into());
//!     }
//!     Ok(result.to_owned())
//! }
//! ```
//!
//! # Backends
//!
//! Each is a feature and passes the same conformance suite (feature `conformance`).
//!
//! | feature | type | survives |
//! | --- | --- | --- |
//! | `memory` (default) | `MemoryDedupLock` | nothing: one process |
//! | `sqlite` | `SqliteDedupLock`, and the rules as functions for your own transactions | power loss |
//! | `postgres`, `postgres-rustls` | `PostgresDedupLock` | what the server survives |
//! | `redis`, `redis-rustls` | `RedisDedupLock`: single, Sentinel or Cluster | what Redis does, see its module |
//! | `two-tier` | `TwoTierDedupLock`: memory or Redis in front of SQLite or PostgreSQL | what the durable tier does |
//!
//! [`MessageDedupLock`] is the plain `SET NX EX` over any of them, for drop-in use, with its limits.

#![deny(missing_docs)]

#[cfg(any(feature = "postgres", feature = "redis"))]
mod batch;
pub mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod epoch;
mod error;
mod lock;
#[cfg(feature = "memory")]
pub mod memory;
mod message_lock;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "memory", feature = "sqlite"))]
pub mod record;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod system;
#[cfg(feature = "two-tier")]
pub mod two_tier;

pub use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

#[cfg(feature = "memory")]
pub use self::memory::{MemoryDedupLock, MemoryLimits};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresDedupConfig, PostgresDedupLock};
#[cfg(feature = "redis")]
pub use self::redis::{RedisDedupConfig, RedisDedupLock};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteDedupConfig, SqliteDedupLock};
#[cfg(all(feature = "two-tier", feature = "redis"))]
pub use self::two_tier::RedisFastTier;
#[cfg(feature = "two-tier")]
pub use self::two_tier::{FastTier, MemoryFastTier, TwoTierDedupLock};
pub use self::{
    claim::{
        Claim, ClaimGrant, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate,
        CompletedClaim, CompletionRequest, Fingerprint,
    },
    epoch::{DurableDedupLock, StoreEpoch},
    error::{DedupError, LimitError},
    lock::{DedupLock, check_batch},
    message_lock::MessageDedupLock,
    system::{ThreadRandom, WallClock},
};
