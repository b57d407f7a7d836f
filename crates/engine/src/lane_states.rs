//! The states of all destinations, as people see them: those of lanes of this process as they are now, of
//! other nodes as they have saved them. Of several lanes of a destination the first one stands for all: a
//! pause and a cool-down reach all of them, and waiting deliveries are taken by those whose circuit is closed.

use std::{collections::BTreeMap, sync::Arc};

use surehook_core::{lane::SavedLaneState, store::Configuration};
use surehook_messaging::send_limits::SendHold;
use surehook_types::{ids::DestinationId, store_error::StoreError, time::Timestamp};

use crate::{Engine, registry::Registry};

/// The states of all lanes at one time.
#[derive(Debug)]
pub struct LaneStates {
    registry: Arc<Registry>,
    /// Of lanes that other nodes own.
    saved: BTreeMap<DestinationId, SavedLaneState>,
    /// Send holds of lanes that other nodes own.
    holds: BTreeMap<DestinationId, (Timestamp, SendHold)>,
    now: Timestamp,
}

impl LaneStates {
    /// `None` if the destination is misconfigured.
    pub fn find(&self, destination: DestinationId) -> Option<SavedLaneState> {
        if let Some(lane) = self.registry.first_lane(destination) {
            return Some(lane.current_state());
        }
        self.registry.destinations.contains_key(&destination).then(|| {
            let mut state = self.saved.get(&destination).cloned().unwrap_or_default();
            state.cool_until = state.cool_until.filter(|until| *until > self.now);
            state
        })
    }

    /// Until when a destination sends no messages, and why.
    pub fn find_hold(&self, destination: DestinationId) -> Option<(Timestamp, SendHold)> {
        match self.registry.first_lane(destination) {
            Some(lane) => lane.current_send_hold(),
            None => self.holds.get(&destination).copied(),
        }
    }

    /// How many programs listen to a destination; `None` if it is of another kind, or another node owns its
    /// lane.
    pub fn count_listeners(&self, destination: DestinationId) -> Option<usize> {
        self.registry.first_lane(destination).and_then(|lane| lane.count_listeners())
    }

    /// The end of a destination's cool-down, if it cools down.
    pub fn cooling_until(&self, destination: DestinationId) -> Option<Timestamp> {
        self.find(destination)?.cool_until
    }
}

impl Engine {
    /// The states of all lanes. If this process owns all of them, the store is not asked.
    pub async fn load_lane_states(
        &self,
        configuration: &Configuration,
    ) -> Result<LaneStates, StoreError> {
        let registry = self.registry.load_full();
        let now = self.shared.clock.now();
        let is_elsewhere = |id| registry.first_lane(id).is_none();
        let (mut saved, mut holds) = (BTreeMap::new(), BTreeMap::new());
        if !registry.has_all_first_lanes() {
            saved = self.store.load_lanes().await?;
            for stored in configuration.destinations.iter().filter(|one| is_elsewhere(one.id)) {
                let Some(limits) = stored.spec.limits() else { continue };
                let sent = self.store.count_sent_on(stored.id, limits.day(now)).await?;
                holds.extend(limits.hold(now, sent).map(|hold| (stored.id, hold)));
            }
        }
        Ok(LaneStates { registry, saved, holds, now })
    }

    /// The end of a destination's cool-down, if it cools down. That of a lane of another node may be
    /// unknown.
    pub(crate) async fn find_cool_down(&self, destination: DestinationId) -> Option<Timestamp> {
        let lane = self.registry.load().lanes_of(destination).first().cloned();
        if let Some(lane) = lane {
            return lane.cooling_until();
        }
        if self.shared.node.is_alone() {
            return None;
        }
        let saved = self.store.load_lanes().await.ok()?;
        let until = saved.get(&destination)?.cool_until?;
        (until > self.shared.clock.now()).then_some(until)
    }
}
