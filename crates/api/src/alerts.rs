//! Alerts: what fires, what has fired, and the channels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    alert::{
        AlertFigures, AlertRule, AlertRulesSpec, AlertStatus, AlertSubject, message::AlertFormat,
    },
    destination::kind::DestinationKind,
    health::HealthStatus,
};
use surehook_types::{
    ids::{DestinationId, EventId},
    name::Name,
    time::Timestamp,
};

/// All alerts, with their rules and channels.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AlertsResponse {
    /// What fires, oldest first.
    pub active: Vec<AlertResponse>,
    /// What has been resolved, newest first.
    pub past: Vec<AlertResponse>,
    /// Destinations that get messages about alerts.
    pub channels: Vec<AlertChannelResponse>,
    /// The rules in force.
    pub rules: AlertRulesSpec,
}

/// A rule that fires, or has fired, for one subject.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Alert")]
pub struct AlertResponse {
    pub id: u64,
    pub rule: AlertRule,
    pub status: AlertStatus,
    pub subject: AlertSubject,
    /// The figures in words.
    pub summary: String,
    pub figures: AlertFigures,
    pub fired_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// Whether channels were notified.
    pub notified: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AlertChannel")]
pub struct AlertChannelResponse {
    pub destination: Name,
    pub destination_id: DestinationId,
    pub kind: DestinationKind,
    /// Format of the messages; absent if the destination is misconfigured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<AlertFormat>,
    pub health: HealthStatus,
}

/// The test messages, one for each recipient.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TestAlertResponse {
    pub channel: Name,
    /// The events that carry them.
    pub events: Vec<EventId>,
}
