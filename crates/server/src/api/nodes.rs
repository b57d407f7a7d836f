//! `/api/v1/nodes`: the processes that use the store, and what they own.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{Json, extract::State};
use surehook_api::nodes::{
    DatabaseResponse, DutyResponse, HandoverResponse, LaneOwnerResponse, NodeResponse, NodeStatus,
    NodesResponse, StandbyResponse,
};
use surehook_core::{
    lane::LaneId,
    store::{
        DatabaseHealth, DutyRow, HandoverRow, LaneOwnerRow, NodeRow, NodesReport, StandbyHealth,
    },
};
use surehook_types::{
    ids::{DestinationId, NodeId},
    name::Name,
};

use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation = Operation::new("get_nodes", "Get all nodes and what they own.")
        .description(
            "A node is a process of the gateway. Several can use one PostgreSQL; each owns a part of the \
             lanes, a lane being the deliveries to one destination, or to one of its shards.",
        )
        .returns::<NodesResponse>(200);
    api.get("/api/v1/nodes", get_nodes, operation)
}

pub(crate) async fn get_nodes(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<NodesResponse>, Problem> {
    let (engine, store) = (&server.engine, server.engine.store());
    let report = engine.load_nodes().await?;
    let configuration = store.load_configuration().await?;
    let now = engine.clock().now();
    let oldest = store.find_oldest_due(now).await?;
    let database = store.inspect_database().await?;
    let names: HashMap<DestinationId, Name> = configuration
        .destinations
        .iter()
        .map(|stored| (stored.id, stored.spec.name.clone()))
        .collect();
    let owners: BTreeMap<LaneId, &LaneOwnerRow> =
        report.lanes.iter().map(|row| (row.lane, row)).collect();
    let mut lanes: Vec<LaneOwnerResponse> = configuration
        .destinations
        .iter()
        .flat_map(|stored| {
            LaneId::all(stored.id, stored.spec.shards).map(move |lane| (stored, lane))
        })
        .map(|(stored, lane)| {
            let row = owners.get(&lane);
            LaneOwnerResponse {
                destination: stored.spec.name.clone(),
                destination_id: stored.id,
                shard: shard_number(lane),
                owner: row.and_then(|row| row.owner),
                epoch: row.map_or(0, |row| row.epoch.0),
                since: row.map(|row| row.since),
                oldest_pending_age_seconds: oldest
                    .get(&stored.id)
                    .map(|at| now.since(*at).as_secs()),
            }
        })
        .collect();
    lanes.sort_by(|one, other| {
        (&one.destination, one.shard).cmp(&(&other.destination, other.shard))
    });
    let nodes = report.nodes.iter().map(|node| node_response(node, &report, &lanes)).collect();
    let duty = |row: &DutyRow| DutyResponse {
        duty: row.duty,
        leader: row.leader,
        term: row.term.0,
        since: row.since,
    };
    let handover = |row: &HandoverRow| HandoverResponse {
        destination: names.get(&row.lane.destination).cloned(),
        destination_id: row.lane.destination,
        shard: shard_number(row.lane),
        from: row.from,
        to: row.to,
        at: row.at,
        is_planned: row.is_planned,
    };
    Ok(Json(NodesResponse {
        as_of: report.as_of,
        answered_by: engine.node_id(),
        is_shared: !engine.is_only_node(),
        nodes,
        lanes,
        duties: report.duties.iter().map(duty).collect(),
        handovers: report.handovers.iter().map(handover).collect(),
        database: database.map(database_response),
    }))
}

/// The number of a shard as people count.
fn shard_number(lane: LaneId) -> Option<u16> {
    (!lane.shard.is_whole()).then_some(lane.shard.index + 1)
}

fn node_response(
    node: &NodeRow,
    report: &NodesReport,
    lanes: &[LaneOwnerResponse],
) -> NodeResponse {
    let NodeRow { id, name, version, address, started_at, renewed_at, is_alive, is_leaving } = node;
    let is_this = |leader: Option<NodeId>| leader == Some(*id);
    NodeResponse {
        id: *id,
        name: name.clone(),
        version: version.clone(),
        address: address.map(|address| address.to_string()),
        state: match (is_alive, is_leaving) {
            (true, false) => NodeStatus::Alive,
            (true, true) => NodeStatus::Leaving,
            (false, _) => NodeStatus::Lost,
        },
        started_at: *started_at,
        renewed_at: *renewed_at,
        lanes: lanes.iter().filter(|lane| is_this(lane.owner)).count(),
        duties: report
            .duties
            .iter()
            .filter(|row| is_this(row.leader))
            .map(|row| row.duty)
            .collect(),
    }
}

fn database_response(health: DatabaseHealth) -> DatabaseResponse {
    let standby = |standby: StandbyHealth| {
        let StandbyHealth { name, state, is_synchronous, lag_bytes } = standby;
        StandbyResponse { name, state, is_synchronous, lag_bytes }
    };
    DatabaseResponse {
        version: health.version,
        size_bytes: health.size_bytes,
        connections: health.connections,
        connections_max: health.connections_max,
        oldest_transaction_seconds: health.oldest_transaction.as_secs(),
        oldest_snapshot_age: health.oldest_snapshot_age,
        dead_rows: health.dead_rows,
        live_rows: health.live_rows,
        waits_for_standby: health.waits_for_standby,
        standbys: health.standbys.into_iter().map(standby).collect(),
        clock_offset_ms: health.clock_offset_ms,
    }
}
