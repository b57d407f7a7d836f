//! Timeouts of a connection that no handler can forget: writing a response, and reading the body of a
//! dashboard form.
//!
//! The head has a timeout of hyper's, bodies of `/in/` and `/api/` are read by `body`, and the accept
//! loop limits the whole request. Exports and live updates last as long as their reader keeps up.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// A connection that fails when its peer reads nothing of a response for `write_timeout`.
#[derive(Debug)]
pub(crate) struct TimedStream<S> {
    stream: S,
    write_timeout: Duration,
    /// Set while a write waits for the peer.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S, write_timeout: Duration) -> Self {
        Self { stream, write_timeout, deadline: None }
    }

    fn limit_wait<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let timeout = self.write_timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limit_wait(polled, cx)
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
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.limit_wait(polled, cx)
    }
}

/// A request body that fails when it is not complete within a time.
#[derive(Debug)]
pub(crate) struct TimedBody {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
    is_late: Arc<AtomicBool>,
}

impl TimedBody {
    /// The body, and a flag that is set when it was too slow.
    pub(crate) fn new(body: Incoming, timeout: Duration) -> (Self, Arc<AtomicBool>) {
        let is_late = Arc::new(AtomicBool::new(false));
        let deadline = Box::pin(tokio::time::sleep(timeout));
        (Self { body, deadline, is_late: Arc::clone(&is_late) }, is_late)
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.deadline.as_mut().poll(cx));
        self.is_late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn write_to_a_peer_that_does_not_read_times_out() {
        let (stream, _peer) = duplex(64);
        let mut stream = TimedStream::new(stream, TIMEOUT);

        let error = stream.write_all(&[0; 1000]).await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_that_makes_progress_gets_everything() {
        let (stream, mut peer) = duplex(64);
        let mut stream = TimedStream::new(stream, TIMEOUT);
        let reader = tokio::spawn(async move {
            let mut chunk = [0; 64];
            let mut read = 0;
            while read < 1000 {
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
                read += peer.read(&mut chunk).await.unwrap();
            }
            read
        });

        stream.write_all(&[0; 1000]).await.unwrap();

        assert_eq!(reader.await.unwrap(), 1000);
    }
}
