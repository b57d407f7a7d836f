//! A destination that answers simulated attempts as its recorded history suggests. Used by `what_if`.
//!
//! Failures of a delivery are separated from failures of the destination:
//!
//! - **Failing deliveries.** A delivery that was refused permanently is refused again. A delivery that kept
//!   failing while others succeeded probably fails always ([`FAILS_ALWAYS_PRIOR`]). A delivery that
//!   succeeded once does not.
//! - **State of the destination.** A simulated attempt at about the time of a recorded attempt of the same
//!   delivery gets the recorded answer. Otherwise it gets that of one of the attempts nearest in time.
//!   Whether one before or one after is taken is random, and the nearer side is likelier: the edge of an
//!   outage is as sharp as the record.
//! - **Evidence.** A simulated attempt without a recorded one nearby is a guess, and is counted as one.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    rc::Rc,
    time::Duration,
};

use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{RecordedAttempt, RecordedDelivery},
};
use surehook_retry::{
    AmbiguousPolicy, AttemptFailure, AttemptOutcome, DeadReason, FailureClass, RetryAfter,
    SendOutcome,
};
use surehook_types::{ids::DeliveryId, rng::Rng, time::Timestamp};

use crate::{
    arrivals::Arrival,
    behavior::{DestinationBehavior, SimulatedRequest, SimulatedResponse, TimeSpan},
    rng::SeededRng,
};

/// The probability, before its attempts are considered, that a delivery fails whenever it is attempted.
const FAILS_ALWAYS_PRIOR: f64 = 0.001;
/// The same for a delivery that fails as if the settings were wrong, such as with 404.
const FAILS_ALWAYS_PRIOR_CONFIG: f64 = 0.1;
/// Even a healthy destination fails sometimes: the share of failures among other deliveries counts as at
/// least this, so that no single failure proves too much.
const FAILURE_SHARE_MIN: f64 = 0.02;
/// From this probability on, the failures of a delivery are attributed to it and are no evidence about the
/// destination.
const FAILS_ALWAYS_MIN: f64 = 0.5;

/// A simulated attempt gets the answer of a recorded attempt of the same delivery that is at most the age of
/// the delivery divided by this number away, within the following bounds.
const SAME_DELIVERY_AGE_DIVISOR: u32 = 20;
const SAME_DELIVERY_DISTANCE_MIN: Duration = Duration::from_millis(100);
const SAME_DELIVERY_DISTANCE_MAX: Duration = Duration::from_secs(30);

/// Recorded attempts that are considered on each side of a time.
const NEIGHBOURS_MAX: usize = 8;
/// Neighbours are taken up to twice the distance of the nearest one, but at least up to this much beyond it.
const NEIGHBOUR_SPAN_MIN: Duration = Duration::from_millis(500);

/// A recorded attempt this near shows the state of the destination.
const EVIDENCE_DISTANCE_MAX: Duration = Duration::from_secs(30);
/// Two recorded attempts with the same result, one before and one after, show it if they are at most this
/// far apart.
const EVIDENCE_GAP_MAX: Duration = Duration::from_secs(600);

/// The delivery number of an attempt whose delivery is not simulated: cancelled, or a replay of one that is
/// not in the record.
const NO_DELIVERY: u32 = u32::MAX;

/// The answer to a recorded attempt.
#[derive(Clone, Copy, Debug)]
struct PastAnswer {
    took: Duration,
    status: Option<u16>,
    failure: Option<AttemptFailure>,
    class: Option<FailureClass>,
    /// Why the delivery died after this attempt.
    reason: Option<DeadReason>,
    retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct PastAttempt {
    /// Since the start of the history.
    at: Duration,
    /// Number of the delivery, or of the original of a replay; or [`NO_DELIVERY`].
    delivery: u32,
    answer: PastAnswer,
}

impl PastAttempt {
    fn is_success(&self) -> bool {
        self.answer.class.is_none()
    }

    /// Whether the destination refused the delivery itself, so that it would refuse it again.
    fn is_permanent(&self) -> bool {
        self.answer.class == Some(FailureClass::Permanent)
    }

