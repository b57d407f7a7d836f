//! What a lane keeps over a restart.

use super::{CircuitState, Rate};
use crate::time::Timestamp;

/// Why nothing is delivered to a destination until a person resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePause {
    /// Since when.
    pub at: Timestamp,
    /// Why, in words for people.
    pub reason: Option<String>,
    /// Whether the gateway did it by itself.
    pub automatic: bool,
}

/// How a backlog is worked off after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogDrain {
    /// No faster than this.
    pub rate: Rate,
    /// What was created by then is the backlog.
    pub until: Timestamp,
}

/// What is to say of a lane beside its settings. The default is that there is nothing to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedLaneState {
    /// It is paused.
    pub paused: Option<LanePause>,
    /// How its circuit is.
    pub circuit: CircuitState,
    /// The destination asked for peace until then.
    pub cool_until: Option<Timestamp>,
    /// A backlog is being worked off.
    pub drain: Option<BacklogDrain>,
}

impl SavedLaneState {
    /// Whether what waits for the destination waits for something other than time.
    pub fn is_holding(&self) -> bool {
        self.paused.is_some() || self.circuit.is_holding()
    }
}
