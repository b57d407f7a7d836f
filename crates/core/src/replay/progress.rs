//! The state and progress of a replay job: the legal transitions, and the numbers that always add up.

use std::collections::BTreeMap;
use surehook_types::string_enum;

string_enum! {
    /// State of a replay job.
    pub enum ReplayState {
        /// Its items are being selected.
        Selecting = "selecting",
        /// It creates deliveries.
        Running = "running",
        /// It creates no deliveries until it is resumed. Existing ones continue.
        Paused = "paused",
        /// All of its deliveries have ended.
        Done = "done",
        /// Stopped by a user: remaining items are not delivered.
        Cancelled = "cancelled",
    }
}

string_enum! {
    pub enum ReplayTransition {
        /// All items are selected.
        Selected = "selected",
        Pause = "paused",
        Resume = "resumed",
        Cancel = "cancelled",
        /// All of its deliveries have ended.
        Finish = "finished",
    }
}

impl ReplayTransition {
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

/// Outcome of one selected item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayItemOutcome {
    Succeeded,
    Dead,
    Cancelled,
    /// No delivery was created, or it is unknown how it ended.
    Skipped(SkipReason),
}

string_enum! {
    /// Why a selected item was skipped.
    pub enum SkipReason {
        /// It was redelivered by other means meanwhile.
        Superseded = "superseded",
        /// The event has a delivery to the destination by now.
        Present = "present",
        /// The destination was deleted.
        DestinationGone = "destination_gone",
        /// Retention removed the event first.
        EventGone = "event_gone",
        /// Retention removed the body of the event.
        BodyGone = "body_gone",
        /// Delivered, but removed before its outcome was counted.
        DeliveryGone = "forgotten",
    }
}

impl ReplayItemOutcome {
    /// Unique among all outcomes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Skipped(skip) => skip.as_str(),
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        let ended = [Self::Succeeded, Self::Dead, Self::Cancelled];
        let skipped = SkipReason::ALL.map(Self::Skipped);
        ended.into_iter().chain(skipped).find(|outcome| outcome.as_str() == name)
    }
}

/// Progress of a job, or of its part for one destination.
///
/// `selected = succeeded + dead + cancelled + skipped + remaining` and
/// `remaining = queued + in_flight + left` always hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayProgress {
    pub selected: u64,
    /// Selected items that were processed: delivered or skipped.
    pub taken: u64,
    pub outcomes: BTreeMap<ReplayItemOutcome, u64>,
}

impl ReplayProgress {
    pub fn add(&mut self, other: &Self) {
        self.selected += other.selected;
        self.taken += other.taken;
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(*outcome).or_default() += count;
        }
    }

    pub fn count(&self, outcome: ReplayItemOutcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or_default()
    }

    /// Skipped items, for any reason.
    pub fn skipped(&self) -> u64 {
        SkipReason::ALL.iter().map(|skip| self.count(ReplayItemOutcome::Skipped(*skip))).sum()
    }

    /// Items for which a delivery was created.
    pub fn dispatched(&self) -> u64 {
        let never_sent =
            self.skipped() - self.count(ReplayItemOutcome::Skipped(SkipReason::DeliveryGone));
        self.taken.saturating_sub(never_sent)
    }

    /// Items with a known outcome.
    pub fn ended(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Items that are never delivered because the job was cancelled.
    pub fn left(&self, state: ReplayState) -> u64 {
        match state {
            ReplayState::Cancelled => self.selected.saturating_sub(self.taken),
            ReplayState::Selecting
            | ReplayState::Running
            | ReplayState::Paused
            | ReplayState::Done => 0,
        }
    }

    /// Items that no delivery was created for yet.
    pub fn queued(&self, state: ReplayState) -> u64 {
        self.selected.saturating_sub(self.taken + self.left(state))
    }

    /// Items whose delivery has not ended: it is attempted, or waits for an attempt.
    pub fn in_flight(&self, state: ReplayState) -> u64 {
        self.waiting(state).saturating_sub(self.queued(state))
    }

    /// Items that were not delivered: queued, in flight, or left by a cancelled job.
    pub fn remaining(&self, state: ReplayState) -> u64 {
        self.waiting(state) + self.left(state)
    }

    /// Items without an outcome yet: queued or in flight.
    pub fn waiting(&self, state: ReplayState) -> u64 {
        self.selected.saturating_sub(self.ended() + self.left(state))
    }
}

