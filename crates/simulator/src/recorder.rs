//! Counts what happens in a simulation, in memory that does not grow with it.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram as PreciseHistogram;
use surehook_core::store::NextStep;
use surehook_retry::{FailureClass, circuit::CircuitState};
use surehook_types::time::Timestamp;

use crate::{
    report::{
        AttemptCount, AttemptsReport, CircuitReport, DeliveryTimeReport, LoadReport,
        SimulationReport, TimelineReport,
    },
    simulation::ObservationSpec,
};

/// Points of the time line.
const TIMELINE_POINTS: u32 = 480;
/// Longer delivery times count as this long: ten years in microseconds.
const TIME_MAX: u64 = 10 * 365 * 86_400 * 1_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// The end of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptEndRecord {
    pub(crate) now: Duration,
    /// When the delivery was created.
    pub(crate) created: Duration,
    pub(crate) class: Option<FailureClass>,
    pub(crate) is_timeout: bool,
    /// The number of the attempt.
    pub(crate) attempts: u32,
    pub(crate) next: NextStep,
    /// It reached the destination, and so may have an earlier one.
    pub(crate) is_possible_duplicate: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    observation: ObservationSpec,
    concurrency: u32,
    created: u64,
    succeeded: u64,
    dead: BTreeMap<&'static str, u64>,
    dead_total: u64,
    /// Ended deliveries by their number of attempts.
    distribution: Vec<u64>,
    attempts: u64,
    results: BTreeMap<&'static str, u64>,
    possible_duplicates: u64,
    /// In microseconds.
    delivery_times: PreciseHistogram<u64>,
    delivery_time_max: Duration,
    delivery_time_sum: f64,
    last_end: Duration,
    busy: Duration,
    timeline: Timeline,
    load: SecondCounter,
    recovery_load: SecondCounter,
    circuit: HoldTime,
    circuit_opened: u64,
    /// The end of the open time that was counted last.
    circuit_until: Option<Timestamp>,
    pause: HoldTime,
    cool_down: Duration,
    cools_until: Duration,
}

/// For how long something held the lane.
#[derive(Clone, Copy, Debug, Default)]
struct HoldTime {
    since: Option<Duration>,
    total: Duration,
}

impl HoldTime {
    fn note(&mut self, now: Duration, is_held: bool) {
        match (self.since, is_held) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.total += now.saturating_sub(since);
                self.since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.total += other.total;
    }
}

/// Counts per second; keeps the highest.
#[derive(Clone, Copy, Debug, Default)]
struct SecondCounter {
    second: u64,
    count: u64,
    peak: u64,
    peak_second: u64,
    total: u64,
}

impl SecondCounter {
    fn count(&mut self, at: Duration) {
        if at.as_secs() != self.second {
            (self.second, self.count) = (at.as_secs(), 0);
        }
        self.count += 1;
        self.total += 1;
        if self.count > self.peak {
            (self.peak, self.peak_second) = (self.count, self.second);
        }
    }
}

/// Counts over time. What comes after its end is in the totals only.
#[derive(Clone, Debug)]
struct Timeline {
    width: Duration,
    attempts: Vec<u64>,
    delivered: Vec<u64>,
}

impl Timeline {
    fn new(length: Duration) -> Self {
        let width = (length / TIMELINE_POINTS).max(Duration::from_millis(1));
        let points = vec![0; usize::try_from(TIMELINE_POINTS).unwrap_or(0)];
        Self { width, attempts: points.clone(), delivered: points }
    }

    fn point(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.width.as_nanos()).unwrap_or(usize::MAX)
    }

    fn count_attempt(&mut self, at: Duration) {
        let point = self.point(at);
        self.attempts.iter_mut().skip(point).take(1).for_each(|count| *count += 1);
    }

    fn count_delivered(&mut self, at: Duration) {
        let point = self.point(at);
        self.delivered.iter_mut().skip(point).take(1).for_each(|count| *count += 1);
    }
}

impl Recorder {
    pub(crate) fn new(observation: ObservationSpec, concurrency: u32) -> Self {
        let delivery_times = PreciseHistogram::new_with_bounds(1, TIME_MAX, SIGNIFICANT_DIGITS)
            .expect("the bounds are valid");
        Self {
            timeline: Timeline::new(observation.timeline),
            observation,
            concurrency,
            created: 0,
            succeeded: 0,
            dead: BTreeMap::new(),
            dead_total: 0,
            distribution: Vec::new(),
            attempts: 0,
            results: BTreeMap::new(),
            possible_duplicates: 0,
            delivery_times,
            delivery_time_max: Duration::ZERO,
            delivery_time_sum: 0.0,
            last_end: Duration::ZERO,
            busy: Duration::ZERO,
            load: SecondCounter::default(),
            recovery_load: SecondCounter::default(),
            circuit: HoldTime::default(),
            circuit_opened: 0,
            circuit_until: None,
            pause: HoldTime::default(),
            cool_down: Duration::ZERO,
            cools_until: Duration::ZERO,
        }
    }

    pub(crate) fn count_created(&mut self) {
        self.created += 1;
    }

