//! A circuit: leaves a destination alone that fails again and again, and comes back gently.
//!
//! ```text
//!            failures in a row                    time is up
//!   closed ───────────────────► open ──────────────────────────► half-open
//!      ▲                         ▲ ▲                              │     │
//!      │                         │ └────── the probe fails ───────┘     │
//!      │   all may run again     │  failures in a row                   │ it is answered
//!      └──────────────────────── ramp ◄─────────────────────────────────┘
//! ```
//!
//! - **Open** holds what waits and spends no attempts. How long doubles each time it opens again.
//! - **Half-open** lets exactly one attempt through.
//! - The **ramp** lets one run, then two, then four: the next step needs as many successes as may run
//!   at once, and [`STEP_MIN`] of time. A destination that has just come back is not run over.
//!
//! Only failures that say that nobody is there count: a refusal is an answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    delivery::{Class, Failure, Outcome, judge::classify},
    time::{Span, Timestamp},
};

/// A step of the ramp lasts at least this long.
pub const STEP_MIN: Duration = Duration::from_secs(1);
/// The share by which the time of an open circuit may differ, so that many do not come back at once.
const JITTER: f64 = 0.1;

/// A circuit as it is written: the word `off`, or own numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CircuitSpec {
    /// `off`.
    Word(String),
    /// Own numbers.
    Own(OwnCircuit),
}

/// Own numbers for a circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnCircuit {
    /// So many failures in a row open it, 1 to 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// For how long it opens the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_for: Option<Span>,
    /// The longest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open: Option<Span>,
}

impl Default for CircuitSpec {
    fn default() -> Self {
        Self::Own(OwnCircuit::default())
    }
}

/// Numbers that make no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("circuit: {0}")]
pub struct InvalidCircuit(&'static str);

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPolicy {
    failures: u32,
    open_for: Duration,
    open_max: Duration,
}

impl CircuitSpec {
    /// The policy; `None` for `off`.
    pub fn policy(&self) -> Result<Option<CircuitPolicy>, InvalidCircuit> {
        let own = match self {
            Self::Word(word) if word == "off" => return Ok(None),
            Self::Word(_) => {
                return Err(InvalidCircuit("write \"off\", or { failures = 20, … }"));
            }
            Self::Own(own) => own,
        };
        let failures = own.failures.unwrap_or(20);
        if !(1..=10_000).contains(&failures) {
            return Err(InvalidCircuit("failures must be between 1 and 10000"));
        }
        let open_for = own.open_for.map_or(Duration::from_secs(10), |span| span.0);
        let open_max =
            own.max_open.map_or_else(|| open_for.max(Duration::from_secs(300)), |span| span.0);
        if open_for < Duration::from_millis(100) || open_max > Duration::from_secs(86_400) {
            return Err(InvalidCircuit("open_for is at least 100ms and max_open at most 24h"));
        }
        if open_max < open_for {
            return Err(InvalidCircuit("max_open must not be shorter than open_for"));
        }
        Ok(Some(CircuitPolicy { failures, open_for, open_max }))
    }
}

impl CircuitPolicy {
    /// How long it stays open when it opens for the `times`-th time in a row.
    fn open_for(&self, times: u32, roll: f64) -> Duration {
        let doubled = self.open_for.saturating_mul(1 << times.saturating_sub(1).min(20));
        doubled.min(self.open_max).mul_f64(1.0 + JITTER * (2.0 * roll - 1.0))
    }
}

/// What is kept of a circuit over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CircuitState {
    /// All is well.
    #[default]
    Closed,
    /// Nothing is tried until then.
    Open {
        /// Until when.
        until: Timestamp,
        /// How often it has opened in a row.
        times: u32,
    },
    /// One attempt is let through.
    HalfOpen {
        /// How often it has opened in a row.
        times: u32,
    },
    /// More and more are let through.
    Ramp {
        /// How often it had opened in a row.
        times: u32,
    },
}

impl CircuitState {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half_open",
            Self::Ramp { .. } => "ramp",
        }
    }

    /// Whether it keeps deliveries from being tried.
    pub const fn holds(self) -> bool {
        match self {
            Self::Open { .. } | Self::HalfOpen { .. } => true,
            Self::Closed | Self::Ramp { .. } => false,
        }
    }
}

/// What an attempt says about whether the destination is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It answered, if only to refuse.
    Alive,
    /// It did not, or said that it cannot.
    Down,
    /// Neither.
    Nothing,
}

impl Sign {
    /// What the outcome of an attempt says.
    pub fn of(outcome: &Outcome) -> Self {
        if *outcome == Outcome::Failed(Failure::Interrupted) {
            return Self::Nothing;
        }
        match classify(outcome) {
            None | Some(Class::Permanent | Class::Config) => Self::Alive,
            Some(Class::Transient | Class::Ambiguous) => Self::Down,
            // It asks for peace, and gets that by a cool-down.
            Some(Class::Throttled) => Self::Nothing,
        }
    }
}

