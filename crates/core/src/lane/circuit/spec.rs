//! Circuit settings: when a circuit opens, and for how long.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::HumanDuration;

/// Jitter of the open time, so that many circuits do not close at once.
const JITTER: f64 = 0.1;

/// Circuit settings of a destination: `off`, or custom values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CircuitSpec {
    /// `off`.
    Word(#[schemars(regex(pattern = "^off$"))] String),
    /// Custom values.
    Custom(#[serde(deserialize_with = "crate::object::required")] CustomCircuitSpec),
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

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("circuit: {0}")]
pub struct CircuitSpecError(&'static str);

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPolicy {
    pub(super) failures: u32,
    pub(super) open_for: Duration,
    pub(super) open_max: Duration,
}

impl CircuitSpec {
    /// `None` for `off`.
    pub fn policy(&self) -> Result<Option<CircuitPolicy>, CircuitSpecError> {
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
    /// How long it stays open the `times`-th time in a row.
    pub(super) fn open_for(&self, times: u32, roll: f64) -> Duration {
        let doubled = self.open_for.saturating_mul(1 << times.saturating_sub(1).min(20));
        doubled.min(self.open_max).mul_f64(1.0 + JITTER * (2.0 * roll - 1.0))
    }
}
