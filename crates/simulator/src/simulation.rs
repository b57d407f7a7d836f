//! The event loop: a virtual clock, the lanes of the gateway, and their destinations.
//!
//! Each lane is driven as the engine's supervisor drives it: what is due is fetched into the queue when
//! there is room, what may start is started, and a closed lane returns its queue. Only the work itself
//! takes no time: claiming, preparing a request and recording its result.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::Duration,
};

use surehook_core::{
    destination::Destination,
    lane::{
        DeliveryProgress, SavedLaneState, decide_attempt,
        gate::LaneAttemptResult,
        scheduler::{LaneAvailability, LaneScheduler, LaneTime, QueueItem},
    },
    store::NextStep,
};
use surehook_retry::{AttemptFailure, circuit::CircuitPermit};
use surehook_types::{ids::DeliveryId, rng::Rng as _, time::Timestamp};

use crate::{
    arrivals::Arrival,
    behavior::{DestinationBehavior, SimulatedRequest, SimulatedResponse, TimeSpan},
    recorder::{AttemptEndRecord, Recorder},
    report::SimulationReport,
    rng::SeededRng,
};

/// The virtual wall clock at the start: 2026-01-01.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Deliveries of one destination in memory, as in the engine.
const SLOTS: usize = 4096;
/// Deliveries between two calls of `note_progress`.
const PROGRESS_STEP: u64 = 4096;

/// A destination with its policy and its behavior.
#[derive(Debug)]
pub struct SimulationLane {
    pub name: String,
    pub destination: Destination,
    pub behavior: Box<dyn DestinationBehavior>,
}

/// What a simulation records beside its totals.
#[derive(Clone, Debug)]
pub struct ObservationSpec {
    /// The length of the time line.
    pub timeline: Duration,
    /// When destinations recover, in order of time: the load then is reported.
    pub recoveries: Vec<TimeSpan>,
    /// When the last events arrive: until then the use of the lane is measured.
    pub arrivals_end: Duration,
}

/// A simulation that has not begun.
#[derive(Debug)]
pub struct Simulation {
    lanes: Vec<LaneSimulation>,
    clock: Agenda,
    seed: u64,
    horizon: Duration,
    total: Recorder,
}

/// A delivery that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenDelivery {
    number: u64,
    customer: u32,
    created: Duration,
    attempts: u32,
    throttled: u32,
    /// An earlier attempt may have been processed.
    may_have_arrived: bool,
}

/// A delivery that is due, as the store orders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueDelivery {
    due: Duration,
    /// Keeps the order of those that are due at the same time.
    sequence: u64,
    index: usize,
}

#[derive(Clone, Copy, Debug)]
struct QueuedSimulation {
    due: DueDelivery,
    created_at: Timestamp,
}

impl QueueItem for QueuedSimulation {
    fn created_at(&self) -> Timestamp {
        self.created_at
    }
}

#[derive(Clone, Copy, Debug)]
struct RunningAttempt {
    index: usize,
    permit: CircuitPermit,
    response: SimulatedResponse,
    roll: f64,
}

#[derive(Debug)]
struct LaneSimulation {
    lane: SimulationLane,
    scheduler: LaneScheduler<QueuedSimulation>,
    /// The open deliveries; the indexes of ended ones are used again.
    open: Vec<OpenDelivery>,
    free_indexes: Vec<usize>,
    /// Deliveries that are neither queued nor running: those that would be due in the store.
    due: BinaryHeap<Reverse<DueDelivery>>,
    /// By ordering key: the first one is under way, the others are held.
    ordering_queues: HashMap<u32, VecDeque<usize>>,
    running: Vec<Option<RunningAttempt>>,
    free_runs: Vec<usize>,
    /// The next timer.
    wakes_at: Option<Duration>,
    sequence: u64,
    recorder: Recorder,
}

/// An event on the agenda of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AgendaEvent {
    AttemptEnds { run: usize },
    LaneWakes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AgendaEntry {
    at: Duration,
    sequence: u64,
    lane: usize,
    event: AgendaEvent,
}

/// Everything that is going to happen, in order.
#[derive(Debug, Default)]
struct Agenda {
    entries: BinaryHeap<Reverse<AgendaEntry>>,
    sequence: u64,
}

