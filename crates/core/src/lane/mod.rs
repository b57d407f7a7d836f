//! The rules of lanes. A lane sends all deliveries of one destination, or one of several lanes that share
//! them: a [shard](Shard).
//!
//! - [`scheduler`] is the queue and what runs: what starts, and when.
//! - [`attempt`] decides what follows from an attempt.
//! - [`gate`] decides what may start: pause, circuit, rate, backlog drain.
//! - [`ordering`] keeps deliveries with the same ordering key in order.
//! - [`shard`] identifies lanes, and divides the limits of a destination among them.
//! - [`state`] is the part of a lane's state that survives a restart.
//!
//! Rate limits and circuit breakers are in `surehook-retry`. All of it is pure: the time and random
//! numbers are arguments.

pub mod attempt;
pub mod gate;
pub mod ordering;
pub mod scheduler;
pub mod shard;
pub mod state;

use std::time::Duration;

pub use attempt::{AttemptDecision, DeliveryProgress, decide_attempt};
pub use ordering::{OrderingFailurePolicy, OrderingPolicy, OrderingSpec};
pub use shard::{LaneId, SHARDS_MAX, Shard};
pub use state::{BacklogDrain, LanePause, SavedLaneState};
use surehook_retry::{circuit::CircuitPolicy, rate::Rate};

/// The rules of one lane, apart from its concurrency.
#[derive(Debug, Default)]
pub struct LaneConfig {
    /// Which of the destination's lanes it is. It may use its share of the rate.
    pub shard: Shard,
    /// Rate limit of attempts of all lanes of the destination together.
    pub rate: Option<Rate>,
    /// Delay of the first attempt of a new delivery.
    pub delay: Duration,
    pub order: Option<OrderingPolicy>,
    /// `None` is a circuit that never opens.
    pub circuit: Option<CircuitPolicy>,
    /// Number of consecutive `config` failures that pause the destination; 0 is never.
    pub pause_after: u32,
}
