//! Taking events in: the key decides, and what it decides is written in the same transaction.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};
use surehook_core::{
    attribute::EventKind,
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    ids::{DestinationId, EventId, SourceId},
    key::{DedupKey, KeyDigest},
    quarantine::QuarantineRelease,
    rollup::RollupMetric,
    store::{AdmitResult, DuplicateOf},
    time::Timestamp,
};

use super::{
    blocks, bodies, copies,
    counts::Sum,
    line,
    memory::{BodyMark, Remembered, Sighting},
    prune, quarantine, replay,
    rollups::Subject,
    row::blob,
    statuses,
    terms::About,
    writer::Tx,
};

/// Sightings of one event that are kept as rows; the counter goes on.
const SIGHTINGS_KEPT: u64 = 100;

/// Admits the events of one request, in order.
pub(super) fn admit(
    tx: &mut Tx<'_, '_>,
    events: &[NewEvent],
    about: &[About],
) -> rusqlite::Result<Vec<AdmitResult>> {
    let mut admitted = Vec::with_capacity(events.len());
    for (event, about) in events.iter().zip(about) {
        admitted.push(admit_one(tx, event, about)?);
    }
    Ok(admitted)
}

fn admit_one(
    tx: &mut Tx<'_, '_>,
    event: &NewEvent,
    about: &About,
) -> rusqlite::Result<AdmitResult> {
    // First of all: what is not admitted stays where it is.
    let Some(source) = tx.names.sources.get(&event.source).copied() else {
        return Ok(AdmitResult::SourceGone);
    };
    match event.releases {
        // Somebody else released or discarded it.
        Some(QuarantineRelease::Request(request)) if !quarantine::take_out(tx, request)? => {
            return Err(rusqlite::Error::QueryReturnedNoRows);
        }
        Some(QuarantineRelease::Same(fingerprint)) => {
            quarantine::take_out_same(tx, event.source, fingerprint)?;
        }
        Some(QuarantineRelease::Request(_)) | None => {}
    }
    if let Some(copy) = event.copy_of
        && let Some(before) = copies::take(tx, event, copy)?
    {
        return Ok(AdmitResult::DeliveredBefore(before));
    }
    if let Some(claim) = &event.key {
        let key = KeyDigest::of(event.source, &claim.key);
        if let Some(original) = find_original(tx, key, event.received_at)? {
            return duplicate_of(tx, event, key, original).map(AdmitResult::Duplicate);
        }
        insert_key(tx, key, claim.expires_at, event)?;
    } else {
        tx.delta.add(Sum::NoKey, 1);
        tx.delta
            .facts
            .tally(Subject::Source(source), event.received_at)
            .add(RollupMetric::NoKey, 1);
    }
    insert_event(tx, source, event, about)?;
    prune::look_later_if_passed(tx, event.id, event.received_at)?;
    let mut held = Vec::new();
    for delivery in &event.deliveries {
        let gives_back = match &delivery.order_key {
            None => insert_delivery(tx, event, delivery)?,
            Some(key) => insert_ordered(tx, event, delivery, key)?,
        };
        if gives_back {
            held.push(delivery.id);
        }
    }
    if let Some(copy) = event.copy_of {
        copies::note(tx, event, copy)?;
    }
    for body in &event.bodies {
        bodies::insert(tx, body)?;
    }
    let confirmed = match &event.confirms {
        None => None,
        Some(told) => statuses::hear(tx, event.id, told)?,
    };
    Ok(AdmitResult::Accepted { held, confirmed })
}

/// The event that holds a key.
fn find_original(
    tx: &mut Tx<'_, '_>,
    key: KeyDigest,
    now: Timestamp,
) -> rusqlite::Result<Option<Remembered>> {
    if let Some(fresh) = tx.fresh.find(key, now) {
        return Ok(Some(fresh));
    }
    if tx.fresh.is_new(key) {
        return Ok(None);
    }
    match blocks::find(tx.sql, key)? {
        // Its time has passed and retention has not been here yet: it makes room for the new one.
        Some(past) if past.expires_at <= now => {
            blocks::remove(tx.sql, key)?;
            Ok(None)
        }
        found => Ok(found),
    }
}

fn insert_key(
    tx: &mut Tx<'_, '_>,
    key: KeyDigest,
    expires_at: Timestamp,
    event: &NewEvent,
) -> rusqlite::Result<()> {
    let body = BodyMark::of(&event.payload.fingerprint);
    let known = Remembered { event: event.id, body, expires_at };
    tx.fresh.insert(tx.sql, key, known)?;
    tx.remember(key, known);
    Ok(())
}

