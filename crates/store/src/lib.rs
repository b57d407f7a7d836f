//! Stores: SQL, and only SQL.
//!
//! [`sqlite`] is the embedded store. `conformance`, behind the feature of that name, is the contract
//! of every store as tests: what passes it may stand behind the traits of `surehook_core::store`.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod sqlite;

pub use sqlite::{OpenError, SqliteOptions, SqliteStore, backup, check_database, inspect, restore};
