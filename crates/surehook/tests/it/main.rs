//! The real binary over real sockets: what a sender, a receiver and an operator see.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test that asks for it")]

mod api;
mod bad_events;
mod bad_framing;
mod cli;
mod configuration;
mod delivery;
mod keys;
mod logs;
mod promises;
mod retention;
mod support;
mod verify;
