//! Talks to a running gateway through its API.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use crate::{cli::Remote, failure::Failure, folder::Folder};

/// An answer larger than this is not one of ours.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

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
        let mut tls = (*surehook_engine::tls::Trust::of_system().usual()).clone();
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

    pub(crate) async fn post(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::POST, path, None).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Method::POST, path, Some(body)).await
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

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        if let Some(folder) = &self.folder {
            let (status, bytes) = folder.call(&method, path).await?;
            return self.read(status, &bytes);
        }
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.base))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))
            .with_context(|| format!("`{}` is not an address", self.base))?;
        let (status, bytes) = self.exchange(request).await?;
        self.read(status, &bytes)
    }

    /// Sends any request; what comes back is not judged.
    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let answer = tokio::time::timeout(TIMEOUT, self.http.request(request))
            .await
            .map_err(|_| Failure::unreachable(anyhow!("{} did not answer in time", self.base)))?
            .with_context(|| format!("cannot reach {}", self.base))
            .map_err(Failure::unreachable)?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| Failure::unreachable(anyhow!("the answer broke off: {error}")))?
            .to_bytes();
        Ok((status, bytes))
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