impl Agenda {
    fn add(&mut self, at: Duration, lane: usize, event: AgendaEvent) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.entries.push(Reverse(AgendaEntry { at, sequence, lane, event }));
    }

    fn next_at(&self) -> Option<Duration> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }
}

/// The virtual wall clock. Like a real one it shows whole milliseconds.
fn wall(at: Duration) -> Timestamp {
    START + at
}

/// When the virtual wall clock shows this time.
fn since_start(at: Timestamp) -> Duration {
    at.since(START)
}

impl Simulation {
    /// Deliveries that have not ended after the `horizon` stay unfinished.
    pub fn new(
        lanes: Vec<SimulationLane>,
        seed: u64,
        horizon: Duration,
        observation: ObservationSpec,
    ) -> Self {
        let concurrency = lanes.iter().map(|lane| lane.destination.concurrency).sum();
        Self {
            lanes: lanes
                .into_iter()
                .map(|lane| LaneSimulation::new(lane, observation.clone()))
                .collect(),
            clock: Agenda::default(),
            seed,
            horizon,
            total: Recorder::new(observation, concurrency),
        }
    }

    /// Runs it. The arrivals must be in order of time.
    pub fn run(
        mut self,
        policy: &str,
        arrivals: impl Iterator<Item = Arrival>,
        note_progress: &mut dyn FnMut(u64),
    ) -> SimulationReport {
        let mut arrivals = arrivals.zip(0..).peekable();
        let mut now = Duration::ZERO;
        let mut noted = 0;
        loop {
            let next_arrival = arrivals.peek().map(|(arrival, _)| arrival.at);
            let next_event = self.clock.next_at();
            let Some(at) = next_arrival.into_iter().chain(next_event).min() else { break };
            if at > self.horizon {
                break;
            }
            now = at;
            if next_arrival == Some(at)
                && let Some((arrival, number)) = arrivals.next()
            {
                self.create_delivery(arrival, number, now);
            } else if let Some(Reverse(entry)) = self.clock.entries.pop() {
                self.handle_event(entry, now);
            }
            if self.total.ended() >= noted + PROGRESS_STEP {
                noted = self.total.ended();
                note_progress(noted);
            }
        }
        let unreached = arrivals.count();
        self.report(policy, now, u64::try_from(unreached).unwrap_or(u64::MAX))
    }

    fn create_delivery(&mut self, arrival: Arrival, number: u64, now: Duration) {
        let lane = &mut self.lanes[arrival.lane];
        self.total.count_created();
        lane.recorder.count_created();
        lane.create_delivery(number, arrival.customer, now);
        self.run_round(arrival.lane, now);
    }

    fn handle_event(&mut self, entry: AgendaEntry, now: Duration) {
        let lane = &mut self.lanes[entry.lane];
        match entry.event {
            AgendaEvent::LaneWakes if lane.wakes_at != Some(entry.at) => return,
            AgendaEvent::LaneWakes => lane.wakes_at = None,
            AgendaEvent::AttemptEnds { run } => lane.end_attempt(run, now, &mut self.total),
        }
        self.run_round(entry.lane, now);
    }

    /// Runs one round of a lane's supervisor, as after each change.
    fn run_round(&mut self, index: usize, now: Duration) {
        let Self { lanes, clock, total, seed, .. } = self;
        let lane = &mut lanes[index];
        let wake_at = lane.advance(now, *seed, |run, started: Duration, took| {
            clock.add(started + took, index, AgendaEvent::AttemptEnds { run });
            total.record_start(started, took);
        });
        lane.note_state(now);
        if let Some(wake_at) = wake_at
            && lane.wakes_at.is_none_or(|planned| wake_at < planned)
        {
            lane.wakes_at = Some(wake_at);
            clock.add(wake_at, index, AgendaEvent::LaneWakes);
        }
    }

    fn report(mut self, policy: &str, now: Duration, unreached: u64) -> SimulationReport {
        let seed = self.seed;
        for lane in &mut self.lanes {
            lane.recorder.end(now);
            self.total.add_holds(&lane.recorder);
        }
        let mut report = self.total.report(policy, seed, now);
        report.unreached = unreached;
        if self.lanes.len() > 1 {
            let reports =
                self.lanes.iter().map(|lane| lane.recorder.report(&lane.lane.name, seed, now));
            report.destinations = reports.collect();
        }
        report
    }
}

