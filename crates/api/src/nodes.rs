//! The nodes of a store: processes, the lanes that they own, and the database.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::store::Duty;
use surehook_types::{
    ids::{DestinationId, NodeId},
    name::Name,
    string_enum,
    time::Timestamp,
};

/// All nodes and what they own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodesResponse {
    /// Time of the store.
    pub as_of: Timestamp,
    /// The node that answered this request.
    pub answered_by: NodeId,
    /// Whether several nodes can use the store: PostgreSQL, not the embedded store.
    pub is_shared: bool,
    /// Oldest first.
    pub nodes: Vec<NodeResponse>,
    /// By name of the destination.
    pub lanes: Vec<LaneOwnerResponse>,
    pub duties: Vec<DutyResponse>,
    /// The most recent changes of owners, newest first.
    pub handovers: Vec<HandoverResponse>,
    /// Health of the database server; absent for the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseResponse>,
}

string_enum! {
    /// The state of a node.
    pub enum NodeStatus {
        /// It renews its lease.
        Alive = "alive",
        /// It is about to stop and gives its lanes to others.
        Leaving = "leaving",
        /// Its lease has ended without a goodbye; others take over its lanes.
        Lost = "lost",
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Node")]
pub struct NodeResponse {
    pub id: NodeId,
    pub name: String,
    pub version: String,
    /// Where it listens for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub state: NodeStatus,
    pub started_at: Timestamp,
    /// Last renewal of its lease.
    pub renewed_at: Timestamp,
    /// Number of lanes that it owns.
    pub lanes: usize,
    /// Duties that it leads.
    pub duties: Vec<Duty>,
}

/// A lane: the deliveries to one destination, or one of its shards, with the node that makes them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LaneOwner")]
pub struct LaneOwnerResponse {
    pub destination: Name,
    pub destination_id: DestinationId,
    /// Which of the destination's shards, from 1; absent if it has one lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// Absent while no node owns the lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<NodeId>,
    /// Grows with each owner.
    pub epoch: i64,
    /// When it got this owner, or lost the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Age of the oldest due delivery; absent if nothing is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_pending_age_seconds: Option<u64>,
}

/// Periodic work that one node does for all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NodeDuty")]
pub struct DutyResponse {
    pub duty: Duty,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<NodeId>,
    /// Grows with each leader.
    pub term: i64,
    pub since: Timestamp,
}

/// A lane got another owner.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LaneHandover")]
pub struct HandoverResponse {
    /// Absent if the destination was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Name>,
    pub destination_id: DestinationId,
    /// Which of the destination's shards, from 1; absent if it had one lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// The owner before; absent for the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeId>,
    pub to: NodeId,
    pub at: Timestamp,
    /// Whether the owner before had given the lane back; otherwise its lease had ended.
    pub is_planned: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DatabaseHealth")]
pub struct DatabaseResponse {
    pub version: String,
    pub size_bytes: u64,
    /// Open connections of all programs.
    pub connections: u64,
    pub connections_max: u64,
    /// Age of the oldest open transaction. It keeps removed rows from being cleaned up.
    pub oldest_transaction_seconds: u64,
    /// Transactions that the oldest snapshot is behind.
    pub oldest_snapshot_age: u64,
    /// Rows that were removed and are not cleaned up yet.
    pub dead_rows: u64,
    pub live_rows: u64,
    /// Whether a commit waits for a standby, so that nothing answered is lost with the server.
    pub waits_for_standby: bool,
    pub standbys: Vec<StandbyResponse>,
    /// Time of the database minus time of the node that answered, in milliseconds.
    pub clock_offset_ms: i64,
}

/// A standby of the database server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DatabaseStandby")]
pub struct StandbyResponse {
    pub name: String,
    pub state: String,
    pub is_synchronous: bool,
    /// Bytes of the log that it has not written yet.
    pub lag_bytes: u64,
}

impl NodesResponse {
    /// The name of a node, or its id if it is gone.
    pub fn node_name(&self, id: NodeId) -> String {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| id.to_string(), |node| node.name.clone())
    }
}

string_enum! {
    /// What becomes of a process that was frozen.
    pub enum FreezeState {
        /// It ends what runs, closes its store, and answers 503.
        Freezing = "freezing",
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FreezeResponse {
    pub state: FreezeState,
}
