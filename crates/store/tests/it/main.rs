//! The conformance suite on both stores, and tests of each alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backup;
mod case_list;
mod child_process;
mod crash;
mod damage;
mod destination_deletion;
mod earlier_keys;
mod full_disk;
mod harness;
mod idempotency;
mod memory;
mod merge_keys;
mod migrate;
mod newer_schema;
mod opening;
mod postgres;
mod pruning;
mod replay_jobs;
mod schema;
mod sent_messages;
mod terms;

use harness::SqliteHarness;

surehook_store::store_conformance!(sqlite, SqliteHarness::new);
surehook_store::store_conformance!(sqlite_immediate_merge, SqliteHarness::with_immediate_merge);
surehook_store::store_conformance!(sqlite_slow_merge, SqliteHarness::with_slow_merge);
