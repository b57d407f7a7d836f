//! Replays: by a person one by one, by a job, or by a duplicate that revives a dead event.
//!
//! All insert a new delivery that refers to the old one. The dedup key plays no part.

use serde_json::json;
use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    delivery::state::DeliveryStatus,
    replay::{ReplaySpec, SkipReason},
    store::{REPLAY_INTERVAL, ReplayResult},
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, Id, IdKind, ReplayId, RequestId},
    time::Timestamp,
};
use surehook_webhooks::key::fingerprint;

use super::{
    StepTransaction, callbacks, dead_letter_groups, decisions, delivery_bodies, ordering_queue,
    row::{blob, id, optional_time, reason, status, time},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// The fields of the old delivery that a replay needs.
struct ReplayCandidate {
    event: EventId,
    destination: DestinationId,
    /// Row number of the destination, and the ordering key.
    ordering: (i64, Option<String>),
    status: DeliveryStatus,
    reason: Option<DeadReason>,
    last_replay_at: Option<Timestamp>,
    destination_exists: bool,
    has_body: bool,
}

const FIND_CANDIDATE: &str = "
    SELECT t.id, d.state, d.reason, d.cause, d.created_at, d.replayed_at,
           t.deleted_at IS NULL, e.payload IS NOT NULL, e.id, d.destination, d.order_key
      FROM deliveries d
      JOIN destinations t ON t.seq = d.destination
      JOIN events e ON e.id = d.event_id
     WHERE d.id = ?1";

fn find_candidate(
    connection: &impl SqlConnection,
    delivery: DeliveryId,
) -> Result<Option<ReplayCandidate>> {
    connection.find_one(FIND_CANDIDATE, params![blob(delivery)], |row| {
        let cause: String = row.get(3)?;
        // A delivery that is itself a replay counts from its creation.
        let created_by_replay = if cause == "replay" { Some(time(row, 4)?) } else { None };
        Ok(ReplayCandidate {
            event: id(row, 8)?,
            destination: id(row, 0)?,
            status: status(row, 1)?,
            reason: reason(row, 2)?,
            last_replay_at: optional_time(row, 5)?.or(created_by_replay),
            destination_exists: row.get(6)?,
            has_body: row.get(7)?,
            ordering: (row.get(9)?, row.get(10)?),
        })
    })
}

/// Implements `AdminStore::replay`.
pub(crate) fn replay_delivery(
    tx: &mut impl StepTransaction,
    old: DeliveryId,
    new: DeliveryId,
    now: Timestamp,
) -> Result<ReplayResult> {
    let Some(found) = find_candidate(tx, old)? else { return Ok(ReplayResult::NotFound) };
    if is_replay_of(tx, old, new)? {
        return Ok(ReplayResult::Created { delivery: new, destination: found.destination });
    }
    if let Some(again_at) = found.last_replay_at.map(|at| at + REPLAY_INTERVAL)
        && now < again_at
    {
        return Ok(ReplayResult::TooSoon { again_at });
    }
    let ended = matches!(found.status, DeliveryStatus::Dead | DeliveryStatus::Succeeded);
    if !(ended && found.destination_exists) {
        return Ok(ReplayResult::NotReplayable(found.status));
    }
    if !found.has_body {
        return Ok(ReplayResult::BodyRemoved);
    }
    replace_delivery(tx, old, new, &found, ReplacementCause::Replay, now)?;
    Ok(ReplayResult::Created { delivery: new, destination: found.destination })
}

/// Replays a delivery for a job, or returns why not. Unlike single replays a job has no minimum
/// interval: its size was confirmed, and overlapping jobs do not run concurrently. A delivery that
/// was dead when selected and has succeeded since is skipped.
pub(crate) fn replay_for_job(
    tx: &mut impl StepTransaction,
    old: DeliveryId,
    job: ReplayId,
    spec: &ReplaySpec,
    now: Timestamp,
) -> Result<Result<DeliveryId, SkipReason>> {
    let Some(found) = find_candidate(tx, old)? else { return Ok(Err(SkipReason::EventGone)) };
    let only_dead = spec.filter.requires_dead();
    if !spec.selects(found.status) || (only_dead && found.status != DeliveryStatus::Dead) {
        return Ok(Err(SkipReason::Superseded));
    }
    if !found.destination_exists {
        return Ok(Err(SkipReason::DestinationGone));
    }
    if !found.has_body {
        return Ok(Err(SkipReason::BodyGone));
    }
    let new = derive_delivery_id(old, job, now);
    replace_delivery(tx, old, new, &found, ReplacementCause::Replay, now)?;
    Ok(Ok(new))
}

const FIND_MISSING: &str = "
    SELECT e.payload IS NOT NULL, t.deleted_at IS NULL,
           EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_by_event
                    WHERE d.event_id = e.id AND d.destination = t.seq)
      FROM events e, destinations t WHERE e.id = ?1 AND t.seq = ?2";

