//! Circuit breaker: stops calling a destination that keeps failing and comes back gradually.
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
//! - **Open** holds all deliveries and makes no attempts. The time doubles each time it reopens.
//! - **Half-open** allows exactly one attempt, the probe.
//! - **Ramp** allows one concurrent attempt, then two, then four: each step needs as many successes as
//!   may run at once, and at least [`STEP_MIN`]. A recovering destination is not overloaded.
//!
//! Only failures that mean that the destination is down count: a refusal is an answer.

#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use surehook_types::{
    object,
    time::{HumanDuration, Timestamp},
};

use crate::{AttemptFailure, AttemptOutcome, FailureClass};

/// Minimum duration of a ramp step.
pub const STEP_MIN: Duration = Duration::from_secs(1);

/// Jitter of the open time, so that many circuits do not close at once.
const JITTER: f64 = 0.1;

/// The forms of a circuit in the settings.
const EXPECTED: &str =
    "\"off\", or a table such as { failures = 20, open_for = \"10s\", max_open = \"5m\" }";

/// Circuit settings of a destination: `off`, or custom values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum CircuitSpec {
    /// `off`.
    Word(#[schemars(regex(pattern = "^off$"))] String),
    /// Custom values.
    Custom(CustomCircuitSpec),
}

impl From<String> for CircuitSpec {
    fn from(word: String) -> Self {
        Self::Word(word)
    }
}

impl From<CustomCircuitSpec> for CircuitSpec {
    fn from(custom: CustomCircuitSpec) -> Self {
        Self::Custom(custom)
    }
}

impl<'de> Deserialize<'de> for CircuitSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object::or_text::<D, Self, CustomCircuitSpec>(from, EXPECTED)
    }
}

/// Custom values of a circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomCircuitSpec {
    /// Number of consecutive failures that open it, 1 to 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub failures: Option<u32>,
    /// How long it stays open the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_for: Option<HumanDuration>,
    /// Longest time it stays open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open: Option<HumanDuration>,
}

impl Default for CircuitSpec {
    fn default() -> Self {
        Self::Custom(CustomCircuitSpec::default())
    }
}

/// Why the settings of a circuit are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("circuit: {0}")]
pub struct CircuitSpecError(&'static str);

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPolicy {
    failures: u32,
    open_for: Duration,
    open_max: Duration,
}

impl CircuitSpec {
    /// Validates the settings; `None` for `off`.
    pub fn build(&self) -> Result<Option<CircuitPolicy>, CircuitSpecError> {
        let custom = match self {
            Self::Word(word) if word == "off" => return Ok(None),
            Self::Word(_) => {
                return Err(CircuitSpecError("write \"off\", or { failures = 20, … }"));
            }
            Self::Custom(custom) => custom,
        };
        let failures = custom.failures.unwrap_or(20);
        if !(1..=10_000).contains(&failures) {
            return Err(CircuitSpecError("failures must be between 1 and 10000"));
        }
        let open_for = custom.open_for.map_or(Duration::from_secs(10), |span| span.0);
        let open_max =
            custom.max_open.map_or_else(|| open_for.max(Duration::from_secs(300)), |span| span.0);
        if open_for < Duration::from_millis(100) || open_max > Duration::from_secs(86_400) {
            return Err(CircuitSpecError(
                "open_for must be at least 100ms and max_open at most 24h",
            ));
        }
        if open_max < open_for {
            return Err(CircuitSpecError("max_open must not be shorter than open_for"));
        }
        Ok(Some(CircuitPolicy { failures, open_for, open_max }))
    }
}

impl CircuitPolicy {
    /// How long it stays open after this many openings in a row.
    fn open_for(&self, openings: u32, roll: f64) -> Duration {
        let doubled = self.open_for.saturating_mul(1 << openings.saturating_sub(1).min(20));
        doubled.min(self.open_max).mul_f64(1.0 + JITTER * (2.0 * roll - 1.0))
    }
}

/// The state of a circuit that survives a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CircuitState {
    /// Attempts run as usual.
    #[default]
    Closed,
    /// No attempts until then.
    Open {
        /// End of the open time.
        until: Timestamp,
        /// How often it has opened in a row.
        openings: u32,
    },
    /// One attempt is allowed.
    HalfOpen {
        /// How often it has opened in a row.
        openings: u32,
    },
    /// Concurrency grows step by step.
    Ramp {
        /// How often it has opened in a row.
        openings: u32,
    },
}

