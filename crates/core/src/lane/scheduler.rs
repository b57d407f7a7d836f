//! Decides what a lane starts and when: its queue, its running attempts, its gate and its cool-down.
//!
//! The engine drives it under the lane's lock with tasks, a store and real clocks; a simulation drives
//! it on a virtual clock. There is no second implementation of these rules.

use std::{collections::VecDeque, time::Duration};

use surehook_retry::{
    RETRY_AFTER_MAX,
    circuit::{CircuitPermit, CircuitState},
};
use surehook_types::time::Timestamp;

use super::{
    LaneConfig, SavedLaneState,
    gate::{LaneAttemptResult, LaneGate, StartPermission},
};
use crate::destination::Destination;

/// Deliveries that are fetched from the store at a time.
pub const FETCH_MAX: usize = 128;

/// The clocks of a lane at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LaneTime {
    /// The wall clock.
    pub now: Timestamp,
    /// The monotonic clock of the lane.
    pub elapsed: Duration,
}

/// Whether a lane starts anything at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneAvailability {
    Available,
    ClosedUntil(Timestamp),
    /// Something other than time has to change first.
    Closed,
}

/// A delivery in the queue of a lane.
pub trait QueueItem {
    fn created_at(&self) -> Timestamp;
}

/// The scheduler of one lane. Whether its messages may be sent now is the caller's business.
#[derive(Debug)]
pub struct LaneScheduler<T> {
    pub gate: LaneGate,
    queue: VecDeque<T>,
    running: u32,
    cool_until: Option<Timestamp>,
}

impl<T: QueueItem> LaneScheduler<T> {
    /// Restores the state that an earlier process saved.
    pub fn new(saved: SavedLaneState, rules: &LaneConfig, now: Timestamp) -> Self {
        // A longer cool-down was computed by a clock that was ahead.
        let cool_until = saved.cool_until.map(|until| until.min(now + RETRY_AFTER_MAX));
        let gate = LaneGate::new(saved, rules, now);
        Self { gate, queue: VecDeque::new(), running: 0, cool_until }
    }

    /// The state to save.
    pub fn state(&self, now: Timestamp) -> SavedLaneState {
        SavedLaneState {
            paused: self.gate.paused.clone(),
            circuit: self.gate.circuit.state(),
            cool_until: self.cooling_until(now),
            drain: self.gate.drain(),
        }
    }

