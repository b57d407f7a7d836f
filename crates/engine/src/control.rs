//! Operations on destinations and deliveries while the gateway runs: pause, resume, probe, cancel.

use std::sync::Arc;

use surehook_core::store::{AttemptRow, CancelResult, LaneAction, LaneAnswer, StoreCounts};
use surehook_retry::rate::Rate;
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    store_error::StoreError,
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
    /// The request is stored, and the owner carries it out when there is one.
    #[error(
        "the node that delivers to this destination has not answered yet; the request is stored and carried out as soon as possible"
    )]
    NoAnswer,
    #[error("the node that delivers to this destination could not do this: {0}")]
    NotDone(String),
    /// Listeners must call the owner of the lane, which knows them.
    #[error("the deliveries of this destination are handed out by {0}; call that one")]
    OwnedElsewhere(String),
    #[error("this destination is not of the kind `listen`")]
    NotListen,
    #[error("{0} programs listen to this destination already; stop one of them")]
    TooManyListeners(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    pub(crate) fn lane(&self, destination: DestinationId) -> Result<Arc<Lane>, LaneError> {
        self.registry.load().lanes.get(&destination).cloned().ok_or(LaneError::NoLane)
    }

    /// Whether another node may own the lane of this destination.
    pub(crate) fn is_elsewhere(&self, destination: DestinationId) -> bool {
        let registry = self.registry.load();
        !self.shared.node.is_alone()
            && registry.destinations.contains_key(&destination)
            && !registry.lanes.contains_key(&destination)
    }

    /// Pauses a destination: nothing is delivered until it is resumed.
    pub async fn pause(
        &self,
        destination: DestinationId,
        reason: Option<String>,
    ) -> Result<(), LaneError> {
        if self.is_elsewhere(destination) {
            return self.ask_owner(destination, LaneAction::Pause { reason }).await.map(drop);
        }
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
        if self.is_elsewhere(destination) {
            return self.ask_owner(destination, LaneAction::Resume { rate }).await.map(drop);
        }
        let lane = self.lane(destination)?;
        let work = async move { lane.resume(rate).await };
        Ok(RunToCompletion::new(work, &self.shared.tasks).await?)
    }

    /// Attempts the delivery that is due first, even if the destination is paused or its circuit open.
    pub async fn probe(&self, destination: DestinationId) -> Result<AttemptRow, LaneError> {
        if self.is_elsewhere(destination) {
            return self.probe_elsewhere(destination).await;
        }
        let lane = self.lane(destination)?;
        let probed = RunToCompletion::new(lane.probe(), &self.shared.tasks).await?;
        probed.ok_or(LaneError::NothingPending)
    }

    /// Cancels a delivery that is not finished.
    pub async fn cancel_delivery(&self, delivery: DeliveryId) -> Result<CancelResult, StoreError> {
        let cancelled = self.store.cancel(delivery, self.shared.clock.now()).await?;
        if let CancelResult::Done { destination } = cancelled {
            self.wake_lane(destination);
            self.shared.notify_waiters(delivery, || WaiterResult::Cancelled);
            self.publish_delivery_change(delivery).await;
        }
        Ok(cancelled)
    }

    async fn probe_elsewhere(&self, destination: DestinationId) -> Result<AttemptRow, LaneError> {
        let LaneAnswer::Probed { delivery, attempt } =
            self.ask_owner(destination, LaneAction::Probe).await?
        else {
            return Err(LaneError::NothingPending);
        };
        let detail = self.store.find_delivery(delivery).await?;
        let mut attempts = detail.into_iter().flat_map(|detail| detail.attempts);
        attempts.find(|row| row.attempt.id == attempt).ok_or(LaneError::NothingPending)
    }

    /// The counts as the lists show them: deliveries held by their destination count as held.
    pub async fn counts(&self) -> Result<StoreCounts, StoreError> {
        let held = self.store.count_held().await?;
        let mut counts = self.store.counts().await?;
        counts.move_to_held(&held);
        Ok(counts)
    }
}