impl CircuitState {
    /// Name in the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half_open",
            Self::Ramp { .. } => "ramp",
        }
    }

    /// Whether it holds deliveries back.
    pub const fn is_holding(self) -> bool {
        match self {
            Self::Open { .. } | Self::HalfOpen { .. } => true,
            Self::Closed | Self::Ramp { .. } => false,
        }
    }
}

/// What an attempt says about the health of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthSignal {
    /// It answered, even if it refused.
    Alive,
    /// It did not answer, or answered that it is unavailable.
    Down,
    /// No information.
    Unknown,
}

impl HealthSignal {
    /// The signal of an attempt with this outcome and class.
    pub fn from_outcome(outcome: &AttemptOutcome, class: Option<FailureClass>) -> Self {
        // Nothing was sent, or the answer was not awaited.
        if outcome.failure().is_some_and(AttemptFailure::is_local) {
            return Self::Unknown;
        }
        match class {
            None | Some(FailureClass::Permanent | FailureClass::Config) => Self::Alive,
            Some(FailureClass::Transient | FailureClass::Ambiguous) => Self::Down,
            // Handled by the cool-down of the lane.
            Some(FailureClass::Throttled) => Self::Unknown,
        }
    }
}

/// Permit for one attempt. It carries the epoch of the circuit: an attempt that started before the
/// circuit changed its phase says nothing about the destination now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPermit(u32);

/// The end of an attempt, for [`Circuit::finish_attempt`].
#[derive(Clone, Copy, Debug)]
pub struct AttemptEnd {
    /// What [`Circuit::start_attempt`] returned for it.
    pub permit: CircuitPermit,
    /// What it says about the destination.
    pub signal: HealthSignal,
    /// When it ended.
    pub now: Timestamp,
    /// Random number in `0.0..1.0` for the jitter.
    pub roll: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Timestamp, openings: u32 },
    HalfOpen { openings: u32, is_probing: bool },
    Ramp { openings: u32, step: RampStep },
}

/// A step of the ramp.
#[derive(Clone, Copy, Debug)]
struct RampStep {
    allowed: u32,
    successes: u32,
    failures: u32,
    since: Timestamp,
}

impl RampStep {
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
    /// Continues from the saved state.
    pub fn new(saved: CircuitState, now: Timestamp) -> Self {
        let phase = match saved {
            CircuitState::Closed => Phase::Closed { failures: 0 },
            CircuitState::Open { until, openings } => Phase::Open { until, openings },
            CircuitState::HalfOpen { openings } => Phase::HalfOpen { openings, is_probing: false },
            CircuitState::Ramp { openings } => Phase::Ramp { openings, step: RampStep::first(now) },
        };
        Self { phase, epoch: 0 }
    }

