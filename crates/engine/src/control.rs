//! Operations on destinations and deliveries while the gateway runs: pause, resume, probe, cancel.

use std::sync::Arc;

use surehook_core::{
    lane::SavedLaneState,
    store::{AttemptRow, CancelResult, StoreCounts},
};
use surehook_messaging::send_limits::SendHold;
use surehook_retry::rate::Rate;
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    store_error::StoreError,
    time::Timestamp,
};

use crate::{Engine, lane::Lane, run_to_completion::RunToCompletion, waiters::WaiterResult};

/// Why an operation on a lane failed.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A misconfigured destination has no lane.
    #[error("this destination is misconfigured and gets no deliveries; fix its settings")]
    NoLane,
    #[error("this destination has no pending deliveries")]
    NothingPending,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    fn lane(&self, destination: DestinationId) -> Result<Arc<Lane>, LaneError> {
        self.registry.load().lanes.get(&destination).cloned().ok_or(LaneError::NoLane)
    }

    /// Pauses a destination: nothing is delivered until it is resumed.
    pub async fn pause(
        &self,
        destination: DestinationId,
        reason: Option<String>,
    ) -> Result<(), LaneError> {
        let lane = self.lane(destination)?;
        let work = async move { lane.pause(reason).await };
        Ok(RunToCompletion::new(work, &self.shared.tasks).await?)
    }

    /// Resumes a destination; with a rate, its current backlog is drained no faster than that.
    pub async fn resume(
        &self,
        destination: DestinationId,
        rate: Option<Rate>,
    ) -> Result<(), LaneError> {
        let lane = self.lane(destination)?;
        let work = async move { lane.resume(rate).await };
        Ok(RunToCompletion::new(work, &self.shared.tasks).await?)
    }

    /// Attempts the delivery that is due first, even if the destination is paused or its circuit open.
    pub async fn probe(&self, destination: DestinationId) -> Result<AttemptRow, LaneError> {
        let lane = self.lane(destination)?;
        let probed = RunToCompletion::new(lane.probe(), &self.shared.tasks).await?;
        probed.ok_or(LaneError::NothingPending)
    }

    /// Cancels a delivery that is not finished.
    pub async fn cancel_delivery(&self, delivery: DeliveryId) -> Result<CancelResult, StoreError> {
        let cancelled = self.store.cancel(delivery, self.shared.clock.now()).await?;
        if let CancelResult::Done { destination } = cancelled {
            self.wake_lane(destination);
            self.shared.waiters.notify(delivery, || WaiterResult::Cancelled);
            self.publish_delivery_change(delivery).await;
        }
        Ok(cancelled)
    }

    /// The state of a destination's lane; `None` if it is misconfigured.
    pub fn lane_state(&self, destination: DestinationId) -> Option<SavedLaneState> {
        self.lane(destination).ok().map(|lane| lane.current_state())
    }

    /// Until when a destination sends no messages, and why.
    pub fn lane_hold(&self, destination: DestinationId) -> Option<(Timestamp, SendHold)> {
        self.lane(destination).ok()?.current_send_hold()
    }

    /// The counts as the lists show them: deliveries held by their destination count as held.
    pub async fn counts(&self) -> Result<StoreCounts, StoreError> {
        let held = self.store.count_held().await?;
        let mut counts = self.store.counts();
        counts.move_to_held(&held);
        Ok(counts)
    }
}
