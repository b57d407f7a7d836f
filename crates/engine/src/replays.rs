//! Replay jobs: one task for each that has not ended, which selects, hands out at the job's pace, and
//! counts what came of it.
//!
//! The task only decides *when*; every step is a transaction of the store, so it may die at any
//! moment and be started again. Live traffic is kept from harm in three ways: the job has a pace of
//! its own, a step takes little of the writer's time, and no destination has more than
//! [`OPEN_MAX`] deliveries of a job before it, so that what comes in never waits behind thousands.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use surehook_core::{
    idempotency::IdempotentRequest,
    ids::ReplayId,
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayItemOutcome, ReplayPacer, ReplayPreview, ReplayRate, ReplaySpec, ReplayState,
        ReplayTransition, SelectionReport,
    },
    store::StoreError,
};
use tokio::sync::Notify;

use crate::{Engine, run_to_completion::RunToCompletion};

/// Deliveries of a job that a destination may have before it at a time.
const OPEN_MAX: u64 = 200;
/// Deliveries that are handed out in one transaction: a few milliseconds of the writer's time.
const HAND_OUT_MAX: usize = 50;
/// The wait between two steps while there is something to do.
const TICK: Duration = Duration::from_millis(50);
/// The longest wait while a job waits for its deliveries.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// The wait between two slices of selecting: others write in between.
const SLICE_PAUSE: Duration = Duration::from_millis(10);
/// The wait after the store said no.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
/// The wait between two slices of old jobs that are removed.
const PRUNE_PAUSE: Duration = Duration::from_millis(50);

/// The jobs that have a task.
#[derive(Default)]
pub(crate) struct ReplayTasks(Mutex<HashMap<ReplayId, ReplayTaskHandle>>);

struct ReplayTaskHandle {
    changed: Arc<Notify>,
    state: ReplayState,
}

impl fmt::Debug for ReplayTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replays").field("tended", &self.open().len()).finish()
    }
}

impl ReplayTasks {
    fn open(&self) -> MutexGuard<'_, HashMap<ReplayId, ReplayTaskHandle>> {
        // A panic elsewhere cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many jobs are in each state that is not final.
    fn by_state(&self) -> [(ReplayState, usize); 3] {
        let open = self.open();
        [ReplayState::Selecting, ReplayState::Running, ReplayState::Paused]
            .map(|state| (state, open.values().filter(|tended| tended.state == state).count()))
    }
}

/// What a job's task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayStep {
    /// The next step comes after this, or when somebody changes the job.
    Wait(Duration),
    /// Nothing happens until somebody changes the job.
    Rest,
    /// All is counted.
    End,
}

/// What follows a step that was `moved` if it handed out or counted something.
fn next(advanced: &AdvanceReport, waited: Duration, until_allowed: Option<Duration>) -> ReplayStep {
    let moved = !advanced.dispatched.is_empty() || !advanced.outcomes.is_empty();
    match (advanced.state, advanced.open) {
        (ReplayState::Done | ReplayState::Cancelled, 0) => ReplayStep::End,
        (ReplayState::Paused, 0) => ReplayStep::Rest,
        (ReplayState::Selecting, _) => ReplayStep::Wait(SLICE_PAUSE),
        (ReplayState::Running, _) if advanced.queued > 0 && until_allowed.is_some() => {
            let until_allowed = until_allowed.unwrap_or_default();
            ReplayStep::Wait(until_allowed.clamp(TICK, IDLE_MAX))
        }
        (
            ReplayState::Running | ReplayState::Paused | ReplayState::Done | ReplayState::Cancelled,
            _,
        ) => ReplayStep::Wait(if moved {
            TICK
        } else {
            waited.saturating_mul(2).clamp(TICK, IDLE_MAX)
        }),
    }
}

/// One job's task.
struct ReplayTask {
    engine: Arc<Engine>,
    id: ReplayId,
    state: ReplayState,
    pacer: ReplayPacer,
    waited: Duration,
}

