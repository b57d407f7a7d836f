//! Client of the API: over HTTP, or directly on a data folder with `--data`.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use crate::{cli::GatewayArgs, data_folder::DataFolder, error::CliError};

/// Larger responses cannot come from a gateway.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Larger stream events cannot come from a gateway.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// For uploads, which the gateway forwards before it responds.
const UPLOAD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

pub(crate) struct ApiClient {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: String,
    /// Read this data folder instead of calling a server.
    folder: Option<DataFolder>,
}

impl ApiClient {
    pub(crate) fn new(remote: &GatewayArgs) -> Result<Self, CliError> {
        if let Some(data) = &remote.data {
            return Ok(Self { folder: Some(DataFolder::open(data)?), ..Self::with_token("", "") });
        }
        let token =
            remote.token.clone().or_else(|| crate::settings::environment("SUREHOOK_ADMIN_TOKEN"));
        let token = token.ok_or_else(|| CliError::unauthenticated(anyhow!("no token")))?;
        Ok(Self::with_token(&remote.server, &token))
    }

    /// A client with the given token, which may be empty.
    pub(crate) fn with_token(server: &str, token: &str) -> Self {
        let mut tls = (*surehook_engine::tls::TrustStore::from_system().default_config()).clone();
        // The connector panics unless it sets the protocols itself.
        tls.alpn_protocols.clear();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let http = HyperClient::builder(TokioExecutor::new()).build(connector);
        let base = server.trim_end_matches('/').to_owned();
        Self { http, base, token: token.to_owned(), folder: None }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.call(Method::GET, path, None).await
    }

    /// Gets a response that is not JSON.
    pub(crate) async fn get_bytes(&self, path: &str) -> Result<Bytes, CliError> {
        let (status, bytes) = self.send_or_read(Method::GET, path, None).await?;
        match status.is_success() {
            true => Ok(bytes),
            false => self.parse_response(status, &bytes).map(|_| Bytes::new()),
        }
    }

    pub(crate) async fn post(&self, path: &str) -> Result<Value, CliError> {
        self.call(Method::POST, path, None).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// POST with an `Idempotency-Key`.
    pub(crate) async fn post_idempotent(
        &self,
        path: &str,
        body: String,
        key: &str,
    ) -> Result<Value, CliError> {
        if self.folder.is_some() {
            return self.post(path).await;
        }
        let mut request = self.request(Method::POST, path, None)?;
        let key = key.parse().context("invalid idempotency key")?;
        request.headers_mut().insert("idempotency-key", key);
        *request.body_mut() = Full::new(Bytes::from(body));
        let (status, bytes) = self.exchange(request).await?;
        self.parse_response(status, &bytes)
    }

    /// Uploads a file with an `Idempotency-Key`.
    pub(crate) async fn upload(
        &self,
        path: &str,
        file: Vec<u8>,
        key: &str,
    ) -> Result<Value, CliError> {
        let mut request = self.request(Method::POST, path, None)?;
        let headers = request.headers_mut();
        headers.insert("idempotency-key", key.parse().context("invalid idempotency key")?);
        // The gateway detects the media type.
        let unknown = header::HeaderValue::from_static("application/octet-stream");
        headers.insert(header::CONTENT_TYPE, unknown);
        *request.body_mut() = Full::new(Bytes::from(file));
        let response = self.send_within(request, UPLOAD_TIMEOUT).await?;
        let status = response.status();
        let bytes = self.read_bytes(response.into_body()).await?;
        self.parse_response(status, &bytes)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.call(Method::DELETE, path, None).await
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Opens the stream of live updates after the one with the id `last_id`.
    pub(crate) async fn stream(
        &self,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<EventStream, CliError> {
        let mut request = self.request(Method::GET, path, None)?;
        if let Some(id) = last_id {
            request.headers_mut().insert("last-event-id", id.parse().context("invalid event id")?);
        }
        let response = self.send(request).await?;
        let (status, body) = (response.status(), response.into_body());
        if status.is_success() {
            return Ok(EventStream { body, buffer: Vec::new() });
        }
        let bytes = self.read_bytes(body).await?;
        self.parse_response(status, &bytes)
            .and_then(|_| Err(CliError::unreachable(anyhow!("the gateway opened no stream"))))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CliError> {
        let (status, bytes) = self.send_or_read(method, path, body).await?;
        self.parse_response(status, &bytes)
    }

    async fn send_or_read(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), CliError> {
        match &self.folder {
            Some(folder) => folder.call(&method, path).await,
            None => self.exchange(self.request(method, path, body)?).await,
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, CliError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.base))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))
            .with_context(|| format!("`{}` is not a URL", self.base))?;
        Ok(request)
    }

    /// Sends a request; error statuses are not turned into errors.
    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), CliError> {
        let response = self.send(request).await?;
        let status = response.status();
        Ok((status, self.read_bytes(response.into_body()).await?))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, CliError> {
        self.send_within(request, TIMEOUT).await
    }

    async fn send_within(
        &self,
        request: Request<Full<Bytes>>,
        limit: std::time::Duration,
    ) -> Result<Response<Incoming>, CliError> {
        tokio::time::timeout(limit, self.http.request(request))
            .await
            .map_err(|_| CliError::unreachable(anyhow!("{} did not respond in time", self.base)))?
            .with_context(|| format!("cannot reach {}", self.base))
            .map_err(CliError::unreachable)
    }

    async fn read_bytes(&self, body: Incoming) -> Result<Bytes, CliError> {
        let whole = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let whole = whole
            .map_err(|error| CliError::unreachable(anyhow!("the response was cut off: {error}")))?;
        Ok(whole.to_bytes())
    }

    fn parse_response(&self, status: StatusCode, bytes: &[u8]) -> Result<Value, CliError> {
        let value: Value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(bytes).map_err(|_| {
                CliError::unreachable(anyhow!("{} is not a Surehook gateway", self.base))
            })?
        };
        if status.is_success() { Ok(value) } else { Err(response_error(status, &value)) }
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

fn response_error(status: StatusCode, problem: &Value) -> CliError {
    let detail = problem["detail"].as_str().unwrap_or("the gateway gave no details").to_owned();
    let error = anyhow!("{detail} ({status})");
    match status {
        StatusCode::UNAUTHORIZED => CliError::unauthenticated(error),
        StatusCode::FORBIDDEN => CliError::forbidden(error),
        StatusCode::NOT_FOUND => CliError::not_found(error),
        status if status.is_client_error() => CliError::refused(error),
        _ => CliError::from(error),
    }
}

/// Builds a query string from the parameters that are set.
pub(crate) fn query_string(pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    format!("?{}", query.finish())
}
