//! A duplicate of which a person says that it is none: it becomes an event of its own.

use std::sync::Arc;

use bytes::Bytes;
use surehook_core::{
    event::{DuplicateId, Payload, RequestHead},
    idempotency::IdempotentRequest,
    ids::EventId,
    inflate::DecodedRequest,
    key::fingerprint,
    provider::{EventPart, ParsedRequest},
    request::IncomingRequest,
    store::{DuplicateDetail, StoreError},
    verify::VerifiedRequest,
};

use super::{AcceptReason, InboundRequest, IngestError, ReadySource, plan::RequestContext};
use crate::{Engine, run_to_completion::RunToCompletion};

/// Why a duplicate is not delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliverAnywayError {
    /// There is no such duplicate.
    #[error("there is no such duplicate of this event")]
    NotFound,
    /// It became an event before.
    #[error("this duplicate was delivered before, as {0}")]
    AlreadyDelivered(EventId),
    /// It is a wish to send a message that came again.
    #[error(
        "this event is a message, and its duplicate is the same wish again: delivering it would send \
         the message twice; to do that, replay its delivery or send a new message"
    )]
    Message,
    /// Nothing says where it goes.
    #[error("its source was deleted or cannot be used; mend the source first")]
    SourceGone,
    /// Its bytes are not there any more.
    #[error("retention has removed the body of this duplicate, so there is nothing to deliver")]
    BodyRemoved,
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Makes an event of a duplicate, with its own bytes and without a key, and routes it as the
    /// routes are now. After `Ok` it survives a power cut; a duplicate becomes an event once, and the
    /// same wish again gets the same answer.
    pub async fn deliver_anyway(
        self: &Arc<Self>,
        copy: DuplicateId,
        wish: IdempotentRequest,
    ) -> Result<EventId, DeliverAnywayError> {
        let found = self.store.duplicate(copy).await?.ok_or(DeliverAnywayError::NotFound)?;
        let id: EventId = wish.id("");
        match found.duplicate.delivered_as {
            Some(before) if before == id => return Ok(id),
            Some(before) => return Err(DeliverAnywayError::AlreadyDelivered(before)),
            None => {}
        }
        let ReadySource(entry) =
            self.source_by_id(found.event.source).ok_or(DeliverAnywayError::SourceGone)?;
        let Ok(source) = &entry.source else { return Err(DeliverAnywayError::SourceGone) };
        if source.is_outbox() {
            return Err(DeliverAnywayError::Message);
        }
        let (head, body) = bytes_of(&found).ok_or(DeliverAnywayError::BodyRemoved)?;
        let mut request = InboundRequest {
            path: head.path.clone(),
            query: head.query.clone(),
            headers: head.headers.to_map(),
            body: body.clone(),
            remote: head.remote.clone(),
        };
        let readable = DecodedRequest::new(&request.headers, &request.body);
        // It was verified when it came. What proved it is not kept, so nothing is said about it.
        let pass = AcceptReason {
            verified: VerifiedRequest { by: "", secret_index: 0 },
            verified_by: None,
            releases: None,
            is_forced: true,
        };
        let (headers, plain) = readable.request(&request.headers, &request.body);
        let incoming = IncomingRequest { headers, body: plain, ..self.incoming(source, &request) };
        let part = match source.read(&incoming, pass.verified) {
            ParsedRequest::Events(mut parts) if parts.len() == 1 => {
                parts.pop().map(|part| EventPart { body: None, ..part })
            }
            ParsedRequest::Events(_) | ParsedRequest::Handshake(_) => None,
        };
        let part = part.unwrap_or_else(|| EventPart {
            kind: found.event.kind.clone(),
            attributes: found.event.attributes.clone(),
            ..EventPart::default()
        });
        let stamp = (wish.id(""), self.shared.clock.now());
        let arrival =
            RequestContext::new(&entry, source, (&mut request, &readable), stamp, (pass, None));
        let payload = Payload { head, fingerprint: fingerprint(&body), body };
        let mut draft = self.draft(&arrival, &part, None, payload);
        draft.event.id = id;
        draft.event.copy_of = Some(copy);
        // What it says of a message was said when it came; said late, it could send that again.
        draft.event.confirms = None;
        let commit = Arc::clone(self).commit(vec![draft], source.name.clone());
        match RunToCompletion::new(commit, &self.shared.tasks).await {
            Ok(received) => match received.first() {
                Some(received) if received.event == id => {
                    entry.metrics.accepted.inc_by(u64::from(!received.duplicate));
                    Ok(id)
                }
                Some(received) => Err(DeliverAnywayError::AlreadyDelivered(received.event)),
                None => Err(StoreError::Refused("no answer".to_owned()).into()),
            },
            Err(IngestError::Store(error)) => Err(match self.store.duplicate(copy).await {
                // It went with its event in this very moment.
                Ok(None) => DeliverAnywayError::NotFound,
                Ok(Some(_)) | Err(_) => DeliverAnywayError::Store(error),
            }),
            Err(_) => Err(DeliverAnywayError::SourceGone),
        }
    }
}

/// What came: the bytes of the copy, with the headers of the original. Its own are not kept.
fn bytes_of(found: &DuplicateDetail) -> Option<(Arc<RequestHead>, Bytes)> {
    let original = found.original.as_ref()?;
    if !found.duplicate.bytes_differ {
        return Some((Arc::clone(&original.head), original.body.clone()));
    }
    let body = found.duplicate.body.clone()?;
    Some((Arc::new(original.head.with_other_bytes(&body)), body))
}