/// The right to one attempt. It names the time in the circuit's life at which the attempt began: what
/// began before the circuit opened says nothing about how the destination is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The right by which it was made.
    pub ticket: Ticket,
    /// What it says.
    pub sign: Sign,
    /// The time.
    pub now: Timestamp,
    /// A number in `0.0..1.0`.
    pub roll: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Timestamp, times: u32 },
    HalfOpen { times: u32, is_probing: bool },
    Ramp { times: u32, step: Step },
}

/// A step of the ramp.
#[derive(Clone, Copy, Debug)]
struct Step {
    allowed: u32,
    successes: u32,
    failures: u32,
    since: Timestamp,
}

impl Step {
    fn first(now: Timestamp) -> Self {
        Self { allowed: 1, successes: 0, failures: 0, since: now }
    }
}

/// The circuit of one destination.
#[derive(Clone, Copy, Debug)]
pub struct Circuit {
    phase: Phase,
    epoch: u32,
}

impl Circuit {
    /// Goes on where an earlier process was.
    pub fn new(kept: CircuitState, now: Timestamp) -> Self {
        let phase = match kept {
            CircuitState::Closed => Phase::Closed { failures: 0 },
            CircuitState::Open { until, times } => Phase::Open { until, times },
            CircuitState::HalfOpen { times } => Phase::HalfOpen { times, is_probing: false },
            CircuitState::Ramp { times } => Phase::Ramp { times, step: Step::first(now) },
        };
        Self { phase, epoch: 0 }
    }

    /// How it is.
    pub fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::Open { until, times } => CircuitState::Open { until, times },
            Phase::HalfOpen { times, .. } => CircuitState::HalfOpen { times },
            Phase::Ramp { times, .. } => CircuitState::Ramp { times },
        }
    }

    /// How many attempts of `full` may run at once. In a half-open circuit that is one, whatever still
    /// runs from before.
    pub fn allowed(&self, full: u32) -> u32 {
        match self.phase {
            Phase::Closed { .. } => full,
            Phase::Open { .. } => 0,
            Phase::HalfOpen { is_probing, .. } => u32::from(!is_probing),
            Phase::Ramp { step, .. } => step.allowed.min(full),
        }
    }

    /// Whether an attempt may start beside `running` others.
    pub fn lets_start(&self, running: u32, full: u32) -> bool {
        match self.phase {
            Phase::HalfOpen { is_probing, .. } => !is_probing,
            Phase::Closed { .. } | Phase::Open { .. } | Phase::Ramp { .. } => {
                running < self.allowed(full)
            }
        }
    }

    /// Counts an attempt that starts.
    pub fn begin(&mut self) -> Ticket {
        if let Phase::HalfOpen { is_probing, .. } = &mut self.phase {
            *is_probing = true;
        }
        Ticket(self.epoch)
    }

    /// Lets one attempt through although it is open: a person wants to know. Such a probe does not make
    /// the wait longer if it fails.
    pub fn begin_by_hand(&mut self) -> Ticket {
        if let Phase::Open { times, .. } = self.phase {
            let times = times.saturating_sub(1);
            self.go(Phase::HalfOpen { times, is_probing: false });
        }
        self.begin()
    }

    fn go(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn open(&mut self, policy: &CircuitPolicy, times: u32, now: Timestamp, roll: f64) {
        self.go(Phase::Open { until: now + policy.open_for(times, roll), times });
    }

    /// Lets time pass: an open circuit becomes half-open.
    pub fn tick(&mut self, now: Timestamp) {
        if let Phase::Open { until, times } = self.phase
            && until <= now
        {
            self.go(Phase::HalfOpen { times, is_probing: false });
        }
    }

    /// An attempt will never end.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Phase::HalfOpen { is_probing, .. } = &mut self.phase
            && ticket.0 == self.epoch
        {
            *is_probing = false;
        }
    }

    /// Closes it, whatever it was: it was switched off.
    pub fn close(&mut self) {
        self.go(Phase::Closed { failures: 0 });
    }

    /// Learns how an attempt ended. `full` is how many may run when all is well.
    pub fn end(&mut self, end: End, full: u32, policy: &CircuitPolicy) {
        let End { ticket, sign, now, roll } = end;
        if ticket.0 != self.epoch {
            return;
        }
        match (&mut self.phase, sign) {
            (Phase::HalfOpen { .. }, Sign::Nothing) => self.abandon(ticket),
            (Phase::Closed { .. } | Phase::Ramp { .. } | Phase::Open { .. }, Sign::Nothing)
            | (Phase::Open { .. }, Sign::Alive | Sign::Down) => {}
            (Phase::Closed { failures }, Sign::Alive) => *failures = 0,
            (Phase::Closed { failures }, Sign::Down) => {
                *failures += 1;
                if *failures >= policy.failures {
                    self.open(policy, 1, now, roll);
                }
            }
            (Phase::HalfOpen { times, .. }, Sign::Alive) => {
                let times = *times;
                self.go(Phase::Ramp { times, step: Step::first(now) });
            }
            (Phase::HalfOpen { times, .. }, Sign::Down) => {
                let times = times.saturating_add(1);
                self.open(policy, times, now, roll);
            }
            (Phase::Ramp { step, .. }, Sign::Alive) => {
                if step.up(now) >= full {
                    // Not a new epoch: those that began on the ramp count on.
                    self.phase = Phase::Closed { failures: 0 };
                }
            }
            (Phase::Ramp { step, times }, Sign::Down) => {
                step.failures += 1;
                // A whole step of failures is the same answer as a failed probe.
                if step.failures >= step.allowed.min(policy.failures) {
                    let times = times.saturating_add(1);
                    self.open(policy, times, now, roll);
                }
            }
        }
    }
}

