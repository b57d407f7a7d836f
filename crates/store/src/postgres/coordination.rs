//! Nodes, owners of lanes and leaders of duties. All times are by the clock of the database.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use surehook_core::{
    delivery::LaneEpoch,
    lane::{LaneId, Shard},
    store::{
        ConfigVersion, Duty, DutyRow, DutyTerm, HANDOVERS_KEPT, HandoverRow, LANE_REQUESTS_KEPT,
        LaneAnswer, LaneOwnerRow, LaneRequest, LedDuty, NewNode, NodeLease, NodeRow, NodesReport,
        OwnedLane, Signal, SignalBatch, SignalPosition, TokensVersion,
    },
};
use surehook_types::{
    ids::{LaneRequestId, NodeId},
    time::Timestamp,
};

use super::transaction::PgTransaction;
use crate::{
    sql::{Result, SqlConnection, SqlError, SqlRow, params},
    steps::{
        awaited_statuses,
        claims::{self, EndedEpochs},
        lanes,
        row::{
            blob, corrupt_value, duration_millis, id, json, optional_id, optional_json,
            optional_text, text, time, to_json,
        },
    },
};

/// How long a node owns what it has acquired without renewing its lease.
const LEASE: Duration = Duration::from_secs(15);
/// How long a node is listed whose lease has ended.
const ENDED_NODES_LISTED: Duration = Duration::from_secs(3600);
/// How long a node may take to read signals.
const SIGNALS_KEPT: Duration = Duration::from_secs(300);

const GRANTED: NodeLease = NodeLease::For(LEASE);

const REGISTER: &str = "
    INSERT INTO nodes (id, name, version, address, started_at, renewed_at, lease_until)
    SELECT ?1, ?2, ?3, ?4, surehook_now(), surehook_now(), surehook_now() + ?5
     WHERE NOT EXISTS (SELECT 1 FROM meta WHERE name = 'moved_to')
    ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until";
const REMOVE_ENDED: &str = "DELETE FROM nodes WHERE lease_until < surehook_now() - ?1";

/// Implements `CoordinationStore::register_node`.
pub(super) fn register(connection: &impl SqlConnection, node: &NewNode) -> Result<NodeLease> {
    let address = node.address.map(|address| address.to_string());
    let lease = duration_millis(LEASE);
    connection.run(REMOVE_ENDED, params![duration_millis(ENDED_NODES_LISTED)])?;
    let values = params![blob(node.id), node.name, node.version, address, lease];
    match connection.run(REGISTER, values)? {
        0 => Err(SqlError::Unstorable("the data in the database was moved elsewhere".to_owned())),
        _ => Ok(GRANTED),
    }
}

const RENEW: &str = "
    UPDATE nodes SET lease_until = surehook_now() + ?2, renewed_at = surehook_now()
     WHERE id = ?1 AND lease_until > surehook_now()";

/// Implements `CoordinationStore::renew_node`.
pub(super) fn renew(connection: &impl SqlConnection, node: NodeId) -> Result<Option<NodeLease>> {
    let renewed = connection.run(RENEW, params![blob(node), duration_millis(LEASE)])?;
    Ok((renewed > 0).then_some(GRANTED))
}

/// Implements `CoordinationStore::begin_leaving`.
pub(super) fn begin_leaving(connection: &impl SqlConnection, node: NodeId) -> Result<()> {
    connection.run("UPDATE nodes SET is_leaving = 1 WHERE id = ?1", params![blob(node)]).map(drop)
}

/// Implements `CoordinationStore::remove_node`.
pub(super) fn remove(connection: &impl SqlConnection, node: NodeId) -> Result<()> {
    let node = blob(node);
    for sql in [
        "UPDATE lane_owners SET node = NULL, since = surehook_now() WHERE node = ?1",
        "UPDATE duties SET node = NULL, since = surehook_now() WHERE node = ?1",
        "DELETE FROM nodes WHERE id = ?1",
    ] {
        connection.run(sql, params![node])?;
    }
    Ok(())
}

const RELEASE_LANE: &str = "
    UPDATE lane_owners SET node = NULL, since = surehook_now()
     WHERE node = ?1 AND destination = (SELECT seq FROM destinations WHERE id = ?2)
       AND shard = ?3 AND shards = ?4";

