//! A web application on a free port, and requests to it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Extension, Router, extract::Request, response::Response, routing::any};
use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use surehook_dedup::{DedupLock, MemoryDedupLock, SqliteDedupConfig, SqliteDedupLock};
use surehook_tower::{IdempotencyLayer, RequestClaim};
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// A store, and the folder that holds it.
pub(crate) struct TestStore {
    pub(crate) name: &'static str,
    pub(crate) lock: Arc<dyn DedupLock>,
    _folder: TempDir,
}

/// One of each backend that needs no server.
pub(crate) fn stores() -> [TestStore; 2] {
    let (memory, sqlite) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = open_sqlite(sqlite.path());
    [
        TestStore { name: "memory", lock: Arc::new(MemoryDedupLock::default()), _folder: memory },
        TestStore { name: "sqlite", lock: Arc::new(file), _folder: sqlite },
    ]
}

pub(crate) fn open_sqlite(folder: &Path) -> SqliteDedupLock {
    SqliteDedupLock::open(SqliteDedupConfig::new(folder.join("dedup.db"))).unwrap()
}

/// Counts the executions of a handler and holds them until the gate opens.
pub(crate) struct HandlerProbe {
    pub(crate) executions: AtomicUsize,
    /// One permit for each execution that started.
    starts: Semaphore,
    gate: Semaphore,
}

impl HandlerProbe {
    pub(crate) fn with_open_gate() -> Arc<Self> {
        let probe = Self::with_closed_gate();
        probe.open_gate();
        probe
    }

    pub(crate) fn with_closed_gate() -> Arc<Self> {
        let gate = Semaphore::new(0);
        Arc::new(Self { executions: AtomicUsize::new(0), starts: Semaphore::new(0), gate })
    }

    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    pub(crate) fn count(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }

    /// Counts an execution and returns its number once the gate is open.
    pub(crate) async fn run(&self) -> usize {
        let number = self.executions.fetch_add(1, Ordering::SeqCst) + 1;
        self.starts.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        number
    }

    /// Returns when one more execution has started.
    pub(crate) async fn wait_for_start(&self) {
        self.starts.acquire().await.unwrap().forget();
    }
}

/// A response, read completely.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn is_replayed(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
    }

    /// Status and code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        (self.status, problem["code"].as_str().unwrap().to_owned())
    }
}

#[derive(Clone)]
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    client: Client<HttpConnector, BoxBody<Bytes, Infallible>>,
}

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    is_chunked: bool,
}

impl TestRequest {
    /// A POST with a key.
    pub(crate) fn keyed(key: &str) -> Self {
        Self::new(Method::POST, "/orders").header("idempotency-key", key).body("{}")
    }

    pub(crate) fn new(method: Method, path: &str) -> Self {
        let (headers, body) = (Vec::new(), Bytes::new());
        Self { method, path: path.to_owned(), headers, body, is_chunked: false }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sends the body without a declared length.
    pub(crate) fn chunked(mut self) -> Self {
        self.is_chunked = true;
        self
    }
}

impl TestServer {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self::at(address)
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// A server whose handler answers with the number of the execution, path and body of the request, and
    /// the operation of its claim.
    pub(crate) async fn counting(layer: IdempotencyLayer, probe: &Arc<HandlerProbe>) -> Self {
        let probe = Arc::clone(probe);
        let handler = move |claim: Option<Extension<RequestClaim>>, request: Request| async move {
            let number = probe.run().await;
            let operation =
                claim.map_or(0, |Extension(claim)| u128::from_be_bytes(claim.operation.id));
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            Response::builder()
                .status(201)
                .header("location", format!("/orders/{number}"))
                .header("set-cookie", "session=1")
                .body(axum::body::Body::from(format!(
                    "{number} {} {text} {operation:x}",
                    parts.uri.path()
                )))
                .unwrap()
        };
        Self::start(Router::new().fallback(any(handler)).layer(layer)).await
    }

    pub(crate) async fn send(&self, request: &TestRequest) -> Answer {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn try_send(
        &self,
        request: &TestRequest,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let body = if request.is_chunked {
            let half = request.body.len() / 2;
            let chunks = [request.body.slice(..half), request.body.slice(half..)];
            let frames = chunks.map(|chunk| Ok(http_body::Frame::data(chunk)));
            StreamBody::new(futures_util::stream::iter(frames)).boxed()
        } else {
            Full::new(request.body.clone()).boxed()
        };
        let uri = format!("http://{}{}", self.address, request.path);
        let mut builder = http::Request::builder().method(request.method.clone()).uri(uri);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let (parts, body) = self.client.request(builder.body(body)?).await?.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Sends in the background.
    pub(crate) fn spawn(&self, request: &TestRequest) -> tokio::task::JoinHandle<Answer> {
        let (server, request) = (self.clone(), request.clone());
        tokio::spawn(async move { server.send(&request).await })
    }
}
