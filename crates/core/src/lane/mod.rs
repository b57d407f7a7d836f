//! The rules of lanes. A lane sends all deliveries of one destination.
//!
//! - [`scheduler`] is the queue and what runs: what starts, and when.
//! - [`attempt`] decides what follows from an attempt.
//! - [`gate`] decides what may start: pause, circuit, rate, backlog drain.
//! - [`ordering`] keeps deliveries with the same ordering key in order.
//! - [`state`] is the part of a lane's state that survives a restart.
//!
//! Rate limits and circuit breakers are in `surehook-retry`. All of it is pure: the time and random
//! numbers are arguments.

pub mod attempt;
pub mod gate;
pub mod ordering;
pub mod scheduler;
pub mod state;

use std::time::Duration;

pub use attempt::{AttemptDecision, DeliveryProgress, decide_attempt};
pub use ordering::{OrderingFailurePolicy, OrderingPolicy, OrderingSpec};
pub use state::{BacklogDrain, LanePause, SavedLaneState};
use surehook_retry::{circuit::CircuitPolicy, rate::Rate};

/// The rules of one lane, apart from its concurrency.
#[derive(Debug, Default)]
pub struct LaneConfig {
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
