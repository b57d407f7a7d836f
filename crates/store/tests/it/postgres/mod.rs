//! The conformance suite on the PostgreSQL store, and tests of that store alone.

mod earlier_nodes;
pub(crate) mod harness;
mod pgbouncer;
mod plans;
mod race;

use harness::PostgresHarness;

surehook_store::store_conformance!(conformance, PostgresHarness::new);
