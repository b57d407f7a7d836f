//! Reads a request body completely, within limits of size, time, rate and memory.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame};
use surehook_engine::body_memory::{BodyMemoryError, BodyOwners, BodyReservation};
use tokio::time::Instant;

use crate::problem::Problem;

/// A body may be slower than the minimum rate for this long.
const RATE_GRACE: Duration = Duration::from_secs(5);
/// The first buffer of a body that arrives in parts.
const FIRST_BUFFER_BYTES: usize = 1024;

/// How fast a body must arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPace {
    /// Time for the whole body.
    pub(crate) timeout: Duration,
    /// Bytes per second, on average since the start; 0 for no minimum.
    pub(crate) bytes_per_second_min: u64,
}

impl BodyPace {
    /// The time that a body may have taken when `received` bytes have arrived.
    fn time_for(self, received: usize) -> Duration {
        let by_rate = match (received as u64 * 1000).checked_div(self.bytes_per_second_min) {
            Some(millis) => Duration::from_millis(millis).max(RATE_GRACE),
            None => self.timeout,
        };
        by_rate.min(self.timeout)
    }
}

/// Reads the whole body of an API request. After an error the connection must be closed, because the
/// rest of the body is unread.
pub(crate) async fn read_body<B>(body: B, limit: usize, pace: BodyPace) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
{
    read_reserved_body(body, limit, pace, &mut BodyReservation::default(), None).await
}

/// Like [`read_body`], into memory that `memory` reserves as the body arrives. `owners` have shares in
/// it while the body is incomplete.
pub(crate) async fn read_reserved_body<B>(
    body: B,
    limit: usize,
    pace: BodyPace,
    memory: &mut BodyReservation,
    owners: Option<BodyOwners>,
) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
{
    let declared = match body.size_hint().exact().map(usize::try_from) {
        Some(Ok(bytes)) if bytes <= limit => Some(bytes),
        Some(_) => return Err(body_too_large(limit)),
        None => None,
    };
    // Refused before it is read. Nothing is reserved yet: the sender may never send it.
    if !memory.has_room(declared.unwrap_or_default()) {
        return Err(overloaded(BodyMemoryError));
    }
    let mut body = pin!(body);
    let mut buffer = BodyBuffer { bytes: Vec::new(), limit, declared, owners };
    // Most bodies arrive with their head and need no timer.
    let first = poll_fn(|context| Poll::Ready(body.as_mut().poll_frame(context))).await;
    if let Poll::Ready(frame) = first
        && let Some(body_bytes) = buffer.add_frame(frame, body.is_end_stream(), memory)?
    {
        return Ok(body_bytes);
    }
    // Boxed: the future would take its space in every connection.
    Box::pin(read_parts(body, buffer, pace, memory)).await
}

/// Reads the rest of a body as it arrives, within its time and rate.
async fn read_parts<B>(
    mut body: Pin<&mut B>,
    mut buffer: BodyBuffer,
    pace: BodyPace,
    memory: &mut BodyReservation,
) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
{
    let started = Instant::now();
    let mut timer = pin!(tokio::time::sleep_until(started + pace.time_for(0)));
    loop {
        let received = tokio::select! {
            biased;
            frame = poll_fn(|context| body.as_mut().poll_frame(context)) => Some(frame),
            () = timer.as_mut() => None,
        };
        if let Some(frame) = received {
            if let Some(body_bytes) = buffer.add_frame(frame, body.is_end_stream(), memory)? {
                return Ok(body_bytes);
            }
            continue;
        }
        let until = started + pace.time_for(buffer.bytes.len());
        if until <= Instant::now() {
            return Err(slow_body(pace, buffer.bytes.len()));
        }
        timer.as_mut().reset(until);
    }
}

/// A body that arrives in parts. They are copied into one buffer: a part keeps the whole block alive
/// that the connection read it into, and senders choose how small the parts are.
struct BodyBuffer {
    bytes: Vec<u8>,
    limit: usize,
    declared: Option<usize>,
    owners: Option<BodyOwners>,
}