    /// How many attempts run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many deliveries wait in the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn enqueue(&mut self, item: T) {
        self.queue.push_back(item);
    }

    /// Takes the first delivery, whether it may start or not.
    pub fn pop_queued(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// Empties the queue.
    pub fn take_queued(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.queue)
    }

    /// The end of the cool-down, if the lane cools down.
    pub fn cooling_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.cool_until.filter(|until| now < *until)
    }

    /// Starts nothing until then.
    pub fn cool_down(&mut self, until: Timestamp) {
        self.cool_until = self.cool_until.max(Some(until));
    }

    /// Ends the cool-down.
    pub fn end_cool_down(&mut self) {
        self.cool_until = None;
    }

    /// Ends cool-down and open time, on request of a user: the next attempt may start now.
    pub fn end_waits(&mut self) {
        self.end_cool_down();
        self.gate.circuit.end_open_time();
    }

    /// Forgets failures: they were of another address.
    pub fn forget_failures(&mut self) {
        self.end_cool_down();
        self.gate.circuit.close();
    }

    /// The wall clock went back by this much: what is waited for is as far away as before.
    pub fn shorten_waits(&mut self, step: Duration) {
        self.cool_until = self.cool_until.map(|until| until - step);
        self.gate.circuit.shorten_waits(step);
    }

    /// Whether an attempt may start now.
    pub fn start_permission(&self, concurrency: u32, time: LaneTime) -> StartPermission {
        if self.cooling_until(time.now).is_some() {
            return StartPermission::Denied;
        }
        self.gate.start_permission(self.running, concurrency, time.elapsed)
    }

    /// Takes the first delivery and counts its attempt, if it may start now. `ordered_backlog_runs`
    /// says whether an ordered delivery of the backlog that is drained is in memory; it is only asked
    /// if the attempt could end the drain.
    pub fn start_next(
        &mut self,
        concurrency: u32,
        time: LaneTime,
        ordered_backlog_runs: impl FnOnce(&LaneGate) -> bool,
    ) -> Option<(T, CircuitPermit)> {
        if self.queue.is_empty() || self.start_permission(concurrency, time) != StartPermission::Now
        {
            return None;
        }
        let item = self.queue.pop_front()?;
        let created_at = item.created_at();
        let ordered_backlog_runs = self.gate.drain().is_some()
            && !self.gate.is_backlog(created_at)
            && ordered_backlog_runs(&self.gate);
        self.running += 1;
        let permit = self.gate.begin_attempt(created_at, ordered_backlog_runs, time.elapsed);
        Some((item, permit))
    }

    /// Counts an attempt that a user asked for; it may start whatever the gate says.
    pub fn start_manual_probe(&mut self) -> CircuitPermit {
        self.running += 1;
        self.gate.circuit.start_manual_probe()
    }

    /// Applies what an attempt says about the destination as a whole: cool-down, circuit, pause.
    /// Returns whether that changed how many attempts may run. The attempt still counts as running.
    pub fn end_attempt(
        &mut self,
        destination: &Destination,
        result: &LaneAttemptResult<'_>,
    ) -> bool {
        self.cool_until = self.cool_until.max(result.decision.cool_until);
        let observe =
            |gate: &LaneGate| (gate.circuit.state(), gate.allowed(destination.concurrency));
        let before = observe(&self.gate);
        self.gate.end_attempt(destination, result);
        before != observe(&self.gate)
    }

    /// An attempt runs no longer: another one may take its place.
    pub fn release_place(&mut self) {
        self.running -= 1;
    }

    /// How long the first queued delivery has to wait for the rate limit: not at all if it has become free
    /// since it was last asked.
    pub fn until_next_start(&self, concurrency: u32, time: LaneTime) -> Option<Duration> {
        if self.queue.is_empty() {
            return None;
        }
        match self.start_permission(concurrency, time) {
            StartPermission::Now => Some(Duration::ZERO),
            StartPermission::At(at) => Some(at.saturating_sub(time.elapsed)),
            StartPermission::Denied => None,
        }
    }

    /// Advances the circuit to the current time. `hold_until` is the end of a send hold.
    pub fn advance_time(
        &mut self,
        hold_until: Option<Timestamp>,
        concurrency: u32,
        now: Timestamp,
    ) -> LaneAvailability {
        self.gate.circuit.advance(now);
        self.gate.adjust_rate(concurrency);
        self.gate.is_on_hold = hold_until.is_some();
        if !self.gate.is_closed() {
            return LaneAvailability::Available;
        }
        let open_until = match self.gate.circuit.state() {
            CircuitState::Open { until, .. } if self.gate.paused.is_none() => Some(until),
            CircuitState::Open { .. }
            | CircuitState::Closed
            | CircuitState::HalfOpen { .. }
            | CircuitState::Ramp { .. } => None,
        };
        let until = open_until.into_iter().chain(hold_until).min();
        until.map_or(LaneAvailability::Closed, LaneAvailability::ClosedUntil)
    }

    /// Whether a new delivery would start soon enough to wait in memory, where `in_memory` of at most
    /// `in_memory_max` are.
    pub fn has_room(&self, in_memory: usize, in_memory_max: usize, concurrency: u32) -> bool {
        // New deliveries must not overtake a backlog that is drained at a rate.
        if self.gate.drain().is_some() {
            return false;
        }
        let running = usize::try_from(self.running).unwrap_or(in_memory_max);
        let usual = match self.gate.is_shared() {
            true => prefetch_max(concurrency).min(in_memory_max),
            false => in_memory_max,
        };
        let queue_max = self.gate.queue_max(usual, concurrency);
        in_memory < queue_max.saturating_add(running)
    }

    /// How many deliveries are worth fetching from the store now.
    pub fn free_places(&self, concurrency: u32) -> usize {
        self.queue_max(concurrency).saturating_sub(self.queue.len()).min(FETCH_MAX)
    }

    /// Whether it is time to fetch more: before the workers run out of work.
    pub fn is_low(&self, concurrency: u32) -> bool {
        self.queue.len() < (self.queue_max(concurrency) / 2).clamp(1, FETCH_MAX / 2)
    }

    fn queue_max(&self, concurrency: u32) -> usize {
        let usual = match self.gate.is_shared() {
            // What could not start now is left to other lanes.
            true => usize::try_from(concurrency.saturating_sub(self.running)).unwrap_or(1),
            false => prefetch_max(concurrency),
        };
        self.gate.queue_max(usual, concurrency)
    }
}

