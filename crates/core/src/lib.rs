//! The domain of Surehook: types, rules and decisions. No I/O, no clock, no randomness, no runtime.
//!
//! A **request** is received by a **source** and carries **events**. A **route** with a filter sends
//! an event to a **destination**: that is a **delivery**, made in one or more **attempts**. A
//! delivery that was given up is a **dead letter**; a **replay** creates a new delivery for it.
//!
//! Everything here is pure, so the engine and the stores can share it and tests need no setup. The
//! [`store`] traits say what a database must guarantee.

pub mod access;
pub mod address;
pub mod attribute;
pub mod body_value;
pub mod channel;
pub mod dead_letters;
pub mod decision;
pub mod delivery;
pub mod destination;
pub mod diff;
pub mod event;
pub mod histogram;
pub mod idempotency;
pub mod ids;
pub mod inflate;
pub mod jq;
pub mod key;
pub mod lane;
pub mod media;
pub mod name;
pub mod object;
pub mod outbox;
pub mod provider;
pub mod quarantine;
pub mod redact;
pub mod refused;
pub mod replay;
pub mod request;
pub mod requests;
pub mod retention;
pub mod retry;
pub mod rng;
pub mod rollup;
pub mod route;
mod schema;
pub mod secret;
pub mod sign;
pub mod source;
pub mod store;
pub mod sync;
pub mod time;
pub mod timeline;
pub mod verify;
