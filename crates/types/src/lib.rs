//! Values that every part of Surehook shares: ids, timestamps, names, secrets and their redaction.
//!
//! Pure: no I/O. The clock and the random numbers are traits, so that tests control them. Published
//! because the public interfaces of `surehook-retry`, `surehook-webhooks` and others use these types:
//!
//! - `time`: [`Timestamp`](time::Timestamp), [`HumanDuration`](time::HumanDuration) for settings
//!   (`30s`, `5m`), and [`Clock`](time::Clock)
//! - `rng`: [`Rng`](rng::Rng)
//! - `secret`: [`Secret`](secret::Secret), compared in constant time and never printed
//! - `redact`: masks secrets in bodies, queries and URLs
//! - `ids`, `name`: ids with a prefix that sort by time, and names that are part of a URL
//!
//! ```
//! use std::time::Duration;
//! use surehook_types::time::{HumanDuration, Timestamp};
//!
//! let timeout: HumanDuration = "30s".parse()?;
//! let start: Timestamp = "2026-11-15T08:00:00Z".parse()?;
//! assert_eq!((start + timeout.0).to_string(), "2026-11-15T08:00:30.000Z");
//! assert!("30 seconds".parse::<HumanDuration>().is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Semantic versioning: in `0.x`, a change of the second number may break. The minimum supported Rust
//! version is 1.95; raising it changes the second number.

#![deny(missing_docs)]

pub mod authorization;
pub mod idempotency_key;
pub mod ids;
pub mod inflate;
mod json_text;
pub mod name;
pub mod object;
pub mod redact;
pub mod rng;
pub mod secret;
pub mod store_error;
mod string_enum;
pub mod time;
