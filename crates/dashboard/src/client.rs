//! API calls made by pages.

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    current_user::CurrentUser,
    gateway::{DashboardGateway, DashboardSession},
};

/// Limit for JSON responses. Larger bodies are streamed, never read into memory.
const RESPONSE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// An error response of the API. Status 0 marks errors found by the dashboard itself.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ApiError {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) detail: String,
}

impl ApiError {
    /// An error found by the dashboard itself, in the language of the user.
    pub(crate) fn local(detail: impl Into<String>) -> Self {
        Self { status: 0, detail: detail.into() }
    }

    fn internal(detail: impl Into<String>) -> Self {
        Self { status: 500, detail: detail.into() }
    }

    pub(crate) fn unexpected(error: serde_json::Error) -> Self {
        tracing::error!(%error, "unexpected API response");
        Self::internal(error.to_string())
    }

    fn from_problem(status: StatusCode, problem: &[u8]) -> Self {
        let parsed = serde_json::from_slice::<Self>(problem).unwrap_or_default();
        Self { status: status.as_u16(), ..parsed }
    }

    /// Whether the request may have been executed, or still is: a retry must use the same idempotency key.
    pub(crate) fn may_have_been_done(&self) -> bool {
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

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiList<T> {
    pub(crate) data: Vec<T>,
    pub(crate) next_cursor: Option<String>,
    /// Only set by event lists.
    pub(crate) searched: Option<SearchExtent>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SearchExtent {
    pub(crate) events: u64,
    pub(crate) until: Option<String>,
}

impl<T> Default for ApiList<T> {
    fn default() -> Self {
        Self { data: Vec::new(), next_cursor: None, searched: None }
    }
}

/// A path of the API with its query, percent-encoded.
#[derive(Clone, Debug)]
pub(crate) struct ApiPath {
    path: String,
    query: String,
}

impl ApiPath {
    /// A path below `/api/v1`; each segment is encoded.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let mut path = String::from("/api/v1");
        for part in parts {
            path.push('/');
            path.push_str(&percent_encode(part));
        }
        Self { path, query: String::new() }
    }

    /// Adds a query parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(&format!("{}={}", percent_encode(name), percent_encode(value)));
        self
    }

    /// Adds a query parameter unless the value is missing or empty.
    pub(crate) fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) if !value.is_empty() => self.with(name, value),
            _ => self,
        }
    }

    fn into_uri(self) -> String {
        if self.query.is_empty() { self.path } else { format!("{}?{}", self.path, self.query) }
    }
}

