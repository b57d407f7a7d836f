//! Response bodies that are produced while they are read: exports and live updates.

use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::sync::mpsc;

/// Chunks buffered for the reader.
const BUFFERED_CHUNKS_MAX: usize = 16;
/// A reader that takes no chunk for this long is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends the chunks of a response body.
#[derive(Debug)]
pub(super) struct ResponseSender<T>(mpsc::Sender<T>);

/// The reader disconnected or stopped reading.
#[derive(Debug)]
pub(super) struct ReaderGone;

impl<T: Send + 'static> ResponseSender<T> {
    /// Creates the sender and the body that it feeds.
    pub(super) fn new() -> (Self, impl Stream<Item = T> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(BUFFERED_CHUNKS_MAX);
        let chunks = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|chunk| (chunk, receiver))
        });
        (Self(sender), chunks)
    }

    /// Sends a chunk; waits while the buffer is full.
    pub(super) async fn send(&self, chunk: T) -> Result<(), ReaderGone> {
        match tokio::time::timeout(SEND_TIMEOUT, self.0.send(chunk)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ReaderGone),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the reader disconnects.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}
