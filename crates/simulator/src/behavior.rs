//! How a destination behaves: what it answers to an attempt, and after which time.
//!
//! [`ModelledBehavior`] is built from a description ([`BehaviorSpec`]). Anything else that knows an
//! answer, such as a recorded history, implements [`DestinationBehavior`].

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use surehook_retry::{
    AttemptFailure, AttemptOutcome, RetryAfter,
    rate::{Gcra, Rate},
};
use surehook_types::{rng::Rng, time::HumanDuration};

use crate::latency::LatencySpec;

/// A refused connection is known after a round trip.
const NO_CONNECTION_TOOK: Duration = Duration::from_millis(1);

/// An attempt as the destination sees it.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRequest {
    /// Time since the start of the simulation.
    pub at: Duration,
    /// The number of the delivery, in order of arrival.
    pub delivery: u64,
    /// Whose event it is; also its ordering key.
    pub customer: u32,
    /// From 1.
    pub attempt: u32,
    /// An attempt that takes longer fails.
    pub timeout: Duration,
}

/// The response to a simulated attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedResponse {
    pub outcome: AttemptOutcome,
    pub took: Duration,
    /// Whether the destination may have processed the event although the attempt failed.
    pub may_have_arrived: bool,
}

/// A destination in a simulation. Attempts come in the order of their start.
pub trait DestinationBehavior: fmt::Debug {
    fn respond(&mut self, request: &SimulatedRequest, rng: &dyn Rng) -> SimulatedResponse;

    /// Until when nothing is attempted, if someone holds the deliveries at this time.
    fn held_until(&self, _now: Duration) -> Option<Duration> {
        None
    }

    /// When someone resumes the destination that was paused automatically; `None` for never.
    fn resumed_at(&self, _paused_at: Duration) -> Option<Duration> {
        None
    }
}

/// A modelled destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BehaviorSpec {
    /// Share of the attempts that fail, of those that do not time out.
    pub failure_rate: f64,
    /// How they fail.
    pub failure: FailureSpec,
    /// Share of the attempts that are never answered.
    pub timeout_rate: f64,
    pub latency: LatencySpec,
    pub capacity: Option<CapacitySpec>,
    /// Number of customers whose events always fail.
    pub poisoned_customers: u32,
    /// How the events of poisoned customers fail.
    pub poison: FailureSpec,
    /// Times at which it behaves differently.
    pub incidents: Vec<IncidentSpec>,
}

/// How an attempt fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FailureSpec {
    /// With this HTTP status.
    Status(u16),
    /// Without an answer, such as `refused` or `timeout`.
    Transport(AttemptFailure),
    Answer(AnswerSpec),
}

/// An HTTP answer with `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerSpec {
    pub status: u16,
    pub retry_after: HumanDuration,
}

impl Default for FailureSpec {
    fn default() -> Self {
        Self::Status(500)
    }
}

/// How many attempts a destination accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacitySpec {
    pub rate: Rate,
    /// Status of the response to the other attempts.
    #[serde(default = "default_excess_status")]
    pub status: u16,
    #[serde(default)]
    pub retry_after: Option<HumanDuration>,
}

fn default_excess_status() -> u16 {
    429
}

/// A time at which a destination behaves differently.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IncidentSpec {
    /// Time since the start of the simulation.
    pub from: Option<HumanDuration>,
    pub lasts: Option<HumanDuration>,
    /// Time from the start of one occurrence to the next; none for an incident that occurs once.
    pub every: Option<HumanDuration>,
    /// Number of occurrences, with `every`.
    pub times: Option<u32>,
    /// After its end the usual behavior returns gradually within this time.
    pub recovery: Option<HumanDuration>,
    pub failure_rate: Option<f64>,
    pub failure: Option<FailureSpec>,
    pub timeout_rate: Option<f64>,
    pub latency: Option<LatencySpec>,
    pub capacity: Option<CapacitySpec>,
}

/// A time span of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub from: Duration,
    pub until: Duration,
}

impl TimeSpan {
    pub fn contains(&self, at: Duration) -> bool {
        self.from <= at && at < self.until
    }
}

/// More repetitions than this are not worth listing.
const REPETITIONS_MAX: u32 = 10_000;

impl IncidentSpec {
    fn from(&self) -> Duration {
        self.from.map_or(Duration::ZERO, |from| from.0)
    }

