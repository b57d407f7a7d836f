//! Store operations of nodes: which process owns which lanes and leads which duties, and what nodes tell
//! each other.
//!
//! A node is a process that uses the store. It has one lease for everything it owns, and renews only
//! that. What it writes as the owner of a lane carries the lane's epoch, so a node that was suspended for
//! longer than its lease changes nothing afterwards.
//!
//! Signals only make things faster. Whatever follows from one also follows from what a node reads
//! anyway: versions, due deliveries, open requests.

use std::{net::SocketAddr, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use surehook_retry::rate::Rate;
use surehook_types::{
    ids::{AttemptId, DeliveryId, DestinationId, LaneRequestId, NodeId, ReplayId},
    store_error::StoreError,
    string_enum,
    time::Timestamp,
};

use super::ConfigVersion;
use crate::{delivery::LaneEpoch, lane::LaneId};

/// How long a node owns what it has acquired, unless it renews its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLease {
    /// Until the process ends: no other process can use the store.
    Unlimited,
    /// For this long, counted from before the call that returns it.
    For(Duration),
}

/// A process that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    pub id: NodeId,
    /// Chosen by its operator, for people. Several nodes may have the same.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// Where it listens for requests.
    pub address: Option<SocketAddr>,
}

/// A lane that a node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedLane {
    pub lane: LaneId,
    /// Of this lane alone: two lanes of a destination never have the same, unless one process owns all
    /// for ever.
    pub epoch: LaneEpoch,
    /// Set if another node, an earlier run of this one, or another lane of the destination may have sent
    /// something before: for how long nothing has been sent. Zero unless the same lane was given back.
    /// Never set for the only lane of a destination by a store that one process owns.
    pub taken_over_after: Option<Duration>,
}

string_enum! {
    /// Periodic work that one node does for all.
    pub enum Duty {
        /// Removing what has expired.
        Prune = "prune",
        /// Merging counts into the buckets of series.
        RollUp = "roll_up",
        /// Cancelling the deliveries of deleted destinations.
        CancelDeleted = "cancel_deleted",
        /// Advancing replay jobs.
        ReplayJobs = "replay_jobs",
        /// Posting due callbacks.
        Callbacks = "callbacks",
        /// Raising and telling alerts.
        Alerts = "alerts",
    }
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

/// Something that other nodes should look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// There is a newer version of the configuration.
    ConfigurationChanged,
    /// A token or session was added, changed or removed.
    TokensChanged,
    /// A node has joined or left, or lanes were given back.
    NodesChanged,
    /// The store has due deliveries for a lane.
    LaneDue(DestinationId),
    /// There is a [`LaneRequest`] for a lane, or an answer to one.
    LaneRequested(DestinationId),
    /// A destination with several lanes asked one of them to send nothing until then.
    DestinationCooling(DestinationId, Timestamp),
    /// A sender waits for the next attempt of a delivery. Who settles it publishes
    /// [`Self::DeliverySettled`].
    DeliveryAwaited(DeliveryId),
    /// An awaited delivery has changed in the store.
    DeliverySettled(DeliveryId),
    /// A replay job was created or changed.
    ReplayChanged(ReplayId),
    /// A client follows the live updates of all nodes.
    LiveUpdatesWatched,
    /// Live updates of a node, in its own encoding.
    LiveUpdates(String),
}

impl Signal {
    /// The name of its kind. With [`Self::reference`] this is how a store keeps it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ConfigurationChanged => "configuration_changed",
            Self::TokensChanged => "tokens_changed",
            Self::NodesChanged => "nodes_changed",
            Self::LaneDue(_) => "lane_due",
            Self::LaneRequested(_) => "lane_requested",
            Self::DestinationCooling(..) => "destination_cooling",
            Self::DeliveryAwaited(_) => "delivery_awaited",
            Self::DeliverySettled(_) => "delivery_settled",
            Self::ReplayChanged(_) => "replay_changed",
            Self::LiveUpdatesWatched => "live_updates_watched",
            Self::LiveUpdates(_) => "live_updates",
        }
    }

    /// What it is about; empty if the kind says everything.
    pub fn reference(&self) -> String {
        match self {
            Self::ConfigurationChanged
            | Self::TokensChanged
            | Self::NodesChanged
            | Self::LiveUpdatesWatched => String::new(),
            Self::LaneDue(destination) | Self::LaneRequested(destination) => {
                destination.to_string()
            }
            Self::DestinationCooling(destination, until) => {
                format!("{destination} {}", until.as_millis())
            }
            Self::DeliveryAwaited(delivery) | Self::DeliverySettled(delivery) => {
                delivery.to_string()
            }
            Self::ReplayChanged(job) => job.to_string(),
            Self::LiveUpdates(updates) => updates.clone(),
        }
    }

    /// The signal with this kind and reference; `None` if a newer version has written it.
    pub fn parse(kind: &str, reference: &str) -> Option<Self> {
        Some(match kind {
            "configuration_changed" => Self::ConfigurationChanged,
            "tokens_changed" => Self::TokensChanged,
            "nodes_changed" => Self::NodesChanged,
            "lane_due" => Self::LaneDue(reference.parse().ok()?),
            "lane_requested" => Self::LaneRequested(reference.parse().ok()?),
            "destination_cooling" => {
                let (destination, until) = reference.split_once(' ')?;
                let until = Timestamp::from_millis(until.parse().ok()?);
                Self::DestinationCooling(destination.parse().ok()?, until)
            }
            "delivery_awaited" => Self::DeliveryAwaited(reference.parse().ok()?),
            "delivery_settled" => Self::DeliverySettled(reference.parse().ok()?),
            "replay_changed" => Self::ReplayChanged(reference.parse().ok()?),
            "live_updates_watched" => Self::LiveUpdatesWatched,
            "live_updates" => Self::LiveUpdates(reference.to_owned()),
            _ => return None,
        })
    }
}

