//! Values that every part of Surehook shares: ids, timestamps, names, secrets and their redaction.
//!
//! Pure: no I/O. The clock and the random numbers are traits, so that tests control them.

pub mod authorization;
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
