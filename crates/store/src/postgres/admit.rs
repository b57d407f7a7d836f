//! Stores the events of many requests in one transaction, with a handful of statements.
//!
//! This is for the common case: new events and plain duplicates, without ordering keys. It runs beside
//! other such transactions, of this node and of others: the index of the keys decides which event is new.
//! What needs more is left undecided, and the steps of [`crate::steps::ingest`] decide it alone.
//!
//! Sources, destinations and owners of lanes do not change meanwhile: what changes them waits for the
//! shared lock of this transaction.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use surehook_core::{
    clock::CLOCK_MARGIN,
    delivery::state::DeliveryStatus,
    event::{DuplicateReason, NewDelivery, NewEvent},
    quarantine::QuarantineRelease,
    rollup::RollupMetric,
    store::{AdmitResult, DuplicateOf},
};
use surehook_types::{
    ids::{DeliveryId, EventId},
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{EventKind, SearchTerm},
    key::{KeyDigest, KeyOrigin},
};
use tokio::runtime::Handle;
use tokio_postgres::types::Type;

use super::{
    committer::QueuedJob,
    connection::PgConnection,
    pool::{Access, Pool},
    transaction::{self, read_key},
    writer::try_until_decided,
};
use crate::{
    sql::{Result, SqlRow},
    steps::{
        configure::{self, RowNumbers},
        counts::{CountChanges, Counter},
        duplicates::SIGHTING_ROWS_MAX,
        event_terms::EventTerms,
        ingest::has_other_body,
        keys::{KeyEntry, ShortFingerprint},
        rollups::SubjectSeq,
        row::{blob, id},
    },
};

/// Requests in one transaction.
pub(super) const BATCH_MAX: usize = 128;
/// Requests with more bytes are stored alone.
const BYTES_MAX: usize = 256 * 1024;

/// The events of one request.
pub(super) struct AdmitRequest {
    pub(super) events: Arc<[NewEvent]>,
    pub(super) terms: Arc<[EventTerms]>,
}

/// The results of a request; `None` if the steps must decide.
pub(super) type AdmitDecision = Option<Vec<AdmitResult>>;

/// Whether a request can be stored together with others.
pub(super) fn is_plain(events: &[NewEvent]) -> bool {
    let bytes: usize = events.iter().map(|event| event.payload.body.len()).sum();
    bytes <= BYTES_MAX && events.iter().all(is_plain_event)
}

fn is_plain_event(event: &NewEvent) -> bool {
    let is_plain_delivery =
        |delivery: &NewDelivery| delivery.order_key.is_none() && delivery.callback.is_none();
    event.from_duplicate.is_none()
        && event.earlier_key.is_none()
        && event.status_update.is_none()
        && event.bodies.is_empty()
        && !matches!(event.releases, Some(QuarantineRelease::Request(_)))
        && event.deliveries.iter().all(is_plain_delivery)
}

/// What the workers share.
pub(super) struct AdmitState {
    pub(super) pool: Pool,
    pub(super) handle: Handle,
    /// Row numbers with the version of the configuration for which they were read.
    numbers: Mutex<Option<(u64, Arc<RowNumbers>)>>,
}

impl AdmitState {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, handle: Handle::current(), numbers: Mutex::default() }
    }

    /// The row numbers as of this transaction.
    pub(super) fn row_numbers(&self, connection: &PgConnection<'_>) -> Result<Arc<RowNumbers>> {
        let version = connection.configuration_version;
        let mut known = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known_version, numbers)) = &*known
            && *known_version == version
        {
            return Ok(Arc::clone(numbers));
        }
        let numbers = Arc::new(configure::load_row_numbers(connection)?);
        *known = Some((version, Arc::clone(&numbers)));
        Ok(numbers)
    }
}

