//! Calls of the API, as a page makes them.

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    gateway::{Caller, Gateway},
    visitor::Visitor,
};

/// The largest answer that a page reads. Bodies are larger and are not read by pages.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What the API said when it did not do what was asked.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Trouble {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) detail: String,
}

impl Trouble {
    fn ours(detail: impl Into<String>) -> Self {
        Self { status: 500, detail: detail.into() }
    }

    /// As the API said it.
    fn told(status: StatusCode, problem: &[u8]) -> Self {
        let told = serde_json::from_slice::<Self>(problem).unwrap_or_default();
        Self { status: status.as_u16(), ..told }
    }

    /// Whether what was asked for may have been done all the same, or is still being done: whoever
    /// asks again must ask with the same key.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        self.status >= 500 || self.status == 409
    }

    /// Whether it is said in the words of the API, and not in those of the page.
    pub(crate) fn is_foreign(&self) -> bool {
        self.status != 0
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status == 404
    }

    /// Whether what was asked for cannot be asked like that; nothing went wrong.
    pub(crate) fn is_about_what_was_asked(&self) -> bool {
        matches!(self.status, 400 | 422)
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct List<T> {
    pub(crate) data: Vec<T>,
    pub(crate) next_cursor: Option<String>,
    /// How far was looked; only lists of events say it.
    pub(crate) searched: Option<Searched>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Searched {
    pub(crate) events: u64,
    pub(crate) until: Option<String>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { data: Vec::new(), next_cursor: None, searched: None }
    }
}

/// An address of the API with its query, percent-encoded where it must be.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    path: String,
    query: String,
}

impl Address {
    /// An address below `/api/v1`; each part is encoded.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let mut path = String::from("/api/v1");
        for part in parts {
            path.push('/');
            path.push_str(&encode(part));
        }
        Self { path, query: String::new() }
    }

    /// With one more parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(&format!("{}={}", encode(name), encode(value)));
        self
    }

    /// With one more parameter, if there is a value.
    pub(crate) fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) if !value.is_empty() => self.with(name, value),
            _ => self,
        }
    }

    fn finish(self) -> String {
        if self.query.is_empty() { self.path } else { format!("{}?{}", self.path, self.query) }
    }
}

/// A part of a path, so that nothing in it is taken for more than itself.
pub(crate) fn encode(part: &str) -> String {
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

impl Visitor {
    /// Looks something up.
    pub(crate) async fn get<T: DeserializeOwned>(&self, address: Address) -> Result<T, Trouble> {
        self.call(Method::GET, address, None).await
    }

    /// Asks for something to be done; `None` for calls without a body.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        address: Address,
        body: Option<Value>,
    ) -> Result<T, Trouble> {
        self.call(Method::POST, address, body).await
    }

    /// Asks for something to be done once, however often the form is sent: `once` is the form's own
    /// value, and becomes the `Idempotency-Key`.
    pub(crate) async fn post_once<T: DeserializeOwned>(
        &self,
        address: Address,
        body: Option<Value>,
        once: &str,
    ) -> Result<T, Trouble> {
        let once = [("idempotency-key", once)];
        self.exchange(Method::POST, address, body, &once).await.map(|(answer, _)| answer)
    }

    /// Looks something up, with the tag of its version.
    pub(crate) async fn get_tagged<T: DeserializeOwned>(
        &self,
        address: Address,
    ) -> Result<(T, String), Trouble> {
        self.exchange(Method::GET, address, None, &[]).await
    }

    /// Changes something, if it still is of the version that `tag` names.
    pub(crate) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        address: Address,
        body: Option<Value>,
        tag: &str,
    ) -> Result<T, Trouble> {
        self.exchange(method, address, body, &[("if-match", tag)]).await.map(|(answer, _)| answer)
    }

    /// Any call with a JSON answer. No answer at all is `null`.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        address: Address,
        body: Option<Value>,
    ) -> Result<T, Trouble> {
        self.exchange(method, address, body, &[]).await.map(|(answer, _)| answer)
    }

    /// Asks for a file: the answer is not read, but handed on.
    pub(crate) async fn fetch(&self, address: Address) -> Result<Response<Body>, Trouble> {
        let request = Request::get(address.finish()).body(Body::empty());
        let request = request.map_err(|error| Trouble::ours(error.to_string()))?;
        let answer = self.gateway().call(self.caller(), request).await;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (status, _, bytes) = whole(answer).await?;
        Err(Trouble::told(status, &bytes))
    }

    /// Reads bytes as they are; what is too large for a page is trouble.
    pub(crate) async fn read(&self, address: Address) -> Result<bytes::Bytes, Trouble> {
        let request = Request::get(address.finish()).body(Body::empty());
        let request = request.map_err(|error| Trouble::ours(error.to_string()))?;
        let (status, _, bytes) = send(self.gateway(), self.caller(), request).await?;
        if status.is_success() { Ok(bytes) } else { Err(Trouble::told(status, &bytes)) }
    }

    /// A call with its headers; the answer has the tag of its version, if it has one.
    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        address: Address,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Result<(T, String), Trouble> {
        let mut request = Request::builder().method(method).uri(address.finish());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).map_err(|error| Trouble::ours(error.to_string()))?;
        let (status, tag, bytes) = send(self.gateway(), self.caller(), request).await?;
        if status.is_success() {
            let bytes = if bytes.is_empty() { b"null".as_slice() } else { &bytes };
            let answer = serde_json::from_slice(bytes).map_err(|error| {
                tracing::error!(%error, "the dashboard does not understand an answer of the API");
                Trouble::ours(error.to_string())
            })?;
            return Ok((answer, tag));
        }
        Err(Trouble::told(status, &bytes))
    }
}

async fn send(
    gateway: &dyn Gateway,
    caller: &Caller,
    request: Request<Body>,
) -> Result<(StatusCode, String, bytes::Bytes), Trouble> {
    whole(gateway.call(caller, request).await).await
}

/// The status, the tag and the body of an answer.
async fn whole(answer: Response<Body>) -> Result<(StatusCode, String, bytes::Bytes), Trouble> {
    let status = answer.status();
    let tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.unwrap_or_default().to_owned();
    let body = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(|error| Trouble::ours(error.to_string()))?;
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
            let trouble = Trouble { status, ..Trouble::default() };
            assert_eq!(trouble.leaves_in_doubt(), expected, "case: {status}");
        }
    }

    #[test]
    fn nothing_in_an_address_is_taken_for_more_than_itself() {
        let address =
            Address::new(&["sources", "a/../b?c#d"]).with("q", "a&b=c").with_some("none", None);
        assert_eq!(address.finish(), "/api/v1/sources/a%2F..%2Fb%3Fc%23d?q=a%26b%3Dc");
    }
}