const INSERT_DELIVERY: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at)
    VALUES (?1, ?2, ?3, 'pending', 'replay', ?4, ?4)";

/// The transform runs at the attempt: a destination whose route transforms events must not get the
/// original.
const INSERT_PENDING_TRANSFORM: &str = "
    INSERT INTO delivery_bodies (delivery_id, route_id)
    SELECT ?1, r.id FROM routes r JOIN events e ON e.source = r.source
     WHERE e.id = ?2 AND r.destination = ?3 AND r.transform IS NOT NULL ORDER BY r.seq LIMIT 1";

/// Delivers an event to a destination (by row number) that never got it, or returns why not.
pub(crate) fn deliver_missing(
    tx: &mut impl StepTransaction,
    event: EventId,
    destination: i64,
    job: ReplayId,
    now: Timestamp,
) -> Result<Result<DeliveryId, SkipReason>> {
    let read = |row: &dyn SqlRow| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let skip = match tx.find_one(FIND_MISSING, params![blob(event), destination], read)? {
        None => Some(SkipReason::EventGone),
        Some((_, _, true)) => Some(SkipReason::Present),
        Some((_, false, _)) => Some(SkipReason::DestinationGone),
        Some((false, _, _)) => Some(SkipReason::BodyGone),
        Some((true, true, false)) => None,
    };
    if let Some(skip) = skip {
        return Ok(Err(skip));
    }
    let new = derive_delivery_id(event, job, now);
    tx.run(INSERT_DELIVERY, params![blob(new), blob(event), destination, now.as_millis()])?;
    tx.run(INSERT_PENDING_TRANSFORM, params![blob(new), blob(event), destination])?;
    tx.counts().count_move(None, Some(DeliveryStatus::Pending));
    tx.defer_pruning(event, now)?;
    Ok(Ok(new))
}

const IS_REPLAY_OF: &str =
    "SELECT EXISTS (SELECT 1 FROM deliveries WHERE id = ?2 AND replay_of = ?1)";

/// Whether the same request was carried out before.
fn is_replay_of(connection: &impl SqlConnection, old: DeliveryId, new: DeliveryId) -> Result<bool> {
    connection.read_one(IS_REPLAY_OF, params![blob(old), blob(new)], |row| row.get(0))
}

#[derive(Clone, Copy)]
enum ReplacementCause {
    Replay,
    Revival,
}

// `DeliveryTransition::Replay`
const MARK_REPLAYED: &str = "
    UPDATE deliveries SET state = 'replayed', replayed_by = ?2, replayed_at = ?3
     WHERE id = ?1 AND state IN ('dead', 'succeeded')";

const INSERT_REPLACEMENT: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at, replay_of,
                            order_key, order_seq)
    SELECT ?2, event_id, destination, ?5, ?3, ?4, ?6, id, order_key, ?7
      FROM deliveries WHERE id = ?1";

