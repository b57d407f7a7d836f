//! Refused requests, of which a bounded sample is stored.

use std::time::Duration;

use bytes::Bytes;
use surehook_types::{ids::RequestId, time::Timestamp};

use crate::event::HeaderBlock;

/// Samples stored per source and reason. Beyond it, the sender with the most samples loses its oldest:
/// a flood from one address drops its own samples and no others.
pub const SAMPLES_MAX: usize = 100;
/// If every sender has one sample, a new sender's displaces only samples that are older than this.
pub const SAMPLE_PROTECTED: Duration = Duration::from_secs(86_400);

/// A refused request, as far as it may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    pub id: RequestId,
    /// The source it was for, if it exists.
    pub source: Option<String>,
    pub at: Timestamp,
    /// The stable reason code that the sender got.
    pub code: String,
    pub status: u16,
    pub method: String,
    pub path: String,
    /// Secrets masked.
    pub query: Option<String>,
    /// Address of the sender.
    pub remote: String,
    /// Secrets masked.
    pub headers: HeaderBlock,
    /// `None` if the body was not read.
    pub body_bytes: Option<u64>,
    /// Stored only if it was read and the source has `keep_refused_bodies`.
    pub body: Option<Bytes>,
}

/// Which refused requests to list.
#[derive(Clone, Debug, Default)]
pub struct RefusedFilter {
    pub source: Option<String>,
    /// Only with this reason code.
    pub code: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// What the operator can do about requests refused with this code.
pub fn advice(code: &str) -> &'static str {
    match code {
        "unknown_source" => "create a source of that name, or correct the URL at the sender",
        "source_disabled" => {
            "set `enabled = true` on the source, or remove the webhook at the sender"
        }
        "source_misconfigured" => "fix the settings of the source; the log says what is wrong",
        "missing_signature" | "missing_timestamp" | "missing_id" | "missing_credentials" => {
            "configure the sender to sign its requests, or correct `verify` of the source"
        }
        "malformed" | "too_many_signatures" => {
            "compare `verify` of the source with how the sender signs"
        }
        "unknown_address" => "set `public_url` to the address that the sender calls",
        "no_verify_token" => {
            "set `verify_token` of the source to the token entered at the provider"
        }
        "wrong_verify_token" => {
            "enter the same text at the provider and in `verify_token` of the source"
        }
        "untrusted_certificate" => {
            "check that the request comes from the provider: its certificate is not the provider's"
        }
        "certificate_unavailable" => {
            "the sender retries; if it lasts, check that the gateway reaches the provider's certificate URL"
        }
        "stale" => "compare the clocks, or widen `tolerance`; an old request may be a replayed one",
        "mismatch" => "compare the secret at the sender with `secrets` of the source",
        "other_body" => {
            "compare the request with the stored event: one of the two bodies is forged"
        }
        "repeated_key" => "configure the sender to send one `idempotency-key` per request",
        "quarantined" => "see `surehook quarantine list`",
        "method_not_allowed" => "send webhooks with POST",
        "body_too_large" => "raise `max_body_bytes` of the source if such bodies are expected",
        "body_timeout" | "bad_body" => "the sender is cut off or too slow; check the network",
        "overloaded" => "the sender retries; if it lasts, check the disk and the limits",
        "disk_full" => "free disk space; requests are then accepted again",
        "store_failed" => "check the log",
        _ => "the sender must send a well-formed HTTP request",
    }
}

#[cfg(test)]
mod tests {
    use surehook_webhooks::verify::VerifyError;

    use super::*;

    #[test]
    fn every_verification_error_has_its_own_advice() {
        let part = "signature";
        let errors = [
            VerifyError::MissingSignature { header: http::header::AUTHORIZATION },
            VerifyError::MissingTimestamp,
            VerifyError::MissingId,
            VerifyError::MissingSecret,
            VerifyError::Malformed { part },
            VerifyError::TooManySignatures,
            VerifyError::Stale,
            VerifyError::UnknownUrl,
            VerifyError::NoVerifyToken,
            VerifyError::WrongVerifyToken,
            VerifyError::UntrustedCertificate(""),
            VerifyError::Mismatch,
        ];
        let codes = errors.iter().map(VerifyError::code).chain(["certificate_unavailable"]);
        for code in codes {
            assert_ne!(advice(code), advice("unknown code"), "case: {code}");
        }
    }
}
