//! Destinations of kind `listen`: programs such as `surehook listen` ask the gateway for the deliveries
//! and report the answers.
//!
//! Without a listener the deliveries wait. So that they do not wait forever, a destination that had no
//! listener for long is removed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::time::HumanDuration;

/// How long a destination is kept without a listener, by default.
const REMOVE_AFTER: Duration = Duration::from_secs(24 * 3600);
const REMOVE_AFTER_MIN: Duration = Duration::from_secs(1);
const REMOVE_AFTER_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The settings of a destination of kind `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenSpec {
    /// Without a listener for this long (1s to 30d), the destination is removed with its routes, and its
    /// waiting deliveries are cancelled.
    #[serde(default = "default_remove_after")]
    pub remove_after: HumanDuration,
}

impl Default for ListenSpec {
    fn default() -> Self {
        Self { remove_after: default_remove_after() }
    }
}

fn default_remove_after() -> HumanDuration {
    HumanDuration(REMOVE_AFTER)
}

/// Why these settings are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenSpecError {
    #[error("remove_after must be between 1s and 30d")]
    RemoveAfter,
}

/// Checked settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    pub remove_after: Duration,
}

impl ListenSpec {
    pub fn build(self) -> Result<ListenConfig, ListenSpecError> {
        let remove_after = self.remove_after.0;
        if !(REMOVE_AFTER_MIN..=REMOVE_AFTER_MAX).contains(&remove_after) {
            return Err(ListenSpecError::RemoveAfter);
        }
        Ok(ListenConfig { remove_after })
    }
}
