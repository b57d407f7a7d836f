//! A scenario: when events arrive, and how their destinations behave. The presets are files.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use surehook_types::time::HumanDuration;

use crate::{
    arrivals::ArrivalSpec,
    behavior::{BehaviorSpec, BehaviorSpecError, IncidentSpec, TimeSpan},
    latency::LatencySpec,
    policy::{PolicySpec, PolicySpecError},
    report::SimulationReport,
    simulation::{ObservationSpec, Simulation, SimulationLane},
};

/// Deliveries that have not ended by then are reported as unfinished.
const HORIZON: HumanDuration = HumanDuration::from_secs(60 * 86_400);
/// After the end of an incident the load on the destination is watched for at least this long.
const RECOVERY_MIN: Duration = Duration::from_secs(300);
const DESTINATIONS_MAX: usize = 1000;

/// A scenario to simulate: the arrivals and the destinations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// For people.
    #[serde(default)]
    pub about: String,
    pub arrivals: ArrivalSpec,
    #[serde(default = "default_destinations")]
    pub destinations: Vec<DestinationScenario>,
    /// When the simulation ends at the latest.
    #[serde(default = "default_horizon")]
    pub horizon: HumanDuration,
}

/// One destination of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationScenario {
    #[serde(default = "default_name")]
    pub name: String,
    /// Its share of the deliveries, in relation to the other destinations.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// Fields of the destination, unless the policy sets them.
    #[serde(default)]
    pub settings: Map<String, Value>,
    #[serde(default)]
    pub behavior: BehaviorSpec,
}

impl Default for DestinationScenario {
    fn default() -> Self {
        Self {
            name: default_name(),
            weight: default_weight(),
            settings: Map::new(),
            behavior: BehaviorSpec::default(),
        }
    }
}

fn default_destinations() -> Vec<DestinationScenario> {
    vec![DestinationScenario::default()]
}

fn default_horizon() -> HumanDuration {
    HORIZON
}

fn default_name() -> String {
    "destination".to_owned()
}

fn default_weight() -> f64 {
    1.0
}

/// A known incident.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioPreset {
    pub name: &'static str,
    toml: &'static str,
}

/// Scenarios of known incidents.
pub const PRESETS: [ScenarioPreset; 5] = [
    ScenarioPreset { name: "outage", toml: include_str!("../presets/outage.toml") },
    ScenarioPreset {
        name: "flapping-tunnel",
        toml: include_str!("../presets/flapping-tunnel.toml"),
    },
    ScenarioPreset { name: "brown-out", toml: include_str!("../presets/brown-out.toml") },
    ScenarioPreset { name: "429-storm", toml: include_str!("../presets/429-storm.toml") },
    ScenarioPreset {
        name: "poisoned-customer",
        toml: include_str!("../presets/poisoned-customer.toml"),
    },
];

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("unknown preset `{0}`; use {names}", names = PRESETS.map(|preset| preset.name).join(", "))]
    UnknownPreset(String),
    #[error("not a scenario: {0}")]
    Toml(#[from] toml::de::Error),
    #[error("arrivals: {0}")]
    Arrivals(&'static str),
    #[error(
        "a scenario needs between 1 and {DESTINATIONS_MAX} destinations, each with a positive weight"
    )]
    Destinations,
    #[error("destination `{name}`: {source}")]
    Behavior { name: String, source: BehaviorSpecError },
    #[error("destination `{name}`, policy `{policy}`: {source}")]
    Policy { name: String, policy: String, source: Box<PolicySpecError> },
}

impl Scenario {
    pub fn preset(name: &str) -> Result<Self, ScenarioError> {
        let preset = PRESETS.iter().find(|preset| preset.name == name);
        let preset = preset.ok_or_else(|| ScenarioError::UnknownPreset(name.to_owned()))?;
        Self::from_toml(preset.toml)
    }

    /// A scenario from TOML.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// One destination with constant rates.
    pub fn steady(arrivals: ArrivalSpec, behavior: BehaviorSpec) -> Self {
        let destination = DestinationScenario { behavior, ..DestinationScenario::default() };
        Self {
            about: String::new(),
            arrivals,
            destinations: vec![destination],
            horizon: default_horizon(),
        }
    }

    /// Checks everything but the settings of the destinations, which depend on the policy.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.arrivals.check().map_err(ScenarioError::Arrivals)?;
        let weights = self.destinations.iter().map(|destination| destination.weight);
        if !(1..=DESTINATIONS_MAX).contains(&self.destinations.len())
            || !weights.clone().all(|weight| weight > 0.0 && weight.is_finite())
        {
            return Err(ScenarioError::Destinations);
        }
        for DestinationScenario { name, behavior, .. } in &self.destinations {
            behavior
                .build()
                .map_err(|source| ScenarioError::Behavior { name: name.clone(), source })?;
        }
        Ok(())
    }

    /// The time spans of all incidents, ordered by their end.
    pub fn incidents(&self) -> Vec<TimeSpan> {
        let behaviors = self.destinations.iter().map(|destination| &destination.behavior);
        let incidents = behaviors.flat_map(|behavior| &behavior.incidents);
        let mut spans: Vec<TimeSpan> = incidents.flat_map(IncidentSpec::spans).collect();
        spans.sort_by_key(|span| (span.until, span.from));
        spans
    }

    /// The parts of the simulation to observe: a time line of the arrivals and a quarter more, and the
    /// time after each incident.
    pub fn observation(&self) -> ObservationSpec {
        let incidents = self.incidents();
        let recoveries = incidents.iter().map(|incident| {
            let lasted = incident.until.saturating_sub(incident.from);
            TimeSpan { from: incident.until, until: incident.until + lasted.max(RECOVERY_MIN) }
        });
        let ended = incidents.last().map_or(Duration::ZERO, |last| last.until);
        let timeline = self.arrivals.over.0.max(ended).mul_f64(1.25).max(Duration::from_secs(10));
        let mut recoveries: Vec<TimeSpan> = recoveries.collect();
        recoveries.sort_by_key(|span| span.until);
        ObservationSpec { timeline, recoveries, arrivals_end: self.arrivals.over.0 }
    }

    /// Sets the response times of all destinations.
    pub fn set_latency(&mut self, latency: LatencySpec) {
        self.destinations.iter_mut().for_each(|each| each.behavior.latency = latency);
    }

    /// Runs the scenario under a policy. `note_progress` is called now and then with the number of
    /// deliveries that have ended.
    pub fn simulate(
        &self,
        policy: &PolicySpec,
        seed: u64,
        note_progress: &mut dyn FnMut(u64),
    ) -> Result<SimulationReport, ScenarioError> {
        self.check()?;
        let mut lanes = Vec::with_capacity(self.destinations.len());
        for (index, scenario) in self.destinations.iter().enumerate() {
            let name = scenario.name.clone();
            let destination = policy.build(&scenario.settings, index).map_err(|source| {
                let policy = policy.name.clone();
                ScenarioError::Policy { name: name.clone(), policy, source: Box::new(source) }
            })?;
            let behavior = scenario
                .behavior
                .build()
                .map_err(|source| ScenarioError::Behavior { name: name.clone(), source })?;
            lanes.push(SimulationLane { name, destination, behavior: Box::new(behavior) });
        }
        let weights: Vec<f64> = self.destinations.iter().map(|each| each.weight).collect();
        let arrivals = self.arrivals.generate(seed, &weights);
        let simulation = Simulation::new(lanes, seed, self.horizon.0, self.observation());
        Ok(simulation.run(&policy.name, arrivals, note_progress))
    }
}