/// Implements `CoordinationStore::release_lanes`.
pub(super) fn release_lanes(
    connection: &impl SqlConnection,
    node: NodeId,
    lanes: &[LaneId],
) -> Result<()> {
    for LaneId { destination, shard } in lanes {
        let values = params![blob(node), blob(*destination), shard.index, shard.count];
        connection.run(RELEASE_LANE, values)?;
    }
    Ok(())
}

const IS_ALIVE: &str = "SELECT 1 FROM nodes WHERE id = ?1 AND lease_until > surehook_now()";

fn is_alive(connection: &impl SqlConnection, node: NodeId) -> Result<bool> {
    connection.exists(IS_ALIVE, params![blob(node)])
}

/// Who owns a lane or leads a duty.
enum Ownership {
    /// This node, under this epoch or term, and whether it took it over.
    Own(i64, bool),
    /// Another node, whose lease has not ended.
    Other,
    Free,
}

const OWNER_OF_LANE: &str = "
    SELECT o.epoch, o.node = ?2, o.is_taken_over,
           EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node AND n.lease_until > surehook_now())
      FROM lane_owners o JOIN destinations t ON t.seq = o.destination
     WHERE t.id = ?1 AND o.shard = ?3 AND o.shards = ?4";
// Lanes with another number of shards must be given back before any with this number is acquired.
const IS_OWNED_OTHERWISE: &str = "
    SELECT 1 FROM lane_owners o JOIN destinations t ON t.seq = o.destination
      JOIN nodes n ON n.id = o.node
     WHERE t.id = ?1 AND o.shards <> ?2 AND n.lease_until > surehook_now()";
const LEADER_OF_DUTY: &str = "
    SELECT o.term, o.node = ?2, 0,
           EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node AND n.lease_until > surehook_now())
      FROM duties o WHERE o.duty = ?1";

fn read_ownership(row: &dyn SqlRow) -> Result<Ownership> {
    let (is_own, is_alive) = (row.get::<Option<bool>>(1)? == Some(true), row.get(3)?);
    Ok(match (is_own, is_alive) {
        (true, true) => Ownership::Own(row.get(0)?, row.get(2)?),
        (false, true) => Ownership::Other,
        (_, false) => Ownership::Free,
    })
}

fn find_lane_ownership(
    connection: &impl SqlConnection,
    lane: LaneId,
    node: NodeId,
) -> Result<Ownership> {
    let LaneId { destination, shard } = lane;
    let (destination, node) = (blob(destination), blob(node));
    let values = params![destination, node, shard.index, shard.count];
    match connection.find_one(OWNER_OF_LANE, values, read_ownership)? {
        Some(owned @ (Ownership::Own(..) | Ownership::Other)) => Ok(owned),
        Some(Ownership::Free) | None => {
            let others = params![destination, shard.count];
            let is_blocked = connection.exists(IS_OWNED_OTHERWISE, others)?;
            Ok(if is_blocked { Ownership::Other } else { Ownership::Free })
        }
    }
}

/// The lanes that a node owns among these; `None` if one of them is free and can be acquired.
pub(super) fn find_owned(
    connection: &impl SqlConnection,
    node: NodeId,
    lanes: &[LaneId],
) -> Result<Option<Vec<OwnedLane>>> {
    let mut owned = Vec::new();
    for lane in lanes.iter().copied() {
        match find_lane_ownership(connection, lane, node)? {
            Ownership::Own(epoch, is_taken_over) => {
                let taken_over_after = is_taken_over.then_some(Duration::ZERO);
                owned.push(OwnedLane { lane, epoch: LaneEpoch(epoch), taken_over_after });
            }
            Ownership::Other => {}
            Ownership::Free => return Ok(None),
        }
    }
    Ok(Some(owned))
}

// The epochs that end: of the lane itself, and of lanes with another number of shards.
const ENDED_EPOCHS: &str = "
    SELECT epoch FROM lane_owners
     WHERE destination = ?1 AND (shard = ?2 OR shards <> ?3) ORDER BY epoch";
const REMOVE_OTHER_SHARDS: &str = "
    DELETE FROM lane_owners WHERE destination = ?1 AND shards <> ?3 AND shard <> ?2";
