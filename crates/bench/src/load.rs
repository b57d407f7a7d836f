//! The load generator.
//!
//! Tasks on an ordinary runtime, each with hyper's pooled client, that parse and check every
//! response. The generator shares the machine with the measured server, so its cost is part of
//! every number, also of the limit (docs/decisions/0015).
//!
//! - **Closed loop**: a connection sends its next request when it has the last response. This finds
//!   the highest rate; its latencies are those of a saturated server.
//! - **Paced**: a connection sends at set times; a request that could not be sent on time counts
//!   from its due time (see [`wait_for_turn`]).
//!
//! An unexpected response ends the load with an error, and so does a silence of [`SILENCE_MAX`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use crate::clock::ClockReading;
use crate::latency;
use crate::request::{BodyShape, KeySeries, RequestTemplate};
use crate::response::{EventVerdict, check_response};

/// A load: what to send, where, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    /// The nodes; each connection goes to one of them.
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) sources: Vec<String>,
    /// Connections per source.
    pub(crate) connections: usize,
    pub(crate) body_bytes: usize,
    pub(crate) until: StopCondition,
    pub(crate) keys: KeyPlan,
    pub(crate) expected: EventVerdict,
    pub(crate) pace: SendRate,
    pub(crate) shape: BodyShape,
    /// Counts requests that fail or are refused, instead of ending the load with an error.
    pub(crate) counts_failures: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum StopCondition {
    Elapsed(Duration),
    /// Until the flag is set.
    Signaled(Arc<AtomicBool>),
    /// Until this many answers, over all connections.
    Answers(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum KeyPlan {
    /// Every key is new.
    New,
    /// The same `count` bodies again and again, byte for byte.
    Fixed { series: KeySeries, count: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SendRate {
    ClosedLoop,
    /// Requests per second and source.
    PerSecond(f64),
}

impl LoadPlan {
    /// A closed loop of new keys to one source. The caller sets `until`.
    pub(crate) fn closed_loop(
        addr: SocketAddr,
        source: &str,
        connections: usize,
        body_bytes: usize,
    ) -> Self {
        Self {
            addrs: vec![addr],
            sources: vec![source.to_owned()],
            connections,
            body_bytes,
            until: StopCondition::Elapsed(Duration::ZERO),
            keys: KeyPlan::New,
            expected: EventVerdict::Accepted,
            pace: SendRate::ClosedLoop,
            shape: BodyShape::default(),
            counts_failures: false,
        }
    }

    /// One sender per connection.
    fn senders(&self) -> Result<Vec<LoadSender>> {
        let series = match &self.keys {
            KeyPlan::New => KeySeries::random(),
            KeyPlan::Fixed { series, .. } => series.clone(),
        };
        let total = self.sources.len() * self.connections;
        (0..total).map(|index| self.sender(index, total, &series)).collect()
    }

    fn sender(&self, index: usize, total: usize, series: &KeySeries) -> Result<LoadSender> {
        // Consecutive requests go to different sources.
        let source = &self.sources[index % self.sources.len()];
        let addr =
            *self.addrs.get(index % self.addrs.len().max(1)).context("a load needs a server")?;
        let share = |whole: u64| {
            let (index, total) = (index as u64, total as u64);
            whole / total + u64::from(index < whole % total)
        };
        Ok(LoadSender {
            request: RequestTemplate::new(addr, source, series, self.shape, self.body_bytes)?,
            key_sequence: KeySequence {
                first: index as u64,
                step: total as u64,
                keys: match &self.keys {
                    KeyPlan::New => u64::MAX,
                    KeyPlan::Fixed { count, .. } => share(*count),
                },
            },
            has_fixed_bodies: matches!(self.keys, KeyPlan::Fixed { .. }),
            quota: match &self.until {
                StopCondition::Elapsed(_) | StopCondition::Signaled(_) => u64::MAX,
                StopCondition::Answers(answers) => share(*answers),
            },
            expected: self.expected,
            counts_failures: self.counts_failures,
            schedule: match self.pace {
                SendRate::ClosedLoop => None,
                SendRate::PerSecond(rate) => {
                    let interval = self.connections as f64 / rate;
                    Some(SendSchedule { offset: interval * index as f64 / total as f64, interval })
                }
            },
        })
    }
}

/// A server that answers nothing for this long has stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Sampling interval: fine enough for a curve, coarse enough to cost nothing.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// The result of a load.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) answered: u64,
    /// Only if the plan counts failures.
    pub(crate) failed: u64,
    pub(crate) elapsed: Duration,
    pub(crate) started: ClockReading,
    pub(crate) latency: Histogram<u64>,
}

impl LoadResult {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn ended_ns(&self) -> u64 {
        self.started.wall_ns_at(self.started.instant + self.elapsed)
    }
}

/// Runs `plan`. `sample` is called every [`SAMPLE_INTERVAL`] with the elapsed time and the number of
/// answers.
pub(crate) async fn generate_load(
    plan: LoadPlan,
    mut sample: impl FnMut(Duration, u64),
) -> Result<LoadResult> {
    let senders = plan.senders()?;
    let state = Arc::new(LoadState::start(&plan.until));
    // Dropped with this future: a load that is abandoned stops sending.
    let mut sending = JoinSet::new();
    for sender in senders {
        sending.spawn(sender.run(Arc::clone(&state)));
    }
    let mut silence = SilenceWatchdog::start();
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    loop {
        tokio::select! {
            ended = sending.join_next() => match ended {
                Some(ended) => ended.context("a sender panicked")??,
                None => break,
            },
            _ = ticks.tick() => {
                let answered = state.answered.load(Ordering::Relaxed);
                silence.check(answered)?;
                sample(state.started.instant.elapsed(), answered);
            }
        }
    }
    Ok(LoadResult {
        answered: state.answered.load(Ordering::Relaxed),
        failed: state.failed.load(Ordering::Relaxed),
        elapsed: state.started.instant.elapsed(),
        started: state.started,
        latency: state.latency().clone(),
    })
}

/// State shared by all senders of a load.
struct LoadState {
    started: ClockReading,
    deadline: Option<Instant>,
    stop: Option<Arc<AtomicBool>>,
    answered: AtomicU64,
    failed: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

impl LoadState {
    fn start(until: &StopCondition) -> Self {
        let started = ClockReading::now();
        let (deadline, stop) = match until {
            StopCondition::Elapsed(duration) => (Some(started.instant + *duration), None),
            StopCondition::Signaled(stop) => (None, Some(Arc::clone(stop))),
            StopCondition::Answers(_) => (None, None),
        };
        let latency = Mutex::new(latency::histogram());
        let (answered, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { started, deadline, stop, answered, failed, latency }
    }

    /// Whether requests due at `now` are no longer sent.
    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
            || self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn record_answer(&self, latency: Duration) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        latency::record(&mut self.latency(), latency);
    }

    fn latency(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails if the server stops answering.
struct SilenceWatchdog {
    answered: u64,
    since: Instant,
}

impl SilenceWatchdog {
    fn start() -> Self {
        Self { answered: 0, since: Instant::now() }
    }

    fn check(&mut self, answered: u64) -> Result<()> {
        if answered != self.answered {
            *self = Self { answered, since: Instant::now() };
        }
        ensure!(
            self.since.elapsed() < SILENCE_MAX,
            "the server did not answer for {SILENCE_MAX:?} (after {answered} answers)"
        );
        Ok(())
    }
}

/// The key numbers of one connection: every `step`th from `first`, `keys` of them, then again from
/// the first. No two connections share a number.
struct KeySequence {
    first: u64,
    step: u64,
    keys: u64,
}

impl KeySequence {
    fn number(&self, turn: u64) -> u64 {
        self.first + (turn % self.keys) * self.step
    }
}

/// When a paced connection sends: times in seconds, the offset from the start.
struct SendSchedule {
    offset: f64,
    interval: f64,
}

impl SendSchedule {
    fn due_at(&self, turn: u64, started: Instant) -> Instant {
        started + Duration::from_secs_f64(self.offset + self.interval * turn as f64)
    }
}

/// One connection: builds a request, sends it and checks the response, until the load is over.
struct LoadSender {
    request: RequestTemplate,
    key_sequence: KeySequence,
    has_fixed_bodies: bool,
    /// The number of requests after which it stops.
    quota: u64,
    expected: EventVerdict,
    counts_failures: bool,
    schedule: Option<SendSchedule>,
}

impl LoadSender {
    async fn run(self, state: Arc<LoadState>) -> Result<()> {
        let Self { mut request, key_sequence, has_fixed_bodies, quota, expected, .. } = self;
        let (counts_failures, schedule) = (self.counts_failures, self.schedule);
        let client = SenderClient::new(expected);
        let mut free_at = state.started.instant;
        // With more connections than keys, a connection without keys stays idle.
        let quota = if key_sequence.keys == 0 { 0 } else { quota };
        for turn in 0..quota {
            let due =
                schedule.as_ref().map(|schedule| schedule.due_at(turn, state.started.instant));
            // Requests that were due before the end are sent, however late, so that the rate is exact.
            if state.is_over(due.unwrap_or(free_at)) {
                break;
            }
            let sent_at = match due {
                None => free_at,
                Some(due) => wait_for_turn(due, free_at).await,
            };
            let sent_ns = if has_fixed_bodies { 0 } else { state.started.wall_ns_at(sent_at) };
            let number = key_sequence.number(turn);
            let answered = client.exchange(&mut request, number, sent_ns).await;
            free_at = Instant::now();
            match answered {
                Ok(()) => state.record_answer(free_at - sent_at),
                Err(_) if counts_failures => {
                    state.failed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits until a paced request is due and returns the time from which its latency counts.
///
/// If the connection was still waiting for a response when the request was due, it counts from its
/// due time: a stall of the server is charged to every request it delayed (no coordinated
/// omission). Otherwise it counts from when it was sent, so that the millisecond steps of the timer
/// are not charged to the server.
async fn wait_for_turn(due: Instant, free_at: Instant) -> Instant {
    if free_at >= due {
        return due;
    }
    tokio::time::sleep_until(due.into()).await;
    Instant::now()
}

/// An HTTP client with its own connection.
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

    /// Sends one request and checks its response.
    async fn exchange(
        &self,
        request: &mut RequestTemplate,
        number: u64,
        sent_ns: u64,
    ) -> Result<()> {
        let response = self.client.request(request.build(number, sent_ns)).await?;
        let status = response.status();
        let body = response.into_body().collect().await.context("cannot read a response")?;
        check_response(status, &body.to_bytes(), self.expected, request.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit;
    use crate::sink::{self, SinkMode};
    use tokio::net::TcpListener;

    async fn start_limit_server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(limit::serve(listener));
        addr
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_with_an_answer_count_sends_exactly_that_many() {
        let addr = start_limit_server().await;
        for (connections, answers) in [(7, 100), (8, 3), (1, 1)] {
            let plan = LoadPlan {
                until: StopCondition::Answers(answers),
                ..LoadPlan::closed_loop(addr, "in-only", connections, 1024)
            };
            let outcome = generate_load(plan, |_, _| {}).await.unwrap();
            assert_eq!(outcome.answered, answers);
            assert_eq!(outcome.latency.len(), answers);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn paced_load_sends_every_due_request() {
        let plan = LoadPlan {
            sources: vec!["a".to_owned(), "b".to_owned()],
            until: StopCondition::Elapsed(Duration::from_millis(395)),
            pace: SendRate::PerSecond(50.0),
            ..LoadPlan::closed_loop(start_limit_server().await, "", 2, 512)
        };
        // One every 10 ms: the first at 0 ms, the last at 390 ms.
        let outcome = generate_load(plan, |_, _| {}).await.unwrap();
        assert_eq!(outcome.answered, 40);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unexpected_response_ends_the_load() {
        let plan = LoadPlan {
            until: StopCondition::Answers(10),
            expected: EventVerdict::Duplicate,
            ..LoadPlan::closed_loop(start_limit_server().await, "in-only", 2, 512)
        };
        let error = generate_load(plan, |_, _| {}).await.unwrap_err();
        assert!(format!("{error:#}").contains("expected 200 Duplicate"), "{error:#}");
    }

    #[tokio::test]
    async fn load_fails_if_the_response_is_not_a_verdict() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(sink::serve(listener, SinkMode::Answer));
        let plan = LoadPlan {
            until: StopCondition::Answers(1),
            ..LoadPlan::closed_loop(addr, "any", 1, 512)
        };
        let error = generate_load(plan, |_, _| {}).await.unwrap_err();
        assert!(format!("{error:#}").contains("answered 200"), "{error:#}");
    }

    #[test]
    fn fixed_keys_are_all_sent_before_one_repeats() {
        let (connections, count) = (3_u64, 10_u64);
        let mut numbers: Vec<u64> = (0..connections)
            .flat_map(|index| {
                let keys = count / connections + u64::from(index < count % connections);
                let sequence = KeySequence { first: index, step: connections, keys };
                assert_eq!(sequence.number(keys), sequence.number(0));
                (0..keys).map(move |turn| sequence.number(turn))
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
        assert_eq!(runtime.block_on(wait_for_turn(due, free_at)), due);
        let due = Instant::now() + Duration::from_millis(5);
        assert!(runtime.block_on(wait_for_turn(due, due - Duration::from_millis(1))) >= due);
    }
}
