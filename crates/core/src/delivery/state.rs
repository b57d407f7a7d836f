//! The states of a delivery and the only moves between them.
//!
//! [`DeliveryState::apply`] is the law. SQL that moves rows names the [`DeliveryTransition`] it stands for, and
//! the conformance suite plays random histories through both.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{retry::DeadReason, time::Timestamp};

/// Proves who holds a claim. Minted for each claim: one that was lost cannot be mistaken for the
/// next one, even by the same holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub i64);

/// The right to work on a delivery until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What must be shown to finish.
    pub token: LeaseToken,
    /// When others may take over.
    pub until: Timestamp,
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Not tried yet, or given back untried.
    Pending { due_at: Timestamp },
    /// A lane holds it.
    InFlight(Lease),
    /// Tried, failed or not known to have arrived, and will be tried again.
    Scheduled { due_at: Timestamp },
    /// Waits for its turn: others of its ordering key come first.
    Held,
    /// The destination said 2xx, or said later that it has it.
    Succeeded { at: Timestamp },
    /// Given up; this is what a dead letter is.
    Dead { at: Timestamp, reason: DeadReason },
    /// A person or the end of its destination stopped it.
    Cancelled { at: Timestamp },
    /// A newer delivery took over.
    Replayed { at: Timestamp },
}

/// The name of a state alone, as the API, the store and the metrics write it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    /// See [`DeliveryState::Pending`].
    Pending,
    /// See [`DeliveryState::InFlight`].
    InFlight,
    /// See [`DeliveryState::Scheduled`].
    Scheduled,
    /// See [`DeliveryState::Held`].
    Held,
    /// See [`DeliveryState::Succeeded`].
    Succeeded,
    /// See [`DeliveryState::Dead`].
    Dead,
    /// See [`DeliveryState::Cancelled`].
    Cancelled,
    /// See [`DeliveryState::Replayed`].
    Replayed,
}

impl DeliveryStatus {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::InFlight,
        Self::Scheduled,
        Self::Held,
        Self::Succeeded,
        Self::Dead,
        Self::Cancelled,
        Self::Replayed,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InFlight => "in_flight",
            Self::Scheduled => "scheduled",
            Self::Held => "held",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Replayed => "replayed",
        }
    }

    /// The status that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing more happens by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled | Self::Replayed)
    }
}

/// What can happen to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryTransition {
    /// A lane takes it.
    Claim(Lease),
    /// The holder asks for more time.
    Renew(Lease),
    /// The holder gives it back untried, or its lease ran out.
    Release { due_at: Timestamp },
    /// The attempt went well.
    Succeed { at: Timestamp },
    /// The attempt failed and there will be another.
    Retry { due_at: Timestamp },
    /// The attempt failed for good.
    GiveUp { at: Timestamp, reason: DeadReason },
    /// While it waits, or after nobody knew whether it had arrived, a status says that what was tried
    /// before has arrived: by it, or by what it took over from.
    Confirm { at: Timestamp },
    /// While it waits, a status says that what was tried before has failed for good.
    ConfirmFailure { at: Timestamp, reason: DeadReason },
    /// At its birth, others of its ordering key have not ended yet.
    Hold,
    /// All that came before it have ended.
    EndHold { due_at: Timestamp },
    /// A person, or the end of its destination, stops it.
    Cancel { at: Timestamp },
    /// A new delivery takes over.
    Replay { at: Timestamp },
}

/// A move that the law does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery that is {} cannot take {input:?}", from.status().as_str())]
pub struct IllegalTransitionError {
    /// The state it was in.
    pub from: DeliveryState,
    /// What was asked.
    pub input: DeliveryTransition,
}

impl DeliveryState {
    /// The bare name of the state.
    pub const fn status(&self) -> DeliveryStatus {
        match self {
            Self::Pending { .. } => DeliveryStatus::Pending,
            Self::InFlight(_) => DeliveryStatus::InFlight,
            Self::Scheduled { .. } => DeliveryStatus::Scheduled,
            Self::Held => DeliveryStatus::Held,
            Self::Succeeded { .. } => DeliveryStatus::Succeeded,
            Self::Dead { .. } => DeliveryStatus::Dead,
            Self::Cancelled { .. } => DeliveryStatus::Cancelled,
            Self::Replayed { .. } => DeliveryStatus::Replayed,
        }
    }