const HAS_LANES: &str = "SELECT 1 FROM lane_owners WHERE destination = ?1";
// Other lanes of the destination may have sent something just before.
const TAKE_LANE: &str = "
    INSERT INTO lane_owners (destination, shard, shards, node, last_node, epoch, since,
                             is_taken_over)
    VALUES (?1, ?2, ?3, ?4, ?4, ?5, surehook_now(), ?6)
    ON CONFLICT (destination, shard) DO UPDATE
       SET shards = excluded.shards, node = excluded.node, last_node = excluded.last_node,
           epoch = excluded.epoch, since = excluded.since, is_taken_over = 1
    RETURNING is_taken_over";
// How long ago the lane was given back; before the owner changes.
const IDLE_TIME: &str = "
    SELECT surehook_now() - since FROM lane_owners
     WHERE destination = ?1 AND shard = ?2 AND shards = ?3 AND node IS NULL";
// Before the owner changes.
const RECORD_HANDOVER: &str = "
    INSERT INTO lane_handovers (destination, shard, shards, from_node, to_node, at, is_planned)
    SELECT ?1, ?3, ?4, l.last_node, ?2, surehook_now(),
           CASE WHEN l.node IS NULL THEN 1 ELSE 0 END
      FROM (SELECT 1) AS one LEFT JOIN lane_owners l ON l.destination = ?1 AND l.shard = ?3";
const REMOVE_OLD_HANDOVERS: &str = "
    DELETE FROM lane_handovers
     WHERE seq <= (SELECT max(seq) FROM lane_handovers) - ?1";
const SEQ: &str = "SELECT seq FROM destinations WHERE id = ?1";
const NOW: &str = "SELECT surehook_now()";

/// Implements `CoordinationStore::acquire_lanes`. No other transaction writes meanwhile, so nothing that
/// carries the earlier epoch is committed later.
pub(super) fn acquire_lanes(
    tx: &mut PgTransaction<'_>,
    node: NodeId,
    lanes: &[LaneId],
) -> Result<Vec<OwnedLane>> {
    if !is_alive(tx, node)? {
        return Ok(Vec::new());
    }
    let now: Timestamp = tx.read_one(NOW, params![], |row| time(row, 0))?;
    let mut owned = Vec::new();
    // Two lanes of a destination never get the same.
    let mut new_epochs: BTreeMap<u16, LaneEpoch> = BTreeMap::new();
    for lane in lanes.iter().copied().collect::<BTreeSet<_>>() {
        // A deleted destination may still have a lane, which ends what is in flight.
        let destination = blob(lane.destination);
        let seq = tx.find_one(SEQ, params![destination], |row| row.get::<i64>(0))?;
        let Some(seq) = seq else { continue };
        match find_lane_ownership(tx, lane, node)? {
            Ownership::Own(epoch, is_taken_over) => {
                let taken_over_after = is_taken_over.then_some(Duration::ZERO);
                owned.push(OwnedLane { lane, epoch: LaneEpoch(epoch), taken_over_after });
            }
            Ownership::Other => {}
            Ownership::Free => {
                let epoch = match new_epochs.get(&lane.shard.index) {
                    Some(epoch) => *epoch,
                    None => lanes::next_epoch(tx)?,
                };
                new_epochs.insert(lane.shard.index, epoch);
                let new_owner = NewLaneOwner { node, lane, epoch };
                owned.push(take_lane(tx, new_owner, seq, now)?);
            }
        }
    }
    if !new_epochs.is_empty() {
        tx.run(REMOVE_OLD_HANDOVERS, params![HANDOVERS_KEPT])?;
    }
    Ok(owned)
}

struct NewLaneOwner {
    node: NodeId,
    lane: LaneId,
    epoch: LaneEpoch,
}

