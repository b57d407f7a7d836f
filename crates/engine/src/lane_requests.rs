//! Pausing, resuming and probing lanes that another node owns.
//!
//! The request is a row in the store. The owner of the lane carries it out like one of its own and stores
//! the answer; if the lane has no owner at the moment, its next one does. A signal in each direction makes
//! this fast; without, both look every second.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use surehook_core::{
    lane::LaneId,
    store::{AttemptRow, LaneAction, LaneAnswer, LaneRequest, Signal},
};
use surehook_types::{ids::LaneRequestId, rng::new_id, store_error::StoreError};

use crate::{Engine, LaneError, lane::Lane, lock::lock};

/// How long a caller waits for the owner to answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
/// A probe lasts as long as an attempt.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(90);
/// A probe that was requested longer ago is not made: its caller is gone.
const PROBE_AGE_MAX: Duration = Duration::from_secs(60);
/// How often caller and owner look into the store without a signal.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Carries out requests for lanes of this process, until the engine stops.
pub(crate) async fn answer_requests(engine: Arc<Engine>) {
    let shared = &engine.shared;
    let running: Arc<Mutex<HashSet<LaneRequestId>>> = Arc::default();
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.node.requests_changed.notified() => {}
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
        let requests = match engine.store.list_lane_requests(shared.node.id()).await {
            Ok(requests) => requests,
            Err(error) => {
                tracing::debug!(%error, "could not read the requests for lanes of this process");
                continue;
            }
        };
        for request in requests {
            // Of a lane that is just handed over, the next owner answers.
            let Some(lane) = engine.registry.load().lane(request.lane).cloned() else { continue };
            if !lock(&running).insert(request.id) {
                continue;
            }
            let (engine, running) = (Arc::clone(&engine), Arc::clone(&running));
            shared.tasks.spawn(async move {
                engine.answer_request(lane, &request).await;
                lock(&running).remove(&request.id);
            });
        }
    }
}

impl Engine {
    async fn answer_request(&self, lane: Arc<Lane>, request: &LaneRequest) {
        let answer = match self.carry_out(lane, request).await {
            Ok(answer) => answer,
            // It is carried out again: all actions have the same effect twice.
            Err(StoreError::Unknown(_)) => return,
            Err(error) => LaneAnswer::Failed(error.to_string()),
        };
        match self.store.answer_lane_request(request.id, answer).await {
            Ok(()) => self.shared.signals.publish(Signal::LaneRequested(request.lane.destination)),
            Err(error) => {
                tracing::warn!(destination = %request.lane.destination, %error, "could not answer a request of another node");
            }
        }
    }

    async fn carry_out(
        &self,
        lane: Arc<Lane>,
        request: &LaneRequest,
    ) -> Result<LaneAnswer, StoreError> {
        match request.action.clone() {
            // What one lane was paused for may reach another that is paused already, for its own reason.
            LaneAction::Pause { automatic: true, .. } if lane.current_state().paused.is_some() => {
                Ok(LaneAnswer::Done)
            }
            LaneAction::Pause { reason, automatic } => {
                lane.pause(reason, automatic).await.map(|()| LaneAnswer::Done)
            }
            LaneAction::Resume { rate } => lane.resume(rate).await.map(|()| LaneAnswer::Done),
            LaneAction::Probe => {
                if self.shared.clock.now().since(request.requested_at) > PROBE_AGE_MAX {
                    return Ok(LaneAnswer::Failed("it was requested too long ago".to_owned()));
                }
                Ok(match lane.probe().await? {
                    Some(AttemptRow { delivery, attempt, .. }) => {
                        LaneAnswer::Probed { delivery, attempt: attempt.id }
                    }
                    None => LaneAnswer::NothingPending,
                })
            }
        }
    }

    /// Asks the owner of a lane and waits for its answer.
    pub(crate) async fn ask_owner(
        &self,
        lane: LaneId,
        action: LaneAction,
    ) -> Result<LaneAnswer, LaneError> {
        let wait_max = match action {
            LaneAction::Pause { .. } | LaneAction::Resume { .. } => ANSWER_WAIT_MAX,
            LaneAction::Probe => PROBE_WAIT_MAX,
        };
        let requested_at = self.shared.clock.now();
        let id: LaneRequestId = new_id(&*self.shared.rng, requested_at);
        let request = LaneRequest { id, lane, action, requested_at };
        match self.store.add_lane_request(request.clone()).await {
            // The same request again changes nothing.
            Err(StoreError::Unknown(_)) => self.store.add_lane_request(request).await?,
            added => added?,
        }
        self.shared.signals.publish(Signal::LaneRequested(lane.destination));
        // The lane may have come to this process meanwhile.
        self.shared.node.requests_changed.notify_one();
        let answered = async {
            loop {
                // Created before the store is read: an answer in between is not missed.
                let changed = self.shared.node.answers_changed.notified();
                if let Some(answer) = self.store.find_lane_answer(id).await? {
                    return Ok(answer);
                }
                let _changed = tokio::time::timeout(POLL_EVERY, changed).await;
            }
        };
        match tokio::time::timeout(wait_max, answered).await {
            Ok(answer) => match answer.map_err(LaneError::Store)? {
                LaneAnswer::Failed(reason) => Err(LaneError::NotDone(reason)),
                answer @ (LaneAnswer::Done
                | LaneAnswer::Probed { .. }
                | LaneAnswer::NothingPending) => Ok(answer),
            },
            Err(_) => Err(LaneError::NoAnswer),
        }
    }
}