    fn lasts(&self) -> Duration {
        self.lasts.map_or(Duration::ZERO, |lasts| lasts.0)
    }

    fn recovery(&self) -> Duration {
        self.recovery.map_or(Duration::ZERO, |recovery| recovery.0)
    }

    fn repetitions(&self) -> u32 {
        let times = self.times.filter(|_| self.every.is_some()).unwrap_or(1);
        times.clamp(1, REPETITIONS_MAX)
    }

    /// When it happens, without the recovery.
    pub fn spans(&self) -> impl Iterator<Item = TimeSpan> + '_ {
        let every = self.every.map_or(Duration::ZERO, |every| every.0);
        (0..self.repetitions()).map(move |time| {
            let from = self.from() + every.saturating_mul(time);
            TimeSpan { from, until: from + self.lasts() }
        })
    }

    /// How strong the incident is: 1 while it lasts, less while the destination recovers, 0 otherwise.
    fn strength(&self, at: Duration) -> f64 {
        let Some(since) = at.checked_sub(self.from()) else { return 0.0 };
        let every = self.every.map_or(Duration::MAX, |every| every.0);
        let repetition = since.as_nanos() / every.as_nanos().max(1);
        let repetition = u32::try_from(repetition).unwrap_or(u32::MAX);
        let repetition = repetition.min(self.repetitions() - 1);
        let since = since - every.checked_mul(repetition).unwrap_or_default();
        match since.checked_sub(self.lasts()) {
            None => 1.0,
            Some(recovering) if recovering < self.recovery() => {
                1.0 - recovering.as_secs_f64() / self.recovery().as_secs_f64()
            }
            Some(_) => 0.0,
        }
    }
}

/// Why a destination cannot be modelled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BehaviorSpecError {
    #[error("{0} must be between 0 and 1")]
    Share(&'static str),
    #[error("latency: {0}")]
    Latency(&'static str),
    #[error("HTTP status {0} does not exist; use 100 to 999")]
    Status(u16),
    #[error(
        "{0}; only an incident that repeats has `times`, and `every` must not be below `lasts`"
    )]
    Incident(&'static str),
}

impl FailureSpec {
    fn check(self) -> Result<(), BehaviorSpecError> {
        match self {
            Self::Status(status) | Self::Answer(AnswerSpec { status, .. })
                if !(100..=999).contains(&status) =>
            {
                Err(BehaviorSpecError::Status(status))
            }
            Self::Status(_) | Self::Answer(_) | Self::Transport(_) => Ok(()),
        }
    }

    fn respond(self, request: &SimulatedRequest, latency: Duration) -> SimulatedResponse {
        let (outcome, took) = match self {
            Self::Status(status) => {
                (AttemptOutcome::Answered { status, retry_after: None }, latency)
            }
            Self::Answer(AnswerSpec { status, retry_after }) => {
                let retry_after = Some(RetryAfter::Delay(retry_after.0));
                (AttemptOutcome::Answered { status, retry_after }, latency)
            }
            Self::Transport(AttemptFailure::Timeout) => {
                (AttemptOutcome::Failed(AttemptFailure::Timeout), request.timeout)
            }
            Self::Transport(AttemptFailure::Reset) => {
                (AttemptOutcome::Failed(AttemptFailure::Reset), latency)
            }
            Self::Transport(failure) => (AttemptOutcome::Failed(failure), NO_CONNECTION_TOOK),
        };
        let may_have_arrived =
            matches!(outcome.failure(), Some(AttemptFailure::Timeout | AttemptFailure::Reset));
        SimulatedResponse { outcome, took, may_have_arrived }
    }
}

fn check_share(name: &'static str, share: f64) -> Result<(), BehaviorSpecError> {
    let is_share = (0.0..=1.0).contains(&share);
    is_share.then_some(()).ok_or(BehaviorSpecError::Share(name))
}

impl BehaviorSpec {
    pub fn build(&self) -> Result<ModelledBehavior, BehaviorSpecError> {
        check_share("failure_rate", self.failure_rate)?;
        check_share("timeout_rate", self.timeout_rate)?;
        self.failure.check()?;
        self.poison.check()?;
        self.latency.check().map_err(BehaviorSpecError::Latency)?;
        for incident in &self.incidents {
            incident.check()?;
        }
        let limiter = |capacity: Option<CapacitySpec>| capacity.map(CapacityLimiter::new);
        Ok(ModelledBehavior {
            capacity: limiter(self.capacity),
            incident_capacities: self
                .incidents
                .iter()
                .map(|incident| limiter(incident.capacity))
                .collect(),
            spec: self.clone(),
        })
    }
}

