//! [`ReplayStore`] on `SQLite`.

use async_trait::async_trait;
use surehook_core::{
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayPreview, ReplayRow, ReplaySpec, ReplayStore, ReplayTransition, SelectionReport,
    },
    store::PageRequest,
};
use surehook_types::{ids::ReplayId, store_error::StoreError, time::Timestamp};

use super::SqliteStore;
use crate::steps::{
    replay_jobs::{self, AdvanceStep},
    replay_selection::{self, PreviewScan},
};

#[async_trait]
impl ReplayStore for SqliteStore {
    async fn create_replay(&self, job: NewReplay) -> Result<CreateReplayResult, StoreError> {
        self.writer.write(move |tx| replay_jobs::create_job(tx, &job)).await
    }

    async fn preview_replay(
        &self,
        spec: ReplaySpec,
        now: Timestamp,
        depth: PreviewDepth,
    ) -> Result<ReplayPreview, StoreError> {
        let mut scan = PreviewScan::new(spec, now, depth);
        while !scan.is_finished() {
            scan = self.readers.read(move |connection| scan.scan_once(connection)).await?;
        }
        Ok(scan.preview)
    }

    async fn select_replay(&self, id: ReplayId) -> Result<SelectionReport, StoreError> {
        // A reader scans, so that the writer only inserts the result.
        let found = self
            .readers
            .read(move |connection| replay_selection::scan_next(connection, id))
            .await?;
        let Some(slice) = found else { return Ok(SelectionReport::NotFound) };
        self.writer.write(move |tx| replay_selection::insert_slice(tx, &slice)).await
    }

    async fn advance_replay(
        &self,
        id: ReplayId,
        limit: usize,
        open_max: u64,
        now: Timestamp,
    ) -> Result<Option<AdvanceReport>, StoreError> {
        let step = AdvanceStep { id, limit, open_max, now };
        let scan =
            self.readers.read(move |connection| replay_jobs::scan_items(connection, step)).await?;
        match scan {
            None => Ok(None),
            Some(scan) if !scan.has_changes() => Ok(Some(scan.unchanged)),
            Some(scan) => {
                self.writer.write(move |tx| replay_jobs::apply_step(tx, step, &scan)).await
            }
        }
    }

    async fn change_replay(
        &self,
        id: ReplayId,
        input: ReplayTransition,
        now: Timestamp,
    ) -> Result<ChangeReplayResult, StoreError> {
        self.writer.write(move |tx| replay_jobs::change_state(tx, id, input, now)).await
    }

    async fn find_replay(&self, id: ReplayId) -> Result<Option<ReplayRow>, StoreError> {
        self.readers.read(move |connection| replay_jobs::find_replay(connection, id)).await
    }

    async fn list_replays(
        &self,
        page: PageRequest<ReplayId>,
    ) -> Result<Vec<ReplayRow>, StoreError> {
        self.readers.read(move |connection| replay_jobs::list_replays(connection, page)).await
    }

    async fn list_unfinished_replays(&self) -> Result<Vec<ReplayId>, StoreError> {
        self.readers.read(replay_jobs::list_unfinished).await
    }

    async fn prune_replays(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.writer.write(move |tx| replay_jobs::prune_finished(tx, before)).await
    }
}