const INSERT_PAYLOAD: &str = "
    INSERT INTO payloads (path, query, remote, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)";

const INSERT_EVENT: &str = "
    INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint, payload,
                        verified_by, key_from, unrouted, kind, attributes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

fn insert_event(
    tx: &mut Tx<'_, '_>,
    source: i64,
    event: &NewEvent,
    about: &About,
) -> rusqlite::Result<()> {
    let head = &event.payload.head;
    let payload = tx.sql.get(INSERT_PAYLOAD)?.insert(params![
        head.path,
        head.query,
        head.remote,
        head.headers.as_bytes(),
        &event.payload.body[..],
    ])?;
    tx.sql.get(INSERT_EVENT)?.execute(params![
        blob(event.id),
        blob(event.request_id),
        source,
        event.key.as_ref().map(|claim| claim.key.as_str()),
        event.received_at.as_millis(),
        event.payload.body.len(),
        event.payload.fingerprint,
        payload,
        event.decided.verified_by.as_deref(),
        event.decided.key_from.as_deref(),
        event.decided.unrouted,
        event.kind.as_ref().map(EventKind::as_str),
        about.attributes,
    ])?;
    tx.terms.insert(tx.sql, event.id, about)?;
    tx.delta.add(Sum::Events, 1);
    tx.delta.facts.tally(Subject::Source(source), event.received_at).add(RollupMetric::Accepted, 1);
    Ok(())
}

const INSERT_DELIVERY: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                            lease_token, lease_until, not_before)
    VALUES (?1, ?2, ?3, ?4, 'ingest', ?5, ?6, ?7, ?8, ?9)";

/// Writes a delivery; says whether it gives its place back: it is held, or owed no more.
fn insert_delivery(
    tx: &mut Tx<'_, '_>,
    event: &NewEvent,
    delivery: &NewDelivery,
) -> rusqlite::Result<bool> {
    // A destination that was removed a moment ago is owed nothing.
    let Some(destination) = tx.names.destinations.get(&delivery.destination) else {
        return Ok(true);
    };
    let status =
        if delivery.claim.is_some() { DeliveryStatus::InFlight } else { DeliveryStatus::Pending };
    let first_at = (event.received_at + delivery.delay).as_millis();
    let due_at = delivery.claim.is_none().then_some(first_at);
    // Input::Claim, within the birth: what a lane has room for never waits in the file.
    tx.sql.get(INSERT_DELIVERY)?.execute(params![
        blob(delivery.id),
        blob(event.id),
        destination,
        status.as_str(),
        event.received_at.as_millis(),
        due_at,
        delivery.claim.map(|lease| lease.token.0),
        delivery.claim.map(|lease| lease.until.as_millis()),
        (!delivery.delay.is_zero()).then_some(first_at),
    ])?;
    tx.delta.moved(None, Some(status));
    Ok(false)
}