impl ReplayTask {
    async fn run(mut self, changed: Arc<Notify>) {
        loop {
            let next = match self.step().await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(job = %self.id, %error, "a replay job waits for the store");
                    ReplayStep::Wait(TROUBLE_PAUSE)
                }
            };
            self.engine.show_replay(self.id, self.state);
            self.waited = match next {
                ReplayStep::End => return self.engine.forget_replay(self.id),
                ReplayStep::Wait(wait) => wait,
                ReplayStep::Rest => Duration::MAX,
            };
            tokio::select! {
                () = self.engine.shared.stop.cancelled() => return,
                () = changed.notified() => self.waited = TICK,
                () = tokio::time::sleep(self.waited) => {}
            }
        }
    }

    async fn step(&mut self) -> Result<ReplayStep, StoreError> {
        if self.state == ReplayState::Selecting {
            return Ok(match self.engine.store.select_replay(self.id).await? {
                SelectionReport::NotFound => ReplayStep::End,
                SelectionReport::Now(state) => {
                    self.state = state;
                    ReplayStep::Wait(SLICE_PAUSE)
                }
            });
        }
        let now = self.engine.shared.clock.now();
        let allowance = self.pacer.allowance(now).min(HAND_OUT_MAX);
        let advanced = self.engine.store.advance_replay(self.id, allowance, OPEN_MAX, now).await?;
        let Some(advanced) = advanced else { return Ok(ReplayStep::End) };
        self.pacer.spend(advanced.dispatched.values().sum());
        for destination in advanced.dispatched.keys() {
            self.engine.expect_due(*destination, now);
        }
        self.engine.telemetry.replayed(advanced.outcomes.iter().map(|(outcome, many)| {
            let word = match outcome {
                ReplayItemOutcome::Skipped(_) => "skipped",
                ReplayItemOutcome::Succeeded
                | ReplayItemOutcome::Dead
                | ReplayItemOutcome::Cancelled => outcome.as_str(),
            };
            (word, *many)
        }));
        self.state = advanced.state;
        let until_allowed = (allowance == 0).then(|| self.pacer.next_in());
        Ok(next(&advanced, self.waited, until_allowed))
    }
}

impl Engine {
    /// Makes a job and starts it; or names the job that it would overlap. The same wish again finds
    /// the job that it made.
    pub async fn create_replay(
        self: &Arc<Self>,
        wish: IdempotentRequest,
        spec: ReplaySpec,
    ) -> Result<Result<ReplayId, ReplayId>, StoreError> {
        let (id, created_at): (ReplayId, _) = (wish.id(""), wish.at);
        let (engine, rate) = (Arc::clone(self), spec.rate);
        // A job that is stored must also be started, even if whoever asked for it hangs up.
        let make = async move {
            let made = engine.store.create_replay(NewReplay { id, spec, created_at }).await?;
            Ok(match made {
                CreateReplayResult::Overlaps(other) => Err(other),
                // Whoever made it, or the start after that, tends it.
                CreateReplayResult::Known => Ok(id),
                CreateReplayResult::Created => {
                    engine.tend_replay(id, ReplayState::Selecting, rate);
                    Ok(id)
                }
            })
        };
        RunToCompletion::new(make, &self.shared.tasks).await
    }

    /// What a job would select now.
    pub async fn preview_replay(
        &self,
        spec: ReplaySpec,
        depth: PreviewDepth,
    ) -> Result<ReplayPreview, StoreError> {
        self.store.preview_replay(spec, self.shared.clock.now(), depth).await
    }

    /// Pauses, resumes or cancels a job.
    pub async fn change_replay(
        &self,
        id: ReplayId,
        input: ReplayTransition,
    ) -> Result<ChangeReplayResult, StoreError> {
        let changed = self.store.change_replay(id, input, self.shared.clock.now()).await?;
        if let Some(tended) = self.replays.open().get(&id) {
            tended.changed.notify_one();
        }
        Ok(changed)
    }

