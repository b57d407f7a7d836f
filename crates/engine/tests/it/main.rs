//! A running engine on a store that fails as a test asks.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod configuration;
mod limits_over_nodes;
mod lost_claims;
mod ownership;
mod postgres;
mod several_nodes;
mod support;
mod unknown_outcomes;
