//! The whole configuration as one document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};
use surehook_types::object;

/// Sources, destinations and routes; they refer to each other by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Configuration")]
pub struct ConfigurationDocument {
    #[serde(default, deserialize_with = "object::each")]
    pub sources: Vec<SourceSpec>,
    #[serde(default, deserialize_with = "object::each")]
    pub destinations: Vec<DestinationSpec>,
    #[serde(default, deserialize_with = "object::each")]
    pub routes: Vec<RouteSpec>,
}

/// Changes that an apply made, or would make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApplyResponse {
    pub dry_run: bool,
    pub created: Vec<String>,
    pub updated: Vec<String>,
    pub deleted: Vec<String>,
    pub unchanged: usize,
    pub changes: Vec<ResourceChange>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceChange {
    #[schemars(regex(pattern = "^(create|update|delete)$"))]
    pub action: String,
    pub what: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// Change of one field. Secrets are masked, so both values may look the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FieldChange {
    pub name: String,
    pub from: Value,
    pub to: Value,
}
