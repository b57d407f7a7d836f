//! Taking a request in: verify, key, route, commit. Answers only what is on the disk.

use std::{
    cell::LazyCell,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use surehook_core::{
    chance::new_id,
    decision::{Decided, Unrouted, Why, write_unrouted},
    event::{HeaderBlock, KeyClaim, NewBody, NewDelivery, NewEvent, Payload, RequestHead},
    ids::{DeliveryId, DestinationId, EventId, RequestId},
    key::{DedupKey, KeyProblem, content_hash_key, fingerprint},
    name::Name,
    source::Source,
    store::{Admitted, Claimed, StoreError},
    sync::SyncAnswer,
    time::Timestamp,
    verify::Refused,
};

use crate::{
    Engine,
    feed::{EventReceived, News},
    lane::{Job, Lane, Slot},
    registry::SourceEntry,
    routing,
    sync::Asking,
    transform,
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
    /// What a sender is told that waited for the result.
    pub sync: Option<SyncAnswer>,
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

    /// The header that holds the source's secret itself.
    pub fn secret_header(&self) -> Option<&HeaderName> {
        self.0.source.as_ref().ok().and_then(|source| source.verifier.secret_header())
    }

    /// Whether the sample of refused requests keeps their bodies.
    pub fn keeps_refused_bodies(&self) -> bool {
        self.0.source.as_ref().is_ok_and(|source| source.keep_refused_bodies)
    }
}

/// A delivery that waits for its commit, with its place in a lane if there is one.
struct Planned {
    new: NewDelivery,
    lane: Option<Arc<Lane>>,
    slot: Option<Slot>,
    /// What is sent, if it is not what came; and the route that makes it, if that failed.
    sent: Option<NewBody>,
}

/// What an event owes, and what it does not and why.
struct Plan {
    owed: Vec<Planned>,
    unrouted: Vec<Unrouted>,
}

/// Where a key was found that was not found.
static CONTENT_HASH: LazyLock<Arc<str>> = LazyLock::new(|| "content_hash".into());

/// What each delivery of an event carries with it.
struct Owed {
    event: EventId,
    source: Name,
    key: Option<DedupKey>,
    received_at: Timestamp,
    payload: Payload,
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

    /// Takes a request in. After `Ok` all of it survives a power cut, and the request is used up; one
    /// that is refused is left as it is.
    pub async fn receive(
        self: &Arc<Self>,
        source: &OpenSource,
        request: &mut InboundRequest,
    ) -> Result<Vec<Received>, IngestError> {
        let begun = Instant::now();
        let entry = &source.0;
        let Ok(source) = &entry.source else { return Err(IngestError::Misconfigured) };
        let received = self.receive_one(entry, source, request).await?;
        let counter =
            if received.duplicate { &entry.metrics.duplicate } else { &entry.metrics.accepted };
        counter.inc();
        entry.metrics.seconds.observe(begun.elapsed().as_secs_f64());
        Ok(vec![received])
    }

    async fn receive_one(
        self: &Arc<Self>,
        entry: &SourceEntry,
        source: &Source,
        request: &mut InboundRequest,
    ) -> Result<Received, IngestError> {
        let now = self.shared.clock.now();
        let verified = source.verifier.verify(&request.headers, &request.body, now);
        let verified_by = source.verifier.label(verified.map_err(IngestError::NotVerified)?);
        let (claim, key_from) = key_claim(source, request, now).map_err(IngestError::Key)?.unzip();
        let fingerprint = fingerprint(&request.body);
        // A sender that waits wants the result, and memory only knows that there is an event.
        if let (Some(claim), None) = (&claim, &entry.sync)
            && let Some(event) = self.store.recall(source.id, &claim.key, &fingerprint, now)
        {
            return Ok(Received {
                event,
                key: Some(claim.key.clone()),
                duplicate: true,
                sync: None,
            });
        }
        if claim.is_none() {
            entry.metrics.no_key.inc();
        }
        let Plan { owed, unrouted } = self.plan(entry, request, now);
        let request_id = new_id(&*self.shared.chance, now);
        let asking = self.asking(entry, &owed, request_id, now);
        let event = NewEvent {
            id: new_id(&*self.shared.chance, now),
            request_id,
            source: source.id,
            received_at: now,
            key: claim,
            payload: payload(request, fingerprint),
            deliveries: owed.iter().map(|planned| planned.new.clone()).collect(),
            // Where the sender waits, its wish to wait revives what can be mended.
            revive_dead: source.revive_dead && asking.is_none(),
            decided: Decided { verified_by, key_from, unrouted: write_unrouted(&unrouted) },
            bodies: owed.iter().filter_map(|planned| planned.sent.clone()).collect(),
        };
        let commit = Arc::clone(self).commit(event, source.name.clone(), owed);
        let received = Uninterrupted::new(commit, &self.shared.tasks).await?;
        let Some(asking) = asking else { return Ok(received) };
        let Received { event, ref key, duplicate, .. } = received;
        let answer = self.answer_sender(asking, event, duplicate, key.is_some()).await;
        let answer = answer.map_err(IngestError::Store)?;
        self.telemetry.sync_answered(source.name.as_str(), answer.as_str());
        Ok(Received { sync: Some(answer), ..received })
    }

    /// If the sender waits: what for. It begins to wait before anything is committed, so that it
    /// misses nothing.
    fn asking(
        &self,
        entry: &SourceEntry,
        owed: &[Planned],
        request: RequestId,
        received_at: Timestamp,
    ) -> Option<Asking> {
        let entry = entry.sync?;
        let awaited = owed.iter().find(|planned| planned.new.destination == entry.destination);
        let until = tokio::time::Instant::now() + entry.deadline;
        let waiting = awaited.map(|planned| self.shared.waiters.watch(planned.new.id));
        Some(Asking { entry, request, received_at, until, waiting })
    }

    /// Which deliveries the event owes, each with a place in its lane where there is one.
    fn plan(&self, entry: &SourceEntry, request: &InboundRequest, now: Timestamp) -> Plan {
        let owed = Vec::with_capacity(entry.routes.len());
        let mut plan = Plan { owed, unrouted: Vec::new() };
        let input = LazyCell::new(|| transform::json(&request.headers, &request.body));
        for (route, lane) in &entry.routes {
            let id: DeliveryId = new_id(&*self.shared.chance, now);
            // Two routes to one destination are one delivery.
            let twice = plan.owed.iter().any(|other| other.new.destination == route.destination);
            let chosen = if twice {
                Err(Why::SameDestination)
            } else {
                routing::choose(route, id, &input, &entry.metrics)
            };
            let sent = match chosen {
                Ok(sent) => sent,
                Err(why) => {
                    plan.unrouted.push(Unrouted { to: route.to.clone(), why });
                    continue;
                }
            };
            let owed = plan_one((id, route.destination), lane.as_ref(), request, sent, now);
            plan.owed.push(owed);
        }
        plan
    }

    /// Stores the event and, once it is on the disk, hands its deliveries to their lanes.
    async fn commit(
        self: Arc<Self>,
        event: NewEvent,
        source: Name,
        planned: Vec<Planned>,
    ) -> Result<Received, IngestError> {
        let owed = Owed {
            event: event.id,
            source,
            key: event.key.as_ref().map(|claim| claim.key.clone()),
            received_at: event.received_at,
            payload: event.payload.clone(),
        };
        let admitted = self.store.admit(vec![event]).await.map_err(IngestError::Store)?;
        match admitted.into_iter().next() {
            Some(Admitted::Accepted { held }) => {
                self.shared.feed.publish(owed.received_at, || {
                    News::EventReceived(EventReceived {
                        id: owed.event,
                        source: Some(owed.source.to_string()),
                        key: owed.key.as_ref().map(|key| key.as_str().to_owned()),
                        received_at: owed.received_at,
                        body_bytes: owed.payload.body.len() as u64,
                    })
                });
                // Those that wait for their turn give their places back.
                for delivery in planned.into_iter().filter(|one| !held.contains(&one.new.id)) {
                    self.hand_over(delivery, &owed);
                }
                Ok(Received { event: owed.event, key: owed.key, duplicate: false, sync: None })
            }
            Some(Admitted::Duplicate(duplicate)) => {
                for destination in duplicate.revived {
                    self.nudge(destination);
                }
                let (event, key) = (duplicate.original, owed.key);
                Ok(Received { event, key, duplicate: true, sync: None })
            }
            Some(Admitted::SourceGone) => Err(IngestError::UnknownSource),
            None => Err(IngestError::Store(StoreError::Refused("no answer".to_owned()))),
        }
    }

    fn hand_over(&self, delivery: Planned, owed: &Owed) {
        let Planned { new, lane, slot, sent } = delivery;
        let (Some(lane), Some(slot), Some(lease)) = (lane, slot, new.claim) else {
            // Not the lane of a moment ago: it may have been replaced while this was committed.
            return self.nudge(new.destination);
        };
        let claimed = Claimed {
            id: new.id,
            event: owed.event,
            destination: new.destination,
            source: owed.source.clone(),
            key: owed.key.clone(),
            lease,
            attempts: 0,
            throttled: 0,
            created_at: owed.received_at,
            received_at: owed.received_at,
            payload: match sent.as_ref().and_then(|sent| sent.body.clone()) {
                Some(body) => owed.payload.transformed(body),
                None => owed.payload.clone(),
            },
            transform: sent.filter(|sent| sent.body.is_none()).map(|sent| sent.route),
            ordered: new.order_key.is_some(),
        };
        lane.offer(Job { claimed, slot });
    }
}

/// One delivery, with a place in its lane if there is one and it may be tried at once.
fn plan_one(
    (id, destination): (DeliveryId, DestinationId),
    lane: Option<&Arc<Lane>>,
    request: &InboundRequest,
    sent: Option<NewBody>,
    now: Timestamp,
) -> Planned {
    let body = sent.as_ref().and_then(|sent| sent.body.as_ref()).unwrap_or(&request.body);
    let delay = lane.map_or(Duration::ZERO, |lane| lane.delay());
    let order_key = lane.and_then(|lane| lane.order_key(&request.headers, &request.body));
    let reserved = lane.filter(|_| delay.is_zero()).and_then(|lane| lane.reserve(body.len(), now));
    let (slot, claim) = reserved.map_or((None, None), |(slot, lease)| (Some(slot), Some(lease)));
    let new = NewDelivery { id, destination, claim, delay, order_key };
    Planned { new, lane: lane.cloned(), slot, sent }
}

/// The key that the source's rules find, or the hash of the body if the source asks for that; and
/// where it was found.
fn key_claim(
    source: &Source,
    request: &InboundRequest,
    now: Timestamp,
) -> Result<Option<(KeyClaim, Arc<str>)>, KeyProblem> {
    let found = source.keys.find(&request.headers, &request.body)?;
    Ok(match (found, source.content_hash_window) {
        (Some(found), _) => {
            let claim = KeyClaim { key: found.key, expires_at: now + source.dedup_window };
            source.keys.label(found.rule).map(|place| (claim, place))
        }
        (None, Some(window)) => {
            let key = content_hash_key(&request.body);
            Some((KeyClaim { key, expires_at: now + window }, Arc::clone(&CONTENT_HASH)))
        }
        (None, None) => None,
    })
}

/// What is kept of the request; of its body there is one copy.
fn payload(request: &mut InboundRequest, fingerprint: [u8; 32]) -> Payload {
    let head = RequestHead {
        headers: HeaderBlock::from_map(&request.headers),
        path: std::mem::take(&mut request.path),
        query: request.query.take(),
        remote: std::mem::take(&mut request.remote),
    };
    Payload { head: Arc::new(head), body: request.body.clone(), fingerprint }
}