/// Decides the requests of a batch and answers them.
pub(super) fn run_batch(state: &AdmitState, jobs: Vec<QueuedJob<AdmitRequest, AdmitDecision>>) {
    let decided = try_until_decided(|| {
        let work = |connection: PgConnection<'_>| {
            let requests: Vec<&AdmitRequest> = jobs.iter().map(|job| &job.job).collect();
            let numbers = state.row_numbers(&connection)?;
            let (decisions, counts) = AdmitBatch::new(&requests, &numbers).run(&connection)?;
            transaction::write_counts(&connection, &counts)?;
            Ok(decisions)
        };
        state.pool.transact(&state.handle, Access::Write, work)
    });
    match decided {
        Ok(decisions) => {
            for (job, decision) in jobs.into_iter().zip(decisions) {
                job.answer(Ok(decision));
            }
        }
        // One of the requests is refused by the database: each is stored alone.
        Err(error) if error.is_of_a_statement() => {
            for job in jobs {
                job.answer(Ok(None));
            }
        }
        Err(error) => {
            let error = StoreError::from(error);
            for job in jobs {
                job.answer(Err(error.clone()));
            }
        }
    }
}

/// A key that an event claims.
#[derive(Clone, Copy)]
struct KeyToClaim {
    digest: KeyDigest,
    expires_at: Timestamp,
    as_of: Timestamp,
    reason: DuplicateReason,
}

/// An event of the batch.
struct Candidate<'a> {
    /// Position of its request, and its own in the request.
    request: usize,
    event: &'a NewEvent,
    terms: &'a EventTerms,
    /// Row number; `None` if the source was deleted.
    source: Option<i64>,
    keys: Vec<KeyToClaim>,
    outcome: CandidateOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CandidateOutcome {
    Accepted,
    SourceGone,
    Duplicate { original: EventId, reason: DuplicateReason },
    Undecided,
}

struct AdmitBatch<'a> {
    requests: usize,
    numbers: &'a RowNumbers,
    candidates: Vec<Candidate<'a>>,
    counts: CountChanges,
}

fn keys_of(event: &NewEvent) -> Vec<KeyToClaim> {
    let key = event.key.as_ref().map(|claim| KeyToClaim {
        digest: claim.digest(event.source),
        expires_at: claim.expires_at,
        as_of: claim.as_of,
        reason: DuplicateReason::SameKey,
    });
    let signed = event.signed_bytes.map(|signed| KeyToClaim {
        digest: signed.digest,
        expires_at: signed.window.expires_at,
        as_of: signed.window.as_of,
        reason: DuplicateReason::SameSignedBytes,
    });
    [key, signed].into_iter().flatten().collect()
}

const CLAIM_KEYS: &str = "
    INSERT INTO keys (digest, event_id, body, expires_at)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[]) ORDER BY 1
    ON CONFLICT (digest) DO NOTHING RETURNING digest, event_id";

// A new statement sees the rows for which the one before waited. Not EXISTS: its plan could read the whole
// table once, which a plan that is kept would do again when it is large.
const FIND_HOLDERS: &str = "
    SELECT k.digest, k.event_id, k.body, k.expires_at,
           coalesce((SELECT TRUE FROM deliveries d
                      WHERE d.event_id = k.event_id AND d.state = 'dead' LIMIT 1), FALSE)
      FROM keys k WHERE k.digest = ANY ($1::bytea[])";

const RETURN_KEYS: &str = "
    DELETE FROM keys k USING unnest($1::bytea[], $2::bytea[]) AS u (digest, event_id)
     WHERE k.digest = u.digest AND k.event_id = u.event_id";

const REMOVE_QUARANTINED: &str = "
    DELETE FROM quarantine q USING unnest($1::bytea[], $2::bytea[]) AS u (source_id, fingerprint)
     WHERE q.source_id = u.source_id AND q.fingerprint = u.fingerprint";

