//! Single HTTP calls outside the load, such as readiness checks, API calls and sink counters.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Timeout of a call. A gateway at full load answers late, but not this late.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn call(addr: SocketAddr, method: &str, path: &str) -> Result<Response<Bytes>> {
    call_with(addr, method, path, &[], String::new()).await
}

/// A call with additional headers and a body, on a connection of its own.
pub(crate) async fn call_with(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Result<Response<Bytes>> {
    let mut request = Request::builder().method(method).uri(format!("http://{addr}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body)))?;
    let exchange = async {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let (head, body) = client.request(request).await?.into_parts();
        anyhow::Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    };
    tokio::time::timeout(CALL_TIMEOUT, exchange)
        .await
        .with_context(|| format!("{method} {path} was not answered in {CALL_TIMEOUT:?}"))?
        .with_context(|| format!("{method} {path} failed"))
}
