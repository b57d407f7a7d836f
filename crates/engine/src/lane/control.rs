//! Pause, resume and probe of a lane, and saving its state so that it survives a restart.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use surehook_core::{
    lane::{BacklogDrain, LanePause, SavedLaneState},
    store::{AttemptRow, LaneAction},
};
use surehook_retry::{circuit::CircuitState, rate::Rate};
use surehook_types::store_error::StoreError;

use super::{Lane, QueuedDelivery, RunningAttemptGuard, message::RecipientPacing};
use crate::{
    feed::{DestinationChange, DestinationChanged, LiveUpdate},
    lock::lock,
};

/// A cool-down that ends sooner than this is not saved: it is over before a restart could read it.
const COOL_DOWN_SAVED_MIN: Duration = Duration::from_secs(10);
/// Cool-downs whose ends differ by less than this count as the same.
const COOL_DOWN_PRECISION: Duration = Duration::from_secs(1);

impl Lane {
    /// The state of this lane now.
    pub(crate) fn current_state(&self) -> SavedLaneState {
        let now = self.shared.clock.now();
        self.lock().scheduler.state(now)
    }

    /// Number of deliveries that wait in memory.
    pub(crate) fn queued(&self) -> usize {
        self.lock().scheduler.queued()
    }

    fn state_to_save(&self) -> SavedLaneState {
        let earliest = self.shared.clock.now() + COOL_DOWN_SAVED_MIN;
        let mut state = self.current_state();
        state.cool_until = state.cool_until.filter(|until| *until >= earliest);
        state
    }

    /// Does what its owner is asked to do.
    pub(crate) async fn act(self: Arc<Self>, action: LaneAction) -> Result<(), StoreError> {
        match action {
            LaneAction::Pause { reason, automatic } => self.pause(reason, automatic).await,
            LaneAction::Resume { rate } => self.resume(rate).await,
            LaneAction::Probe => self.probe().await.map(drop),
        }
    }

    /// Starts no more attempts. Queued deliveries return to the store; running attempts finish.
    pub(crate) async fn pause(
        &self,
        reason: Option<String>,
        automatic: bool,
    ) -> Result<(), StoreError> {
        let at = self.shared.clock.now();
        let pause = LanePause { at, reason, automatic };
        let saving = self.saving.lock().await;
        let new_state = SavedLaneState { paused: Some(pause.clone()), ..self.state_to_save() };
        self.write_state(new_state.clone()).await?;
        self.lock().scheduler.gate.paused = Some(pause);
        self.publish_saved_state(new_state);
        drop(saving);
        self.return_queued().await
    }

