//! The load generator.
//!
//! It shares the machine with what it measures, so it is as light as it can be: requests built
//! once and patched ([`crate::request`]), answers looked at and not parsed ([`crate::answer`]),
//! one clock reading for each request, and threads of its own with one-threaded runtimes, because
//! tasks that never change threads need no stealing. There are as many threads as cores: with
//! half as many, on two cores, the limit was 98,000/s instead of 118,000/s, which is the limit of
//! the generator and not of the server.
//!
//! Two ways of sending:
//! - **closed loop**: a connection sends its next request when it has the last answer. This
//!   finds the highest rate. Its latencies are those of a saturated server.
//! - **paced**: a connection sends at set times. If it was still waiting for an answer when the
//!   next request was due, that request counts from when it was *due*: a stall of the server is
//!   charged to every request it delayed (no coordinated omission). If the connection was free,
//!   it counts from when it was sent, so that the millisecond steps of the timer are not charged
//!   to the server.
//!
//! Any answer other than the expected one ends the load with an error. So does a silence of
//! [`SILENCE_MAX`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::answer::{Answer, Verdict};
use crate::clock::Moment;
use crate::latency;
use crate::request::{Request, Series};

/// A server that answers nothing for so long has stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often the watcher looks: fine enough for a curve, coarse enough to cost nothing.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// A gateway's answer to one event is about 300 bytes; a problem document fits too.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// More threads than this send faster than any one gateway answers.
const THREADS_MAX: usize = 8;

/// What to send, where, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) addr: SocketAddr,
    pub(crate) sources: Vec<String>,
    /// For each source.
    pub(crate) connections: usize,
    pub(crate) body_bytes: usize,
    pub(crate) until: Until,
    pub(crate) keys: Keys,
    pub(crate) expected: Verdict,
    pub(crate) pace: Pace,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Elapsed(Duration),
    /// So many answers, over all connections.
    Answers(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// No key was ever sent before.
    Fresh,
    /// The same `count` bodies again and again, byte for byte.
    Fixed { series: Series, count: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Closed,
    /// So many requests per second for each source.
    PerSecond(f64),
}

impl Plan {
    /// A closed loop of new keys to one source. The caller says until when.
    pub(crate) fn closed(
        addr: SocketAddr,
        source: &str,
        connections: usize,
        body_bytes: usize,
    ) -> Self {
        Self {
            addr,
            sources: vec![source.to_owned()],
            connections,
            body_bytes,
            until: Until::Elapsed(Duration::ZERO),
            keys: Keys::Fresh,
            expected: Verdict::Accepted,
            pace: Pace::Closed,
        }
    }

    /// Opens all connections, so that opening them is not part of what is measured.
    fn connect(&self) -> Result<Vec<Sender>> {
        let series = match &self.keys {
            Keys::Fresh => Series::fresh(),
            Keys::Fixed { series, .. } => series.clone(),
        };
        let total = self.sources.len() * self.connections;
        (0..total).map(|index| self.sender(index, total, &series)).collect()
    }

    fn sender(&self, index: usize, total: usize, series: &Series) -> Result<Sender> {
        // Neighbours in time go to different sources.
        let source = &self.sources[index % self.sources.len()];
        let stream = std::net::TcpStream::connect(self.addr)
            .with_context(|| format!("cannot connect to {}", self.addr))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let share = |whole: u64| {
            let (index, total) = (index as u64, total as u64);
            whole / total + u64::from(index < whole % total)
        };
        Ok(Sender {
            stream,
            request: Request::new(self.addr, source, series, self.body_bytes),
            walk: Walk {
                first: index as u64,
                step: total as u64,
                keys: match &self.keys {
                    Keys::Fresh => u64::MAX,
                    Keys::Fixed { count, .. } => share(*count),
                },
            },
            has_fixed_bodies: matches!(self.keys, Keys::Fixed { .. }),
            quota: match self.until {
                Until::Elapsed(_) => u64::MAX,
                Until::Answers(answers) => share(answers),
            },
            expected: self.expected,
            beat: match self.pace {
                Pace::Closed => None,
                Pace::PerSecond(rate) => {
                    let every = self.connections as f64 / rate;
                    Some(Beat { offset: every * index as f64 / total as f64, every })
                }
            },
        })
    }
}

/// What a load came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answered: u64,
    pub(crate) elapsed: Duration,
    pub(crate) started: Moment,
    pub(crate) latency: Histogram<u64>,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn ended_ns(&self) -> u64 {
        self.started.wall_ns_at(self.started.instant + self.elapsed)
    }
}

/// Sends what `plan` says. `watch` is told now and then how much time has gone by and how many
/// answers have come.
pub(crate) async fn drive(plan: Plan, mut watch: impl FnMut(Duration, u64)) -> Result<Outcome> {
    let until = plan.until;
    // Connecting blocks, if only for microseconds on the loopback.
    let senders = tokio::task::spawn_blocking(move || plan.connect()).await??;
    let shared = Arc::new(Shared::begin(until));
    let _stop = StopOnDrop(Arc::clone(&shared));
    let (mut results, threads) = start_threads(senders, &shared)?;

    let mut latency = latency::histogram();
    let mut ended = shared.started.instant;
    let mut finished = 0;
    let mut silence = Silence::begin();
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        tokio::select! {
            result = results.recv() => {
                let Some(result) = result else { break };
                let thread: Tally = result?;
                latency.add(&thread.latency).context("the histograms differ in bounds")?;
                ended = ended.max(thread.ended);
                finished += 1;
            }
            _ = ticks.tick() => {
                let answered = shared.answered.load(Ordering::Relaxed);
                silence.check(answered)?;
                watch(shared.started.instant.elapsed(), answered);
            }
        }
    }
    ensure!(finished == threads, "a thread of the load generator panicked");
    let answered = shared.answered.load(Ordering::Relaxed);
    let elapsed = ended - shared.started.instant;
    Ok(Outcome { answered, elapsed, started: shared.started, latency })
}

