//! Replay jobs: one task per unfinished job selects deliveries, dispatches them at the job's rate, and
//! counts the results.
//!
//! The task only decides *when*; every step is a transaction of the store, so it may be killed at any
//! moment and started again. Live traffic is protected in three ways: the job has its own rate, a step
//! takes little time of the writer, and no destination has more than [`OPEN_MAX`] unfinished deliveries of a
//! job, so that new events never wait behind thousands.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use surehook_core::{
    idempotency::IdempotentRequest,
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayItemOutcome, ReplayPacer, ReplayPreview, ReplayRate, ReplaySpec, ReplayState,
        ReplayTransition, SelectionReport,
    },
    store::{Duty, Signal},
};
use surehook_types::{ids::ReplayId, store_error::StoreError};
use tokio::sync::Notify;

use crate::{Engine, lock::lock, run_to_completion::RunToCompletion};

/// Unfinished deliveries of a job per destination.
const OPEN_MAX: u64 = 200;
/// Deliveries dispatched in one transaction: a few milliseconds of the writer's time.
const DISPATCH_MAX: usize = 50;
/// The pause between two steps while there is work.
const TICK: Duration = Duration::from_millis(50);
/// The longest pause while a job waits for its deliveries.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// The pause between two slices of selecting, for other writers.
const SELECT_PAUSE: Duration = Duration::from_millis(10);
/// The pause after the store failed.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two slices of pruning old jobs.
const PRUNE_PAUSE: Duration = Duration::from_millis(50);

/// The running tasks, by job.
#[derive(Default)]
pub(crate) struct ReplayTasks(Mutex<HashMap<ReplayId, ReplayTaskHandle>>);

struct ReplayTaskHandle {
    wake: Arc<Notify>,
    state: ReplayState,
}

impl fmt::Debug for ReplayTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayTasks").field("tasks", &self.lock().len()).finish()
    }
}

impl ReplayTasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<ReplayId, ReplayTaskHandle>> {
        lock(&self.0)
    }

    /// The number of jobs in each state that is not final.
    fn count_by_state(&self) -> [(ReplayState, usize); 3] {
        let tasks = self.lock();
        [ReplayState::Selecting, ReplayState::Running, ReplayState::Paused]
            .map(|state| (state, tasks.values().filter(|task| task.state == state).count()))
    }
}

/// The action of a job's task after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayTaskAction {
    /// Take the next step after this time, or when the job changes.
    Wait(Duration),
    /// Wait until the job changes.
    Idle,
    /// The job is finished.
    End,
}

/// Decides what follows a step. `last_pause` is the pause before it; `rate_wait` is set if the rate
/// permitted nothing, and is the time until it does.
fn decide_next(
    report: &AdvanceReport,
    last_pause: Duration,
    rate_wait: Option<Duration>,
) -> ReplayTaskAction {
    let has_progressed = !report.dispatched.is_empty() || !report.outcomes.is_empty();
    match (report.state, report.open) {
        (ReplayState::Done | ReplayState::Cancelled, 0) => ReplayTaskAction::End,
        (ReplayState::Paused, 0) => ReplayTaskAction::Idle,
        (ReplayState::Selecting, _) => ReplayTaskAction::Wait(SELECT_PAUSE),
        (ReplayState::Running, _) if report.queued > 0 && rate_wait.is_some() => {
            let rate_wait = rate_wait.unwrap_or_default();
            ReplayTaskAction::Wait(rate_wait.clamp(TICK, IDLE_MAX))
        }
        (
            ReplayState::Running | ReplayState::Paused | ReplayState::Done | ReplayState::Cancelled,
            _,
        ) => ReplayTaskAction::Wait(if has_progressed {
            TICK
        } else {
            last_pause.saturating_mul(2).clamp(TICK, IDLE_MAX)
        }),
    }
}

/// One job's task.
struct ReplayTask {
    engine: Arc<Engine>,
    id: ReplayId,
    state: ReplayState,
    pacer: ReplayPacer,
    /// The pause before the last step.
    last_pause: Duration,
}