/// Makes a node the owner of a lane that is free; `seq` is the row number of the destination.
fn take_lane(
    tx: &mut PgTransaction<'_>,
    new_owner: NewLaneOwner,
    seq: i64,
    now: Timestamp,
) -> Result<OwnedLane> {
    let NewLaneOwner { node, lane, epoch } = new_owner;
    let LaneId { destination, shard } = lane;
    let (index, count, node) = (shard.index, shard.count, blob(node));
    tx.run(RECORD_HANDOVER, params![seq, node, index, count])?;
    let has_lanes = tx.exists(HAS_LANES, params![seq])?;
    let idle: Option<i64> = tx.find_one(IDLE_TIME, params![seq, index, count], |row| row.get(0))?;
    let idle = Duration::from_millis(idle.unwrap_or(0).try_into().unwrap_or(0));
    let ended: Vec<EndedEpochs> = match shard.is_whole() || !has_lanes {
        // There is no other owner. What was moved here was claimed under any epoch.
        true => vec![EndedEpochs::before(epoch, Some(seq))],
        false => tx.read_all(ENDED_EPOCHS, params![seq, index, count], |row| {
            Ok(EndedEpochs::of_lane(LaneEpoch(row.get(0)?), seq))
        })?,
    };
    tx.run(REMOVE_OTHER_SHARDS, params![seq, index, count])?;
    let values = params![seq, index, count, node, epoch.0, has_lanes];
    let is_taken_over: bool = tx.read_one(TAKE_LANE, values, |row| row.get(0))?;
    let mut released = 0;
    for ended in ended {
        released += claims::end_epochs(tx, ended, now)?;
    }
    if shard.is_first() {
        awaited_statuses::restart_waits(tx, Some(seq), now)?;
    }
    if released > 0 {
        tracing::info!(%destination, released, "released deliveries that the previous owner of a lane left in flight");
    }
    let taken_over_after = is_taken_over.then_some(idle);
    Ok(OwnedLane { lane, epoch, taken_over_after })
}

fn find_leadership(connection: &impl SqlConnection, duty: Duty, node: NodeId) -> Result<Ownership> {
    let values = params![duty.as_str(), blob(node)];
    let found = connection.find_one(LEADER_OF_DUTY, values, read_ownership)?;
    Ok(found.unwrap_or(Ownership::Free))
}

const TAKE_DUTY: &str = "
    INSERT INTO duties (duty, node, term, since) VALUES (?1, ?2, ?3, surehook_now())
    ON CONFLICT (duty) DO UPDATE
       SET node = excluded.node, term = excluded.term, since = excluded.since";
const NEXT_TERM: &str =
    "UPDATE counters SET value = value + 1 WHERE name = 'duty_term' RETURNING value";

/// The duties that a node leads among these; `None` if one of them has no leader.
pub(super) fn find_led(
    connection: &impl SqlConnection,
    node: NodeId,
    duties: &[Duty],
) -> Result<Option<Vec<LedDuty>>> {
    let mut led = Vec::new();
    for duty in duties {
        match find_leadership(connection, *duty, node)? {
            Ownership::Own(term, _) => led.push(LedDuty { duty: *duty, term: DutyTerm(term) }),
            Ownership::Other => {}
            Ownership::Free => return Ok(None),
        }
    }
    Ok(Some(led))
}

/// Implements `CoordinationStore::lead_duties`.
pub(super) fn lead_duties(
    tx: &mut PgTransaction<'_>,
    node: NodeId,
    duties: &[Duty],
) -> Result<Vec<LedDuty>> {
    if !is_alive(tx, node)? {
        return Ok(Vec::new());
    }
    let mut led = Vec::new();
    for duty in duties {
        match find_leadership(tx, *duty, node)? {
            Ownership::Own(term, _) => led.push(LedDuty { duty: *duty, term: DutyTerm(term) }),
            Ownership::Other => {}
            Ownership::Free => {
                let term: i64 = tx.read_one(NEXT_TERM, params![], |row| row.get(0))?;
                tx.run(TAKE_DUTY, params![duty.as_str(), blob(node), term])?;
                led.push(LedDuty { duty: *duty, term: DutyTerm(term) });
            }
        }
    }
    Ok(led)
}

const NODES: &str = "
    SELECT id, name, version, address, started_at, renewed_at, lease_until > surehook_now(),
           is_leaving
      FROM nodes ORDER BY started_at, id";
const LANES: &str = "
    SELECT t.id, l.shard, l.shards, l.node, l.epoch, l.since
      FROM lane_owners l JOIN destinations t ON t.seq = l.destination ORDER BY t.id, l.shard";