// Events with their bodies, search terms and deliveries. `inserted` is `DeliveryTransition::Claim` at
// creation, if the lane still has the owner that claims it.
const INSERT_EVENTS: &str = "
    WITH e AS MATERIALIZED (
        SELECT u.*, nextval('payloads_seq_seq') AS payload
          FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[],
                      $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
                      $12::smallint[], $13::text[], $14::text[], $15::text[], $16::bytea[],
                      $17::bytea[])
            AS u (id, request_id, source, key, received_at, fingerprint, verified_by, key_from,
                  unrouted, kind, attributes, key_guessed, path, query, remote, headers, body)
    ), p AS (
        INSERT INTO payloads (seq, path, query, remote, headers, body)
        SELECT payload, path, query, remote, headers, body FROM e
    ), passed AS (
        INSERT INTO prune_later (event_id, look_at)
        SELECT e.id, e.received_at FROM e
         WHERE e.id <= (SELECT event_id FROM prune_cursors ORDER BY event_id DESC LIMIT 1)
        ON CONFLICT (event_id) DO UPDATE SET look_at = excluded.look_at
    ), stored AS (
        INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint, payload,
                            verified_by, key_from, unrouted, kind, attributes, key_guessed)
        SELECT id, request_id, source, key, received_at, length(body), fingerprint, payload,
               verified_by, key_from, unrouted, kind, attributes, key_guessed FROM e
    ), searchable AS (
        INSERT INTO terms (term, event_id) SELECT * FROM unnest($18::bytea[], $19::bytea[])
        ON CONFLICT (term, event_id) DO NOTHING
    ), inserted AS (
        INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                                claim_number, lane_epoch, not_before)
        SELECT u.id, u.event_id, u.destination,
               CASE WHEN l.epoch IS NULL THEN 'pending' ELSE 'in_flight' END, 'ingest', u.created_at,
               CASE WHEN l.epoch IS NULL THEN u.due_at END,
               CASE WHEN l.epoch IS NOT NULL THEN u.number END, l.epoch, u.not_before
          FROM unnest($20::bytea[], $21::bytea[], $22::bigint[], $23::bigint[], $24::bigint[],
                      $25::bigint[], $26::bigint[], $27::bigint[])
            AS u (id, event_id, destination, created_at, due_at, not_before, number, epoch)
          LEFT JOIN lane_owners l
            ON l.destination = u.destination AND l.epoch = u.epoch AND l.node IS NOT NULL
        RETURNING id, destination, due_at, lane_epoch, shard
    ), waiting AS (
        INSERT INTO due (destination, due_at, delivery_id, shard)
        SELECT destination, due_at, id, shard FROM inserted WHERE due_at IS NOT NULL
    ), claimed AS (
        INSERT INTO in_flight (destination, delivery_id, lane_epoch, shard)
        SELECT destination, id, lane_epoch, shard FROM inserted WHERE lane_epoch IS NOT NULL
    )
    SELECT id, lane_epoch IS NOT NULL FROM inserted";

// The rows are locked in the order of their ids, so that two batches cannot deadlock.
const COUNT_DUPLICATES: &str = "
    WITH locked AS MATERIALIZED (
        SELECT id FROM events WHERE id = ANY ($1::bytea[]) ORDER BY id FOR UPDATE
    )
    UPDATE events e
       SET duplicates = e.duplicates + u.seen,
           last_duplicate_at = CASE WHEN e.last_duplicate_at > u.last THEN e.last_duplicate_at
                                    ELSE u.last END
      FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS u (id, seen, last)
     WHERE e.id = u.id AND (SELECT count(*) FROM locked) >= 0
    RETURNING e.id, e.duplicates";

const INSERT_SIGHTINGS: &str = "
    INSERT INTO duplicates (event_id, seen_at, reason)
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[])";

