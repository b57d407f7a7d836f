//! The states of a delivery and the legal transitions between them.
//!
//! [`DeliveryState::apply`] is the only definition. SQL that moves rows names the
//! [`DeliveryTransition`] it performs, and the conformance suite runs random histories through both.

use surehook_retry::DeadReason;
use surehook_types::{rng::Rng, string_enum, time::Timestamp};

/// A number that grows whenever a lane gets an owner. What carries an older one changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneEpoch(pub i64);

/// Proof of a claim: the right of a lane's owner to work on a delivery, as long as it owns the lane.
///
/// Each claim gets a new number, so that a lost claim cannot be mistaken for the next one of the same
/// owner. The deliveries of one call have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimProof {
    pub epoch: LaneEpoch,
    pub number: i64,
}

impl ClaimProof {
    pub fn random(epoch: LaneEpoch, rng: &dyn Rng) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "any 63 of the bits will do")]
        Self { epoch, number: (rng.next_u128() as i64) & i64::MAX }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Not attempted yet, or released without an attempt.
    Pending { due_at: Timestamp },
    /// Claimed by a lane.
    InFlight(ClaimProof),
    /// Attempted without a confirmed success; will be attempted again.
    Scheduled { due_at: Timestamp },
    /// Earlier deliveries of the same ordering key have not ended.
    Held,
    /// The destination answered 2xx or confirmed the delivery later.
    Succeeded { at: Timestamp },
    /// Given up: a dead letter.
    Dead { at: Timestamp, reason: DeadReason },
    /// Cancelled by a user or because its destination was deleted.
    Cancelled { at: Timestamp },
    /// Replaced by a newer delivery.
    Replayed { at: Timestamp },
}

string_enum! {
    /// The name of a state.
    pub enum DeliveryStatus {
        Pending = "pending",
        InFlight = "in_flight",
        Scheduled = "scheduled",
        Held = "held",
        Succeeded = "succeeded",
        Dead = "dead",
        Cancelled = "cancelled",
        Replayed = "replayed",
    }
}

impl DeliveryStatus {
    /// Whether nothing more happens without a user.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled | Self::Replayed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryTransition {
    /// A lane begins to work on it.
    Claim(ClaimProof),
    /// The holder releases it without an attempt, or the attempt ended without a result.
    Release { due_at: Timestamp },
    /// The attempt succeeded.
    Succeed { at: Timestamp },
    /// The attempt failed and will be retried.
    Retry { due_at: Timestamp },
    /// The attempt failed and the delivery is given up.
    GiveUp { at: Timestamp, reason: DeadReason },
    /// A status update says that an earlier attempt succeeded, of this delivery or of the one it
    /// replaces. Possible while it waits, or after it died with an ambiguous outcome.
    Confirm { at: Timestamp },
    /// A status update says that an earlier attempt failed permanently. Possible while it waits.
    ConfirmFailure { at: Timestamp, reason: DeadReason },
    /// On creation, earlier deliveries of the same ordering key have not ended.
    Hold,
    /// All earlier deliveries of the same ordering key have ended.
    EndHold { due_at: Timestamp },
    /// A user cancels it, or its destination is deleted.
    Cancel { at: Timestamp },
    /// A new delivery replaces it.
    Replay { at: Timestamp },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal transition {input:?} of a delivery that is {}", from.status().as_str())]
pub struct IllegalTransitionError {
    pub from: DeliveryState,
    pub input: DeliveryTransition,
}

impl DeliveryState {
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

    /// Applies a transition. Every state is listed, so that a new one has to be considered here.
    pub fn apply(self, input: DeliveryTransition) -> Result<Self, IllegalTransitionError> {
        use {DeliveryState as S, DeliveryTransition as I};
        Ok(match (self, input) {
            (S::Pending { .. } | S::Scheduled { .. }, I::Claim(proof)) => S::InFlight(proof),
            (S::InFlight(_), I::Release { due_at }) | (S::Held, I::EndHold { due_at }) => {
                S::Pending { due_at }
            }
            (S::InFlight(_), I::Succeed { at })
            | (
                S::Pending { .. }
                | S::Scheduled { .. }
                | S::Held
                // The only final state that a late status update may correct.
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
                I::Release { .. }
                | I::Succeed { .. }
                | I::Retry { .. }
                | I::GiveUp { .. }
                | I::EndHold { .. }
                | I::Replay { .. },
            )
            // Once attempted it is the first of its ordering key until it ends.
            | (S::Scheduled { .. }, I::Hold)
            // A status update during an attempt is applied when the attempt ends.
            | (
                S::InFlight(_),
                I::Claim(_)
                | I::Confirm { .. }
                | I::ConfirmFailure { .. }
                | I::Hold
                | I::EndHold { .. }
                | I::Replay { .. },
            )
            // A held delivery was never attempted, so nothing of it can have failed.
            | (
                S::Held | S::Dead { .. } | S::Succeeded { .. },
                I::Claim(_)
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
    const CLAIM: ClaimProof = ClaimProof { epoch: LaneEpoch(1), number: 7 };

    fn any_input() -> impl Strategy<Value = DeliveryTransition> {
        prop::sample::select(vec![
            DeliveryTransition::Claim(CLAIM),
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
        fn final_state_is_left_only_by_replay_or_by_confirming_an_ambiguous_outcome(inputs in prop::collection::vec(any_input(), 0..40)) {
            let mut state = DeliveryState::Pending { due_at: NOW };
            for input in inputs {
                let before = state;
                match state.apply(input) {
                    Ok(after) => {
                        let replayed = matches!(input, DeliveryTransition::Replay { .. });
                        let confirmed = matches!(before, DeliveryState::Dead {
                            reason: DeadReason::Ambiguous, ..
                        }) && matches!(input, DeliveryTransition::Confirm { .. });
                        prop_assert!(!before.status().is_final() || replayed || confirmed);
                        state = after;
                    }
                    Err(refused) => prop_assert_eq!(refused.from, before),
                }
            }
        }

        #[test]
        fn only_a_claim_leads_to_in_flight(input in any_input()) {
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
    fn every_status_parses_from_its_name_and_serializes_to_it() {
        for status in DeliveryStatus::ALL {
            assert_eq!(DeliveryStatus::parse(status.as_str()), Some(status));
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(json, format!("\"{}\"", status.as_str()));
        }
    }
}
