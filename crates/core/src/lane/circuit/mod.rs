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

mod spec;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::spec::{CircuitPolicy, CircuitSpec, CircuitSpecError, CustomCircuitSpec};
use crate::{
    delivery::{AttemptFailure, AttemptOutcome, FailureClass},
    time::Timestamp,
};

/// A step of the ramp lasts at least this long.
pub const STEP_MIN: Duration = Duration::from_secs(1);

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
    pub const fn is_holding(self) -> bool {
        match self {
            Self::Open { .. } | Self::HalfOpen { .. } => true,
            Self::Closed | Self::Ramp { .. } => false,
        }
    }
}

/// What an attempt says about whether the destination is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthSignal {
    /// It answered, if only to refuse.
    Alive,
    /// It did not, or said that it cannot.
    Down,
    /// Neither.
    Nothing,
}

impl HealthSignal {
    /// What the outcome of an attempt says, and how the destination's rules see it.
    pub fn from_outcome(outcome: &AttemptOutcome, class: Option<FailureClass>) -> Self {
        // Nothing was sent, or nobody waited for the answer.
        if outcome.failure().is_some_and(AttemptFailure::is_local) {
            return Self::Nothing;
        }
        match class {
            None | Some(FailureClass::Permanent | FailureClass::Config) => Self::Alive,
            Some(FailureClass::Transient | FailureClass::Ambiguous) => Self::Down,
            // It asks for peace, and gets that by a cool-down.
            Some(FailureClass::Throttled) => Self::Nothing,
        }
    }
}

/// The right to one attempt. It names the time in the circuit's life at which the attempt began: what
/// began before the circuit opened says nothing about how the destination is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPermit(u32);

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub struct AttemptEnd {
    /// The right by which it was made.
    pub permit: CircuitPermit,
    /// What it says.
    pub signal: HealthSignal,
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
    pub fn concurrency_limit(&self, full: u32) -> u32 {
        match self.phase {
            Phase::Closed { .. } => full,
            Phase::Open { .. } => 0,
            Phase::HalfOpen { is_probing, .. } => u32::from(!is_probing),
            Phase::Ramp { step, .. } => step.allowed.min(full),
        }
    }

    /// Whether an attempt may start beside `running` others.
    pub fn can_start(&self, running: u32, full: u32) -> bool {
        match self.phase {
            Phase::HalfOpen { is_probing, .. } => !is_probing,
            Phase::Closed { .. } | Phase::Open { .. } | Phase::Ramp { .. } => {
                running < self.concurrency_limit(full)
            }
        }
    }

    /// Counts an attempt that starts.
    pub fn start_attempt(&mut self) -> CircuitPermit {
        if let Phase::HalfOpen { is_probing, .. } = &mut self.phase {
            *is_probing = true;
        }
        CircuitPermit(self.epoch)
    }

    /// Lets one attempt through although it is open: a person wants to know. Such a probe does not make
    /// the wait longer if it fails.
    pub fn start_manual_probe(&mut self) -> CircuitPermit {
        if let Phase::Open { times, .. } = self.phase {
            let times = times.saturating_sub(1);
            self.set_phase(Phase::HalfOpen { times, is_probing: false });
        }
        self.start_attempt()
    }

    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn open(&mut self, policy: &CircuitPolicy, times: u32, now: Timestamp, roll: f64) {
        self.set_phase(Phase::Open { until: now + policy.open_for(times, roll), times });
    }

    /// Lets time pass: an open circuit becomes half-open.
    pub fn advance(&mut self, now: Timestamp) {
        if let Phase::Open { until, times } = self.phase
            && until <= now
        {
            self.set_phase(Phase::HalfOpen { times, is_probing: false });
        }
    }

    /// An attempt will never end.
    pub fn abandon(&mut self, permit: CircuitPermit) {
        if let Phase::HalfOpen { is_probing, .. } = &mut self.phase
            && permit.0 == self.epoch
        {
            *is_probing = false;
        }
    }

    /// Closes it, whatever it was: it was switched off.
    pub fn close(&mut self) {
        self.set_phase(Phase::Closed { failures: 0 });
    }

    /// Learns how an attempt ended. `full` is how many may run when all is well.
    pub fn finish_attempt(&mut self, end: AttemptEnd, full: u32, policy: &CircuitPolicy) {
        let AttemptEnd { permit, signal, now, roll } = end;
        if permit.0 != self.epoch {
            return;
        }
        match (&mut self.phase, signal) {
            (Phase::HalfOpen { .. }, HealthSignal::Nothing) => self.abandon(permit),
            (
                Phase::Closed { .. } | Phase::Ramp { .. } | Phase::Open { .. },
                HealthSignal::Nothing,
            )
            | (Phase::Open { .. }, HealthSignal::Alive | HealthSignal::Down) => {}
            (Phase::Closed { failures }, HealthSignal::Alive) => *failures = 0,
            (Phase::Closed { failures }, HealthSignal::Down) => {
                *failures += 1;
                if *failures >= policy.failures {
                    self.open(policy, 1, now, roll);
                }
            }
            (Phase::HalfOpen { times, .. }, HealthSignal::Alive) => {
                let times = *times;
                self.set_phase(Phase::Ramp { times, step: Step::first(now) });
            }
            (Phase::HalfOpen { times, .. }, HealthSignal::Down) => {
                let times = times.saturating_add(1);
                self.open(policy, times, now, roll);
            }
            (Phase::Ramp { step, .. }, HealthSignal::Alive) => {
                if step.up(now) >= full {
                    // Not a new epoch: those that began on the ramp count on.
                    self.phase = Phase::Closed { failures: 0 };
                }
            }
            (Phase::Ramp { step, times }, HealthSignal::Down) => {
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
