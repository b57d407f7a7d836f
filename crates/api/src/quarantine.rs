//! Requests that failed verification and that their sender will not send again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{ids::RequestId, name::Name, time::Timestamp};

use crate::{BodyContent, HeaderField};

/// A quarantined request without headers and body.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QuarantinedRequest")]
pub struct QuarantinedRequestSummary {
    pub id: RequestId,
    #[schemars(regex(pattern = "^quarantined$"))]
    pub status: String,
    /// Absent if it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Name>,
    /// When it was first received.
    pub received_at: Timestamp,
    /// When it was last received.
    pub seen_at: Timestamp,
    pub times: u64,
    /// Why verification failed.
    pub reason: String,
    pub what_to_do: String,
    pub method: String,
    /// Path after the source's name; possible secrets are masked.
    pub path: String,
    /// Secrets are masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    pub remote: String,
    pub body_bytes: u64,
}

/// A quarantined request with headers and body, secrets masked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinedRequestDetail {
    #[serde(flatten)]
    pub request: QuarantinedRequestSummary,
    pub headers: Vec<HeaderField>,
    pub body: BodyContent,
    /// Masked values in the body.
    pub masked: usize,
}

/// Options of a release.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Release even if verification still fails. The events are marked as released by hand.
    #[serde(default)]
    pub force: bool,
}

/// Events of a released request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleaseResponse {
    /// `accepted`, or `duplicate` if all events were received meanwhile.
    pub status: String,
    pub events: Vec<ReleasedEvent>,
}

/// One event of a released request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleasedEvent {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub status: String,
}

/// Selects the requests to release.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSourceRequest {
    /// Name or id of the source.
    pub source: String,
    /// `next` of the previous call.
    pub after: Option<RequestId>,
}

/// Result of releasing the requests of a source.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseSourceResponse {
    pub released: u64,
    pub events: u64,
    /// Events that were received meanwhile.
    pub duplicates: u64,
    /// Requests that still fail verification and stay.
    pub left: u64,
    /// Pass it as `after` to continue; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<RequestId>,
}