fn prefetch_max(concurrency: u32) -> usize {
    (2 * usize::try_from(concurrency).unwrap_or(1)).max(FETCH_MAX)
}

#[cfg(test)]
mod tests {
    use surehook_retry::{AttemptOutcome, RetryAfter};
    use surehook_types::ids::{DeliveryId, DestinationId};

    use super::*;
    use crate::{
        destination::DestinationSpec,
        lane::{DeliveryProgress, Shard, decide_attempt},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    impl QueueItem for u32 {
        fn created_at(&self) -> Timestamp {
            NOW
        }
    }

    fn destination(fields: &str) -> Destination {
        let text =
            format!(r#"{{"name":"crm","url":"https://crm.example/","concurrency":2{fields}}}"#);
        let spec: DestinationSpec = serde_json::from_str(&text).unwrap();
        spec.build(DestinationId::new(NOW, 1), &|_| None).unwrap()
    }

    fn time(seconds: u64) -> LaneTime {
        let elapsed = Duration::from_secs(seconds);
        LaneTime { now: NOW + elapsed, elapsed }
    }

    fn scheduler(destination: &Destination, queued: u32) -> LaneScheduler<u32> {
        let mut scheduler = LaneScheduler::new(SavedLaneState::default(), &destination.lane, NOW);
        (0..queued).for_each(|item| scheduler.enqueue(item));
        scheduler
    }

    fn start(scheduler: &mut LaneScheduler<u32>, seconds: u64) -> Option<(u32, CircuitPermit)> {
        scheduler.start_next(2, time(seconds), |_| false)
    }

    fn end(
        scheduler: &mut LaneScheduler<u32>,
        destination: &Destination,
        permit: CircuitPermit,
        outcome: AttemptOutcome,
    ) -> bool {
        let before =
            DeliveryProgress { attempts: 0, throttled: 0, created_at: NOW, ordered: false };
        let decision = decide_attempt(destination, &outcome, before, NOW, || 0.5);
        let delivery = DeliveryId::new(NOW, 7);
        let (outcome, decision) = (&outcome, &decision);
        let result = LaneAttemptResult { permit, delivery, outcome, detail: None, decision };
        let has_changed = scheduler.end_attempt(destination, &result);
        scheduler.release_place();
        has_changed
    }

    #[test]
    fn lane_leaves_to_others_what_it_could_not_start_now() {
        let shard = Shard { index: 1, count: 3 };
        let destination = destination(r#","shards":2,"rate":"30/s burst 6""#).for_shard(shard);
        let mut scheduler = scheduler(&destination, 0);
        // A third of 30/s is one in 100 ms.
        assert_eq!(scheduler.free_places(2), 1);
        assert!(scheduler.has_room(0, 4096, 2) && !scheduler.has_room(1, 4096, 2));
        scheduler.enqueue(1);
        assert_eq!(scheduler.free_places(2), 0);

        let unlimited = self::destination("").for_shard(shard);
        let mut scheduler = self::scheduler(&unlimited, 1);
        assert_eq!(scheduler.free_places(2), 1);
        start(&mut scheduler, 0).unwrap();
        assert_eq!(scheduler.free_places(2), 1);
        let whole = self::destination("");
        assert_eq!(self::scheduler(&whole, 1).free_places(2), FETCH_MAX - 1);
    }

    #[test]
    fn queued_deliveries_start_in_order_while_a_place_is_free() {
        let destination = destination("");
        let mut scheduler = scheduler(&destination, 3);
        let (first, permit) = start(&mut scheduler, 0).unwrap();
        let (second, _) = start(&mut scheduler, 0).unwrap();
        assert_eq!((first, second, start(&mut scheduler, 0)), (0, 1, None));
        let outcome = AttemptOutcome::Answered { status: 200, retry_after: None };
        assert!(!end(&mut scheduler, &destination, permit, outcome));
        assert_eq!(start(&mut scheduler, 0).unwrap().0, 2);
        assert_eq!((scheduler.running(), scheduler.queued()), (2, 0));
    }

    #[test]
    fn queued_delivery_waits_for_the_rate_and_no_longer() {
        let destination = destination(r#","rate":"1/s burst 1""#);
        let mut scheduler = scheduler(&destination, 2);
        assert!(start(&mut scheduler, 10).is_some());
        scheduler.release_place();
        let waits = [10, 11, 20].map(|seconds| scheduler.until_next_start(2, time(seconds)));
        assert_eq!(
            waits,
            [Some(Duration::from_secs(1)), Some(Duration::ZERO), Some(Duration::ZERO)]
        );
        assert!(start(&mut scheduler, 20).is_some());
        assert_eq!(scheduler.until_next_start(2, time(30)), None, "nothing is queued");
    }

    #[test]
    fn cool_down_holds_the_lane_until_its_end() {
        let destination = destination("");
        let mut scheduler = scheduler(&destination, 2);
        let (_, permit) = start(&mut scheduler, 0).unwrap();
        let retry_after = Some(RetryAfter::Delay(Duration::from_secs(30)));
        let outcome = AttemptOutcome::Answered { status: 429, retry_after };
        end(&mut scheduler, &destination, permit, outcome);
        assert_eq!(start(&mut scheduler, 29), None);
        assert_eq!(scheduler.state(time(29).now).cool_until, Some(time(30).now));
        // A clock that goes back leaves the end as far away as before.
        scheduler.shorten_waits(Duration::from_secs(10));
        assert_eq!(scheduler.cooling_until(time(0).now), Some(time(20).now));
        assert!(start(&mut scheduler, 20).is_some());
    }

    #[test]
    fn saved_cool_down_of_a_clock_ahead_is_shortened() {
        let cool_until = Some(NOW + 3 * RETRY_AFTER_MAX);
        let saved = SavedLaneState { cool_until, ..SavedLaneState::default() };
        let lane = LaneScheduler::<u32>::new(saved, &destination("").lane, NOW);
        assert_eq!(lane.cooling_until(NOW), Some(NOW + RETRY_AFTER_MAX));
    }

    #[test]
    fn open_circuit_closes_the_lane_until_its_time_is_over() {
        let destination = destination(r#","circuit":{"failures":1}"#);
        let mut scheduler = scheduler(&destination, 2);
        let (_, permit) = start(&mut scheduler, 0).unwrap();
        let outcome = AttemptOutcome::Answered { status: 500, retry_after: None };
        assert!(end(&mut scheduler, &destination, permit, outcome));
        let LaneAvailability::ClosedUntil(until) = scheduler.advance_time(None, 2, NOW) else {
            panic!("the circuit is open")
        };
        assert!(!scheduler.has_room(0, 100, 2));
        assert_eq!(scheduler.advance_time(None, 2, until), LaneAvailability::Available);
        assert_eq!(scheduler.take_queued().len(), 1);
    }

    #[test]
    fn rate_limit_says_when_the_next_delivery_may_start() {
        let destination = destination(r#","rate":"1/s""#);
        let mut scheduler = scheduler(&destination, 2);
        start(&mut scheduler, 5).unwrap();
        assert_eq!(start(&mut scheduler, 5), None);
        assert_eq!(scheduler.until_next_start(2, time(5)), Some(Duration::from_secs(1)));
        assert!(start(&mut scheduler, 6).is_some());
    }
}
