//! The layer over real sockets with each backend, across a kill, and at exact times.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod examples;
mod failures;
mod http;
mod kill;
mod support;
mod timing;