    fn fails_like(&self, other: &Self) -> bool {
        self.answer.status == other.answer.status && self.answer.failure == other.answer.failure
    }
}

/// The history of a destination in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryFacts {
    /// Deliveries that are neither replays nor cancelled.
    pub deliveries: u64,
    /// Of the deliveries, those that have not ended.
    pub open: u64,
    /// Of the deliveries, those whose attempts are not stored any more.
    pub without_attempts: u64,
    /// Of the deliveries, those with an ordering key.
    pub ordered: u64,
    /// Replays, and revivals: replays caused by a duplicate.
    pub replays: u64,
    pub cancelled: u64,
    /// Answers that asked to slow down.
    pub throttled: u64,
    /// Of the throttled answers, those whose `Retry-After` was not recorded.
    pub throttled_without_wait: u64,
    pub timeouts: u64,
    /// Attempts that ended on our side.
    pub local_failures: u64,
    /// Deliveries that were not refused permanently, but probably fail whenever they are attempted.
    pub failing_alone: u64,
    /// For how long nothing was attempted although deliveries waited, in seconds.
    pub held_seconds: u64,
}

/// The settings under which the deliveries were recorded.
#[derive(Clone, Copy, Debug)]
pub struct HistoryContext {
    /// The timeout of an attempt.
    pub timeout: Duration,
    /// The delay before the first attempt.
    pub delay: Duration,
    /// Without an attempt for longer than this while deliveries wait, the lane was paused or stopped.
    pub hold_min: Duration,
    /// The destination is not a webhook: the meaning of its answers was recorded, and does not follow from
    /// an HTTP status.
    pub is_interpreted: bool,
}

/// The history of a destination, prepared for [`RecordedBehavior`].
#[derive(Debug)]
pub struct DestinationHistory {
    context: HistoryContext,
    start: Timestamp,
    arrivals: Vec<Arrival>,
    /// All recorded attempts, in the order of their start.
    attempts: Vec<PastAttempt>,
    /// Positions in `attempts`, grouped by delivery.
    delivery_attempts: Vec<u32>,
    /// The index in `delivery_attempts` at which each delivery begins, and the end of the last.
    delivery_starts: Vec<usize>,
    /// Positions of attempts that show the state of the destination.
    evidence: Vec<u32>,
    /// The probability that a delivery fails whenever it is attempted.
    failing_always: Vec<f64>,
    holds: Vec<TimeSpan>,
    facts: HistoryFacts,
}

impl DestinationHistory {
    /// `None` if there is nothing to learn from: no attempt.
    pub fn new(mut deliveries: Vec<RecordedDelivery>, context: HistoryContext) -> Option<Self> {
        deliveries.sort_by_key(|delivery| (delivery.created_at, delivery.id));
        let start = deliveries.first()?.created_at;
        let mut history = Self {
            context,
            start,
            arrivals: Vec::new(),
            attempts: Vec::new(),
            delivery_attempts: Vec::new(),
            delivery_starts: Vec::new(),
            evidence: Vec::new(),
            failing_always: Vec::new(),
            holds: Vec::new(),
            facts: HistoryFacts::default(),
        };
        history.add_deliveries(deliveries);
        if history.attempts.is_empty() || history.arrivals.is_empty() {
            return None;
        }
        history.attempts.sort_by_key(|attempt| attempt.at);
        history.index_attempts_by_delivery();
        history.find_holds();
        history.find_failing_deliveries();
        Some(history)
    }

