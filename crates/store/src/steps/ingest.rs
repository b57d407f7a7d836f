//! Stores received events: the dedup key decides between a new event and a duplicate, in one
//! transaction.

use surehook_core::{
    clock::CLOCK_MARGIN,
    delivery::state::DeliveryStatus,
    event::{ConflictPolicy, DedupKeyClaim, DuplicateReason, NewDelivery, NewEvent, Payload},
    quarantine::QuarantineRelease,
    rollup::RollupMetric,
    store::{AdmitResult, DuplicateOf},
};
use surehook_types::{
    ids::{DestinationId, EventId},
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::EventKind,
    key::{DedupKey, KeyDigest, KeyOrigin},
};

use super::{
    StepTransaction, callbacks,
    counts::Counter,
    delivery_bodies,
    duplicates::{self, DuplicateSightings},
    event_terms::EventTerms,
    keys::{KeyEntry, ShortFingerprint},
    ordering_queue, quarantine, replay,
    rollups::SubjectSeq,
    row::blob,
    statuses,
};
use crate::sql::{Result, SqlError, params};

/// A transaction that stores events: what each database keeps in its own way.
pub(crate) trait IngestTransaction: StepTransaction {
    /// The event that holds a key, unless the key has expired.
    fn find_key(&mut self, key: KeyDigest, now: Timestamp) -> Result<Option<KeyEntry>>;

    /// Inserts a key, in place of one that has expired and is not pruned yet, that expires later, or
    /// that another body held.
    fn put_key(&mut self, key: KeyDigest, entry: KeyEntry) -> Result<()>;

    /// Adds a key to the cache of known duplicates once the transaction is committed.
    fn cache_key(&mut self, key: KeyDigest, entry: KeyEntry);

    /// Whether there may be keys without a namespace, of earlier versions.
    fn has_keys_from_before_namespaces(&self) -> Result<bool>;

    /// Whether a key without a namespace that this event holds is one of an earlier version.
    fn is_from_before_namespaces(&self, event: EventId) -> Result<bool>;

    /// Stores the request of an event; returns its row number.
    fn insert_payload(&mut self, payload: &Payload) -> Result<i64>;

    /// Stores the search terms of an event.
    fn insert_terms(&mut self, event: EventId, terms: &EventTerms) -> Result<()>;
}

/// Inserts the events of one request in order; called by `IngestStore::admit`.
pub(crate) fn insert_events(
    tx: &mut impl IngestTransaction,
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
    tx: &mut impl IngestTransaction,
    event: &NewEvent,
    terms: &EventTerms,
) -> Result<AdmitResult> {
    // Checked first: an event that is not inserted must change nothing.
    let Some(source) = tx.source_seq(event.source)? else {
        return Ok(AdmitResult::SourceGone);
    };
    if event.refuses_other_body
        && let Some(claim) = &event.key
        && let Some(holder) = tx.find_key(claim.digest(event.source), claim.as_of)?
        && has_other_body(event, holder)
    {
        return Ok(AdmitResult::OtherBody(holder.event));
    }
    match event.releases {
        // Another request has released or discarded it in the meantime.
        Some(QuarantineRelease::Request(request)) if !quarantine::remove(tx, request)? => {
            return Err(SqlError::RowMissing);
        }
        Some(QuarantineRelease::Same(fingerprint)) => {
            quarantine::remove_by_fingerprint(tx, event.source, fingerprint)?;
        }
        Some(QuarantineRelease::Request(_)) | None => {}
    }
    if let Some(duplicate) = event.from_duplicate
        && let Some(earlier_event) = duplicates::mark_delivered(tx, event, duplicate)?
    {
        return Ok(AdmitResult::DeliveredBefore(earlier_event));
    }
    let key = event.key.as_ref().map(|claim| claim.digest(event.source));
    let key_holder = match (&event.key, key) {
        (Some(claim), Some(key)) => find_key_holder(tx, event, key, claim)?,
        _ => KeyHolder::None,
    };
    if let KeyHolder::Original(original) = key_holder {
        return record_duplicate(tx, event, key, original, DuplicateReason::SameKey)
            .map(AdmitResult::Duplicate);
    }
    if let Some(signed) = event.signed_bytes
        && let Some(original) = tx.find_key(signed.digest, signed.window.as_of)?
    {
        let original = limit_expiry(tx, signed.digest, original, signed.window.expires_at)?;
        return record_duplicate(tx, event, None, original, DuplicateReason::SameSignedBytes)
            .map(AdmitResult::Duplicate);
    }
    if let Some(original) = find_by_earlier_key(tx, event)? {
        return record_duplicate(tx, event, None, original, DuplicateReason::SameKey)
            .map(AdmitResult::Duplicate);
    }
    let key_conflict =
        if let KeyHolder::OtherBody(holder) = key_holder { Some(holder) } else { None };
    if let (Some(claim), Some(key)) = (&event.key, key) {
        // The key gets a new entry; the holder stays known by the key together with its body.
        if let Some(holder) = key_conflict {
            tx.put_key(key.with_body(holder.body.to_bytes()), holder)?;
        }
        let entry = insert_key(tx, key, claim.expires_at, event)?;
        tx.cache_key(key, entry);
    } else {
        tx.counts().add(Counter::NoKey, 1);
        let bucket = tx.counts().rollups.bucket(SubjectSeq::Source(source), event.received_at);
        bucket.add(RollupMetric::NoKey, 1);
    }
    if let Some(signed) = event.signed_bytes {
        insert_key(tx, signed.digest, signed.window.expires_at, event)?;
    }
    insert_event_row(tx, source, event, terms)?;
    let key_conflict = key_conflict.map(|holder| holder.event);
    if let Some(holder) = key_conflict {
        insert_key_conflict(tx, source, event, holder)?;
    }
    tx.defer_pruning(event.id, event.received_at)?;
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
        Some(update) => statuses::apply_update(tx, event.id, update)?,
    };
    Ok(AdmitResult::Accepted { held, confirmed, key_conflict })
}

