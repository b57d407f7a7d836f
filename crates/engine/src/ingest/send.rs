//! Sending a message: an event of the outbox that owes a delivery to one destination, and to whatever
//! routes lead from the outbox.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    attribute::AttributeName,
    destination::{Destination, Transport},
    event::DedupKeyClaim,
    idempotency::IdempotentRequest,
    ids::{DeliveryId, DestinationId, EventId},
    inflate::DecodedRequest,
    key::DedupKey,
    outbox::OutboxPost,
    provider::EventPart,
    store::StoreError,
    verify::VerifiedRequest,
};

use super::{
    AcceptReason, InboundRequest, IngestError,
    plan::{DirectDelivery, KeyAssignment, RequestContext},
};
use crate::{
    ConfigChangeError, Engine, lane::Lane, registry::RouteTarget,
    run_to_completion::RunToCompletion,
};

/// Who gets a message.
#[derive(Clone, Debug)]
pub struct SendTarget {
    lane: Arc<Lane>,
    destination: Arc<Destination>,
}

impl SendTarget {
    /// The destination as it is configured now.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }
}

/// A message that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// Its event.
    pub event: EventId,
    /// What is owed to the destination that it was sent to.
    pub delivery: DeliveryId,
}

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendMessageError {
    /// There is no such destination.
    #[error("there is no destination `{0}`")]
    UnknownDestination(String),
    /// The destination's settings cannot be used.
    #[error("the destination `{0}` cannot be used until its settings are mended")]
    Misconfigured(String),
    /// Somebody has a source of his own with that name.
    #[error("there is a source of your own named `outbox`, and messages need that name; rename it")]
    OutboxTaken,
    /// The outbox is switched off.
    #[error("the source `outbox` is switched off, so nothing is sent")]
    OutboxDisabled,
    /// The outbox cannot be used.
    #[error("the source `outbox` or a route from it cannot be used until its settings are mended")]
    OutboxUnusable,
    /// The outbox could not be made.
    #[error(transparent)]
    Change(#[from] ConfigChangeError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where the key of a message comes from: what asks for it.
const KEY_FROM: &str = "message";
/// How a message proves where it comes from.
const PROVED_BY: &str = "api token";

impl Engine {
    /// The destination of that name or id.
    pub async fn find_send_target(&self, wanted: &str) -> Result<SendTarget, SendMessageError> {
        let by_id: Option<DestinationId> = wanted.parse().ok();
        let registry = self.registry.load_full();
        let named = || registry.lanes.values().find(|lane| lane.is_called(wanted));
        let lane = by_id.and_then(|id| registry.lanes.get(&id)).or_else(named).cloned();
        if let Some(lane) = lane {
            return Ok(SendTarget { destination: lane.destination(), lane });
        }
        let there = self.store.configuration().await?.destinations;
        let is_it = |id, name: &str| by_id == Some(id) || name == wanted;
        match there.iter().any(|one| is_it(one.id, one.spec.name.as_str())) {
            true => Err(SendMessageError::Misconfigured(wanted.to_owned())),
            false => Err(SendMessageError::UnknownDestination(wanted.to_owned())),
        }
    }

    /// Takes a message. After `Ok` it survives a power cut, and the same wish again sends nothing
    /// more and gets the same answer. Its first attempt waits for `delay`.
    pub async fn send_message(
        self: &Arc<Self>,
        to: SendTarget,
        post: OutboxPost,
        wish: IdempotentRequest,
        delay: Duration,
    ) -> Result<AcceptedMessage, SendMessageError> {
        let entry = self.outbox().await?;
        let Ok(source) = &entry.source else { return Err(SendMessageError::OutboxUnusable) };
        let now = self.shared.clock.now();
        let posted = AcceptedMessage { event: wish.id(""), delivery: wish.id("") };
        let OutboxPost { kind, mut attributes, order, headers, body } = post;
        // By this its destination is known, whatever it is called then.
        attributes.push(AttributeName::Account, &to.destination.id.to_string());
        if let Transport::Channel(sender) = &to.destination.transport {
            attributes.push(AttributeName::Account, sender.account.sender());
        }
        let (path, query, remote) = (String::new(), None, Arc::default());
        let mut request = InboundRequest { path, query, headers, body, remote };
        let readable = DecodedRequest::new(&request.headers, &request.body);
        let pass = AcceptReason {
            verified: VerifiedRequest { by: PROVED_BY, secret_index: 0 },
            verified_by: Some(PROVED_BY.into()),
            releases: None,
            is_forced: false,
        };
        let about = (wish.id(""), now);
        let mut arrival =
            RequestContext::new(&entry, source, (&mut request, &readable), about, (pass, None));
        // What the wish is known by: if it is carried out again, it finds what it made.
        let claim: KeyAssignment = DedupKey::new(&posted.event.to_string()).map(|key| {
            (DedupKeyClaim { key, expires_at: now + source.dedup_window }, KEY_FROM.into())
        });
        let part = EventPart { kind, order, attributes, ..EventPart::default() };
        let end = RouteTarget::of_lane(to.lane);
        arrival.direct = Some(DirectDelivery { id: posted.delivery, end, delay });
        let payload = arrival.payload(None);
        let mut draft = self.draft(&arrival, &part, claim, payload);
        draft.event.id = posted.event;
        let commit = Arc::clone(self).commit(vec![draft], source.name.clone());
        match RunToCompletion::new(commit, &self.shared.tasks).await {
            Ok(_) => Ok(posted),
            Err(IngestError::Store(error)) => Err(SendMessageError::Store(error)),
            // Its source cannot go away, and nothing else is asked of it.
            Err(_) => Err(SendMessageError::OutboxUnusable),
        }
    }
}