fn replace_delivery(
    tx: &mut impl StepTransaction,
    old: DeliveryId,
    new: DeliveryId,
    found: &ReplayCandidate,
    cause: ReplacementCause,
    at: Timestamp,
) -> Result<()> {
    let (cause, kind) = match cause {
        ReplacementCause::Replay => ("replay", EventDecisionKind::Replayed),
        ReplacementCause::Revival => ("revival", EventDecisionKind::Revived),
    };
    let now = at.as_millis();
    // An ordered delivery goes to the end of its queue.
    let position = match &found.ordering {
        (destination, Some(key)) => Some(ordering_queue::append(tx, *destination, key)?),
        (_, None) => None,
    };
    let is_first = position.is_none_or(|position| position.is_first);
    let status = if is_first { DeliveryStatus::Pending } else { DeliveryStatus::Held };
    tx.run(MARK_REPLAYED, params![blob(old), blob(new), now])?;
    tx.run(
        INSERT_REPLACEMENT,
        params![
            blob(old),
            blob(new),
            cause,
            now,
            status.as_str(),
            is_first.then_some(now),
            position.map(|position| position.seq),
        ],
    )?;
    tx.counts().count_move(Some(found.status), Some(DeliveryStatus::Replayed));
    tx.counts().count_move(None, Some(status));
    if let (DeliveryStatus::Dead, Some(reason)) = (found.status, found.reason) {
        dead_letter_groups::remove_delivery(tx, old, reason)?;
    }
    delivery_bodies::copy_body(tx, old, new)?;
    callbacks::copy(tx, old, new)?;
    tx.defer_pruning(found.event, at)?;
    let detail = json!({ "replay_of": old });
    let decision = EventDecision { event: found.event, delivery: Some(new), at, kind, detail };
    decisions::insert(tx, &decision)
}

const LATEST_DELIVERIES: &str =
    "SELECT id, state FROM deliveries WHERE event_id = ?1 AND state <> 'replayed'";

/// Replays all deliveries of an event if all are dead, except those that may have arrived; returns
/// their destinations.
pub(crate) fn revive_event(
    tx: &mut impl StepTransaction,
    event: EventId,
    request: RequestId,
    now: Timestamp,
) -> Result<Vec<DestinationId>> {
    let read = |row: &dyn SqlRow| Ok((id(row, 0)?, status(row, 1)?));
    let latest: Vec<_> = tx.read_all(LATEST_DELIVERIES, params![blob(event)], read)?;
    if latest.iter().any(|(_, status)| *status != DeliveryStatus::Dead) {
        return Ok(Vec::new());
    }
    let mut revived = Vec::new();
    for (old, _) in latest {
        revived.extend(revive_delivery(tx, old, request, now)?);
    }
    Ok(revived)
}

/// Replays a dead delivery under [`derive_delivery_id`]; returns its destination if that is
/// possible. A delivery that may have arrived is left to a person: the repeated request does not
/// tell more.
pub(crate) fn revive_delivery(
    tx: &mut impl StepTransaction,
    old: DeliveryId,
    request: RequestId,
    now: Timestamp,
) -> Result<Vec<DestinationId>> {
    let can_be_revived = |found: &ReplayCandidate| {
        let may_have_arrived = found.reason == Some(DeadReason::Ambiguous);
        found.destination_exists && found.has_body && !may_have_arrived
    };
    let Some(found) = find_candidate(tx, old)?.filter(can_be_revived) else {
        return Ok(Vec::new());
    };
    let new = derive_delivery_id(old, request, now);
    replace_delivery(tx, old, new, &found, ReplacementCause::Revival, now)?;
    Ok(vec![found.destination])
}

/// Derives the id of a new delivery without randomness: the old id together with the id of the
/// request or job is unique.
pub(crate) fn derive_delivery_id<O: IdKind, W: IdKind>(
    old: Id<O>,
    requester: Id<W>,
    now: Timestamp,
) -> DeliveryId {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&blob(old));
    seed[16..].copy_from_slice(&blob(requester));
    let mut bits = [0; 16];
    bits.copy_from_slice(&fingerprint(&seed)[..16]);
    DeliveryId::new(now, u128::from_be_bytes(bits))
}

const HAS_DEAD: &str =
    "SELECT EXISTS (SELECT 1 FROM deliveries WHERE event_id = ?1 AND state = 'dead')";

pub(crate) fn has_dead_delivery(connection: &impl SqlConnection, event: EventId) -> Result<bool> {
    connection.read_one(HAS_DEAD, params![blob(event)], |row| row.get(0))
}
