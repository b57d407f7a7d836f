//! Delivering again on purpose: replays that people ask for, and revivals by a duplicate.
//!
//! Both make a new delivery that names the old one. The event's key plays no part.

use rusqlite::{OptionalExtension, params};
use surehook_core::{
    delivery::{DeadReason, state::Status},
    ids::{DeliveryId, DestinationId, EventId, RequestId},
    key::fingerprint,
    store::{REPLAY_INTERVAL, Replayed},
    time::Timestamp,
};

use super::{
    row::{blob, id, optional_time, reason, status, time},
    writer::Tx,
};

/// What a replay has to know of the delivery it starts from.
struct Candidate {
    destination: DestinationId,
    status: Status,
    reason: Option<DeadReason>,
    last_replay_at: Option<Timestamp>,
    destination_lives: bool,
    body_is_there: bool,
}

const CANDIDATE: &str = "
    SELECT t.id, d.state, d.reason, d.cause, d.created_at, d.replayed_at,
           t.deleted_at IS NULL, e.payload IS NOT NULL
      FROM deliveries d
      JOIN destinations t ON t.seq = d.destination
      JOIN events e ON e.id = d.event_id
     WHERE d.id = ?1";

fn candidate(tx: &Tx<'_, '_>, delivery: DeliveryId) -> rusqlite::Result<Option<Candidate>> {
    tx.connection
        .prepare_cached(CANDIDATE)?
        .query_row(params![blob(delivery)], |row| {
            let cause: String = row.get(3)?;
            // A delivery that is itself a replay counts from its birth.
            let born_of_replay = if cause == "replay" { Some(time(row, 4)?) } else { None };
            Ok(Candidate {
                destination: id(row, 0)?,
                status: status(row, 1)?,
                reason: reason(row, 2)?,
                last_replay_at: optional_time(row, 5)?.or(born_of_replay),
                destination_lives: row.get(6)?,
                body_is_there: row.get(7)?,
            })
        })
        .optional()
}

/// See `AdminStore::replay`.
pub(super) fn replay(
    tx: &mut Tx<'_, '_>,
    old: DeliveryId,
    new: DeliveryId,
    now: Timestamp,
) -> rusqlite::Result<Replayed> {
    let Some(found) = candidate(tx, old)? else { return Ok(Replayed::NotFound) };
    if is_heir(tx, old, new)? {
        return Ok(Replayed::Created { delivery: new, destination: found.destination });
    }
    if let Some(again_at) = found.last_replay_at.map(|at| at + REPLAY_INTERVAL)
        && now < again_at
    {
        return Ok(Replayed::TooSoon { again_at });
    }
    let ended = matches!(found.status, Status::Dead | Status::Succeeded);
    if !(ended && found.destination_lives && found.body_is_there) {
        return Ok(Replayed::NotReplayable(found.status));
    }
    take_over(tx, &Handover { old, new, cause: "replay", now }, &found)?;
    Ok(Replayed::Created { delivery: new, destination: found.destination })
}

const IS_HEIR: &str = "SELECT EXISTS (SELECT 1 FROM deliveries WHERE id = ?2 AND replay_of = ?1)";

/// Whether this very wish was granted before.
fn is_heir(tx: &Tx<'_, '_>, old: DeliveryId, new: DeliveryId) -> rusqlite::Result<bool> {
    tx.connection
        .prepare_cached(IS_HEIR)?
        .query_row(params![blob(old), blob(new)], |row| row.get(0))
}

/// Which delivery hands over to which.
struct Handover {
    old: DeliveryId,
    new: DeliveryId,
    cause: &'static str,
    now: Timestamp,
}

// Input::Replay
const HAND_OVER: &str = "
    UPDATE deliveries SET state = 'replayed', replayed_by = ?2, replayed_at = ?3
     WHERE id = ?1 AND state IN ('dead', 'succeeded')";

const TAKE_OVER: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at, replay_of)
    SELECT ?2, event_id, destination, 'pending', ?3, ?4, ?4, id FROM deliveries WHERE id = ?1";

fn take_over(tx: &mut Tx<'_, '_>, handover: &Handover, found: &Candidate) -> rusqlite::Result<()> {
    let Handover { old, new, cause, now } = handover;
    let now = now.as_millis();
    tx.connection.prepare_cached(HAND_OVER)?.execute(params![blob(*old), blob(*new), now])?;
    tx.connection.prepare_cached(TAKE_OVER)?.execute(params![
        blob(*old),
        blob(*new),
        cause,
        now
    ])?;
    tx.delta.moved(Some(found.status), Some(Status::Replayed));
    tx.delta.moved(None, Some(Status::Pending));
    if let (Status::Dead, Some(reason)) = (found.status, found.reason) {
        tx.delta.dead_now(reason, -1);
    }
    Ok(())
}

const LATEST_DELIVERIES: &str =
    "SELECT id, state FROM deliveries WHERE event_id = ?1 AND state <> 'replayed'";

/// Delivers an event again if all its deliveries are dead; says to which destinations.
pub(super) fn revive(
    tx: &mut Tx<'_, '_>,
    event: EventId,
    request: RequestId,
    now: Timestamp,
) -> rusqlite::Result<Vec<DestinationId>> {
    let latest: Vec<(DeliveryId, Status)> = tx
        .connection
        .prepare_cached(LATEST_DELIVERIES)?
        .query_map(params![blob(event)], |row| Ok((id(row, 0)?, status(row, 1)?)))?
        .collect::<Result<_, _>>()?;
    if latest.iter().any(|(_, status)| *status != Status::Dead) {
        return Ok(Vec::new());
    }
    let mut revived = Vec::new();
    for (old, _) in latest {
        let Some(found) = candidate(tx, old)? else { continue };
        if found.destination_lives && found.body_is_there {
            let new = heir(old, request, now);
            take_over(tx, &Handover { old, new, cause: "revival", now }, &found)?;
            revived.push(found.destination);
        }
    }
    Ok(revived)
}

/// A new id that needs no dice: the old one and the request that revives it are unique together.
fn heir(old: DeliveryId, request: RequestId, now: Timestamp) -> DeliveryId {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&blob(old));
    seed[16..].copy_from_slice(&blob(request));
    let mut bits = [0; 16];
    bits.copy_from_slice(&fingerprint(&seed)[..16]);
    DeliveryId::new(now, u128::from_be_bytes(bits))
}

const HAS_DEAD: &str =
    "SELECT EXISTS (SELECT 1 FROM deliveries WHERE event_id = ?1 AND state = 'dead')";

/// Whether any delivery of the event is dead.
pub(super) fn has_dead(tx: &Tx<'_, '_>, event: EventId) -> rusqlite::Result<bool> {
    tx.connection.prepare_cached(HAS_DEAD)?.query_row(params![blob(event)], |row| row.get(0))
}
