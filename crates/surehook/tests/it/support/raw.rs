//! A client that writes whatever bytes it is told to: what no decent client would send.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::SOON;

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// The status line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawAnswer {
    /// The value of a header; empty when it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.next().map_or("", |(_, value)| value.trim())
    }
}

/// A bare connection.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: TcpStream,
    /// Read and not yet taken.
    ahead: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, ahead: Vec::new() }
    }

    /// Writes all of it. A server that closes before it has read everything is in its right, so
    /// only the answer decides.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _closed = timeout(SOON, self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Writes one byte after the other, until it is done or the server has had enough.
    pub(crate) async fn drip(&mut self, bytes: &[u8], every: Duration) {
        for byte in bytes {
            if self.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Says that nothing more will be written.
    pub(crate) async fn finish(&mut self) {
        let _closed = self.stream.shutdown().await;
    }

    /// Reads more; `false` when the server has closed.
    async fn more(&mut self) -> bool {
        let mut part = vec![0; 16 * 1024];
        let read = timeout(SOON, self.stream.read(&mut part)).await;
        match read.expect("the server neither answers nor closes") {
            Ok(0) | Err(_) => false,
            Ok(bytes) => {
                self.ahead.extend_from_slice(&part[..bytes]);
                true
            }
        }
    }

    /// The next answer; none if the server closes instead.
    pub(crate) async fn answer(&mut self) -> Option<RawAnswer> {
        let head_bytes = loop {
            match self.ahead.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.more().await => {}
                None => return None,
            }
        };
        let head = String::from_utf8(self.ahead.drain(..head_bytes).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = RawAnswer { status, head, body: Vec::new() };
        let length = answer.header("content-length").parse().unwrap_or(0);
        while self.ahead.len() < length && self.more().await {}
        answer.body = self.ahead.drain(..length.min(self.ahead.len())).collect();
        Some(answer)
    }

    /// Reads until `end` has come; gives back everything up to and with it.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            let found = self.ahead.windows(end.len()).position(|part| part == end.as_bytes());
            if let Some(at) = found {
                let taken = self.ahead.drain(..at + end.len()).collect();
                return String::from_utf8(taken).unwrap();
            }
            let ahead = String::from_utf8_lossy(&self.ahead).into_owned();
            assert!(self.more().await, "closed before `{end}` came: {ahead}");
        }
    }

    /// Waits until the server closes; gives back what it sent before that.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.ahead)
    }
}
