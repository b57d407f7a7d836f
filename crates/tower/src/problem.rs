//! The answers of the layer itself, as problem documents (RFC 9457).

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use surehook_types::idempotency_key::ParseIdempotencyKeyError;

/// When a client should try again while the first request runs, in seconds.
const IN_FLIGHT_RETRY_SECS: u64 = 1;
/// When a client should try again while the store cannot be used, in seconds.
const STORE_RETRY_SECS: u64 = 5;

/// Why a request is not passed on.
#[derive(Debug)]
pub(crate) enum ProblemKind {
    KeyMissing,
    KeyRepeated,
    KeyMalformed(ParseIdempotencyKeyError),
    /// The key is valid, but the store cannot take it.
    KeyUnusable,
    KeyReused,
    InFlight,
    ResponseNotStored,
    BodyTooLarge(usize),
    BodyUnreadable(String),
    StoreUnavailable,
}

#[derive(Serialize)]
struct ProblemDocument<'a> {
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: String,
}

impl ProblemKind {
    fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing
            | Self::KeyRepeated
            | Self::KeyMalformed(_)
            | Self::KeyUnusable
            | Self::BodyUnreadable(_) => StatusCode::BAD_REQUEST,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InFlight | Self::ResponseNotStored => StatusCode::CONFLICT,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::KeyMissing => "idempotency_key_missing",
            Self::KeyRepeated | Self::KeyMalformed(_) | Self::KeyUnusable => "bad_idempotency_key",
            Self::KeyReused => "idempotency_key_reused",
            Self::InFlight => "idempotency_in_flight",
            Self::ResponseNotStored => "idempotency_response_not_stored",
            Self::BodyTooLarge(_) => "body_too_large",
            Self::BodyUnreadable(_) => "bad_body",
            Self::StoreUnavailable => "idempotency_store_unavailable",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::KeyMissing => {
                "This endpoint needs an Idempotency-Key header. Send a new key, such as a UUID, with each \
                 new request, and the same key with each retry of it."
                    .to_owned()
            }
            Self::KeyRepeated => "Send one Idempotency-Key header.".to_owned(),
            Self::KeyMalformed(error) => error.to_string(),
            Self::KeyUnusable => "This Idempotency-Key cannot be stored. Use a UUID.".to_owned(),
            Self::KeyReused => {
                "This Idempotency-Key was used for a different request. Use a new key.".to_owned()
            }
            Self::InFlight => {
                "A request with this Idempotency-Key is still running. Retry later.".to_owned()
            }
            Self::ResponseNotStored => {
                "The request with this Idempotency-Key was executed, but its response was too large to \
                 be stored. Do not send it again; read the result where it was created."
                    .to_owned()
            }
            Self::BodyTooLarge(limit) => format!("The body is larger than {limit} bytes."),
            Self::BodyUnreadable(error) => format!("The body could not be read: {error}"),
            // Details of the store are for its operator.
            Self::StoreUnavailable => {
                "Idempotency keys cannot be stored at the moment, and the request was not executed. Retry \
                 later."
                    .to_owned()
            }
        }
    }

    pub(crate) fn to_response<B: From<Bytes>>(&self) -> Response<B> {
        let status = self.status();
        let document = ProblemDocument {
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            code: self.code(),
            detail: self.detail(),
        };
        // Strings and numbers always serialize.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(B::from(body.into()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, content_type);
        let retry_after = match self {
            Self::InFlight => Some(IN_FLIGHT_RETRY_SECS),
            Self::StoreUnavailable => Some(STORE_RETRY_SECS),
            Self::KeyMissing
            | Self::KeyRepeated
            | Self::KeyMalformed(_)
            | Self::KeyUnusable
            | Self::KeyReused
            | Self::ResponseNotStored
            | Self::BodyTooLarge(_)
            | Self::BodyUnreadable(_) => None,
        };
        if let Some(secs) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}
