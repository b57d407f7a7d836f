//! Talks to a running gateway through its API.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use crate::{cli::Remote, failure::Failure, folder::Folder};

/// An answer larger than this is not one of ours.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// An event of a stream larger than this is not one of ours.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// The same for a file, which goes on from the gateway before there is an answer.
const UPLOAD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

pub(crate) struct Client {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: String,
    /// A data folder to look into instead.
    folder: Option<Folder>,
}

impl Client {
    pub(crate) fn new(remote: &Remote) -> Result<Self, Failure> {
        if let Some(data) = &remote.data {
            return Ok(Self { folder: Some(Folder::open(data)?), ..Self::anonymous("", "") });
        }
        let token =
            remote.token.clone().or_else(|| crate::settings::environment("SUREHOOK_ADMIN_TOKEN"));
        let token = token.ok_or_else(|| Failure::unauthenticated(anyhow!("no token was given")))?;
        Ok(Self::anonymous(&remote.server, &token))
    }

    /// A client for addresses that want no token, or the given one.
    pub(crate) fn anonymous(server: &str, token: &str) -> Self {
        let mut tls = (*surehook_engine::tls::TrustStore::from_system().default_config()).clone();
        // The connector names the protocols itself, and insists on it.
        tls.alpn_protocols.clear();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let http = HttpClient::builder(TokioExecutor::new()).build(connector);
        let base = server.trim_end_matches('/').to_owned();
        Self { http, base, token: token.to_owned(), folder: None }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// An answer that is not ours to read.
    pub(crate) async fn get_bytes(&self, path: &str) -> Result<Bytes, Failure> {
        let (status, bytes) = self.answer(Method::GET, path, None).await?;
        match status.is_success() {
            true => Ok(bytes),
            false => self.read(status, &bytes).map(|_| Bytes::new()),
        }
    }

    pub(crate) async fn post(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::POST, path, None).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Asks for something that is done once, however often it is asked for with this key.
    pub(crate) async fn post_once(
        &self,
        path: &str,
        body: String,
        key: &str,
    ) -> Result<Value, Failure> {
        if self.folder.is_some() {
            return self.post(path).await;
        }
        let mut request = self.request(Method::POST, path, None)?;
        let key = key.parse().context("this cannot be an idempotency key")?;
        request.headers_mut().insert("idempotency-key", key);
        *request.body_mut() = Full::new(Bytes::from(body));
        let (status, bytes) = self.exchange(request).await?;
        self.read(status, &bytes)
    }

    /// Hands a file over, once for each key.
    pub(crate) async fn upload(
        &self,
        path: &str,
        file: Vec<u8>,
        key: &str,
    ) -> Result<Value, Failure> {
        let mut request = self.request(Method::POST, path, None)?;
        let headers = request.headers_mut();
        headers
            .insert("idempotency-key", key.parse().context("this cannot be an idempotency key")?);
        // What it is, the gateway sees by itself.
        let unknown = header::HeaderValue::from_static("application/octet-stream");
        headers.insert(header::CONTENT_TYPE, unknown);
        *request.body_mut() = Full::new(Bytes::from(file));
        let answer = self.send_within(request, UPLOAD_TIMEOUT).await?;
        let status = answer.status();
        let bytes = self.bytes(answer.into_body()).await?;
        self.read(status, &bytes)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::DELETE, path, None).await
    }

    /// The address of the gateway.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Opens the stream of news, after the one with the id `last_id`.
    pub(crate) async fn stream(
        &self,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<Events, Failure> {
        let mut request = self.request(Method::GET, path, None)?;
        if let Some(id) = last_id {
            request.headers_mut().insert("last-event-id", id.parse().context("not an id")?);
        }
        let answer = self.send(request).await?;
        let (status, body) = (answer.status(), answer.into_body());
        if status.is_success() {
            return Ok(Events { body, read: Vec::new() });
        }
        let bytes = self.bytes(body).await?;
        self.read(status, &bytes).and_then(|_| Err(Failure::unreachable(anyhow!("no stream"))))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let (status, bytes) = self.answer(method, path, body).await?;
        self.read(status, &bytes)
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), Failure> {
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
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.base))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))
            .with_context(|| format!("`{}` is not an address", self.base))?;
        Ok(request)
    }

    /// Sends any request; what comes back is not judged.
    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let answer = self.send(request).await?;
        let status = answer.status();
        Ok((status, self.bytes(answer.into_body()).await?))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        self.send_within(request, TIMEOUT).await
    }

    async fn send_within(
        &self,
        request: Request<Full<Bytes>>,
        limit: std::time::Duration,
    ) -> Result<Response<Incoming>, Failure> {
        tokio::time::timeout(limit, self.http.request(request))
            .await
            .map_err(|_| Failure::unreachable(anyhow!("{} did not answer in time", self.base)))?
            .with_context(|| format!("cannot reach {}", self.base))
            .map_err(Failure::unreachable)
    }

    async fn bytes(&self, body: Incoming) -> Result<Bytes, Failure> {
        let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let whole = whole
            .map_err(|error| Failure::unreachable(anyhow!("the answer broke off: {error}")))?;
        Ok(whole.to_bytes())
    }

    fn read(&self, status: StatusCode, bytes: &[u8]) -> Result<Value, Failure> {
        let value: Value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(bytes).map_err(|_| {
                Failure::unreachable(anyhow!("{} is not a surehook gateway", self.base))
            })?
        };
        if status.is_success() { Ok(value) } else { Err(refusal(status, &value)) }
    }
}

/// One server-sent event.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// A stream of them.
pub(crate) struct Events {
    body: Incoming,
    read: Vec<u8>,
}

impl Events {
    /// The next one, also one with an id alone; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(end) = self.read.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.read.drain(..end + 2).collect();
                return Ok(Some(event(&String::from_utf8_lossy(&block))));
            }
            if self.read.len() > EVENT_BYTES_MAX {
                return Err(Failure::unreachable(anyhow!("this is not a stream of ours")));
            }
            // A heartbeat comes every few seconds: silence means that nobody is there.
            let Ok(Some(Ok(frame))) = tokio::time::timeout(TIMEOUT, self.body.frame()).await else {
                return Ok(None);
            };
            if let Some(data) = frame.data_ref() {
                self.read.extend_from_slice(data);
            }
        }
    }
}

fn event(block: &str) -> Event {
    let mut event = Event::default();
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

fn refusal(status: StatusCode, problem: &Value) -> Failure {
    let detail = problem["detail"].as_str().unwrap_or("the gateway gave no reason").to_owned();
    let error = anyhow!("{detail} ({status})");
    match status {
        StatusCode::UNAUTHORIZED => Failure::unauthenticated(error),
        StatusCode::FORBIDDEN => Failure::forbidden(error),
        StatusCode::NOT_FOUND => Failure::not_found(error),
        status if status.is_client_error() => Failure::refused(error),
        _ => Failure::from(error),
    }
}

/// A query string from what is given.
pub(crate) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    format!("?{}", query.finish())
}
