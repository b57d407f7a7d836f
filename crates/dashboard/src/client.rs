//! Calls of the API, as a page makes them.

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    current_user::CurrentUser,
    gateway::{DashboardGateway, DashboardSession},
};

/// The largest response that a page reads. Bodies are larger and are not read by pages.
const RESPONSE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What the API said when it did not do what was asked.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ApiError {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) detail: String,
}

impl ApiError {
    fn internal(detail: impl Into<String>) -> Self {
        Self { status: 500, detail: detail.into() }
    }

    /// As the API said it.
    fn from_problem(status: StatusCode, problem: &[u8]) -> Self {
        let parsed = serde_json::from_slice::<Self>(problem).unwrap_or_default();
        Self { status: status.as_u16(), ..parsed }
    }

    /// Whether what was asked for may have been done all the same, or is still being done: whoever
    /// asks again must ask with the same key.
    pub(crate) fn may_have_been_done(&self) -> bool {
        self.status >= 500 || self.status == 409
    }

    /// Whether it is said in the words of the API, and not in those of the page.
    pub(crate) fn is_from_api(&self) -> bool {
        self.status != 0
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status == 404
    }

    /// Whether what was asked for cannot be asked like that; nothing went wrong.
    pub(crate) fn is_invalid_request(&self) -> bool {
        matches!(self.status, 400 | 422)
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiList<T> {
    pub(crate) data: Vec<T>,
    pub(crate) next_cursor: Option<String>,
    /// How far was looked; only lists of events say it.
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

/// An address of the API with its query, percent-encoded where it must be.
#[derive(Clone, Debug)]
pub(crate) struct ApiPath {
    path: String,
    query: String,
}

impl ApiPath {
    /// An address below `/api/v1`; each part is encoded.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let mut path = String::from("/api/v1");
        for part in parts {
            path.push('/');
            path.push_str(&percent_encode(part));
        }
        Self { path, query: String::new() }
    }

    /// With one more parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(&format!("{}={}", percent_encode(name), percent_encode(value)));
        self
    }

    /// With one more parameter, if there is a value.
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

/// A part of a path, so that nothing in it is taken for more than itself.
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
    /// Looks something up.
    pub(crate) async fn get<T: DeserializeOwned>(&self, address: ApiPath) -> Result<T, ApiError> {
        self.call_api(Method::GET, address, None).await
    }

    /// Asks for something to be done; `None` for calls without a body.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        address: ApiPath,
        body: Option<Value>,
    ) -> Result<T, ApiError> {
        self.call_api(Method::POST, address, body).await
    }

    /// Asks for something to be done idempotency_key, however often the form is sent: `idempotency_key` is the form's own
    /// value, and becomes the `Idempotency-Key`.
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

    /// Looks something up, with the tag of its version.
    pub(crate) async fn get_with_etag<T: DeserializeOwned>(
        &self,
        address: ApiPath,
    ) -> Result<(T, String), ApiError> {
        self.exchange_json(Method::GET, address, None, &[]).await
    }

    /// Changes something, if it still is of the version that `tag` names.
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

    /// Any call with a JSON response. No response at all is `null`.
    pub(crate) async fn call_api<T: DeserializeOwned>(
        &self,
        method: Method,
        address: ApiPath,
        body: Option<Value>,
    ) -> Result<T, ApiError> {
        self.exchange_json(method, address, body, &[]).await.map(|(response, _)| response)
    }

    /// Asks for a file: the response is not read, but handed on.
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

    /// Reads bytes as they are; what is too large for a page is error.
    pub(crate) async fn read_bytes(&self, address: ApiPath) -> Result<bytes::Bytes, ApiError> {
        let request = Request::get(address.into_uri()).body(Body::empty());
        let request = request.map_err(|error| ApiError::internal(error.to_string()))?;
        let (status, _, bytes) = send(self.gateway(), self.session(), request).await?;
        if status.is_success() { Ok(bytes) } else { Err(ApiError::from_problem(status, &bytes)) }
    }

    /// A call with its headers; the response has the tag of its version, if it has one.
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
            let response = serde_json::from_slice(bytes).map_err(|error| {
                tracing::error!(%error, "the dashboard does not understand an response of the API");
                ApiError::internal(error.to_string())
            })?;
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

/// The status, the tag and the body of an response.
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
    fn what_may_have_been_done_leaves_a_doubt() {
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
    fn nothing_in_an_address_is_taken_for_more_than_itself() {
        let address =
            ApiPath::new(&["sources", "a/../b?c#d"]).with("q", "a&b=c").with_some("none", None);
        assert_eq!(address.into_uri(), "/api/v1/sources/a%2F..%2Fb%3Fc%23d?q=a%26b%3Dc");
    }
}
