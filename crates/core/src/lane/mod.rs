//! The rules of a lane: everything that is sent to one destination.
//!
//! - [`ordering`] keeps deliveries with the same ordering key in order.
//! - [`state`] is what a lane saves over a restart.
//!
//! Rate limits and circuit breakers are in `surehook-retry`. All of it is pure: the time and random
//! numbers are arguments.

pub mod ordering;
pub mod state;

use std::time::Duration;

pub use ordering::{OrderingFailurePolicy, OrderingPolicy, OrderingSpec};
pub use state::{BacklogDrain, LanePause, SavedLaneState};
use surehook_retry::{circuit::CircuitPolicy, rate::Rate};

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
