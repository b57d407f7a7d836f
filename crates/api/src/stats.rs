//! Current totals, and counts over time.

use std::{collections::BTreeMap, num::NonZeroU64};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::clock::ClockStatus;
use surehook_types::{
    name::Name,
    time::{HumanDuration, Timestamp},
};

use crate::resources::{DestinationHealthResponse, DestinationState};

/// Totals of the gateway.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// Events received since the beginning.
    pub total: u64,
    /// Events without a deduplication key.
    pub no_key: u64,
    /// Events whose key another event had with another body.
    #[serde(default)]
    pub key_conflicts: u64,
    pub duplicates: u64,
    pub attempts: u64,
    /// Attempts after the first of their delivery.
    pub retries: u64,
    /// Current deliveries per status.
    pub by_status: BTreeMap<String, u64>,
    /// Current dead letters.
    pub dlq_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_pending_age_seconds: Option<u64>,
    pub destinations: Vec<DestinationStatsResponse>,
    pub clock: ClockStatus,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DestinationStats")]
pub struct DestinationStatsResponse {
    pub name: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_pending_age_seconds: Option<u64>,
    /// End of a wait that the destination asked for (Retry-After).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooling_until: Option<Timestamp>,
    /// Messages sent today in the destination's time zone; absent if it sends no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_today: Option<u64>,
    /// Daily warning threshold; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<NonZeroU64>,
    /// Daily limit; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_at: Option<NonZeroU64>,
    pub warning_reached: bool,
    pub health: DestinationHealthResponse,
    /// Absent if the settings are unusable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DestinationState>,
}

/// Counts over time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    pub metric: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    pub since: Timestamp,
    pub until: Timestamp,
    pub width: HumanDuration,
    pub total: SeriesValue,
    /// Oldest first, including empty points.
    pub points: Vec<SeriesPoint>,
}

/// One point of a series.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SeriesPoint {
    /// Start of the point.
    pub at: Timestamp,
    #[serde(flatten)]
    pub value: SeriesValue,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SeriesValue {
    pub value: u64,
    /// Count per class or reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<BTreeMap<String, u64>>,
    /// Percentiles of time metrics; absent if there is no sample.
    #[serde(flatten)]
    pub percentiles: Option<Percentiles>,
}

/// Percentiles in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}
