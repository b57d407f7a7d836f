//! Stores received events: the dedup key decides between a new event and a duplicate, in one
//! transaction.

use rusqlite::{Result, params};
use surehook_core::{
    clock::CLOCK_MARGIN,
    delivery::state::DeliveryStatus,
    event::{NewDelivery, NewEvent},
    quarantine::QuarantineRelease,
    rollup::RollupMetric,
    store::{AdmitResult, DuplicateOf},
};
use surehook_types::{ids::DestinationId, time::Timestamp};
use surehook_webhooks::{
    attribute::EventKind,
    key::{DedupKey, KeyDigest},
};

use super::{
    cache::{DuplicateSightings, KeyEntry, ShortFingerprint},
    counts::Counter,
    delivery_bodies, duplicates, key_index, ordering_queue, prune, quarantine, replay,
    rollups::SubjectSeq,
    row::blob,
    search_terms::EventTerms,
    statuses,
    writer::WriteTransaction,
};

/// Inserts the events of one request in order; called by `IngestStore::admit`.
pub(super) fn insert_events(
    tx: &mut WriteTransaction<'_, '_>,
    events: &[NewEvent],
    terms: &[EventTerms],
) -> Result<Vec<AdmitResult>> {
    let mut admitted = Vec::with_capacity(events.len());
    for (event, terms) in events.iter().zip(terms) {
        admitted.push(insert_unless_duplicate(tx, event, terms)?);
    }
    Ok(admitted)
}

fn insert_unless_duplicate(
    tx: &mut WriteTransaction<'_, '_>,
    event: &NewEvent,
    terms: &EventTerms,
) -> Result<AdmitResult> {
    // Checked first: an event that is not inserted must change nothing.
    let Some(source) = tx.row_numbers.sources.get(&event.source).copied() else {
        return Ok(AdmitResult::SourceGone);
    };
    match event.releases {
        // Another request has released or discarded it in the meantime.
        Some(QuarantineRelease::Request(request)) if !quarantine::remove(tx, request)? => {
            return Err(rusqlite::Error::QueryReturnedNoRows);
        }
        Some(QuarantineRelease::Same(fingerprint)) => {
            quarantine::remove_by_fingerprint(tx, event.source, fingerprint)?;
        }
        Some(QuarantineRelease::Request(_)) | None => {}
    }
    if let Some(duplicate) = event.from_duplicate
        && let Some(event_before) = duplicates::mark_delivered(tx, event, duplicate)?
    {
        return Ok(AdmitResult::DeliveredBefore(event_before));
    }
    if let Some(claim) = &event.key {
        let key = KeyDigest::of(event.source, &claim.key);
        if let Some(mut original) = find_original_event(tx, key, claim.as_of)? {
            // Claimed while the clock was ahead, or under a longer window.
            if original.expires_at > claim.expires_at + CLOCK_MARGIN {
                original.expires_at = claim.expires_at;
                tx.recent_keys.insert(tx.sql, key, original)?;
            }
            return record_duplicate(tx, event, key, original).map(AdmitResult::Duplicate);
        }
        insert_key(tx, key, claim.expires_at, event)?;
    } else {
        tx.counts.add(Counter::NoKey, 1);
        let bucket = tx.counts.rollups.bucket(SubjectSeq::Source(source), event.received_at);
        bucket.add(RollupMetric::NoKey, 1);
    }
    insert_event_row(tx, source, event, terms)?;
    prune::defer_if_passed(tx, event.id, event.received_at)?;
    let mut held = Vec::new();
    for delivery in &event.deliveries {
        if insert_delivery(tx, event, delivery)? {
            held.push(delivery.id);
        }
    }
    if let Some(duplicate) = event.from_duplicate {
        duplicates::record_decisions(tx, event, duplicate)?;
    }
    for body in &event.bodies {
        delivery_bodies::insert(tx, body)?;
    }
    let confirmed = match &event.status_update {
        None => None,
        Some(told) => statuses::apply_update(tx, event.id, told)?,
    };
    Ok(AdmitResult::Accepted { held, confirmed })
}

fn find_original_event(
    tx: &mut WriteTransaction<'_, '_>,
    key: KeyDigest,
    now: Timestamp,
) -> Result<Option<KeyEntry>> {
    if let Some(recent) = tx.recent_keys.find(key, now) {
        return Ok(Some(recent));
    }
    if tx.recent_keys.is_certainly_new(key) {
        return Ok(None);
    }
    match key_index::find_in_index(tx.sql, key)? {
        // An expired key that is not pruned yet makes room for the new one.
        Some(expired) if expired.expires_at <= now => {
            key_index::remove_from_index(tx.sql, key)?;
            Ok(None)
        }
        found => Ok(found),
    }
}

