//! Decides whether an attempt may start: pause, circuit, rate and backlog drain of one lane.

use std::time::Duration;

use surehook_retry::{
    AttemptFailure, AttemptOutcome,
    circuit::{AttemptEnd, Circuit, CircuitPermit, CircuitState, HealthSignal},
    is_destination_misconfigured,
    rate::{Gcra, LimitShare},
    should_pause_destination,
};
use surehook_types::{ids::DeliveryId, time::Timestamp};

use super::{AttemptDecision, BacklogDrain, LaneConfig, LanePause, SavedLaneState};
use crate::destination::Destination;

/// A limited lane keeps no more in memory than it can send in this time: the rest stays in the store,
/// where it can be listed, held and cancelled.
const MEMORY_SPAN: Duration = Duration::from_secs(1);
/// The same of a lane that shares waiting deliveries with others: they could send them meanwhile.
const SHARED_MEMORY_SPAN: Duration = Duration::from_millis(100);

/// The result of an attempt that the lane updates its state with.
#[derive(Debug)]
pub struct LaneAttemptResult<'a> {
    pub permit: CircuitPermit,
    pub delivery: DeliveryId,
    pub outcome: &'a AttemptOutcome,
    /// For people.
    pub detail: Option<&'a str>,
    pub decision: &'a AttemptDecision,
}

/// Whether an attempt may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPermission {
    Now,
    /// The rate limit allows it at this time of the lane's monotonic clock.
    At(Duration),
    /// Something other than time has to change first.
    Denied,
}

/// The gate of one lane.
#[derive(Debug)]
pub struct LaneGate {
    pub paused: Option<LanePause>,
    pub circuit: Circuit,
    /// A send hold: quiet hours, or the daily limit.
    pub is_on_hold: bool,
    /// The part of the rates that this lane may use.
    share: LimitShare,
    rate: Option<Gcra>,
    drain: Option<(BacklogDrain, Gcra)>,
    /// When an ordered delivery of the backlog last ended, so that the next one of its queue became due.
    ordered_backlog_ended_at: Timestamp,
    /// Consecutive failures of class `config`.
    config_failures: u32,
}

impl LaneGate {
    /// Restores the state that an earlier process saved.
    pub fn new(saved: SavedLaneState, rules: &LaneConfig, now: Timestamp) -> Self {
        let share = rules.shard.share();
        let drain = |drain: BacklogDrain| (drain, Gcra::of_share(drain.rate, share));
        let mut gate = Self {
            share,
            paused: saved.paused,
            circuit: Circuit::new(saved.circuit, now),
            is_on_hold: false,
            rate: None,
            drain: saved.drain.map(drain),
            ordered_backlog_ended_at: Timestamp::default(),
            config_failures: 0,
        };
        gate.update(rules);
        if let Some(policy) = &rules.circuit {
            gate.circuit.limit_open_time(policy, now);
        }
        gate
    }

    /// Applies changed settings.
    pub fn update(&mut self, rules: &LaneConfig) {
        if rules.rate != self.rate.map(|current| current.rate()) {
            self.rate = rules.rate.map(|rate| Gcra::of_share(rate, self.share));
        }
        if rules.circuit.is_none() {
            self.circuit.close();
        }
    }

    /// An earlier owner of the lane may have started as much as the rates allow, but nothing for the time
    /// `idle`.
    pub fn use_up_rates(&mut self, clock: Duration, idle: Duration) {
        let drain = self.drain.as_mut().map(|(_, gcra)| gcra);
        self.rate.iter_mut().chain(drain).for_each(|gcra| gcra.use_up(clock, idle));
    }

    /// While the circuit ramps up, the rate grows with the allowed concurrency.
    pub fn adjust_rate(&mut self, concurrency: u32) {
        let allowed = self.circuit.concurrency_limit(concurrency);
        self.rate.iter_mut().for_each(|rate| rate.slow_to(allowed, concurrency));
    }