impl<'a> AdmitBatch<'a> {
    fn new(requests: &[&'a AdmitRequest], numbers: &'a RowNumbers) -> Self {
        let mut candidates = Vec::new();
        for (request, AdmitRequest { events, terms }) in requests.iter().enumerate() {
            for (event, terms) in events.iter().zip(&**terms) {
                let source = numbers.sources.get(&event.source).copied();
                let outcome =
                    source.map_or(CandidateOutcome::SourceGone, |_| CandidateOutcome::Accepted);
                let keys = if source.is_some() { keys_of(event) } else { Vec::new() };
                candidates.push(Candidate { request, event, terms, source, keys, outcome });
            }
        }
        Self { requests: requests.len(), numbers, candidates, counts: CountChanges::default() }
    }

    fn run(mut self, connection: &PgConnection<'_>) -> Result<(Vec<AdmitDecision>, CountChanges)> {
        self.claim_keys(connection)?;
        self.remove_quarantined(connection)?;
        let claimed = self.insert_events(connection)?;
        self.record_duplicates(connection)?;
        let mut decisions: Vec<AdmitDecision> = vec![Some(Vec::new()); self.requests];
        for candidate in &self.candidates {
            let result = match candidate.outcome {
                CandidateOutcome::Accepted => {
                    let is_held = |delivery: &&NewDelivery| {
                        !claimed.contains(&delivery.id) && delivery.claim.is_some()
                            || !self.numbers.destinations.contains_key(&delivery.destination)
                    };
                    let held = candidate.event.deliveries.iter().filter(is_held);
                    let held = held.map(|delivery| delivery.id).collect();
                    Some(AdmitResult::Accepted { held, confirmed: None, key_conflict: None })
                }
                CandidateOutcome::SourceGone => Some(AdmitResult::SourceGone),
                CandidateOutcome::Duplicate { original, reason } => {
                    Some(AdmitResult::Duplicate(DuplicateOf {
                        original,
                        reason,
                        bytes_differ: false,
                        revived: Vec::new(),
                    }))
                }
                CandidateOutcome::Undecided => None,
            };
            let decision = &mut decisions[candidate.request];
            match (result, &mut *decision) {
                (Some(result), Some(results)) => results.push(result),
                (None, _) | (_, None) => *decision = None,
            }
        }
        Ok((decisions, self.counts))
    }

    /// Claims the keys of all events, and decides the events that did not get theirs.
    fn claim_keys(&mut self, connection: &PgConnection<'_>) -> Result<()> {
        let mut claims: Vec<(KeyDigest, &NewEvent, Timestamp)> = Vec::new();
        for candidate in &self.candidates {
            let of_event = |key: &KeyToClaim| (key.digest, candidate.event, key.expires_at);
            claims.extend(candidate.keys.iter().map(of_event));
        }
        if claims.is_empty() {
            return Ok(());
        }
        claims.sort_by_key(|(digest, ..)| *digest);
        let digests: Vec<[u8; 16]> = claims.iter().map(|claim| claim.0.to_bytes()).collect();
        let events: Vec<[u8; 16]> = claims.iter().map(|claim| blob(claim.1.id)).collect();
        let bodies: Vec<[u8; 8]> =
            claims.iter().map(|claim| short_fingerprint(claim.1).to_bytes()).collect();
        let expiries: Vec<i64> = claims.iter().map(|claim| claim.2.as_millis()).collect();
        let (digests, events, bodies) = (slices(&digests), slices(&events), slices(&bodies));
        let rows = connection.query_arrays(
            CLAIM_KEYS,
            &[
                (&digests, Type::BYTEA_ARRAY),
                (&events, Type::BYTEA_ARRAY),
                (&bodies, Type::BYTEA_ARRAY),
                (&expiries, Type::INT8_ARRAY),
            ],
        )?;
        let mut won: HashSet<(KeyDigest, EventId)> = HashSet::with_capacity(rows.len());
        for row in &rows {
            let row: &dyn SqlRow = row;
            won.insert((KeyDigest::from_bytes(row.get(0)?), id(row, 1)?));
        }
        if won.len() == claims.len() {
            return Ok(());
        }
        self.decide_losers(connection, &won)
    }

    fn decide_losers(
        &mut self,
        connection: &PgConnection<'_>,
        won: &HashSet<(KeyDigest, EventId)>,
    ) -> Result<()> {
        let is_lost = |candidate: &Candidate<'_>, key: &KeyToClaim| {
            !won.contains(&(key.digest, candidate.event.id))
        };
        let lost: Vec<[u8; 16]> = self
            .candidates
            .iter()
            .flat_map(|candidate| candidate.keys.iter().filter(move |key| is_lost(candidate, key)))
            .map(|key| key.digest.to_bytes())
            .collect();
        let holders = find_holders(connection, &lost)?;
        for candidate in &mut self.candidates {
            let first_lost = candidate.keys.iter().find(|key| is_lost(candidate, key)).copied();
            if let Some(key) = first_lost {
                candidate.outcome =
                    holders.get(&key.digest).map_or(CandidateOutcome::Undecided, |holder| {
                        holder.decide(candidate.event, key)
                    });
            }
        }
        self.spread_undecided();
        self.return_keys(connection, won)
    }

