//! What may start next: pause, circuit, rate and drain of one lane, all under the lane's one lock.

use std::time::Duration;

use surehook_core::{
    delivery::{
        AttemptFailure, AttemptOutcome, FailureClass,
        retry::{is_destination_misconfigured, should_pause_destination},
    },
    destination::Destination,
    ids::DeliveryId,
    lane::{
        BacklogDrain, Circuit, CircuitState, Gcra, LanePause, LaneRules, SavedLaneState,
        circuit::{AttemptEnd, CircuitPermit, HealthSignal},
    },
    time::Timestamp,
};

/// A lane that may not go as fast as it can keeps no more in memory than it can send in this time:
/// the rest is better off in the store, where it can be seen, held and cancelled.
const MEMORY_SPAN: Duration = Duration::from_secs(1);

/// The end of an attempt, as far as the lane is concerned.
pub(super) struct LaneAttemptResult<'a> {
    pub(super) ticket: CircuitPermit,
    pub(super) delivery: DeliveryId,
    pub(super) outcome: &'a AttemptOutcome,
    pub(super) class: Option<FailureClass>,
    /// What was said about it, for people.
    pub(super) detail: Option<&'a str>,
    pub(super) at: Timestamp,
    pub(super) roll: f64,
}

/// Whether an attempt may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPermission {
    Now,
    /// By its rate not before this time of the lane's own clock.
    At(Duration),
    /// Something has to happen first.
    NotNow,
}

#[derive(Debug)]
pub(super) struct LaneGate {
    pub(super) paused: Option<LanePause>,
    pub(super) circuit: Circuit,
    /// A number that sends nothing for a while.
    pub(super) rests: bool,
    rate: Option<Gcra>,
    drain: Option<(BacklogDrain, Gcra)>,
    /// When one of the backlog last made way for the next one of its line.
    line_moved_at: Timestamp,
    /// Failures of class `config` in a row.
    config_failures: u32,
}

impl LaneGate {
    /// Goes on where an earlier process was.
    pub(super) fn new(kept: SavedLaneState, rules: &LaneRules, now: Timestamp) -> Self {
        let mut gate = Self {
            paused: kept.paused,
            circuit: Circuit::new(kept.circuit, now),
            rests: false,
            rate: None,
            drain: kept.drain.map(|drain| (drain, Gcra::new(drain.rate))),
            line_moved_at: Timestamp::default(),
            config_failures: 0,
        };
        gate.update(rules);
        gate
    }

    /// Takes over changed rules.
    pub(super) fn update(&mut self, rules: &LaneRules) {
        if rules.rate != self.rate.map(|kept| kept.rate()) {
            self.rate = rules.rate.map(Gcra::new);
        }
        if rules.circuit.is_none() {
            self.circuit.close();
        }
    }

    /// On the ramp, the rate grows with what may run at once.
    pub(super) fn set_pace(&mut self, full: u32) {
        let allowed = self.circuit.allowed(full);
        self.rate.iter_mut().for_each(|rate| rate.slow_to(allowed, full));
    }

    pub(super) fn drain(&self) -> Option<BacklogDrain> {
        self.drain.map(|(drain, _)| drain)
    }

    /// Begins to work off what was created until `until`, or ends that.
    pub(super) fn set_drain(&mut self, drain: Option<BacklogDrain>) {
        self.drain = drain.map(|drain| (drain, Gcra::new(drain.rate)));
    }

    /// A person wants it to go on.
    pub(super) fn resume(&mut self, drain: Option<BacklogDrain>) {
        self.paused = None;
        self.config_failures = 0;
        self.set_drain(drain);
    }

    /// Whether nothing at all is tried, whatever the time.
    pub(super) fn is_shut(&self) -> bool {
        self.paused.is_some() || self.rests || self.circuit.allowed(u32::MAX) == 0
    }

    /// Whether it lets through less than the concurrency of the destination says.
    pub(super) fn is_narrow(&self) -> bool {
        self.is_shut()
            || self.circuit.allowed(u32::MAX) < u32::MAX
            || self.rate.is_some()
            || self.drain.is_some()
    }

    /// The rates to be kept.
    fn rates(&self) -> impl Iterator<Item = &Gcra> {
        self.rate.iter().chain(self.drain.iter().map(|(_, gcra)| gcra))
    }

