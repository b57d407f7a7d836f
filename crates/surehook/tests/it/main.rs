//! The real binary over real sockets: what a sender, a receiver and an operator see.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test that asks for it")]

mod access;
mod api;
mod backups;
mod bad_events;
mod bad_framing;
mod cli;
mod configuration;
mod delivery;
mod doctor;
mod keys;
mod logs;
mod plans;
mod promises;
mod shell;
mod support;
mod verify;
