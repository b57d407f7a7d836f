//! A file on its way: its beginning is looked at, the rest passes through without being held.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, SizeHint};
use surehook_core::media::{DetectedMediaType, HEAD_BYTES, detect_media_type};

use crate::sender::BoxError;

/// A file that somebody sends.
#[derive(Debug)]
pub struct NewMediaFile {
    /// Its bytes, as they come.
    pub body: UnsyncBoxBody<Bytes, BoxError>,
    /// How many there are. More or fewer are refused.
    pub size: u64,
    /// What it is said to be.
    pub claimed: Option<String>,
    /// What it is called.
    pub filename: Option<String>,
}

/// The bytes that were promised did not come.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the file was cut off, or is longer than was said")]
pub(super) struct TruncatedFileError;

impl NewMediaFile {
    /// Reads the beginning, and says what the file is.
    pub(super) async fn look(
        &mut self,
    ) -> Result<(DetectedMediaType, VecDeque<Bytes>), TruncatedFileError> {
        let (mut head, mut beginning) = (Vec::with_capacity(HEAD_BYTES), VecDeque::new());
        while head.len() < HEAD_BYTES {
            let Some(frame) = self.body.frame().await else { break };
            // Trailers are no part of the file.
            let Ok(data) = frame.map_err(|_| TruncatedFileError)?.into_data() else { continue };
            let room = HEAD_BYTES - head.len();
            head.extend_from_slice(&data[..data.len().min(room)]);
            beginning.push_back(data);
        }
        let found = detect_media_type(&head, self.claimed.as_deref(), self.filename.as_deref());
        Ok((found, beginning))
    }
}

/// The body of a request that carries a file.
#[derive(Debug)]
pub(crate) struct MediaFileBody {
    /// What comes first.
    before: VecDeque<Bytes>,
    rest: UnsyncBoxBody<Bytes, BoxError>,
    /// Bytes of the file that are still to come.
    file_left: u64,
    /// What comes last.
    after: Option<Bytes>,
    /// Bytes of the whole body that are still to be sent.
    left: u64,
    /// Set when the file does not come as promised.
    cut_off: Arc<AtomicBool>,
}

/// Says afterwards whose fault it was.
#[derive(Clone, Debug, Default)]
pub(super) struct TransferStatus(Arc<AtomicBool>);

impl TransferStatus {
    /// Whether the file did not come as promised.
    pub(super) fn is_cut_off(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl MediaFileBody {
    /// The rest of a file after its beginning.
    pub(super) fn new(
        file: NewMediaFile,
        beginning: VecDeque<Bytes>,
        fate: &TransferStatus,
    ) -> Self {
        Self::within(file, beginning, (Bytes::new(), Bytes::new()), fate)
    }

    /// The same between two pieces.
    pub(super) fn within(
        file: NewMediaFile,
        mut beginning: VecDeque<Bytes>,
        (before, after): (Bytes, Bytes),
        fate: &TransferStatus,
    ) -> Self {
        let read: u64 = beginning.iter().map(length).sum();
        let around = length(&before) + length(&after);
        // A beginning that is longer than the whole shows when it is sent.
        let file_left = file.size.saturating_sub(read);
        if !before.is_empty() {
            beginning.push_front(before);
        }
        Self {
            before: beginning,
            rest: file.body,
            file_left,
            after: Some(after).filter(|after| !after.is_empty()),
            left: file.size + around,
            cut_off: Arc::clone(&fate.0),
        }
    }

    fn broken(&self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.cut_off.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(TruncatedFileError.into())))
    }

    fn give(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.left.checked_sub(length(&data)) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            None => self.broken(),
        }
    }
}

fn length(bytes: &Bytes) -> u64 {
    bytes.len() as u64
}

impl Body for MediaFileBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(data) = self.before.pop_front() {
            return self.give(data);
        }
        loop {
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if !data.has_remaining() {
                        continue;
                    }
                    let Some(left) = self.file_left.checked_sub(length(&data)) else {
                        return self.broken();
                    };
                    self.file_left = left;
                    return self.give(data);
                }
                Some(Err(_)) => return self.broken(),
                None if self.file_left > 0 => return self.broken(),
                None => {
                    return match self.after.take() {
                        Some(after) => self.give(after),
                        None => Poll::Ready(None),
                    };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;

    use super::*;

    fn file(pieces: &[Result<&'static [u8], ()>], size: u64) -> NewMediaFile {
        let frames: Vec<_> = pieces
            .iter()
            .map(|piece| match piece {
                Ok(bytes) => Ok(Frame::data(Bytes::from_static(bytes))),
                Err(()) => Err(BoxError::from("gone")),
            })
            .collect();
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        NewMediaFile { body, size, claimed: None, filename: None }
    }

    /// What is sent of a file, or that it was cut off.
    async fn sent(mut file: NewMediaFile) -> Result<Vec<u8>, TruncatedFileError> {
        let fate = TransferStatus::default();
        let (_, beginning) = file.look().await?;
        let around = (Bytes::from_static(b"<"), Bytes::from_static(b">"));
        let whole = file.size + 2;
        let body = MediaFileBody::within(file, beginning, around, &fate);
        assert_eq!(body.size_hint().exact(), Some(whole));
        match body.collect().await {
            Ok(sent) => {
                assert!(!fate.is_cut_off());
                Ok(sent.to_bytes().to_vec())
            }
            Err(_) => {
                assert!(fate.is_cut_off());
                Err(TruncatedFileError)
            }
        }
    }

    #[tokio::test]
    async fn a_file_passes_whole_or_not_at_all() {
        static LARGE: [u8; HEAD_BYTES] = [b'x'; HEAD_BYTES];
        let large = LARGE.len() as u64;
        let cases = [
            ("in one piece", file(&[Ok(b"%PDF-")], 5), Some(7)),
            ("in pieces", file(&[Ok(b"%P"), Ok(b""), Ok(b"DF-")], 5), Some(7)),
            (
                "longer than its head",
                file(&[Ok(&LARGE), Ok(b"ab"), Ok(b"c")], large + 3),
                Some(large + 5),
            ),
            ("too short", file(&[Ok(b"%PDF")], 5), None),
            ("too long", file(&[Ok(b"%PDF-1")], 5), None),
            ("too long after its head", file(&[Ok(&LARGE), Ok(b"ab")], large + 1), None),
            ("broken off", file(&[Ok(b"%PDF"), Err(())], 5), None),
            ("broken off after its head", file(&[Ok(&LARGE), Err(())], large + 1), None),
        ];
        for (name, file, expected) in cases {
            let sent = sent(file).await.ok();
            assert_eq!(sent.map(|sent| sent.len() as u64), expected, "case: {name}");
        }
    }
}
