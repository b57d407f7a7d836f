//! What people do to destinations and deliveries while the gateway runs.

use std::sync::Arc;

use surehook_core::{
    destination::send_limits::SendHold,
    ids::{DeliveryId, DestinationId},
    lane::{Rate, SavedLaneState},
    store::{AttemptRow, CancelResult, StoreCounts, StoreError},
    time::Timestamp,
};

use crate::{Engine, lane::Lane, run_to_completion::RunToCompletion, waiters::WaiterResult};

/// Why something was not done to a lane.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The destination's settings cannot be used, so that it has no lane.
    #[error("nothing is delivered to this destination until its settings are mended")]
    NoLane,
    /// There is nothing to try.
    #[error("nothing waits for this destination")]
    NothingPending,
    /// It could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    fn lane(&self, destination: DestinationId) -> Result<Arc<Lane>, LaneError> {
        self.registry.load().lanes.get(&destination).cloned().ok_or(LaneError::NoLane)
    }

    /// Delivers nothing more to a destination until it is resumed.
    pub async fn pause(
        &self,
        destination: DestinationId,
        reason: Option<String>,
    ) -> Result<(), LaneError> {
        let lane = self.lane(destination)?;
        let work = async move { lane.pause(reason).await };
        Ok(RunToCompletion::new(work, &self.shared.tasks).await?)
    }

    /// Goes on; with a rate, what waits by now is worked off no faster than that.
    pub async fn resume(
        &self,
        destination: DestinationId,
        rate: Option<Rate>,
    ) -> Result<(), LaneError> {
        let lane = self.lane(destination)?;
        let work = async move { lane.resume(rate).await };
        Ok(RunToCompletion::new(work, &self.shared.tasks).await?)
    }

    /// Tries the delivery that is due first, even if the destination is paused or its circuit open.
    pub async fn probe(&self, destination: DestinationId) -> Result<AttemptRow, LaneError> {
        let lane = self.lane(destination)?;
        let probed = RunToCompletion::new(lane.probe(), &self.shared.tasks).await?;
        probed.ok_or(LaneError::NothingPending)
    }

    /// Stops a delivery that waits.
    pub async fn cancel_delivery(&self, delivery: DeliveryId) -> Result<CancelResult, StoreError> {
        let cancelled = self.store.cancel(delivery, self.shared.clock.now()).await?;
        if let CancelResult::Done { destination } = cancelled {
            self.wake_lane(destination);
            self.shared.waiters.tell(delivery, || WaiterResult::Cancelled);
            self.publish_delivery_change(delivery).await;
        }
        Ok(cancelled)
    }

    /// How the lane of a destination is; `None` if it has none.
    pub fn lane_state(&self, destination: DestinationId) -> Option<SavedLaneState> {
        self.lane(destination).ok().map(|lane| lane.state())
    }

    /// Until when a destination that sends messages sends nothing, and why.
    pub fn lane_hold(&self, destination: DestinationId) -> Option<(Timestamp, SendHold)> {
        self.lane(destination).ok()?.shown_hold()
    }

    /// The counts as the lists show them: what is held back by its destination counts as held.
    pub async fn counts(&self) -> Result<StoreCounts, StoreError> {
        let held = self.store.held_back().await?;
        let mut counts = self.store.counts();
        counts.hold_back(&held);
        Ok(counts)
    }
}
