//! What replay jobs need of a store.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{
    ReplaySpec,
    progress::{ReplayItemOutcome, ReplayProgress},
    state::{ReplayState, ReplayTransition},
};
use crate::{
    ids::{DestinationId, ReplayId},
    store::{PageRequest, StoreError},
    time::Timestamp,
};

/// A job that is asked for.
#[derive(Clone, Debug)]
pub struct NewReplay {
    /// Its id.
    pub id: ReplayId,
    /// What it does.
    pub spec: ReplaySpec,
    /// When it was asked for: what happens later is not in it.
    pub created_at: Timestamp,
}

/// Whether a job was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateReplayResult {
    /// It is there, and selects.
    Created,
    /// This very job was made before, and only the answer was lost.
    Known,
    /// That one has not ended and could deliver the same; nothing was made.
    Overlaps(ReplayId),
}

/// How far a preview looks before it says that there may be more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviewDepth {
    /// For whoever waits for a page: some milliseconds.
    Quick,
    /// For whoever wants the number: more than a job takes.
    Whole,
}

/// What a job would select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayPreview {
    /// How many.
    pub count: u64,
    /// Whether all was looked at; if not, there are at least `count`.
    pub complete: bool,
    /// When the oldest of their events was received.
    pub oldest: Option<Timestamp>,
    /// When the newest of their events was received.
    pub newest: Option<Timestamp>,
    /// How many for each destination.
    pub by_destination: BTreeMap<DestinationId, u64>,
}

/// A job as it is kept.
#[derive(Clone, Debug)]
pub struct ReplayRow {
    /// Its id.
    pub id: ReplayId,
    /// What it does.
    pub spec: ReplaySpec,
    /// Where it stands.
    pub state: ReplayState,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was done or cancelled.
    pub ended_at: Option<Timestamp>,
    /// How far it has come, for each destination.
    pub by_destination: BTreeMap<DestinationId, ReplayProgress>,
}

impl ReplayRow {
    /// How far it has come in all.
    pub fn progress(&self) -> ReplayProgress {
        let mut sum = ReplayProgress::default();
        self.by_destination.values().for_each(|part| sum.add(part));
        sum
    }
}

/// What one slice of selecting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionReport {
    /// The job is in this state now; while it is `selecting` there is more to look at.
    Now(ReplayState),
    /// There is no such job.
    NotFound,
}

/// What one step of a job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvanceReport {
    /// Where the job stands now.
    pub state: ReplayState,
    /// New deliveries, due at once, for each destination.
    pub dispatched: BTreeMap<DestinationId, usize>,
    /// What was counted in this step.
    pub outcomes: BTreeMap<ReplayItemOutcome, u64>,
    /// Deliveries of the job that have not ended.
    pub open: u64,
    /// Selected, and their turn has not come.
    pub queued: u64,
}

/// Whether a job moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeReplayResult {
    /// It is in this state now.
    Changed(ReplayState),
    /// There is no such job.
    NotFound,
    /// A job in this state cannot do that.
    Refused(ReplayState),
}

/// What replay jobs need.
#[async_trait]
pub trait ReplayStore: Send + Sync {
    /// Makes a job, unless one that has not ended could deliver the same event to the same
    /// destination ([`ReplaySpec::may_overlap`]). Of two at the same time that overlap one is made.
    /// The same id again makes nothing.
    async fn create_replay(&self, job: NewReplay) -> Result<CreateReplayResult, StoreError>;

    /// What a job would select if it were made at `now`. Looks at a bounded number of rows.
    async fn preview_replay(
        &self,
        spec: ReplaySpec,
        now: Timestamp,
        depth: PreviewDepth,
    ) -> Result<ReplayPreview, StoreError>;

    /// Writes down one bounded slice of what a job selects.
    ///
    /// - **Frozen.** Only what had ended (or, for missing events, was received) when the job was
    ///   made is taken, and only if it is still so when the slice comes to it.
    /// - **Once.** An event is in a job once for each destination.
    /// - A slice and how far it has come are one transaction: after a crash it goes on from there.
    async fn select_replay(&self, id: ReplayId) -> Result<SelectionReport, StoreError>;

    /// Counts which deliveries of a job have ended, and hands out up to `limit` more if it runs,
    /// keeping at most `open_max` for each destination. `None` if there is no such job.
    ///
    /// A new delivery and the mark that it was handed out are one transaction: nothing is handed
    /// out twice or lost, whenever the process dies. What cannot be delivered any more is skipped
    /// with its reason. When all have ended, the job is done.
    async fn advance_replay(
        &self,
        id: ReplayId,
        limit: usize,
        open_max: u64,
        now: Timestamp,
    ) -> Result<Option<AdvanceReport>, StoreError>;

    /// Pauses, resumes or cancels a job.
    async fn change_replay(
        &self,
        id: ReplayId,
        input: ReplayTransition,
        now: Timestamp,
    ) -> Result<ChangeReplayResult, StoreError>;

    /// One job.
    async fn find_replay(&self, id: ReplayId) -> Result<Option<ReplayRow>, StoreError>;

    /// Jobs, newest first.
    async fn list_replays(&self, page: PageRequest<ReplayId>)
    -> Result<Vec<ReplayRow>, StoreError>;

    /// Jobs that have not ended, or whose deliveries have not.
    async fn unfinished_replays(&self) -> Result<Vec<ReplayId>, StoreError>;

    /// Removes one bounded slice of jobs that ended before `before`; whether there may be more.
    async fn prune_replays(&self, before: Timestamp) -> Result<bool, StoreError>;
}
