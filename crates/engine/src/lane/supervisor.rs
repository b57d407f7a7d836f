//! The lane's supervisor: fetches from the store what is due when there is room, and wakes the
//! lane when a cool-down ends. It waits for facts (a nudge, a time), never polls.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use surehook_core::{lane::CircuitState, store::StoreError, time::Timestamp};

use super::{Inside, Lane, LaneSlot, QueuedDelivery};

/// Deliveries fetched at a time. Their bodies are read before they are counted against the budget
/// of bytes; the store gives fewer where they are large.
const CLAIM_MAX: usize = 128;
/// The wait after the state of the lane could not be written down.
const PAUSE_LONG: Duration = Duration::from_secs(1);
/// The wait after the store said no, or while the bodies of other lanes fill the memory.
const PAUSE: Duration = Duration::from_millis(100);
/// A timer is never set further ahead, so that a step of the wall clock is noticed.
const TIMER_MAX: Duration = Duration::from_secs(30);

pub(super) async fn run(lane: Arc<Lane>) {
    while !lane.stop.is_cancelled() {
        let wait = tick(&lane).await;
        tokio::select! {
            () = lane.changed.notified() => {}
            () = lane.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// One round: returns how long to wait unless something happens before.
async fn tick(lane: &Arc<Lane>) -> Duration {
    if let Err(error) = lane.learn_sent_today().await {
        tracing::warn!(destination = %lane.id, %error, "what was sent today could not be read");
        return PAUSE_LONG;
    }
    let shut_for = lane.let_time_pass();
    if let Err(error) = lane.keep_state().await {
        tracing::warn!(destination = %lane.id, %error, "the state of a lane could not be kept");
        return PAUSE_LONG;
    }
    let cooling_until = lane.cooling_until();
    lane.metrics.cooling.set(i64::from(cooling_until.is_some()));
    if let Some(wait) = shut_for {
        if let Err(error) = lane.give_back().await {
            tracing::warn!(destination = %lane.id, %error, "could not give waiting deliveries back");
        }
        return wait.min(TIMER_MAX);
    }
    if let Some(until) = cooling_until {
        return until.since(lane.shared.clock.now()).min(TIMER_MAX);
    }
    lane.fill();
    match refill(lane).await {
        Ok(wait) => {
            lane.end_drain_if_done();
            lane.until_next_start().map_or(wait, |start| start.min(wait))
        }
        Err(error) => {
            tracing::warn!(destination = %lane.id, %error, "could not fetch due deliveries");
            lane.backlog.store(true, Ordering::Release);
            PAUSE
        }
    }
}

async fn refill(lane: &Arc<Lane>) -> Result<Duration, StoreError> {
    let now = lane.shared.clock.now();
    let due = lane.next_due.load(Ordering::Relaxed) <= now.as_millis();
    // Lowered before the look: what is committed after the look raises it again.
    if !lane.backlog.swap(false, Ordering::AcqRel) && !due {
        return Ok(until_next_due(lane, now));
    }
    let wanted = wanted(lane);
    // The bodies are not known yet; their bytes are counted when they are.
    let slots: Vec<LaneSlot> = (0..wanted).map_while(|_| lane.take_slot(0)).collect();
    if slots.is_empty() {
        lane.backlog.store(true, Ordering::Release);
        // A worker that ends will call again; nobody says when other lanes have freed memory.
        return Ok(if wanted == 0 { TIMER_MAX } else { PAUSE });
    }
    let asked = slots.len();
    let got = claim(lane, slots, now).await?;
    if got == asked {
        lane.backlog.store(true, Ordering::Release);
        return Ok(Duration::ZERO);
    }
    // Forgotten before the look, lowered after it: a retry that is settled meanwhile lowers it too
    // (`expect_due`), and must not be overwritten by what was read before it.
    lane.next_due.store(i64::MAX, Ordering::SeqCst);
    if let Some(next) = lane.shared.store.next_due(lane.id).await? {
        lane.next_due.fetch_min(next.as_millis(), Ordering::SeqCst);
    }
    Ok(until_next_due(lane, lane.shared.clock.now()))
}

fn until_next_due(lane: &Lane, now: Timestamp) -> Duration {
    let due = Timestamp::from_millis(lane.next_due.load(Ordering::Relaxed));
    due.since(now).min(TIMER_MAX)
}

/// As many places as are worth filling now: what waits in memory already must be nearly used up.
fn wanted(lane: &Lane) -> usize {
    let inside = lane.inside();
    queue_max(lane, &inside).saturating_sub(inside.queue.len()).min(CLAIM_MAX)
}

/// How many may wait in memory.
fn queue_max(lane: &Lane, inside: &Inside) -> usize {
    let full = lane.destination.load().concurrency;
    let usual = (2 * usize::try_from(full).unwrap_or(1)).max(CLAIM_MAX);
    inside.gate.queue_max(usual, full)
}

/// Fewer than this in memory, and it is time to fetch more.
pub(super) fn low_water(lane: &Lane, inside: &Inside) -> usize {
    (queue_max(lane, inside) / 2).clamp(1, CLAIM_MAX / 2)
}

impl Lane {
    /// Lets the circuit and the calendar know the time; says for how long the lane is shut, if it is.
    fn let_time_pass(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        let mut inside = self.inside();
        inside.gate.circuit.tick(now);
        inside.gate.set_pace(self.destination.load().concurrency);
        let hold = self.hold(&inside);
        inside.gate.rests = hold.is_some();
        self.narrow.store(inside.gate.is_narrow(), Ordering::Release);
        let wait = match inside.gate.circuit.state() {
            CircuitState::Open { until, .. } if inside.gate.paused.is_none() => until.since(now),
            CircuitState::Open { .. }
            | CircuitState::Closed
            | CircuitState::HalfOpen { .. }
            | CircuitState::Ramp { .. } => TIMER_MAX,
        };
        let wait = hold.map_or(wait, |(until, _)| until.since(now).min(wait));
        inside.gate.is_shut().then_some(wait)
    }

    /// A backlog that is not there any more needs no rate of its own.
    fn end_drain_if_done(&self) {
        let now = self.shared.clock.now().as_millis();
        let nothing_is_due =
            !self.backlog.load(Ordering::Acquire) && self.next_due.load(Ordering::SeqCst) > now;
        // One that runs may be the first of a line, and call the next one.
        let nothing_runs = self.slots.available_permits() == super::SLOTS;
        let mut inside = self.inside();
        if nothing_is_due && nothing_runs && inside.gate.drain().is_some() {
            inside.gate.set_drain(None);
            self.narrow.store(inside.gate.is_narrow(), Ordering::Release);
            // The next round writes it down.
            self.changed.notify_one();
        }
    }
}

async fn claim(
    lane: &Arc<Lane>,
    slots: Vec<LaneSlot>,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let lease = lane.new_lease(now);
    let claims = lane.shared.store.claim_due(lane.id, now, lease, slots.len()).await?;
    let claimed = lane.pick(claims);
    let got = claimed.len();
    for (claimed, mut slot) in claimed.into_iter().zip(slots) {
        slot.count_bytes(claimed.payload.body.len());
        lane.offer(QueuedDelivery { claimed, slot });
    }
    Ok(got)
}
