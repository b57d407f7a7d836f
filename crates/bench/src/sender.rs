//! One connection of the generator: patches, sends, reads, records, until the load is over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::answer::{Answer, Verdict};
use crate::latency;
use crate::load::Shared;
use crate::request::Request;

/// A gateway's answer to one event is about 300 bytes; a problem document fits too.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// The numbers of the keys one connection sends: every `step`th from `first`, `keys` of them,
/// then again from the first. No two connections share a number.
pub(crate) struct Walk {
    pub(crate) first: u64,
    pub(crate) step: u64,
    pub(crate) keys: u64,
}

impl Walk {
    fn number(&self, turn: u64) -> u64 {
        self.first + (turn % self.keys) * self.step
    }
}

/// When a paced connection sends, in seconds after the start.
pub(crate) struct Beat {
    pub(crate) offset: f64,
    pub(crate) every: f64,
}

impl Beat {
    fn due(&self, turn: u64, started: Instant) -> Instant {
        started + Duration::from_secs_f64(self.offset + self.every * turn as f64)
    }
}

/// One connection.
pub(crate) struct Sender {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) request: Request,
    pub(crate) walk: Walk,
    pub(crate) has_fixed_bodies: bool,
    pub(crate) quota: u64,
    pub(crate) expected: Verdict,
    pub(crate) beat: Option<Beat>,
}

impl Sender {
    pub(crate) async fn run(
        self,
        shared: Arc<Shared>,
        latency: Arc<Mutex<Histogram<u64>>>,
    ) -> Result<()> {
        let Self { stream, mut request, walk, has_fixed_bodies, quota, expected, beat } = self;
        let mut line = Line::new(stream)?;
        let mut free_at = shared.started.instant;
        // A connection without keys of its own (more connections than keys) stays idle.
        let quota = if walk.keys == 0 { 0 } else { quota };
        for turn in 0..quota {
            let due = beat.as_ref().map(|beat| beat.due(turn, shared.started.instant));
            // What was due before the end is sent, however late; the rate is then as promised.
            if shared.is_over(due.unwrap_or(free_at)) {
                break;
            }
            let begun = match due {
                None => free_at,
                Some(due) => turn_begins(due, free_at).await,
            };
            let sent_ns = if has_fixed_bodies { 0 } else { shared.started.wall_ns_at(begun) };
            request.patch(walk.number(turn), sent_ns);
            line.exchange(request.bytes(), expected).await?;
            free_at = Instant::now();
            shared.answered.fetch_add(1, Ordering::Relaxed);
            let mut latency = latency.lock().unwrap_or_else(PoisonError::into_inner);
            latency::record(&mut latency, free_at - begun);
        }
        Ok(())
    }
}

/// Waits for a paced request's turn and says from when it counts; see [`crate::load`].
async fn turn_begins(due: Instant, free_at: Instant) -> Instant {
    if free_at >= due {
        return due;
    }
    tokio::time::sleep_until(due.into()).await;
    Instant::now()
}

/// A connection with its read buffer.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    fn new(stream: std::net::TcpStream) -> Result<Self> {
        Ok(Self { stream: TcpStream::from_std(stream)?, buffer: vec![0; ANSWER_BYTES_MAX] })
    }

    /// Sends one request and reads its answer, which must be the expected one.
    async fn exchange(&mut self, request: &[u8], expected: Verdict) -> Result<()> {
        self.stream.write_all(request).await.context("cannot send a request")?;
        let mut filled = 0;
        loop {
            let room = &mut self.buffer[filled..];
            ensure!(!room.is_empty(), "an answer is longer than {ANSWER_BYTES_MAX} bytes");
            let read = self.stream.read(room).await.context("cannot read an answer")?;
            ensure!(read > 0, "the server closed a connection before it answered");
            filled += read;
            let Some(answer) = Answer::parse(&self.buffer[..filled])? else { continue };
            ensure!(answer.len == filled, "there are bytes after an answer");
            if answer.verdict() != Some(expected) {
                bail!(
                    "expected 200 {expected:?}, the server answered {} {}",
                    answer.status,
                    String::from_utf8_lossy(answer.body)
                );
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_keys_are_walked_once_each_before_they_repeat() {
        let (connections, count) = (3_u64, 10_u64);
        let mut numbers: Vec<u64> = (0..connections)
            .flat_map(|index| {
                let keys = count / connections + u64::from(index < count % connections);
                let walk = Walk { first: index, step: connections, keys };
                assert_eq!(walk.number(keys), walk.number(0));
                (0..keys).map(move |turn| walk.number(turn))
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn a_late_request_counts_from_when_it_was_due() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let due = Instant::now();
        let free_at = due + Duration::from_millis(5);
        assert_eq!(runtime.block_on(turn_begins(due, free_at)), due);
        let due = Instant::now() + Duration::from_millis(5);
        assert!(runtime.block_on(turn_begins(due, due - Duration::from_millis(1))) >= due);
    }
}