    fn add_deliveries(&mut self, deliveries: Vec<RecordedDelivery>) {
        // The attempts of a replay count as attempts of its original: they show whether that can succeed.
        let replayed: HashSet<DeliveryId> =
            deliveries.iter().filter_map(|delivery| delivery.replay_of).collect();
        let mut numbers: HashMap<DeliveryId, u32> = HashMap::new();
        let mut customers: HashMap<String, u32> = HashMap::new();
        let mut next_customer = 0;
        for delivery in deliveries {
            let number = match delivery.replay_of {
                Some(original) => {
                    self.facts.replays += 1;
                    numbers.get(&original).copied().unwrap_or(NO_DELIVERY)
                }
                None if delivery.status == DeliveryStatus::Cancelled => {
                    self.facts.cancelled += 1;
                    NO_DELIVERY
                }
                None => u32::try_from(self.arrivals.len()).unwrap_or(NO_DELIVERY),
            };
            if replayed.contains(&delivery.id) {
                numbers.insert(delivery.id, number);
            }
            if delivery.replay_of.is_none() && number != NO_DELIVERY {
                let mut new_customer = || {
                    next_customer += 1;
                    next_customer
                };
                let customer = match &delivery.order_key {
                    Some(key) => *customers.entry(key.clone()).or_insert_with(new_customer),
                    None => new_customer(),
                };
                let at = delivery.created_at.since(self.start);
                self.arrivals.push(Arrival { at, lane: 0, customer });
                self.count_delivery(&delivery);
            }
            self.add_attempts(&delivery, number);
        }
    }

    fn count_delivery(&mut self, delivery: &RecordedDelivery) {
        let facts = &mut self.facts;
        facts.deliveries += 1;
        facts.open += u64::from(!delivery.status.is_final());
        facts.ordered += u64::from(delivery.order_key.is_some());
        let is_removed = delivery.attempts_made > 0 && delivery.attempts.is_empty();
        facts.without_attempts += u64::from(is_removed);
    }

    fn add_attempts(&mut self, delivery: &RecordedDelivery, number: u32) {
        let last = delivery.attempts.len().saturating_sub(1);
        for (index, attempt) in delivery.attempts.iter().enumerate() {
            self.count_attempt(attempt);
            // Our shutdown or a lack of sockets says nothing about destination or delivery.
            if matches!(
                attempt.failure,
                Some(AttemptFailure::Interrupted | AttemptFailure::NoResources)
            ) {
                continue;
            }
            let RecordedAttempt { started_at, took, status, failure, class, retry_after } =
                *attempt;
            let reason = delivery.reason.filter(|_| index == last);
            let answer = PastAnswer { took, status, failure, class, reason, retry_after };
            let at = started_at.since(self.start);
            self.attempts.push(PastAttempt { at, delivery: number, answer });
        }
    }

    fn count_attempt(&mut self, attempt: &RecordedAttempt) {
        let facts = &mut self.facts;
        let is_throttled = attempt.class == Some(FailureClass::Throttled);
        facts.throttled += u64::from(is_throttled);
        facts.throttled_without_wait += u64::from(is_throttled && attempt.retry_after.is_none());
        facts.timeouts += u64::from(attempt.failure == Some(AttemptFailure::Timeout));
        facts.local_failures += u64::from(attempt.failure.is_some_and(AttemptFailure::is_local));
    }

    fn index_attempts_by_delivery(&mut self) {
        let mut counts = vec![0; self.arrivals.len() + 1];
        let deliveries = self.attempts.iter().map(|attempt| attempt.delivery);
        for number in deliveries.clone().filter(|number| *number != NO_DELIVERY) {
            counts[to_index(number) + 1] += 1;
        }
        for number in 1..counts.len() {
            counts[number] += counts[number - 1];
        }
        let mut next = counts.clone();
        self.delivery_attempts = vec![0; counts[self.arrivals.len()]];
        for (position, number) in (0..).zip(deliveries) {
            if number != NO_DELIVERY {
                self.delivery_attempts[next[to_index(number)]] = position;
                next[to_index(number)] += 1;
            }
        }
        self.delivery_starts = counts;
    }

    /// The attempts of a delivery and of its replays, in the order of their start.
    fn attempts_of(&self, delivery: usize) -> &[u32] {
        &self.delivery_attempts[self.delivery_starts[delivery]..self.delivery_starts[delivery + 1]]
    }

    fn attempt(&self, position: u32) -> &PastAttempt {
        &self.attempts[to_index(position)]
    }

