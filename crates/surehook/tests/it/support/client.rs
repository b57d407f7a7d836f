//! A small HTTP client that reads each response to its end.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use super::WAIT_LIMIT;

#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Parses the body as JSON; anything else fails the test.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {} {:?}", self.status, self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header as text; empty if absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The `code` of a problem.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text());
        self.json()["code"].as_str().unwrap().to_owned()
    }

    /// The `detail` of a problem.
    #[track_caller]
    pub(crate) fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }

    /// The id of the first event of an accepted webhook.
    #[track_caller]
    pub(crate) fn event_id(&self) -> String {
        self.json()["events"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Asserts the status and returns the response.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "the response is {}", self.text());
        self
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Client(HyperClient<HttpConnector, Full<Bytes>>);

impl Client {
    pub(crate) fn new() -> Self {
        // Without idle connections: the gateway may close one just when it is used again.
        Self(HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http())
    }

    /// Sends a request. Header values are bytes because some tests send headers that are not text.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &[u8])],
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, String> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).map_err(|error| error.to_string())?;
        let exchange = async {
            let response = self.0.request(request).await.map_err(|error| error.to_string())?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok(HttpResponse { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(WAIT_LIMIT, exchange).await.map_err(|_| "no response".to_owned())?
    }
}