    /// Moves the delivery. Every state is named: a new one must be placed here by hand.
    pub fn apply(self, input: DeliveryTransition) -> Result<Self, IllegalTransitionError> {
        use {DeliveryState as S, DeliveryTransition as I};
        Ok(match (self, input) {
            (S::Pending { .. } | S::Scheduled { .. }, I::Claim(lease))
            | (S::InFlight(_), I::Renew(lease)) => S::InFlight(lease),
            (S::InFlight(_), I::Release { due_at }) | (S::Held, I::EndHold { due_at }) => {
                S::Pending { due_at }
            }
            (S::InFlight(_), I::Succeed { at })
            | (
                S::Pending { .. }
                | S::Scheduled { .. }
                | S::Held
                // The only end that somebody may know better than we do.
                | S::Dead { reason: DeadReason::Ambiguous, .. },
                I::Confirm { at },
            ) => S::Succeeded { at },
            (S::InFlight(_), I::Retry { due_at }) => S::Scheduled { due_at },
            (S::InFlight(_), I::GiveUp { at, reason })
            | (S::Pending { .. } | S::Scheduled { .. }, I::ConfirmFailure { at, reason }) => {
                S::Dead { at, reason }
            }
            (S::Pending { .. }, I::Hold) => S::Held,
            (
                S::Pending { .. } | S::InFlight(_) | S::Scheduled { .. } | S::Held,
                I::Cancel { at },
            ) => S::Cancelled { at },
            (S::Dead { .. } | S::Succeeded { .. }, I::Replay { at }) => S::Replayed { at },
            (
                S::Pending { .. } | S::Scheduled { .. },
                I::Renew(_)
                | I::Release { .. }
                | I::Succeed { .. }
                | I::Retry { .. }
                | I::GiveUp { .. }
                | I::EndHold { .. }
                | I::Replay { .. },
            )
            // Once it has been tried it is the first of its key, and stays that until it ends.
            | (S::Scheduled { .. }, I::Hold)
            // What a status says during an attempt is kept until that has ended.
            | (
                S::InFlight(_),
                I::Claim(_)
                | I::Confirm { .. }
                | I::ConfirmFailure { .. }
                | I::Hold
                | I::EndHold { .. }
                | I::Replay { .. },
            )
            // Of one that is held, nothing was tried that could have failed.
            | (
                S::Held | S::Dead { .. } | S::Succeeded { .. },
                I::Claim(_)
                | I::Renew(_)
                | I::Release { .. }
                | I::Succeed { .. }
                | I::Retry { .. }
                | I::GiveUp { .. }
                | I::ConfirmFailure { .. }
                | I::Hold,
            )
            | (S::Dead { .. } | S::Succeeded { .. }, I::Confirm { .. })
            | (S::Held, I::Replay { .. })
            | (S::Dead { .. } | S::Succeeded { .. }, I::EndHold { .. } | I::Cancel { .. })
            | (S::Cancelled { .. } | S::Replayed { .. }, _) => {
                return Err(IllegalTransitionError { from: self, input });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const LEASE: Lease = Lease { token: LeaseToken(7), until: NOW };

    fn any_input() -> impl Strategy<Value = DeliveryTransition> {
        prop::sample::select(vec![
            DeliveryTransition::Claim(LEASE),
            DeliveryTransition::Renew(LEASE),
            DeliveryTransition::Release { due_at: NOW },
            DeliveryTransition::Succeed { at: NOW },
            DeliveryTransition::Retry { due_at: NOW },
            DeliveryTransition::GiveUp { at: NOW, reason: DeadReason::MaxRetries },
            DeliveryTransition::GiveUp { at: NOW, reason: DeadReason::Ambiguous },
            DeliveryTransition::Confirm { at: NOW },
            DeliveryTransition::ConfirmFailure { at: NOW, reason: DeadReason::Unrecoverable },
            DeliveryTransition::Hold,
            DeliveryTransition::EndHold { due_at: NOW },
            DeliveryTransition::Cancel { at: NOW },
            DeliveryTransition::Replay { at: NOW },
        ])
    }

    proptest! {
        #[test]
        fn a_final_state_is_left_only_by_a_replay_or_by_a_word_of_what_nobody_knew(inputs in prop::collection::vec(any_input(), 0..40)) {
            let mut state = DeliveryState::Pending { due_at: NOW };
            for input in inputs {
                let before = state;
                match state.apply(input) {
                    Ok(after) => {
                        let replayed = matches!(input, DeliveryTransition::Replay { .. });
                        let mended = matches!(before, DeliveryState::Dead {
                            reason: DeadReason::Ambiguous, ..
                        }) && matches!(input, DeliveryTransition::Confirm { .. });
                        prop_assert!(!before.status().is_final() || replayed || mended);
                        state = after;
                    }
                    Err(refused) => prop_assert_eq!(refused.from, before),
                }
            }
        }

        #[test]
        fn only_a_claim_leads_into_flight(input in any_input()) {
            for state in [
                DeliveryState::Pending { due_at: NOW },
                DeliveryState::Scheduled { due_at: NOW },
                DeliveryState::Held,
                DeliveryState::Dead { at: NOW, reason: DeadReason::MaxRetries },
            ] {
                if let Ok(DeliveryState::InFlight(_)) = state.apply(input) {
                    prop_assert!(matches!(input, DeliveryTransition::Claim(_)));
                }
            }
        }
    }

    #[test]
    fn a_status_has_one_word_and_back() {
        for status in DeliveryStatus::ALL {
            assert_eq!(DeliveryStatus::parse(status.as_str()), Some(status));
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(json, format!("\"{}\"", status.as_str()));
        }
    }
}
