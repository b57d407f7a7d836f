//! API calls made by pages, with the permissions of the signed-in user.

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use surehook_api::{ApiCall, ApiTransport, CallError, calls};

use crate::current_user::CurrentUser;

/// Limit for JSON responses; files are streamed by [`CurrentUser::fetch`] instead.
const RESPONSE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// An error response of the API. Status 0 marks errors found by the dashboard itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) detail: String,
}

impl ApiError {
    /// An error found by the dashboard itself, in the language of the user.
    pub(crate) fn local(detail: impl Into<String>) -> Self {
        Self { status: 0, detail: detail.into() }
    }

    fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "API call failed");
        Self { status: 500, detail: error.to_string() }
    }

    /// Whether the request may have been executed, or still is: a retry must use the same idempotency key.
    pub(crate) fn may_have_been_executed(&self) -> bool {
        self.status >= 500 || self.status == 409
    }

    /// Whether the detail comes from the API, which is in English only.
    pub(crate) fn is_from_api(&self) -> bool {
        self.status != 0
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status == 404
    }

    pub(crate) fn is_invalid_request(&self) -> bool {
        matches!(self.status, 400 | 422)
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Problem { status, detail, .. } => Self { status: status.as_u16(), detail },
            CallError::InvalidRequest(_) | CallError::UnexpectedResponse(_) => {
                Self::internal(error)
            }
        }
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        CallError::from(error).into()
    }
}

impl ApiTransport for CurrentUser {
    type Error = ApiError;

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ApiError> {
        read_response(self.gateway().call(self.session(), request.map(Body::from)).await).await
    }
}

impl CurrentUser {
    /// Requests a file and returns the response for streaming.
    pub(crate) async fn fetch<T>(&self, call: ApiCall<T>) -> Result<Response<Body>, ApiError> {
        let request = call.into_request().map_err(CallError::from)?;
        let response = self.gateway().call(self.session(), request.map(Body::from)).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let response = read_response(response).await?;
        Err(CallError::from_response(response.status(), response.body()).into())
    }

    /// Names of all sources, sorted.
    pub(crate) async fn source_names(&self) -> Result<Vec<String>, ApiError> {
        let sources = self.call(calls::list_sources()).await?.data;
        Ok(sorted(sources.into_iter().map(|source| source.spec.name.to_string())))
    }

    /// Names of all destinations, sorted.
    pub(crate) async fn destination_names(&self) -> Result<Vec<String>, ApiError> {
        let destinations = self.call(calls::list_destinations()).await?.data;
        Ok(sorted(destinations.into_iter().map(|destination| destination.spec.name.to_string())))
    }
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

async fn read_response(response: Response<Body>) -> Result<Response<Bytes>, ApiError> {
    let (head, body) = response.into_parts();
    let body = http_body_util::Limited::new(body, RESPONSE_BYTES_MAX);
    let body = body.collect().await.map_err(ApiError::internal)?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// Form values as a request of the API; the error says which value is invalid.
pub(crate) fn parse_request<T: DeserializeOwned>(values: Value) -> Result<T, ApiError> {
    serde_json::from_value(values)
        .map_err(|error| ApiError { status: 422, detail: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_or_server_error_may_have_been_executed() {
        for (status, expected) in [
            (400, false),
            (409, true),
            (412, false),
            (422, false),
            (429, false),
            (500, true),
            (503, true),
        ] {
            let error = ApiError { status, ..ApiError::default() };
            assert_eq!(error.may_have_been_executed(), expected, "case: {status}");
        }
    }
}
