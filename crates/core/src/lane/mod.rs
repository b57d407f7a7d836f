//! How much a destination gets, when, and in which order.
//!
//! A *lane* is everything that goes to one destination. What it may do next follows from what is
//! written here and from what has happened, and from nothing else:
//!
//! - [`rate`] spreads attempts over time.
//! - [`circuit`] leaves a destination alone that fails again and again, and comes back gently.
//! - [`ordering`] is about deliveries that must arrive one after the other.
//! - [`state`] is what a lane keeps over a restart.
//!
//! All of it is pure: the time and the dice are arguments.

pub mod circuit;
pub mod ordering;
pub mod rate;
pub mod state;

use std::time::Duration;

pub use circuit::{Circuit, CircuitPolicy, CircuitSpec, CircuitState};
pub use ordering::{OrderingFailurePolicy, OrderingPolicy, OrderingSpec};
pub use rate::{Gcra, Rate};
pub use state::{BacklogDrain, LanePause, SavedLaneState};

/// The rules of one lane, beside its concurrency.
#[derive(Debug, Default)]
pub struct LaneRules {
    /// The most attempts in a time.
    pub rate: Option<Rate>,
    /// How long a fresh delivery waits before its first attempt.
    pub delay: Duration,
    /// Which deliveries must come one after the other.
    pub order: Option<OrderingPolicy>,
    /// When a failing destination is left alone; `None` is never.
    pub circuit: Option<CircuitPolicy>,
    /// So many failures of class `config` in a row pause the destination; 0 is never.
    pub pause_after: u32,
}
