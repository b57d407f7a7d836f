//! A destination inside the test: replies as scripted and records every request.

use std::{
    collections::HashSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{WAIT_LIMIT, eventually};

/// A request as the destination received it.
#[derive(Clone, Debug)]
pub(crate) struct SinkRequest {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Without the `?`; empty if there is none.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl SinkRequest {
    /// A header as text; empty if absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The `webhook-id`, which is the id of the event.
    pub(crate) fn id(&self) -> &str {
        self.header("webhook-id")
    }
}

/// The reaction of a destination to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Bytes,
    },
    /// Waits, then continues with the inner reply.
    After(Duration, Box<Reply>),
    /// Waits until the gate is open, then continues with the inner reply.
    Behind(watch::Receiver<bool>, Box<Reply>),
    /// Never responds and keeps the connection open.
    Hang,
    /// Closes the connection without a response.
    Close,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Response { status, headers: Vec::new(), body: Bytes::new() }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Response { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body.
    pub(crate) fn body(mut self, text: impl Into<Bytes>) -> Self {
        if let Self::Response { body, .. } = &mut self {
            *body = text.into();
        }
        self
    }

    /// Delays the reply.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self::After(wait, Box::new(self))
    }

    /// Holds the reply back until `gate` is true.
    pub(crate) fn behind(self, gate: watch::Receiver<bool>) -> Self {
        Self::Behind(gate, Box::new(self))
    }
}

/// Chooses the reply to a request; requests are numbered from zero.
type Script = dyn Fn(usize, &SinkRequest) -> Reply + Send + Sync;

/// A destination on a free port. Stops when dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<SinkRequest>>>,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Sink {
    /// Starts a destination that responds 200 to everything.
    pub(crate) async fn ok() -> Self {
        Self::with_script(|_, _| Reply::status(200)).await
    }

    /// Starts a destination that gives these replies in order and repeats the last one.
    pub(crate) async fn with_replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Self::with_script(move |number, _| replies[number.min(replies.len() - 1)].clone()).await
    }

    /// Starts a destination that chooses its reply by the request.
    pub(crate) async fn with_script(
        script: impl Fn(usize, &SinkRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, script): (_, Arc<Script>) = (Arc::clone(&requests), Arc::new(script));
        let connections = Arc::new(AtomicUsize::new(0));
        let open = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                open.fetch_add(1, Ordering::SeqCst);
                let open = Arc::clone(&open);
                let (recorded, script) = (Arc::clone(&recorded), Arc::clone(&script));
                let service = service_fn(move |request| {
                    reply(Arc::clone(&recorded), Arc::clone(&script), request)
                });
                tokio::spawn(async move {
                    // Some tests break the connection on purpose.
                    let _ended =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, requests, connections, accepting }
    }

    /// The URL to configure.
    pub(crate) fn url(&self) -> String {
        format!("{}/hook", self.origin())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL without a path.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far, in order.
    pub(crate) fn requests(&self) -> Vec<SinkRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Removes and returns all requests so far, so that a long test does not keep them.
    pub(crate) fn take_requests(&self) -> Vec<SinkRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Waits until at least `count` requests were received.
    pub(crate) async fn wait_for_requests(&self, count: usize) -> Vec<SinkRequest> {
        eventually(WAIT_LIMIT, || async { Some(self.requests()).filter(|all| all.len() >= count) })
            .await
    }

    /// Waits until every connection is closed and so everything sent has been read. That happens only
    /// after the sender has exited.
    pub(crate) async fn wait_until_disconnected(&self) {
        let open = || self.connections.load(Ordering::SeqCst);
        eventually(WAIT_LIMIT, || async { (open() == 0).then_some(()) }).await;
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The events that arrived in each run of a gateway that is killed and restarted.
#[derive(Debug, Default)]
pub(crate) struct ArrivalsByRun {
    runs: Vec<Vec<String>>,
}

impl ArrivalsByRun {
    /// Assigns everything that arrived since the last call to the run that has just ended.
    pub(crate) fn end_run(&mut self, sink: &Sink) {
        let earlier = self.runs.iter().map(Vec::len).sum();
        let new = sink.requests().into_iter().skip(earlier);
        self.runs.push(new.map(|arrival| arrival.id().to_owned()).collect());
    }

    /// An event may arrive again only if a kill came before its result was recorded.
    #[track_caller]
    pub(crate) fn assert_none_repeated_in_one_run(&self) {
        for run in &self.runs {
            let distinct: HashSet<&String> = run.iter().collect();
            assert_eq!(distinct.len(), run.len(), "an event arrived twice in one run");
        }
    }

    /// The distinct events of all runs.
    pub(crate) fn events(&self) -> HashSet<String> {
        self.runs.iter().flatten().cloned().collect()
    }
}

async fn reply(
    recorded: Arc<Mutex<Vec<SinkRequest>>>,
    script: Arc<Script>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, String> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let (method, headers) = (head.method, head.headers);
    let request = SinkRequest { at: Instant::now(), method, path, query, headers, body };
    let mut reply = {
        let mut recorded = recorded.lock().unwrap();
        let reply = script(recorded.len(), &request);
        recorded.push(request);
        reply
    };
    loop {
        match reply {
            Reply::After(wait, then) => {
                tokio::time::sleep(wait).await;
                reply = *then;
            }
            Reply::Behind(mut gate, then) => {
                // A gate that is gone opens no more.
                gate.wait_for(|is_open| *is_open).await.map_err(|error| error.to_string())?;
                reply = *then;
            }
            Reply::Hang => {
                let never: Infallible = std::future::pending().await;
                match never {}
            }
            // An error makes hyper close the connection without a response.
            Reply::Close => return Err("closed by the script".to_owned()),
            Reply::Response { status, headers, body } => {
                let mut response = Response::builder().status(status);
                for (name, value) in &headers {
                    response = response.header(name, value);
                }
                return response.body(Full::new(body)).map_err(|error| error.to_string());
            }
        }
    }
}
