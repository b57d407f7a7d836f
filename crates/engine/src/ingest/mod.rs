//! The path of an incoming request, read from top to bottom:
//!
//! `receive` → `verify` → `accept` (parse into events, extract their keys) → `store_events` (plan
//! deliveries) → `commit` → `hand_over` to the lanes.
//!
//! The server calls [`Engine::receive`]. Quarantine releases, messages ([`Engine::send_message`]) and
//! duplicates that are delivered anyway join the path further down. An answer is given only after the
//! commit: after `Ok` the events survive a power cut.

mod deliver_anyway;
mod plan;
#[cfg(test)]
mod replay_attacks;
mod send_message;

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use surehook_core::{
    event::{DuplicateReason, NewDelivery, NewEvent, Payload, PendingRoute},
    source::{PublicUrl, Source},
    store::{AbandonedClaim, AdmitResult, ClaimedDelivery, ConfirmedDelivery, NextStep},
    sync::{SyncResponse, SyncResult},
};
use surehook_retry::FailureClass;
use surehook_types::{
    ids::{EventId, RequestId, SourceId},
    inflate::DecodedRequest,
    name::Name,
    rng::new_id,
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::{
    key::{DedupKey, KeyError},
    provider::{
        EventPart, HandshakeAnswer, HandshakeKind, HandshakeRequest, ParsedRequest, ProviderReply,
        RefusalPolicy,
    },
    request::{IncomingRequest, claimed_origins},
    verify::{VerifiedRequest, Verifier, VerifyError},
};

use self::plan::{EventDraft, KeyAssignment, PlannedDelivery, RequestContext, extract_keys};
pub use self::{
    deliver_anyway::DeliverAnywayError,
    send_message::{AcceptedMessage, SendMessageError, SendTarget},
};
use crate::{
    Engine,
    body_memory::{BodyMemoryError, BodyReservation},
    feed::{EventReceived, LiveUpdate},
    lane::QueuedDelivery,
    registry::SourceRuntime,
    run_to_completion::RunToCompletion,
    sync::SyncWait,
    waiters::WaiterResult,
};

/// An incoming request with its whole body.
#[derive(Debug)]
pub struct InboundRequest {
    /// The path after the source's name.
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    /// The exact bytes: signatures are computed over them.
    pub body: Bytes,
    /// The sender's address.
    pub remote: Arc<str>,
    /// The memory that the body takes, and everything that is made of it until it is stored.
    pub memory: BodyReservation,
}

/// One event of an accepted request.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    /// For a duplicate, the original event.
    pub event: EventId,
    pub key: Option<DedupKey>,
    pub duplicate: bool,
    /// Whether this duplicate made dead deliveries of the original run again.
    pub revived: bool,
    /// Why it is a duplicate, if it is one.
    pub reason: DuplicateReason,
    /// The event that held its key with another body.
    pub key_conflict: Option<EventId>,
}

impl ReceivedEvent {
    /// A duplicate of this event.
    fn known(original: EventId, key: Option<DedupKey>) -> Self {
        let reason = DuplicateReason::SameKey;
        Self { event: original, key, duplicate: true, revived: false, reason, key_conflict: None }
    }
}

/// The result of an accepted request.
#[derive(Debug, Default)]
pub struct ReceiveOutcome {
    /// In the order in which they occur in the request.
    pub received: Vec<ReceivedEvent>,
    /// The response for a sender that waited for the delivery result.
    pub sync: Option<SyncResponse>,
    /// The response that this provider expects instead of the usual one.
    pub reply: Option<ProviderReply>,
}