    /// A request with an undecided event is undecided, and so is each duplicate of its events.
    fn spread_undecided(&mut self) {
        loop {
            let undecided: HashSet<usize> = self
                .candidates
                .iter()
                .filter(|candidate| candidate.outcome == CandidateOutcome::Undecided)
                .map(|candidate| candidate.request)
                .collect();
            let events: HashSet<EventId> = self
                .candidates
                .iter()
                .filter(|candidate| undecided.contains(&candidate.request))
                .map(|candidate| candidate.event.id)
                .collect();
            let mut has_changed = false;
            for candidate in &mut self.candidates {
                let is_undecided = undecided.contains(&candidate.request)
                    || matches!(candidate.outcome, CandidateOutcome::Duplicate { original, .. } if events.contains(&original));
                if is_undecided && candidate.outcome != CandidateOutcome::Undecided {
                    candidate.outcome = CandidateOutcome::Undecided;
                    has_changed = true;
                }
            }
            if !has_changed {
                return;
            }
        }
    }

    /// Removes the keys that events got that are not accepted here.
    fn return_keys(
        &self,
        connection: &PgConnection<'_>,
        won: &HashSet<(KeyDigest, EventId)>,
    ) -> Result<()> {
        let (mut digests, mut events) = (Vec::new(), Vec::new());
        for candidate in
            self.candidates.iter().filter(|other| other.outcome != CandidateOutcome::Accepted)
        {
            for key in &candidate.keys {
                if won.contains(&(key.digest, candidate.event.id)) {
                    digests.push(key.digest.to_bytes());
                    events.push(blob(candidate.event.id));
                }
            }
        }
        if digests.is_empty() {
            return Ok(());
        }
        let (digests, events) = (slices(&digests), slices(&events));
        connection.query_arrays(
            RETURN_KEYS,
            &[(&digests, Type::BYTEA_ARRAY), (&events, Type::BYTEA_ARRAY)],
        )?;
        Ok(())
    }

    fn remove_quarantined(&self, connection: &PgConnection<'_>) -> Result<()> {
        let (mut sources, mut fingerprints) = (Vec::new(), Vec::new());
        for candidate in &self.candidates {
            if let Some(QuarantineRelease::Same(fingerprint)) = candidate.event.releases
                && matches!(
                    candidate.outcome,
                    CandidateOutcome::Accepted | CandidateOutcome::Duplicate { .. }
                )
            {
                sources.push(blob(candidate.event.source));
                fingerprints.push(fingerprint);
            }
        }
        if sources.is_empty() {
            return Ok(());
        }
        let (sources, fingerprints) = (slices(&sources), slices(&fingerprints));
        connection.query_arrays(
            REMOVE_QUARANTINED,
            &[(&sources, Type::BYTEA_ARRAY), (&fingerprints, Type::BYTEA_ARRAY)],
        )?;
        Ok(())
    }

