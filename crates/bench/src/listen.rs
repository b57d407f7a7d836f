//! The accept loop under both bare servers: hyper, HTTP/1.1, a task for each connection, nothing
//! else.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};

pub(crate) type ServerReply = Result<Response<Full<Bytes>>, hyper::Error>;

/// Begins to listen, with room for all connections of a load that come at once.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("cannot listen on {address}"))?;
    Ok(socket.listen(4096)?)
}

/// Answers with `answer` for ever.
pub(crate) async fn serve<A, F>(listener: TcpListener, answer: A) -> Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = ServerReply> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        let service = hyper::service::service_fn(answer.clone());
        tokio::spawn(async move {
            // A connection that breaks is the peer's loss, and the peer reports it.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
