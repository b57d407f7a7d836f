//! The gateway itself: version and settings, and deliveries to its built-in test destination.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::EventId,
    time::{HumanDuration, Timestamp},
};

use crate::{BodyContent, HeaderField};

/// Version and settings of this gateway.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "About")]
pub struct AboutResponse {
    pub version: String,
    pub now: Timestamp,
    /// URL at which senders reach the gateway, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// How long events are kept, unless their source overrides it.
    pub retention: HumanDuration,
    /// Largest request body, unless the source overrides it.
    pub body_bytes_max: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InboxDelivery")]
pub struct InboxDeliveryResponse {
    pub received_at: Timestamp,
    pub event: EventId,
    pub headers: Vec<HeaderField>,
    /// The first 16 KiB, secrets masked.
    pub body: BodyContent,
    /// Masked values in the body.
    pub masked: usize,
}
