//! Client of the API: over HTTP, or directly on a store with `--data` or `--database`.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use surehook_api::{ApiCall, ApiTransport, CallError, ProblemBody};
use tokio::sync::OnceCell;

use crate::{
    backend::{DirectApi, StoreLocation},
    cli::GatewayArgs,
    error::CliError,
};

/// Larger responses cannot come from a gateway.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Larger stream events cannot come from a gateway.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// A plain HTTP client, which follows no redirects.
pub(crate) type HttpClient = HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(crate) fn new_http_client() -> HttpClient {
    let mut tls = (*surehook_engine::tls::TrustStore::from_system().default_config()).clone();
    // The connector panics unless it sets the protocols itself.
    tls.alpn_protocols.clear();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    HyperClient::builder(TokioExecutor::new()).build(connector)
}

pub(crate) struct ApiClient {
    http: HttpClient,
    base: String,
    token: String,
    /// Read this store instead of calling a server.
    direct: Option<StoreLocation>,
    /// The store, from the first call on.
    opened: OnceCell<DirectApi>,
}

impl ApiClient {
    pub(crate) fn new(remote: &GatewayArgs) -> Result<Self, CliError> {
        let direct = StoreLocation::of_gateway_args(remote);
        if direct.is_some() {
            return Ok(Self { direct, ..Self::with_token("", "") });
        }
        let token =
            remote.token.clone().or_else(|| crate::settings::environment("SUREHOOK_ADMIN_TOKEN"));
        let token = token.ok_or_else(|| CliError::unauthenticated(anyhow!("no token")))?;
        Ok(Self::with_token(&remote.server, &token))
    }

    /// A client with the given token, which may be empty.
    pub(crate) fn with_token(server: &str, token: &str) -> Self {
        let base = server.trim_end_matches('/').to_owned();
        let (direct, opened) = (None, OnceCell::new());
        Self { http: new_http_client(), base, token: token.to_owned(), direct, opened }
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base
    }

    /// Makes a call and returns its response as JSON, for commands that only print it.
    pub(crate) async fn call_json<T>(&self, call: ApiCall<T>) -> Result<Value, CliError> {
        let response = self.call_raw(call).await?;
        Ok(serde_json::from_slice(response.body()).map_err(CallError::from)?)
    }

    /// Opens the stream of live updates after the one with the id `last_id`.
    pub(crate) async fn stream<T>(
        &self,
        call: ApiCall<T>,
        last_id: Option<&str>,
    ) -> Result<EventStream, CliError> {
        let mut request = self.add_host_and_token(call.into_request()?)?;
        if let Some(id) = last_id {
            request.headers_mut().insert("last-event-id", id.parse().context("invalid event id")?);
        }
        let response = self.send_within(request, TIMEOUT).await?;
        let (status, body) = (response.status(), response.into_body());
        if status.is_success() {
            return Ok(EventStream { body, buffer: Vec::new() });
        }
        Err(CallError::from_response(status, &self.read_bytes(body).await?).into())
    }

    /// Adds the host and the token to a request.
    fn add_host_and_token(
        &self,
        request: Request<Bytes>,
    ) -> Result<Request<Full<Bytes>>, CliError> {
        let mut request = request.map(Full::new);
        *request.uri_mut() = format!("{}{}", self.base, request.uri())
            .parse()
            .with_context(|| format!("`{}` is not a URL", self.base))?;
        let token = format!("Bearer {}", self.token).parse().context("invalid token")?;
        request.headers_mut().insert(header::AUTHORIZATION, token);
        Ok(request)
    }

    /// Sends a request to any URL; error statuses are not turned into errors.
    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, CliError> {
        // The gateway forwards an upload before it responds.
        let is_upload = request.uri().path().ends_with("/media");
        let limit = if is_upload { UPLOAD_TIMEOUT } else { TIMEOUT };
        let (head, body) = self.send_within(request, limit).await?.into_parts();
        Ok(Response::from_parts(head, self.read_bytes(body).await?))
    }

    async fn send_within(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, CliError> {
        tokio::time::timeout(limit, self.http.request(request))
            .await
            .map_err(|_| CliError::unreachable(anyhow!("{} did not respond in time", self.base)))?
            .with_context(|| format!("cannot reach {}", self.base))
            .map_err(CliError::unreachable)
    }

    async fn read_bytes(&self, body: Incoming) -> Result<Bytes, CliError> {
        let collected = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let collected = collected
            .map_err(|error| CliError::unreachable(anyhow!("the response was cut off: {error}")))?;
        Ok(collected.to_bytes())
    }
}

impl ApiTransport for ApiClient {
    type Error = CliError;

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, CliError> {
        if let Some(location) = &self.direct {
            let api = self.opened.get_or_try_init(|| DirectApi::open(location)).await?;
            return api.send(&request).await;
        }
        let response = self.exchange(self.add_host_and_token(request)?).await?;
        let is_problem = || serde_json::from_slice::<ProblemBody>(response.body()).is_ok();
        if response.status().is_success() || is_problem() {
            return Ok(response);
        }
        Err(CliError::unreachable(anyhow!("{} is not a Surehook gateway", self.base)))
    }
}

/// One server-sent event.
#[derive(Debug, Default)]
pub(crate) struct ServerSentEvent {
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// A stream of server-sent events.
pub(crate) struct EventStream {
    body: Incoming,
    buffer: Vec<u8>,
}

impl EventStream {
    /// The next event, which may have only an id; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<ServerSentEvent>, CliError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(Some(parse_event(&String::from_utf8_lossy(&block))));
            }
            if self.buffer.len() > EVENT_BYTES_MAX {
                return Err(CliError::unreachable(anyhow!(
                    "the stream is not from a Surehook gateway"
                )));
            }
            // Heartbeats come every few seconds: a silent connection is broken.
            let Ok(Some(Ok(frame))) = tokio::time::timeout(TIMEOUT, self.body.frame()).await else {
                return Ok(None);
            };
            if let Some(data) = frame.data_ref() {
                self.buffer.extend_from_slice(data);
            }
        }
    }
}

fn parse_event(block: &str) -> ServerSentEvent {
    let mut event = ServerSentEvent::default();
    for (field, value) in block.lines().filter_map(|line| line.split_once(':')) {
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut event.kind),
            "id" => event.id = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            _ => {}
        }
    }
    event
}
