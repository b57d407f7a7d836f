//! What people, and the lane itself, do to a lane: pause, resume, probe, and keep that over a restart.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use surehook_core::{
    lane::{BacklogDrain, CircuitState, LanePause, Rate, SavedLaneState},
    store::{AttemptRow, HeldClaim, StoreError},
    time::Timestamp,
};

use super::{Lane, QueuedDelivery, RunningAttemptGuard, attempt::RecipientPacing};
use crate::feed::{DestinationChange, DestinationChanged, LiveUpdate};

/// A cool-down is kept over a restart if it lasts at least so much longer.
const COOL_DOWN_KEPT_SECS: u64 = 10;
/// Two times of a cool-down that differ by less than this are the same.
const COOL_DOWN_STEP_SECS: u64 = 1;

impl Lane {
    /// What is to say of this lane.
    pub(crate) fn state(&self) -> SavedLaneState {
        let cool_until = self.cooling_until();
        let inside = self.inside();
        SavedLaneState {
            paused: inside.gate.paused.clone(),
            circuit: inside.gate.circuit.state(),
            cool_until,
            drain: inside.gate.drain(),
        }
    }

    /// The same, as it is worth keeping: a short cool-down is over before anybody could read it.
    fn state_to_keep(&self) -> SavedLaneState {
        let soon = self.shared.clock.now() + std::time::Duration::from_secs(COOL_DOWN_KEPT_SECS);
        let mut state = self.state();
        state.cool_until = state.cool_until.filter(|until| *until >= soon);
        state
    }

    /// Starts nothing more. What waits in memory goes back to the store; what runs may end.
    pub(crate) async fn pause(&self, reason: Option<String>) -> Result<(), StoreError> {
        let at = self.shared.clock.now();
        let pause = LanePause { at, reason, automatic: false };
        let alone = self.saving.lock().await;
        let next = SavedLaneState { paused: Some(pause.clone()), ..self.state_to_keep() };
        self.shared.store.save_lane(self.id, next.clone()).await?;
        self.inside().gate.paused = Some(pause);
        self.is_kept(next);
        drop(alone);
        self.give_back().await
    }

    /// Goes on; what waits by now no faster than `rate`, if there is one. One that is not paused is
    /// taken out of its cool-down: there is nothing else that could be meant.
    pub(crate) async fn resume(&self, rate: Option<Rate>) -> Result<(), StoreError> {
        let until = self.shared.clock.now();
        let drain = rate.map(|rate| BacklogDrain { rate, until });
        let alone = self.saving.lock().await;
        let was_paused = self.inside().gate.paused.is_some();
        let mut next = SavedLaneState { paused: None, drain, ..self.state_to_keep() };
        next.cool_until = next.cool_until.filter(|_| was_paused);
        self.shared.store.save_lane(self.id, next.clone()).await?;
        if !was_paused {
            self.cool_until.store(0, Ordering::Relaxed);
        }
        self.inside().gate.resume(drain);
        self.is_kept(next);
        drop(alone);
        self.wake_lane();
        Ok(())
    }

