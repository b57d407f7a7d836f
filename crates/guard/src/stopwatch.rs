//! Measures where the time of an attempt goes: DNS, connect, TLS, first byte.
//!
//! A connection is opened below the HTTP client, which does not say for which attempt. So the stopwatch
//! of an attempt is a task-local value: [`Stopwatch::watch`] sets it, and the connector, which the client
//! calls within that task, reads it. A connection keeps the stopwatch of the attempt it was opened for, and
//! every response on it carries it: a response with another stopwatch came over a reused connection.
//!
//! The cost is one clock reading on a reused connection, and four more on a new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::timing::AttemptTiming;
use tokio::time::Instant;

tokio::task_local! {
    static ATTEMPT_STOPWATCH: Stopwatch;
}

/// A stage of opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectStage {
    Dns,
    Connect,
    Tls,
}

/// The measurements of one attempt. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Stopwatch(Arc<Mutex<StageTimes>>);

#[derive(Debug, Default)]
struct StageTimes {
    running: Option<(ConnectStage, Instant)>,
    dns: Option<Duration>,
    connect: Option<Duration>,
    tls: Option<Duration>,
    open_since: Option<Instant>,
    /// Whether the attempt asked for a new connection.
    needed_connection: bool,
}

/// When the head of a response arrived.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHeadTime {
    at: Instant,
    /// Whether the connection was opened for this attempt.
    is_new_connection: bool,
}

impl Stopwatch {
    /// The stopwatch of the current attempt; an unused one outside of an attempt.
    pub fn of_attempt() -> Self {
        ATTEMPT_STOPWATCH.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs an attempt, or a part of it, with this stopwatch.
    pub async fn watch<F: Future>(&self, attempt: F) -> F::Output {
        ATTEMPT_STOPWATCH.scope(self.clone(), attempt).await
    }

    fn stages(&self) -> MutexGuard<'_, StageTimes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a stage and ends the one before. Returns the time.
    pub fn begin(&self, stage: ConnectStage) -> Instant {
        let now = Instant::now();
        let mut stages = self.stages();
        stages.end(now);
        (stages.running, stages.needed_connection) = (Some((stage, now)), true);
        now
    }

    /// Records that the connection is open.
    pub fn record_open(&self) {
        let now = Instant::now();
        let mut stages = self.stages();
        stages.end(now);
        (stages.open_since, stages.needed_connection) = (Some(now), true);
    }

    /// Records the head of a response, on a connection that was opened for `opened_for`.
    pub fn record_head(&self, opened_for: Option<&Self>) -> ResponseHeadTime {
        let is_new_connection = opened_for.is_some_and(|other| Arc::ptr_eq(&self.0, &other.0));
        ResponseHeadTime { at: Instant::now(), is_new_connection }
    }

    /// The timing of an attempt that has ended. `was_sent` says whether a part of the request may have been
    /// written.
    pub fn read(
        &self,
        started: Instant,
        ended: Instant,
        head: Option<ResponseHeadTime>,
        was_sent: bool,
    ) -> AttemptTiming {
        let mut stages = self.stages();
        match head {
            Some(head) if !head.is_new_connection => AttemptTiming {
                first_byte: Some(head.at.saturating_duration_since(started)),
                reused: Some(true),
                ..AttemptTiming::default()
            },
            None if !stages.needed_connection => {
                AttemptTiming { reused: was_sent.then_some(true), ..AttemptTiming::default() }
            }
            Some(_) | None => {
                // An attempt that hung in a stage spent its time there.
                stages.end(ended);
                let open_since = stages.open_since;
                let waited = |head: ResponseHeadTime| {
                    open_since.map(|open_since| head.at.saturating_duration_since(open_since))
                };
                AttemptTiming {
                    dns: stages.dns,
                    connect: stages.connect,
                    tls: stages.tls,
                    first_byte: head.and_then(waited),
                    reused: open_since.map(|_| false),
                }
            }
        }
    }
}

impl StageTimes {
    /// Ends the running stage. A stage may occur more than once: a proxy's name is resolved, too.
    fn end(&mut self, now: Instant) {
        let Some((stage, since)) = self.running.take() else { return };
        let spent = match stage {
            ConnectStage::Dns => &mut self.dns,
            ConnectStage::Connect => &mut self.connect,
            ConnectStage::Tls => &mut self.tls,
        };
        *spent = Some(spent.unwrap_or_default() + now.saturating_duration_since(since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    async fn pass(millis: u64) {
        tokio::time::advance(ms(millis)).await;
    }

    /// A connection through all stages: 1 ms, twice 2 ms, 4 ms.
    async fn open(stopwatch: &Stopwatch) {
        stopwatch.begin(ConnectStage::Dns);
        pass(1).await;
        for _ in 0..2 {
            stopwatch.begin(ConnectStage::Connect);
            pass(2).await;
        }
        stopwatch.begin(ConnectStage::Tls);
        pass(4).await;
        stopwatch.record_open();
    }

    #[tokio::test(start_paused = true)]
    async fn stages_of_a_new_connection_are_measured() {
        let (stopwatch, started) = (Stopwatch::default(), Instant::now());
        open(&stopwatch).await;
        pass(8).await;
        let head = stopwatch.record_head(Some(&stopwatch.clone()));
        pass(16).await;

        let timing = stopwatch.read(started, Instant::now(), Some(head), true);

        let (dns, connect, tls, first_byte) = (Some(ms(1)), Some(ms(4)), Some(ms(4)), Some(ms(8)));
        assert_eq!(timing, AttemptTiming { dns, connect, tls, first_byte, reused: Some(false) });
    }

    #[tokio::test(start_paused = true)]
    async fn connection_of_another_attempt_counts_as_reused_even_if_one_was_opened_meanwhile() {
        let (stopwatch, other, started) =
            (Stopwatch::default(), Stopwatch::default(), Instant::now());
        open(&stopwatch).await;
        let head = stopwatch.record_head(Some(&other));

        let timing = stopwatch.read(started, Instant::now(), Some(head), true);

        let (first_byte, reused) = (Some(ms(9)), Some(true));
        assert_eq!(timing, AttemptTiming { first_byte, reused, ..AttemptTiming::default() });
    }

    #[tokio::test(start_paused = true)]
    async fn interrupted_stage_is_measured_up_to_the_end() {
        let (stopwatch, started) = (Stopwatch::default(), Instant::now());
        stopwatch.begin(ConnectStage::Connect);
        pass(7).await;
        let hangs = stopwatch.read(started, Instant::now(), None, false);
        assert_eq!(hangs, AttemptTiming { connect: Some(ms(7)), ..AttemptTiming::default() });

        let silent = Stopwatch::default();
        assert_eq!(
            silent.read(started, Instant::now(), None, true).reused,
            Some(true),
            "nothing had to be opened"
        );
        assert_eq!(
            silent.read(started, Instant::now(), None, false),
            AttemptTiming::default(),
            "nothing was sent"
        );
    }

    #[tokio::test]
    async fn stopwatch_is_found_within_the_attempt_only() {
        let stopwatch = Stopwatch::default();
        let found = stopwatch.watch(async { Stopwatch::of_attempt() }).await;
        assert!(Arc::ptr_eq(&stopwatch.0, &found.0));
        assert!(!Arc::ptr_eq(&stopwatch.0, &Stopwatch::of_attempt().0));
    }
}
