//! The rules of a lane: everything that is sent to one destination.
//!
//! - [`rate`] limits attempts over time.
//! - [`circuit`] stops calling a destination that keeps failing and comes back gradually.
//! - [`ordering`] keeps deliveries with the same ordering key in order.
//! - [`state`] is what a lane saves over a restart.
//!
//! All of it is pure: the time and random numbers are arguments.

pub mod circuit;
pub mod ordering;
pub mod rate;
pub mod state;

use std::time::Duration;

pub use circuit::{Circuit, CircuitPolicy, CircuitSpec, CircuitState};
pub use ordering::{OrderingFailurePolicy, OrderingPolicy, OrderingSpec};
pub use rate::{Gcra, Rate};
pub use state::{BacklogDrain, LanePause, SavedLaneState};

/// The rules of one lane, apart from its concurrency.
#[derive(Debug, Default)]
pub struct LaneRules {
    /// Rate limit of attempts.
    pub rate: Option<Rate>,
    /// Delay of the first attempt of a new delivery.
    pub delay: Duration,
    pub order: Option<OrderingPolicy>,
    /// `None` is a circuit that never opens.
    pub circuit: Option<CircuitPolicy>,
    /// Number of consecutive `config` failures that pause the destination; 0 is never.
    pub pause_after: u32,
}
