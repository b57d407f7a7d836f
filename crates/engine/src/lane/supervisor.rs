//! The lane's supervisor: fetches from the store what is due when there is room, and wakes the
//! lane when a cool-down ends. It waits for facts (a nudge, a time), never polls.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use surehook_core::{store::StoreError, time::Timestamp};

use super::{Job, Lane, Slot};

/// Deliveries fetched at a time. Their bodies are read before they are counted against the budget
/// of bytes; the store gives fewer where they are large.
const CLAIM_MAX: usize = 128;
/// Fewer than this in memory, and it is time to fetch more.
pub(super) const LOW_WATER: usize = CLAIM_MAX / 2;
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
    if let Some(until) = lane.cooling_until() {
        return until.since(lane.shared.clock.now()).min(TIMER_MAX);
    }
    lane.metrics.cooling.set(0);
    lane.fill();
    match refill(lane).await {
        Ok(wait) => wait,
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
    let slots = reserve_slots(lane);
    if slots.is_empty() {
        // A worker that ends will call again.
        lane.backlog.store(true, Ordering::Release);
        return Ok(PAUSE);
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
fn reserve_slots(lane: &Lane) -> Vec<Slot> {
    let concurrency = usize::try_from(lane.destination.load().concurrency).unwrap_or(1);
    let wanted = {
        let inside = lane.inside();
        (2 * concurrency).max(CLAIM_MAX).saturating_sub(inside.queue.len()).min(CLAIM_MAX)
    };
    // The bodies are not known yet; their bytes are counted when they are.
    (0..wanted).map_while(|_| lane.take_slot(0)).collect()
}

async fn claim(lane: &Arc<Lane>, slots: Vec<Slot>, now: Timestamp) -> Result<usize, StoreError> {
    let lease = lane.new_lease(now);
    let claimed = lane.shared.store.claim_due(lane.id, now, lease, slots.len()).await?;
    let got = claimed.len();
    for (claimed, mut slot) in claimed.into_iter().zip(slots) {
        slot.count_bytes(claimed.payload.body.len());
        lane.offer(Job { claimed, slot });
    }
    Ok(got)
}

impl Slot {
    /// Counts the bytes of a body that is in memory already, beyond the budget if need be.
    fn count_bytes(&mut self, bytes: usize) {
        self._bytes.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self._bytes.bytes += bytes;
    }
}
