//! Implementations of the store traits of `surehook_core::store`.
//!
//! [`sqlite`] is the embedded store, [`postgres`] the one that several processes share. `conformance`, behind the feature of that name, tests the contract
//! that every store must meet.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod migrate;
pub mod postgres;
mod sealing;
mod sql;
pub mod sqlite;
mod steps;

pub use postgres::{
    DatabaseInspection, PostgresOpenError, PostgresOptions, PostgresStore, ServerInspection,
    forget_database_move, inspect_database, rotate_database_key,
};
pub use sqlite::{
    OpenError, SqliteOptions, SqliteStore, backup, check_database, inspect, repair, restore,
};
