//! Delivering a duplicate anyway: an operator decided that it is not one, and it becomes an event of
//! its own.

use std::sync::Arc;

use bytes::Bytes;
use surehook_core::{
    event::{DuplicateId, Payload, RequestHead},
    idempotency::IdempotentRequest,
    store::DuplicateDetail,
};
use surehook_types::{ids::EventId, inflate::DecodedRequest, store_error::StoreError};
use surehook_webhooks::{
    key::fingerprint,
    provider::{EventPart, ParsedRequest},
    request::IncomingRequest,
    verify::VerifiedRequest,
};

use super::{
    AcceptReason, InboundRequest, IngestError, ReadySource,
    plan::{KeyAssignment, RequestContext},
};
use crate::{Engine, body_memory::BodyReservation, run_to_completion::RunToCompletion};

/// Why a duplicate is not delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliverAnywayError {
    #[error("this event has no such duplicate")]
    NotFound,
    #[error("this duplicate was already delivered, as {0}")]
    AlreadyDelivered(EventId),
    /// A duplicate of a message is the same request to send it.
    #[error(
        "this event is a message, and its duplicate is the same request again: delivering it would \
         send the message twice; to do that, replay its delivery or send a new message"
    )]
    Message,
    #[error("the source was deleted or is misconfigured; fix the source first")]
    SourceGone,
    #[error("retention has removed the body of this duplicate, so there is nothing to deliver")]
    BodyRemoved,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Makes an event of a duplicate, with its own bytes and without a key, and routes it by the
    /// current routes. After `Ok` it survives a power cut; a duplicate becomes an event once, and the
    /// same request again gets the same answer.
    pub async fn deliver_anyway(
        self: &Arc<Self>,
        duplicate: DuplicateId,
        idempotent: IdempotentRequest,
    ) -> Result<EventId, DeliverAnywayError> {
        let found =
            self.store.find_duplicate(duplicate).await?.ok_or(DeliverAnywayError::NotFound)?;
        let id: EventId = idempotent.id("");
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
        let (head, body) = duplicate_content(&found).ok_or(DeliverAnywayError::BodyRemoved)?;
        let mut request = InboundRequest {
            path: head.path.clone(),
            query: head.query.clone(),
            headers: head.headers.to_map(),
            body: body.clone(),
            remote: head.remote.clone(),
            memory: BodyReservation::default(),
        };
        let decoded = DecodedRequest::new(&request.headers, &request.body);
        // It was verified when it was received, but by what is not stored.
        let reason = AcceptReason {
            verified: VerifiedRequest { by: "", secret_index: 0 },
            verified_by: None,
            releases: None,
            is_forced: true,
        };
        let (headers, decoded_body) = decoded.request(&request.headers, &request.body);
        let incoming =
            IncomingRequest { headers, body: decoded_body, ..self.incoming(source, &request) };
        let part = match source.parse_request(&incoming, reason.verified) {
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
        let now = self.shared.clock.now();
        let request_id = idempotent.id("");
        let context =
            RequestContext::new(&entry, source, &mut request, decoded, reason, request_id, now);
        let payload = Payload { head, fingerprint: fingerprint(&body), body };
        let mut draft = self.draft_event(&context, &part, KeyAssignment::default(), payload);
        draft.event.id = id;
        draft.event.from_duplicate = Some(duplicate);
        // A message status counted when the duplicate was received; applied again so late, it could
        // make the message be sent again.
        draft.event.status_update = None;
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
            Err(IngestError::Store(error)) => {
                Err(match self.store.find_duplicate(duplicate).await {
                    // Retention removed it together with its event meanwhile.
                    Ok(None) => DeliverAnywayError::NotFound,
                    Ok(Some(_)) | Err(_) => DeliverAnywayError::Store(error),
                })
            }
            Err(_) => Err(DeliverAnywayError::SourceGone),
        }
    }
}

/// The bytes of the duplicate with the headers of the original; its own headers are not stored.
fn duplicate_content(found: &DuplicateDetail) -> Option<(Arc<RequestHead>, Bytes)> {
    let original = found.original.as_ref()?;
    if !found.duplicate.bytes_differ {
        return Some((Arc::clone(&original.head), original.body.clone()));
    }
    let body = found.duplicate.body.clone()?;
    Some((Arc::new(original.head.for_changed_body(&body)), body))
}
