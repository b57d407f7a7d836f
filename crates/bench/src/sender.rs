//! One connection of the generator: makes a request, sends it, checks the answer, until the load is
//! over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::answer::{self, EventVerdict};
use crate::load::LoadState;
use crate::request::RequestTemplate;

/// The numbers of the keys one connection sends: every `step`th from `first`, `keys` of them,
/// then again from the first. No two connections share a number.
pub(crate) struct KeySequence {
    pub(crate) first: u64,
    pub(crate) step: u64,
    pub(crate) keys: u64,
}

impl KeySequence {
    fn number(&self, turn: u64) -> u64 {
        self.first + (turn % self.keys) * self.step
    }
}

/// When a paced connection sends, in seconds after the start.
pub(crate) struct SendSchedule {
    pub(crate) offset: f64,
    pub(crate) every: f64,
}

impl SendSchedule {
    fn due(&self, turn: u64, started: Instant) -> Instant {
        started + Duration::from_secs_f64(self.offset + self.every * turn as f64)
    }
}

/// One connection.
pub(crate) struct LoadSender {
    pub(crate) request: RequestTemplate,
    pub(crate) walk: KeySequence,
    pub(crate) has_fixed_bodies: bool,
    pub(crate) quota: u64,
    pub(crate) expected: EventVerdict,
    pub(crate) beat: Option<SendSchedule>,
}

impl LoadSender {
    pub(crate) async fn run(self, shared: Arc<LoadState>) -> Result<()> {
        let Self { mut request, walk, has_fixed_bodies, quota, expected, beat } = self;
        let line = SenderClient::new(expected);
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
            line.exchange(&mut request, walk.number(turn), sent_ns).await?;
            free_at = Instant::now();
            shared.answered(free_at - begun);
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

/// An ordinary HTTP client with a connection of its own.
struct SenderClient {
    client: Client<HttpConnector, Full<Bytes>>,
    expected: EventVerdict,
}

impl SenderClient {
    fn new(expected: EventVerdict) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { client: Client::builder(TokioExecutor::new()).build(connector), expected }
    }

    /// Sends one request and reads its answer, which must be the expected one.
    async fn exchange(
        &self,
        request: &mut RequestTemplate,
        number: u64,
        sent_ns: u64,
    ) -> Result<()> {
        let response = self.client.request(request.make(number, sent_ns)).await?;
        let status = response.status();
        let body = response.into_body().collect().await.context("cannot read an answer")?;
        answer::check(status, &body.to_bytes(), self.expected, request.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_keys_are_all_sent_before_one_repeats() {
        let (connections, count) = (3_u64, 10_u64);
        let mut numbers: Vec<u64> = (0..connections)
            .flat_map(|index| {
                let keys = count / connections + u64::from(index < count % connections);
                let walk = KeySequence { first: index, step: connections, keys };
                assert_eq!(walk.number(keys), walk.number(0));
                (0..keys).map(move |turn| walk.number(turn))
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn late_request_counts_from_its_due_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let due = Instant::now();
        let free_at = due + Duration::from_millis(5);
        assert_eq!(runtime.block_on(turn_begins(due, free_at)), due);
        let due = Instant::now() + Duration::from_millis(5);
        assert!(runtime.block_on(turn_begins(due, due - Duration::from_millis(1))) >= due);
    }
}