    /// How many deliveries have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.succeeded + self.dead_total
    }

    pub(crate) fn record_start(&mut self, now: Duration, took: Duration) {
        self.attempts += 1;
        self.timeline.count_attempt(now);
        self.load.count(now);
        let recoveries = &self.observation.recoveries;
        // In order of their end: those that are over are skipped.
        let current = recoveries.partition_point(|span| span.until <= now);
        if recoveries[current..].iter().any(|span| span.contains(now)) {
            self.recovery_load.count(now);
        }
        self.busy += took.min(self.observation.arrivals_end.saturating_sub(now));
    }

    pub(crate) fn record_end(&mut self, end: &AttemptEndRecord) {
        let result = match end.class {
            None => "succeeded",
            Some(_) if end.is_timeout => "timeout",
            Some(class) => class.as_str(),
        };
        *self.results.entry(result).or_default() += 1;
        self.possible_duplicates += u64::from(end.is_possible_duplicate);
        match end.next {
            NextStep::RetryAt(_) => return,
            NextStep::Succeeded => {
                self.succeeded += 1;
                self.timeline.count_delivered(end.now);
                let took = end.now.saturating_sub(end.created);
                let micros = u64::try_from(took.as_micros()).unwrap_or(TIME_MAX).min(TIME_MAX);
                self.delivery_times.saturating_record(micros);
                self.delivery_time_max = self.delivery_time_max.max(took);
                self.delivery_time_sum += took.as_secs_f64();
            }
            NextStep::Dead(reason) => {
                *self.dead.entry(reason.as_str()).or_default() += 1;
                self.dead_total += 1;
            }
        }
        self.last_end = end.now;
        let index = usize::try_from(end.attempts).unwrap_or(usize::MAX).max(1) - 1;
        if self.distribution.len() <= index {
            self.distribution.resize(index + 1, 0);
        }
        self.distribution[index] += 1;
    }

    pub(crate) fn note_cool_down(&mut self, now: Duration, until: Option<Duration>) {
        let Some(until) = until.map(|until| self.clamp_to_arrivals(until)) else { return };
        self.cool_down += until.saturating_sub(now.max(self.cools_until));
        self.cools_until = self.cools_until.max(until);
    }

    /// A time for the counts of holds, at most the end of the arrivals: the last retries of the last
    /// events, days later, would count more than everything else.
    fn clamp_to_arrivals(&self, now: Duration) -> Duration {
        now.min(self.observation.arrivals_end)
    }

    pub(crate) fn note_circuit(&mut self, now: Duration, state: CircuitState) {
        self.circuit.note(self.clamp_to_arrivals(now), state.is_holding());
        if let CircuitState::Open { until, .. } = state
            && self.circuit_until != Some(until)
            && now < self.observation.arrivals_end
        {
            self.circuit_until = Some(until);
            self.circuit_opened += 1;
        }
    }

    pub(crate) fn note_pause(&mut self, now: Duration, is_paused: bool) {
        self.pause.note(self.clamp_to_arrivals(now), is_paused);
    }

    /// The simulation is over.
    pub(crate) fn end(&mut self, now: Duration) {
        let now = self.clamp_to_arrivals(now);
        self.circuit.note(now, false);
        self.pause.note(now, false);
    }

    /// Adds for how long a lane was held.
    pub(crate) fn add_holds(&mut self, lane: &Self) {
        self.circuit.add(lane.circuit);
        self.circuit_opened += lane.circuit_opened;
        self.pause.add(lane.pause);
        self.cool_down += lane.cool_down;
    }

    pub(crate) fn report(&self, name: &str, seed: u64, now: Duration) -> SimulationReport {
        let ended = self.ended();
        let counted = (1..).zip(&self.distribution);
        let distribution: Vec<AttemptCount> = counted
            .map(|(attempts, deliveries)| AttemptCount { attempts, deliveries: *deliveries })
            .collect();
        let attempts_of_ended: u64 =
            distribution.iter().map(|count| u64::from(count.attempts) * count.deliveries).sum();
        let capacity = self.observation.arrivals_end.as_secs_f64() * f64::from(self.concurrency);
        SimulationReport {
            name: name.to_owned(),
            seed,
            deliveries: self.created,
            succeeded: self.succeeded,
            success_rate: ratio(self.succeeded, ended),
            dead: self.dead_total,
            dead_by_reason: self.dead.clone(),
            unfinished: self.created - ended,
            unreached: 0,
            attempts: AttemptsReport {
                total: self.attempts,
                mean: ratio(attempts_of_ended, ended),
                by_result: self.results.clone(),
                distribution,
            },
            delivery_seconds: self.delivery_times(),
            load: LoadReport {
                peak_per_second: self.load.peak,
                peak_at_seconds: self.load.peak_second,
                recovery_peak_per_second: (!self.observation.recoveries.is_empty())
                    .then_some(self.recovery_load.peak),
                busy_share: if capacity > 0.0 { self.busy.as_secs_f64() / capacity } else { 0.0 },
            },
            possible_duplicates: self.possible_duplicates,
            circuit: CircuitReport {
                opened: self.circuit_opened,
                held_seconds: self.circuit.total.as_secs_f64(),
            },
            cool_down_seconds: self.cool_down.as_secs_f64(),
            paused_seconds: self.pause.total.as_secs_f64(),
            simulated_seconds: now.max(self.last_end).as_secs_f64(),
            timeline: TimelineReport {
                point_seconds: self.timeline.width.as_secs_f64(),
                attempts: self.timeline.attempts.clone(),
                delivered: self.timeline.delivered.clone(),
            },
            destinations: Vec::new(),
        }
    }

    fn delivery_times(&self) -> DeliveryTimeReport {
        let at = |share| {
            let micros = self.delivery_times.value_at_quantile(share);
            Duration::from_micros(micros).min(self.delivery_time_max).as_secs_f64()
        };
        DeliveryTimeReport {
            mean: if self.succeeded == 0 {
                0.0
            } else {
                self.delivery_time_sum / ratio(self.succeeded, 1)
            },
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: self.delivery_time_max.as_secs_f64(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