/// A place in the sequence of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignalPosition(pub i64);

/// A number that grows whenever a token or session is added, changed or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokensVersion(pub u64);

/// What a node learns of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignalBatch {
    /// The signals of other nodes, oldest first.
    pub signals: Vec<Signal>,
    /// The place after them.
    pub position: SignalPosition,
    /// Signals after the given place are gone, or may be: everything may have changed.
    pub has_gap: bool,
    pub configuration: ConfigVersion,
    pub tokens: TokensVersion,
}

/// What the owner of a lane is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneAction {
    Pause {
        reason: Option<String>,
        /// Whether another lane of the destination was paused by the gateway itself.
        #[serde(default)]
        automatic: bool,
    },
    Resume {
        rate: Option<Rate>,
    },
    Probe,
}

/// A request to the owner of a lane, from a node that does not own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRequest {
    pub id: LaneRequestId,
    pub lane: LaneId,
    pub action: LaneAction,
    pub requested_at: Timestamp,
}

/// The answer of a lane's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneAnswer {
    /// It is done, and in the store.
    Done,
    /// This attempt was made.
    Probed { delivery: DeliveryId, attempt: AttemptId },
    /// There was no delivery to probe with.
    NothingPending,
    /// It was not done, for this reason.
    Failed(String),
}

/// How long requests to owners of lanes and their answers are kept.
pub const LANE_REQUESTS_KEPT: Duration = Duration::from_secs(3600);

/// Hand-overs that are kept for [`NodesReport::handovers`].
pub const HANDOVERS_KEPT: usize = 100;

/// A node as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub version: String,
    pub address: Option<SocketAddr>,
    pub started_at: Timestamp,
    /// When it last renewed its lease.
    pub renewed_at: Timestamp,
    /// Whether its lease has not ended.
    pub is_alive: bool,
    /// Whether it is about to stop.
    pub is_leaving: bool,
}

/// A lane with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOwnerRow {
    pub lane: LaneId,
    /// `None` if no node owns it at the moment.
    pub owner: Option<NodeId>,
    pub epoch: LaneEpoch,
    /// When it got its owner, or lost it.
    pub since: Timestamp,
}

/// A duty with its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyRow {
    pub duty: Duty,
    pub leader: Option<NodeId>,
    pub term: DutyTerm,
    pub since: Timestamp,
}

/// A change of a lane's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverRow {
    pub lane: LaneId,
    /// The owner before; `None` for the first one.
    pub from: Option<NodeId>,
    pub to: NodeId,
    pub at: Timestamp,
    /// Whether the owner before had given it back; otherwise its lease had ended.
    pub is_planned: bool,
}

/// All nodes, and what they own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodesReport {
    /// The time of the store, by which leases end.
    pub as_of: Timestamp,
    /// Those that have not been removed, oldest first. Nodes whose lease ended more than an hour ago may
    /// be missing.
    pub nodes: Vec<NodeRow>,
    /// All lanes that have had an owner. Those of deleted destinations may be among them.
    pub lanes: Vec<LaneOwnerRow>,
    pub duties: Vec<DutyRow>,
    /// The last [`HANDOVERS_KEPT`], newest first.
    pub handovers: Vec<HandoverRow>,
}

/// The store operations of nodes.
#[async_trait]
pub trait CoordinationStore: Send + Sync {
    /// Registers this process as a node. It owns nothing yet.
    async fn register_node(&self, node: NewNode) -> Result<NodeLease, StoreError>;

