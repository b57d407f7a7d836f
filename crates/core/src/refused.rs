//! Requests that were not let in, of which a bounded sample is kept.

use bytes::Bytes;

use crate::{event::HeaderBlock, ids::RequestId, time::Timestamp};

/// Samples kept for each source and reason; the oldest makes room.
pub const SAMPLES_MAX: usize = 100;

/// A request that was refused, as much of it as may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Its id.
    pub id: RequestId,
    /// The source it was for, if there is one of that name.
    pub source: Option<String>,
    /// When it came.
    pub at: Timestamp,
    /// Why it was refused: the stable word that the sender was told.
    pub code: String,
    /// The status that it was answered with.
    pub status: u16,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query, without secrets.
    pub query: Option<String>,
    /// Who sent it.
    pub remote: String,
    /// Its headers, without secrets.
    pub headers: HeaderBlock,
    /// The length of its body, if it was read.
    pub body_bytes: Option<u64>,
    /// Its body, if it was read and the source asks for that.
    pub body: Option<Bytes>,
}

/// Which refused requests to list.
#[derive(Clone, Debug, Default)]
pub struct RefusedFilter {
    /// Only of this source.
    pub source: Option<String>,
    /// Only for this reason.
    pub code: Option<String>,
    /// Only at this time or later.
    pub since: Option<Timestamp>,
    /// Only before this time.
    pub until: Option<Timestamp>,
}

/// What the operator can do about requests that are refused for a reason.
pub fn advice(code: &str) -> &'static str {
    match code {
        "unknown_source" => "create a source of that name, or correct the URL at the sender",
        "source_disabled" => {
            "set `enabled = true` on the source, or remove the webhook at the sender"
        }
        "source_misconfigured" => "mend the settings of the source; the log says what is wrong",
        "missing_signature" | "missing_timestamp" | "missing_id" | "missing_credentials" => {
            "let the sender sign its requests, or correct `verify` of the source"
        }
        "malformed" | "too_many_signatures" => {
            "compare `verify` of the source with how the sender signs"
        }
        "stale" => "compare the clocks, or widen `tolerance`; an old request may be a replayed one",
        "mismatch" => "compare the secret at the sender with `secrets` of the source",
        "repeated_key" => "let the sender give one `idempotency-key` for each request",
        "quarantined" => "look at it with `surehook quarantine list`",
        "method_not_allowed" => "webhooks are sent with POST",
        "body_too_large" => "raise `max_body_bytes` of the source, if such bodies are meant",
        "body_timeout" | "bad_body" => "the sender is cut off or too slow; look at the network",
        "overloaded" => "the sender tries again; if it lasts, look at the disk and the limits",
        "disk_full" => "make room on the disk; it goes on by itself",
        "store_failed" => "look at the log",
        _ => "the sender must send a well-formed HTTP request",
    }
}
