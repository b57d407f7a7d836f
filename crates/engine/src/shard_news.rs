//! What one lane of a destination tells the others, wherever they run: that the gateway paused it, and
//! that the destination asked for a cool-down.
//!
//! Both only make things faster and tidier: without the news another lane gets the same answers from the
//! destination, and does the same. What must hold is that all lanes are paused or none: each compares
//! itself with the first one, whose pause is the one that people see, and follows it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use surehook_core::{
    lane::LaneId,
    store::{LaneAction, LaneRequest, Signal},
};
use surehook_types::{ids::DestinationId, rng::new_id, store_error::StoreError, time::Timestamp};
use tokio::sync::Notify;

use crate::{Engine, lane::Lane, lock::lock};

/// How often lanes compare their pause with that of the first lane of the destination. Twice in a row they
/// must differ: a pause may be on its way.
const COMPARE_INTERVAL: Duration = Duration::from_secs(2);

/// News that has not been passed on; at most one of each kind for a destination.
#[derive(Debug, Default)]
pub(crate) struct ShardNews {
    waiting: Mutex<WaitingNews>,
    added: Notify,
}

#[derive(Debug, Default)]
struct WaitingNews {
    cool_downs: HashMap<DestinationId, Timestamp>,
    /// The lane that is paused already, and why.
    pauses: HashMap<DestinationId, (LaneId, Option<String>)>,
}

impl ShardNews {
    pub(crate) fn add_cool_down(&self, lane: LaneId, until: Timestamp) {
        let mut waiting = lock(&self.waiting);
        let latest = waiting.cool_downs.entry(lane.destination).or_insert(until);
        *latest = until.max(*latest);
        drop(waiting);
        self.added.notify_one();
    }

    pub(crate) fn add_pause(&self, lane: LaneId, reason: Option<String>) {
        lock(&self.waiting).pauses.entry(lane.destination).or_insert((lane, reason));
        self.added.notify_one();
    }
}

/// Passes news on until the engine stops.
pub(crate) async fn spread(engine: Arc<Engine>) {
    let shared = &engine.shared;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.shard_news.added.notified() => {}
        }
        let WaitingNews { cool_downs, pauses } = mem::take(&mut *lock(&shared.shard_news.waiting));
        for (destination, until) in cool_downs {
            engine.cool_down_lanes(destination, until);
            shared.signals.publish(Signal::DestinationCooling(destination, until));
        }
        for (lane, reason) in pauses.into_values() {
            engine.pause_other_lanes(lane, reason).await;
        }
    }
}

/// Lets lanes follow the pause of the first lane of their destination until the engine stops.
pub(crate) async fn compare(engine: Arc<Engine>) {
    let mut differing = HashSet::new();
    loop {
        let stopped = engine.shared.stop.cancelled();
        if tokio::time::timeout(COMPARE_INTERVAL, stopped).await.is_ok() {
            return;
        }
        if let Err(error) = engine.follow_first_lanes(&mut differing).await {
            tracing::warn!(%error, "could not compare the pauses of the lanes of a destination");
        }
    }
}

impl Engine {
    /// Starts the cool-down of a destination in the lanes that run here.
    pub(crate) fn cool_down_lanes(&self, destination: DestinationId, until: Timestamp) {
        let registry = self.registry.load();
        registry.lanes_of(destination).iter().for_each(|lane| lane.cool_down(until));
    }

    /// Pauses the other lanes of a destination, of which the gateway has paused one. Those of other nodes
    /// are asked, and not waited for.
    async fn pause_other_lanes(&self, paused: LaneId, reason: Option<String>) {
        let registry = self.registry.load_full();
        let lanes = LaneId::all(paused.destination, paused.shard.count);
        for id in lanes.filter(|id| *id != paused) {
            let result = match registry.lane(id) {
                Some(lane) if lane.current_state().paused.is_some() => Ok(()),
                Some(lane) => lane.pause(reason.clone(), true).await,
                None => {
                    let requested_at = self.shared.clock.now();
                    let action = LaneAction::Pause { reason: reason.clone(), automatic: true };
                    let request_id = new_id(&*self.shared.rng, requested_at);
                    let request = LaneRequest { id: request_id, lane: id, action, requested_at };
                    self.store.add_lane_request(request).await
                }
            };
            if let Err(error) = result {
                tracing::warn!(destination = %id.destination, %error, "could not pause all lanes of a destination that the gateway paused");
            }
        }
        self.shared.signals.publish(Signal::LaneRequested(paused.destination));
    }

    /// Pauses and resumes lanes whose pause differs from that of the first lane of their destination, and
    /// did so the last time: `differing`.
    pub(crate) async fn follow_first_lanes(
        &self,
        differing: &mut HashSet<LaneId>,
    ) -> Result<(), StoreError> {
        let registry = self.registry.load_full();
        let followers = registry.all_lanes().filter(|lane| !lane.id().shard.is_first());
        let followers: Vec<&Arc<Lane>> = followers.collect();
        let first_of = |lane: &Lane| registry.first_lane(lane.destination_id());
        let saved = match followers.iter().all(|lane| first_of(lane).is_some()) {
            true => BTreeMap::new(),
            false => self.store.load_lanes().await?,
        };
        let mut differ_now = HashSet::new();
        for lane in followers {
            let first = match first_of(lane) {
                Some(first) => first.current_state().paused,
                None => saved.get(&lane.destination_id()).and_then(|state| state.paused.clone()),
            };
            if first.is_some() == lane.current_state().paused.is_some() {
                continue;
            }
            if !differing.contains(&lane.id()) {
                differ_now.insert(lane.id());
                continue;
            }
            match first {
                Some(pause) => lane.pause(pause.reason, pause.automatic).await?,
                None => lane.resume(None).await?,
            }
        }
        *differing = differ_now;
        Ok(())
    }
}
