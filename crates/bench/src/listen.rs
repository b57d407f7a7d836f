//! The accept loop of the limit server and the sink: hyper, HTTP/1.1, one task per connection.

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

/// Binds a listener with a backlog large enough for all connections of a load at once.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("cannot listen on {address}"))?;
    Ok(socket.listen(4096)?)
}

/// Answers every request with `respond` until the process ends.
pub(crate) async fn serve<R, F>(listener: TcpListener, respond: R) -> Result<()>
where
    R: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = ServerReply> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        let service = hyper::service::service_fn(respond.clone());
        tokio::spawn(async move {
            // The peer reports a broken connection.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
