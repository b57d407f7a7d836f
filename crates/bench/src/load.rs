//! The load generator.
//!
//! It is an ordinary HTTP client (hyper's, the one under most Rust programs), and each answer is
//! parsed and checked, as a sender would. It shares the machine with what it measures, so what it
//! costs is part of every figure, the limit's too: a lighter generator (bytes written to a socket,
//! answers not parsed) makes the bare server look twice as fast and a gateway a fifth. See
//! docs/decisions/0015. It has threads of its own with one-threaded runtimes, because tasks that
//! never change threads need no stealing.
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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock::Moment;
use crate::latency;
use crate::plan::{Plan, Until};
use crate::sender::Sender;

/// A server that answers nothing for so long has stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often the watcher looks: fine enough for a curve, coarse enough to cost nothing.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// More threads than this send faster than any one gateway answers.
const THREADS_MAX: usize = 8;

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
    let senders = plan.senders()?;
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
pub(crate) struct Shared {
    pub(crate) started: Moment,
    deadline: Option<Instant>,
    pub(crate) answered: AtomicU64,
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

    /// Whether nothing is to be sent any more at `now`.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Verdict;
    use crate::limit;
    use crate::plan::Pace;
    use std::net::SocketAddr;
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
}
