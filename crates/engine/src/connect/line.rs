//! A connection, and whether it leads to a proxy that wants whole URLs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection as the client gets it.
#[derive(Debug)]
pub struct GuardedStream {
    stream: TokioIo<TcpStream>,
    wants_whole_urls: bool,
}

impl GuardedStream {
    /// A connection on which the destination itself answers.
    pub(crate) fn to_destination(stream: TcpStream) -> Self {
        Self { stream: TokioIo::new(stream), wants_whole_urls: false }
    }

    /// A connection to a proxy that passes each request on.
    pub(crate) fn to_proxy(stream: TcpStream) -> Self {
        Self { stream: TokioIo::new(stream), wants_whole_urls: true }
    }
}

impl Connection for GuardedStream {
    fn connected(&self) -> Connected {
        self.stream.inner().connected().proxy(self.wants_whole_urls)
    }
}

impl Read for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
