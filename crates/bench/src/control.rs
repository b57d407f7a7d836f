//! Single HTTP calls outside the load, such as readiness checks, API calls and sink counters.
//!
//! Each call has its own connection, which is read to its end; so any HTTP/1.1 server works.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Timeout of a call. A gateway at full load answers late, but not this late.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct ControlResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl ControlResponse {
    /// The value of the first header with this name; case is ignored.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    }
}

pub(crate) async fn call(addr: SocketAddr, method: &str, path: &str) -> Result<ControlResponse> {
    call_with(addr, method, path, "", "").await
}

/// A call with additional header lines and a body.
pub(crate) async fn call_with(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Result<ControlResponse> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    );
    tokio::time::timeout(CALL_TIMEOUT, exchange(addr, &request))
        .await
        .with_context(|| format!("{method} {path} was not answered in {CALL_TIMEOUT:?}"))?
        .with_context(|| format!("{method} {path} failed"))
}

async fn exchange(addr: SocketAddr, request: &str) -> Result<ControlResponse> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;

    let head_len = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = bytes.split_off(head_len.context("the response ended inside its header")? + 4);
    let head = String::from_utf8(bytes).context("the response header is not UTF-8")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(ControlResponse { status: status.context("the response has no status")?, head, body })
}
