//! The state of a lane that survives a restart.

use surehook_retry::{circuit::CircuitState, rate::Rate};
use surehook_types::time::Timestamp;

/// A pause: nothing is delivered to the destination until a user resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePause {
    pub at: Timestamp,
    /// Free text for people.
    pub reason: Option<String>,
    /// Whether the gateway paused it by itself.
    pub automatic: bool,
}

/// The rate limit for the backlog after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogDrain {
    pub rate: Rate,
    /// Newest creation time of a delivery in the backlog; later ones are not limited.
    pub until: Timestamp,
}

/// The saved state of a lane. The default means that there is nothing to save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedLaneState {
    pub paused: Option<LanePause>,
    pub circuit: CircuitState,
    /// The destination asked to slow down: no attempts until then.
    pub cool_until: Option<Timestamp>,
    pub drain: Option<BacklogDrain>,
}

impl SavedLaneState {
    /// Whether deliveries are held by a pause or by the circuit. Rate limits and cool-downs do not count.
    pub fn is_holding(&self) -> bool {
        self.paused.is_some() || self.circuit.is_holding()
    }
}
