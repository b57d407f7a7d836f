//! From a parsed request to what is committed: the key of each event, and its deliveries with a slot
//! in their lanes where there is room.

use std::{
    cell::LazyCell,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use surehook_core::{
    callback::Callback,
    decision::{IntakeRecord, NotRoutedReason, SkippedRoute, encode_unrouted},
    event::{
        DedupKeyClaim, HeaderBlock, KeyWindow, NewDelivery, NewDeliveryBody, NewEvent, Payload,
        RequestHead, SignedBytesClaim, StatusUpdate,
    },
    message_status::parse_status_update,
    quarantine::QuarantineRelease,
    source::Source,
};
use surehook_types::{
    ids::{DeliveryId, RequestId},
    inflate::DecodedRequest,
    rng::new_id,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::EventKind,
    key::{DedupKey, EventKeyMatch, KeyDigest, KeyError, KeyNamespace, fingerprint},
    provider::{EventKey, EventPart},
    request::IncomingRequest,
};

use super::{AcceptReason, InboundRequest};
use crate::{
    Engine,
    body_memory::BodyReservation,
    lane::{Lane, LaneSlot},
    registry::{RouteRuntime, RouteTarget, SourceRuntime},
    routing::{self, RouteInput},
    sync::SyncConfig,
};

/// The dedup key of an event, if it has one, and what is claimed and looked up besides.
#[derive(Default)]
pub(super) struct KeyAssignment {
    pub(super) claim: Option<DedupKeyClaim>,
    /// The label of the rule that found it.
    pub(super) found_by: Option<Arc<str>>,
    pub(super) signed_bytes: Option<SignedBytesClaim>,
    pub(super) earlier_key: Option<DedupKey>,
    pub(super) compared_fingerprint: Option<[u8; 32]>,
}

/// A delivery to be committed.
pub(super) struct PlannedDelivery {
    pub(super) new: NewDelivery,
    /// `None` if the delivery may not start now, or no lane has room for it; then it stays in the store.
    pub(super) place: Option<(Arc<Lane>, LaneSlot)>,
    /// The body made by the route's transform; without a body if the route failed.
    pub(super) transformed: Option<NewDeliveryBody>,
}

/// An event that is ready to be committed.
pub(super) struct EventDraft {
    pub(super) event: NewEvent,
    pub(super) deliveries: Vec<PlannedDelivery>,
}

/// A delivery to a named destination, independent of the routes.
pub(super) struct DirectDelivery {
    pub(super) id: DeliveryId,
    pub(super) target: RouteTarget,
    pub(super) min_delay: Duration,
    pub(super) callback: Option<Arc<Callback>>,
}

/// The values that all events of one request share.
pub(super) struct RequestContext<'a> {
    pub(super) entry: &'a SourceRuntime,
    pub(super) source: &'a Source,
    pub(super) request_id: RequestId,
    pub(super) now: Timestamp,
    pub(super) reason: AcceptReason,
    /// The quarantined request that is removed in the same transaction.
    pub(super) releases: Option<QuarantineRelease>,
    pub(super) direct: Option<DirectDelivery>,
    readable: DecodedRequest,
    headers: &'a HeaderMap,
    pub(super) body: Bytes,
    memory: BodyReservation,
    head: Arc<RequestHead>,
    /// The head for a body that is a part of the request: without headers that describe the whole.
    part_head: OnceLock<Arc<RequestHead>>,
}

impl<'a> RequestContext<'a> {
    /// Consumes the request. The body is shared by all events, not copied.
    pub(super) fn new(
        entry: &'a SourceRuntime,
        source: &'a Source,
        request: &'a mut InboundRequest,
        readable: DecodedRequest,
        reason: AcceptReason,
        request_id: RequestId,
        now: Timestamp,
    ) -> Self {
        let mut path = std::mem::take(&mut request.path);
        // A secret in the path must not be stored.
        if let Some(bare) = source.verifier.path_without_secret(&path) {
            path = bare.to_owned();
        }
        // Nor one in a header: it proves the sender to us and has no meaning for destinations.
        let mut headers = HeaderBlock::from_map(&request.headers);
        if let Some(secret) = source.verifier.credential_header() {
            headers = headers.with_masked(|name| secret == name);
        }
        let head = RequestHead {
            headers,
            path,
            query: request.query.take(),
            remote: Arc::clone(&request.remote),
        };
        Self {
            entry,
            source,
            request_id,
            now,
            reason,
            releases: None,
            direct: None,
            readable,
            headers: &request.headers,
            body: request.body.clone(),
            memory: std::mem::take(&mut request.memory),
            head: Arc::new(head),
            part_head: OnceLock::new(),
        }
    }