/// The stored event that holds the key of a new one.
enum KeyHolder {
    None,
    /// The new event is a duplicate of this one.
    Original(KeyEntry),
    /// This one has another body, so the new event is accepted with a key conflict.
    OtherBody(KeyEntry),
}

fn find_key_holder(
    tx: &mut impl IngestTransaction,
    event: &NewEvent,
    key: KeyDigest,
    claim: &DedupKeyClaim,
) -> Result<KeyHolder> {
    let Some(holder) = tx.find_key(key, claim.as_of)? else {
        return Ok(KeyHolder::None);
    };
    let Some(on_conflict) = claim.on_conflict.filter(|_| has_other_body(event, holder)) else {
        return limit_expiry(tx, key, holder, claim.expires_at).map(KeyHolder::Original);
    };
    // Each body accepted under the key is known by the key together with its fingerprint: of what the
    // source compares or, if it compared bytes at that time, of the bytes.
    let exact_bytes = event.compared_fingerprint.map(|_| &event.payload.fingerprint);
    for body in [Some(event.compared_fingerprint()), exact_bytes].into_iter().flatten() {
        let with_body = key.with_body(ShortFingerprint::of(body).to_bytes());
        if let Some(original) = tx.find_key(with_body, claim.as_of)? {
            return limit_expiry(tx, with_body, original, claim.expires_at)
                .map(KeyHolder::Original);
        }
    }
    // A body that is answered with success must not be dropped.
    let is_duplicate = on_conflict == ConflictPolicy::Duplicate
        && duplicates::has_room_for_body(tx, holder.event)?;
    if is_duplicate {
        return limit_expiry(tx, key, holder, claim.expires_at).map(KeyHolder::Original);
    }
    Ok(KeyHolder::OtherBody(holder))
}

/// Shortens the life of a key that was claimed while the clock was ahead, or under a longer window.
fn limit_expiry(
    tx: &mut impl IngestTransaction,
    key: KeyDigest,
    mut entry: KeyEntry,
    expires_at: Timestamp,
) -> Result<KeyEntry> {
    if entry.expires_at > expires_at + CLOCK_MARGIN {
        entry.expires_at = expires_at;
        // The old entry must go: it would be back when the new one has expired.
        tx.put_key(key, entry)?;
    }
    Ok(entry)
}

/// Whether a stored event has another body than a new one. The stored fingerprint may be that of the
/// bytes, if the source compared bytes at that time.
pub(crate) fn has_other_body(event: &NewEvent, stored: KeyEntry) -> bool {
    stored.body != ShortFingerprint::of(event.compared_fingerprint())
        && stored.body != ShortFingerprint::of(&event.payload.fingerprint)
}

/// Finds the original by the key that earlier versions gave the event; see [`NewEvent::earlier_key`].
fn find_by_earlier_key(
    tx: &mut impl IngestTransaction,
    event: &NewEvent,
) -> Result<Option<KeyEntry>> {
    let Some(key) = &event.earlier_key else { return Ok(None) };
    if !tx.has_keys_from_before_namespaces()? {
        return Ok(None);
    }
    let as_of = event.key.as_ref().map_or(event.received_at, |claim| claim.as_of);
    let original = tx.find_key(KeyDigest::of(event.source, key), as_of)?;
    Ok(match original {
        Some(original) if tx.is_from_before_namespaces(original.event)? => {
            Some(original).filter(|original| !has_other_body(event, *original))
        }
        Some(_) | None => None,
    })
}

fn insert_key(
    tx: &mut impl IngestTransaction,
    key: KeyDigest,
    expires_at: Timestamp,
    event: &NewEvent,
) -> Result<KeyEntry> {
    let body = ShortFingerprint::of(event.compared_fingerprint());
    let entry = KeyEntry { event: event.id, body, expires_at };
    tx.put_key(key, entry)?;
    Ok(entry)
}

