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
    /// Absent for a duplicate, for which only event and time are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<RequestId>,
    #[schemars(regex(pattern = "^(accepted|duplicate|refused)$"))]
    pub outcome: String,
    /// Name of the source; absent if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub at: Timestamp,
    /// The created event, the last one if there are several; for a duplicate, the original event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// Number of new events; absent if refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Whether the body of a duplicate differs from the original; absent for other requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_differ: Option<bool>,
    /// Problem code that the refused sender got; for a duplicate `same_signed_bytes` if its key was
    /// another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_to_do: Option<String>,
    /// HTTP status that the refused sender got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// Only for refused requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Secrets are masked. Absent for a duplicate, and if retention has removed the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Secrets are masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Size of the body, if it was read; with several events, of the one in `event`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
}

/// A refused request with headers and body.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRequestDetail {
    #[serde(flatten)]
    pub request: ReceivedRequestSummary,
    pub headers: Vec<HeaderField>,
    /// Only if the source stores bodies of refused requests; secrets masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyContent>,
    /// Masked values in the body.
    pub masked: usize,
}
