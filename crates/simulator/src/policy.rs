//! The policy under test: the fields of a destination that decide when attempts are made.

use serde_json::{Map, Value};
use surehook_core::destination::{Destination, DestinationSpec, DestinationSpecError};
use surehook_retry::RetryPolicy;
use surehook_types::{ids::DestinationId, time::Timestamp};

/// The fields of a destination that have an effect in a simulation.
pub const POLICY_FIELDS: [&str; 9] = [
    "circuit",
    "concurrency",
    "delay",
    "order",
    "pause_after_config_failures",
    "rate",
    "retry",
    "rules",
    "timeout",
];

/// A policy with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    pub name: String,
    /// Fields of a destination, as in its settings.
    pub fields: Map<String, Value>,
}

/// Why a policy cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum PolicySpecError {
    #[error("unknown retry policy `{0}`; use {names}", names = RetryPolicy::NAMES.join(", "))]
    UnknownName(String),
    #[error("`{0}` has no effect in a simulation; allowed: {fields}", fields = POLICY_FIELDS.join(", "))]
    UnknownField(String),
    #[error("not TOML: {0}")]
    Toml(#[from] toml::de::Error),
    #[error("{0}")]
    Field(#[from] serde_json::Error),
    #[error("{0}")]
    Destination(#[from] DestinationSpecError),
}

impl PolicySpec {
    /// A retry policy by its name.
    pub fn named(name: &str) -> Result<Self, PolicySpecError> {
        RetryPolicy::named(name).ok_or_else(|| PolicySpecError::UnknownName(name.to_owned()))?;
        let fields = Map::from_iter([("retry".to_owned(), Value::from(name))]);
        Ok(Self { name: name.to_owned(), fields })
    }

    /// A policy from TOML with fields of a destination.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, PolicySpecError> {
        let fields = toml::from_str(text)?;
        let policy = Self { name: name.to_owned(), fields };
        policy.build(&Map::new(), 0)?;
        Ok(policy)
    }

    /// The destination with this policy. `settings` are the fields that the policy does not set.
    pub fn build(
        &self,
        settings: &Map<String, Value>,
        index: usize,
    ) -> Result<Destination, PolicySpecError> {
        let mut spec = Map::from_iter([
            ("name".to_owned(), Value::from("simulated")),
            ("url".to_owned(), Value::from("https://destination.invalid/")),
        ]);
        for (field, value) in settings.iter().chain(&self.fields) {
            if !POLICY_FIELDS.contains(&field.as_str()) {
                return Err(PolicySpecError::UnknownField(field.clone()));
            }
            spec.insert(field.clone(), value.clone());
        }
        let spec: DestinationSpec = serde_json::from_value(Value::Object(spec))?;
        let id = DestinationId::new(Timestamp::default(), u128::try_from(index).unwrap_or(0) << 64);
        Ok(spec.build(id, &|_| None)?)
    }
}