type Results = mpsc::UnboundedReceiver<Result<Tally>>;

fn start_threads(senders: Vec<Sender>, shared: &Arc<Shared>) -> Result<(Results, usize)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(THREADS_MAX).min(senders.len());
    let mut hands: Vec<Vec<Sender>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, sender) in senders.into_iter().enumerate() {
        hands[index % threads].push(sender);
    }
    let (report, results) = mpsc::unbounded_channel();
    for hand in hands {
        let (shared, report) = (Arc::clone(shared), report.clone());
        // A thread and not `spawn_blocking`: a runtime that shuts down waits for the latter.
        std::thread::Builder::new()
            .name("bench-load".to_owned())
            .spawn(move || {
                // The receiver is gone if the load was given up, and then nobody asks.
                let _ = report.send(work(hand, shared));
            })
            .context("cannot start a thread")?;
    }
    Ok((results, threads))
}

/// What one thread has to tell.
struct Tally {
    latency: Histogram<u64>,
    ended: Instant,
}

fn work(senders: Vec<Sender>, shared: Arc<Shared>) -> Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let latency = Arc::new(Mutex::new(latency::histogram()));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for sender in senders {
            tasks.spawn(sender.run(Arc::clone(&shared), Arc::clone(&latency)));
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a sender panicked")??;
        }
        anyhow::Ok(())
    })?;
    let ended = Instant::now();
    let latency = latency.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Tally { latency, ended })
}

/// What all threads of a load have in common.
struct Shared {
    started: Moment,
    deadline: Option<Instant>,
    answered: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn begin(until: Until) -> Self {
        let started = Moment::now();
        let deadline = match until {
            Until::Elapsed(span) => Some(started.instant + span),
            Until::Answers(_) => None,
        };
        Self { started, deadline, answered: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline) || self.stop.load(Ordering::Relaxed)
    }
}

/// Ends the threads when the load is given up half way.
struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Notices that the server has stopped answering.
struct Silence {
    answered: u64,
    since: Instant,
}

impl Silence {
    fn begin() -> Self {
        Self { answered: 0, since: Instant::now() }
    }

    fn check(&mut self, answered: u64) -> Result<()> {
        if answered != self.answered {
            *self = Self { answered, since: Instant::now() };
        }
        ensure!(
            self.since.elapsed() < SILENCE_MAX,
            "no answer for {SILENCE_MAX:?}, after {answered} answers"
        );
        Ok(())
    }
}

/// The numbers of the keys one connection sends: every `step`th from `first`, `keys` of them,
/// then again from the first. No two connections share a number.
struct Walk {
    first: u64,
    step: u64,
    keys: u64,
}

impl Walk {
    fn number(&self, turn: u64) -> u64 {
        self.first + (turn % self.keys) * self.step
    }
}

/// When a paced connection sends, in seconds after the start.
struct Beat {
    offset: f64,
    every: f64,
}

impl Beat {
    fn due(&self, turn: u64, started: Instant) -> Instant {
        started + Duration::from_secs_f64(self.offset + self.every * turn as f64)
    }
}

/// One connection.
struct Sender {
    stream: std::net::TcpStream,
    request: Request,
    walk: Walk,
    has_fixed_bodies: bool,
    quota: u64,
    expected: Verdict,
    beat: Option<Beat>,
}

impl Sender {
    async fn run(self, shared: Arc<Shared>, latency: Arc<Mutex<Histogram<u64>>>) -> Result<()> {
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

/// Waits for a paced request's turn and says from when it counts; see the head of this file.
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
    use crate::limit;
    use tokio::net::TcpListener;

    async fn limit() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(limit::serve(listener));
        addr
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_counted_load_sends_exactly_its_count() {
        let addr = limit().await;
        for (connections, answers) in [(7, 100), (8, 3), (1, 1)] {
            let plan = Plan {
                until: Until::Answers(answers),
                ..Plan::closed(addr, "in-only", connections, 1024)
            };
            let outcome = drive(plan, |_, _| {}).await.unwrap();
            assert_eq!(outcome.answered, answers);
            assert_eq!(outcome.latency.len(), answers);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_paced_load_sends_what_was_due() {
        let plan = Plan {
            sources: vec!["a".to_owned(), "b".to_owned()],
            until: Until::Elapsed(Duration::from_millis(395)),
            pace: Pace::PerSecond(50.0),
            ..Plan::closed(limit().await, "", 2, 512)
        };
        // One every 10 ms, the first at once, the last at 390 ms.
        let outcome = drive(plan, |_, _| {}).await.unwrap();
        assert_eq!(outcome.answered, 40);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_unexpected_verdict_ends_the_load() {
        let plan = Plan {
            until: Until::Answers(10),
            expected: Verdict::Duplicate,
            ..Plan::closed(limit().await, "in-only", 2, 512)
        };
        let error = drive(plan, |_, _| {}).await.unwrap_err();
        assert!(format!("{error:#}").contains("expected 200 Duplicate"), "{error:#}");
    }

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