impl ReplayTask {
    async fn run(mut self, wake: Arc<Notify>) {
        loop {
            if !self.engine.shared.node.leads(Duty::ReplayJobs) {
                // The leader continues it.
                return self.engine.remove_replay_task(self.id);
            }
            let next = match self.step().await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(job = %self.id, %error, "a replay job could not use the store; it is retried");
                    ReplayTaskAction::Wait(ERROR_PAUSE)
                }
            };
            self.engine.update_replay_state(self.id, self.state);
            self.last_pause = match next {
                ReplayTaskAction::End => return self.engine.remove_replay_task(self.id),
                ReplayTaskAction::Wait(wait) => wait,
                ReplayTaskAction::Idle => Duration::MAX,
            };
            tokio::select! {
                () = self.engine.shared.stop.cancelled() => return,
                () = wake.notified() => self.last_pause = TICK,
                () = tokio::time::sleep(self.last_pause) => {}
            }
        }
    }

    /// Selects a slice, or dispatches and counts as much as the rate permits.
    async fn step(&mut self) -> Result<ReplayTaskAction, StoreError> {
        if self.state == ReplayState::Selecting {
            return Ok(match self.engine.store.select_replay(self.id).await? {
                SelectionReport::NotFound => ReplayTaskAction::End,
                SelectionReport::InState(state) => {
                    self.state = state;
                    ReplayTaskAction::Wait(SELECT_PAUSE)
                }
            });
        }
        let now = self.engine.shared.clock.now();
        let allowance = self.pacer.allowance(now).min(DISPATCH_MAX);
        let advanced = self.engine.store.advance_replay(self.id, allowance, OPEN_MAX, now).await;
        if matches!(advanced, Err(StoreError::Unknown(_))) {
            // The step may have dispatched as much as it was allowed to.
            self.pacer.spend(allowance);
        }
        let report = advanced?;
        let Some(report) = report else { return Ok(ReplayTaskAction::End) };
        self.pacer.spend(report.dispatched.values().sum());
        for destination in report.dispatched.keys() {
            self.engine.expect_due(*destination, now);
        }
        self.engine.telemetry.count_replay_outcomes(report.outcomes.iter().map(
            |(outcome, count)| {
                let label = match outcome {
                    ReplayItemOutcome::Skipped(_) => "skipped",
                    ReplayItemOutcome::Succeeded
                    | ReplayItemOutcome::Dead
                    | ReplayItemOutcome::Cancelled => outcome.as_str(),
                };
                (label, *count)
            },
        ));
        self.state = report.state;
        let rate_wait = (allowance == 0).then(|| self.pacer.next_in());
        Ok(decide_next(&report, self.last_pause, rate_wait))
    }
}

impl Engine {
    /// Creates a job and starts it; the inner error is the job that it would overlap. The same request
    /// again finds the job that it created.
    pub async fn create_replay(
        self: &Arc<Self>,
        request: IdempotentRequest,
        spec: ReplaySpec,
    ) -> Result<Result<ReplayId, ReplayId>, StoreError> {
        let (id, created_at): (ReplayId, _) = (request.id(""), request.at);
        let (engine, rate) = (Arc::clone(self), spec.rate);
        // A stored job must also be started, even if the caller is cancelled.
        let create = async move {
            let created = engine.store.create_replay(NewReplay { id, spec, created_at }).await;
            if matches!(created, Err(StoreError::Unknown(_))) {
                // It may exist. The task ends if it does not.
                engine.start_replay_task(id, ReplayState::Selecting, rate);
            }
            Ok(match created? {
                CreateReplayResult::Overlaps(other) => Err(other),
                // It has a task, or gets one by `resume_replays`.
                CreateReplayResult::AlreadyExists => Ok(id),
                CreateReplayResult::Created => {
                    engine.start_replay_task(id, ReplayState::Selecting, rate);
                    engine.shared.signals.publish(Signal::ReplayChanged(id));
                    Ok(id)
                }
            })
        };
        RunToCompletion::new(create, &self.shared.tasks).await
    }

