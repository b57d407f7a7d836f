//! JSON that comes in: typed, bounded, with errors that say where.

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
};
use http::{StatusCode, header};
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The largest body the API takes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Input<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Input<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let is_json = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| {
                kind.split(';').next().unwrap_or_default().trim() == "application/json"
            });
        if !is_json {
            let detail = "send JSON with Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let body = to_bytes(request.into_body(), BODY_BYTES_MAX).await.map_err(|_| {
            let detail = format!("the body is larger than {BODY_BYTES_MAX} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
        })?;
        match serde_json::from_slice(&body) {
            Ok(value) => Ok(Self(value)),
            Err(error) if error.is_data() => Err(Problem::invalid(error.to_string())),
            Err(error) => {
                let detail = format!("the body is not JSON: {error}");
                Err(Problem::new(StatusCode::BAD_REQUEST, "bad_json", detail))
            }
        }
    }
}
