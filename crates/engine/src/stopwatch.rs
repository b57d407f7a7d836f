//! Where the time of an attempt goes, taken down while it goes.
//!
//! A connection is opened below the HTTP client, which does not say for whom. So the stopwatch of an
//! attempt is handed around it, through the task: [`Stopwatch::watch`] puts it there, and the
//! connector, which the client calls within that task, finds it. A connection remembers the stopwatch
//! of the attempt that it was opened for, and every answer on it does too: an answer that remembers
//! another one came over a connection that was there before.
//!
//! On such a connection this costs one reading of the clock, when the head of the answer is there;
//! four more on a new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use surehook_core::delivery::AttemptTiming;
use tokio::time::Instant;

tokio::task_local! {
    static OF_ATTEMPT: Stopwatch;
}

/// A stage on the way to an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectStage {
    Dns,
    Connect,
    Tls,
}

/// What is taken down of one attempt. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopwatch(Arc<Mutex<StageTimes>>);

#[derive(Debug, Default)]
struct StageTimes {
    running: Option<(ConnectStage, Instant)>,
    dns: Option<Duration>,
    connect: Option<Duration>,
    tls: Option<Duration>,
    open_since: Option<Instant>,
    /// A connection was asked for.
    was_needed: bool,
}

/// The head of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseHeadTime {
    at: Instant,
    /// The connection was opened for this attempt.
    is_fresh: bool,
}

impl Stopwatch {
    /// That of the attempt which this is part of; one that nobody looks at if there is none.
    pub(crate) fn of_attempt() -> Self {
        OF_ATTEMPT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs an attempt, or a part of it.
    pub(crate) async fn watch<F: Future>(&self, attempt: F) -> F::Output {
        OF_ATTEMPT.scope(self.clone(), attempt).await
    }

    fn stages(&self) -> MutexGuard<'_, StageTimes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stage begins, and the one before has ended. Says when.
    pub(crate) fn begin(&self, stage: ConnectStage) -> Instant {
        let now = Instant::now();
        let mut stages = self.stages();
        stages.end(now);
        (stages.running, stages.was_needed) = (Some((stage, now)), true);
        now
    }

    /// The connection is open.
    pub(crate) fn opened(&self) {
        let now = Instant::now();
        let mut stages = self.stages();
        stages.end(now);
        (stages.open_since, stages.was_needed) = (Some(now), true);
    }

    /// The head of an answer is there, on a connection that was opened for `opened_for`.
    pub(crate) fn head_seen(&self, opened_for: Option<&Self>) -> ResponseHeadTime {
        let is_fresh = opened_for.is_some_and(|other| Arc::ptr_eq(&self.0, &other.0));
        ResponseHeadTime { at: Instant::now(), is_fresh }
    }

    /// Where the time of an attempt went that has ended. `was_sent` is whether anything of it may
    /// have been written to a connection.
    pub(crate) fn read(
        &self,
        (started, ended): (Instant, Instant),
        head: Option<ResponseHeadTime>,
        was_sent: bool,
    ) -> AttemptTiming {
        let mut stages = self.stages();
        match head {
            Some(head) if !head.is_fresh => AttemptTiming {
                first_byte: Some(head.at.saturating_duration_since(started)),
                reused: Some(true),
                ..AttemptTiming::default()
            },
            None if !stages.was_needed => {
                AttemptTiming { reused: was_sent.then_some(true), ..AttemptTiming::default() }
            }
            Some(_) | None => {
                // One that hangs in a stage has spent its time there.
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
    /// Ends what runs. A stage may come more than once, as when a proxy has a name of its own.
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
    async fn open(watch: &Stopwatch) {
        watch.begin(ConnectStage::Dns);
        pass(1).await;
        for _ in 0..2 {
            watch.begin(ConnectStage::Connect);
            pass(2).await;
        }
        watch.begin(ConnectStage::Tls);
        pass(4).await;
        watch.opened();
    }

    #[tokio::test(start_paused = true)]
    async fn the_stages_of_a_new_connection_follow_one_another() {
        let (watch, started) = (Stopwatch::default(), Instant::now());
        open(&watch).await;
        pass(8).await;
        let head = watch.head_seen(Some(&watch.clone()));
        pass(16).await;

        let timing = watch.read((started, Instant::now()), Some(head), true);

        let (dns, connect, tls, first_byte) = (Some(ms(1)), Some(ms(4)), Some(ms(4)), Some(ms(8)));
        assert_eq!(timing, AttemptTiming { dns, connect, tls, first_byte, reused: Some(false) });
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_opened_for_another_is_reused_even_if_one_was_opened_meanwhile() {
        let (watch, other, started) = (Stopwatch::default(), Stopwatch::default(), Instant::now());
        open(&watch).await;
        let head = watch.head_seen(Some(&other));

        let timing = watch.read((started, Instant::now()), Some(head), true);

        let (first_byte, reused) = (Some(ms(9)), Some(true));
        assert_eq!(timing, AttemptTiming { first_byte, reused, ..AttemptTiming::default() });
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_on_the_way_has_spent_its_time_in_the_stage_it_was_in() {
        let (watch, started) = (Stopwatch::default(), Instant::now());
        watch.begin(ConnectStage::Connect);
        pass(7).await;
        let hangs = watch.read((started, Instant::now()), None, false);
        assert_eq!(hangs, AttemptTiming { connect: Some(ms(7)), ..AttemptTiming::default() });

        let silent = Stopwatch::default();
        let ends = (started, Instant::now());
        assert_eq!(silent.read(ends, None, true).reused, Some(true), "nothing had to be opened");
        assert_eq!(
            silent.read(ends, None, false),
            AttemptTiming::default(),
            "it did not get that far"
        );
    }

    #[tokio::test]
    async fn it_is_found_by_whoever_is_called_within_the_attempt() {
        let watch = Stopwatch::default();
        let found = watch.watch(async { Stopwatch::of_attempt() }).await;
        assert!(Arc::ptr_eq(&watch.0, &found.0));
        assert!(!Arc::ptr_eq(&watch.0, &Stopwatch::of_attempt().0));
    }
}
