//! A file in transit: its beginning is inspected, the rest is streamed without buffering.

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
use surehook_messaging::media::{DetectedMediaType, HEAD_BYTES, detect_media_type};

use crate::sender::BoxError;

/// A file to be uploaded.
#[derive(Debug)]
pub struct NewMediaFile {
    pub body: UnsyncBoxBody<Bytes, BoxError>,
    /// Bytes. A longer or shorter body is refused.
    pub size: u64,
    /// The media type that the client declared.
    pub declared_type: Option<String>,
    pub filename: Option<String>,
}

/// The body is not as long as declared.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the file is incomplete, or longer than declared")]
pub(super) struct FileLengthError;

impl NewMediaFile {
    /// Reads the beginning and detects the media type.
    pub(super) async fn inspect(
        &mut self,
    ) -> Result<(DetectedMediaType, VecDeque<Bytes>), FileLengthError> {
        let (mut head, mut beginning) = (Vec::with_capacity(HEAD_BYTES), VecDeque::new());
        while head.len() < HEAD_BYTES {
            let Some(frame) = self.body.frame().await else { break };
            // Trailers are not part of the file.
            let Ok(data) = frame.map_err(|_| FileLengthError)?.into_data() else { continue };
            let missing = HEAD_BYTES - head.len();
            head.extend_from_slice(&data[..data.len().min(missing)]);
            beginning.push_back(data);
        }
        let media_type =
            detect_media_type(&head, self.declared_type.as_deref(), self.filename.as_deref());
        Ok((media_type, beginning))
    }
}

/// The body of a request that carries a file.
#[derive(Debug)]
pub(crate) struct MediaFileBody {
    /// Sent first: what comes before the file, and the beginning of the file that was already read.
    first: VecDeque<Bytes>,
    /// The rest of the file.
    rest: UnsyncBoxBody<Bytes, BoxError>,
    /// Bytes of the file that are still to be read.
    file_bytes_left: u64,
    /// Sent after the file.
    after: Option<Bytes>,
    /// Bytes of the whole body that are still to be sent.
    bytes_left: u64,
    has_wrong_length: Arc<AtomicBool>,
}

/// Tells after the upload whether the file itself was the problem.
#[derive(Clone, Debug, Default)]
pub(super) struct TransferStatus(Arc<AtomicBool>);

impl TransferStatus {
    /// Whether the file was not as long as declared.
    pub(super) fn has_wrong_length(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl MediaFileBody {
    /// The file, of which the beginning was read.
    pub(super) fn new(
        file: NewMediaFile,
        beginning: VecDeque<Bytes>,
        status: &TransferStatus,
    ) -> Self {
        Self::between(file, beginning, Bytes::new(), Bytes::new(), status)
    }

    /// The file between two other parts, as in a form.
    pub(super) fn between(
        file: NewMediaFile,
        mut beginning: VecDeque<Bytes>,
        before: Bytes,
        after: Bytes,
        status: &TransferStatus,
    ) -> Self {
        let read: u64 = beginning.iter().map(length).sum();
        let around = length(&before) + length(&after);
        // A beginning that is longer than the file is detected when it is sent.
        let file_bytes_left = file.size.saturating_sub(read);
        if !before.is_empty() {
            beginning.push_front(before);
        }
        Self {
            first: beginning,
            rest: file.body,
            file_bytes_left,
            after: Some(after).filter(|after| !after.is_empty()),
            bytes_left: file.size + around,
            has_wrong_length: Arc::clone(&status.0),
        }
    }

    fn fail(&self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.has_wrong_length.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(FileLengthError.into())))
    }

    fn emit(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.bytes_left.checked_sub(length(&data)) {
            Some(left) => {
                self.bytes_left = left;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            None => self.fail(),
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
        if let Some(data) = self.first.pop_front() {
            return self.emit(data);
        }
        loop {
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if !data.has_remaining() {
                        continue;
                    }
                    let Some(left) = self.file_bytes_left.checked_sub(length(&data)) else {
                        return self.fail();
                    };
                    self.file_bytes_left = left;
                    return self.emit(data);
                }
                Some(Err(_)) => return self.fail(),
                None if self.file_bytes_left > 0 => return self.fail(),
                None => {
                    return match self.after.take() {
                        Some(after) => self.emit(after),
                        None => Poll::Ready(None),
                    };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
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
        NewMediaFile { body, size, declared_type: None, filename: None }
    }

    async fn transfer(mut file: NewMediaFile) -> Result<Vec<u8>, FileLengthError> {
        let status = TransferStatus::default();
        let (_, beginning) = file.inspect().await?;
        let (before, after) = (Bytes::from_static(b"<"), Bytes::from_static(b">"));
        let expected_size = file.size + 2;
        let body = MediaFileBody::between(file, beginning, before, after, &status);
        assert_eq!(body.size_hint().exact(), Some(expected_size));
        match body.collect().await {
            Ok(sent) => {
                assert!(!status.has_wrong_length());
                Ok(sent.to_bytes().to_vec())
            }
            Err(_) => {
                assert!(status.has_wrong_length());
                Err(FileLengthError)
            }
        }
    }

    #[tokio::test]
    async fn file_is_transferred_completely_or_fails() {
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
            ("interrupted", file(&[Ok(b"%PDF"), Err(())], 5), None),
            ("interrupted after its head", file(&[Ok(&LARGE), Err(())], large + 1), None),
        ];
        for (name, file, expected) in cases {
            let sent = transfer(file).await.ok();
            assert_eq!(sent.map(|sent| sent.len() as u64), expected, "case: {name}");
        }
    }
}