const INSERT_KEY_CONFLICT: &str = "INSERT INTO key_conflicts (event_id, holder) VALUES (?1, ?2)";

fn insert_key_conflict(
    tx: &mut impl IngestTransaction,
    source: i64,
    event: &NewEvent,
    holder: EventId,
) -> Result<()> {
    tx.run_prepared(INSERT_KEY_CONFLICT, params![blob(event.id), blob(holder)])?;
    tx.counts().add(Counter::KeyConflicts, 1);
    let bucket = tx.counts().rollups.bucket(SubjectSeq::Source(source), event.received_at);
    bucket.add(RollupMetric::KeyConflicts, 1);
    Ok(())
}

const INSERT_EVENT: &str = "
    INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint, payload,
                        verified_by, key_from, unrouted, kind, attributes, key_guessed)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

fn insert_event_row(
    tx: &mut impl IngestTransaction,
    source: i64,
    event: &NewEvent,
    terms: &EventTerms,
) -> Result<()> {
    let payload = tx.insert_payload(&event.payload)?;
    tx.run_prepared(
        INSERT_EVENT,
        params![
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
            event.key.as_ref().map(|claim| claim.origin == KeyOrigin::Guessed),
        ],
    )?;
    tx.insert_terms(event.id, terms)?;
    tx.counts().add(Counter::Events, 1);
    let bucket = tx.counts().rollups.bucket(SubjectSeq::Source(source), event.received_at);
    bucket.add(RollupMetric::Accepted, 1);
    Ok(())
}

const INSERT_DELIVERY: &str = "
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                            claim_number, lane_epoch, order_key, order_seq, not_before)
    VALUES (?1, ?2, ?3, ?4, 'ingest', ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Inserts a delivery; returns whether the lane's slot is free again, because the delivery is held, was
/// claimed under an outdated epoch, or was not inserted.
fn insert_delivery(
    tx: &mut impl IngestTransaction,
    event: &NewEvent,
    delivery: &NewDelivery,
) -> Result<bool> {
    // The destination was just deleted.
    let Some(destination) = tx.destination_seq(delivery.destination)? else {
        return Ok(true);
    };
    let order_key = delivery.order_key.as_ref().map(DedupKey::as_str);
    let position = match order_key {
        None => None,
        Some(key) => Some(ordering_queue::append(tx, destination, key)?),
    };
    let is_first = position.is_none_or(|position| position.is_first);
    let claim = match delivery.claim.filter(|_| is_first) {
        Some(proof) if tx.is_current_epoch(destination, proof.epoch)? => Some(proof),
        Some(_) | None => None,
    };
    // `DeliveryTransition::Hold` or `Claim` at creation: a delivery that a lane has room for is never
    // pending.
    let status = match claim {
        Some(_) => DeliveryStatus::InFlight,
        None if is_first => DeliveryStatus::Pending,
        None => DeliveryStatus::Held,
    };
    let first_attempt_at = (event.received_at + delivery.delay).as_millis();
    tx.run_prepared(
        INSERT_DELIVERY,
        params![
            blob(delivery.id),
            blob(event.id),
            destination,
            status.as_str(),
            event.received_at.as_millis(),
            (status == DeliveryStatus::Pending).then_some(first_attempt_at),
            claim.map(|proof| proof.number),
            claim.map(|proof| proof.epoch.0),
            order_key,
            position.map(|position| position.seq),
            (!delivery.delay.is_zero()).then_some(first_attempt_at),
        ],
    )?;
    if let Some(callback) = &delivery.callback {
        callbacks::insert(tx, delivery.id, callback)?;
    }
    tx.counts().count_move(None, Some(status));
    Ok(status == DeliveryStatus::Held || (delivery.claim.is_some() && claim.is_none()))
}

/// Records a sighting of the original. `key` is the key that the event claimed, if that made it a
/// duplicate.
fn record_duplicate(
    tx: &mut impl IngestTransaction,
    event: &NewEvent,
    key: Option<KeyDigest>,
    original: KeyEntry,
    reason: DuplicateReason,
) -> Result<DuplicateOf> {
    let bytes_differ = has_other_body(event, original);
    let body = bytes_differ.then_some(&event.payload.body[..]);
    let sighting = DuplicateSightings {
        reason,
        source: Some(event.source),
        count: 1,
        times: vec![event.received_at],
        last: event.received_at,
    };
    duplicates::record_sightings(tx, original.event, &sighting, body)?;
    let revived: Vec<DestinationId> = if event.revive_dead {
        replay::revive_event(tx, original.event, event.request_id, event.received_at)?
    } else {
        Vec::new()
    };
    if let Some(key) = key
        && !replay::has_dead_delivery(tx, original.event)?
    {
        tx.cache_key(key, original);
    }
    Ok(DuplicateOf { original: original.event, reason, bytes_differ, revived })
}
