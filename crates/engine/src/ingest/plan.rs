//! What each event of a request is, and what it owes.

use std::{
    cell::LazyCell,
    sync::{Arc, LazyLock, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{
    attribute::EventKind,
    channel::statuses::parse_status_update,
    decision::{IntakeRecord, NotRoutedReason, UnroutedRoute, write_unrouted},
    event::{
        DedupKeyClaim, HeaderBlock, NewDelivery, NewDeliveryBody, NewEvent, Payload, RequestHead,
        StatusUpdate,
    },
    ids::{DeliveryId, RequestId},
    inflate::DecodedRequest,
    key::{DedupKey, KeyError, content_hash_key, fingerprint},
    provider::{EventKey, EventPart},
    quarantine::QuarantineRelease,
    rng::new_id,
    source::Source,
    time::Timestamp,
};

use super::{AcceptReason, InboundRequest};
use crate::{
    Engine,
    lane::{Lane, LaneSlot},
    registry::{RouteRuntime, RouteTarget, SourceRuntime},
    routing,
    sync::SyncConfig,
    transform,
};

/// The key of an event and where it was found; none if it has none.
pub(super) type KeyAssignment = Option<(DedupKeyClaim, Arc<str>)>;

/// Where a key was found that was not found.
static CONTENT_HASH: LazyLock<Arc<str>> = LazyLock::new(|| "content_hash".into());

/// A delivery that waits for its commit, with its place in a lane if there is one.
pub(super) struct PlannedDelivery {
    pub(super) new: NewDelivery,
    pub(super) lane: Option<Arc<Lane>>,
    pub(super) slot: Option<LaneSlot>,
    /// What is sent, if it is not what came; and the route that makes it, if that failed.
    pub(super) sent: Option<NewDeliveryBody>,
}

/// An event that is ready to be committed, with its deliveries.
pub(super) struct EventDraft {
    pub(super) event: NewEvent,
    pub(super) owed: Vec<PlannedDelivery>,
}

/// A delivery that is owed whatever the routes say.
pub(super) struct DirectDelivery {
    pub(super) id: DeliveryId,
    pub(super) end: RouteTarget,
    /// It waits this long at least.
    pub(super) delay: Duration,
}

/// What the events of one request have in common.
pub(super) struct RequestContext<'a> {
    pub(super) entry: &'a SourceRuntime,
    pub(super) source: &'a Source,
    pub(super) request_id: RequestId,
    pub(super) now: Timestamp,
    pub(super) pass: AcceptReason,
    readable: &'a DecodedRequest,
    /// What leaves the quarantine with it.
    pub(super) releases: Option<QuarantineRelease>,
    /// Where it goes whatever the routes say.
    pub(super) direct: Option<DirectDelivery>,
    headers: &'a HeaderMap,
    body: Bytes,
    head: Arc<RequestHead>,
    /// The same for a body that is not the one that came.
    reworded: OnceLock<Arc<RequestHead>>,
}

impl<'a> RequestContext<'a> {
    /// Takes over the request. Of its body there is one copy.
    pub(super) fn new(
        entry: &'a SourceRuntime,
        source: &'a Source,
        (request, readable): (&'a mut InboundRequest, &'a DecodedRequest),
        (request_id, now): (RequestId, Timestamp),
        (pass, releases): (AcceptReason, Option<QuarantineRelease>),
    ) -> Self {
        let mut path = std::mem::take(&mut request.path);
        // A secret in the address ends here.
        if let Some(bare) = source.verifier.path_without_secret(&path) {
            path = bare.to_owned();
        }
        let head = RequestHead {
            headers: HeaderBlock::from_map(&request.headers),
            path,
            query: request.query.take(),
            remote: Arc::clone(&request.remote),
        };
        Self {
            entry,
            source,
            request_id,
            now,
            pass,
            readable,
            releases,
            direct: None,
            headers: &request.headers,
            body: request.body.clone(),
            head: Arc::new(head),
            reworded: OnceLock::new(),
        }
    }

    /// Whether the sender waits, and for what. Of one in quarantine it has gone.
    pub(super) fn sync(&self) -> Option<SyncConfig> {
        self.entry.sync.filter(|_| self.pass.releases.is_none())
    }

    /// The headers and the body of one event, for rules.
    fn read<'s>(&'s self, part: &'s EventPart) -> (&'s HeaderMap, &'s [u8]) {
        self.readable.event(self.headers, &self.body, part.body.as_ref())
    }

    /// What an event says of a message that we sent. Only what was verified is believed.
    fn parse_status_update(&self, part: &EventPart) -> Option<StatusUpdate> {
        let is_believed = self.source.provider.echoes_delivery_ids() && self.source.is_verified();
        is_believed.then(|| parse_status_update(part, self.now)).flatten()
    }

    /// What is kept of one event: the request as it came, or its own part of it.
    pub(super) fn payload(&self, part: Option<&Bytes>) -> Payload {
        match part {
            None => Payload {
                head: Arc::clone(&self.head),
                fingerprint: fingerprint(&self.body),
                body: self.body.clone(),
            },
            Some(body) => {
                let head = self.reworded.get_or_init(|| Arc::new(self.head.reworded()));
                Payload {
                    head: Arc::clone(head),
                    fingerprint: fingerprint(body),
                    body: body.clone(),
                }
            }
        }
    }
}

