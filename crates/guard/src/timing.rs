//! The duration of each stage of an attempt.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Duration of the stages of an HTTP attempt, as far as they were reached; all empty for other
/// protocols.
///
/// The stages do not overlap. The rest of the attempt's time is the body of the response and our own
/// work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTiming {
    /// Name resolution. `None` also if the URL has an IP address.
    pub dns: Option<Duration>,
    /// Connecting, including through a proxy.
    pub connect: Option<Duration>,
    pub tls: Option<Duration>,
    /// From the open connection to the response head.
    pub first_byte: Option<Duration>,
    /// Whether a pooled connection was reused. `None` if there was no connection or it is unknown.
    pub reused: Option<bool>,
}

impl AttemptTiming {
    /// The view for the API, with the total duration of the attempt.
    pub fn to_view(self, took: Duration) -> AttemptTimingView {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        AttemptTimingView {
            dns_ms: self.dns.map(millis),
            connect_ms: self.connect.map(millis),
            tls_ms: self.tls.map(millis),
            first_byte_ms: self.first_byte.map(millis),
            total_ms: millis(took),
            reused_connection: self.reused,
        }
    }
}

/// Time per stage of an attempt, in whole milliseconds. A stage that was not reached is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Timing")]
pub struct AttemptTimingView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_ms: Option<u64>,
    /// Connecting, including through a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ms: Option<u64>,
    /// From the open connection to the response head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<u64>,
    pub total_ms: u64,
    /// Whether a pooled connection was reused; absent if there was no connection or the destination
    /// is not HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reused_connection: Option<bool>,
}