    /// Ends the planning: everything that was unpacked is dropped. Returns the reserved memory.
    pub(super) fn into_memory(self) -> BodyReservation {
        self.memory
    }

    /// The settings of a sender that waits for the result. The sender of a quarantined request no
    /// longer waits.
    pub(super) fn sync(&self) -> Option<SyncConfig> {
        self.entry.sync.filter(|_| self.reason.releases.is_none())
    }

    /// The headers and the decompressed body of one event.
    fn content<'s>(&'s self, part: &'s EventPart) -> (&'s HeaderMap, &'s [u8]) {
        self.readable.event(self.headers, &self.body, part.body.as_ref())
    }

    /// The message status in an event. That of an unverified event is ignored.
    fn status_update(&self, part: &EventPart) -> Option<StatusUpdate> {
        let is_trusted = self.source.provider.echoes_delivery_ids && self.source.is_verified();
        is_trusted.then(|| parse_status_update(part, self.now)).flatten()
    }

    /// The stored payload of one event: the request as received, or the event's part of it.
    pub(super) fn payload(&self, part: Option<&Bytes>) -> Payload {
        match part {
            None => Payload {
                head: Arc::clone(&self.head),
                fingerprint: fingerprint(&self.body),
                body: self.body.clone(),
            },
            Some(body) => {
                let head = self.part_head.get_or_init(|| Arc::new(self.head.for_json_body()));
                Payload {
                    head: Arc::clone(head),
                    fingerprint: fingerprint(body),
                    body: body.clone(),
                }
            }
        }
    }
}

/// Extracts the key of each event of a request. `received` is the request as it was verified.
pub(super) fn extract_keys(
    source: &Source,
    received: &IncomingRequest<'_>,
    readable: &DecodedRequest,
    parts: &[EventPart],
    window: &dyn Fn(Duration) -> KeyWindow,
) -> Result<Vec<KeyAssignment>, KeyError> {
    let fingerprint = LazyCell::new(|| source.verifier.signed_fingerprint(received));
    let extract = |(position, part): (usize, &EventPart)| {
        let (headers, body) = readable.event(received.headers, received.body, part.body.as_ref());
        let mut key = extract_key(source, headers, body, &part.key, window)?;
        if key.claim.is_some() {
            key.compared_fingerprint = source.compared_fingerprint(body);
        }
        key.earlier_key = key.earlier_key.or_else(|| part.earlier_key.clone());
        let may_be_unsigned =
            part.key.may_be_unsigned(source.reads_unsigned_keys, &source.verifier);
        if !source.replay_guard || !may_be_unsigned {
            return Ok(key);
        }
        // A kind in a body that is not signed is not part of the signed content.
        let kind = part.kind.as_ref().filter(|_| source.verifier.signs_body());
        let kind = kind.map_or("", EventKind::as_str);
        let digest = KeyDigest::of_signed_bytes(source.id, &fingerprint, position, kind);
        let window = window(source.dedup_window);
        Ok(KeyAssignment { signed_bytes: Some(SignedBytesClaim { digest, window }), ..key })
    };
    parts.iter().enumerate().map(extract).collect()
}