    /// How many deliveries may wait in memory; `usual` is how many would without a gate.
    pub(super) fn queue_max(&self, usual: usize, full: u32) -> usize {
        if self.is_shut() {
            return 0;
        }
        let by_rate = self.rates().map(|gcra| {
            let rate = gcra.rate();
            rate.within(MEMORY_SPAN).max(rate.burst())
        });
        let by_circuit = match self.circuit.state() {
            CircuitState::Closed => u32::MAX,
            CircuitState::Ramp { .. } => self.circuit.allowed(full).saturating_mul(2),
            CircuitState::HalfOpen { .. } | CircuitState::Open { .. } => 1,
        };
        let least = by_rate.fold(by_circuit, u32::min).max(1);
        usize::try_from(least).unwrap_or(usize::MAX).min(usual)
    }

    /// How many attempts may run at once.
    pub(super) fn allowed(&self, full: u32) -> u32 {
        if self.paused.is_some() { 0 } else { self.circuit.allowed(full) }
    }

    pub(super) fn may_start(&self, running: u32, full: u32, clock: Duration) -> StartPermission {
        if self.paused.is_some() || !self.circuit.lets_start(running, full) {
            return StartPermission::NotNow;
        }
        match self.rates().map(|gcra| gcra.next_free(clock)).max() {
            Some(at) if at > clock => StartPermission::At(at),
            Some(_) | None => StartPermission::Now,
        }
    }

    /// Whether something that was created then belongs to a backlog that is drained.
    pub(super) fn is_backlog(&self, created_at: Timestamp) -> bool {
        self.drain.is_some_and(|(drain, _)| created_at <= drain.until)
    }

    /// One of the backlog that others may stand behind has ended.
    pub(super) fn move_line(&mut self, now: Timestamp) {
        self.line_moved_at = self.line_moved_at.max(now);
    }

    /// Counts an attempt of a delivery that was created then and starts now; `in_line` says whether
    /// one of the backlog runs that others may stand behind.
    pub(super) fn begin(
        &mut self,
        created_at: Timestamp,
        in_line: bool,
        clock: Duration,
    ) -> CircuitPermit {
        if let Some(rate) = &mut self.rate {
            rate.take(clock);
        }
        // Deliveries come in the order in which they were due, and the next one of a line is due
        // when the one before it ends. So one that was created after all that is behind the backlog.
        let is_behind = !in_line && !self.is_backlog(created_at) && created_at > self.line_moved_at;
        self.drain = self.drain.filter(|_| !is_behind);
        if let Some((_, gcra)) = &mut self.drain {
            gcra.take(clock);
        }
        self.circuit.begin()
    }

    /// The attempt that was begun is not made.
    pub(super) fn put_off(&mut self, ticket: CircuitPermit) {
        self.circuit.abandon(ticket);
        if let Some(rate) = &mut self.rate {
            rate.give_back();
        }
        if let Some((_, gcra)) = &mut self.drain {
            gcra.give_back();
        }
    }

    /// Learns from the end of an attempt.
    pub(super) fn end(&mut self, destination: &Destination, ended: &LaneAttemptResult<'_>) {
        let (full, rules) = (destination.concurrency, &destination.lane);
        if let Some(policy) = &rules.circuit {
            let LaneAttemptResult { ticket, at, roll, .. } = *ended;
            let end = AttemptEnd {
                ticket,
                sign: HealthSignal::of(ended.outcome, ended.class),
                now: at,
                roll,
            };
            self.circuit.end(end, full, policy);
            self.set_pace(full);
        }
        if ended.outcome.failure().is_some_and(AttemptFailure::is_our_own) {
            return;
        }
        let is_config = is_destination_misconfigured(ended.outcome, ended.class);
        self.config_failures = if is_config { self.config_failures + 1 } else { 0 };
        let is_asked = should_pause_destination(ended.outcome, &destination.rules);
        let is_enough = rules.pause_after > 0 && self.config_failures >= rules.pause_after;
        if (is_asked || is_enough) && self.paused.is_none() {
            let last = last_words(ended);
            let is_said = matches!(ended.outcome, AttemptOutcome::Interpreted(_));
            let reason = if is_asked && is_said {
                // Who resumes it without mending anything meets the same message first again.
                let delivery = ended.delivery;
                format!(
                    "{last}; what it is owed waits until somebody has mended that, or cancelled the \
                     delivery {delivery} if only that one is at fault, and resumes it"
                )
            } else if is_asked {
                format!("{last}, and a rule of the destination says to pause then")
            } else {
                format!(
                    "{} attempts in a row say that the settings are wrong; at the last one {last}",
                    self.config_failures
                )
            };
            self.paused = Some(LanePause { at: ended.at, reason: Some(reason), automatic: true });
        }
    }
}