    pub fn drain(&self) -> Option<BacklogDrain> {
        self.drain.map(|(drain, _)| drain)
    }

    /// Begins to drain the backlog at a rate, or ends that.
    pub fn set_drain(&mut self, drain: Option<BacklogDrain>) {
        let share = self.share;
        self.drain = drain.map(|drain| (drain, Gcra::of_share(drain.rate, share)));
    }

    /// An operator resumes the lane.
    pub fn resume(&mut self, drain: Option<BacklogDrain>) {
        self.paused = None;
        self.config_failures = 0;
        self.set_drain(drain);
    }

    /// Whether no attempt may start at all.
    pub fn is_closed(&self) -> bool {
        self.paused.is_some() || self.is_on_hold || self.circuit.concurrency_limit(u32::MAX) == 0
    }

    /// Whether it may allow less than the destination's concurrency, or other lanes may send waiting deliveries.
    pub fn is_limited(&self) -> bool {
        self.is_shared()
            || self.is_closed()
            || self.circuit.concurrency_limit(u32::MAX) < u32::MAX
            || self.rate.is_some()
            || self.drain.is_some()
    }

    /// Whether other lanes send the waiting deliveries, too.
    pub fn is_shared(&self) -> bool {
        self.share != LimitShare::WHOLE
    }

    /// All rate limits in force.
    fn rates(&self) -> impl Iterator<Item = &Gcra> {
        self.rate.iter().chain(self.drain.iter().map(|(_, gcra)| gcra))
    }

    /// How many deliveries may wait in memory, at most `usual`.
    pub fn queue_max(&self, usual: usize, concurrency: u32) -> usize {
        if self.is_closed() {
            return 0;
        }
        let by_rate = self.rates().map(|gcra| match self.is_shared() {
            true => gcra.within(SHARED_MEMORY_SPAN),
            false => gcra.within(MEMORY_SPAN).max(gcra.burst()),
        });
        let by_circuit = match self.circuit.state() {
            CircuitState::Closed => u32::MAX,
            CircuitState::Ramp { .. } => {
                self.circuit.concurrency_limit(concurrency).saturating_mul(2)
            }
            CircuitState::HalfOpen { .. } | CircuitState::Open { .. } => 1,
        };
        let least = by_rate.fold(by_circuit, u32::min).max(1);
        usize::try_from(least).unwrap_or(usize::MAX).min(usual)
    }

    /// How many attempts may run at once.
    pub fn allowed(&self, concurrency: u32) -> u32 {
        if self.paused.is_some() { 0 } else { self.circuit.concurrency_limit(concurrency) }
    }

    pub fn start_permission(
        &self,
        running: u32,
        concurrency: u32,
        clock: Duration,
    ) -> StartPermission {
        if self.paused.is_some() || !self.circuit.can_start(running, concurrency) {
            return StartPermission::Denied;
        }
        match self.rates().map(|gcra| gcra.next_free(clock)).max() {
            Some(at) if at > clock => StartPermission::At(at),
            Some(_) | None => StartPermission::Now,
        }
    }

    /// Whether a delivery created then belongs to the backlog that is drained.
    pub fn is_backlog(&self, created_at: Timestamp) -> bool {
        self.drain.is_some_and(|(drain, _)| created_at <= drain.until)
    }

    /// An ordered delivery of the backlog has ended.
    pub fn note_ordered_backlog_end(&mut self, now: Timestamp) {
        self.ordered_backlog_ended_at = self.ordered_backlog_ended_at.max(now);
    }

    /// Counts an attempt that starts now. `ordered_backlog_runs` says whether an ordered delivery of the
    /// backlog is in memory, whose end makes another one due.
    pub fn begin_attempt(
        &mut self,
        created_at: Timestamp,
        ordered_backlog_runs: bool,
        clock: Duration,
    ) -> CircuitPermit {
        if let Some(rate) = &mut self.rate {
            rate.take(clock);
        }
        // Deliveries start in the order in which they became due, and the next one of an ordering queue
        // becomes due when the one before it ends. So a delivery created after all that comes after
        // the backlog, and ends the drain.
        let is_after_backlog = !ordered_backlog_runs
            && !self.is_backlog(created_at)
            && created_at > self.ordered_backlog_ended_at;
        self.drain = self.drain.filter(|_| !is_after_backlog);
        if let Some((_, gcra)) = &mut self.drain {
            gcra.take(clock);
        }
        self.circuit.start_attempt()
    }