/// Divides the deliveries that a step of a job may create evenly among its lanes; what exceeds the limit
/// of one goes to the others.
pub fn distribute(budget: usize, limits: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; limits.len()];
    let mut left = budget;
    loop {
        let open: Vec<usize> =
            (0..limits.len()).filter(|index| shares[*index] < limits[*index]).collect();
        if open.is_empty() || left == 0 {
            return shares;
        }
        let equal_share = left.div_ceil(open.len());
        for index in open {
            let added = equal_share.min(limits[index] - shares[index]).min(left);
            shares[index] += added;
            left -= added;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            assert_eq!(
                ReplayTransition::ALL.map(|input| state.apply(input)),
                after,
                "from {state:?}"
            );
            assert_eq!(state.is_final(), after == [None; 5]);
        }
    }

    #[test]
    fn is_met_by_holds_exactly_for_target_states() {
        let met = |input: ReplayTransition| -> Vec<_> {
            ReplayState::ALL.into_iter().filter(|state| input.is_met_by(*state)).collect()
        };
        for input in ReplayTransition::ALL {
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

    #[test]
    fn every_item_outcome_parses_from_its_name() {
        let skipped = SkipReason::ALL.map(ReplayItemOutcome::Skipped);
        for outcome in
            [ReplayItemOutcome::Succeeded, ReplayItemOutcome::Dead, ReplayItemOutcome::Cancelled]
                .into_iter()
                .chain(skipped)
        {
            assert_eq!(ReplayItemOutcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(ReplayItemOutcome::parse("skipped"), None);
    }

    #[test]
    fn budget_is_distributed_to_those_with_room() {
        let cases: [(usize, &[usize], &[usize]); 6] = [
            (10, &[100, 100], &[5, 5]),
            (10, &[2, 100], &[2, 8]),
            (10, &[0, 3, 0], &[0, 3, 0]),
            (1, &[5, 5], &[1, 0]),
            (0, &[5], &[0]),
            (5, &[], &[]),
        ];
        for (budget, rooms, shares) in cases {
            assert_eq!(distribute(budget, rooms), shares, "{budget} into {rooms:?}");
        }
    }

    fn any_progress() -> impl Strategy<Value = ReplayProgress> {
        (0u64..50, 0u64..50, prop::collection::vec(0u64..20, 9)).prop_map(|(left, open, counts)| {
            let skipped = SkipReason::ALL.map(ReplayItemOutcome::Skipped);
            let fixed = [
                ReplayItemOutcome::Succeeded,
                ReplayItemOutcome::Dead,
                ReplayItemOutcome::Cancelled,
            ];
            let outcomes: BTreeMap<ReplayItemOutcome, u64> =
                fixed.into_iter().chain(skipped).zip(counts).collect();
            let taken = open + outcomes.values().sum::<u64>();
            ReplayProgress { selected: taken + left, taken, outcomes }
        })
    }

    proptest! {
        #[test]
        fn progress_numbers_add_up_in_every_state(progress in any_progress()) {
            for state in ReplayState::ALL {
                let ended = progress.count(ReplayItemOutcome::Succeeded)
                    + progress.count(ReplayItemOutcome::Dead)
                    + progress.count(ReplayItemOutcome::Cancelled);
                let sum = ended + progress.skipped() + progress.waiting(state) + progress.left(state);
                prop_assert_eq!(sum, progress.selected);
                prop_assert_eq!(ended + progress.skipped() + progress.remaining(state), progress.selected);
                let parts = progress.queued(state) + progress.in_flight(state) + progress.left(state);
                prop_assert_eq!(parts, progress.remaining(state));
            }
            prop_assert!(progress.dispatched() <= progress.taken);
        }

        #[test]
        fn distribution_uses_the_whole_budget(budget in 0usize..500, rooms in prop::collection::vec(0usize..90, 0..9)) {
            let shares = distribute(budget, &rooms);
            prop_assert!(shares.iter().zip(&rooms).all(|(share, room)| share <= room));
            prop_assert_eq!(shares.iter().sum::<usize>(), budget.min(rooms.iter().sum()));
        }
    }
}
