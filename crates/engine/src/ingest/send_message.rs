//! Sending a message: an event of the built-in source `outbox`, with a delivery to one destination
//! and to the destinations of the routes from the outbox.
//!
//! The outbox is created when it is first needed; it cannot be deleted or turned into another source.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    callback::Callback,
    destination::{Destination, DestinationSpec, Transport, kind::DestinationKind},
    event::{DedupKeyClaim, KeyWindow},
    idempotency::IdempotentRequest,
    one_shot::{ORIGINS_MAX, OneShotUrl},
    outbox::{OUTBOX, OutboxPost, is_reserved_name},
    source::SourceSpec,
    store::{ConfigChange, Configuration},
};
use surehook_retry::RetrySpec;
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    inflate::DecodedRequest,
    rng::new_id,
    store_error::StoreError,
    time::HumanDuration,
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
    registry::{ConfigError, Registry, RouteTarget, SourceRuntime},
    run_to_completion::RunToCompletion,
};

/// The destination that a message is sent to.
#[derive(Clone, Debug)]
pub struct SendTarget {
    target: RouteTarget,
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
    #[error(
        "there are already {ORIGINS_MAX} destinations of kind origin, one for each host that was named by URL; delete those that you no longer need"
    )]
    TooManyOrigins,
    #[error("retry: {0}")]
    Retry(String),
    #[error("the destination `{0}` is no alert channel; set `alerts` in its settings")]
    NoAlertChannel(String),
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

impl Registry {
    fn send_target(&self, id: DestinationId) -> Option<SendTarget> {
        Some(SendTarget { target: self.target(id)?, destination: self.destination(id)? })
    }
}

/// The label of a message's key: it is derived from the request to send it.
const KEY_FROM: &str = "message";
/// The label of a message's proof of origin.
const VERIFIED_BY: &str = "api token";

impl Engine {
    /// Finds the destination with this name or id.
    pub async fn find_send_target(&self, name_or_id: &str) -> Result<SendTarget, SendMessageError> {
        let by_id: Option<DestinationId> = name_or_id.parse().ok();
        let registry = self.registry.load_full();
        let named = || {
            let mut names = registry.names.iter();
            names.find(|(_, name)| name.as_str() == name_or_id).map(|(id, _)| *id)
        };
        let by_its_id = by_id.and_then(|id| registry.send_target(id));
        if let Some(target) = by_its_id.or_else(|| registry.send_target(named()?)) {
            return Ok(target);
        }
        let configured = self.store.load_configuration().await?.destinations;
        let has_name_or_id = |id, name: &str| by_id == Some(id) || name == name_or_id;
        let mut matching = configured.iter();
        match matching.any(|stored| has_name_or_id(stored.id, stored.spec.name.as_str())) {
            true => Err(SendMessageError::Misconfigured(name_or_id.to_owned())),
            false => Err(SendMessageError::UnknownDestination(name_or_id.to_owned())),
        }
    }

    /// The destination of kind `origin` for a URL; created with the first request to its origin.
    ///
    /// With a retry policy or a timeout, one with the same settings; otherwise the first one, which an
    /// admin may have changed.
    pub async fn find_one_shot_target(
        self: &Arc<Self>,
        url: &OneShotUrl,
        retry: Option<RetrySpec>,
        timeout: Option<HumanDuration>,
    ) -> Result<SendTarget, SendMessageError> {
        let policy = retry.as_ref().map(RetrySpec::build).transpose();
        let policy = policy.map_err(|error| SendMessageError::Retry(error.to_string()))?;
        let serves = |destination: &Destination| {
            matches!(&destination.transport, Transport::Origin(uri) if uri.to_string().trim_end_matches('/') == url.origin)
                && policy.as_ref().is_none_or(|policy| destination.retry == *policy)
                && timeout.is_none_or(|timeout| destination.timeout == timeout.0)
        };
        let registry = self.registry.load_full();
        // In the order of ids, which is that of their creation.
        let mut usable = registry.destinations.iter();
        let serving = usable.find(|(_, usable)| serves(&usable.prepared.destination));
        if let Some(target) = serving.and_then(|(id, _)| registry.send_target(*id)) {
            return Ok(target);
        }
        let id = self
            .change(|configuration| self.plan_origin(configuration, url, retry.clone(), timeout))
            .await?;
        let target = self.registry.load().send_target(id);
        target.ok_or_else(|| SendMessageError::Misconfigured(url.origin.clone()))
    }

    /// Adds the destination for an origin, unless another request has added it in the meantime.
    fn plan_origin(
        &self,
        configuration: &Configuration,
        url: &OneShotUrl,
        retry: Option<RetrySpec>,
        timeout: Option<HumanDuration>,
    ) -> Result<(Vec<ConfigChange>, DestinationId), SendMessageError> {
        let destinations = &configuration.destinations;
        let is_taken =
            |name: &str| destinations.iter().any(|stored| stored.spec.name.as_str() == name);
        let spec = url.destination(retry, timeout, is_taken);
        let origins =
            destinations.iter().filter(|stored| stored.spec.kind == DestinationKind::Origin);
        let is_same = |stored: &DestinationSpec| {
            stored.url == spec.url && stored.retry == spec.retry && stored.timeout == spec.timeout
        };
        if let Some(stored) = origins.clone().find(|stored| is_same(&stored.spec)) {
            return Ok((Vec::new(), stored.id));
        }
        if origins.count() >= ORIGINS_MAX {
            return Err(SendMessageError::TooManyOrigins);
        }
        let id = new_id(&*self.shared.rng, self.shared.clock.now());
        Ok((vec![ConfigChange::PutDestination(id, spec)], id))
    }

    /// Accepts a message. After `Ok` it survives a power cut, and the same request again sends nothing
    /// more and gets the same answer. The first attempt waits for `delay`.
    pub async fn send_message(
        self: &Arc<Self>,
        to: SendTarget,
        post: OutboxPost,
        idempotent: IdempotentRequest,
        delay: Duration,
        callback: Option<Callback>,
    ) -> Result<AcceptedMessage, SendMessageError> {
        let entry = self.outbox().await?;
        let Ok(source) = &entry.source else { return Err(SendMessageError::OutboxUnusable) };
        let now = self.shared.clock.now();
        let accepted = AcceptedMessage { event: idempotent.id(""), delivery: idempotent.id("") };
        let OutboxPost { kind, mut attributes, ordering_key, headers, body, path, query } = post;
        // The id finds the message even after the destination was renamed.
        attributes.push(AttributeName::Account, &to.destination.id.to_string());
        if let Transport::Channel(sender) = &to.destination.transport {
            attributes.push(AttributeName::Account, sender.account.sender());
        }
        let remote = Arc::default();
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
            target: to.target,
            min_delay: delay,
            callback: callback.map(Arc::new),
        });
        let KeyWindow { expires_at, as_of } =
            self.shared.guard.key_window(now, source.dedup_window);
        // The key is the event id, which is derived from the idempotent request: carried out again, the
        // request finds the event that it created.
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
        let part = EventPart { kind, ordering_key, attributes, ..EventPart::default() };
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
