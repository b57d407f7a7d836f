//! The load generator.
//!
//! It is what most people would write: tasks on an ordinary runtime, each with hyper's pooled
//! client, that parse and check every answer. It shares the machine with what it measures, so what
//! it costs is part of every figure, the limit's too (docs/decisions/0015).
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::clock::ClockReading;
use crate::latency;
use crate::plan::{LoadPlan, StopCondition};

/// A server that answers nothing for so long has stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often the watcher looks: fine enough for a curve, coarse enough to cost nothing.
const WATCH_EVERY: Duration = Duration::from_millis(250);

/// What a load came to.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) answered: u64,
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

/// Sends what `plan` says. `watch` is told now and then how much time has gone by and how many
/// answers have come.
pub(crate) async fn drive(
    plan: LoadPlan,
    mut watch: impl FnMut(Duration, u64),
) -> Result<LoadResult> {
    let senders = plan.senders()?;
    let shared = Arc::new(LoadState::begin(&plan.until));
    // Dropped with this future: a load that is given up half way sends no more.
    let mut sending = JoinSet::new();
    for sender in senders {
        sending.spawn(sender.run(Arc::clone(&shared)));
    }
    let mut silence = SilenceWatchdog::begin();
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        tokio::select! {
            ended = sending.join_next() => match ended {
                Some(ended) => ended.context("a sender panicked")??,
                None => break,
            },
            _ = ticks.tick() => {
                let answered = shared.answered.load(Ordering::Relaxed);
                silence.check(answered)?;
                watch(shared.started.instant.elapsed(), answered);
            }
        }
    }
    Ok(LoadResult {
        answered: shared.answered.load(Ordering::Relaxed),
        elapsed: shared.started.instant.elapsed(),
        started: shared.started,
        latency: shared.latency().clone(),
    })
}

/// What all senders of a load have in common.
pub(crate) struct LoadState {
    pub(crate) started: ClockReading,
    deadline: Option<Instant>,
    told: Option<Arc<AtomicBool>>,
    answered: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

impl LoadState {
    fn begin(until: &StopCondition) -> Self {
        let started = ClockReading::now();
        let (deadline, told) = match until {
            StopCondition::Elapsed(span) => (Some(started.instant + *span), None),
            StopCondition::Signaled(told) => (None, Some(Arc::clone(told))),
            StopCondition::Answers(_) => (None, None),
        };
        let latency = Mutex::new(latency::histogram());
        Self { started, deadline, told, answered: AtomicU64::new(0), latency }
    }

    /// Whether nothing is to be sent any more at `now`.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
            || self.told.as_ref().is_some_and(|told| told.load(Ordering::Relaxed))
    }

    /// Counts an answer that took so long.
    pub(crate) fn answered(&self, took: Duration) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        latency::record(&mut self.latency(), took);
    }

    fn latency(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notices that the server has stopped answering.
struct SilenceWatchdog {
    answered: u64,
    since: Instant,
}

impl SilenceWatchdog {
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
    use crate::answer::EventVerdict;
    use crate::limit;
    use crate::plan::SendRate;
    use std::net::SocketAddr;
    use tokio::net::TcpListener;

    async fn limit() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(limit::serve(listener));
        addr
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_with_an_answer_count_sends_exactly_that_many() {
        let addr = limit().await;
        for (connections, answers) in [(7, 100), (8, 3), (1, 1)] {
            let plan = LoadPlan {
                until: StopCondition::Answers(answers),
                ..LoadPlan::closed(addr, "in-only", connections, 1024)
            };
            let outcome = drive(plan, |_, _| {}).await.unwrap();
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
            ..LoadPlan::closed(limit().await, "", 2, 512)
        };
        // One every 10 ms, the first at once, the last at 390 ms.
        let outcome = drive(plan, |_, _| {}).await.unwrap();
        assert_eq!(outcome.answered, 40);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unexpected_response_ends_the_load() {
        let plan = LoadPlan {
            until: StopCondition::Answers(10),
            expected: EventVerdict::Duplicate,
            ..LoadPlan::closed(limit().await, "in-only", 2, 512)
        };
        let error = drive(plan, |_, _| {}).await.unwrap_err();
        assert!(format!("{error:#}").contains("expected 200 Duplicate"), "{error:#}");
    }
}