impl BodyBuffer {
    /// Adds what was received, and returns the body if this was the end.
    fn add_frame<E>(
        &mut self,
        frame: Option<Result<Frame<Bytes>, E>>,
        is_last: bool,
        memory: &mut BodyReservation,
    ) -> Result<Option<Bytes>, Problem> {
        let data = match frame {
            None => return Ok(Some(self.finish(memory))),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => {
                let detail = "The body is malformed or was cut off.";
                return Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail).close());
            }
        };
        if data.len() > self.limit - self.bytes.len() {
            return Err(body_too_large(self.limit));
        }
        // Most bodies arrive at once, and are not copied.
        if is_last && self.bytes.is_empty() {
            memory.grow(data.len()).map_err(overloaded)?;
            return Ok(Some(data));
        }
        self.append(&data, memory).map_err(overloaded)?;
        Ok(is_last.then(|| self.finish(memory)))
    }

    fn append(&mut self, part: &[u8], memory: &mut BodyReservation) -> Result<(), BodyMemoryError> {
        let needed = self.bytes.len() + part.len();
        let capacity = self.bytes.capacity();
        if needed > capacity {
            let doubled = needed.max(2 * capacity).max(FIRST_BUFFER_BYTES);
            let new_capacity = doubled.min(self.declared.unwrap_or(self.limit)).max(needed);
            match self.owners {
                Some(owners) => memory.grow_arriving(owners, new_capacity - capacity)?,
                None => memory.grow(new_capacity - capacity)?,
            }
            self.bytes.reserve_exact(new_capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    fn finish(&mut self, memory: &mut BodyReservation) -> Bytes {
        let mut bytes = std::mem::take(&mut self.bytes);
        memory.finish_arriving();
        bytes.shrink_to_fit();
        memory.shrink_to(bytes.len());
        Bytes::from(bytes)
    }
}

pub(crate) fn overloaded(error: BodyMemoryError) -> Problem {
    let detail = format!("Overloaded: {error}.");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).retry_after(1).close()
}

pub(crate) fn body_too_large(limit: usize) -> Problem {
    let detail = format!("The body is larger than {limit} bytes.");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).close()
}

pub(crate) fn body_timeout(timeout: Duration) -> Problem {
    let detail = format!("The body was not received within {} s.", timeout.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).close()
}

