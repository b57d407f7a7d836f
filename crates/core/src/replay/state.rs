//! The states of a replay job and the legal transitions between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a replay job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// Its items are being selected.
    Selecting,
    /// It creates deliveries.
    Running,
    /// It creates no deliveries until it is resumed. Existing ones continue.
    Paused,
    /// All of its deliveries have ended.
    Done,
    /// Stopped by a user: remaining items are not delivered.
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayTransition {
    /// All items are selected.
    Selected,
    Pause,
    Resume,
    Cancel,
    /// All of its deliveries have ended.
    Finish,
}

impl ReplayTransition {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Selected => "selected",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Cancel => "cancelled",
            Self::Finish => "finished",
        }
    }

    /// Whether a job in `state` already is where this transition leads.
    pub const fn is_met_by(self, state: ReplayState) -> bool {
        match self {
            Self::Pause => matches!(state, ReplayState::Paused),
            Self::Resume => matches!(state, ReplayState::Selecting | ReplayState::Running),
            Self::Selected => matches!(state, ReplayState::Running),
            Self::Cancel => matches!(state, ReplayState::Cancelled),
            Self::Finish => matches!(state, ReplayState::Done),
        }
    }
}

impl ReplayState {
    pub const ALL: [Self; 5] =
        [Self::Selecting, Self::Running, Self::Paused, Self::Done, Self::Cancelled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Selecting => "selecting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it creates no more deliveries.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }

    /// The state after `input`; `None` if the transition is illegal.
    ///
    /// A resumed job always selects first; if everything is selected already, it runs at once. So a
    /// pause need not remember which state it interrupted.
    pub const fn apply(self, input: ReplayTransition) -> Option<Self> {
        match (self, input) {
            (Self::Selecting, ReplayTransition::Selected) => Some(Self::Running),
            (Self::Selecting | Self::Running, ReplayTransition::Pause) => Some(Self::Paused),
            (Self::Paused, ReplayTransition::Resume) => Some(Self::Selecting),
            (Self::Running, ReplayTransition::Finish) => Some(Self::Done),
            (Self::Selecting | Self::Running | Self::Paused, ReplayTransition::Cancel) => {
                Some(Self::Cancelled)
            }
            (Self::Selecting, ReplayTransition::Resume | ReplayTransition::Finish)
            | (Self::Running, ReplayTransition::Selected | ReplayTransition::Resume)
            | (
                Self::Paused,
                ReplayTransition::Selected | ReplayTransition::Pause | ReplayTransition::Finish,
            )
            | (
                Self::Done | Self::Cancelled,
                ReplayTransition::Selected
                | ReplayTransition::Pause
                | ReplayTransition::Resume
                | ReplayTransition::Cancel
                | ReplayTransition::Finish,
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: [ReplayTransition; 5] = [
        ReplayTransition::Selected,
        ReplayTransition::Pause,
        ReplayTransition::Resume,
        ReplayTransition::Cancel,
        ReplayTransition::Finish,
    ];

    #[test]
    fn only_listed_transitions_are_legal() {
        use ReplayState::{Cancelled, Done, Paused, Running, Selecting};
        let table = [
            (Selecting, [Some(Running), Some(Paused), None, Some(Cancelled), None]),
            (Running, [None, Some(Paused), None, Some(Cancelled), Some(Done)]),
            (Paused, [None, None, Some(Selecting), Some(Cancelled), None]),
            (Done, [None; 5]),
            (Cancelled, [None; 5]),
        ];
        for (state, after) in table {
            assert_eq!(INPUTS.map(|input| state.apply(input)), after, "from {state:?}");
            assert_eq!(state.is_final(), after == [None; 5]);
        }
    }

    #[test]
    fn is_met_by_holds_exactly_for_target_states() {
        let met = |input: ReplayTransition| -> Vec<_> {
            ReplayState::ALL.into_iter().filter(|state| input.is_met_by(*state)).collect()
        };
        for input in INPUTS {
            let met = met(input);
            for state in ReplayState::ALL {
                assert!(state.apply(input).is_none_or(|after| met.contains(&after)), "{input:?}");
            }
            assert!(met.iter().all(|state| state.apply(input).is_none()), "{input:?}");
        }
        assert_eq!(met(ReplayTransition::Resume), [ReplayState::Selecting, ReplayState::Running]);
        assert_eq!(met(ReplayTransition::Cancel), [ReplayState::Cancelled]);
    }

    #[test]
    fn every_replay_state_parses_from_its_name_and_serializes_to_it() {
        for state in ReplayState::ALL {
            assert_eq!(ReplayState::parse(state.as_str()), Some(state));
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(json, format!("\"{}\"", state.as_str()));
        }
    }
}