const DUTIES: &str = "SELECT duty, node, term, since FROM duties ORDER BY duty";
const HANDOVERS: &str = "
    SELECT t.id, h.shard, h.shards, h.from_node, h.to_node, h.at, h.is_planned
      FROM lane_handovers h JOIN destinations t ON t.seq = h.destination
     ORDER BY h.seq DESC LIMIT ?1";

/// A lane in three columns: id of the destination, shard, and number of shards.
fn lane_id(row: &dyn SqlRow, column: usize) -> Result<LaneId> {
    let number = |column: usize| -> Result<u16> {
        let number: i64 = row.get(column)?;
        u16::try_from(number).map_err(|_| corrupt_value(column, &number.to_string()))
    };
    let shard = Shard { index: number(column + 1)?, count: number(column + 2)? };
    Ok(LaneId { destination: id(row, column)?, shard })
}

/// Implements `CoordinationStore::load_nodes`.
pub(super) fn load_nodes(connection: &impl SqlConnection) -> Result<NodesReport> {
    Ok(NodesReport {
        as_of: connection.read_one(NOW, params![], |row| time(row, 0))?,
        nodes: connection.read_all(NODES, params![], |row| {
            Ok(NodeRow {
                id: id(row, 0)?,
                name: row.get(1)?,
                version: row.get(2)?,
                address: optional_text(row, 3, |address| address.parse().ok())?,
                started_at: time(row, 4)?,
                renewed_at: time(row, 5)?,
                is_alive: row.get(6)?,
                is_leaving: row.get(7)?,
            })
        })?,
        lanes: connection.read_all(LANES, params![], |row| {
            let (lane, owner) = (lane_id(row, 0)?, optional_id(row, 3)?);
            let (epoch, since) = (LaneEpoch(row.get(4)?), time(row, 5)?);
            Ok(LaneOwnerRow { lane, owner, epoch, since })
        })?,
        duties: connection.read_all(DUTIES, params![], |row| {
            let (duty, leader) = (text(row, 0, Duty::parse)?, optional_id(row, 1)?);
            let (term, since) = (DutyTerm(row.get(2)?), time(row, 3)?);
            Ok(DutyRow { duty, leader, term, since })
        })?,
        handovers: connection.read_all(HANDOVERS, params![HANDOVERS_KEPT], |row| {
            Ok(HandoverRow {
                lane: lane_id(row, 0)?,
                from: optional_id(row, 3)?,
                to: id(row, 4)?,
                at: time(row, 5)?,
                is_planned: row.get(6)?,
            })
        })?,
    })
}

const NUMBER_SIGNALS: &str =
    "UPDATE counters SET value = value + ?1 WHERE name = 'signals' RETURNING value";
const INSERT_SIGNAL: &str = "
    INSERT INTO signals (seq, node, kind, reference, published_at)
    VALUES (?1, ?2, ?3, ?4, surehook_now())";
const NOTIFY: &str = "SELECT pg_notify(?1, ?2)";
const REMOVE_SIGNALS: &str = "DELETE FROM signals WHERE published_at < surehook_now() - ?1";

/// Implements `CoordinationStore::publish_signals`. Processes that listen are notified when the transaction
/// is committed.
pub(super) fn publish(
    connection: &impl SqlConnection,
    channel: &str,
    node: NodeId,
    signals: &[Signal],
) -> Result<()> {
    let last: i64 =
        connection.read_one(NUMBER_SIGNALS, params![signals.len()], |row| row.get(0))?;
    for (behind, signal) in signals.iter().rev().enumerate() {
        let seq = last - i64::try_from(behind).unwrap_or(0);
        let values = params![seq, blob(node), signal.kind(), signal.reference()];
        connection.run(INSERT_SIGNAL, values)?;
    }
    connection.run(REMOVE_SIGNALS, params![duration_millis(SIGNALS_KEPT)])?;
    connection.run(NOTIFY, params![channel, node.to_string()]).map(drop)
}

const POSITIONS: &str = "
    SELECT (SELECT value FROM counters WHERE name = 'signals'), (SELECT min(seq) FROM signals),
           (SELECT value FROM counters WHERE name = 'configuration_version'),
           (SELECT value FROM counters WHERE name = 'tokens_version')";
const SIGNALS: &str =
    "SELECT kind, reference FROM signals WHERE seq > ?1 AND node <> ?2 ORDER BY seq";

