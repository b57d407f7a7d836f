//! Store operations of nodes: which process owns which lanes and leads which duties.
//!
//! A node is a process that uses the store. It has one lease for everything it owns, and renews only
//! that. What it writes as the owner of a lane carries the lane's epoch, so a node that was suspended for
//! longer than its lease changes nothing afterwards.

use std::time::Duration;

use async_trait::async_trait;
use surehook_types::{
    ids::{DestinationId, NodeId},
    store_error::StoreError,
};

use crate::delivery::LaneEpoch;

/// How long a node owns what it has acquired, unless it renews its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLease {
    /// Until the process ends: no other process can use the store.
    Unlimited,
    /// For this long, counted from before the call that returns it.
    For(Duration),
}

/// A lane that a node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedLane {
    pub destination: DestinationId,
    pub epoch: LaneEpoch,
}

/// Periodic work that one node does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Removing what has expired.
    Prune,
    /// Merging counts into the buckets of series.
    RollUp,
    /// Cancelling the deliveries of deleted destinations.
    CancelDeleted,
    /// Advancing replay jobs.
    ReplayJobs,
    /// Posting due callbacks.
    Callbacks,
}

impl Duty {
    pub const ALL: [Self; 5] =
        [Self::Prune, Self::RollUp, Self::CancelDeleted, Self::ReplayJobs, Self::Callbacks];
}

/// A number that grows whenever a duty gets a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DutyTerm(pub i64);

/// A duty that a node leads.
///
/// Every step of a duty is one transaction that is correct on any node: for the moment in which an old
/// leader has not noticed that it is replaced, two may run, and only the pace is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedDuty {
    pub duty: Duty,
    pub term: DutyTerm,
}

/// The store operations of nodes.
#[async_trait]
pub trait CoordinationStore: Send + Sync {
    /// Registers this process as a node. It owns nothing yet.
    async fn register_node(&self, node: NodeId) -> Result<NodeLease, StoreError>;

    /// Extends the lease of a node, and with it everything that the node owns. `None` if it has ended:
    /// then the process owns nothing any more, and registers again under a new id.
    async fn renew_node(&self, node: NodeId) -> Result<Option<NodeLease>, StoreError>;

    /// Ends the lease of a node that stops, so that others need not wait for it.
    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError>;

    /// Acquires those of these lanes that have no owner, or whose owner's lease has ended; returns them
    /// together with those that the node owned before.
    ///
    /// A lane that changes its owner gets a higher epoch, and what was claimed under an older one is due
    /// again, or is settled with its crash outcome.
    async fn acquire_lanes(
        &self,
        node: NodeId,
        destinations: Vec<DestinationId>,
    ) -> Result<Vec<OwnedLane>, StoreError>;

    /// Becomes the leader of those of these duties that have none, or whose leader's lease has ended;
    /// returns them together with those that the node led before.
    async fn lead_duties(
        &self,
        node: NodeId,
        duties: Vec<Duty>,
    ) -> Result<Vec<LedDuty>, StoreError>;
}
