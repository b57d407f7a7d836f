//! A connection that ends when more comes than anybody asked for.
//!
//! The client collects a reply until it is whole, however long it says it will be. Replies to what we
//! ask are short; a server that sends a gigabyte must not find room for it here.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What may come between the end of one reply and that of the next: with the most attempts at once
/// that a destination may have, a kilobyte for each of them.
const BYTES_MAX: usize = 1024 * 1024;

/// The bytes since the last whole reply.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyByteCounter(Arc<AtomicUsize>);

impl ReplyByteCounter {
    /// A reply is there.
    pub(super) fn start_over(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) -> usize {
        self.0.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

/// A connection whose reading side is counted.
#[derive(Debug)]
pub(super) struct ReplyLimitedStream<S> {
    stream: S,
    counter: ReplyByteCounter,
}

impl<S> ReplyLimitedStream<S> {
    pub(super) fn new(stream: S) -> (Self, ReplyByteCounter) {
        let counter = ReplyByteCounter::default();
        (Self { stream, counter: counter.clone() }, counter)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplyLimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if self.counter.add(buf.filled().len() - before) > BYTES_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplyLimitedStream<S> {
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
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn what_never_ends_is_ended_and_replies_start_over() {
        let (mut stream, counter) = ReplyLimitedStream::new(tokio::io::repeat(b'x'));
        let mut reply = vec![0; BYTES_MAX];
        for _ in 0..3 {
            stream.read_exact(&mut reply).await.unwrap();
            counter.start_over();
        }
        stream.read_exact(&mut reply).await.unwrap();

        let error = stream.read_exact(&mut reply).await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