    /// Spans without an attempt although a delivery waited for its first one: a pause, quiet hours, or a
    /// gateway that was stopped. A different policy would not have changed that.
    fn find_holds(&mut self) {
        let HistoryContext { delay, hold_min, .. } = self.context;
        let mut waits: Vec<TimeSpan> = Vec::new();
        for (number, arrival) in self.arrivals.iter().enumerate() {
            let due = arrival.at + delay;
            if let Some(first) =
                self.attempts_of(number).first().map(|first| self.attempt(*first).at)
                && first.saturating_sub(due) > hold_min
            {
                waits.push(TimeSpan { from: due, until: first });
            }
        }
        waits.sort_by_key(|wait| wait.from);
        let gaps = self.attempts.windows(2).filter(|pair| {
            let gap = pair[1].at - pair[0].at;
            // A destination may ask for a long wait.
            gap > hold_min && pair[0].answer.retry_after.is_none_or(|wait| wait < gap / 2)
        });
        for gap in gaps.map(|pair| TimeSpan { from: pair[0].at, until: pair[1].at }) {
            // The gap ends with an attempt that was overdue.
            let has_wait = |wait: &&TimeSpan| wait.until >= gap.until && wait.from < gap.until;
            if let Some(first) = waits.iter().find(has_wait) {
                self.holds.push(TimeSpan { from: gap.from.max(first.from), until: gap.until });
            }
        }
        let held =
            self.holds.iter().map(|hold| hold.until.saturating_sub(hold.from)).sum::<Duration>();
        self.facts.held_seconds = held.as_secs();
    }

    /// Separates failures of deliveries from failures of the destination: estimates `failing_always` and leaves
    /// only failures of the destination in `evidence`.
    fn find_failing_deliveries(&mut self) {
        let positions = 0..u32::try_from(self.attempts.len()).unwrap_or(NO_DELIVERY);
        self.evidence =
            positions.filter(|position| !self.attempt(*position).is_permanent()).collect();
        self.failing_always =
            (0..self.arrivals.len()).map(|number| self.estimate_failing_always(number)).collect();
        let is_refused = |positions: &[u32]| {
            positions.iter().any(|position| self.attempt(*position).is_permanent())
        };
        let alone = self.failing_always.iter().enumerate().filter(|(number, probability)| {
            **probability >= FAILS_ALWAYS_MIN && !is_refused(self.attempts_of(*number))
        });
        self.facts.failing_alone = u64::try_from(alone.count()).unwrap_or(u64::MAX);
        let evidence = std::mem::take(&mut self.evidence);
        self.evidence = evidence
            .into_iter()
            .filter(|position| {
                let delivery = self.attempt(*position).delivery;
                delivery == NO_DELIVERY
                    || self.failing_always[to_index(delivery)] < FAILS_ALWAYS_MIN
            })
            .collect();
    }

    /// The probability that a delivery fails whenever it is attempted: by Bayes' theorem, from how
    /// often others failed in the same way at the same times.
    fn estimate_failing_always(&self, number: usize) -> f64 {
        let positions = self.attempts_of(number);
        let Some(last) = positions.last().map(|last| self.attempt(*last)) else { return 0.0 };
        if positions.iter().any(|position| self.attempt(*position).is_success()) {
            return 0.0;
        }
        if positions.iter().any(|position| self.attempt(*position).is_permanent()) {
            return 1.0;
        }
        let prior = match last.answer.class {
            Some(FailureClass::Config) => FAILS_ALWAYS_PRIOR_CONFIG,
            Some(FailureClass::Transient) => FAILS_ALWAYS_PRIOR,
            Some(FailureClass::Throttled | FailureClass::Ambiguous | FailureClass::Permanent)
            | None => return 0.0,
        };
        if !positions.iter().all(|position| self.attempt(*position).fails_like(last)) {
            return 0.0;
        }
        let by_destination: f64 = positions
            .iter()
            .map(|position| {
                let neighbours = self.find_neighbours(self.attempt(*position).at, last.delivery);
                let is_alike = |other: &PastAttempt| other.answer.class == last.answer.class;
                neighbours.share(self, is_alike).max(FAILURE_SHARE_MIN)
            })
            .product();
        prior / (prior + (1.0 - prior) * by_destination)
    }