    /// The state to save.
    pub fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::Open { until, openings } => CircuitState::Open { until, openings },
            Phase::HalfOpen { openings, .. } => CircuitState::HalfOpen { openings },
            Phase::Ramp { openings, .. } => CircuitState::Ramp { openings },
        }
    }

    /// How many attempts may run at once, of `full` in a closed circuit. In a half-open circuit that is
    /// one, regardless of attempts still running from before.
    pub fn concurrency_limit(&self, full: u32) -> u32 {
        match self.phase {
            Phase::Closed { .. } => full,
            Phase::Open { .. } => 0,
            Phase::HalfOpen { is_probing, .. } => u32::from(!is_probing),
            Phase::Ramp { step, .. } => step.allowed.min(full),
        }
    }

    /// Whether an attempt may start while `running` others run.
    pub fn can_start(&self, running: u32, full: u32) -> bool {
        match self.phase {
            Phase::HalfOpen { is_probing, .. } => !is_probing,
            Phase::Closed { .. } | Phase::Open { .. } | Phase::Ramp { .. } => {
                running < self.concurrency_limit(full)
            }
        }
    }

    /// Registers an attempt that starts.
    pub fn start_attempt(&mut self) -> CircuitPermit {
        if let Phase::HalfOpen { is_probing, .. } = &mut self.phase {
            *is_probing = true;
        }
        CircuitPermit(self.epoch)
    }

    /// Allows one attempt although the circuit is open, on request of a user. If this probe fails, the
    /// open time does not grow.
    pub fn start_manual_probe(&mut self) -> CircuitPermit {
        if let Phase::Open { openings, .. } = self.phase {
            let openings = openings.saturating_sub(1);
            self.set_phase(Phase::HalfOpen { openings, is_probing: false });
        }
        self.start_attempt()
    }

    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn open(&mut self, policy: &CircuitPolicy, openings: u32, now: Timestamp, roll: f64) {
        self.set_phase(Phase::Open { until: now + policy.open_for(openings, roll), openings });
    }

    /// Turns an open circuit half-open once its time is over.
    pub fn advance(&mut self, now: Timestamp) {
        if let Phase::Open { until, openings } = self.phase
            && until <= now
        {
            self.set_phase(Phase::HalfOpen { openings, is_probing: false });
        }
    }

    /// The wall clock went back by this much: the open time is as far from over as before.
    pub fn shorten_waits(&mut self, step: Duration) {
        match &mut self.phase {
            Phase::Open { until, .. } => *until = *until - step,
            Phase::Ramp { step: ramp, .. } => ramp.since = ramp.since - step,
            Phase::Closed { .. } | Phase::HalfOpen { .. } => {}
        }
    }

    /// Shortens an open time that is longer than the policy allows: it was computed by a clock that
    /// was ahead, or by another policy.
    pub fn limit_open_time(&mut self, policy: &CircuitPolicy, now: Timestamp) {
        if let Phase::Open { until, openings } = &mut self.phase {
            *until = (*until).min(now + policy.open_for(*openings, 1.0));
        }
    }

    /// Ends the open time, on request of a user: the next attempt is the probe.
    pub fn end_open_time(&mut self) {
        if let Phase::Open { openings, .. } = self.phase {
            self.set_phase(Phase::HalfOpen { openings, is_probing: false });
        }
    }

    /// The attempt will never finish.
    pub fn abandon(&mut self, permit: CircuitPermit) {
        if let Phase::HalfOpen { is_probing, .. } = &mut self.phase
            && permit.0 == self.epoch
        {
            *is_probing = false;
        }
    }

    /// Closes the circuit because it was switched off.
    pub fn close(&mut self) {
        self.set_phase(Phase::Closed { failures: 0 });
    }

    /// Applies the end of an attempt. `full` is the concurrency of a closed circuit.
    pub fn finish_attempt(&mut self, end: AttemptEnd, full: u32, policy: &CircuitPolicy) {
        let AttemptEnd { permit, signal, now, roll } = end;
        if permit.0 != self.epoch {
            return;
        }
        match (&mut self.phase, signal) {
            (Phase::HalfOpen { .. }, HealthSignal::Unknown) => self.abandon(permit),
            (
                Phase::Closed { .. } | Phase::Ramp { .. } | Phase::Open { .. },
                HealthSignal::Unknown,
            )
            | (Phase::Open { .. }, HealthSignal::Alive | HealthSignal::Down) => {}
            (Phase::Closed { failures }, HealthSignal::Alive) => *failures = 0,
            (Phase::Closed { failures }, HealthSignal::Down) => {
                *failures += 1;
                if *failures >= policy.failures {
                    self.open(policy, 1, now, roll);
                }
            }
            (Phase::HalfOpen { openings, .. }, HealthSignal::Alive) => {
                let openings = *openings;
                self.set_phase(Phase::Ramp { openings, step: RampStep::first(now) });
            }
            (Phase::HalfOpen { openings, .. }, HealthSignal::Down) => {
                let openings = openings.saturating_add(1);
                self.open(policy, openings, now, roll);
            }
            (Phase::Ramp { step, .. }, HealthSignal::Alive) => {
                if step.record_success(now) >= full {
                    // Keep the epoch: attempts that started on the ramp still count.
                    self.phase = Phase::Closed { failures: 0 };
                }
            }
            (Phase::Ramp { step, openings }, HealthSignal::Down) => {
                step.failures += 1;
                // A whole step of failures counts like a failed probe.
                if step.failures >= step.allowed.min(policy.failures) {
                    let openings = openings.saturating_add(1);
                    self.open(policy, openings, now, roll);
                }
            }
        }
    }
}

impl RampStep {
    /// Counts a success; returns how many attempts may run now.
    fn record_success(&mut self, now: Timestamp) -> u32 {
        self.failures = 0;
        self.successes += 1;
        if self.successes >= self.allowed && now.since(self.since) >= STEP_MIN {
            let allowed = self.allowed.saturating_mul(2);
            *self = Self { allowed, ..Self::first(now) };
        }
        self.allowed
    }
}
