//! Every backend against the conformance suite and against real servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "memory")]
mod memory;
#[cfg(all(
    feature = "memory",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "two-tier"
))]
mod servers;
#[cfg(feature = "sqlite")]
mod sqlite;