const INSERT_ORDERED: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                            lease_token, lease_until, order_key, order_seq, not_before)
    VALUES (?1, ?2, ?3, ?4, 'ingest', ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// The same for a delivery with an ordering key.
fn insert_ordered(
    tx: &mut Tx<'_, '_>,
    event: &NewEvent,
    delivery: &NewDelivery,
    key: &DedupKey,
) -> rusqlite::Result<bool> {
    let Some(destination) = tx.names.destinations.get(&delivery.destination).copied() else {
        return Ok(true);
    };
    let place = line::join(tx, destination, key.as_str())?;
    let claim = delivery.claim.filter(|_| place.is_first);
    // Input::Hold or Input::Claim, within the birth.
    let status = match claim {
        Some(_) => DeliveryStatus::InFlight,
        None if place.is_first => DeliveryStatus::Pending,
        None => DeliveryStatus::Held,
    };
    let first_at = (event.received_at + delivery.delay).as_millis();
    tx.sql.get(INSERT_ORDERED)?.execute(params![
        blob(delivery.id),
        blob(event.id),
        destination,
        status.as_str(),
        event.received_at.as_millis(),
        (status == DeliveryStatus::Pending).then_some(first_at),
        claim.map(|lease| lease.token.0),
        claim.map(|lease| lease.until.as_millis()),
        key.as_str(),
        place.seq,
        (!delivery.delay.is_zero()).then_some(first_at),
    ])?;
    tx.delta.moved(None, Some(status));
    Ok(status == DeliveryStatus::Held)
}

fn duplicate_of(
    tx: &mut Tx<'_, '_>,
    event: &NewEvent,
    key: KeyDigest,
    original: Remembered,
) -> rusqlite::Result<DuplicateOf> {
    let bytes_differ = original.body != BodyMark::of(&event.payload.fingerprint);
    let body = bytes_differ.then_some(&event.payload.body[..]);
    let seen = Sighting {
        source: Some(event.source),
        count: 1,
        times: vec![event.received_at],
        last: event.received_at,
    };
    record_sightings(tx, original.event, &seen, body)?;
    let revived: Vec<DestinationId> = if event.revive_dead {
        replay::revive(tx, original.event, event.request_id, event.received_at)?
    } else {
        Vec::new()
    };
    if !replay::has_dead(tx, original.event)? {
        tx.remember(key, original);
    }
    Ok(DuplicateOf { original: original.event, bytes_differ, revived })
}

const COUNT_SIGHTINGS: &str = "
    UPDATE events
       SET duplicates = duplicates + ?2,
           last_duplicate_at = max(coalesce(last_duplicate_at, ?3), ?3)
     WHERE id = ?1 RETURNING duplicates, payload IS NULL";

const INSERT_SIGHTING: &str = "
    INSERT INTO duplicates (event_id, seen_at, body, body_removed) VALUES (?1, ?2, ?3, ?4)";

/// Counts sightings and keeps the times of the first ones; `body` belongs to the first.
///
/// Those that memory answered are written later than they were seen, and perhaps after others.
fn record_sightings(
    tx: &mut Tx<'_, '_>,
    event: EventId,
    seen: &Sighting,
    body: Option<&[u8]>,
) -> rusqlite::Result<()> {
    tx.delta.add(Sum::Duplicates, i64::try_from(seen.count).unwrap_or(i64::MAX));
    if let Some(source) = seen.source.map_or(Ok(None), |source| source_seq(tx, source))? {
        let tally = tx.delta.facts.tally(Subject::Source(source), seen.last);
        tally.add(RollupMetric::Duplicates, seen.count);
    }
    let counted: Option<(u64, bool)> = tx
        .connection
        .prepare_cached(COUNT_SIGHTINGS)?
        .query_row(params![blob(event), seen.count, seen.last.as_millis()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    // The event itself may be past its retention while its key is not.
    let Some((total, body_is_gone)) = counted else { return Ok(()) };
    if total <= SIGHTINGS_KEPT || (body.is_some() && differing_kept(tx, event)? < SIGHTINGS_KEPT) {
        for (index, seen_at) in seen.times.iter().enumerate() {
            let body = body.filter(|_| index == 0);
            // With the original's body gone, that of a copy must not outlive it.
            tx.connection.prepare_cached(INSERT_SIGHTING)?.execute(params![
                blob(event),
                seen_at.as_millis(),
                body.filter(|_| !body_is_gone),
                body.is_some() && body_is_gone,
            ])?;
        }
    }
    Ok(())
}

/// The row number of a source that may have been deleted since.
fn source_seq(tx: &Tx<'_, '_>, source: SourceId) -> rusqlite::Result<Option<i64>> {
    if let Some(seq) = tx.names.sources.get(&source) {
        return Ok(Some(*seq));
    }
    tx.connection
        .prepare_cached("SELECT seq FROM sources WHERE id = ?1")?
        .query_row(params![blob(source)], |row| row.get(0))
        .optional()
}

const DIFFERING_KEPT: &str = "
    SELECT count(*) FROM duplicates WHERE event_id = ?1 AND (body IS NOT NULL OR body_removed)";

/// Many harmless repeats must not hide one that differs.
fn differing_kept(tx: &Tx<'_, '_>, event: EventId) -> rusqlite::Result<u64> {
    tx.connection.prepare_cached(DIFFERING_KEPT)?.query_row(params![blob(event)], |row| row.get(0))
}

/// Writes the sightings that memory has answered since the last time.
pub(super) fn write_sightings(
    tx: &mut Tx<'_, '_>,
    sightings: &HashMap<EventId, Sighting>,
) -> rusqlite::Result<()> {
    for (event, sighting) in sightings {
        record_sightings(tx, *event, sighting, None)?;
    }
    Ok(())
}
