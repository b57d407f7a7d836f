//! The body of a response that was held back, in whole or up to the limit.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

/// The body of a response of an [`IdempotencyService`](crate::IdempotencyService): that of the service, or
/// bytes.
pub struct IdempotentBody<B: Body> {
    /// The part that was read already.
    frames: VecDeque<Frame<Bytes>>,
    rest: BodyRest<B, B::Error>,
}

enum BodyRest<B, E> {
    Stream(Pin<Box<B>>),
    /// Reading failed after the frames.
    Failed(E),
    End,
}

/// The part of a body that was read within a limit.
pub(crate) enum BufferedBody<B: Body> {
    /// The body ended.
    Complete(Bytes),
    /// The body is larger than the limit or has trailers. Nothing of it is lost.
    Oversized(IdempotentBody<B>),
    /// Reading failed. The body gives what was read, and then the error.
    Failed(IdempotentBody<B>),
}

impl<B: Body<Data = Bytes>> IdempotentBody<B> {
    /// A body that was not looked at.
    pub(crate) fn stream(body: B) -> Self {
        Self { frames: VecDeque::new(), rest: BodyRest::Stream(Box::pin(body)) }
    }

    /// Reads a body until it ends or exceeds `limit` bytes.
    pub(crate) async fn buffer(body: B, limit: usize) -> BufferedBody<B> {
        let mut frames = VecDeque::new();
        let mut bytes = 0_usize;
        let mut body = Box::pin(body);
        if body.size_hint().lower() > limit as u64 {
            return BufferedBody::Oversized(Self { frames, rest: BodyRest::Stream(body) });
        }
        loop {
            let frame: Frame<Bytes> = match body.frame().await {
                None => break,
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return BufferedBody::Failed(Self { frames, rest: BodyRest::Failed(error) });
                }
            };
            let data = frame.data_ref().map(Bytes::len);
            frames.push_back(frame);
            bytes = bytes.saturating_add(data.unwrap_or_default());
            if bytes > limit || data.is_none() {
                return BufferedBody::Oversized(Self { frames, rest: BodyRest::Stream(body) });
            }
        }
        BufferedBody::Complete(join(frames, bytes))
    }
}

/// One frame, which is usual, is not copied.
fn join(mut frames: VecDeque<Frame<Bytes>>, bytes: usize) -> Bytes {
    let take = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
    if frames.len() <= 1 {
        return frames.pop_front().map(take).unwrap_or_default();
    }
    let mut joined = BytesMut::with_capacity(bytes);
    frames.into_iter().map(take).for_each(|data| joined.extend_from_slice(&data));
    joined.freeze()
}

impl<B: Body<Data = Bytes>> From<Bytes> for IdempotentBody<B> {
    fn from(bytes: Bytes) -> Self {
        let frames = if bytes.is_empty() { VecDeque::new() } else { [Frame::data(bytes)].into() };
        Self { frames, rest: BodyRest::End }
    }
}

impl<B: Body<Data = Bytes>> Body for IdempotentBody<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let BodyRest::Stream(body) = &mut this.rest {
            return body.as_mut().poll_frame(context);
        }
        match std::mem::replace(&mut this.rest, BodyRest::End) {
            BodyRest::Failed(error) => Poll::Ready(Some(Err(error))),
            BodyRest::Stream(_) | BodyRest::End => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
            && match &self.rest {
                BodyRest::Stream(body) => body.is_end_stream(),
                BodyRest::Failed(_) => false,
                BodyRest::End => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let read: usize = self.frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum();
        let read = read as u64;
        let rest = match &self.rest {
            BodyRest::Stream(body) => body.size_hint(),
            BodyRest::Failed(_) => SizeHint::new(),
            BodyRest::End => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: Body> fmt::Debug for IdempotentBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentBody").field("frames", &self.frames.len()).finish_non_exhaustive()
    }
}