    /// The recorded attempts nearest to a time, without those of one delivery.
    fn find_neighbours(&self, at: Duration, excluded: u32) -> Neighbours {
        let middle = self.evidence.partition_point(|position| self.attempt(*position).at < at);
        let (before, after) = self.evidence.split_at(middle);
        let is_other = |position: &&u32| {
            let delivery = self.attempt(**position).delivery;
            delivery == NO_DELIVERY || delivery != excluded
        };
        Neighbours {
            before: self.take_nearest(at, before.iter().rev().filter(is_other)),
            after: self.take_nearest(at, after.iter().filter(is_other)),
        }
    }

    fn take_nearest<'a>(
        &self,
        at: Duration,
        positions: impl Iterator<Item = &'a u32>,
    ) -> NeighbourSide {
        let mut side = NeighbourSide::default();
        for position in positions.take(NEIGHBOURS_MAX) {
            let distance = self.attempt(*position).at.abs_diff(at);
            if side.count == 0 {
                side.distance = distance;
            } else if distance > side.distance + side.distance.max(NEIGHBOUR_SPAN_MIN) {
                break;
            }
            side.positions[side.count] = *position;
            side.count += 1;
        }
        side
    }

    /// Whether the record shows the state of the destination at the time of these neighbours, so that an
    /// answer taken from them is no guess.
    fn has_evidence(&self, neighbours: &Neighbours) -> bool {
        let Neighbours { before, after } = neighbours;
        match (before.nearest(), after.nearest()) {
            (Some(first), Some(last)) => {
                let agree = self.attempt(first).is_success() == self.attempt(last).is_success();
                before.distance.min(after.distance) <= EVIDENCE_DISTANCE_MAX
                    || (agree && before.distance + after.distance <= EVIDENCE_GAP_MAX)
            }
            // The shorter the record, the less it says of the time after it.
            (Some(first), None) => {
                before.distance <= EVIDENCE_DISTANCE_MAX.min(self.attempt(first).at / 10)
            }
            (None, Some(_)) => after.distance <= EVIDENCE_DISTANCE_MAX,
            (None, None) => false,
        }
    }

    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The start of the last recorded attempt.
    pub fn last_attempt_at(&self) -> Timestamp {
        self.start + self.attempts.last().map_or(Duration::ZERO, |last| last.at)
    }

    pub fn facts(&self) -> HistoryFacts {
        self.facts
    }

    /// The response that the recorded answer would have been with this timeout.
    fn respond(&self, answer: &PastAnswer, timeout: Duration) -> SimulatedResponse {
        let PastAnswer { took, status, failure, class, reason, retry_after } = *answer;
        let is_timeout = failure == Some(AttemptFailure::Timeout);
        if timeout < self.context.timeout && took > timeout
            || is_timeout && timeout > self.context.timeout
        {
            let outcome = AttemptOutcome::Failed(AttemptFailure::Timeout);
            return SimulatedResponse { outcome, took: timeout, may_have_arrived: true };
        }
        // A 503 is only throttled if it has a Retry-After. If none was recorded, it was shorter than the
        // backoff.
        let had_short_wait = class == Some(FailureClass::Throttled) && status == Some(503);
        let retry_after = retry_after
            .or_else(|| had_short_wait.then_some(Duration::from_secs(1)))
            .map(RetryAfter::Delay);
        let outcome = match (failure, status) {
            _ if self.context.is_interpreted => {
                let is_parked = reason == Some(DeadReason::Ambiguous);
                AttemptOutcome::Interpreted(SendOutcome {
                    status,
                    failure,
                    retry_after,
                    reason: reason.filter(|_| class == Some(FailureClass::Permanent)),
                    on_ambiguous: if is_parked {
                        AmbiguousPolicy::Park
                    } else {
                        AmbiguousPolicy::Retry
                    },
                    ..SendOutcome::of(class)
                })
            }
            (Some(failure), _) => AttemptOutcome::Failed(failure),
            (None, status) => {
                AttemptOutcome::Answered { status: status.unwrap_or(200), retry_after }
            }
        };
        let may_have_arrived = class.is_none() || may_have_arrived(failure);
        SimulatedResponse { outcome, took, may_have_arrived }
    }
}