/// The key that the provider or the source's rules find; otherwise the hash of the body, if the source
/// asks for it.
fn extract_key(
    source: &Source,
    headers: &HeaderMap,
    body: &[u8],
    key: &EventKey,
    window: &dyn Fn(Duration) -> KeyWindow,
) -> Result<KeyAssignment, KeyError> {
    let uses_rules = *key == EventKey::Rules;
    let mut earlier_key = uses_rules.then(|| source.keys.ignored_key(headers)).flatten();
    let found = source.keys.find_event_key(&source.verifier, headers, body, key)?;
    if let Some(found) = &found
        && uses_rules
        && found.namespace == KeyNamespace::Header
    {
        earlier_key.get_or_insert_with(|| found.key.clone());
    }
    let hash = || Some(EventKeyMatch::content_hash(body, source.content_hash_window?));
    let Some(found) = found.or_else(hash) else {
        return Ok(KeyAssignment { earlier_key, ..KeyAssignment::default() });
    };
    let KeyWindow { expires_at, as_of } = window(found.window.unwrap_or(source.dedup_window));
    let claim = DedupKeyClaim {
        key: found.key,
        namespace: found.namespace,
        origin: found.origin,
        expires_at,
        as_of,
        on_conflict: Some(source.conflict_policy(found.origin, found.is_signed)),
    };
    Ok(KeyAssignment {
        claim: Some(claim),
        found_by: found.found_by,
        earlier_key,
        ..KeyAssignment::default()
    })
}

/// Whether another body under the signed key of an event is forged: the signature covers only a checksum.
pub(super) fn refuses_other_body(source: &Source, part: &EventPart) -> bool {
    source.verifier.signs_checksum() && matches!(part.key, EventKey::Known(..))
}

impl Engine {
    /// An event with its deliveries, ready to be committed.
    pub(super) fn draft_event(
        &self,
        context: &RequestContext<'_>,
        part: &EventPart,
        key: KeyAssignment,
        payload: Payload,
    ) -> EventDraft {
        let mut unrouted = Vec::new();
        let deliveries = self.plan_deliveries(context, part, &payload, &mut unrouted);
        let event = NewEvent {
            id: new_id(&*self.shared.rng, context.now),
            request_id: context.request_id,
            source: context.source.id,
            received_at: context.now,
            key: key.claim,
            signed_bytes: key.signed_bytes,
            earlier_key: key.earlier_key,
            compared_fingerprint: key.compared_fingerprint,
            kind: part.kind.clone(),
            attributes: part.attributes.clone(),
            payload,
            deliveries: deliveries.iter().map(|planned| planned.new.clone()).collect(),
            // For a waiting sender, joining the delivery decides whether to revive it; and a message
            // that is requested again must not be sent again.
            revive_dead: context.source.revive_dead
                && context.sync().is_none()
                && context.direct.is_none(),
            refuses_other_body: refuses_other_body(context.source, part),
            from_duplicate: None,
            releases: None,
            status_update: context.status_update(part),
            intake: IntakeRecord {
                verified_by: context.reason.verified_by.clone(),
                key_from: key.found_by,
                unrouted: encode_unrouted(&unrouted),
            },
            bodies: deliveries.iter().filter_map(|planned| planned.transformed.clone()).collect(),
        };
        EventDraft { event, deliveries }
    }

    /// The direct delivery, if any, and one for each route that takes the event.
    fn plan_deliveries(
        &self,
        context: &RequestContext<'_>,
        part: &EventPart,
        payload: &Payload,
        unrouted: &mut Vec<SkippedRoute>,
    ) -> Vec<PlannedDelivery> {
        let entry = context.entry;
        let mut planned: Vec<PlannedDelivery> =
            Vec::with_capacity(entry.routes.len() + usize::from(context.direct.is_some()));
        planned.extend(context.direct.as_ref().map(|direct| {
            let DirectDelivery { id, target, min_delay, callback } = direct;
            let mut planned =
                plan_delivery(context, part, &payload.body, target, *id, *min_delay, None);
            planned.new.callback.clone_from(callback);
            planned
        }));
        let (headers, body) = context.content(part);
        let secret_headers =
            LazyCell::new(|| self.shared.secrets.load().of(&context.source.name).headers.clone());
        let is_visible = |name: &HeaderName| routing::is_visible_header(name, &secret_headers);
        let (kind, source) = (part.kind.as_ref(), Some(context.source.name.as_str()));
        let input = RouteInput::new(headers, body, kind, source, &is_visible);
        let mut failed = Vec::new();
        for RouteRuntime { route, target } in &entry.routes {
            let id: DeliveryId = new_id(&*self.shared.rng, context.now);
            // Two routes to one destination make one delivery.
            let is_repeated =
                planned.iter().any(|other| other.new.destination == route.destination);
            let routed = if part.is_ping {
                Err(NotRoutedReason::Ping)
            } else if is_repeated {
                Err(NotRoutedReason::SameDestination)
            } else {
                routing::apply_route(route, id, &input, &entry.metrics)
            };
            match routed {
                Ok(transformed) => planned.push(plan_delivery(
                    context,
                    part,
                    &payload.body,
                    target,
                    id,
                    Duration::ZERO,
                    transformed,
                )),
                Err(reason) if reason.is_failure() => failed.push((route, target, id, reason)),
                Err(reason) => unrouted.push(SkippedRoute { to: route.to.clone(), reason }),
            }
        }
        let reaches_none = planned.is_empty();
        for (route, target, delivery, reason) in failed {
            let is_repeated =
                planned.iter().any(|other| other.new.destination == route.destination);
            if reaches_none && !is_repeated {
                let body =
                    NewDeliveryBody { delivery, route: route.id, body: None, filter_failed: true };
                planned.push(plan_failed_delivery(context, &payload.body, target, body));
            } else {
                unrouted.push(SkippedRoute { to: route.to.clone(), reason });
            }
        }
        planned
    }
}

