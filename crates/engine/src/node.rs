//! This process as a node: what it owns, and until when.
//!
//! A node renews one lease for all its lanes and duties. Lanes ask [`NodeState::is_owner`] before they
//! start anything, so nothing starts after the lease could have ended, even if the store cannot be
//! reached. The time is that of the monotonic clock: a step of the wall clock moves no deadline.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use surehook_core::{
    delivery::LaneEpoch,
    store::{Duty, NodeLease, OwnedLane},
};
use surehook_types::{
    ids::{DestinationId, NodeId},
    rng::new_id,
    store_error::StoreError,
};

use crate::Engine;

/// A lease is renewed this many times before it ends.
const RENEWALS_PER_LEASE: u32 = 3;
const RENEWAL_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The pause after the store could not be asked.
const ERROR_PAUSE: Duration = Duration::from_millis(500);
/// The deadline of a lease that does not end.
const NEVER: u64 = u64::MAX;

/// The lease of this process and what it owns.
#[derive(Debug)]
pub(crate) struct NodeState {
    id: ArcSwap<NodeId>,
    /// The origin of the deadline.
    started: Instant,
    /// Nanoseconds after `started`; zero before the node is registered.
    deadline: AtomicU64,
    duties: ArcSwap<Vec<Duty>>,
}

impl NodeState {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id: ArcSwap::from_pointee(id),
            started: Instant::now(),
            deadline: AtomicU64::new(0),
            duties: ArcSwap::default(),
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        **self.id.load()
    }

    /// Whether the lease has not ended.
    pub(crate) fn is_owner(&self) -> bool {
        match self.deadline.load(Ordering::Acquire) {
            NEVER => true,
            deadline => self.started.elapsed().as_nanos() < u128::from(deadline),
        }
    }

    pub(crate) fn leads(&self, duty: Duty) -> bool {
        self.is_owner() && self.duties.load().contains(&duty)
    }

    /// Sets the deadline of a lease that was requested at `requested`.
    fn extend(&self, requested: Instant, lease: NodeLease) {
        let deadline = match lease {
            NodeLease::Unlimited => NEVER,
            NodeLease::For(duration) => {
                let end = requested.saturating_duration_since(self.started) + duration;
                u64::try_from(end.as_nanos()).unwrap_or(NEVER - 1)
            }
        };
        self.deadline.store(deadline, Ordering::Release);
    }

    fn end(&self) {
        self.deadline.store(0, Ordering::Release);
        self.duties.store(Arc::default());
    }
}

impl Engine {
    /// Registers this process as a node, under a new id; returns the lease.
    pub(crate) async fn join_nodes(&self) -> Result<NodeLease, StoreError> {
        let node: NodeId = new_id(&*self.shared.rng, self.shared.clock.now());
        let requested = Instant::now();
        let lease = self.store.register_node(node).await?;
        self.shared.node.id.store(Arc::new(node));
        self.shared.node.extend(requested, lease);
        self.lead_duties().await?;
        Ok(lease)
    }

    async fn lead_duties(&self) -> Result<(), StoreError> {
        let led = self.store.lead_duties(self.shared.node.id(), Duty::ALL.to_vec()).await?;
        let duties: Vec<Duty> = led.iter().map(|led| led.duty).collect();
        if **self.shared.node.duties.load() != duties {
            tracing::debug!(?led, "this process leads these duties");
            self.shared.node.duties.store(Arc::new(duties));
            // Their tasks wait for their next time.
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// The lanes of these destinations that this process owns, with their epochs.
    pub(crate) async fn acquire_lanes(
        &self,
        destinations: Vec<DestinationId>,
    ) -> Result<BTreeMap<DestinationId, LaneEpoch>, StoreError> {
        let owned = self.store.acquire_lanes(self.shared.node.id(), destinations).await?;
        Ok(owned.into_iter().map(|OwnedLane { destination, epoch }| (destination, epoch)).collect())
    }

    /// Renews the lease until the engine stops, and takes over what has no owner. Ends at once if the
    /// lease is unlimited.
    pub(crate) async fn keep_lease(self: Arc<Self>, mut lease: NodeLease) {
        while let NodeLease::For(duration) = lease {
            let wait = (duration / RENEWALS_PER_LEASE).max(RENEWAL_PAUSE_MIN);
            if tokio::time::timeout(wait, self.shared.stop.cancelled()).await.is_ok() {
                return;
            }
            match self.renew_lease().await {
                Ok(renewed) => lease = renewed,
                Err(error) => {
                    // Without a renewal, nothing starts after the deadline.
                    tracing::warn!(%error, "could not renew the lease of this process");
                    lease = NodeLease::For(ERROR_PAUSE * RENEWALS_PER_LEASE);
                }
            }
        }
    }

    async fn renew_lease(&self) -> Result<NodeLease, StoreError> {
        let requested = Instant::now();
        let was_owner = self.shared.node.is_owner();
        let lease = match self.store.renew_node(self.shared.node.id()).await? {
            Some(lease) => {
                self.shared.node.extend(requested, lease);
                self.lead_duties().await?;
                lease
            }
            None => {
                tracing::warn!("the lease of this process has ended; its lanes are given up");
                self.shared.node.end();
                self.join_nodes().await?
            }
        };
        self.take_over_lanes(was_owner).await?;
        Ok(lease)
    }

    /// Acquires lanes that have no owner, and loads a configuration that another node has changed.
    async fn take_over_lanes(&self, was_owner: bool) -> Result<(), StoreError> {
        // Not beside a change of the configuration, which loads it as well.
        let _changing = self.change_lock.lock().await;
        let registry = self.registry.load_full();
        let version = self.store.load_configuration_version().await?;
        // A misconfigured destination may still run under its old settings.
        let destinations: BTreeSet<DestinationId> =
            registry.destinations.iter().chain(registry.lanes.keys()).copied().collect();
        let owned = self.acquire_lanes(destinations.into_iter().collect()).await?;
        let running: BTreeMap<DestinationId, LaneEpoch> =
            registry.lanes.iter().map(|(id, lane)| (*id, lane.epoch())).collect();
        let is_current = owned == running && registry.version == version;
        if !was_owner || !is_current {
            self.reload().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::*;

    #[test]
    fn nothing_is_owned_before_the_lease_begins_and_after_it_could_have_ended() {
        let node = NodeState::new(NodeId::new(Timestamp::default(), 1));
        assert!(!node.is_owner());

        node.extend(Instant::now(), NodeLease::For(Duration::from_secs(3600)));
        assert!(node.is_owner());
        // Counted from the request, not from the answer.
        let long_ago = node.started;
        node.extend(long_ago, NodeLease::For(Duration::ZERO));
        assert!(!node.is_owner());

        node.extend(long_ago, NodeLease::Unlimited);
        node.duties.store(Arc::new(vec![Duty::Prune]));
        assert!(node.is_owner() && node.leads(Duty::Prune) && !node.leads(Duty::RollUp));
        node.end();
        assert!(!node.is_owner() && !node.leads(Duty::Prune));
    }
}