impl IncidentSpec {
    fn check(&self) -> Result<(), BehaviorSpecError> {
        if self.from.is_none() || self.lasts.is_none() {
            return Err(BehaviorSpecError::Incident("an incident needs `from` and `lasts`"));
        }
        if self.every.is_some_and(|every| every.0 < self.lasts() || every.0.is_zero()) {
            return Err(BehaviorSpecError::Incident("`every` is too short"));
        }
        if self.every.is_none() && self.times.is_some() {
            return Err(BehaviorSpecError::Incident("`times` without `every`"));
        }
        check_share("failure_rate", self.failure_rate.unwrap_or_default())?;
        check_share("timeout_rate", self.timeout_rate.unwrap_or_default())?;
        self.failure.unwrap_or_default().check()?;
        self.latency.unwrap_or_default().check().map_err(BehaviorSpecError::Latency)
    }
}

/// Accepts as many attempts as the capacity allows.
#[derive(Clone, Debug)]
struct CapacityLimiter {
    spec: CapacitySpec,
    limiter: Gcra,
}

impl CapacityLimiter {
    fn new(spec: CapacitySpec) -> Self {
        Self { spec, limiter: Gcra::new(spec.rate) }
    }

    /// The answer to an attempt that is too much.
    fn refuse(&mut self, at: Duration) -> Option<AttemptOutcome> {
        if self.limiter.next_free(at) <= at {
            self.limiter.take(at);
            return None;
        }
        let CapacitySpec { status, retry_after, .. } = self.spec;
        let retry_after = retry_after.map(|span| RetryAfter::Delay(span.0));
        Some(AttemptOutcome::Answered { status, retry_after })
    }
}

/// A destination as a [`BehaviorSpec`] describes it.
#[derive(Clone, Debug)]
pub struct ModelledBehavior {
    spec: BehaviorSpec,
    capacity: Option<CapacityLimiter>,
    /// One for each incident.
    incident_capacities: Vec<Option<CapacityLimiter>>,
}

impl DestinationBehavior for ModelledBehavior {
    fn respond(&mut self, request: &SimulatedRequest, rng: &dyn Rng) -> SimulatedResponse {
        let Self { spec, capacity, incident_capacities } = self;
        // The last incident that is in force decides.
        let current = spec.incidents.iter().zip(incident_capacities).rev().find_map(
            |(incident, capacity)| {
                let strength = incident.strength(request.at);
                (strength > 0.0).then_some((incident, capacity, strength))
            },
        );
        let calm = IncidentSpec::default();
        let mut no_capacity = None;
        let (incident, incident_capacity, strength) =
            current.unwrap_or((&calm, &mut no_capacity, 0.0));
        let rate = |usual: f64, now: Option<f64>| usual + (now.unwrap_or(usual) - usual) * strength;

        let slow = incident.latency.filter(|_| rng.next_f64() < strength);
        let latency = slow.unwrap_or(spec.latency).draw(rng);
        let limiter = incident_capacity.as_mut().or(capacity.as_mut());
        if let Some(outcome) = limiter.and_then(|limiter| limiter.refuse(request.at)) {
            let took = latency.min(request.timeout);
            return SimulatedResponse { outcome, took, may_have_arrived: false };
        }
        let times_out = rng.next_f64() < rate(spec.timeout_rate, incident.timeout_rate);
        if times_out || latency >= request.timeout {
            let timeout = FailureSpec::Transport(AttemptFailure::Timeout);
            return timeout.respond(request, latency);
        }
        if request.customer < spec.poisoned_customers {
            return spec.poison.respond(request, latency);
        }
        if rng.next_f64() < rate(spec.failure_rate, incident.failure_rate) {
            return incident.failure.unwrap_or(spec.failure).respond(request, latency);
        }
        let outcome = AttemptOutcome::Answered { status: 200, retry_after: None };
        SimulatedResponse { outcome, took: latency, may_have_arrived: true }
    }
}
