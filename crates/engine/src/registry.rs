//! What is configured, ready to be used: sources by name, each with its routes and their lanes.
//!
//! A registry is never changed, only replaced: a request sees one from beginning to end.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use surehook_core::{
    address::{AddressPolicy, BlockedAddress},
    destination::{
        Destination, DestinationSpec, DestinationSpecError, Transport,
        auth::AuthConfig,
        status_source::{
            MISSING_STATUS_SOURCE, MISSING_STATUS_SOURCE_ADVICE, without_status_source,
        },
    },
    ids::{DestinationId, SourceId},
    key::DedupKey,
    lane::{LaneRules, SavedLaneState},
    route::{Route, RouteSpecError},
    source::{Source, SourceSpec, SourceSpecError},
    store::{ConfigChange, Configuration, StoredObject},
};

use http::{HeaderMap, Uri};
use url::Host;

use crate::{
    destination_client::PreparedDestination,
    lane::{Lane, LaneContext},
    programs::{AllowedPrograms, ProgramError},
    source_secrets::secrets,
    sync::SyncConfig,
    telemetry::SourceMetrics,
    tls::{TlsConfigError, TrustStore},
};

/// A source and all that its events need.
#[derive(Debug)]
pub(crate) struct SourceRuntime {
    /// The source, or why it cannot be used: then its requests are refused, not let through.
    pub(crate) source: Result<Source, String>,
    pub(crate) routes: Vec<RouteRuntime>,
    /// Whether the sender waits, and for what.
    pub(crate) sync: Option<SyncConfig>,
    pub(crate) metrics: SourceMetrics,
}

/// A route and where it ends.
#[derive(Clone, Debug)]
pub(crate) struct RouteRuntime {
    pub(crate) route: Route,
    pub(crate) end: RouteTarget,
}

/// Where something goes.
#[derive(Clone, Debug)]
pub(crate) struct RouteTarget {
    pub(crate) destination: DestinationId,
    /// A destination that cannot be used has no lane; what it is owed waits in the store.
    pub(crate) lane: Option<Arc<Lane>>,
    /// What such a destination says about order and delay: it holds for what waits there, too.
    waiting: Option<Arc<LaneRules>>,
}

impl RouteTarget {
    /// The destination that has this lane.
    pub(crate) fn of_lane(lane: Arc<Lane>) -> Self {
        Self { destination: lane.id(), lane: Some(lane), waiting: None }
    }

    /// How long a fresh delivery waits before its first attempt.
    pub(crate) fn delay(&self) -> Duration {
        match (&self.lane, &self.waiting) {
            (Some(lane), _) => lane.delay(),
            (None, Some(rules)) => rules.delay,
            (None, None) => Duration::ZERO,
        }
    }

    /// The ordering key of an event, if the destination is ordered and the event has one.
    pub(crate) fn order_key(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        of_provider: Option<&DedupKey>,
    ) -> Option<DedupKey> {
        match &self.lane {
            Some(lane) => lane.order_key(headers, body, of_provider),
            None => self.waiting.as_ref()?.order.as_ref()?.key(headers, body, of_provider),
        }
    }
}

/// Everything that is configured.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) sources: HashMap<String, Arc<SourceRuntime>>,
    pub(crate) lanes: HashMap<DestinationId, Arc<Lane>>,
}