impl Step {
    /// Counts a success; says how many may run now.
    fn up(&mut self, now: Timestamp) -> u32 {
        self.failures = 0;
        self.successes += 1;
        if self.successes >= self.allowed && now.since(self.since) >= STEP_MIN {
            let allowed = self.allowed.saturating_mul(2);
            *self = Self { allowed, ..Self::first(now) };
        }
        self.allowed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const FULL: u32 = 8;

    fn policy(failures: u32) -> CircuitPolicy {
        let (open_for, open_max) = (Duration::from_secs(10), Duration::from_secs(60));
        CircuitPolicy { failures, open_for, open_max }
    }

    fn run(circuit: &mut Circuit, sign: Sign, now: Timestamp) {
        let ticket = circuit.begin();
        end(circuit, ticket, sign, now);
    }

    fn end(circuit: &mut Circuit, ticket: Ticket, sign: Sign, now: Timestamp) {
        circuit.end(End { ticket, sign, now, roll: 0.5 }, FULL, &policy(3));
    }

    fn opened() -> Circuit {
        let mut circuit = Circuit::new(CircuitState::Closed, NOW);
        (0..3).for_each(|_| run(&mut circuit, Sign::Down, NOW));
        circuit
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let mut circuit = Circuit::new(CircuitState::Closed, NOW);
        for sign in [Sign::Down, Sign::Down, Sign::Alive, Sign::Down, Sign::Nothing, Sign::Down] {
            run(&mut circuit, sign, NOW);
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
        run(&mut circuit, Sign::Down, NOW);
        assert_eq!(circuit.state(), CircuitState::Open { until: NOW + secs(10), times: 1 });
        assert!(!circuit.lets_start(0, FULL));
    }

    #[test]
    fn one_probe_decides_and_only_one() {
        let mut circuit = opened();
        circuit.tick(NOW + secs(9));
        assert!(!circuit.lets_start(0, FULL));
        let later = NOW + secs(10);
        circuit.tick(later);
        // What still runs from before is not in its way.
        assert!(circuit.lets_start(5, FULL));
        let probe = circuit.begin();
        assert!(!circuit.lets_start(0, FULL));
        end(&mut circuit, probe, Sign::Down, later);
        assert_eq!(circuit.state(), CircuitState::Open { until: later + secs(20), times: 2 });
    }

    #[test]
    fn the_wait_doubles_up_to_its_bound_with_jitter() {
        let waits = [(1, 10), (2, 20), (3, 40), (4, 60), (50, 60)];
        for (times, expected) in waits {
            assert_eq!(policy(3).open_for(times, 0.5), secs(expected), "case: {times}");
        }
        assert_eq!(policy(3).open_for(1, 0.0), secs(9));
        assert!(policy(3).open_for(1, 0.999) < secs(11));
    }

    #[test]
    fn what_began_before_says_nothing_after() {
        let mut circuit = Circuit::new(CircuitState::Closed, NOW);
        let early = circuit.begin();
        (0..3).for_each(|_| run(&mut circuit, Sign::Down, NOW));
        circuit.tick(NOW + secs(10));
        let probe = circuit.begin();
        for sign in [Sign::Alive, Sign::Down] {
            end(&mut circuit, early, sign, NOW);
            assert_eq!(circuit.state(), CircuitState::HalfOpen { times: 1 });
        }
        end(&mut circuit, probe, Sign::Alive, NOW);
        assert_eq!(circuit.state(), CircuitState::Ramp { times: 1 });
    }

    #[test]
    fn the_ramp_doubles_with_successes_and_time() {
        let mut circuit = opened();
        let mut now = NOW + secs(10);
        circuit.tick(now);
        run(&mut circuit, Sign::Alive, now);
        for (step, allowed) in [1, 2, 4].into_iter().enumerate() {
            // However many succeed at once, the step lasts.
            (0..20).for_each(|_| run(&mut circuit, Sign::Alive, now));
            assert_eq!(circuit.allowed(FULL), allowed, "step {step}");
            assert!(!circuit.lets_start(allowed, FULL));
            now = now + STEP_MIN;
            run(&mut circuit, Sign::Alive, now);
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
    }

    #[test]
    fn a_ramp_that_fails_opens_again_for_longer() {
        let mut circuit = opened();
        let later = NOW + secs(10);
        circuit.tick(later);
        run(&mut circuit, Sign::Alive, later);
        run(&mut circuit, Sign::Down, later);
        assert_eq!(circuit.state(), CircuitState::Open { until: later + secs(20), times: 2 });
    }

    #[test]
    fn a_probe_by_hand_does_not_make_the_wait_longer() {
        let mut circuit = opened();
        let probe = circuit.begin_by_hand();
        end(&mut circuit, probe, Sign::Down, NOW);
        assert_eq!(circuit.state(), CircuitState::Open { until: NOW + secs(10), times: 1 });
        let probe = circuit.begin_by_hand();
        end(&mut circuit, probe, Sign::Alive, NOW);
        assert_eq!(circuit.state().as_str(), "ramp");
    }

    #[test]
    fn an_interrupted_probe_is_made_again() {
        let mut circuit = Circuit::new(CircuitState::HalfOpen { times: 1 }, NOW);
        run(&mut circuit, Sign::Nothing, NOW);
        assert!(circuit.lets_start(0, FULL));
    }

    #[test]
    fn a_refusal_is_an_answer_and_a_wish_for_peace_is_neither() {
        let answered = |status| Outcome::Answered { status, retry_after: None };
        let cases = [
            (answered(200), Sign::Alive),
            (answered(400), Sign::Alive),
            (answered(404), Sign::Alive),
            (answered(500), Sign::Down),
            (answered(429), Sign::Nothing),
            (Outcome::Failed(Failure::Timeout), Sign::Down),
            (Outcome::Failed(Failure::Refused), Sign::Down),
            (Outcome::Failed(Failure::Blocked), Sign::Alive),
            (Outcome::Failed(Failure::Interrupted), Sign::Nothing),
        ];
        for (outcome, sign) in cases {
            assert_eq!(Sign::of(&outcome), sign, "case: {outcome:?}");
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let cases = [
            (r#""off""#, true),
            (r#""on""#, false),
            ("{}", true),
            (r#"{"failures":0}"#, false),
            (r#"{"failures":1,"open_for":"100ms","max_open":"1s"}"#, true),
            (r#"{"open_for":"10m"}"#, true),
            (r#"{"open_for":"2m","max_open":"1m"}"#, false),
            (r#"{"open_for":"1ms"}"#, false),
            (r#"{"max_open":"2d"}"#, false),
        ];
        for (text, is_fine) in cases {
            let spec: CircuitSpec = serde_json::from_str(text).unwrap();
            assert_eq!(spec.policy().is_ok(), is_fine, "case: {text}");
        }
        assert_eq!(CircuitSpec::Word("off".to_owned()).policy(), Ok(None));
    }

    proptest! {
        /// Whatever happens: an open circuit starts nothing, a half-open one has one attempt at a time,
        /// and the ramp only lets through what its step allows.
        #[test]
        fn it_never_lets_through_more_than_it_says(steps in prop::collection::vec((0..4_u8, 0..3_u64), 1..200)) {
            let mut circuit = Circuit::new(CircuitState::Closed, NOW);
            let mut now = NOW;
            let mut running: Vec<Ticket> = Vec::new();
            for (what, pause) in steps {
                now = now + secs(pause * 4);
                circuit.tick(now);
                let many = u32::try_from(running.len()).unwrap();
                if what == 0 || running.is_empty() {
                    if circuit.lets_start(many, FULL) {
                        let state = circuit.state();
                        prop_assert_ne!(state.as_str(), "open");
                        if !matches!(state, CircuitState::HalfOpen { .. }) {
                            prop_assert!(many < circuit.allowed(FULL));
                        }
                        let ticket = circuit.begin();
                        if state.as_str() == "half_open" {
                            prop_assert!(!running.contains(&ticket), "two probes");
                        }
                        running.push(ticket);
                    }
                } else {
                    let sign = [Sign::Alive, Sign::Down, Sign::Nothing][usize::from(what - 1)];
                    end(&mut circuit, running.remove(0), sign, now);
                }
            }
        }
    }
}
