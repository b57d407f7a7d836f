//! The lane's supervisor: fetches due deliveries from the store when there is room, and wakes the lane
//! when a cool-down, an open circuit or a send hold ends. It waits for a notification or a timer, and
//! never polls.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use surehook_core::{delivery::ClaimProof, lane::scheduler::LaneAvailability, store::ClaimBatch};
use surehook_types::{store_error::StoreError, time::Timestamp};

use super::{Lane, LaneSlot, QueuedDelivery};

/// The pause after the lane's state could not be read or saved.
const STATE_ERROR_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a claim failed, or while the bodies of other lanes fill the memory.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// The longest timer, so that a step of the wall clock is noticed.
const TIMER_MAX: Duration = Duration::from_secs(30);

pub(super) async fn run(lane: Arc<Lane>) {
    while !lane.stop.is_cancelled() {
        let wait = run_round(&lane).await;
        tokio::select! {
            () = lane.changed.notified() => {}
            () = lane.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// One round: returns how long to wait unless the lane changes before.
async fn run_round(lane: &Arc<Lane>) -> Duration {
    if lane.is_stopped() {
        // A node that owns its lanes again wakes them.
        return TIMER_MAX;
    }
    if let Err(error) = lane.load_sent_today().await {
        tracing::warn!(destination = %lane.id.destination, %error, "could not read the messages sent today");
        return STATE_ERROR_PAUSE;
    }
    let closed_for = lane.advance_time();
    if let Err(error) = lane.save_state().await {
        tracing::warn!(destination = %lane.id.destination, %error, "could not save the state of a lane");
        return STATE_ERROR_PAUSE;
    }
    let cooling_until = lane.cooling_until();
    if lane.id.shard.is_whole() {
        lane.metrics.cooling.set(i64::from(cooling_until.is_some()));
    }
    if let Some(wait) = closed_for {
        if let Err(error) = lane.return_queued().await {
            tracing::warn!(destination = %lane.id.destination, %error, "could not return queued deliveries to the store");
        }
        return wait;
    }
    if let Some(until) = cooling_until {
        return until.since(lane.shared.clock.now()).min(TIMER_MAX);
    }
    lane.start_workers();
    match fetch_due(lane).await {
        Ok(wait) => {
            lane.end_drain_if_done();
            lane.until_next_start().map_or(wait, |start| start.min(wait))
        }
        Err(error) => {
            tracing::warn!(destination = %lane.id.destination, %error, "could not fetch due deliveries");
            lane.backlog.store(true, Ordering::Release);
            CLAIM_PAUSE
        }
    }
}

/// Fills the queue from the store; returns how long to wait before the next time.
async fn fetch_due(lane: &Arc<Lane>) -> Result<Duration, StoreError> {
    let now = lane.shared.clock.now();
    let is_due = lane.next_due.load(Ordering::Relaxed) <= now.as_millis();
    // Cleared before the store is read: a delivery committed after the read sets it again.
    if !lane.backlog.swap(false, Ordering::AcqRel) && !is_due {
        return Ok(until_next_due(lane, now));
    }
    let free_places = lane.lock().scheduler.free_places(lane.concurrency());
    // The store returns fewer where the bodies are large. The bodies are not known yet; their bytes are counted when they are.
    let slots: Vec<LaneSlot> = (0..free_places).map_while(|_| lane.take_slot(0)).collect();
    if slots.is_empty() {
        lane.backlog.store(true, Ordering::Release);
        // A worker that ends wakes the supervisor; memory freed by other lanes does not.
        return Ok(if free_places == 0 { TIMER_MAX } else { CLAIM_PAUSE });
    }
    let requested = slots.len();
    let claimed = claim_due(lane, slots, now).await?;
    if claimed == requested {
        lane.backlog.store(true, Ordering::Release);
        return Ok(Duration::ZERO);
    }
    // Reset before the read, lowered after it: a retry settled in between lowers it too
    // (`expect_due`), and must not be overwritten by the older value.
    lane.next_due.store(i64::MAX, Ordering::SeqCst);
    if let Some(next) = lane.shared.store.find_next_due(lane.id.destination).await? {
        lane.next_due.fetch_min(next.as_millis(), Ordering::SeqCst);
    }
    Ok(until_next_due(lane, lane.shared.clock.now()))
}

async fn claim_due(
    lane: &Arc<Lane>,
    slots: Vec<LaneSlot>,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let (destination, limit) = (lane.id.destination, slots.len());
    let claims = lane.claim(|proof| lane.shared.store.claim_due(destination, now, proof, limit));
    let claimed = lane.take_claimed(claims.await?);
    let count = claimed.len();
    for (claimed, mut slot) in claimed.into_iter().zip(slots) {
        slot.count_bytes(claimed.payload.body.len());
        lane.enqueue(QueuedDelivery { claimed, slot });
    }
    Ok(count)
}

fn until_next_due(lane: &Lane, now: Timestamp) -> Duration {
    let due = Timestamp::from_millis(lane.next_due.load(Ordering::Relaxed));
    due.since(now).min(TIMER_MAX)
}

impl Lane {
    /// Claims deliveries in the store. What may have been claimed by a call of unknown outcome is given
    /// back.
    pub(super) async fn claim<C: Future<Output = Result<ClaimBatch, StoreError>>>(
        &self,
        claim: impl FnOnce(ClaimProof) -> C,
    ) -> Result<ClaimBatch, StoreError> {
        let proof = self.new_claim();
        let claims = claim(proof).await;
        if matches!(claims, Err(StoreError::Unknown(_))) {
            self.abandon_all(proof);
        }
        claims
    }

    /// Advances the circuit and the send hold to the current time. Returns for how long the lane is
    /// closed, if it is.
    fn advance_time(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let without_listener = || self.lacks_listener().then(|| now + TIMER_MAX);
        let hold_until = self.send_hold(&state).map(|(until, _)| until).or_else(without_listener);
        let availability = state.scheduler.advance_time(hold_until, self.concurrency(), now);
        self.set_limited(&state.scheduler.gate);
        match availability {
            LaneAvailability::Available => None,
            LaneAvailability::ClosedUntil(until) => Some(until.since(now).min(TIMER_MAX)),
            LaneAvailability::Closed => Some(TIMER_MAX),
        }
    }

    /// Ends the drain rate once the backlog is gone.
    fn end_drain_if_done(&self) {
        let now = self.shared.clock.now().as_millis();
        let nothing_is_due =
            !self.backlog.load(Ordering::Acquire) && self.next_due.load(Ordering::SeqCst) > now;
        // A running delivery may be the first of an ordering queue, whose next one becomes due.
        let nothing_runs = self.slots.available_permits() == super::SLOTS;
        let mut state = self.lock();
        let gate = &mut state.scheduler.gate;
        if nothing_is_due && nothing_runs && gate.drain().is_some() {
            gate.set_drain(None);
            self.set_limited(gate);
            // The next round saves it.
            self.changed.notify_one();
        }
    }
}
