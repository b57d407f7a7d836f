//! Taking a request in: verify, key, route, commit. Answers only what is on the disk.

use std::{borrow::Cow, sync::Arc, time::Instant};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{
    chance::new_id,
    event::{HeaderBlock, KeyClaim, NewDelivery, NewEvent, Payload, RequestHead},
    ids::{DeliveryId, EventId},
    inflate,
    jq::{Jq, JsonInput, NotJson},
    key::{DedupKey, KeyProblem, content_hash_key, fingerprint},
    source::Source,
    store::{Admitted, Claimed, StoreError},
    time::Timestamp,
    verify::Refused,
};

use crate::{
    Engine,
    feed::{EventReceived, News},
    lane::{Job, Lane, Slot},
    registry::SourceEntry,
    telemetry::SourceMetrics,
    uninterrupted::Uninterrupted,
};

/// A request at the door, whole.
#[derive(Debug)]
pub struct InboundRequest {
    /// What follows the source's name in the path.
    pub path: String,
    /// The query.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, exactly.
    pub body: Bytes,
    /// Who sent it.
    pub remote: String,
}

/// What became of one event of a request.
#[derive(Clone, Debug)]
pub struct Received {
    /// The event, or the original of which it is a duplicate.
    pub event: EventId,
    /// Its key.
    pub key: Option<DedupKey>,
    /// Whether it was known already.
    pub duplicate: bool,
}

/// Why a request was not taken in. One variant for each thing that the sender should do next.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// There is no such source.
    #[error("there is no source of this name")]
    UnknownSource,
    /// The source is switched off.
    #[error("this source is switched off")]
    Disabled,
    /// The source's settings cannot be used.
    #[error("this source cannot take requests until its settings are mended")]
    Misconfigured,
    /// The request does not prove where it comes from.
    #[error("the request could not be verified: {0}")]
    NotVerified(#[source] Refused),
    /// The request has more than one key.
    #[error("{0}")]
    Key(#[source] KeyProblem),
    /// The store did not take it.
    #[error("the event could not be stored")]
    Store(#[source] StoreError),
}

impl IngestError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownSource => "unknown_source",
            Self::Disabled => "source_disabled",
            Self::Misconfigured => "source_misconfigured",
            Self::NotVerified(refused) => refused.code(),
            Self::Key(_) => "repeated_key",
            Self::Store(StoreError::Overloaded) => "overloaded",
            Self::Store(StoreError::Full) => "disk_full",
            Self::Store(_) => "store_failed",
        }
    }
}

/// A source that a request was found for.
#[derive(Clone, Debug)]
pub struct OpenSource(Arc<SourceEntry>);

impl OpenSource {
    /// The source's own limit on bodies.
    pub fn max_body_bytes(&self) -> Option<usize> {
        self.0.source.as_ref().ok().and_then(|source| source.max_body_bytes)
    }
}

/// A delivery that waits for its commit, with its place in a lane if there is one.
struct Planned {
    new: NewDelivery,
    lane: Option<Arc<Lane>>,
    slot: Option<Slot>,
}

impl Engine {
    /// Finds the source before the body is read: what nobody wants need not be buffered.
    pub fn source(&self, name: &str) -> Result<OpenSource, IngestError> {
        let registry = self.registry.load();
        let entry = registry.sources.get(name).ok_or(IngestError::UnknownSource)?;
        match &entry.source {
            Err(_) => Err(IngestError::Misconfigured),
            Ok(source) if !source.enabled => Err(IngestError::Disabled),
            Ok(_) => Ok(OpenSource(Arc::clone(entry))),
        }
    }

    /// Takes a request in. After `Ok` all of it survives a power cut.
    pub async fn receive(
        self: &Arc<Self>,
        source: &OpenSource,
        request: InboundRequest,
    ) -> Result<Vec<Received>, IngestError> {
        let begun = Instant::now();
        let entry = &source.0;
        let Ok(source) = &entry.source else { return Err(IngestError::Misconfigured) };
        let now = self.shared.clock.now();
        source
            .verifier
            .verify(&request.headers, &request.body, now)
            .map_err(IngestError::NotVerified)?;
        let received = self.receive_verified(entry, source, request, now).await?;
        let counter =
            if received.duplicate { &entry.metrics.duplicate } else { &entry.metrics.accepted };
        counter.inc();
        entry.metrics.seconds.observe(begun.elapsed().as_secs_f64());
        Ok(vec![received])
    }

    async fn receive_verified(
        self: &Arc<Self>,
        entry: &SourceEntry,
        source: &Source,
        request: InboundRequest,
        now: Timestamp,
    ) -> Result<Received, IngestError> {
        let claim = key_claim(source, &request, now).map_err(IngestError::Key)?;
        let fingerprint = fingerprint(&request.body);
        if let Some(claim) = &claim
            && let Some(event) = self.store.recall(source.id, &claim.key, &fingerprint, now)
        {
            return Ok(Received { event, key: Some(claim.key.clone()), duplicate: true });
        }
        if claim.is_none() {
            entry.metrics.no_key.inc();
        }
        let planned = self.plan(entry, &request, now);
        let event = NewEvent {
            id: new_id(&*self.shared.chance, now),
            request_id: new_id(&*self.shared.chance, now),
            source: source.id,
            received_at: now,
            key: claim,
            payload: payload(request, fingerprint),
            deliveries: planned.iter().map(|planned| planned.new).collect(),
            revive_dead: source.revive_dead,
        };
        let commit = Arc::clone(self).commit(event, planned);
        Uninterrupted::new(commit, &self.shared.tasks).await
    }

