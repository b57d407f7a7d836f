//! Every backend against the conformance suite and against real servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "memory")]
mod memory;
#[cfg(all(feature = "memory", feature = "redis"))]
mod message_lock;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis_backend;
#[cfg(feature = "sqlite")]
mod sqlite;
mod support;
#[cfg(all(feature = "two-tier", feature = "sqlite", feature = "redis"))]
mod two_tier;
#[cfg(all(feature = "two-tier", feature = "sqlite", feature = "redis"))]
mod two_tier_faults;
