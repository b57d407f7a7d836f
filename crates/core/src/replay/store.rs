//! The store trait of replay jobs.

use std::collections::BTreeMap;

use async_trait::async_trait;
use surehook_types::{
    ids::{DestinationId, ReplayId},
    store_error::StoreError,
    time::Timestamp,
};

use super::{ReplayItemOutcome, ReplayProgress, ReplaySpec, ReplayState, ReplayTransition};
use crate::store::PageRequest;

/// A replay job to be created.
#[derive(Clone, Debug)]
pub struct NewReplay {
    pub id: ReplayId,
    pub spec: ReplaySpec,
    /// Only what had happened by then is selected.
    pub created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateReplayResult {
    Created,
    /// This job exists already; the answer to its creation was lost.
    AlreadyExists,
    /// An unfinished job could deliver the same events; nothing was created.
    Overlaps(ReplayId),
}

/// How many rows a preview scans before it reports an incomplete count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviewDepth {
    /// A few milliseconds, for interactive use.
    Quick,
    /// More than the maximum of a job.
    Whole,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayPreview {
    pub count: u64,
    /// If false, there are at least `count`.
    pub complete: bool,
    /// Receipt time of the oldest event.
    pub oldest: Option<Timestamp>,
    /// Receipt time of the newest event.
    pub newest: Option<Timestamp>,
    pub by_destination: BTreeMap<DestinationId, u64>,
}

/// A stored replay job.
#[derive(Clone, Debug)]
pub struct ReplayRow {
    pub id: ReplayId,
    pub spec: ReplaySpec,
    pub state: ReplayState,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub by_destination: BTreeMap<DestinationId, ReplayProgress>,
}

impl ReplayRow {
    /// Total over all destinations.
    pub fn progress(&self) -> ReplayProgress {
        let mut sum = ReplayProgress::default();
        self.by_destination.values().for_each(|part| sum.add(part));
        sum
    }
}

/// The result of selecting one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionReport {
    /// The state of the job now; there is more to select while it is `selecting`.
    InState(ReplayState),
    NotFound,
}

/// The result of one step of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvanceReport {
    pub state: ReplayState,
    /// New deliveries per destination, due at once.
    pub dispatched: BTreeMap<DestinationId, usize>,
    /// Outcomes counted in this step.
    pub outcomes: BTreeMap<ReplayItemOutcome, u64>,
    /// The job's deliveries that have not ended.
    pub open: u64,
    /// Selected items that are not processed yet.
    pub queued: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeReplayResult {
    Changed(ReplayState),
    NotFound,
    /// Not possible in this state.
    Refused(ReplayState),
}

/// The store operations of replay jobs.
#[async_trait]
pub trait ReplayStore: Send + Sync {
    /// Creates a job unless an unfinished one may overlap ([`ReplaySpec::may_overlap`]). Of two
    /// overlapping jobs at the same time one is created. The same id again changes nothing.
    async fn create_replay(&self, job: NewReplay) -> Result<CreateReplayResult, StoreError>;

    /// A preview of what a job created at `now` would select. Scans a bounded number of rows.
    async fn preview_replay(
        &self,
        spec: ReplaySpec,
        now: Timestamp,
        depth: PreviewDepth,
    ) -> Result<ReplayPreview, StoreError>;

    /// Selects one bounded slice of items.
    ///
    /// - **Frozen.** Only what had ended (or, for missing events, was received) when the job was
    ///   made is taken, and only if it is still so when the slice comes to it.
    /// - **Once.** An event is in a job once for each destination.
    /// - **Resumable.** A slice and its position are one transaction, so selection continues after a
    ///   crash.
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

    async fn find_replay(&self, id: ReplayId) -> Result<Option<ReplayRow>, StoreError>;

    /// Newest first.
    async fn list_replays(&self, page: PageRequest<ReplayId>)
    -> Result<Vec<ReplayRow>, StoreError>;

    /// Jobs that have not ended, or whose deliveries have not.
    async fn list_unfinished_replays(&self) -> Result<Vec<ReplayId>, StoreError>;

    /// Removes one bounded slice of jobs that ended before `before`; returns whether there may be more.
    async fn prune_replays(&self, before: Timestamp) -> Result<bool, StoreError>;
}
