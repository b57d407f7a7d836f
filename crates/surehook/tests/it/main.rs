//! The real binary over real sockets: what a sender, a receiver and an operator see.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test that asks for it")]

mod access;
mod api;
mod backups;
mod bad_events;
mod bad_framing;
mod certificates;
mod cli;
mod configuration;
mod delivery;
mod doctor;
mod evolution;
mod exports;
mod keys;
mod lanes;
mod lanes_load;
mod logs;
mod messages;
mod openapi;
mod plans;
mod presets;
mod presets_whatsapp;
mod promises;
mod provider_docs;
mod providers;
mod quarantine;
mod redaction;
mod replays;
mod retention;
mod search;
mod shell;
mod sign_as;
mod signatures;
mod standins;
mod story;
mod stream;
mod support;
mod sync;
mod transforms;
mod transport;
mod vendors;
mod verify;
mod versions;
mod wishes;