impl LaneSimulation {
    fn new(lane: SimulationLane, observation: ObservationSpec) -> Self {
        let recorder = Recorder::new(observation, lane.destination.concurrency);
        Self {
            scheduler: LaneScheduler::new(SavedLaneState::default(), &lane.destination.lane, START),
            lane,
            open: Vec::new(),
            free_indexes: Vec::new(),
            due: BinaryHeap::new(),
            ordering_queues: HashMap::new(),
            running: Vec::new(),
            free_runs: Vec::new(),
            wakes_at: None,
            sequence: 0,
            recorder,
        }
    }

    fn concurrency(&self) -> u32 {
        self.lane.destination.concurrency
    }

    fn create_delivery(&mut self, number: u64, customer: u32, now: Duration) {
        let delivery = OpenDelivery {
            number,
            customer,
            created: now,
            attempts: 0,
            throttled: 0,
            may_have_arrived: false,
        };
        let index = self.free_indexes.pop().unwrap_or(self.open.len());
        if index == self.open.len() {
            self.open.push(delivery);
        } else {
            self.open[index] = delivery;
        }
        if self.lane.destination.lane.order.is_some() {
            let queue = self.ordering_queues.entry(customer).or_default();
            queue.push_back(index);
            if queue.len() > 1 {
                return;
            }
        }
        let due = self.plan(index, now + self.lane.destination.lane.delay);
        // Without a backlog a delivery is claimed in the commit that stores it.
        if due.due <= now && !self.has_backlog(now) && self.has_room() {
            self.scheduler.enqueue(QueuedSimulation { due, created_at: wall(now) });
        } else {
            self.due.push(Reverse(due));
        }
    }

    fn plan(&mut self, index: usize, due: Duration) -> DueDelivery {
        self.sequence += 1;
        DueDelivery { due, sequence: self.sequence, index }
    }

    fn has_backlog(&self, now: Duration) -> bool {
        self.due.peek().is_some_and(|Reverse(first)| first.due <= now)
    }

    fn has_room(&self) -> bool {
        let running = usize::try_from(self.scheduler.running()).unwrap_or(SLOTS);
        let in_memory = self.scheduler.queued() + running;
        in_memory < SLOTS
            && (!self.scheduler.gate.is_limited()
                || self.scheduler.has_room(in_memory, SLOTS, self.concurrency()))
    }

    /// Starts what may start now. Returns when to look again.
    fn advance(
        &mut self,
        now: Duration,
        seed: u64,
        mut note_start: impl FnMut(usize, Duration, Duration),
    ) -> Option<Duration> {
        if let Some(until) = self.lane.behavior.held_until(now) {
            return Some(until);
        }
        let concurrency = self.concurrency();
        let resumes_at = self.resume_if_due(now);
        let availability = self.scheduler.advance_time(None, concurrency, wall(now));
        if availability != LaneAvailability::Available {
            let queued = self.scheduler.take_queued();
            self.due.extend(queued.into_iter().map(|queued| Reverse(queued.due)));
            return match availability {
                LaneAvailability::ClosedUntil(until) => Some(since_start(until)),
                LaneAvailability::Closed | LaneAvailability::Available => resumes_at,
            };
        }
        let time = LaneTime { now: wall(now), elapsed: now };
        if let Some(until) = self.scheduler.cooling_until(time.now) {
            return Some(since_start(until));
        }
        loop {
            while let Some((queued, permit)) =
                self.scheduler.start_next(concurrency, time, |_| false)
            {
                let (run, took) = self.start_attempt(queued.due.index, permit, now, seed);
                note_start(run, now, took);
            }
            if self.fetch_due(now) == 0 {
                break;
            }
        }
        let next_due = self.due.peek().map(|Reverse(first)| first.due).filter(|due| *due > now);
        let next_start = self.scheduler.until_next_start(concurrency, time).map(|wait| now + wait);
        next_due.into_iter().chain(next_start).min()
    }

    /// Ends a pause when someone ends it; returns the time at which that will be.
    fn resume_if_due(&mut self, now: Duration) -> Option<Duration> {
        let paused_at = since_start(self.scheduler.gate.paused.as_ref()?.at);
        let resumes_at = self.lane.behavior.resumed_at(paused_at)?;
        if resumes_at > now {
            return Some(resumes_at);
        }
        self.scheduler.gate.resume(None);
        None
    }

