//! The states of a replay job and the only moves between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a job stands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// What it takes is being written down.
    Selecting,
    /// It hands out deliveries.
    Running,
    /// It hands out nothing until it is resumed. What was handed out goes on.
    Paused,
    /// All of its deliveries have ended.
    Done,
    /// A person stopped it: what was not handed out never will be.
    Cancelled,
}

/// What can happen to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayTransition {
    /// All that it takes is written down.
    Selected,
    /// A person holds it.
    Pause,
    /// A person lets it go on.
    Resume,
    /// A person stops it.
    Cancel,
    /// All of its deliveries have ended.
    Finish,
}

impl ReplayTransition {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Selected => "selected",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Cancel => "cancelled",
            Self::Finish => "finished",
        }
    }

    /// Whether a job in `state` is what this input wants it to be.
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
    /// Every state, in the order of a life.
    pub const ALL: [Self; 5] =
        [Self::Selecting, Self::Running, Self::Paused, Self::Done, Self::Cancelled];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Selecting => "selecting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether it hands out nothing more, ever.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }

    /// The state after `input`; `None` if that cannot happen.
    ///
    /// A resumed job always selects: if all is selected already, the next look says so. Thus a pause
    /// need not remember what it interrupted.
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
    fn these_moves_and_no_others() {
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
    fn what_is_met_is_where_a_move_leads_and_moves_no_further() {
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
    fn a_state_has_one_word_and_back() {
        for state in ReplayState::ALL {
            assert_eq!(ReplayState::parse(state.as_str()), Some(state));
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(json, format!("\"{}\"", state.as_str()));
        }
    }
}