    /// Goes on with the jobs that an earlier run left.
    pub(crate) async fn resume_replays(self: &Arc<Self>) -> Result<(), StoreError> {
        for id in self.store.unfinished_replays().await? {
            if let Some(job) = self.store.find_replay(id).await? {
                tracing::info!(job = %id, state = job.state.as_str(), "goes on with a replay job");
                self.tend_replay(id, job.state, job.spec.rate);
            }
        }
        Ok(())
    }

    fn tend_replay(self: &Arc<Self>, id: ReplayId, state: ReplayState, rate: ReplayRate) {
        let changed = Arc::new(Notify::new());
        self.replays.open().insert(id, ReplayTaskHandle { changed: Arc::clone(&changed), state });
        let pacer = ReplayPacer::new(rate, self.shared.clock.now());
        let task = ReplayTask { engine: Arc::clone(self), id, state, pacer, waited: TICK };
        self.shared.tasks.spawn(task.run(changed));
    }

    fn show_replay(&self, id: ReplayId, state: ReplayState) {
        let mut open = self.replays.open();
        let before = open.get_mut(&id).map(|tended| std::mem::replace(&mut tended.state, state));
        drop(open);
        if before != Some(state) {
            tracing::info!(job = %id, state = state.as_str(), "a replay job moved");
        }
        self.telemetry.replay_jobs(&self.replays.by_state());
    }

    fn forget_replay(&self, id: ReplayId) {
        self.replays.open().remove(&id);
        self.telemetry.replay_jobs(&self.replays.by_state());
    }

    /// Removes a slice of jobs that ended as long ago as events are kept.
    pub(crate) async fn prune_replays(&self) -> Result<Option<Duration>, StoreError> {
        let before = self.shared.clock.now() - self.event_retention;
        let more = self.store.prune_replays(before).await?;
        Ok(more.then_some(PRUNE_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn advanced(state: ReplayState, open: u64, queued: u64) -> AdvanceReport {
        AdvanceReport {
            state,
            dispatched: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            open,
            queued,
        }
    }

    #[test]
    fn a_task_rests_when_nothing_can_happen_and_ends_when_all_is_counted() {
        use ReplayState::{Cancelled, Done, Paused, Running, Selecting};
        let cases = [
            (advanced(Done, 0, 0), ReplayStep::End),
            (advanced(Cancelled, 0, 9), ReplayStep::End),
            (advanced(Cancelled, 1, 9), ReplayStep::Wait(TICK * 2)),
            (advanced(Paused, 0, 9), ReplayStep::Rest),
            (advanced(Paused, 1, 9), ReplayStep::Wait(TICK * 2)),
            (advanced(Running, 1, 0), ReplayStep::Wait(TICK * 2)),
            (advanced(Selecting, 0, 0), ReplayStep::Wait(SLICE_PAUSE)),
        ];
        for (advanced, expected) in cases {
            assert_eq!(next(&advanced, TICK, None), expected, "case: {advanced:?}");
        }
    }

    #[test]
    fn a_task_waits_longer_while_nothing_moves_but_never_past_its_pace() {
        let still = advanced(ReplayState::Running, 1, 5);
        assert_eq!(next(&still, IDLE_MAX, None), ReplayStep::Wait(IDLE_MAX));
        let soon = Duration::from_millis(400);
        assert_eq!(next(&still, IDLE_MAX, Some(soon)), ReplayStep::Wait(soon));
        assert_eq!(next(&still, TICK, Some(Duration::ZERO)), ReplayStep::Wait(TICK));
        let moved = AdvanceReport { outcomes: [(ReplayItemOutcome::Dead, 1)].into(), ..still };
        assert_eq!(next(&moved, IDLE_MAX, None), ReplayStep::Wait(TICK));
    }
}