fn slow_body(pace: BodyPace, received: usize) -> Problem {
    let time = pace.time_for(received);
    if time == pace.timeout {
        return body_timeout(time);
    }
    let (secs, rate) = (time.as_secs(), pace.bytes_per_second_min);
    let detail = format!(
        "The body arrived too slowly: {received} bytes in {secs} s, at least {rate} bytes per second \
         are required."
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).close()
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible, net::IpAddr, sync::Arc};

    use http_body_util::StreamBody;
    use hyper::body::SizeHint;
    use surehook_engine::body_memory::BodyMemory;
    use surehook_types::{ids::SourceId, time::Timestamp};

    use super::*;

    const PACE: BodyPace =
        BodyPace { timeout: Duration::from_secs(30), bytes_per_second_min: 1024 };

    /// A body in parts, each after a pause; with a declared length, or without one.
    struct PartsBody {
        parts: VecDeque<(Duration, Bytes)>,
        declared: Option<u64>,
        pause: Option<Pin<Box<tokio::time::Sleep>>>,
    }

    impl PartsBody {
        fn new(parts: impl IntoIterator<Item = (Duration, Vec<u8>)>) -> Self {
            let parts: VecDeque<_> =
                parts.into_iter().map(|(pause, part)| (pause, part.into())).collect();
            let declared = parts.iter().map(|(_, part): &(_, Bytes)| part.len() as u64).sum();
            Self { parts, declared: Some(declared), pause: None }
        }
    }

    impl Body for PartsBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some((pause, _)) = self.parts.front() else { return Poll::Ready(None) };
            let pause = *pause;
            let timer = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            std::task::ready!(timer.as_mut().poll(context));
            self.pause = None;
            let part = self.parts.pop_front().map(|(_, part)| part);
            Poll::Ready(part.map(|part| Ok(Frame::data(part))))
        }

        fn is_end_stream(&self) -> bool {
            self.declared.is_some() && self.parts.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            self.declared.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    fn owners() -> BodyOwners {
        let source = SourceId::new(Timestamp::default(), 1);
        BodyOwners { address: IpAddr::from([192, 0, 2, 1]), source }
    }

    async fn read(
        body: PartsBody,
        memory: &Arc<BodyMemory>,
    ) -> (Result<Bytes, Problem>, BodyReservation) {
        let mut reservation = BodyReservation::new(memory);
        let owners = Some(owners());
        let result = read_reserved_body(body, 1 << 20, PACE, &mut reservation, owners).await;
        (result, reservation)
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_reserved_as_bytes_arrive() {
        let memory = BodyMemory::new(4 << 20, 1 << 20);
        let pause = Duration::from_secs(1);
        let parts = [vec![1; 100 << 10], vec![2; 900 << 10]].map(|part| (pause, part));
        let mut reading = pin!(read(PartsBody::new(parts), &memory));
        let mut used = Vec::new();
        for pause_ms in [500, 1000] {
            tokio::select! {
                _ = &mut reading => panic!("the body has not arrived"),
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => used.push(memory.used()),
            }
        }
        assert_eq!(used[0], 0, "a declared length reserves nothing");
        assert!((100 << 10..=200 << 10).contains(&used[1]), "{used:?}");
        let (body, reservation) = reading.await;
        assert_eq!((body.unwrap().len(), reservation.bytes()), (1000 << 10, 1000 << 10));
        drop(reservation);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn tiny_parts_take_no_more_memory_than_their_bytes() {
        let memory = BodyMemory::new(64 << 10, 16 << 10);
        // Each part keeps a block of 8 KiB alive for as long as it is referred to.
        let block = Bytes::from(vec![7; 8 << 10]);
        let parts = (0..10_000).map(|_| (Duration::ZERO, block.slice(..1)));
        let body = PartsBody { parts: parts.collect(), declared: None, pause: None };
        let (result, reservation) = read(body, &memory).await;
        assert_eq!((result.unwrap().len(), reservation.bytes()), (10_000, 10_000));
        assert!(block.is_unique(), "no part is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn body_slower_than_the_minimum_rate_is_refused() {
        let memory = BodyMemory::new(4 << 20, 1 << 20);
        let drip = |bytes: usize, parts: usize| {
            PartsBody::new((0..parts).map(|_| (Duration::from_secs(1), vec![1; bytes])))
        };
        let started = Instant::now();
        let (slow, _) = read(drip(100, 20), &memory).await;
        assert_eq!(slow.unwrap_err().code(), "body_timeout");
        assert_eq!(started.elapsed(), RATE_GRACE);
        let (steady, _) = read(drip(1500, 20), &memory).await;
        assert_eq!(steady.unwrap().len(), 30_000);
        let started = Instant::now();
        let (endless, _) = read(drip(2000, 50), &memory).await;
        assert_eq!(endless.unwrap_err().code(), "body_timeout");
        assert_eq!(started.elapsed(), PACE.timeout);
    }

    #[tokio::test]
    async fn body_over_the_limit_is_refused_with_and_without_a_declared_length() {
        let memory = BodyMemory::new(4 << 20, 1 << 20);
        let parts = || (0..11).map(|_| (Duration::ZERO, vec![1; 100 << 10]));
        for declared in [Some(1100 << 10), None] {
            let body = PartsBody { declared, ..PartsBody::new(parts()) };
            let (result, _) = read(body, &memory).await;
            assert_eq!(result.unwrap_err().code(), "body_too_large");
        }
    }

    #[tokio::test]
    async fn body_without_parts_is_empty() {
        let stream = futures_util::stream::empty::<Result<Frame<Bytes>, Infallible>>();
        let body = read_body(StreamBody::new(stream), 10, PACE).await;
        assert_eq!(body.unwrap(), Bytes::new());
    }
}
