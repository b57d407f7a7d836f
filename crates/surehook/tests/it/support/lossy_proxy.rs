//! A proxy in front of a gateway that loses the first answer of each path: the request takes effect, and
//! the connection is closed instead of answered.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinHandle};

use super::{client::Client, gateway::Gateway};

/// A proxy on a free port. Stops when dropped.
#[derive(Debug)]
pub(crate) struct LossyProxy {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl LossyProxy {
    pub(crate) async fn start(gateway: &Gateway) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let forwarder = Arc::new(Forwarder {
            origin: gateway.url(""),
            client: Client::new(),
            answered: Mutex::default(),
        });
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let forwarder = Arc::clone(&forwarder);
                let service = service_fn(move |request| forward(Arc::clone(&forwarder), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Debug)]
struct Forwarder {
    origin: String,
    client: Client,
    /// The paths whose first answer is lost already.
    answered: Mutex<HashSet<String>>,
}

/// An error makes hyper close the connection without an answer.
async fn forward(
    forwarder: Arc<Forwarder>,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers: Vec<(&str, &[u8])> = ["authorization", "content-type"]
        .into_iter()
        .filter_map(|name| Some((name, head.headers.get(name)?.as_bytes())))
        .collect();
    let url = format!("{}{}", forwarder.origin, head.uri);
    let response = forwarder.client.send(head.method, &url, &headers, body).await;
    let response = response.map_err(io::Error::other)?;
    if forwarder.answered.lock().unwrap().insert(head.uri.to_string()) {
        return Err(io::Error::other("the answer is lost"));
    }
    let mut answer = Response::new(Full::new(response.body));
    *answer.status_mut() = response.status;
    Ok(answer)
}
