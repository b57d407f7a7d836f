//! Taking a request in: verify, split, key, route, commit. Answers only what is on the disk.

mod anyway;
mod commit;
mod plan;
mod send;

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use surehook_core::{
    event::Payload,
    ids::{EventId, RequestId},
    inflate::DecodedRequest,
    key::{DedupKey, KeyError},
    provider::{EventPart, ParsedRequest, ProviderReply, RefusalPolicy},
    request::IncomingRequest,
    rng::new_id,
    source::{PublicUrl, Source},
    store::StoreError,
    sync::SyncResponse,
    time::Timestamp,
    verify::{VerifiedRequest, VerifyError},
};

use self::plan::{EventDraft, KeyAssignment, RequestContext};
pub use self::{
    anyway::DeliverAnywayError,
    send::{AcceptedMessage, SendMessageError, SendTarget},
};
use crate::{Engine, registry::SourceRuntime, run_to_completion::RunToCompletion, sync::SyncWait};

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
    pub remote: Arc<str>,
}

/// What became of one event of a request.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    /// The event, or the original of which it is a duplicate.
    pub event: EventId,
    /// Its key.
    pub key: Option<DedupKey>,
    /// Whether it was known already.
    pub duplicate: bool,
}

/// What became of a request that was let in.
#[derive(Debug, Default)]
pub struct ReceiveOutcome {
    /// Its events, in their order.
    pub received: Vec<ReceivedEvent>,
    /// What a sender is told that waited for the result.
    pub sync: Option<SyncResponse>,
    /// What this provider is told instead of our usual answer.
    pub reply: Option<ProviderReply>,
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
    NotVerified(#[source] VerifyError),
    /// It is kept aside until somebody releases it.
    #[error("the request is kept aside until the settings are mended: {0}")]
    Quarantined(#[source] Box<IngestError>),
    /// What its signature is checked with cannot be had at the moment.
    #[error("the certificate that the request was signed with cannot be fetched: {0}")]
    Certificate(String),
    /// The request has more than one key.
    #[error("{0}")]
    Key(#[source] KeyError),
    /// The store did not take it.
    #[error("the event could not be stored")]
    Store(#[source] StoreError),
}

impl IngestError {
    /// Whether the request shows nothing that could prove anything.
    pub(crate) fn has_no_credentials(&self) -> bool {
        matches!(self, Self::NotVerified(refused) if refused.has_no_credentials())
    }

    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownSource => "unknown_source",
            Self::Disabled => "source_disabled",
            Self::Misconfigured => "source_misconfigured",
            Self::NotVerified(refused) => refused.code(),
            Self::Quarantined(_) => QUARANTINED,
            Self::Certificate(_) => "certificate_unavailable",
            Self::Key(_) => "repeated_key",
            Self::Store(StoreError::Overloaded) => "overloaded",
            Self::Store(StoreError::Full) => "disk_full",
            Self::Store(_) => "store_failed",
        }
    }
}

/// The word for a request that is kept aside.
pub const QUARANTINED: &str = "quarantined";

/// Why a request is let in.
#[derive(Clone, Debug)]
pub(crate) struct AcceptReason {
    pub(crate) verified: VerifiedRequest,
    /// The same for people.
    pub(crate) verified_by: Option<Arc<str>>,
    /// The request in quarantine that it is.
    pub(crate) releases: Option<RequestId>,
    /// A person wants it in whatever is wrong with it.
    pub(crate) is_forced: bool,
}

impl AcceptReason {
    pub(crate) fn new(source: &Source, verified: VerifiedRequest) -> Self {
        let verified_by = source.verifier.label(verified);
        Self { verified, verified_by, releases: None, is_forced: false }
    }
}

/// A source that a request was found for.
#[derive(Clone, Debug)]
pub struct ReadySource(pub(crate) Arc<SourceRuntime>);

impl ReadySource {
    /// The source's own limit on bodies.
    pub fn max_body_bytes(&self) -> Option<usize> {
        self.0.source.as_ref().ok().and_then(|source| source.max_body_bytes)
    }

    /// The header that holds the source's secret itself.
    pub fn secret_header(&self) -> Option<&HeaderName> {
        self.0.source.as_ref().ok().and_then(|source| source.verifier.secret_header())
    }

    /// Whether what is refused must be kept, because the sender does not send it again.
    pub fn quarantines_refused(&self) -> bool {
        let source = self.0.source.as_ref();
        source.is_ok_and(|source| source.on_refusal == RefusalPolicy::Quarantine)
    }

    /// Whether the sample of refused requests keeps their bodies.
    pub fn keeps_refused_bodies(&self) -> bool {
        self.0.source.as_ref().is_ok_and(|source| source.keep_refused_bodies)
    }
}

impl Engine {
    /// Finds the source before the body is read: what nobody wants need not be buffered.
    pub fn source(&self, name: &str) -> Result<ReadySource, IngestError> {
        let registry = self.registry.load();
        let entry = registry.sources.get(name).ok_or(IngestError::UnknownSource)?;
        match &entry.source {
            Err(_) => Err(IngestError::Misconfigured),
            // Nobody sends webhooks to it.
            Ok(source) if source.is_outbox() => Err(IngestError::UnknownSource),
            Ok(source) if !source.enabled => Err(IngestError::Disabled),
            Ok(_) => Ok(ReadySource(Arc::clone(entry))),
        }
    }

    /// Takes a request in. After `Ok` all of it survives a power cut, and the request is used up; one
    /// that is refused is left as it is.
    pub async fn receive(
        self: &Arc<Self>,
        source: &ReadySource,
        request: &mut InboundRequest,
    ) -> Result<ReceiveOutcome, IngestError> {
        let begun = Instant::now();
        let entry = &source.0;
        let Ok(source) = &entry.source else { return Err(IngestError::Misconfigured) };
        let now = self.shared.clock.now();
        let verified = self.verify(source, &self.incoming(source, request), now).await;
        let taken = match verified {
            Ok(verified) => {
                let pass = AcceptReason::new(source, verified);
                self.take_in((entry, source), request, pass, now).await
            }
            Err(error) => Err(error),
        };
        let outcome = match taken {
            Err(error @ (IngestError::NotVerified(_) | IngestError::Key(_))) => {
                return Err(self.refuse(source, request, error, now).await);
            }
            taken => taken?,
        };
        entry.metrics.seconds.observe(begun.elapsed().as_secs_f64());
        Ok(outcome)
    }

    /// Takes a request in that may come in.
    pub(crate) async fn take_in(
        self: &Arc<Self>,
        (entry, source): (&SourceRuntime, &Source),
        request: &mut InboundRequest,
        pass: AcceptReason,
        now: Timestamp,
    ) -> Result<ReceiveOutcome, IngestError> {
        // The signature is over what came; what it says is read unpacked.
        let readable = DecodedRequest::new(&request.headers, &request.body);
        let (headers, body) = readable.request(&request.headers, &request.body);
        let incoming = IncomingRequest { headers, body, ..self.incoming(source, request) };
        let parts = match source.read(&incoming, pass.verified) {
            ParsedRequest::Handshake(reply) => {
                return Ok(ReceiveOutcome { reply: Some(reply), ..ReceiveOutcome::default() });
            }
            ParsedRequest::Events(parts) => parts,
        };
        let reply = source.provider.success_reply(&incoming);
        // Whatever makes us refuse the request comes before it is used up.
        let claims = match plan::claims(source, (request, &readable), &parts, now) {
            Ok(claims) => claims,
            Err(_) if pass.is_forced => parts.iter().map(|_| None).collect(),
            Err(problem) => return Err(IngestError::Key(problem)),
        };
        let request_id = pass.releases.unwrap_or_else(|| new_id(&*self.shared.chance, now));
        let releases = self.leaves_quarantine(source, request, &pass);
        let stamp = (request_id, now);
        let arrival =
            RequestContext::new(entry, source, (request, &readable), stamp, (pass, releases));
        let outcome = self.receive_all(&arrival, parts, claims).await?;
        for event in &outcome.received {
            let metrics = &entry.metrics;
            if event.duplicate { &metrics.duplicate } else { &metrics.accepted }.inc();
        }
        Ok(ReceiveOutcome { reply, ..outcome })
    }

    /// Checks a request as of a time, with the certificate that it names if there is one.
    pub(crate) async fn verify(
        &self,
        source: &Source,
        incoming: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, IngestError> {
        let verifier = &source.verifier;
        match verifier.certificate_url(incoming).map_err(IngestError::NotVerified)? {
            None => verifier.verify(incoming, now).map_err(IngestError::NotVerified),
            Some(url) => {
                let checked = self.certificates.verify(verifier, &url, incoming, now);
                Box::pin(checked).await
            }
        }
    }

    /// Answers a provider's GET, if it sends one.
    pub fn answer_handshake(
        &self,
        source: &ReadySource,
        query: Option<&str>,
    ) -> Option<Result<ProviderReply, VerifyError>> {
        let source = source.0.source.as_ref().ok()?;
        source.provider.answer_handshake(query, source.verify_token.as_ref())
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

    /// Each event of a request: known already, or planned and committed with the others.
    async fn receive_all(
        self: &Arc<Self>,
        arrival: &RequestContext<'_>,
        parts: Vec<EventPart>,
        claims: Vec<KeyAssignment>,
    ) -> Result<ReceiveOutcome, IngestError> {
        let mut received = Vec::with_capacity(parts.len());
        let mut drafts = Vec::with_capacity(parts.len());
        for (part, claim) in parts.into_iter().zip(claims) {
            let payload = arrival.payload(part.body.as_ref());
            if let Some(event) = self.recall(arrival, &claim, &payload) {
                let key = claim.map(|(claim, _)| claim.key);
                received.push(Some(ReceivedEvent { event, key, duplicate: true }));
                continue;
            }
            if claim.is_none() {
                arrival.entry.metrics.no_key.inc();
            }
            received.push(None);
            drafts.push(self.draft(arrival, &part, claim, payload));
        }
        plan::put_in_order(&mut drafts);
        if drafts.is_empty() {
            return Ok(ReceiveOutcome {
                received: received.into_iter().flatten().collect(),
                ..ReceiveOutcome::default()
            });
        }
        // It leaves the quarantine with the first of its events, in one step.
        drafts[0].event.releases = arrival.releases;
        let asking = self.asking(arrival, &drafts);
        let commit = Arc::clone(self).commit(drafts, arrival.source.name.clone());
        let committed = RunToCompletion::new(commit, &self.shared.tasks).await?;
        // Apart from the rest, which lies in every connection: few senders wait.
        let sync = if asking.is_empty() {
            None
        } else {
            Box::pin(self.answer_all(arrival.source, asking, &committed)).await?
        };
        let mut committed = committed.into_iter();
        let received = received.into_iter().filter_map(|known| known.or_else(|| committed.next()));
        Ok(ReceiveOutcome { received: received.collect(), sync, reply: None })
    }

    /// What memory knows of an event that came before. A sender that waits wants the result, and
    /// memory only knows that there is an event.
    fn recall(
        &self,
        arrival: &RequestContext<'_>,
        claim: &KeyAssignment,
        payload: &Payload,
    ) -> Option<EventId> {
        let ((claim, _), None) = (claim.as_ref()?, arrival.sync()) else { return None };
        self.store.recall(arrival.source.id, &claim.key, &payload.fingerprint, arrival.now)
    }

    /// If the sender waits: what for, of each event. It begins to wait before anything is committed, so
    /// that it misses nothing.
    fn asking(&self, arrival: &RequestContext<'_>, drafts: &[EventDraft]) -> Vec<SyncWait> {
        let Some(entry) = arrival.sync() else { return Vec::new() };
        let (request, received_at) = (arrival.request_id, arrival.now);
        let until = tokio::time::Instant::now() + entry.deadline;
        let asking = drafts.iter().map(|draft| {
            let awaited = draft.owed.iter().find(|owed| owed.new.destination == entry.destination);
            let waiting = awaited.map(|owed| self.shared.waiters.watch(owed.new.id));
            SyncWait { entry, request, received_at, until, waiting }
        });
        asking.collect()
    }

    /// What a sender that waits is told about all its events.
    async fn answer_all(
        self: &Arc<Self>,
        source: &Source,
        asking: Vec<SyncWait>,
        committed: &[ReceivedEvent],
    ) -> Result<Option<SyncResponse>, IngestError> {
        let mut told: Option<SyncResponse> = None;
        for (asking, received) in asking.into_iter().zip(committed) {
            let ReceivedEvent { event, ref key, duplicate } = *received;
            let answer = self.answer_sender(asking, event, duplicate, key.is_some()).await;
            let answer = answer.map_err(IngestError::Store)?;
            self.telemetry.sync_answered(source.name.as_str(), answer.as_str());
            told = Some(match told {
                Some(before) => before.and(answer),
                None => answer,
            });
        }
        Ok(told)
    }
}