/// Reads the signals of other nodes after a place, without waiting.
pub(super) fn read_signals(
    connection: &impl SqlConnection,
    node: NodeId,
    after: Option<SignalPosition>,
) -> Result<SignalBatch> {
    let (last, first, configuration, tokens): (i64, Option<i64>, Option<u64>, Option<u64>) =
        connection.read_one(POSITIONS, params![], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    let after = after.map_or(last, |after| after.0);
    let read = |row: &dyn SqlRow| {
        let (kind, reference): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(Signal::parse(&kind, &reference))
    };
    let signals: Vec<Option<Signal>> = match after < last {
        true => connection.read_all(SIGNALS, params![after, blob(node)], read)?,
        false => Vec::new(),
    };
    Ok(SignalBatch {
        signals: signals.into_iter().flatten().collect(),
        position: SignalPosition(last),
        // Also if the database was restored, and numbers begin again.
        has_gap: after > last || (after < last && first.is_none_or(|first| after < first - 1)),
        configuration: ConfigVersion(configuration.unwrap_or_default()),
        tokens: TokensVersion(tokens.unwrap_or_default()),
    })
}

const RAISE_TOKENS_VERSION: &str =
    "UPDATE counters SET value = value + 1 WHERE name = 'tokens_version'";

/// Tells other nodes that a token or session has changed.
pub(super) fn raise_tokens_version(connection: &impl SqlConnection) -> Result<()> {
    connection.run(RAISE_TOKENS_VERSION, params![]).map(drop)
}

const ADD_REQUEST: &str = "
    INSERT INTO lane_requests (id, destination, shard, action, requested_at)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (id) DO NOTHING";
const REMOVE_REQUESTS: &str = "DELETE FROM lane_requests WHERE requested_at < ?1";

/// Implements `CoordinationStore::add_lane_request`.
pub(super) fn add_request(connection: &impl SqlConnection, request: &LaneRequest) -> Result<()> {
    let kept_since = request.requested_at - LANE_REQUESTS_KEPT;
    connection.run(REMOVE_REQUESTS, params![kept_since.as_millis()])?;
    let LaneRequest { id, lane: LaneId { destination, shard }, action, requested_at } = request;
    let (destination, action) = (blob(*destination), to_json(action)?);
    let values = params![blob(*id), destination, shard.index, action, requested_at.as_millis()];
    connection.run(ADD_REQUEST, values).map(drop)
}

const OPEN_REQUESTS: &str = "
    SELECT r.id, r.destination, l.shard, l.shards, r.action, r.requested_at
      FROM lane_requests r JOIN destinations t ON t.id = r.destination
      JOIN lane_owners l ON l.destination = t.seq AND l.shard = r.shard
     WHERE l.node = ?1 AND r.answer IS NULL ORDER BY r.id";

/// Implements `CoordinationStore::list_lane_requests`.
pub(super) fn list_requests(
    connection: &impl SqlConnection,
    node: NodeId,
) -> Result<Vec<LaneRequest>> {
    connection.read_all(OPEN_REQUESTS, params![blob(node)], |row| {
        let (id, lane) = (id(row, 0)?, lane_id(row, 1)?);
        let (action, requested_at) = (json(row, 4)?, time(row, 5)?);
        Ok(LaneRequest { id, lane, action, requested_at })
    })
}

const ANSWER_REQUEST: &str =
    "UPDATE lane_requests SET answer = ?2 WHERE id = ?1 AND answer IS NULL";

/// Implements `CoordinationStore::answer_lane_request`.
pub(super) fn answer_request(
    connection: &impl SqlConnection,
    request: LaneRequestId,
    answer: &LaneAnswer,
) -> Result<()> {
    connection.run(ANSWER_REQUEST, params![blob(request), to_json(answer)?]).map(drop)
}

/// Implements `CoordinationStore::find_lane_answer`.
pub(super) fn find_answer(
    connection: &impl SqlConnection,
    request: LaneRequestId,
) -> Result<Option<LaneAnswer>> {
    let sql = "SELECT answer FROM lane_requests WHERE id = ?1";
    let answer = connection.find_one(sql, params![blob(request)], |row| optional_json(row, 0))?;
    Ok(answer.flatten())
}