    /// Which deliveries the event owes, each with a place in its lane where there is one.
    fn plan(&self, entry: &SourceEntry, request: &InboundRequest, now: Timestamp) -> Vec<Planned> {
        let mut planned: Vec<Planned> = Vec::with_capacity(entry.routes.len());
        let mut input = None;
        for (route, lane) in &entry.routes {
            // Two routes to one destination are one delivery.
            if planned.iter().any(|other| other.new.destination == route.destination) {
                continue;
            }
            if let Some(filter) = &route.filter {
                let input = input.get_or_insert_with(|| json(request));
                if !matches(filter, input.as_ref(), &entry.metrics) {
                    continue;
                }
            }
            let reserved = lane.as_ref().and_then(|lane| lane.reserve(request.body.len(), now));
            let (slot, claim) =
                reserved.map_or((None, None), |(slot, lease)| (Some(slot), Some(lease)));
            let id: DeliveryId = new_id(&*self.shared.chance, now);
            let new = NewDelivery { id, destination: route.destination, claim };
            planned.push(Planned { new, lane: lane.clone(), slot });
        }
        planned
    }

    /// Stores the event and, once it is on the disk, hands its deliveries to their lanes.
    async fn commit(
        self: Arc<Self>,
        event: NewEvent,
        planned: Vec<Planned>,
    ) -> Result<Received, IngestError> {
        let (id, received_at, payload) = (event.id, event.received_at, event.payload.clone());
        let source = event.source;
        let key = event.key.as_ref().map(|claim| claim.key.clone());
        let admitted = self.store.admit(vec![event]).await.map_err(IngestError::Store)?;
        match admitted.into_iter().next() {
            Some(Admitted::Accepted) => {
                self.shared.feed.publish(received_at, || {
                    News::EventReceived(EventReceived {
                        id,
                        source: self.registry.load().source_name(source),
                        key: key.as_ref().map(|key| key.as_str().to_owned()),
                        received_at,
                        body_bytes: payload.body.len() as u64,
                    })
                });
                for delivery in planned {
                    self.hand_over(delivery, id, received_at, &payload);
                }
                Ok(Received { event: id, key, duplicate: false })
            }
            Some(Admitted::Duplicate(duplicate)) => {
                for destination in duplicate.revived {
                    self.nudge(destination);
                }
                Ok(Received { event: duplicate.original, key, duplicate: true })
            }
            Some(Admitted::SourceGone) => Err(IngestError::UnknownSource),
            None => Err(IngestError::Store(StoreError::Refused("no answer".to_owned()))),
        }
    }

    fn hand_over(
        &self,
        delivery: Planned,
        event: EventId,
        received_at: Timestamp,
        payload: &Payload,
    ) {
        let Planned { new, lane, slot } = delivery;
        let (Some(lane), Some(slot), Some(lease)) = (lane, slot, new.claim) else {
            // Not the lane of a moment ago: it may have been replaced while this was committed.
            return self.nudge(new.destination);
        };
        let claimed = Claimed {
            id: new.id,
            event,
            destination: new.destination,
            lease,
            attempts: 0,
            throttled: 0,
            created_at: received_at,
            received_at,
            payload: payload.clone(),
        };
        lane.offer(Job { claimed, slot });
    }
}

/// The body as filters see it, unpacked if it is packed.
fn json(request: &InboundRequest) -> Result<JsonInput, NotJson> {
    let plain = inflate::plain(&request.headers, &request.body);
    JsonInput::parse(&plain.unwrap_or(Cow::Borrowed(&request.body)))
}

/// Whether a route's filter lets the event through. One that fails does not: what cannot be judged
/// is stored and visible, but goes nowhere by accident.
fn matches(filter: &Jq, input: Result<&JsonInput, &NotJson>, metrics: &SourceMetrics) -> bool {
    let failed = |code: &str| {
        metrics.filter_errors.inc();
        // Only the word for it: the message itself quotes the event.
        tracing::debug!(filter = filter.text(), code, "a filter failed on an event");
    };
    match input {
        Err(_) => {
            failed("not_json");
            false
        }
        Ok(json) => filter.test(json).unwrap_or_else(|error| {
            failed(error.code());
            false
        }),
    }
}

/// The key that the source's rules find, or the hash of the body if the source asks for that.
fn key_claim(
    source: &Source,
    request: &InboundRequest,
    now: Timestamp,
) -> Result<Option<KeyClaim>, KeyProblem> {
    let found = source.keys.find(&request.headers, &request.body)?;
    Ok(match (found, source.content_hash_window) {
        (Some(found), _) => {
            Some(KeyClaim { key: found.key, expires_at: now + source.dedup_window })
        }
        (None, Some(window)) => {
            Some(KeyClaim { key: content_hash_key(&request.body), expires_at: now + window })
        }
        (None, None) => None,
    })
}

fn payload(request: InboundRequest, fingerprint: [u8; 32]) -> Payload {
    let head = RequestHead {
        headers: HeaderBlock::from_map(&request.headers),
        path: request.path,
        query: request.query,
        remote: request.remote,
    };
    Payload { head: Arc::new(head), body: request.body, fingerprint }
}
