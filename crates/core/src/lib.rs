//! The domain of Surehook: types, rules and decisions. No I/O, no clock, no randomness, no runtime.
//!
//! A **request** is received by a **source** and carries **events**. A **route** with a filter sends
//! an event to a **destination**: that is a **delivery**, made in one or more **attempts**. A
//! delivery that was given up is a **dead letter**; a **replay** creates a new delivery for it.
//!
//! Everything here is pure, so the engine and the stores can share it and tests need no setup. The
//! [`store`] traits say what a database must guarantee.

pub mod access;
pub mod alert;
pub mod callback;
pub mod clock;
pub mod dead_letters;
pub mod decision;
pub mod delivery;
pub mod destination;
pub mod diff;
pub mod event;
pub mod health;
pub mod histogram;
pub mod idempotency;
pub mod lane;
pub mod message_status;
pub mod one_shot;
pub mod otlp;
pub mod outbox;
pub mod quarantine;
pub mod refused;
pub mod replay;
pub mod requests;
pub mod retention;
pub mod rollup;
pub mod route;
pub mod source;
#[cfg(test)]
mod spec_tests;
pub mod store;
pub mod sync;
pub mod timeline;
pub mod trace;
