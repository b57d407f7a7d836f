//! Answers that are made while they are read: exports and the stream of news.

use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::sync::mpsc;

/// Pieces that may wait for the reader.
const WAITING_MAX: usize = 16;
/// A reader that takes nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The end at which an answer is made.
#[derive(Debug)]
pub(super) struct Outflow<T>(mpsc::Sender<T>);

/// The reader went away, or stands still.
#[derive(Debug)]
pub(super) struct Gone;

impl<T: Send + 'static> Outflow<T> {
    /// Both ends.
    pub(super) fn new() -> (Self, impl Stream<Item = T> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let pieces = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        (Self(sender), pieces)
    }

    /// Hands a piece over, and waits while the reader has enough.
    pub(super) async fn send(&self, piece: T) -> Result<(), Gone> {
        match tokio::time::timeout(PATIENCE, self.0.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Whether the reader has gone away.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns when the reader has gone away.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }
}