/// Whether the destination may have processed an event although there was no answer.
pub(crate) fn may_have_arrived(failure: Option<AttemptFailure>) -> bool {
    matches!(failure, Some(AttemptFailure::Timeout | AttemptFailure::Reset))
}

fn to_index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The recorded attempts nearest to a time.
#[derive(Debug)]
struct Neighbours {
    before: NeighbourSide,
    after: NeighbourSide,
}

#[derive(Clone, Copy, Debug, Default)]
struct NeighbourSide {
    positions: [u32; NEIGHBOURS_MAX],
    count: usize,
    /// Distance of the nearest one.
    distance: Duration,
}

impl NeighbourSide {
    fn positions(&self) -> &[u32] {
        &self.positions[..self.count]
    }

    fn nearest(&self) -> Option<u32> {
        self.positions().first().copied()
    }
}

impl Neighbours {
    /// The weight of the side before, 0 to 1. The nearer a side, the more it weighs.
    fn weight_before(&self) -> f64 {
        let Self { before, after } = self;
        match (before.count, after.count) {
            (_, 0) => 1.0,
            (0, _) => 0.0,
            _ => {
                // A millisecond each: attempts are recorded with that precision.
                let [before, after] =
                    [before, after].map(|side| side.distance.as_secs_f64() + 0.001);
                after / (before + after)
            }
        }
    }

    /// The weighted share of neighbours that match; 1 if there are no neighbours.
    fn share(&self, history: &DestinationHistory, matches: impl Fn(&PastAttempt) -> bool) -> f64 {
        let share = |side: &NeighbourSide| {
            let found =
                side.positions().iter().filter(|position| matches(history.attempt(**position)));
            #[expect(clippy::cast_precision_loss, reason = "a handful")]
            let share = found.count() as f64 / side.count.max(1) as f64;
            share
        };
        if self.before.count + self.after.count == 0 {
            return 1.0;
        }
        let before = self.weight_before();
        before * share(&self.before) + (1.0 - before) * share(&self.after)
    }

    /// The position of a random neighbour; the side is drawn by its weight.
    fn draw(&self, rng: &dyn Rng) -> Option<u32> {
        let is_before = rng.next_f64() < self.weight_before();
        let positions = if is_before { &self.before } else { &self.after }.positions();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the roll is below 1, so the index is below the count"
        )]
        let drawn = (rng.next_f64() * positions.len() as f64) as usize;
        positions.get(drawn).copied()
    }
}

/// The number of simulated answers by the recorded attempts that they were taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceCounts {
    /// Recorded attempts of the same delivery.
    pub same_delivery: u64,
    /// Recorded attempts of other deliveries at about the same time.
    pub nearby: u64,
    /// Recorded attempts of other deliveries, none of which was nearby.
    pub guessed: u64,
    /// Of all answers, time-outs that a longer timeout than the recorded one might have avoided.
    pub longer_timeouts: u64,
    /// Of all answers, those after the last recorded attempt.
    pub after_end: u64,
}

/// A destination that answers as its history shows.
#[derive(Debug)]
pub struct RecordedBehavior {
    history: Rc<DestinationHistory>,
    /// How many of its recorded attempts each delivery has used.
    used: Vec<u32>,
    /// Whether each delivery fails whenever it is attempted; drawn once.
    fails_always: Vec<bool>,
    evidence: Rc<Cell<EvidenceCounts>>,
}

