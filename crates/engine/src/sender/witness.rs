//! Remembers what TLS said on a connection, because the client above it forgets.
//!
//! With TLS 1.3 a server refuses our certificate after the handshake, by an alert. By then the
//! connection belongs to a task of the HTTP library, which may read the alert before the request
//! is handed to it; the request is then told that the connection is gone, and not why.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::time::Instant;

use crate::stopwatch::Stopwatch;

/// The latest error of TLS on any connection to one destination.
#[derive(Debug, Clone, Default)]
pub(super) struct LastTlsError(Arc<Mutex<Option<(Instant, rustls::Error)>>>);

impl LastTlsError {
    fn keep(&self, error: &io::Error) {
        let said = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(said) = said {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((Instant::now(), said.clone()));
        }
    }

    /// What was said since then.
    pub(super) fn since(&self, started: Instant) -> Option<rustls::Error> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().filter(|(at, _)| *at >= started).map(|(_, said)| said.clone())
    }
}

/// A connection whose errors are remembered.
#[derive(Debug)]
pub(super) struct MonitoredStream<S> {
    pub(super) stream: S,
    pub(super) last_words: LastTlsError,
    /// Of the attempt that it was opened for; every answer says so.
    pub(super) opened_for: Stopwatch,
}

impl<S> MonitoredStream<S> {
    fn heard<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.last_words.keep(error);
        }
        polled
    }
}

impl<S: Connection> Connection for MonitoredStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.opened_for.clone())
    }
}

impl<S: Read + Unpin> Read for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.heard(polled)
    }
}

impl<S: Write + Unpin> Write for MonitoredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.heard(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.heard(polled)
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
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.heard(polled)
    }
}