/// Sorts the ids of the events of one request: ids made in the same millisecond have no order, and
/// lists must show the events in the order of the request.
pub(super) fn order_ids(drafts: &mut [EventDraft]) {
    if drafts.len() < 2 {
        return;
    }
    let mut ids: Vec<_> = drafts.iter().map(|draft| draft.event.id).collect();
    ids.sort_unstable();
    for (draft, id) in drafts.iter_mut().zip(ids) {
        draft.event.id = id;
    }
}

/// One delivery, with a slot in its lane if it may be attempted at once and there is room.
fn plan_delivery(
    context: &RequestContext<'_>,
    part: &EventPart,
    original: &Bytes,
    target: &RouteTarget,
    id: DeliveryId,
    min_delay: Duration,
    transformed: Option<NewDeliveryBody>,
) -> PlannedDelivery {
    let body = transformed.as_ref().and_then(|new| new.body.as_ref()).unwrap_or(original);
    let (headers, content) = context.content(part);
    let order_key = target.order_key(headers, content, part.ordering_key.as_ref());
    let delay = target.delay().max(min_delay);
    let new = NewDelivery {
        id,
        destination: target.destination,
        claim: None,
        delay,
        order_key,
        callback: report_of_dead(context, target),
    };
    reserve_slot(new, target, body.len(), transformed)
}

/// The delivery of an event that reaches no destination because filters failed. The attempt runs the
/// filter again and reports its error, so that the event is a dead letter, which can be replayed once the
/// route is fixed. It has no ordering key: nothing waits for an event that may not be sent at all.
fn plan_failed_delivery(
    context: &RequestContext<'_>,
    original: &Bytes,
    target: &RouteTarget,
    body: NewDeliveryBody,
) -> PlannedDelivery {
    let new = NewDelivery {
        id: body.delivery,
        destination: target.destination,
        claim: None,
        delay: Duration::ZERO,
        order_key: None,
        callback: report_of_dead(context, target),
    };
    reserve_slot(new, target, original.len(), Some(body))
}

/// The callback that reports the death of a delivery. A report is an event of the outbox: its own death
/// must not cause another one.
fn report_of_dead(context: &RequestContext<'_>, target: &RouteTarget) -> Option<Arc<Callback>> {
    if context.source.is_outbox() { None } else { target.on_dead.clone() }
}

fn reserve_slot(
    new: NewDelivery,
    target: &RouteTarget,
    body_bytes: usize,
    transformed: Option<NewDeliveryBody>,
) -> PlannedDelivery {
    let reserved = match new.delay.is_zero() {
        true => target.reserve(new.id, body_bytes),
        false => None,
    };
    let (place, claim) = reserved.map(|(lane, slot, claim)| ((lane, slot), claim)).unzip();
    let new = NewDelivery { claim, ..new };
    PlannedDelivery { new, place, transformed }
}
