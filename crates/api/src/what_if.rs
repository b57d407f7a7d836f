//! What another policy would have done with recorded deliveries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use surehook_core::lane::OrderingSpec;
use surehook_retry::{RetrySpec, StatusRule, circuit::CircuitSpec, rate::Rate};
use surehook_types::time::{HumanDuration, Timestamp};

pub use surehook_simulator::what_if::{
    ConfidenceLevel, WhatIfConfidence, WhatIfDelay, WhatIfDifference, WhatIfNote, WhatIfNoteKind,
    WhatIfRange, WhatIfReport, WhatIfResult, change_settings, policy_settings,
};

/// The time span, and settings of the destination to change. `null` removes a setting.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfRequest {
    /// Deliveries created since this time. Default: 7 days before `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Deliveries created before this time. Default: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(flatten)]
    #[schemars(with = "PolicyChange")]
    pub change: Map<String, Value>,
}

/// The settings that a what-if may change, as in the destination.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct PolicyChange {
    retry: Option<RetrySpec>,
    rate: Option<Rate>,
    delay: Option<HumanDuration>,
    order: Option<OrderingSpec>,
    circuit: Option<CircuitSpec>,
    concurrency: Option<u32>,
    timeout: Option<HumanDuration>,
    pause_after_config_failures: Option<u32>,
    rules: Option<Vec<StatusRule>>,
}
