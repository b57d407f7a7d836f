//! What the numbers of a job mean, so that they always add up.

use std::collections::BTreeMap;

use serde::Serialize;

use super::state::ReplayState;

/// What became of one thing that a job selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayItemOutcome {
    /// Its new delivery succeeded.
    Succeeded,
    /// Its new delivery died.
    Dead,
    /// Its new delivery was cancelled.
    Cancelled,
    /// It was left out.
    Skipped(SkipReason),
}

/// Why something that was selected was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Somebody else has delivered it again meanwhile.
    Superseded,
    /// The event has a delivery to the destination by now.
    Present,
    /// The destination was deleted.
    DestinationGone,
    /// The event was removed before its turn came.
    EventGone,
    /// The body of the event was removed.
    BodyGone,
    /// Delivered, but removed before its end was counted.
    Forgotten,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Superseded,
        Self::Present,
        Self::DestinationGone,
        Self::EventGone,
        Self::BodyGone,
        Self::Forgotten,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Present => "present",
            Self::DestinationGone => "destination_gone",
            Self::EventGone => "event_gone",
            Self::BodyGone => "body_gone",
            Self::Forgotten => "forgotten",
        }
    }
}

impl ReplayItemOutcome {
    /// The word for it; each is of one outcome alone.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Skipped(skip) => skip.as_str(),
        }
    }

    /// The outcome that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        let ended = [Self::Succeeded, Self::Dead, Self::Cancelled];
        let skipped = SkipReason::ALL.map(Self::Skipped);
        ended.into_iter().chain(skipped).find(|outcome| outcome.as_str() == word)
    }
}

/// How far a job has come, or its part for one destination.
///
/// `selected = succeeded + dead + cancelled + skipped + waiting + left`, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Taken into the job.
    pub selected: u64,
    /// Of these, whose turn has come.
    pub taken: u64,
    /// What became of them.
    pub outcomes: BTreeMap<ReplayItemOutcome, u64>,
}

impl ReplayProgress {
    /// Adds what another destination came to.
    pub fn add(&mut self, other: &Self) {
        self.selected += other.selected;
        self.taken += other.taken;
        for (outcome, many) in &other.outcomes {
            *self.outcomes.entry(*outcome).or_default() += many;
        }
    }

    /// How many came to this.
    pub fn count(&self, outcome: ReplayItemOutcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or_default()
    }

    /// Left out, for whatever reason.
    pub fn skipped(&self) -> u64 {
        SkipReason::ALL.iter().map(|skip| self.count(ReplayItemOutcome::Skipped(*skip))).sum()
    }

    /// Handed out as new deliveries.
    pub fn dispatched(&self) -> u64 {
        let never_sent =
            self.skipped() - self.count(ReplayItemOutcome::Skipped(SkipReason::Forgotten));
        self.taken.saturating_sub(never_sent)
    }

    /// Those of which it is known what became of them.
    pub fn ended(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Selected, and never to be handed out: the job was cancelled before.
    pub fn left(&self, state: ReplayState) -> u64 {
        match state {
            ReplayState::Cancelled => self.selected.saturating_sub(self.taken),
            ReplayState::Selecting
            | ReplayState::Running
            | ReplayState::Paused
            | ReplayState::Done => 0,
        }
    }

    /// Still to come to something.
    pub fn waiting(&self, state: ReplayState) -> u64 {
        self.selected.saturating_sub(self.ended() + self.left(state))
    }
}

/// Divides `budget` among those who have room: evenly, and what one cannot take goes to the others.
pub fn distribute(budget: usize, rooms: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; rooms.len()];
    let mut left = budget;
    loop {
        let hungry: Vec<usize> = (0..rooms.len()).filter(|at| shares[*at] < rooms[*at]).collect();
        if hungry.is_empty() || left == 0 {
            return shares;
        }
        let each = left.div_ceil(hungry.len());
        for at in hungry {
            let more = each.min(rooms[at] - shares[at]).min(left);
            shares[at] += more;
            left -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_outcome_has_one_word_and_back() {
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
    fn a_budget_goes_to_those_who_have_room() {
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
        (0u64..50, 0u64..50, prop::collection::vec(0u64..20, 9)).prop_map(|(left, open, many)| {
            let skipped = SkipReason::ALL.map(ReplayItemOutcome::Skipped);
            let words = [
                ReplayItemOutcome::Succeeded,
                ReplayItemOutcome::Dead,
                ReplayItemOutcome::Cancelled,
            ];
            let outcomes: BTreeMap<ReplayItemOutcome, u64> =
                words.into_iter().chain(skipped).zip(many).collect();
            let taken = open + outcomes.values().sum::<u64>();
            ReplayProgress { selected: taken + left, taken, outcomes }
        })
    }

    proptest! {
        #[test]
        fn the_numbers_add_up_in_every_state(progress in any_progress()) {
            for state in ReplayState::ALL {
                let ended = progress.count(ReplayItemOutcome::Succeeded)
                    + progress.count(ReplayItemOutcome::Dead)
                    + progress.count(ReplayItemOutcome::Cancelled);
                let sum = ended + progress.skipped() + progress.waiting(state) + progress.left(state);
                prop_assert_eq!(sum, progress.selected);
            }
            prop_assert!(progress.dispatched() <= progress.taken);
        }

        #[test]
        fn nothing_of_a_budget_is_lost(budget in 0usize..500, rooms in prop::collection::vec(0usize..90, 0..9)) {
            let shares = distribute(budget, &rooms);
            prop_assert!(shares.iter().zip(&rooms).all(|(share, room)| share <= room));
            prop_assert_eq!(shares.iter().sum::<usize>(), budget.min(rooms.iter().sum()));
        }
    }
}