/// Encodes everything except unreserved characters.
pub(crate) fn percent_encode(part: &str) -> String {
    const KEPT: &[u8] = b"-_.~";
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || KEPT.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

impl CurrentUser {
    pub(crate) async fn get<T: DeserializeOwned>(&self, address: ApiPath) -> Result<T, ApiError> {
        self.call_api(Method::GET, address, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        address: ApiPath,
        body: Option<Value>,
    ) -> Result<T, ApiError> {
        self.call_api(Method::POST, address, body).await
    }

    /// Posts with an `Idempotency-Key`, so that submitting a form twice has the effect of once.
    pub(crate) async fn post_idempotent<T: DeserializeOwned>(
        &self,
        address: ApiPath,
        body: Option<Value>,
        idempotency_key: &str,
    ) -> Result<T, ApiError> {
        let headers = [("idempotency-key", idempotency_key)];
        self.exchange_json(Method::POST, address, body, &headers)
            .await
            .map(|(response, _)| response)
    }

    /// Sorted names of all sources or destinations.
    pub(crate) async fn resource_names(&self, kind: &str) -> Result<Vec<String>, ApiError> {
        #[derive(Deserialize)]
        struct NamedResource {
            name: String,
        }
        let found = self.get::<ApiList<NamedResource>>(ApiPath::new(&[kind])).await?;
        let mut names: Vec<String> = found.data.into_iter().map(|named| named.name).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the resource and its `ETag`.
    pub(crate) async fn get_with_etag<T: DeserializeOwned>(
        &self,
        address: ApiPath,
    ) -> Result<(T, String), ApiError> {
        self.exchange_json(Method::GET, address, None, &[]).await
    }

    /// Changes a resource if its `ETag` still is `tag`.
    pub(crate) async fn call_if_match<T: DeserializeOwned>(
        &self,
        method: Method,
        address: ApiPath,
        body: Option<Value>,
        tag: &str,
    ) -> Result<T, ApiError> {
        self.exchange_json(method, address, body, &[("if-match", tag)])
            .await
            .map(|(response, _)| response)
    }

    /// Calls the API and parses the JSON response; an empty response is `null`.
    pub(crate) async fn call_api<T: DeserializeOwned>(
        &self,
        method: Method,
        address: ApiPath,
        body: Option<Value>,
    ) -> Result<T, ApiError> {
        self.exchange_json(method, address, body, &[]).await.map(|(response, _)| response)
    }

    /// Requests a file and returns the response for streaming.
    pub(crate) async fn fetch(&self, address: ApiPath) -> Result<Response<Body>, ApiError> {
        let request = Request::get(address.into_uri()).body(Body::empty());
        let request = request.map_err(|error| ApiError::internal(error.to_string()))?;
        let response = self.gateway().call(self.session(), request).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, _, bytes) = read_response(response).await?;
        Err(ApiError::from_problem(status, &bytes))
    }

    /// Reads a body up to [`RESPONSE_BYTES_MAX`].
    pub(crate) async fn read_bytes(&self, address: ApiPath) -> Result<bytes::Bytes, ApiError> {
        let request = Request::get(address.into_uri()).body(Body::empty());
        let request = request.map_err(|error| ApiError::internal(error.to_string()))?;
        let (status, _, bytes) = send(self.gateway(), self.session(), request).await?;
        if status.is_success() { Ok(bytes) } else { Err(ApiError::from_problem(status, &bytes)) }
    }

    /// Calls the API with extra headers. Returns the JSON response and its `ETag`.
    async fn exchange_json<T: DeserializeOwned>(
        &self,
        method: Method,
        address: ApiPath,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Result<(T, String), ApiError> {
        let mut request = Request::builder().method(method).uri(address.into_uri());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).map_err(|error| ApiError::internal(error.to_string()))?;
        let (status, tag, bytes) = send(self.gateway(), self.session(), request).await?;
        if status.is_success() {
            let bytes = if bytes.is_empty() { b"null".as_slice() } else { &bytes };
            let response = serde_json::from_slice(bytes).map_err(ApiError::unexpected)?;
            return Ok((response, tag));
        }
        Err(ApiError::from_problem(status, &bytes))
    }
}

async fn send(
    gateway: &dyn DashboardGateway,
    session: &DashboardSession,
    request: Request<Body>,
) -> Result<(StatusCode, String, bytes::Bytes), ApiError> {
    read_response(gateway.call(session, request).await).await
}

/// Status, `ETag` and body of a response.
async fn read_response(
    response: Response<Body>,
) -> Result<(StatusCode, String, bytes::Bytes), ApiError> {
    let status = response.status();
    let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.unwrap_or_default().to_owned();
    let body = http_body_util::Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
    let body = body.collect().await.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok((status, tag, body.to_bytes()))
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
            assert_eq!(error.may_have_been_done(), expected, "case: {status}");
        }
    }

    #[test]
    fn path_segments_and_parameters_are_percent_encoded() {
        let address =
            ApiPath::new(&["sources", "a/../b?c#d"]).with("q", "a&b=c").with_some("none", None);
        assert_eq!(address.into_uri(), "/api/v1/sources/a%2F..%2Fb%3Fc%23d?q=a%26b%3Dc");
    }
}
