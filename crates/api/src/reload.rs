//! The answer to a reload of the settings file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a reload of the settings file changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadResponse {
    /// The settings file; absent if the gateway has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Settings of the server with a new value that is in use now.
    pub applied: Vec<String>,
    /// Settings of the server with a new value that is used after a restart.
    pub needs_restart: Vec<String>,
    /// Created sources, destinations and routes.
    pub created: Vec<String>,
    /// Updated sources, destinations and routes.
    pub updated: Vec<String>,
    /// The number of sources, destinations and routes that already were as in the file.
    pub unchanged: usize,
}