impl Engine {
    /// An event with all that it owes, each delivery with a place in its lane where there is one.
    pub(super) fn draft(
        &self,
        arrival: &RequestContext<'_>,
        part: &EventPart,
        claim: KeyAssignment,
        payload: Payload,
    ) -> EventDraft {
        let (claim, key_from) = claim.unzip();
        let mut unrouted = Vec::new();
        let owed = self.plan(arrival, part, &payload, &mut unrouted);
        let event = NewEvent {
            id: new_id(&*self.shared.chance, arrival.now),
            request_id: arrival.request_id,
            source: arrival.source.id,
            received_at: arrival.now,
            key: claim,
            kind: part.kind.clone(),
            attributes: part.attributes.clone(),
            payload,
            deliveries: owed.iter().map(|planned| planned.new.clone()).collect(),
            // Where the sender waits, its wish to wait revives what can be mended; and a message that
            // is asked for again is not sent again.
            revive_dead: arrival.source.revive_dead
                && arrival.sync().is_none()
                && arrival.direct.is_none(),
            copy_of: None,
            releases: None,
            confirms: arrival.parse_status_update(part),
            decided: IntakeRecord {
                verified_by: arrival.pass.verified_by.clone(),
                key_from,
                unrouted: write_unrouted(&unrouted),
            },
            bodies: owed.iter().filter_map(|planned| planned.sent.clone()).collect(),
        };
        EventDraft { event, owed }
    }

    fn plan(
        &self,
        arrival: &RequestContext<'_>,
        part: &EventPart,
        payload: &Payload,
        unrouted: &mut Vec<UnroutedRoute>,
    ) -> Vec<PlannedDelivery> {
        let entry = arrival.entry;
        let mut owed: Vec<PlannedDelivery> =
            Vec::with_capacity(entry.routes.len() + usize::from(arrival.direct.is_some()));
        owed.extend(arrival.direct.as_ref().map(|direct| {
            plan_one((direct.id, direct.delay), &direct.end, arrival, (part, &payload.body), None)
        }));
        let input = LazyCell::new(|| {
            let (headers, body) = arrival.read(part);
            transform::json(headers, body)
        });
        for RouteRuntime { route, end } in &entry.routes {
            let id: DeliveryId = new_id(&*self.shared.chance, arrival.now);
            // Two routes to one destination are one delivery.
            let twice = owed.iter().any(|other| other.new.destination == route.destination);
            let chosen = if part.is_ping {
                Err(NotRoutedReason::Ping)
            } else if twice {
                Err(NotRoutedReason::SameDestination)
            } else {
                routing::choose(
                    route,
                    id,
                    &input,
                    part.kind.as_ref().map(EventKind::as_str),
                    &entry.metrics,
                )
            };
            match chosen {
                Ok(sent) => {
                    let id = (id, Duration::ZERO);
                    owed.push(plan_one(id, end, arrival, (part, &payload.body), sent));
                }
                Err(why) => unrouted.push(UnroutedRoute { to: route.to.clone(), why }),
            }
        }
        owed
    }
}

/// Events of one moment have ids in no order; those of one request are listed as they came.
pub(super) fn put_in_order(drafts: &mut [EventDraft]) {
    if drafts.len() < 2 {
        return;
    }
    let mut ids: Vec<_> = drafts.iter().map(|draft| draft.event.id).collect();
    ids.sort_unstable();
    for (draft, id) in drafts.iter_mut().zip(ids) {
        draft.event.id = id;
    }
}

/// One delivery, with a place in its lane if there is one and it may be tried at once.
fn plan_one(
    (id, wait): (DeliveryId, Duration),
    end: &RouteTarget,
    arrival: &RequestContext<'_>,
    (part, body): (&EventPart, &Bytes),
    sent: Option<NewDeliveryBody>,
) -> PlannedDelivery {
    let goes_out = sent.as_ref().and_then(|sent| sent.body.as_ref()).unwrap_or(body);
    let delay = end.delay().max(wait);
    let (headers, plain) = arrival.read(part);
    let order_key = end.order_key(headers, plain, part.order.as_ref());
    let reserved = match &end.lane {
        Some(lane) if delay.is_zero() => lane.reserve(goes_out.len(), arrival.now),
        Some(_) | None => None,
    };
    let (slot, claim) = reserved.map_or((None, None), |(slot, lease)| (Some(slot), Some(lease)));
    let new = NewDelivery { id, destination: end.destination, claim, delay, order_key };
    PlannedDelivery { new, lane: end.lane.clone(), slot, sent }
}

/// The key of each event of a request.
pub(super) fn claims(
    source: &Source,
    (request, readable): (&InboundRequest, &DecodedRequest),
    parts: &[EventPart],
    now: Timestamp,
) -> Result<Vec<KeyAssignment>, KeyError> {
    let came = (&request.headers, &*request.body);
    let claim = |part: &EventPart| {
        claim(source, readable.event(came.0, came.1, part.body.as_ref()), &part.key, now)
    };
    parts.iter().map(claim).collect()
}

/// The key that the provider's or the source's rules find, or the hash of the body if the source
/// asks for that; and where it was found.
fn claim(
    source: &Source,
    (headers, body): (&HeaderMap, &[u8]),
    key: &EventKey,
    now: Timestamp,
) -> Result<KeyAssignment, KeyError> {
    let known = |key: DedupKey, from: Arc<str>| {
        Some((DedupKeyClaim { key, expires_at: now + source.dedup_window }, from))
    };
    let hashed = |window: Duration| {
        let key = content_hash_key(body);
        Some((DedupKeyClaim { key, expires_at: now + window }, Arc::clone(&CONTENT_HASH)))
    };
    let found = match key {
        EventKey::Known(key, from) => known(key.clone(), (*from).into()),
        EventKey::ContentHash(window) => hashed(*window),
        EventKey::None => None,
        EventKey::Rules => {
            let found = source.keys.extract(headers, body)?;
            found.and_then(|found| known(found.key, source.keys.label(found.rule)?))
        }
    };
    Ok(found.or_else(|| source.content_hash_window.and_then(hashed)))
}