    /// Inserts all accepted events with their deliveries; returns which of these are claimed.
    fn insert_events(&mut self, connection: &PgConnection<'_>) -> Result<HashSet<DeliveryId>> {
        let accepted: Vec<&Candidate<'_>> = self
            .candidates
            .iter()
            .filter(|candidate| candidate.outcome == CandidateOutcome::Accepted)
            .collect();
        if accepted.is_empty() {
            return Ok(HashSet::new());
        }
        for candidate in &accepted {
            count_accepted(&mut self.counts, candidate);
        }
        let events: Vec<&NewEvent> = accepted.iter().map(|candidate| candidate.event).collect();
        let ids: Vec<[u8; 16]> = events.iter().map(|event| blob(event.id)).collect();
        let requests: Vec<[u8; 16]> = events.iter().map(|event| blob(event.request_id)).collect();
        let sources: Vec<Option<i64>> = accepted.iter().map(|candidate| candidate.source).collect();
        let keys: Vec<Option<&str>> =
            events.iter().map(|event| event.key.as_ref().map(|claim| claim.key.as_str())).collect();
        let times: Vec<i64> = events.iter().map(|event| event.received_at.as_millis()).collect();
        let fingerprints: Vec<&[u8]> =
            events.iter().map(|event| &event.payload.fingerprint[..]).collect();
        let verified: Vec<Option<&str>> =
            events.iter().map(|event| event.intake.verified_by.as_deref()).collect();
        let key_from: Vec<Option<&str>> =
            events.iter().map(|event| event.intake.key_from.as_deref()).collect();
        let unrouted: Vec<Option<&str>> =
            events.iter().map(|event| event.intake.unrouted.as_deref()).collect();
        let kinds: Vec<Option<&str>> =
            events.iter().map(|event| event.kind.as_ref().map(EventKind::as_str)).collect();
        let attributes: Vec<Option<&str>> =
            accepted.iter().map(|candidate| candidate.terms.attributes.as_deref()).collect();
        let is_guess = |event: &&NewEvent| {
            event.key.as_ref().map(|claim| i16::from(claim.origin == KeyOrigin::Guessed))
        };
        let guessed: Vec<Option<i16>> = events.iter().map(is_guess).collect();
        let heads: Vec<_> = events.iter().map(|event| &*event.payload.head).collect();
        let paths: Vec<&str> = heads.iter().map(|head| head.path.as_str()).collect();
        let queries: Vec<Option<&str>> = heads.iter().map(|head| head.query.as_deref()).collect();
        let remotes: Vec<&str> = heads.iter().map(|head| &*head.remote).collect();
        let headers: Vec<&[u8]> = heads.iter().map(|head| head.headers.as_bytes()).collect();
        let bodies: Vec<&[u8]> = events.iter().map(|event| &event.payload.body[..]).collect();
        let (ids, requests) = (slices(&ids), slices(&requests));
        let (mut terms, mut term_events) = (Vec::new(), Vec::new());
        for (candidate, event) in accepted.iter().zip(&ids) {
            for term in candidate.terms.terms.chunks(SearchTerm::BYTES) {
                terms.push(term);
                term_events.push(*event);
            }
        }
        let deliveries = DeliveryColumns::new(&events, self.numbers);
        let rows = connection.query_arrays(
            INSERT_EVENTS,
            &[
                (&ids, Type::BYTEA_ARRAY),
                (&requests, Type::BYTEA_ARRAY),
                (&sources, Type::INT8_ARRAY),
                (&keys, Type::TEXT_ARRAY),
                (&times, Type::INT8_ARRAY),
                (&fingerprints, Type::BYTEA_ARRAY),
                (&verified, Type::TEXT_ARRAY),
                (&key_from, Type::TEXT_ARRAY),
                (&unrouted, Type::TEXT_ARRAY),
                (&kinds, Type::TEXT_ARRAY),
                (&attributes, Type::TEXT_ARRAY),
                (&guessed, Type::INT2_ARRAY),
                (&paths, Type::TEXT_ARRAY),
                (&queries, Type::TEXT_ARRAY),
                (&remotes, Type::TEXT_ARRAY),
                (&headers, Type::BYTEA_ARRAY),
                (&bodies, Type::BYTEA_ARRAY),
                (&terms, Type::BYTEA_ARRAY),
                (&term_events, Type::BYTEA_ARRAY),
                (&slices(&deliveries.ids), Type::BYTEA_ARRAY),
                (&slices(&deliveries.events), Type::BYTEA_ARRAY),
                (&deliveries.destinations, Type::INT8_ARRAY),
                (&deliveries.created, Type::INT8_ARRAY),
                (&deliveries.first_attempts, Type::INT8_ARRAY),
                (&deliveries.not_before, Type::INT8_ARRAY),
                (&deliveries.numbers, Type::INT8_ARRAY),
                (&deliveries.epochs, Type::INT8_ARRAY),
            ],
        )?;
        let mut claimed = HashSet::new();
        for row in &rows {
            let row: &dyn SqlRow = row;
            let is_claimed: bool = row.get(1)?;
            let status =
                if is_claimed { DeliveryStatus::InFlight } else { DeliveryStatus::Pending };
            self.counts.count_move(None, Some(status));
            if is_claimed {
                claimed.insert(id(row, 0)?);
            }
        }
        Ok(claimed)
    }

