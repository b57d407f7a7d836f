//! The conformance suite on the embedded store, and what only that store can get wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and says where")]

mod child;
mod copies;
mod crash;
mod damage;
mod decisions;
mod deleted;
mod fold;
mod full;
mod harness;
mod idempotency;
mod listed;
mod memory;
mod opening;
mod replay_jobs;
mod schema;
mod sends;
mod terms;

use harness::SqliteHarness;

surehook_store::store_conformance!(sqlite, SqliteHarness::new);
surehook_store::store_conformance!(sqlite_folding, SqliteHarness::folding);
surehook_store::store_conformance!(sqlite_folding_slowly, SqliteHarness::folding_slowly);
