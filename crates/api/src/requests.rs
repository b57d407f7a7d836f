//! Incoming requests, also refused ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::{EventId, RequestId},
    time::Timestamp,
};

use crate::{BodyContent, HeaderField};

/// An incoming request without headers and body.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Request")]
pub struct ReceivedRequestSummary {
    /// Null for a duplicate, for which only event and time are stored.
    pub id: Option<RequestId>,
    #[schemars(regex(pattern = "^(accepted|duplicate|refused)$"))]
    pub outcome: String,
    /// Name of the source; null if it does not exist.
    pub source: Option<String>,
    pub at: Timestamp,
    /// The created event, the last one if there are several; for a duplicate, the original event.
    pub event: Option<EventId>,
    /// Number of new events; null if refused.
    pub events: Option<u64>,
    /// Whether the body of a duplicate differs from the original; null for other requests.
    pub bytes_differ: Option<bool>,
    /// Problem code that the refused sender got.
    pub reason: Option<String>,
    pub what_to_do: Option<String>,
    /// HTTP status that the refused sender got.
    pub http_status: Option<u16>,
    /// Only for refused requests.
    pub method: Option<String>,
    /// Possible secrets are masked. Null for a duplicate, and if retention has removed the body.
    pub path: Option<String>,
    /// Secrets are masked.
    pub query: Option<String>,
    pub remote: Option<String>,
    /// Size of the body, if it was read; with several events, of the one in `event`.
    pub body_bytes: Option<u64>,
}

/// A refused request with headers and body.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRequestDetail {
    #[serde(flatten)]
    pub request: ReceivedRequestSummary,
    pub headers: Vec<HeaderField>,
    /// Only if the source stores bodies of refused requests; secrets masked.
    pub body: Option<BodyContent>,
    /// Number of masked values in the body.
    pub masked: usize,
}