    /// Extends the lease of a node, and with it everything that the node owns. `None` if it has ended:
    /// then the process owns nothing any more, and registers again under a new id.
    async fn renew_node(&self, node: NodeId) -> Result<Option<NodeLease>, StoreError>;

    /// Announces that a node will stop: others take over what it gives back, and count it no more when
    /// they share the lanes. It keeps its lease and its lanes.
    async fn begin_leaving(&self, node: NodeId) -> Result<(), StoreError>;

    /// Ends the lease of a node that stops, so that others need not wait for it.
    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError>;

    /// Acquires those of these lanes that have no owner, or whose owner's lease has ended; returns them
    /// together with those of them that the node owned before.
    ///
    /// A lane that changes its owner gets a higher epoch, and what was claimed under its older one is due
    /// again, or is settled with its crash outcome.
    ///
    /// While a lane of a destination has an owner, none with another number of shards is acquired:
    /// together they would exceed the limits of the destination.
    async fn acquire_lanes(
        &self,
        node: NodeId,
        lanes: Vec<LaneId>,
    ) -> Result<Vec<OwnedLane>, StoreError>;

    /// Gives lanes back that the node owns: they have no owner until another one acquires them. Others
    /// are ignored.
    async fn release_lanes(&self, node: NodeId, lanes: Vec<LaneId>) -> Result<(), StoreError>;

    /// Becomes the leader of those of these duties that have none, or whose leader's lease has ended;
    /// returns them together with those of them that the node led before.
    async fn lead_duties(
        &self,
        node: NodeId,
        duties: Vec<Duty>,
    ) -> Result<Vec<LedDuty>, StoreError>;

    /// All nodes, and what they own.
    async fn load_nodes(&self) -> Result<NodesReport, StoreError>;

    /// Publishes signals to all other nodes. They may be lost in a crash, and the order of signals that
    /// are published at the same time is not defined.
    async fn publish_signals(&self, node: NodeId, signals: Vec<Signal>) -> Result<(), StoreError>;

    /// What other nodes have published after a place; `None` for what will be published from now on.
    /// Waits for this long if there is nothing, and returns as soon as there is something.
    ///
    /// A store with a cache of committed keys (see [`IngestStore::find_committed`]) also learns here which
    /// keys other nodes have retired. It must not answer from the cache after it could not ask for longer
    /// than a lease.
    ///
    /// [`IngestStore::find_committed`]: super::IngestStore::find_committed
    async fn poll_signals(
        &self,
        node: NodeId,
        after: Option<SignalPosition>,
        wait: Duration,
    ) -> Result<SignalBatch, StoreError>;

    /// Stores a request to the owner of a lane; durable after `Ok`. The same request again changes
    /// nothing. Removes requests that are older than [`LANE_REQUESTS_KEPT`].
    async fn add_lane_request(&self, request: LaneRequest) -> Result<(), StoreError>;

    /// The requests without an answer for lanes that a node owns, oldest first. The number of shards may
    /// have changed since they were added.
    async fn list_lane_requests(&self, node: NodeId) -> Result<Vec<LaneRequest>, StoreError>;

    /// Answers a request. The first answer stays.
    async fn answer_lane_request(
        &self,
        id: LaneRequestId,
        answer: LaneAnswer,
    ) -> Result<(), StoreError>;

    /// The answer to a request, if there is one.
    async fn find_lane_answer(&self, id: LaneRequestId) -> Result<Option<LaneAnswer>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_read_back_from_kind_and_reference() {
        let at = Timestamp::from_millis(1);
        let signals = [
            Signal::ConfigurationChanged,
            Signal::TokensChanged,
            Signal::NodesChanged,
            Signal::LaneDue(DestinationId::new(at, 1)),
            Signal::LaneRequested(DestinationId::new(at, 2)),
            Signal::DestinationCooling(DestinationId::new(at, 6), at),
            Signal::DeliveryAwaited(DeliveryId::new(at, 3)),
            Signal::DeliverySettled(DeliveryId::new(at, 4)),
            Signal::ReplayChanged(ReplayId::new(at, 5)),
            Signal::LiveUpdatesWatched,
            Signal::LiveUpdates(r#"[{"kind":"event.received"}]"#.to_owned()),
        ];
        for signal in signals {
            assert_eq!(Signal::parse(signal.kind(), &signal.reference()), Some(signal));
        }
        assert_eq!(Signal::parse("from_a_newer_version", ""), None);
        assert_eq!(Signal::parse("lane_due", "no id"), None);
    }
}