fn insert_key(
    tx: &mut WriteTransaction<'_, '_>,
    key: KeyDigest,
    expires_at: Timestamp,
    event: &NewEvent,
) -> Result<()> {
    let body = ShortFingerprint::of(&event.payload.fingerprint);
    let entry = KeyEntry { event: event.id, body, expires_at };
    tx.recent_keys.insert(tx.sql, key, entry)?;
    tx.cache_key(key, entry);
    Ok(())
}

const INSERT_PAYLOAD: &str = "
    INSERT INTO payloads (path, query, remote, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)";

const INSERT_EVENT: &str = "
    INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint, payload,
                        verified_by, key_from, unrouted, kind, attributes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

fn insert_event_row(
    tx: &mut WriteTransaction<'_, '_>,
    source: i64,
    event: &NewEvent,
    terms: &EventTerms,
) -> Result<()> {
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
        event.intake.verified_by.as_deref(),
        event.intake.key_from.as_deref(),
        event.intake.unrouted,
        event.kind.as_ref().map(EventKind::as_str),
        terms.attributes,
    ])?;
    tx.recent_terms.insert(tx.sql, event.id, terms)?;
    tx.counts.add(Counter::Events, 1);
    let bucket = tx.counts.rollups.bucket(SubjectSeq::Source(source), event.received_at);
    bucket.add(RollupMetric::Accepted, 1);
    Ok(())
}

const INSERT_DELIVERY: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                            lease_token, lease_until, order_key, order_seq, not_before)
    VALUES (?1, ?2, ?3, ?4, 'ingest', ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Inserts a delivery; returns whether the lane's slot is free again, because the delivery is held
/// or was not inserted.
fn insert_delivery(
    tx: &mut WriteTransaction<'_, '_>,
    event: &NewEvent,
    delivery: &NewDelivery,
) -> Result<bool> {
    // The destination was just deleted.
    let Some(destination) = tx.row_numbers.destinations.get(&delivery.destination).copied() else {
        return Ok(true);
    };
    let order_key = delivery.order_key.as_ref().map(DedupKey::as_str);
    let position = match order_key {
        None => None,
        Some(key) => Some(ordering_queue::append(tx, destination, key)?),
    };
    let is_first = position.is_none_or(|position| position.is_first);
    let claim = delivery.claim.filter(|_| is_first);
    // `DeliveryTransition::Hold` or `Claim` at creation: a delivery that a lane has room for is never
    // pending.
    let status = match claim {
        Some(_) => DeliveryStatus::InFlight,
        None if is_first => DeliveryStatus::Pending,
        None => DeliveryStatus::Held,
    };
    let first_at = (event.received_at + delivery.delay).as_millis();
    tx.sql.get(INSERT_DELIVERY)?.execute(params![
        blob(delivery.id),
        blob(event.id),
        destination,
        status.as_str(),
        event.received_at.as_millis(),
        (status == DeliveryStatus::Pending).then_some(first_at),
        claim.map(|lease| lease.token.0),
        claim.map(|lease| lease.until.as_millis()),
        order_key,
        position.map(|position| position.seq),
        (!delivery.delay.is_zero()).then_some(first_at),
    ])?;
    tx.counts.count_move(None, Some(status));
    Ok(status == DeliveryStatus::Held)
}

fn record_duplicate(
    tx: &mut WriteTransaction<'_, '_>,
    event: &NewEvent,
    key: KeyDigest,
    original: KeyEntry,
) -> Result<DuplicateOf> {
    let bytes_differ = original.body != ShortFingerprint::of(&event.payload.fingerprint);
    let body = bytes_differ.then_some(&event.payload.body[..]);
    let seen = DuplicateSightings {
        source: Some(event.source),
        count: 1,
        times: vec![event.received_at],
        last: event.received_at,
    };
    duplicates::record_sightings(tx, original.event, &seen, body)?;
    let revived: Vec<DestinationId> = if event.revive_dead {
        replay::revive_event(tx, original.event, event.request_id, event.received_at)?
    } else {
        Vec::new()
    };
    if !replay::has_dead_delivery(tx, original.event)? {
        tx.cache_key(key, original);
    }
    Ok(DuplicateOf { original: original.event, bytes_differ, revived })
}