    /// Fills the queue when it runs low; returns with how many.
    fn fetch_due(&mut self, now: Duration) -> usize {
        let concurrency = self.concurrency();
        if !self.has_backlog(now) || !self.scheduler.is_low(concurrency) {
            return 0;
        }
        let free = self.scheduler.free_places(concurrency);
        for fetched in 0..free {
            if !self.has_backlog(now) {
                return fetched;
            }
            let Some(Reverse(due)) = self.due.pop() else { return fetched };
            let created_at = wall(self.open[due.index].created);
            self.scheduler.enqueue(QueuedSimulation { due, created_at });
        }
        free
    }

    fn start_attempt(
        &mut self,
        index: usize,
        permit: CircuitPermit,
        now: Duration,
        seed: u64,
    ) -> (usize, Duration) {
        let OpenDelivery { number, customer, attempts, .. } = self.open[index];
        let attempt = attempts + 1;
        let timeout = self.lane.destination.timeout;
        let request = SimulatedRequest { at: now, delivery: number, customer, attempt, timeout };
        let rng = SeededRng::for_attempt(seed, number, attempt);
        let response = self.lane.behavior.respond(&request, &rng);
        let run = RunningAttempt { index, permit, response, roll: rng.next_f64() };
        let index = self.free_runs.pop().unwrap_or(self.running.len());
        if index == self.running.len() {
            self.running.push(Some(run));
        } else {
            self.running[index] = Some(run);
        }
        self.recorder.record_start(now, response.took);
        (index, response.took)
    }

    fn end_attempt(&mut self, run: usize, now: Duration, total: &mut Recorder) {
        let Some(RunningAttempt { index, permit, response, roll }) = self.running[run].take()
        else {
            return;
        };
        self.free_runs.push(run);
        let delivery = self.open[index];
        let destination = &self.lane.destination;
        let ordered = destination.lane.order.is_some();
        let created_at = wall(delivery.created);
        let OpenDelivery { attempts, throttled, .. } = delivery;
        let before = DeliveryProgress { attempts, throttled, created_at, ordered };
        let decision = decide_attempt(destination, &response.outcome, before, wall(now), || roll);
        let result = LaneAttemptResult {
            permit,
            delivery: DeliveryId::new(created_at, u128::from(delivery.number)),
            outcome: &response.outcome,
            detail: None,
            decision: &decision,
        };
        self.scheduler.end_attempt(destination, &result);
        self.scheduler.release_place();

        let record = AttemptEndRecord {
            now,
            created: delivery.created,
            class: decision.class,
            is_timeout: response.outcome.failure() == Some(AttemptFailure::Timeout),
            attempts: decision.progress.attempts,
            next: decision.next,
            is_possible_duplicate: delivery.may_have_arrived
                && (response.may_have_arrived || response.outcome.status().is_some()),
        };
        self.recorder.record_end(&record);
        total.record_end(&record);
        self.recorder.note_cool_down(now, decision.cool_until.map(since_start));
        match decision.next {
            NextStep::RetryAt(due_at) => {
                let open = &mut self.open[index];
                open.attempts = decision.progress.attempts;
                open.throttled = decision.progress.throttled;
                open.may_have_arrived |= response.may_have_arrived;
                let due = self.plan(index, since_start(due_at).max(now));
                self.due.push(Reverse(due));
            }
            NextStep::Succeeded | NextStep::Dead(_) => {
                self.free_indexes.push(index);
                if ordered {
                    self.release_next_of(delivery.customer, now);
                }
            }
        }
    }

    /// The first of an ordering queue has ended: the next one is due.
    fn release_next_of(&mut self, customer: u32, now: Duration) {
        let Some(queue) = self.ordering_queues.get_mut(&customer) else { return };
        queue.pop_front();
        match queue.front().copied() {
            Some(index) => {
                let due = self.plan(index, now);
                self.due.push(Reverse(due));
            }
            None => {
                self.ordering_queues.remove(&customer);
            }
        }
    }

    fn note_state(&mut self, now: Duration) {
        let gate = &self.scheduler.gate;
        self.recorder.note_circuit(now, gate.circuit.state());
        self.recorder.note_pause(now, gate.paused.is_some());
    }
}