    /// Takes back an attempt that was begun and not made.
    pub fn abandon_attempt(&mut self, permit: CircuitPermit) {
        self.circuit.abandon(permit);
        if let Some(rate) = &mut self.rate {
            rate.give_back();
        }
        if let Some((_, gcra)) = &mut self.drain {
            gcra.give_back();
        }
    }

    /// Updates circuit and pause after an attempt.
    pub fn end_attempt(&mut self, destination: &Destination, result: &LaneAttemptResult<'_>) {
        let (concurrency, rules) = (destination.concurrency, &destination.lane);
        let AttemptDecision { at, class, roll, .. } = *result.decision;
        if let Some(policy) = &rules.circuit {
            let signal = HealthSignal::from_outcome(result.outcome, class);
            let end = AttemptEnd { permit: result.permit, signal, now: at, roll };
            self.circuit.finish_attempt(end, concurrency, policy);
            self.adjust_rate(concurrency);
        }
        if result.outcome.failure().is_some_and(AttemptFailure::is_local) {
            return;
        }
        let is_config = is_destination_misconfigured(result.outcome, class);
        self.config_failures = if is_config { self.config_failures + 1 } else { 0 };
        let is_asked = should_pause_destination(result.outcome, &destination.rules);
        let is_enough = rules.pause_after > 0 && self.config_failures >= rules.pause_after;
        if (is_asked || is_enough) && self.paused.is_none() {
            let reason = self.pause_reason(result, is_asked);
            self.paused = Some(LanePause { at, reason: Some(reason), automatic: true });
        }
    }

    fn pause_reason(&self, result: &LaneAttemptResult<'_>, is_asked: bool) -> String {
        let last = describe_result(result);
        if !is_asked {
            let failures = self.config_failures;
            return format!(
                "{failures} consecutive attempts failed because of the settings; last: {last}"
            );
        }
        match result.outcome {
            // After a resume without a fix, the same message would be the first one again.
            AttemptOutcome::Interpreted(_) => format!(
                "{last}. Fix the cause, or cancel delivery {} if only that one is wrong, then resume",
                result.delivery
            ),
            AttemptOutcome::Answered { .. } | AttemptOutcome::Failed(_) => {
                format!("{last}, and a status rule of the destination says to pause")
            }
        }
    }
}

fn describe_result(result: &LaneAttemptResult<'_>) -> String {
    let detail = result.detail.filter(|_| matches!(result.outcome, AttemptOutcome::Interpreted(_)));
    let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
    match (result.outcome.status(), result.outcome.failure()) {
        (Some(status), _) => format!("it answered {status}{detail}"),
        (None, Some(failure)) => format!("it failed with `{}`{detail}", failure.as_str()),
        (None, None) => format!("it failed{detail}"),
    }
}

#[cfg(test)]
mod tests {
    use surehook_retry::{FailureClass, FailureScope, SendOutcome};
    use surehook_types::ids::DestinationId;

