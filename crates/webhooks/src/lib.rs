//! What a program needs to receive and to sign webhooks: everything but the I/O.
//!
//! [`verify`] checks signatures, [`provider`] has a preset for each provider (its verification, how its
//! requests are split into events, and its keys), [`key`] extracts dedup keys, [`sign`] signs requests,
//! [`jq`] runs filters and transforms within a step budget.

pub mod attribute;
pub mod body_value;
pub mod jq;
pub mod key;
mod mac;
pub mod provider;
pub mod request;
pub mod sign;
pub mod verify;