/// Something configured that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A source.
    #[error("source `{0}`: {1}")]
    Source(String, #[source] SourceSpecError),
    /// A destination.
    #[error("destination `{0}`: {1}")]
    Destination(String, #[source] DestinationSpecError),
    /// A route's filter or transform.
    #[error("route from `{0}` to `{1}`: {2}")]
    Route(String, String, #[source] RouteSpecError),
    /// A source whose sender would wait for nothing.
    #[error(
        "source `{0}`: sync waits for destination `{1}`, and no route leads there; add one, or change `sync`"
    )]
    NothingToWaitFor(String, String),
    /// A route's end.
    #[error("route from `{from}` to `{to}`: there is no {what} of that name")]
    UnknownEnd {
        /// The route's source.
        from: String,
        /// The route's destination.
        to: String,
        /// Which of them is not there.
        what: &'static str,
    },
    /// A name that is taken by what is built in.
    #[error("source `{0}`: this name is for what is built in; take another one")]
    Reserved(String),
    /// What is built in stays.
    #[error("source `{0}` is built in: it cannot be deleted or become another one")]
    BuiltIn(String),
    /// Two things with one name.
    #[error("there are two {0} named `{1}`")]
    Twice(&'static str, String),
    /// A destination's certificates or keys.
    #[error("destination `{0}`: {1}")]
    Tls(String, #[source] TlsConfigError),
    /// A destination at an address that may not be called.
    #[error("destination `{0}`: {1}; list its network in `allow_networks` if this is meant")]
    Blocked(String, #[source] BlockedAddress),
    /// A destination that is a program which may not be run.
    #[error("destination `{0}`: exec: {1}")]
    Program(String, #[source] ProgramError),
}

/// How a name in the environment is looked up.
pub type EnvLookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What destinations are judged against.
#[derive(Clone, Copy, Debug)]
pub struct DestinationPolicy<'a> {
    /// Where they may be.
    pub addresses: &'a AddressPolicy,
    /// Whom they may be certified by.
    pub trust: &'a TrustStore,
    /// What they may run.
    pub programs: &'a AllowedPrograms,
}

/// Whether a configuration can be stored: it fits together, and each of `changes` can be used.
///
/// What is not touched is not asked: a secret that is missing from the environment today must not be
/// in the way of whoever mends something else.
pub fn check_configuration(
    configuration: &Configuration,
    changes: &[ConfigChange],
    ground: &DestinationPolicy<'_>,
    env: &EnvLookup,
) -> Result<(), ConfigError> {
    let names = |what, names: Vec<&str>| {
        let mut seen = std::collections::HashSet::new();
        match names.into_iter().find(|name| !seen.insert(*name)) {
            Some(twice) => Err(ConfigError::Twice(what, twice.to_owned())),
            None => Ok(()),
        }
    };
    names("sources", configuration.sources.iter().map(|s| s.spec.name.as_str()).collect())?;
    names(
        "destinations",
        configuration.destinations.iter().map(|d| d.spec.name.as_str()).collect(),
    )?;
    for change in changes {
        match change {
            ConfigChange::PutSource(id, spec) => {
                let named = |error| ConfigError::Source(spec.name.to_string(), error);
                spec.build(*id, env).map_err(named)?;
            }
            ConfigChange::PutDestination(id, spec) => {
                let prepared = prepare(spec, *id, ground.trust, env)?;
                check_addresses(&prepared.destination, ground.addresses)?;
                check_program(&prepared.destination, ground.programs)?;
            }
            ConfigChange::PutRoute(..)
            | ConfigChange::DeleteSource(_)
            | ConfigChange::DeleteDestination(_)
            | ConfigChange::DeleteRoute(_) => {}
        }
    }
    routes(configuration).into_iter().try_for_each(|route| route.map(drop))?;
    configuration.sources.iter().try_for_each(|source| sync_ends(&source.spec, configuration))
}

/// Whether a sender that waits for a destination waits for something that will come.
fn sync_ends(source: &SourceSpec, configuration: &Configuration) -> Result<(), ConfigError> {
    let Some(sync) = &source.sync else { return Ok(()) };
    let ends = (&source.name, &sync.destination);
    if configuration.routes.iter().any(|route| (&route.spec.from, &route.spec.to) == ends) {
        return Ok(());
    }
    let (name, to) = (source.name.to_string(), sync.destination.to_string());
    Err(ConfigError::NothingToWaitFor(name, to))
}

/// A destination as it is meant, with all that it needs at hand.
fn prepare(
    spec: &DestinationSpec,
    id: DestinationId,
    trust: &TrustStore,
    env: &EnvLookup,
) -> Result<PreparedDestination, ConfigError> {
    let name = || spec.name.to_string();
    let destination =
        spec.build(id, env).map_err(|error| ConfigError::Destination(name(), error))?;
    PreparedDestination::new(destination, trust).map_err(|error| ConfigError::Tls(name(), error))
}

fn routes(configuration: &Configuration) -> Vec<Result<Route, ConfigError>> {
    let sources: HashMap<&str, SourceId> =
        configuration.sources.iter().map(|s| (s.spec.name.as_str(), s.id)).collect();
    let destinations: HashMap<&str, DestinationId> =
        configuration.destinations.iter().map(|d| (d.spec.name.as_str(), d.id)).collect();
    configuration
        .routes
        .iter()
        .map(|route| {
            let (from, to) = (route.spec.from.as_str(), route.spec.to.as_str());
            let unknown =
                |what| ConfigError::UnknownEnd { from: from.to_owned(), to: to.to_owned(), what };
            let source = sources.get(from).ok_or_else(|| unknown("source"))?;
            let destination = destinations.get(to).ok_or_else(|| unknown("destination"))?;
            route
                .spec
                .build(route.id, *source, *destination)
                .map_err(|error| ConfigError::Route(from.to_owned(), to.to_owned(), error))
        })
        .collect()
}

impl Registry {
    /// Builds the next registry from this one: lanes that stay keep what they have in memory. What
    /// cannot be used is said once and stands still; everything else goes on. `knows_address` says
    /// whether the server has a `public_url`.
    pub(crate) fn next(
        &self,
        configuration: &Configuration,
        shared: &Arc<LaneContext>,
        (env, knows_address): (&EnvLookup, bool),
        kept: &BTreeMap<DestinationId, SavedLaneState>,
    ) -> Self {
        // Before any lane starts: what it finds in the store must not go out with its secrets.
        shared.secrets.store(Arc::new(secrets(&shared.secrets.load(), configuration)));
        let lanes: HashMap<DestinationId, Arc<Lane>> = configuration
            .destinations
            .iter()
            .filter_map(|stored| match prepare(&stored.spec, stored.id, &shared.trust, env) {
                Ok(prepared) => Some((stored.id, self.lane(prepared, shared, kept))),
                Err(error) => {
                    let name = stored.spec.name.as_str();
                    // A certificate that cannot be read today was read before: it goes on with that.
                    let before = self.lanes.get(&stored.id).cloned();
                    let goes_on = before.is_some();
                    tracing::error!(destination = name, %error, goes_on, "a destination cannot be used as it is configured; nothing is delivered there until this is mended, unless it goes on as before");
                    before.map(|lane| (stored.id, lane))
                }
            })
            .collect();
        for (id, lane) in &self.lanes {
            if !lanes.contains_key(id) {
                lane.end();
            }
        }
        for DestinationSpec { name, .. } in without_status_source(configuration) {
            let (destination, warning, advice) =
                (name.as_str(), MISSING_STATUS_SOURCE, MISSING_STATUS_SOURCE_ADVICE);
            tracing::warn!(
                destination,
                warning,
                advice,
                "a destination is less safe than it could be"
            );
        }
        let routes = routes(configuration);
        let transforms = routes.iter().flatten().map(|r| (r.id, r.transform.clone())).collect();
        shared.transforms.store(Arc::new(transforms));
        let sources = configuration
            .sources
            .iter()
            .map(|stored| {
                let name = stored.spec.name.as_str();
                let source = stored.spec.build(stored.id, env).map_err(|error| error.to_string());
                let ends = RouteTargets { lanes: &lanes, configuration };
                let (routes, broken) = routes_of(stored.id, name, &routes, &ends);
                // An event that cannot be judged must not be taken in and go nowhere.
                let source = broken.map_or(source, Err);
                let (source, sync) = with_sync(source, &routes);
                for warning in source.iter().flat_map(|source| source.warnings(knows_address)) {
                    tracing::warn!(
                        source = name,
                        warning,
                        "a source is less safe than it could be"
                    );
                }
                let needs_no_proof = |source: &Source| source.is_generic() || source.is_outbox();
                if source.as_ref().is_ok_and(|source| !source.is_verified() && !needs_no_proof(source)) {
                    tracing::warn!(
                        source = name,
                        provider = stored.spec.provider,
                        "the source is unverified: it takes what anybody sends, although its provider signs"
                    );
                }
                if let Err(error) = &source {
                    tracing::error!(
                        source = name,
                        error,
                        "the source refuses everything until this is mended"
                    );
                }
                let metrics = shared.telemetry.source(name);
                (name.to_owned(), Arc::new(SourceRuntime { source, routes, sync, metrics }))
            })
            .collect();
        Self { sources, lanes }
    }

    fn lane(
        &self,
        prepared: PreparedDestination,
        shared: &Arc<LaneContext>,
        kept: &BTreeMap<DestinationId, SavedLaneState>,
    ) -> Arc<Lane> {
        match self.lanes.get(&prepared.destination.id) {
            Some(lane) => {
                lane.update(prepared);
                Arc::clone(lane)
            }
            None => {
                let kept = kept.get(&prepared.destination.id).cloned().unwrap_or_default();
                Lane::start(prepared, Arc::clone(shared), kept)
            }
        }
    }
}

/// Refuses addresses that no attempt could reach. What a name leads to is asked at every attempt.
fn check_addresses(
    destination: &Destination,
    addresses: &AddressPolicy,
) -> Result<(), ConfigError> {
    let of_uri = |uri: &Uri| uri.host().and_then(|host| Host::parse(host).ok());
    let url = match &destination.transport {
        Transport::Http(uri) => of_uri(uri),
        Transport::Inbox | Transport::Exec(_) => None,
        Transport::RedisStream(stream) => Some(stream.server.host.clone()),
        Transport::Channel(sender) => sender.account.base_url().host().map(|host| host.to_owned()),
    };
    let token_url = match &destination.auth {
        Some(AuthConfig::Oauth2(oauth2)) => of_uri(&oauth2.token_url),
        Some(AuthConfig::Fixed(_)) | None => None,
    };
    let proxy = destination.proxy.as_ref().map(|proxy| proxy.host.clone());
    for host in [url, token_url, proxy].into_iter().flatten() {
        let allowed = addresses.check_host(&host);
        let named = |blocked| ConfigError::Blocked(destination.name.to_string(), blocked);
        allowed.map_err(named)?;
    }
    Ok(())
}

/// Refuses programs that no attempt could run. That they are still there and allowed is asked at every
/// attempt.
fn check_program(destination: &Destination, programs: &AllowedPrograms) -> Result<(), ConfigError> {
    let Transport::Exec(exec) = &destination.transport else { return Ok(()) };
    let named = |error| ConfigError::Program(destination.name.to_string(), error);
    programs.find(&exec.program).map(drop).map_err(named)
}

/// Where routes end.
struct RouteTargets<'a> {
    lanes: &'a HashMap<DestinationId, Arc<Lane>>,
    configuration: &'a Configuration,
}

impl RouteTargets<'_> {
    fn of(&self, route: &Route) -> RouteRuntime {
        let lane = self.lanes.get(&route.destination).cloned();
        let is_there =
            |stored: &&StoredObject<DestinationId, DestinationSpec>| stored.id == route.destination;
        let waiting = match lane {
            Some(_) => None,
            None => self.configuration.destinations.iter().find(is_there),
        };
        // Rules that make no sense were refused when they were written.
        let waiting = waiting.and_then(|stored| stored.spec.lane().ok()).map(Arc::new);
        let end = RouteTarget { destination: route.destination, lane, waiting };
        RouteRuntime { route: route.clone(), end }
    }
}

/// The routes of one source with their lanes, and what is wrong with one of them.
fn routes_of(
    source: SourceId,
    name: &str,
    routes: &[Result<Route, ConfigError>],
    ends: &RouteTargets<'_>,
) -> (Vec<RouteRuntime>, Option<String>) {
    let mut found = Vec::new();
    let mut broken = None;
    for route in routes {
        match route {
            Ok(route) if route.source == source => {
                found.push(ends.of(route));
            }
            Err(problem) if problem.is_of_route_from(name) => broken = Some(problem.to_string()),
            Ok(_) | Err(_) => {}
        }
    }
    (found, broken)
}

/// The source, and what its senders wait for. One that would wait for nothing is not used.
fn with_sync(
    source: Result<Source, String>,
    routes: &[RouteRuntime],
) -> (Result<Source, String>, Option<SyncConfig>) {
    let Ok(found) = &source else { return (source, None) };
    let Some(sync) = &found.sync else { return (source, None) };
    match routes.iter().map(|end| &end.route).find(|route| route.to == sync.destination) {
        Some(route) => {
            let entry = SyncConfig {
                destination: route.destination,
                deadline: sync.deadline.0,
                on_timeout: sync.on_timeout,
                revives: found.revive_dead,
            };
            (source, Some(entry))
        }
        None => {
            let (name, to) = (found.name.to_string(), sync.destination.to_string());
            (Err(ConfigError::NothingToWaitFor(name, to).to_string()), None)
        }
    }
}

impl ConfigError {
    fn is_of_route_from(&self, source: &str) -> bool {
        match self {
            Self::Route(from, ..) | Self::UnknownEnd { from, .. } => from == source,
            Self::NothingToWaitFor(..)
            | Self::Source(..)
            | Self::Destination(..)
            | Self::Reserved(..)
            | Self::BuiltIn(..)
            | Self::Twice(..)
            | Self::Tls(..)
            | Self::Blocked(..)
            | Self::Program(..) => false,
        }
    }
}