    use super::*;
    use crate::{
        destination::DestinationSpec,
        lane::{DeliveryProgress, decide_attempt},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const USUAL: usize = 128;

    fn destination(fields: &str) -> Destination {
        let text =
            format!(r#"{{"name":"crm","url":"https://crm.example/","concurrency":8{fields}}}"#);
        let spec: DestinationSpec = serde_json::from_str(&text).unwrap();
        spec.build(DestinationId::new(NOW, 1), &|_| None).unwrap()
    }

    fn gate(destination: &Destination) -> LaneGate {
        LaneGate::new(SavedLaneState::default(), &destination.lane, NOW)
    }

    fn answer(gate: &mut LaneGate, destination: &Destination, status: u16) {
        let outcome = AttemptOutcome::Answered { status, retry_after: None };
        end_attempt(gate, destination, &outcome, None);
    }

    fn end_attempt(
        gate: &mut LaneGate,
        destination: &Destination,
        outcome: &AttemptOutcome,
        detail: Option<&str>,
    ) {
        let progress =
            DeliveryProgress { attempts: 0, throttled: 0, created_at: NOW, ordered: false };
        let decision = decide_attempt(destination, outcome, progress, NOW, || 0.5);
        let permit = gate.begin_attempt(NOW, false, Duration::ZERO);
        let delivery = DeliveryId::new(NOW, 7);
        let result = LaneAttemptResult { permit, delivery, outcome, detail, decision: &decision };
        gate.end_attempt(destination, &result);
    }

    #[test]
    fn pause_reason_names_the_message_that_stopped_the_sender() {
        let destination = destination("");
        let mut gate = gate(&destination);
        let stops = SendOutcome {
            scope: FailureScope::PauseDestination,
            ..SendOutcome::of(Some(FailureClass::Config))
        };
        let delivery = DeliveryId::new(NOW, 7);
        let outcome = AttemptOutcome::Interpreted(SendOutcome { status: Some(401), ..stops });
        end_attempt(&mut gate, &destination, &outcome, Some("190: the token expired"));

        let expected = format!(
            "it answered 401: 190: the token expired. Fix the cause, or cancel delivery {delivery} \
             if only that one is wrong, then resume"
        );
        assert_eq!(gate.paused.unwrap().reason.unwrap(), expected);
    }

    #[test]
    fn status_rule_pauses_at_the_first_matching_answer() {
        let destination = destination(r#","rules":[{"status":"410","then":"pause"}]"#);
        let mut gate = gate(&destination);
        answer(&mut gate, &destination, 500);
        assert!(gate.paused.is_none());
        answer(&mut gate, &destination, 410);

        let reason = gate.paused.unwrap().reason.unwrap();
        assert_eq!(reason, "it answered 410, and a status rule of the destination says to pause");
    }

    #[test]
    fn only_consecutive_config_failures_pause() {
        let destination = destination(r#","pause_after_config_failures":3"#);
        let mut gate = gate(&destination);
        for status in [404, 404, 200, 401, 500, 403, 410] {
            answer(&mut gate, &destination, status);
            assert_eq!(gate.paused, None, "after {status}");
        }
        answer(&mut gate, &destination, 404);
        let pause = gate.paused.clone().unwrap();
        assert!(pause.automatic && pause.reason.unwrap().ends_with("it answered 404"));
        assert!(gate.is_closed() && gate.is_limited());
        // After a resume the count begins again.
        gate.resume(None);
        answer(&mut gate, &destination, 404);
        assert_eq!(gate.paused, None);
    }

    #[test]
    fn queue_holds_only_what_can_be_sent_soon() {
        let cases = [("", USUAL), (r#","rate":"50/s""#, 50), (r#","rate":"6/m""#, 1)];
        for (fields, expected) in cases {
            let destination = destination(fields);
            assert_eq!(gate(&destination).queue_max(USUAL, 8), expected, "case: {fields}");
        }
        let destination = destination(r#","circuit":{"failures":1}"#);
        let mut gate = gate(&destination);
        answer(&mut gate, &destination, 500);
        assert_eq!(gate.queue_max(USUAL, 8), 0);
        gate.circuit.advance(NOW + Duration::from_secs(60));
        assert_eq!(gate.queue_max(USUAL, 8), 1);
        answer(&mut gate, &destination, 200);
        assert_eq!(gate.queue_max(USUAL, 8), 2);
    }

    #[test]
    fn drain_ends_with_the_first_delivery_created_after_it() {
        let destination = destination("");
        let mut gate = gate(&destination);
        gate.resume(Some(BacklogDrain { rate: "1/s".parse().unwrap(), until: NOW }));
        gate.begin_attempt(NOW, false, Duration::ZERO);
        assert_eq!(
            gate.start_permission(1, 8, Duration::ZERO),
            StartPermission::At(Duration::from_secs(1))
        );
        gate.begin_attempt(NOW + Duration::from_millis(1), false, Duration::from_secs(1));
        assert_eq!(gate.drain(), None);
        assert_eq!(gate.start_permission(2, 8, Duration::from_secs(1)), StartPermission::Now);
    }

    #[test]
    fn drain_lasts_until_its_ordering_queues_are_empty() {
        let (later, latest) = (NOW + Duration::from_millis(5), NOW + Duration::from_millis(9));
        let mut gate = gate(&destination(""));
        gate.resume(Some(BacklogDrain { rate: "1/s".parse().unwrap(), until: NOW }));
        gate.begin_attempt(later, true, Duration::ZERO);
        assert!(gate.drain().is_some(), "the first of an ordering queue runs");
        gate.note_ordered_backlog_end(later);
        gate.begin_attempt(later, false, Duration::ZERO);
        assert!(gate.drain().is_some(), "the next of the ordering queue is due before it");
        gate.begin_attempt(latest, false, Duration::ZERO);
        assert_eq!(gate.drain(), None);
    }

    #[test]
    fn abandoned_attempt_uses_no_rate_and_does_not_count_for_the_circuit() {
        let destination = destination(r#","rate":"1/s","circuit":{"failures":1}"#);
        let mut gate = gate(&destination);
        let permit = gate.begin_attempt(NOW, false, Duration::ZERO);
        gate.abandon_attempt(permit);
        assert_eq!(gate.start_permission(0, 8, Duration::ZERO), StartPermission::Now);
        // The abandoned probe of the half-open circuit makes way for another.
        answer(&mut gate, &destination, 500);
        gate.circuit.advance(NOW + Duration::from_secs(60));
        let (soon, later) = (Duration::from_secs(5), Duration::from_secs(9));
        let permit = gate.begin_attempt(NOW, false, soon);
        assert_eq!(gate.start_permission(1, 8, later), StartPermission::Denied);
        gate.abandon_attempt(permit);
        assert_eq!(gate.start_permission(0, 8, later), StartPermission::Now);
    }

    #[test]
    fn send_hold_keeps_nothing_in_memory() {
        let mut gate = gate(&destination(""));
        gate.is_on_hold = true;
        assert!(gate.is_closed() && gate.is_limited());
        assert_eq!(gate.queue_max(USUAL, 8), 0);
    }

    #[test]
    fn lane_taken_over_begins_with_empty_rates() {
        let destination = destination(r#","rate":"10/s burst 5""#);
        let mut gate = gate(&destination);
        gate.resume(Some(BacklogDrain { rate: "1/s".parse().unwrap(), until: NOW }));

        gate.use_up_rates(Duration::ZERO, Duration::ZERO);

        let second = Duration::from_secs(1);
        assert_eq!(gate.start_permission(0, 8, Duration::ZERO), StartPermission::At(second));
        gate.set_drain(None);
        let tenth = Duration::from_millis(100);
        assert_eq!(gate.start_permission(0, 8, Duration::ZERO), StartPermission::At(tenth));
    }

    #[test]
    fn rate_grows_with_the_circuit_ramp() {
        let destination = destination(r#","rate":"80/s burst 10","circuit":{"failures":1}"#);
        let mut gate = gate(&destination);
        answer(&mut gate, &destination, 500);
        gate.circuit.advance(NOW + Duration::from_secs(60));
        answer(&mut gate, &destination, 200);
        let long = Duration::from_secs(100);
        gate.begin_attempt(NOW, false, long);
        // One of eight may run, at an eighth of the rate.
        assert_eq!(
            gate.start_permission(0, 8, long),
            StartPermission::At(long + Duration::from_millis(100))
        );
    }
}