/// What the latest attempt came to, for whoever reads why the lane is paused.
fn last_words(ended: &LaneAttemptResult<'_>) -> String {
    let said = ended.detail.map(|detail| format!(": {detail}"));
    let said = said
        .filter(|_| matches!(ended.outcome, AttemptOutcome::Interpreted(_)))
        .unwrap_or_default();
    match (ended.outcome.status(), ended.outcome.failure()) {
        (Some(status), _) => format!("it answered {status}{said}"),
        (None, Some(failure)) => format!("it failed with `{}`{said}", failure.as_str()),
        (None, None) => format!("it failed{said}"),
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::{
        delivery::retry::{FailureScope, SendOutcome, classify},
        destination::DestinationSpec,
        ids::DestinationId,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const USUAL: usize = 128;

    fn destination(more: &str) -> Destination {
        let text =
            format!(r#"{{"name":"crm","url":"https://crm.example/","concurrency":8{more}}}"#);
        let spec: DestinationSpec = serde_json::from_str(&text).unwrap();
        spec.build(DestinationId::new(NOW, 1), &|_| None).unwrap()
    }

    fn gate(destination: &Destination) -> LaneGate {
        LaneGate::new(SavedLaneState::default(), &destination.lane, NOW)
    }

    fn answer(gate: &mut LaneGate, destination: &Destination, status: u16) {
        let outcome = AttemptOutcome::Answered { status, retry_after: None };
        let class = classify(&outcome, &destination.rules);
        let ticket = gate.begin(NOW, false, Duration::ZERO);
        let ended = LaneAttemptResult {
            ticket,
            delivery: DeliveryId::new(NOW, 7),
            outcome: &outcome,
            class,
            detail: None,
            at: NOW,
            roll: 0.5,
        };
        gate.end(destination, &ended);
    }

    #[test]
    fn the_reason_names_the_message_that_stopped_its_sender() {
        let destination = destination("");
        let mut gate = gate(&destination);
        let stops = SendOutcome {
            affects: FailureScope::StopsAll,
            ..SendOutcome::of(Some(FailureClass::Config))
        };
        let delivery = DeliveryId::new(NOW, 7);
        let ended = LaneAttemptResult {
            ticket: gate.begin(NOW, false, Duration::ZERO),
            delivery,
            outcome: &AttemptOutcome::Interpreted(SendOutcome { status: Some(401), ..stops }),
            class: Some(FailureClass::Config),
            detail: Some("190: the token expired"),
            at: NOW,
            roll: 0.5,
        };
        gate.end(&destination, &ended);

        let expected = format!(
            "it answered 401: 190: the token expired; what it is owed waits until somebody has \
             mended that, or cancelled the delivery {delivery} if only that one is at fault, and \
             resumes it"
        );
        assert_eq!(gate.paused.unwrap().reason.unwrap(), expected);
    }

    #[test]
    fn a_rule_pauses_at_the_first_answer_it_names() {
        let destination = destination(r#","rules":[{"status":"410","then":"pause"}]"#);
        let mut gate = gate(&destination);
        answer(&mut gate, &destination, 500);
        assert!(gate.paused.is_none());
        answer(&mut gate, &destination, 410);

        let reason = gate.paused.unwrap().reason.unwrap();
        assert_eq!(reason, "it answered 410, and a rule of the destination says to pause then");
    }

    #[test]
    fn only_config_failures_in_a_row_pause() {
        let destination = destination(r#","pause_after_config_failures":3"#);
        let mut gate = gate(&destination);
        for status in [404, 404, 200, 401, 500, 403, 410] {
            answer(&mut gate, &destination, status);
            assert_eq!(gate.paused, None, "after {status}");
        }
        answer(&mut gate, &destination, 404);
        let pause = gate.paused.clone().unwrap();
        assert!(pause.automatic && pause.reason.unwrap().ends_with("it answered 404"));
        assert!(gate.is_shut() && gate.is_narrow());
        // Whoever resumes it has mended something.
        gate.resume(None);
        answer(&mut gate, &destination, 404);
        assert_eq!(gate.paused, None);
    }

    #[test]
    fn what_waits_in_memory_is_what_can_be_sent_soon() {
        let cases = [("", USUAL), (r#","rate":"50/s""#, 50), (r#","rate":"6/m""#, 1)];
        for (more, expected) in cases {
            let destination = destination(more);
            assert_eq!(gate(&destination).queue_max(USUAL, 8), expected, "case: {more}");
        }
        let destination = destination(r#","circuit":{"failures":1}"#);
        let mut gate = gate(&destination);
        answer(&mut gate, &destination, 500);
        assert_eq!(gate.queue_max(USUAL, 8), 0);
        gate.circuit.tick(NOW + Duration::from_secs(60));
        assert_eq!(gate.queue_max(USUAL, 8), 1);
        answer(&mut gate, &destination, 200);
        assert_eq!(gate.queue_max(USUAL, 8), 2);
    }

    #[test]
    fn a_drain_ends_with_the_first_that_came_after_it() {
        let destination = destination("");
        let mut gate = gate(&destination);
        gate.resume(Some(BacklogDrain { rate: "1/s".parse().unwrap(), until: NOW }));
        gate.begin(NOW, false, Duration::ZERO);
        assert_eq!(
            gate.may_start(1, 8, Duration::ZERO),
            StartPermission::At(Duration::from_secs(1))
        );
        gate.begin(NOW + Duration::from_millis(1), false, Duration::from_secs(1));
        assert_eq!(gate.drain(), None);
        assert_eq!(gate.may_start(2, 8, Duration::from_secs(1)), StartPermission::Now);
    }

    #[test]
    fn a_drain_lasts_as_long_as_its_lines() {
        let (later, latest) = (NOW + Duration::from_millis(5), NOW + Duration::from_millis(9));
        let mut gate = gate(&destination(""));
        gate.resume(Some(BacklogDrain { rate: "1/s".parse().unwrap(), until: NOW }));
        gate.begin(later, true, Duration::ZERO);
        assert!(gate.drain().is_some(), "the first of a line runs");
        gate.move_line(later);
        gate.begin(later, false, Duration::ZERO);
        assert!(gate.drain().is_some(), "the next of the line is due before it");
        gate.begin(latest, false, Duration::ZERO);
        assert_eq!(gate.drain(), None);
    }

    #[test]
    fn what_is_put_off_takes_no_turn_and_says_nothing_about_the_destination() {
        let destination = destination(r#","rate":"1/s","circuit":{"failures":1}"#);
        let mut gate = gate(&destination);
        let ticket = gate.begin(NOW, false, Duration::ZERO);
        gate.put_off(ticket);
        assert_eq!(gate.may_start(0, 8, Duration::ZERO), StartPermission::Now);
        // The one that was to find out whether it is back makes way for another.
        answer(&mut gate, &destination, 500);
        gate.circuit.tick(NOW + Duration::from_secs(60));
        let (soon, later) = (Duration::from_secs(5), Duration::from_secs(9));
        let ticket = gate.begin(NOW, false, soon);
        assert_eq!(gate.may_start(1, 8, later), StartPermission::NotNow);
        gate.put_off(ticket);
        assert_eq!(gate.may_start(0, 8, later), StartPermission::Now);
    }

    #[test]
    fn a_number_that_rests_keeps_nothing_in_memory() {
        let mut gate = gate(&destination(""));
        gate.rests = true;
        assert!(gate.is_shut() && gate.is_narrow());
        assert_eq!(gate.queue_max(USUAL, 8), 0);
    }

    #[test]
    fn a_rate_grows_on_the_ramp() {
        let destination = destination(r#","rate":"80/s burst 10","circuit":{"failures":1}"#);
        let mut gate = gate(&destination);
        answer(&mut gate, &destination, 500);
        gate.circuit.tick(NOW + Duration::from_secs(60));
        answer(&mut gate, &destination, 200);
        let long = Duration::from_secs(100);
        gate.begin(NOW, false, long);
        // One of eight may run, at an eighth of the rate.
        assert_eq!(
            gate.may_start(0, 8, long),
            StartPermission::At(long + Duration::from_millis(100))
        );
    }
}