    fn record_duplicates(&mut self, connection: &PgConnection<'_>) -> Result<()> {
        let mut sightings: BTreeMap<EventId, Vec<(Timestamp, DuplicateReason)>> = BTreeMap::new();
        for candidate in &self.candidates {
            if let CandidateOutcome::Duplicate { original, reason } = candidate.outcome {
                let at = candidate.event.received_at;
                sightings.entry(original).or_default().push((at, reason));
                self.counts.add(Counter::Duplicates, 1);
                if let Some(source) = candidate.source {
                    let bucket = self.counts.rollups.bucket(SubjectSeq::Source(source), at);
                    bucket.add(RollupMetric::Duplicates, 1);
                }
            }
        }
        if sightings.is_empty() {
            return Ok(());
        }
        let originals: Vec<[u8; 16]> = sightings.keys().map(|event| blob(*event)).collect();
        let seen: Vec<i64> = sightings
            .values()
            .map(|of_event| i64::try_from(of_event.len()).unwrap_or(i64::MAX))
            .collect();
        let last = |of_event: &Vec<(Timestamp, DuplicateReason)>| {
            of_event.iter().map(|(at, _)| at.as_millis()).max().unwrap_or_default()
        };
        let last: Vec<i64> = sightings.values().map(last).collect();
        let originals = slices(&originals);
        let rows = connection.query_arrays(
            COUNT_DUPLICATES,
            &[
                (&originals, Type::BYTEA_ARRAY),
                (&seen, Type::INT8_ARRAY),
                (&last, Type::INT8_ARRAY),
            ],
        )?;
        // An event that retention has removed has no row, while its key is still valid.
        let (mut events, mut times, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let row: &dyn SqlRow = row;
            let (event, total): (EventId, u64) = (id(row, 0)?, row.get(1)?);
            let Some(of_event) = sightings.get(&event) else { continue };
            let counted = u64::try_from(of_event.len()).unwrap_or(u64::MAX);
            let room = SIGHTING_ROWS_MAX.saturating_sub(total.saturating_sub(counted));
            for (at, reason) in of_event.iter().take(usize::try_from(room).unwrap_or(usize::MAX)) {
                events.push(blob(event));
                times.push(at.as_millis());
                reasons.push((*reason != DuplicateReason::SameKey).then_some(reason.as_str()));
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        let events = slices(&events);
        connection.query_arrays(
            INSERT_SIGHTINGS,
            &[
                (&events, Type::BYTEA_ARRAY),
                (&times, Type::INT8_ARRAY),
                (&reasons, Type::TEXT_ARRAY),
            ],
        )?;
        Ok(())
    }
}

/// The columns of the deliveries of new events.
#[derive(Default)]
struct DeliveryColumns {
    ids: Vec<[u8; 16]>,
    events: Vec<[u8; 16]>,
    destinations: Vec<i64>,
    created: Vec<i64>,
    first_attempts: Vec<i64>,
    not_before: Vec<Option<i64>>,
    numbers: Vec<Option<i64>>,
    epochs: Vec<Option<i64>>,
}

impl DeliveryColumns {
    fn new(events: &[&NewEvent], row_numbers: &RowNumbers) -> Self {
        let mut columns = Self::default();
        for event in events {
            for delivery in &event.deliveries {
                // Otherwise the destination was just deleted.
                if let Some(destination) = row_numbers.destinations.get(&delivery.destination) {
                    columns.add(event, delivery, *destination);
                }
            }
        }
        columns
    }

    fn add(&mut self, event: &NewEvent, delivery: &NewDelivery, destination: i64) {
        let first_attempt = (event.received_at + delivery.delay).as_millis();
        self.ids.push(blob(delivery.id));
        self.events.push(blob(event.id));
        self.destinations.push(destination);
        self.created.push(event.received_at.as_millis());
        self.first_attempts.push(first_attempt);
        self.not_before.push((!delivery.delay.is_zero()).then_some(first_attempt));
        self.numbers.push(delivery.claim.map(|proof| proof.number));
        self.epochs.push(delivery.claim.map(|proof| proof.epoch.0));
    }
}

fn short_fingerprint(event: &NewEvent) -> ShortFingerprint {
    ShortFingerprint::of(event.compared_fingerprint())
}

pub(super) fn slices<const N: usize>(arrays: &[[u8; N]]) -> Vec<&[u8]> {
    arrays.iter().map(|array| &array[..]).collect()
}

fn count_accepted(counts: &mut CountChanges, candidate: &Candidate<'_>) {
    let Some(source) = candidate.source else { return };
    counts.add(Counter::Events, 1);
    let has_key = candidate.event.key.is_some();
    if !has_key {
        counts.add(Counter::NoKey, 1);
    }
    let bucket = counts.rollups.bucket(SubjectSeq::Source(source), candidate.event.received_at);
    bucket.add(RollupMetric::Accepted, 1);
    if !has_key {
        bucket.add(RollupMetric::NoKey, 1);
    }
}

/// The event that holds a key.
struct KeyHolder {
    entry: KeyEntry,
    has_dead_delivery: bool,
}

impl KeyHolder {
    /// What becomes of an event that did not get the key.
    fn decide(&self, event: &NewEvent, key: KeyToClaim) -> CandidateOutcome {
        let is_plain = self.entry.expires_at > key.as_of
            && self.entry.expires_at <= key.expires_at + CLOCK_MARGIN
            && !has_other_body(event, self.entry)
            && !(event.revive_dead && self.has_dead_delivery);
        match is_plain {
            true => CandidateOutcome::Duplicate { original: self.entry.event, reason: key.reason },
            false => CandidateOutcome::Undecided,
        }
    }
}

fn find_holders(
    connection: &PgConnection<'_>,
    digests: &[[u8; 16]],
) -> Result<HashMap<KeyDigest, KeyHolder>> {
    let digests = slices(digests);
    let rows = connection.query_arrays(FIND_HOLDERS, &[(&digests, Type::BYTEA_ARRAY)])?;
    let mut holders = HashMap::with_capacity(rows.len());
    for row in &rows {
        let row: &dyn SqlRow = row;
        let holder = KeyHolder { entry: read_key(row, 1)?, has_dead_delivery: row.get(4)? };
        holders.insert(KeyDigest::from_bytes(row.get(0)?), holder);
    }
    Ok(holders)
}