    /// A preview of what a job would select now.
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
        transition: ReplayTransition,
    ) -> Result<ChangeReplayResult, StoreError> {
        let result = self.store.change_replay(id, transition, self.shared.clock.now()).await?;
        self.wake_replay_task(id);
        self.shared.signals.publish(Signal::ReplayChanged(id));
        Ok(result)
    }

    /// Makes the task of a job look at its state, if this process has it.
    pub(crate) fn wake_replay_task(&self, id: ReplayId) {
        if let Some(task) = self.replays.lock().get(&id) {
            task.wake.notify_one();
        }
    }

    /// Starts the tasks of unfinished jobs that have none: those of an earlier process or another node.
    /// Wakes those whose state another node has changed.
    pub(crate) async fn resume_replays(self: &Arc<Self>) -> Result<(), StoreError> {
        for id in self.store.list_unfinished_replays().await? {
            let Some(job) = self.store.find_replay(id).await? else { continue };
            let task =
                self.replays.lock().get(&id).map(|task| (task.state, Arc::clone(&task.wake)));
            match task {
                Some((state, _)) if state == job.state => {}
                Some((_, wake)) => wake.notify_one(),
                None => {
                    tracing::info!(job = %id, state = job.state.as_str(), "resuming a replay job");
                    self.start_replay_task(id, job.state, job.spec.rate);
                }
            }
        }
        Ok(())
    }

    /// Starts the task of a job, unless it has one. It ends at once if another node leads the jobs.
    fn start_replay_task(self: &Arc<Self>, id: ReplayId, state: ReplayState, rate: ReplayRate) {
        let wake = Arc::new(Notify::new());
        match self.replays.lock().entry(id) {
            Entry::Occupied(_) => return,
            Entry::Vacant(free) => {
                free.insert(ReplayTaskHandle { wake: Arc::clone(&wake), state });
            }
        }
        let pacer = ReplayPacer::new(rate, self.shared.clock.now());
        let task = ReplayTask { engine: Arc::clone(self), id, state, pacer, last_pause: TICK };
        self.shared.tasks.spawn(task.run(wake));
    }

    fn update_replay_state(&self, id: ReplayId, state: ReplayState) {
        let mut tasks = self.replays.lock();
        let before = tasks.get_mut(&id).map(|task| std::mem::replace(&mut task.state, state));
        drop(tasks);
        if before != Some(state) {
            tracing::info!(job = %id, state = state.as_str(), "a replay job changed its state");
        }
        self.telemetry.set_replay_jobs(&self.replays.count_by_state());
    }

    fn remove_replay_task(&self, id: ReplayId) {
        self.replays.lock().remove(&id);
        self.telemetry.set_replay_jobs(&self.replays.count_by_state());
    }

    /// Removes a slice of finished jobs that are older than the event retention.
    pub(crate) async fn prune_replays(&self) -> Result<Option<Duration>, StoreError> {
        let before = self.expiry_time() - self.event_retention();
        let more = self.store.prune_replays(before).await?;
        Ok(more.then_some(PRUNE_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn report(state: ReplayState, open: u64, queued: u64) -> AdvanceReport {
        AdvanceReport {
            state,
            dispatched: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            open,
            queued,
        }
    }

    #[test]
    fn task_idles_when_nothing_can_happen_and_ends_when_the_job_is_finished() {
        use ReplayState::{Cancelled, Done, Paused, Running, Selecting};
        let cases = [
            (report(Done, 0, 0), ReplayTaskAction::End),
            (report(Cancelled, 0, 9), ReplayTaskAction::End),
            (report(Cancelled, 1, 9), ReplayTaskAction::Wait(TICK * 2)),
            (report(Paused, 0, 9), ReplayTaskAction::Idle),
            (report(Paused, 1, 9), ReplayTaskAction::Wait(TICK * 2)),
            (report(Running, 1, 0), ReplayTaskAction::Wait(TICK * 2)),
            (report(Selecting, 0, 0), ReplayTaskAction::Wait(SELECT_PAUSE)),
        ];
        for (report, expected) in cases {
            assert_eq!(decide_next(&report, TICK, None), expected, "case: {report:?}");
        }
    }

    #[test]
    fn task_backs_off_without_progress_but_never_beyond_its_rate() {
        let unchanged = report(ReplayState::Running, 1, 5);
        assert_eq!(decide_next(&unchanged, IDLE_MAX, None), ReplayTaskAction::Wait(IDLE_MAX));
        let soon = Duration::from_millis(400);
        assert_eq!(decide_next(&unchanged, IDLE_MAX, Some(soon)), ReplayTaskAction::Wait(soon));
        assert_eq!(
            decide_next(&unchanged, TICK, Some(Duration::ZERO)),
            ReplayTaskAction::Wait(TICK)
        );
        let progressed =
            AdvanceReport { outcomes: [(ReplayItemOutcome::Dead, 1)].into(), ..unchanged };
        assert_eq!(decide_next(&progressed, IDLE_MAX, None), ReplayTaskAction::Wait(TICK));
    }
}