    /// Resumes the lane; with a rate, the current backlog is drained no faster than that. Resuming a
    /// lane that is not paused ends its cool-down and the open time of its circuit. Retries that were
    /// scheduled too late while the clock was ahead become due.
    pub(crate) async fn resume(&self, rate: Option<Rate>) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let drain = rate.map(|rate| BacklogDrain { rate, until: now });
        let saving = self.saving.lock().await;
        let was_paused = self.lock().scheduler.gate.paused.is_some();
        self.shared.store.shorten_waits(now, Duration::ZERO).await?;
        if !was_paused {
            self.lock().scheduler.end_waits();
        }
        let new_state = SavedLaneState { paused: None, drain, ..self.state_to_save() };
        self.write_state(new_state.clone()).await?;
        self.lock().scheduler.gate.resume(drain);
        self.publish_saved_state(new_state);
        drop(saving);
        self.wake();
        Ok(())
    }

    /// Saves the state if it has changed.
    pub(super) async fn save_state(&self) -> Result<(), StoreError> {
        let _saving = self.saving.lock().await;
        let state = self.state_to_save();
        let is_unknown = self.is_saved_state_unknown.load(Ordering::Relaxed);
        if is_unknown || !is_same_state(&lock(&self.saved), &state) {
            self.write_state(state.clone()).await?;
            let was_paused = lock(&self.saved).paused.is_some();
            let pause = state.paused.clone().filter(|_| !was_paused && !self.id.shard.is_whole());
            self.publish_saved_state(state);
            // By the gateway: other pauses are saved by `pause`.
            if let Some(pause) = pause {
                self.shared.shard_news.add_pause(self.id, pause.reason);
            }
        }
        Ok(())
    }

    /// If the outcome is unknown, the supervisor writes the state of the memory again: the store must
    /// not keep a pause that was answered with an error.
    async fn write_state(&self, state: SavedLaneState) -> Result<(), StoreError> {
        // The first lane saves the state of the destination; others begin with it.
        let written = match self.id.shard.is_first() {
            true => self.shared.store.save_lane(self.id.destination, self.epoch, state).await,
            false => Ok(()),
        };
        match &written {
            Ok(()) => self.is_saved_state_unknown.store(false, Ordering::Relaxed),
            Err(StoreError::Unknown(_)) => {
                self.is_saved_state_unknown.store(true, Ordering::Relaxed);
                self.changed.notify_one();
            }
            Err(_) => {}
        }
        written
    }

    /// Logs and publishes the change to a state that is in the store now.
    fn publish_saved_state(&self, state: SavedLaneState) {
        let name = self.name();
        let mut saved = lock(&self.saved);
        if saved.circuit.as_str() != state.circuit.as_str() {
            self.shared.telemetry.count_circuit_change(&name, state.circuit.as_str());
            log_circuit(&name, state.circuit);
        }
        match (&saved.paused, &state.paused) {
            (None, Some(LanePause { reason, automatic, .. })) => {
                let reason = reason.as_deref().unwrap_or_default();
                tracing::warn!(
                    destination = name,
                    automatic,
                    reason,
                    "destination paused; its deliveries are held"
                );
            }
            (Some(_), None) => tracing::info!(destination = name, "destination resumed"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let is_visible = saved.paused != state.paused || saved.circuit != state.circuit;
        *saved = state;
        drop(saved);
        self.update_metrics();
        if is_visible {
            let at = self.shared.clock.now();
            self.shared.feed.publish(at, || {
                LiveUpdate::DestinationChanged(DestinationChanged {
                    id: self.id.destination,
                    name: Some(name),
                    change: DestinationChange::State,
                    at,
                })
            });
        }
    }

    /// Sets the metrics, and the flag that `reserve` reads before it takes the lock.
    pub(super) fn update_metrics(&self) {
        let state = self.lock();
        let gate = &state.scheduler.gate;
        self.set_limited(gate);
        if self.id.shard.is_whole() {
            self.metrics.paused.set(i64::from(gate.paused.is_some()));
            self.metrics.circuit.set(circuit_number(gate.circuit.state()));
        }
    }

    /// Returns queued deliveries to the store. If that fails, it is tried again in the background.
    pub(super) async fn return_queued(&self) -> Result<(), StoreError> {
        let claims = self.take_queued_claims();
        if claims.is_empty() {
            return Ok(());
        }
        // They are due in the store, and nothing else reports that.
        self.backlog.store(true, Ordering::Release);
        let now = self.shared.clock.now();
        let released = self.shared.store.release(claims.clone(), now).await;
        if released.is_err() {
            self.abandon(&claims, now);
        }
        released
    }

    /// Makes one attempt of the delivery that is due first, even if the lane is paused or its circuit
    /// open. `None` if there is no delivery, or no slot for it. A success ends the cool-down. Retries
    /// that were scheduled too late while the clock was ahead become due.
    pub(crate) async fn probe(self: Arc<Self>) -> Result<Option<AttemptRow>, StoreError> {
        self.shared.store.shorten_waits(self.shared.clock.now(), Duration::ZERO).await?;
        let Some(queued) = self.take_for_probe().await? else { return Ok(None) };
        let delivery = queued.claimed.id;
        let permit = self.lock().scheduler.start_manual_probe();
        let guard = RunningAttemptGuard::new(&self, permit);
        let result = self.attempt(queued, permit, RecipientPacing::Ignore).await;
        drop(guard);
        let row = match result {
            Ok(finished) => {
                let settlement = &finished.settlement;
                if settlement.attempt.class.is_none() {
                    self.lock().scheduler.end_cool_down();
                }
                let (attempt, next) = (settlement.attempt.clone(), Some(settlement.next));
                let schedule_reason = settlement.schedule_reason;
                Arc::clone(&self).settle(finished).await;
                Some(AttemptRow { delivery, attempt, next, schedule_reason })
            }
            Err(unsent) => {
                Arc::clone(&self).end_unsent(unsent).await;
                None
            }
        };
        self.lock().scheduler.release_place();
        self.changed.notify_one();
        Ok(row)
    }

    async fn take_for_probe(&self) -> Result<Option<QueuedDelivery>, StoreError> {
        let queued = self.lock().scheduler.pop_queued();
        if queued.is_some() {
            return Ok(queued);
        }
        let Some(slot) = self.take_slot(0) else { return Ok(None) };
        let now = self.shared.clock.now();
        let claims =
            self.claim(|proof| self.shared.store.claim_next(self.id.destination, now, proof));
        Ok(self.take_claimed(claims.await?).pop().map(|claimed| {
            self.lock().track_claim(&claimed);
            QueuedDelivery { claimed, slot }
        }))
    }
}

fn log_circuit(destination: &str, circuit: CircuitState) {
    match circuit {
        CircuitState::Open { until, openings } => {
            tracing::warn!(destination, %until, openings, "circuit opened after repeated failures; deliveries are held until the next probe");
        }
        CircuitState::HalfOpen { .. } => {
            tracing::info!(destination, "circuit half-open: one delivery is attempted");
        }
        CircuitState::Ramp { .. } => {
            tracing::info!(destination, "circuit recovering: concurrency is raised step by step");
        }
        CircuitState::Closed => {
            tracing::info!(destination, "circuit closed: full concurrency");
        }
    }
}

/// The number of a circuit's state in metrics.
const fn circuit_number(state: CircuitState) -> i64 {
    match state {
        CircuitState::Closed => 0,
        CircuitState::Open { .. } => 1,
        CircuitState::HalfOpen { .. } => 2,
        CircuitState::Ramp { .. } => 3,
    }
}

/// Sets the metrics of a destination with several lanes, of which these run here: what holds for any of
/// them.
pub(crate) fn show_shards(lanes: &[Arc<Lane>]) {
    let Some(metrics) = lanes.first().map(|lane| &lane.metrics) else { return };
    let states: Vec<SavedLaneState> = lanes.iter().map(|lane| lane.current_state()).collect();
    let is_any = |holds: fn(&SavedLaneState) -> bool| i64::from(states.iter().any(holds));
    metrics.paused.set(is_any(|state| state.paused.is_some()));
    metrics.cooling.set(is_any(|state| state.cool_until.is_some()));
    let is_open = |state: &&SavedLaneState| state.circuit.is_holding();
    let worst = states
        .iter()
        .find(is_open)
        .or_else(|| states.iter().max_by_key(|state| circuit_number(state.circuit)));
    metrics.circuit.set(worst.map_or(0, |state| circuit_number(state.circuit)));
}

fn is_same_state(saved: &SavedLaneState, state: &SavedLaneState) -> bool {
    let is_same_cool_down = match (saved.cool_until, state.cool_until) {
        (Some(a), Some(b)) => a.since(b).max(b.since(a)) < COOL_DOWN_PRECISION,
        (a, b) => a == b,
    };
    is_same_cool_down
        && (&saved.paused, saved.circuit, saved.drain)
            == (&state.paused, state.circuit, state.drain)
}
