//! Every backend against the conformance suite and against real servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;
mod servers;
mod sqlite;
