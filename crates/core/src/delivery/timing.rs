//! Where the time of an attempt went.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// The stages of an attempt, as far as they were reached. Nothing is known of what is no HTTP.
///
/// They follow one another, so that together they are not longer than the attempt; what is left is
/// the rest of the answer and our own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTiming {
    /// Finding the addresses of a name. `None` also if an address was given.
    pub dns: Option<Duration>,
    /// Connecting, through a proxy too.
    pub connect: Option<Duration>,
    /// The handshake of TLS.
    pub tls: Option<Duration>,
    /// From the open connection to the head of the answer.
    pub first_byte: Option<Duration>,
    /// Whether a connection was used that was there before. `None` if there was none, or nobody knows.
    pub reused: Option<bool>,
}

impl AttemptTiming {
    /// The same as it is shown, for an attempt that took so long in all.
    pub fn to_view(self, took: Duration) -> AttemptTimingView {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
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

/// Where the time of an attempt went, in whole milliseconds.
///
/// A stage that was not reached, or that there was none of, is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Timing")]
pub struct AttemptTimingView {
    /// Finding the addresses of a name.
    pub dns_ms: Option<u64>,
    /// Connecting, through a proxy too.
    pub connect_ms: Option<u64>,
    /// The handshake of TLS.
    pub tls_ms: Option<u64>,
    /// From the open connection to the head of the answer.
    pub first_byte_ms: Option<u64>,
    /// All of it.
    pub total_ms: u64,
    /// Whether a connection was used that was there before; null if there was none, or for what is no
    /// HTTP.
    pub reused_connection: Option<bool>,
}