/// Why a request was not accepted. One variant for each thing that the sender should do next.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("there is no source with this name")]
    UnknownSource,
    #[error("this source is disabled")]
    Disabled,
    #[error("this source is misconfigured and cannot accept requests; fix its settings")]
    Misconfigured,
    #[error("the request could not be verified: {0}")]
    NotVerified(#[source] VerifyError),
    #[error("the request is in quarantine until the settings are fixed: {0}")]
    Quarantined(#[source] Box<IngestError>),
    /// The sender should retry: the signing certificate may be available later.
    #[error("the certificate that the request was signed with cannot be fetched: {0}")]
    Certificate(String),
    /// The request has more than one key.
    #[error("{0}")]
    Key(#[source] KeyError),
    /// The signature covers only a checksum of the body, so one of the two is forged.
    #[error("the id of this request was already received with another body, as {0}")]
    OtherBody(EventId),
    #[error("{0}")]
    Memory(#[from] BodyMemoryError),
    #[error("the event could not be stored")]
    Store(#[source] StoreError),
}

impl IngestError {
    /// Whether the request carries no signature or token at all, so that anyone could have sent it.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::NotVerified(refused) if refused.has_no_credentials())
    }

    /// The stable machine-readable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownSource => "unknown_source",
            Self::Disabled => "source_disabled",
            Self::Misconfigured => "source_misconfigured",
            Self::NotVerified(refused) => refused.code(),
            Self::Quarantined(_) => QUARANTINED,
            Self::Certificate(_) => "certificate_unavailable",
            Self::Key(_) => "repeated_key",
            Self::OtherBody(_) => "other_body",
            Self::Memory(_) | Self::Store(StoreError::Overloaded) => "overloaded",
            Self::Store(StoreError::Full) => "disk_full",
            Self::Store(StoreError::Unavailable(_)) => "database_unavailable",
            Self::Store(StoreError::Unknown(_)) => "outcome_unknown",
            Self::Store(_) => "store_failed",
        }
    }
}

/// The code of a request that was put into quarantine.
pub const QUARANTINED: &str = "quarantined";

/// Why a request is accepted.
#[derive(Clone, Debug)]
pub(crate) struct AcceptReason {
    pub(crate) verified: VerifiedRequest,
    /// The same as a label for people.
    pub(crate) verified_by: Option<Arc<str>>,
    /// The quarantined request that this one releases.
    pub(crate) releases: Option<RequestId>,
    /// An operator accepts the request even if its keys cannot be extracted.
    pub(crate) is_forced: bool,
}

impl AcceptReason {
    pub(crate) fn new(source: &Source, verified: VerifiedRequest) -> Self {
        let verified_by = source.verifier.label(verified);
        Self { verified, verified_by, releases: None, is_forced: false }
    }

    /// A reason other than a signature, such as an API token.
    pub(crate) fn without_signature(label: &'static str) -> Self {
        Self {
            verified: VerifiedRequest { by: label, secret_index: 0 },
            verified_by: Some(label.into()),
            releases: None,
            is_forced: false,
        }
    }
}

/// A configured source that can be used.
#[derive(Clone, Debug)]
pub struct ReadySource(pub(crate) Arc<SourceRuntime>);

impl ReadySource {
    fn source(&self) -> Option<&Source> {
        self.0.source.as_ref().ok()
    }

    pub fn id(&self) -> Option<SourceId> {
        self.source().map(|source| source.id)
    }

    /// The source's own limit on bodies.
    pub fn max_body_bytes(&self) -> Option<usize> {
        self.source()?.max_body_bytes
    }

    /// The header that carries the source's secret itself.
    pub fn secret_header(&self) -> Option<&HeaderName> {
        self.source()?.verifier.secret_header()
    }

    /// Whether refused requests must be stored, because the sender does not send them again.
    pub fn quarantines_refused(&self) -> bool {
        self.source().is_some_and(|source| source.on_refusal == RefusalPolicy::Quarantine)
    }

    /// Whether the sample of refused requests includes their bodies.
    pub fn keeps_refused_bodies(&self) -> bool {
        self.source().is_some_and(|source| source.keep_refused_bodies)
    }
}

/// Verifies a request with the URL that it claims to have called: only for sources from before
/// `public_url` was required.
fn verify_by_claimed_url(
    verifier: &Verifier,
    incoming: &IncomingRequest<'_>,
    now: Timestamp,
) -> Result<VerifiedRequest, VerifyError> {
    let mut verified = Err(VerifyError::UnknownUrl);
    for origin in claimed_origins(incoming.headers) {
        verified = verifier.verify(&IncomingRequest { origin: Some(&origin), ..*incoming }, now);
        if verified.is_ok() {
            break;
        }
    }
    verified
}

impl Engine {
    /// Finds the source before the body is read, so that an unwanted body is not buffered.
    pub fn source(&self, name: &str) -> Result<ReadySource, IngestError> {
        let registry = self.registry.load();
        let entry = registry.sources.get(name).ok_or(IngestError::UnknownSource)?;
        match &entry.source {
            Err(_) => Err(IngestError::Misconfigured),
            // The outbox accepts messages over the API only.
            Ok(source) if source.is_outbox() => Err(IngestError::UnknownSource),
            Ok(source) if !source.enabled => Err(IngestError::Disabled),
            Ok(_) => Ok(ReadySource(Arc::clone(entry))),
        }
    }

    /// Receives a request: verifies it, stores its events and hands their deliveries to the lanes.
    /// After `Ok` its events survive a power cut and the request is consumed; a refused request is left
    /// unchanged.
    pub async fn receive(
        self: &Arc<Self>,
        source: &ReadySource,
        request: &mut InboundRequest,
    ) -> Result<ReceiveOutcome, IngestError> {
        let started = Instant::now();
        let entry = &source.0;
        let Ok(source) = &entry.source else { return Err(IngestError::Misconfigured) };
        let now = self.shared.clock.now();
        let verified = self.verify(source, &self.incoming(source, request), now).await;
        let accepted = match verified {
            Ok(verified) => {
                let reason = AcceptReason::new(source, verified);
                self.accept(entry, source, request, reason, now).await
            }
            Err(error) => Err(error),
        };
        let outcome = match accepted {
            Err(error @ IngestError::NotVerified(_)) => {
                return self.answer_unverified(source, request, error, now).await;
            }
            Err(error @ IngestError::Key(_)) => {
                return Err(self.refuse(source, request, error, now).await);
            }
            accepted => accepted?,
        };
        entry.metrics.seconds.observe(started.elapsed().as_secs_f64());
        Ok(outcome)
    }

    /// Verifies a request as of `now`, with the certificate that it names if there is one.
    pub(crate) async fn verify(
        &self,
        source: &Source,
        incoming: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, IngestError> {
        let verifier = &source.verifier;
        if source.is_lenient && incoming.origin.is_none() && verifier.covers_url() {
            return verify_by_claimed_url(verifier, incoming, now)
                .map_err(IngestError::NotVerified);
        }
        match verifier.certificate_url(incoming).map_err(IngestError::NotVerified)? {
            None => verifier.verify(incoming, now).map_err(IngestError::NotVerified),
            Some(url) => {
                let checked = self.certificates.verify(verifier, &url, incoming, now);
                Box::pin(checked).await
            }
        }
    }

    /// Parses a verified request into its events, extracts their keys, and stores them.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        entry: &SourceRuntime,
        source: &Source,
        request: &mut InboundRequest,
        reason: AcceptReason,
        now: Timestamp,
    ) -> Result<ReceiveOutcome, IngestError> {
        // The signature covers the bytes as received; the content is read decompressed.
        let (body, memory) = (&request.body, &mut request.memory);
        let readable =
            DecodedRequest::new_within(&request.headers, body, |bytes| memory.grow(bytes))?;
        let (headers, body) = readable.request(&request.headers, &request.body);
        let raw = self.incoming(source, request);
        let decoded = IncomingRequest { headers, body, ..raw };
        let parts = match source.parse_request(&decoded, reason.verified) {
            ParsedRequest::Handshake(reply) => {
                return Ok(ReceiveOutcome { reply: Some(reply), ..ReceiveOutcome::default() });
            }
            ParsedRequest::Events(parts) => parts,
        };
        let reply = source.provider.success_reply(&decoded);
        // Every reason to refuse the request comes before it is consumed.
        let window = |span| self.shared.guard.key_window(now, span);
        let keys = match extract_keys(source, &raw, &readable, &parts, &window) {
            Ok(keys) => keys,
            Err(_) if reason.is_forced => parts.iter().map(|_| KeyAssignment::default()).collect(),
            Err(problem) => return Err(IngestError::Key(problem)),
        };
        let request_id = reason.releases.unwrap_or_else(|| new_id(&*self.shared.rng, now));
        let releases = self.find_quarantined(source, request, &reason);
        let mut context =
            RequestContext::new(entry, source, request, readable, reason, request_id, now);
        context.releases = releases;
        let outcome = self.store_events(context, parts, keys).await?;
        for event in &outcome.received {
            let metrics = &entry.metrics;
            match (event.duplicate, event.reason) {
                (false, _) => &metrics.accepted,
                (true, DuplicateReason::SameKey) => &metrics.duplicate,
                (true, DuplicateReason::SameSignedBytes) => &metrics.same_signed_bytes,
            }
            .inc();
            metrics.key_conflicts.inc_by(u64::from(event.key_conflict.is_some()));
        }
        Ok(ReceiveOutcome { reply, ..outcome })
    }

    /// Answers a request other than POST with which a provider checks the URL.
    pub fn answer_handshake(
        &self,
        source: &ReadySource,
        method: &Method,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> HandshakeAnswer {
        let source = source.0.source.as_ref().ok()?;
        let verify_token = source.verify_token.as_ref();
        let request = HandshakeRequest { method, query, headers, body: b"", verify_token };
        source.provider.answer_handshake(&request)
    }

    /// Answers a request that does not verify: it may bring the secret of later signatures.
    async fn answer_unverified(
        &self,
        source: &Source,
        request: &InboundRequest,
        error: IngestError,
        now: Timestamp,
    ) -> Result<ReceiveOutcome, IngestError> {
        let handshake = HandshakeRequest {
            method: &Method::POST,
            query: request.query.as_deref(),
            headers: &request.headers,
            body: &request.body,
            verify_token: source.verify_token.as_ref(),
        };
        let Some(Ok(reply)) = source.provider.answer_handshake(&handshake) else {
            return Err(self.refuse(source, request, error, now).await);
        };
        match source.provider.handshake {
            // The secret must be kept for a person to read.
            HandshakeKind::SentSecret => {
                let is_kept = self.keep_handshake(source, request, now).await;
                if !is_kept.map_err(IngestError::Store)? {
                    return Err(error);
                }
            }
            HandshakeKind::None
            | HandshakeKind::Automatic
            | HandshakeKind::VerifyToken
            | HandshakeKind::EchoedSecret => {}
        }
        Ok(ReceiveOutcome { reply: Some(reply), ..ReceiveOutcome::default() })
    }

    pub(crate) fn incoming<'r>(
        &'r self,
        source: &'r Source,
        request: &'r InboundRequest,
    ) -> IncomingRequest<'r> {
        let origin = source.public_url.as_ref().or(self.public_url.as_ref());
        IncomingRequest {
            source: source.name.as_str(),
            path: &request.path,
            query: request.query.as_deref(),
            headers: &request.headers,
            body: &request.body,
            origin: origin.map(PublicUrl::as_str),
        }
    }

    /// Plans and commits the events of a request together, except those that memory already knows as
    /// duplicates.
    async fn store_events(
        self: &Arc<Self>,
        context: RequestContext<'_>,
        parts: Vec<EventPart>,
        keys: Vec<KeyAssignment>,
    ) -> Result<ReceiveOutcome, IngestError> {
        let mut received = Vec::with_capacity(parts.len());
        let mut drafts = Vec::with_capacity(parts.len());
        let mut waiting_bytes = context.body.len();
        for (part, key) in parts.into_iter().zip(keys) {
            let payload = context.payload(part.body.as_ref());
            if let Some(event) = self.find_recent_duplicate(&context, &key, &payload) {
                let key = key.claim.map(|claim| claim.key);
                received.push(Some(ReceivedEvent::known(event, key)));
                continue;
            }
            if key.claim.is_none() {
                context.entry.metrics.no_key.inc();
            }
            received.push(None);
            let draft = self.draft_event(&context, &part, key, payload);
            let transformed = draft.event.bodies.iter().filter_map(|new| new.body.as_ref());
            waiting_bytes += transformed.chain(&part.body).map(Bytes::len).sum::<usize>();
            drafts.push(draft);
        }
        plan::order_ids(&mut drafts);
        if drafts.is_empty() {
            return Ok(ReceiveOutcome {
                received: received.into_iter().flatten().collect(),
                ..ReceiveOutcome::default()
            });
        }
        // The request leaves the quarantine in the transaction that stores its first event.
        drafts[0].event.releases = context.releases;
        let waits = self.begin_sync_waits(&context, &drafts);
        let (source, mut memory) = (context.source, context.into_memory());
        // What was unpacked is gone now; what was split off and transformed waits for the commit.
        memory.resize(waiting_bytes)?;
        let commit = Arc::clone(self).commit(drafts, source.name.clone());
        // A commit continues without its sender, and keeps its memory reserved.
        let commit = async move { commit.await.map(|committed| (committed, memory)) };
        let (committed, _memory) = RunToCompletion::new(commit, &self.shared.tasks).await?;
        // Boxed: few senders wait, and the future would take its space in every connection.
        let sync = if waits.is_empty() {
            None
        } else {
            Box::pin(self.answer_sync_waits(source, waits, &committed)).await?
        };
        let mut committed = committed.into_iter();
        let received = received.into_iter().filter_map(|known| known.or_else(|| committed.next()));
        Ok(ReceiveOutcome { received: received.collect(), sync, reply: None })
    }

    /// Finds a duplicate in memory, without a transaction. Not for a sender that waits: it needs the
    /// result of the delivery, and memory only knows that the event exists.
    fn find_recent_duplicate(
        &self,
        context: &RequestContext<'_>,
        key: &KeyAssignment,
        payload: &Payload,
    ) -> Option<EventId> {
        if context.sync().is_some() {
            return None;
        }
        let claim = key.claim.as_ref()?;
        let fingerprint = key.compared_fingerprint.as_ref().unwrap_or(&payload.fingerprint);
        self.store.find_committed(context.source.id, claim, fingerprint, context.now)
    }

    /// Registers a waiting sender for each event. Must happen before the commit, or the result of a
    /// fast attempt would be missed.
    fn begin_sync_waits(
        &self,
        context: &RequestContext<'_>,
        drafts: &[EventDraft],
    ) -> Vec<SyncWait> {
        let Some(config) = context.sync() else { return Vec::new() };
        let until = tokio::time::Instant::now() + config.deadline;
        let waits = drafts.iter().map(|draft| {
            let mut deliveries = draft.deliveries.iter();
            let awaited = deliveries.find(|one| one.new.destination == config.destination);
            SyncWait {
                config,
                request: context.request_id,
                received_at: context.now,
                until,
                waiter: awaited.map(|planned| self.shared.waiters.watch(planned.new.id)),
            }
        });
        waits.collect()
    }

    /// Waits for the results of all events of a request and merges them into one response.
    async fn answer_sync_waits(
        self: &Arc<Self>,
        source: &Source,
        waits: Vec<SyncWait>,
        committed: &[ReceivedEvent],
    ) -> Result<Option<SyncResponse>, IngestError> {
        let mut merged: Option<SyncResponse> = None;
        for (wait, received) in waits.into_iter().zip(committed) {
            let response = self.answer_waiting_sender(wait, received).await;
            let response = response.map_err(IngestError::Store)?;
            self.telemetry.count_sync_answer(source.name.as_str(), response.as_str());
            merged = Some(match merged {
                Some(before) => before.combine(response),
                None => response,
            });
        }
        Ok(merged)
    }

    /// Stores the events in one transaction and, once they are on disk, hands their deliveries to the
    /// lanes.
    async fn commit(
        self: Arc<Self>,
        drafts: Vec<EventDraft>,
        source: Name,
    ) -> Result<Vec<ReceivedEvent>, IngestError> {
        let mut planned = Vec::with_capacity(drafts.len());
        let events: Arc<[NewEvent]> = drafts
            .into_iter()
            .map(|draft| {
                planned.push(draft.deliveries);
                draft.event
            })
            .collect();
        let admitted = self.store.admit(Arc::clone(&events)).await;
        if matches!(admitted, Err(StoreError::Unknown(_))) {
            // They may be stored, and claimed for lanes that drop them with this request.
            let due_at = self.shared.clock.now();
            let claims = planned.iter().flatten().filter_map(|planned| {
                let NewDelivery { id, destination, claim, .. } = &planned.new;
                let (destination, delivery) = (*destination, Some(*id));
                claim.map(|proof| AbandonedClaim { destination, proof, delivery, due_at })
            });
            self.shared.lost_claims.add(claims);
        }
        let admitted = admitted.map_err(IngestError::Store)?;
        if admitted.len() != events.len() {
            return Err(IngestError::Store(StoreError::Refused("no answer".to_owned())));
        }
        let committed = admitted.into_iter().zip(events.iter().zip(planned));
        committed
            .map(|(admitted, (event, planned))| {
                self.finish_commit(admitted, event, &source, planned)
            })
            .collect()
    }

    /// What follows the commit of one event: live updates, and work for the lanes.
    fn finish_commit(
        &self,
        admitted: AdmitResult,
        event: &NewEvent,
        source: &Name,
        planned: Vec<PlannedDelivery>,
    ) -> Result<ReceivedEvent, IngestError> {
        let key = event.key.as_ref().map(|claim| claim.key.clone());
        match admitted {
            AdmitResult::Accepted { held, confirmed, key_conflict } => {
                if let Some(confirmed) = confirmed {
                    self.finish_status_update(&confirmed, event.received_at);
                }
                if let Some(tracer) = &self.shared.tracer {
                    tracer.record_received(event, source, self.shared.clock.now());
                }
                self.shared.feed.publish(event.received_at, || {
                    LiveUpdate::EventReceived(EventReceived {
                        id: event.id,
                        source: Some(source.to_string()),
                        key: key.as_ref().map(|key| key.as_str().to_owned()),
                        kind: event.kind.clone(),
                        received_at: event.received_at,
                        body_bytes: event.payload.body.len() as u64,
                    })
                });
                // Deliveries that must not start now drop their slots.
                for delivery in planned.into_iter().filter(|one| !held.contains(&one.new.id)) {
                    self.hand_over(delivery, event, source);
                }
                let received = ReceivedEvent::known(event.id, key);
                Ok(ReceivedEvent { duplicate: false, key_conflict, ..received })
            }
            AdmitResult::Duplicate(duplicate) => {
                let revived = !duplicate.revived.is_empty();
                for destination in duplicate.revived {
                    self.wake_lane(destination);
                }
                Ok(ReceivedEvent {
                    revived,
                    reason: duplicate.reason,
                    ..ReceivedEvent::known(duplicate.original, key)
                })
            }
            AdmitResult::DeliveredBefore(event) => Ok(ReceivedEvent::known(event, key)),
            AdmitResult::SourceGone => Err(IngestError::UnknownSource),
            AdmitResult::OtherBody(original) => Err(IngestError::OtherBody(original)),
        }
    }

    /// Publishes the new state of a delivery whose message status arrived with this event.
    fn finish_status_update(&self, confirmed: &ConfirmedDelivery, at: Timestamp) {
        let ConfirmedDelivery { delivery, event, destination, attempts, next } = *confirmed;
        self.shared.feed.publish(at, || {
            let name = self.registry.load().names.get(&destination).cloned();
            LiveUpdate::settled(delivery, event, name, next, attempts, at)
        });
        self.shared.notify_waiters(delivery, || {
            let class = matches!(next, NextStep::Dead(_)).then_some(FailureClass::Permanent);
            WaiterResult::Ended(SyncResult { next, class, response: Vec::new() })
        });
        match next {
            NextStep::RetryAt(due_at) => self.expect_due(destination, due_at),
            // Others with the same ordering key may have waited for it to end.
            NextStep::Succeeded | NextStep::Dead(_) => self.wake_lane(destination),
        }
    }

    /// Queues a committed delivery in its lane. Without a slot it stays in the store, and the lane
    /// fetches it from there.
    fn hand_over(&self, delivery: PlannedDelivery, event: &NewEvent, source: &Name) {
        let PlannedDelivery { new, place, transformed } = delivery;
        let (Some((lane, slot)), Some(proof)) = (place, new.claim) else {
            // By id: the lane may have been replaced during the commit.
            return self.wake_lane(new.destination);
        };
        let claimed = ClaimedDelivery {
            id: new.id,
            event: event.id,
            destination: new.destination,
            source: source.clone(),
            key: event.key.as_ref().map(|claim| claim.key.clone()),
            proof,
            attempts: 0,
            throttled: 0,
            created_at: event.received_at,
            received_at: event.received_at,
            payload: match transformed.as_ref().and_then(|new| new.body.clone()) {
                Some(body) => event.payload.with_transformed_body(body),
                None => event.payload.clone(),
            },
            // A route that failed has made no body yet; the attempt applies it again.
            pending_route: transformed.filter(|new| new.body.is_none()).map(|new| PendingRoute {
                id: new.route,
                runs_filter: new.filter_failed,
                kind: event.kind.clone(),
            }),
            ordered: new.order_key.is_some(),
        };
        lane.enqueue(QueuedDelivery { claimed, slot });
    }
}