impl RecordedBehavior {
    /// The caller reads `evidence` when the simulation is over.
    pub fn new(
        history: Rc<DestinationHistory>,
        seed: u64,
        evidence: Rc<Cell<EvidenceCounts>>,
    ) -> Self {
        // Another sequence of random numbers than that of the simulation.
        let rng = SeededRng::new(seed ^ 0x0061_6c6f_6e65);
        let fails_always = history
            .failing_always
            .iter()
            .map(|probability| rng.next_f64() < *probability)
            .collect();
        Self { used: vec![0; history.arrivals.len()], fails_always, history, evidence }
    }

    /// The recorded attempt of the same delivery at that time. Each is used once: two attempts of one
    /// delivery are two trials.
    fn take_recorded_answer(&mut self, delivery: usize, at: Duration) -> Option<PastAnswer> {
        let created = self.history.arrivals.get(delivery)?.at;
        let distance_max = (at.saturating_sub(created) / SAME_DELIVERY_AGE_DIVISOR)
            .clamp(SAME_DELIVERY_DISTANCE_MIN, SAME_DELIVERY_DISTANCE_MAX);
        let used = to_index(self.used[delivery]);
        // Taking one uses up those before it.
        let unused = (1..).zip(&self.history.attempts_of(delivery)[used..]);
        let distances = unused.map(|(uses, position)| {
            (self.history.attempt(*position).at.abs_diff(at), uses, *position)
        });
        let (distance, uses, position) = distances.min()?;
        if distance > distance_max {
            return None;
        }
        self.used[delivery] += uses;
        Some(self.history.attempt(position).answer)
    }

    fn choose_answer(
        &mut self,
        request: &SimulatedRequest,
        rng: &dyn Rng,
        counts: &mut EvidenceCounts,
    ) -> Option<PastAnswer> {
        let delivery = usize::try_from(request.delivery).ok()?;
        let recorded = self.take_recorded_answer(delivery, request.at).or_else(|| {
            let last = self.history.attempts_of(delivery).last();
            let last = last.filter(|_| self.fails_always[delivery]);
            last.map(|last| self.history.attempt(*last).answer)
        });
        if recorded.is_some() {
            counts.same_delivery += 1;
            return recorded;
        }
        let number = u32::try_from(request.delivery).ok()?;
        let neighbours = self.history.find_neighbours(request.at, number);
        if self.history.has_evidence(&neighbours) {
            counts.nearby += 1;
        } else {
            counts.guessed += 1;
        }
        let drawn = neighbours.draw(rng)?;
        Some(self.history.attempt(drawn).answer)
    }
}

impl DestinationBehavior for RecordedBehavior {
    fn respond(&mut self, request: &SimulatedRequest, rng: &dyn Rng) -> SimulatedResponse {
        let mut counts = self.evidence.get();
        let answer = self.choose_answer(request, rng, &mut counts);
        let is_longer = request.timeout > self.history.context.timeout;
        let timed_out = answer.and_then(|answer| answer.failure) == Some(AttemptFailure::Timeout);
        counts.longer_timeouts += u64::from(is_longer && timed_out);
        let last = self.history.attempts.last().map_or(Duration::ZERO, |last| last.at);
        counts.after_end += u64::from(request.at > last + SAME_DELIVERY_DISTANCE_MIN);
        self.evidence.set(counts);
        let accepted = PastAnswer {
            took: Duration::ZERO,
            status: Some(200),
            failure: None,
            class: None,
            reason: None,
            retry_after: None,
        };
        self.history.respond(&answer.unwrap_or(accepted), request.timeout)
    }

    fn held_until(&self, now: Duration) -> Option<Duration> {
        let holds = &self.history.holds;
        let current = holds.partition_point(|hold| hold.until <= now);
        holds.get(current).filter(|hold| hold.contains(now)).map(|hold| hold.until)
    }

    fn resumed_at(&self, paused_at: Duration) -> Option<Duration> {
        let attempts = &self.history.attempts;
        let next = attempts.partition_point(|attempt| attempt.at <= paused_at);
        attempts.get(next).map(|attempt| attempt.at)
    }
}
