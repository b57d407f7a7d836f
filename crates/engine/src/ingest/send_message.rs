//! Sending a message: an event of the built-in source `outbox`, with a delivery to one destination
//! and to the destinations of the routes from the outbox.
//!
//! The outbox is created when it is first needed; it cannot be deleted or turned into another source.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    destination::{Destination, Transport},
    event::{DedupKeyClaim, KeyWindow},
    idempotency::IdempotentRequest,
    outbox::{OUTBOX, OutboxPost, is_reserved_name},
    source::SourceSpec,
    store::{ConfigChange, Configuration},
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    inflate::DecodedRequest,
    rng::new_id,
    store_error::StoreError,
};
use surehook_webhooks::{
    attribute::AttributeName,
    key::{DedupKey, KeyNamespace, KeyOrigin},
    provider::EventPart,
};

use super::{
    AcceptReason, InboundRequest, IngestError,
    plan::{DirectDelivery, KeyAssignment, RequestContext},
};
use crate::{
    ConfigChangeError, Engine,
    body_memory::BodyReservation,
    lane::Lane,
    registry::{ConfigError, RouteTarget, SourceRuntime},
    run_to_completion::RunToCompletion,
};

/// The destination that a message is sent to.
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

/// A message that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    pub event: EventId,
    /// The delivery to the destination that was asked for.
    pub delivery: DeliveryId,
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendMessageError {
    #[error("there is no destination `{0}`")]
    UnknownDestination(String),
    #[error("the destination `{0}` is misconfigured; fix its settings")]
    Misconfigured(String),
    /// A source of this name exists from before the name was reserved.
    #[error("you have a source named `outbox`, and messages need that name; rename your source")]
    OutboxTaken,
    #[error("the source `outbox` is disabled, so nothing is sent; enable it")]
    OutboxDisabled,
    #[error("the source `outbox` or a route from it is misconfigured; fix its settings")]
    OutboxUnusable,
    #[error(transparent)]
    Change(#[from] ConfigChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The label of a message's key: it is derived from the request to send it.
const KEY_FROM: &str = "message";
/// The label of a message's proof of origin.
const VERIFIED_BY: &str = "api token";

impl Engine {
    /// Finds the destination with this name or id.
    pub async fn find_send_target(&self, wanted: &str) -> Result<SendTarget, SendMessageError> {
        let by_id: Option<DestinationId> = wanted.parse().ok();
        let registry = self.registry.load_full();
        let named = || registry.lanes.values().find(|lane| lane.has_name(wanted));
        let lane = by_id.and_then(|id| registry.lanes.get(&id)).or_else(named).cloned();
        if let Some(lane) = lane {
            return Ok(SendTarget { destination: lane.destination(), lane });
        }
        let configured = self.store.load_configuration().await?.destinations;
        let is_wanted = |id, name: &str| by_id == Some(id) || name == wanted;
        match configured.iter().any(|one| is_wanted(one.id, one.spec.name.as_str())) {
            true => Err(SendMessageError::Misconfigured(wanted.to_owned())),
            false => Err(SendMessageError::UnknownDestination(wanted.to_owned())),
        }
    }

    /// Accepts a message. After `Ok` it survives a power cut, and the same request again sends nothing
    /// more and gets the same answer. The first attempt waits for `delay`.
    pub async fn send_message(
        self: &Arc<Self>,
        to: SendTarget,
        post: OutboxPost,
        idempotent: IdempotentRequest,
        delay: Duration,
    ) -> Result<AcceptedMessage, SendMessageError> {
        let entry = self.outbox().await?;
        let Ok(source) = &entry.source else { return Err(SendMessageError::OutboxUnusable) };
        let now = self.shared.clock.now();
        let accepted = AcceptedMessage { event: idempotent.id(""), delivery: idempotent.id("") };
        let OutboxPost { kind, mut attributes, order, headers, body } = post;
        // The id finds the message even after the destination was renamed.
        attributes.push(AttributeName::Account, &to.destination.id.to_string());
        if let Transport::Channel(sender) = &to.destination.transport {
            attributes.push(AttributeName::Account, sender.account.sender());
        }
        let (path, query, remote) = (String::new(), None, Arc::default());
        let memory = BodyReservation::default();
        let mut request = InboundRequest { path, query, headers, body, remote, memory };
        let readable = DecodedRequest::new(&request.headers, &request.body);
        let reason = AcceptReason::without_signature(VERIFIED_BY);
        let mut context = RequestContext::new(
            &entry,
            source,
            &mut request,
            readable,
            reason,
            idempotent.id(""),
            now,
        );
        context.direct = Some(DirectDelivery {
            id: accepted.delivery,
            target: RouteTarget::of_lane(to.lane),
            min_delay: delay,
        });
        // Derived from the idempotent request: carried out again, it finds the event it created.
        let KeyWindow { expires_at, as_of } =
            self.shared.guard.key_window(now, source.dedup_window);
        let claim = DedupKey::new(&accepted.event.to_string()).map(|key| DedupKeyClaim {
            key,
            namespace: KeyNamespace::Body,
            origin: KeyOrigin::Explicit,
            expires_at,
            as_of,
            on_conflict: None,
        });
        let found_by = claim.is_some().then(|| KEY_FROM.into());
        let key = KeyAssignment { claim, found_by, ..KeyAssignment::default() };
        let part = EventPart { kind, order, attributes, ..EventPart::default() };
        let payload = context.payload(None);
        let mut draft = self.draft_event(&context, &part, key, payload);
        draft.event.id = accepted.event;
        let commit = Arc::clone(self).commit(vec![draft], source.name.clone());
        match RunToCompletion::new(commit, &self.shared.tasks).await {
            Ok(_) => Ok(accepted),
            Err(IngestError::Store(error)) => Err(SendMessageError::Store(error)),
            // The outbox cannot be deleted, and nothing else is checked for a message.
            Err(_) => Err(SendMessageError::OutboxUnusable),
        }
    }

    /// The outbox with its routes; created if it does not exist.
    async fn outbox(self: &Arc<Self>) -> Result<Arc<SourceRuntime>, SendMessageError> {
        let find = |engine: &Self| engine.registry.load().sources.get(OUTBOX).cloned();
        if find(self).is_none() {
            self.change::<_, ConfigChangeError>(|configuration| {
                let exists = has_outbox(configuration);
                Ok((if exists { Vec::new() } else { vec![self.create_outbox()] }, ()))
            })
            .await?;
        }
        let entry = find(self).ok_or(SendMessageError::OutboxUnusable)?;
        match &entry.source {
            Ok(source) if source.is_outbox() && source.enabled => Ok(entry),
            Ok(source) if source.is_outbox() => Err(SendMessageError::OutboxDisabled),
            Ok(_) => Err(SendMessageError::OutboxTaken),
            Err(_) => Err(SendMessageError::OutboxUnusable),
        }
    }

    /// Checks that the changes leave the outbox alone, and adds its creation if one of them adds the
    /// first route from it.
    pub(crate) fn with_outbox(
        &self,
        configuration: &Configuration,
        mut changes: Vec<ConfigChange>,
    ) -> Result<Vec<ConfigChange>, ConfigError> {
        changes.iter().try_for_each(|change| check_outbox_change(configuration, change))?;
        let needs = |change: &ConfigChange| matches!(change, ConfigChange::PutRoute(_, route) if is_reserved_name(&route.from));
        let creates = |change: &ConfigChange| matches!(change, ConfigChange::PutSource(_, source) if is_reserved_name(&source.name));
        let is_missing = !has_outbox(configuration) && !changes.iter().any(creates);
        if is_missing && changes.iter().any(needs) {
            changes.insert(0, self.create_outbox());
        }
        Ok(changes)
    }

    fn create_outbox(&self) -> ConfigChange {
        let id = new_id(&*self.shared.rng, self.shared.clock.now());
        ConfigChange::PutSource(id, SourceSpec::outbox())
    }
}

fn has_outbox(configuration: &Configuration) -> bool {
    configuration.sources.iter().any(|source| is_reserved_name(&source.spec.name))
}

/// Refuses a change that deletes the outbox, turns it into another source, or gives its name to
/// another one. A source that had the name before it was reserved may keep it.
fn check_outbox_change(
    configuration: &Configuration,
    change: &ConfigChange,
) -> Result<(), ConfigError> {
    let stored = |id| configuration.sources.iter().find(|source| source.id == id);
    match change {
        ConfigChange::PutSource(id, spec) => match stored(*id) {
            Some(before) if before.spec.is_outbox() && !spec.is_outbox() => {
                Err(ConfigError::BuiltIn(before.spec.name.to_string()))
            }
            before => {
                let had_name = before.is_some_and(|before| is_reserved_name(&before.spec.name));
                let takes_name = is_reserved_name(&spec.name) && !spec.is_outbox() && !had_name;
                if takes_name { Err(ConfigError::Reserved(spec.name.to_string())) } else { Ok(()) }
            }
        },
        ConfigChange::DeleteSource(id) => match stored(*id) {
            Some(before) if before.spec.is_outbox() => {
                Err(ConfigError::BuiltIn(before.spec.name.to_string()))
            }
            Some(_) | None => Ok(()),
        },
        ConfigChange::PutDestination(..)
        | ConfigChange::PutRoute(..)
        | ConfigChange::DeleteDestination(_)
        | ConfigChange::DeleteRoute(_) => Ok(()),
    }
}
