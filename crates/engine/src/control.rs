//! Operations on destinations and deliveries while the gateway runs: pause, resume, probe, cancel.

use futures_util::future::join_all;
use surehook_core::{
    lane::LaneId,
    store::{AttemptRow, CancelResult, LaneAction, LaneAnswer, StoreCounts},
};
use surehook_retry::rate::Rate;
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    store_error::StoreError,
};

use crate::{Engine, run_to_completion::RunToCompletion, waiters::WaiterResult};

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
    /// Its running attempts end before the new lanes begin.
    #[error("the number of shards of this destination is being changed; try again in a moment")]
    Changing,
    #[error(
        "each of the {shards} shards of this destination needs its part of the rate, but its burst is {burst}; add `burst {shards}` to the rate"
    )]
    BurstBelowShards { burst: u32, shards: u16 },
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
    /// Whether other nodes may own all lanes of this destination.
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
        self.act_on_lanes(destination, LaneAction::Pause { reason, automatic: false }).await
    }

    /// Resumes a destination; with a rate, its current backlog is drained no faster than that.
    pub async fn resume(
        &self,
        destination: DestinationId,
        rate: Option<Rate>,
    ) -> Result<(), LaneError> {
        let shards = self.registry.load().shards(destination).unwrap_or(1);
        if let Some(burst) = rate.map(|rate| rate.burst()).filter(|burst| *burst < shards.into()) {
            return Err(LaneError::BurstBelowShards { burst, shards });
        }
        self.act_on_lanes(destination, LaneAction::Resume { rate }).await
    }

    /// Pauses or resumes all lanes of a destination, wherever they run.
    async fn act_on_lanes(
        &self,
        destination: DestinationId,
        action: LaneAction,
    ) -> Result<(), LaneError> {
        let action = &action;
        let act = |id: LaneId| async move {
            let local = self.registry.load().lane(id).cloned();
            match local {
                Some(lane) => {
                    let work = lane.act(action.clone());
                    Ok(RunToCompletion::new(work, &self.shared.tasks).await?)
                }
                None => self.ask_owner(id, action.clone()).await.map(drop),
            }
        };
        let acted = join_all(self.lane_ids(destination)?.into_iter().map(act)).await;
        acted.into_iter().collect()
    }

    /// The lanes of a destination. With the embedded store they all run here.
    fn lane_ids(&self, destination: DestinationId) -> Result<Vec<LaneId>, LaneError> {
        let registry = self.registry.load();
        let local = registry.lanes_of(destination);
        match registry.shards(destination) {
            Some(shards) if !self.shared.node.is_alone() => {
                Ok(LaneId::all(destination, shards).collect())
            }
            Some(_) if local.is_empty() => Err(LaneError::Changing),
            None if local.is_empty() => Err(LaneError::NoLane),
            Some(_) | None => Ok(local.iter().map(|lane| lane.id()).collect()),
        }
    }

    /// Attempts the delivery that is due first, even if the destination is paused or its circuit open.
    pub async fn probe(&self, destination: DestinationId) -> Result<AttemptRow, LaneError> {
        let local = self.registry.load().lanes_of(destination).first().cloned();
        match local {
            Some(lane) => {
                let probed = RunToCompletion::new(lane.probe(), &self.shared.tasks).await?;
                probed.ok_or(LaneError::NothingPending)
            }
            None => {
                let lanes = self.lane_ids(destination)?;
                self.probe_elsewhere(*lanes.first().ok_or(LaneError::NoLane)?).await
            }
        }
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

    async fn probe_elsewhere(&self, lane: LaneId) -> Result<AttemptRow, LaneError> {
        let LaneAnswer::Probed { delivery, attempt } =
            self.ask_owner(lane, LaneAction::Probe).await?
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
