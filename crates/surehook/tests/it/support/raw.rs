//! A client that writes arbitrary bytes, for requests that no HTTP library would send.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::WAIT_LIMIT;

/// A response as received on the connection.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    /// The status line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    /// The value of a header; empty if absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.next().map_or("", |(_, value)| value.trim())
    }
}

#[derive(Debug)]
pub(crate) struct RawConnection {
    stream: TcpStream,
    /// Bytes read from the socket and not yet returned.
    buffered: Vec<u8>,
}

impl RawConnection {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffered: Vec::new() }
    }

    /// Like [`Self::connect`], from this local address.
    pub(crate) async fn connect_from(local: [u8; 4], address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((local, 0).into()).unwrap();
        let stream = socket.connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffered: Vec::new() }
    }

    /// Writes all bytes. A server may close before it has read everything, so write errors are
    /// ignored and only the response counts.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _closed = timeout(WAIT_LIMIT, self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Writes byte by byte until all are written or the server closes.
    pub(crate) async fn write_slowly(&mut self, bytes: &[u8], interval: Duration) {
        for byte in bytes {
            if self.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// Closes the sending half of the connection.
    pub(crate) async fn finish_writing(&mut self) {
        let _closed = self.stream.shutdown().await;
    }

    /// Reads into the buffer; `false` if the server has closed.
    async fn read_more(&mut self) -> bool {
        let mut part = vec![0; 16 * 1024];
        let read = timeout(WAIT_LIMIT, self.stream.read(&mut part)).await;
        match read.expect("the server neither responds nor closes") {
            Ok(0) | Err(_) => false,
            Ok(bytes) => {
                self.buffered.extend_from_slice(&part[..bytes]);
                true
            }
        }
    }

    /// Reads the next response; `None` if the server closes instead.
    pub(crate) async fn read_response(&mut self) -> Option<RawResponse> {
        let head_bytes = loop {
            match self.buffered.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.read_more().await => {}
                None => return None,
            }
        };
        let head = String::from_utf8(self.buffered.drain(..head_bytes).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = RawResponse { status, head, body: Vec::new() };
        let length = response.header("content-length").parse().unwrap_or(0);
        while self.buffered.len() < length && self.read_more().await {}
        response.body = self.buffered.drain(..length.min(self.buffered.len())).collect();
        Some(response)
    }

    /// Reads up to and including `end`.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        loop {
            let position = self.buffered.windows(end.len()).position(|part| part == end.as_bytes());
            if let Some(at) = position {
                let taken = self.buffered.drain(..at + end.len()).collect();
                return String::from_utf8(taken).unwrap();
            }
            let buffered = String::from_utf8_lossy(&self.buffered).into_owned();
            assert!(self.read_more().await, "closed before `{end}`: {buffered}");
        }
    }

    /// Waits until the server closes and returns the remaining bytes.
    pub(crate) async fn read_until_closed(&mut self) -> Vec<u8> {
        while self.read_more().await {}
        std::mem::take(&mut self.buffered)
    }
}
