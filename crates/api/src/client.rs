//! API calls as values, and the trait of a transport that sends them to a gateway.

use std::{fmt::Write as _, marker::PhantomData};

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, header};
use serde::{Serialize, de::DeserializeOwned};

use crate::ProblemBody;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A call of the API whose response is a `T`.
#[derive(Clone, Debug)]
pub struct ApiCall<T> {
    method: Method,
    /// Path and query, percent-encoded.
    path: String,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
    response: PhantomData<fn() -> T>,
}

impl<T> ApiCall<T> {
    /// A call of a path below `/api/v1`; each segment is encoded.
    pub(crate) fn new(method: Method, segments: &[&str]) -> Self {
        let mut path = String::from("/api/v1");
        for segment in segments {
            path.push('/');
            path.push_str(&percent_encode(segment));
        }
        Self { method, path, headers: Vec::new(), body: Bytes::new(), response: PhantomData }
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        // Request types always serialize.
        self.body("application/json", serde_json::to_vec(body).unwrap_or_default())
    }

    pub(crate) fn body(mut self, media_type: &str, body: Vec<u8>) -> Self {
        self.body = Bytes::from(body);
        self.with_header(header::CONTENT_TYPE, media_type)
    }

    fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Adds a query parameter.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(&format!("{}={}", percent_encode(name), percent_encode(value)));
        self
    }

    /// Adds a query parameter unless the value is missing or empty.
    #[must_use]
    pub fn query_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) if !value.is_empty() => self.query(name, value),
            _ => self,
        }
    }

    /// Executes the call once, however often it is sent with this key.
    #[must_use]
    pub fn idempotent(self, key: &str) -> Self {
        self.with_header(IDEMPOTENCY_KEY, key)
    }

    /// Changes the resource only if its `ETag` still is `tag`.
    #[must_use]
    pub fn if_match(self, tag: &str) -> Self {
        self.with_header(header::IF_MATCH, tag)
    }

    /// The request; its URI has no host.
    pub fn into_request(self) -> Result<Request<Bytes>, http::Error> {
        let mut request = Request::builder().method(self.method).uri(self.path);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(self.body)
    }
}

/// Encodes everything except unreserved characters.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A value is not allowed in a header.
    #[error("{0}")]
    InvalidRequest(#[from] http::Error),
    /// The gateway answered with an error.
    #[error("{detail} ({status})")]
    Problem { status: StatusCode, code: String, detail: String },
    /// The response is not of the expected type.
    #[error("unexpected response: {0}")]
    UnexpectedResponse(#[from] serde_json::Error),
}

impl CallError {
    /// The error in a response without success.
    pub fn from_response(status: StatusCode, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(ProblemBody { code, detail, .. }) => Self::Problem { status, code, detail },
            Err(_) => Self::Problem { status, code: String::new(), detail: String::new() },
        }
    }
}

/// Sends calls to a gateway.
pub trait ApiTransport: Sync {
    type Error: From<CallError> + Send;

    /// Sends a request whose URI has no host. Error statuses are not turned into errors.
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Bytes>, Self::Error>> + Send;

    /// Makes a call and returns its response; an error status is an error.
    fn call_raw<T>(
        &self,
        call: ApiCall<T>,
    ) -> impl Future<Output = Result<Response<Bytes>, Self::Error>> + Send {
        async {
            let response = self.send(call.into_request().map_err(CallError::from)?).await?;
            match response.status() {
                status if status.is_success() => Ok(response),
                status => Err(CallError::from_response(status, response.body()).into()),
            }
        }
    }

    /// Makes a call and parses its response; an empty response is `null`.
    fn call<T: DeserializeOwned>(
        &self,
        call: ApiCall<T>,
    ) -> impl Future<Output = Result<T, Self::Error>> + Send {
        async { self.call_versioned(call).await.map(|(value, _)| value) }
    }

    /// Makes a call and returns its response and the `ETag` of the resource.
    fn call_versioned<T: DeserializeOwned>(
        &self,
        call: ApiCall<T>,
    ) -> impl Future<Output = Result<(T, String), Self::Error>> + Send {
        async {
            let response = self.call_raw(call).await?;
            let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
            let tag = tag.unwrap_or_default().to_owned();
            let body = response.body();
            let body = if body.is_empty() { b"null".as_slice() } else { body };
            Ok((serde_json::from_slice(body).map_err(CallError::from)?, tag))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_and_parameters_are_percent_encoded() {
        let call = ApiCall::<()>::new(Method::GET, &["sources", "a/../b?c#d"]);
        let request = call.query("q", "a&b=c").query_some("none", None).into_request().unwrap();
        assert_eq!(request.uri(), "/api/v1/sources/a%2F..%2Fb%3Fc%23d?q=a%26b%3Dc");
    }
}