    /// Remembers what is in the store, and shows it.
    fn is_kept(&self, state: SavedLaneState) {
        let name = self.name();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.circuit.as_str() != state.circuit.as_str() {
            self.shared.telemetry.circuit_moved(&name, state.circuit.as_str());
            match state.circuit {
                CircuitState::Open { until, times } => {
                    tracing::warn!(destination = name, %until, times, "the destination fails; it is left alone and what it is owed is held");
                }
                CircuitState::HalfOpen { .. } => {
                    tracing::info!(
                        destination = name,
                        "one delivery is tried at a destination that failed"
                    );
                }
                CircuitState::Ramp { .. } => {
                    tracing::info!(destination = name, "the destination answers again");
                }
                CircuitState::Closed => {
                    tracing::info!(destination = name, "the destination gets everything again");
                }
            }
        }
        match (&kept.paused, &state.paused) {
            (None, Some(LanePause { reason, automatic, .. })) => {
                let reason = reason.as_deref().unwrap_or_default();
                tracing::warn!(
                    destination = name,
                    automatic,
                    reason,
                    "the destination is paused; what it is owed is held"
                );
            }
            (Some(_), None) => tracing::info!(destination = name, "the destination is resumed"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let is_news = kept.paused != state.paused || kept.circuit != state.circuit;
        *kept = state;
        drop(kept);
        self.show();
        if is_news {
            let at = self.shared.clock.now();
            self.shared.feed.publish(at, || {
                let change = DestinationChange::State;
                LiveUpdate::DestinationChanged(DestinationChanged {
                    id: self.id,
                    name: Some(name),
                    change,
                    at,
                })
            });
        }
    }

    /// Writes down what has changed since the last time.
    pub(super) async fn keep_state(&self) -> Result<(), StoreError> {
        let _alone = self.saving.lock().await;
        let state = self.state_to_keep();
        let is_same = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            is_same(&kept, &state)
        };
        if !is_same {
            self.shared.store.save_lane(self.id, state.clone()).await?;
            self.is_kept(state);
        }
        Ok(())
    }

    /// Sets the metrics, and what the door looks at first.
    pub(super) fn show(&self) {
        let inside = self.inside();
        self.narrow.store(inside.gate.is_narrow(), Ordering::Release);
        let circuit = inside.gate.circuit.state();
        self.metrics.paused.set(i64::from(inside.gate.paused.is_some()));
        self.metrics.circuit.set(match circuit {
            CircuitState::Closed => 0,
            CircuitState::Open { .. } => 1,
            CircuitState::HalfOpen { .. } => 2,
            CircuitState::Ramp { .. } => 3,
        });
    }

    /// Gives what has not been started back to the store.
    pub(super) async fn give_back(&self) -> Result<(), StoreError> {
        let held: Vec<HeldClaim> = self.surrender();
        if held.is_empty() {
            return Ok(());
        }
        // They are in the store, due, and nobody else will say so. If this fails they are found by
        // their leases.
        self.backlog.store(true, Ordering::Release);
        self.shared.store.release(held, self.shared.clock.now()).await
    }

    /// Makes one attempt of the delivery that is due first, whatever holds the lane; `None` if there
    /// is none, or no place in memory for it.
    pub(crate) async fn probe(self: Arc<Self>) -> Result<Option<AttemptRow>, StoreError> {
        let Some(job) = self.take_for_probe().await? else { return Ok(None) };
        let delivery = job.claimed.id;
        let ticket = {
            let mut inside = self.inside();
            inside.running += 1;
            inside.gate.circuit.begin_by_hand()
        };
        let attempting = RunningAttemptGuard::begin(&self, delivery, ticket);
        let made = self.make_attempt(job, ticket, RecipientPacing::Skipped).await;
        drop(attempting);
        let row = match made {
            Ok(made) => {
                let settlement = &made.settlement;
                let (attempt, next) = (settlement.attempt.clone(), Some(settlement.next));
                let why_then = settlement.why_then;
                Arc::clone(&self).settle(made).await;
                Some(AttemptRow { delivery, attempt, next, why_then })
            }
            Err(put_off) => {
                Arc::clone(&self).put_off(put_off).await;
                None
            }
        };
        self.inside().running -= 1;
        self.changed.notify_one();
        Ok(row)
    }

    async fn take_for_probe(&self) -> Result<Option<QueuedDelivery>, StoreError> {
        let waiting = self.inside().queue.pop_front();
        if waiting.is_some() {
            return Ok(waiting);
        }
        let Some(slot) = self.take_slot(0) else { return Ok(None) };
        let now: Timestamp = self.shared.clock.now();
        let claims = self.shared.store.claim_next(self.id, now, self.new_lease(now)).await?;
        Ok(self.pick(claims).pop().map(|claimed| {
            self.inside().hold(&claimed);
            QueuedDelivery { claimed, slot }
        }))
    }
}

fn is_same(kept: &SavedLaneState, state: &SavedLaneState) -> bool {
    let near = match (kept.cool_until, state.cool_until) {
        (Some(one), Some(other)) => {
            one.since(other).max(other.since(one)).as_secs() < COOL_DOWN_STEP_SECS
        }
        (one, other) => one == other,
    };
    near && (&kept.paused, kept.circuit, kept.drain) == (&state.paused, state.circuit, state.drain)
}
