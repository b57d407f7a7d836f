//! The configuration in use: sources by name, each with its routes and their lanes.
//!
//! A registry is never changed, only replaced: a request sees one configuration from beginning to end.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Uri};
use surehook_core::{
    callback::{Callback, DeliveryEnd},
    delivery::ClaimProof,
    destination::{
        Destination, DestinationSpec, DestinationSpecError, Transport,
        auth::AuthConfig,
        kind::DestinationKind,
        sign_as::SignAsSpecError,
        status_source::{
            MISSING_STATUS_SOURCE, MISSING_STATUS_SOURCE_ADVICE, destinations_without_status_source,
        },
    },
    lane::{LaneConfig, LaneId, SavedLaneState},
    route::{Route, RouteSpecError},
    source::{Source, SourceSpec, SourceSpecError},
    store::{ConfigChange, ConfigVersion, Configuration, OwnedLane, StoredObject},
};
use surehook_guard::address::{AddressPolicy, BlockedAddress};
use surehook_types::{
    ids::{DeliveryId, DestinationId, SourceId},
    name::Name,
};
use surehook_webhooks::{jq::JqFilterSet, key::DedupKey};
use url::Host;

use crate::{
    destination_client::PreparedDestination,
    lane::{Lane, LaneContext, LaneSlot},
    programs::{AllowedPrograms, ProgramError},
    source_secrets::SourceSecretsTable,
    sync::SyncConfig,
    telemetry::SourceMetrics,
    tls::{TlsConfigError, TrustStore},
};

/// A source with everything that its events need.
#[derive(Debug)]
pub(crate) struct SourceRuntime {
    /// The source, or why it is misconfigured; then all its requests are refused.
    pub(crate) source: Result<Source, String>,
    pub(crate) routes: Vec<RouteRuntime>,
    /// Set if senders wait for the delivery result.
    pub(crate) sync: Option<SyncConfig>,
    pub(crate) metrics: SourceMetrics,
}

#[derive(Clone, Debug)]
pub(crate) struct RouteRuntime {
    pub(crate) route: Route,
    pub(crate) target: RouteTarget,
}

/// The destination of a route.
#[derive(Clone, Debug)]
pub(crate) struct RouteTarget {
    pub(crate) destination: DestinationId,
    /// Those of its lanes that run here. A misconfigured destination, or one whose lanes other nodes own,
    /// has none; its deliveries wait in the store.
    pub(crate) lanes: LocalLanes,
    /// Order and delay of a destination without a lane here: they apply to waiting deliveries, too.
    rules_without_lane: Option<Arc<LaneConfig>>,
    /// Where the death of a delivery is reported.
    pub(crate) on_dead: Option<Arc<Callback>>,
}

/// The lanes of one destination that run in this process, by their shards.
pub(crate) type LocalLanes = Arc<[Arc<Lane>]>;

impl RouteTarget {
    /// Reserves a place for a delivery in one of the lanes that run here, so that deliveries are spread
    /// over them; `None` if it has to wait in the store.
    pub(crate) fn reserve(
        &self,
        delivery: DeliveryId,
        bytes: usize,
    ) -> Option<(Arc<Lane>, LaneSlot, ClaimProof)> {
        let count = self.lanes.len();
        // The end of the id is random.
        let first = usize::try_from(delivery.uuid().as_u128() & 0xffff).unwrap_or(0);
        (0..count).map(|step| &self.lanes[(first + step) % count]).find_map(|lane| {
            let (slot, proof) = lane.reserve(bytes)?;
            Some((Arc::clone(lane), slot, proof))
        })
    }

    /// How long a new delivery waits before its first attempt.
    pub(crate) fn delay(&self) -> Duration {
        match self.lanes.first() {
            Some(lane) => lane.delay(),
            None => self.rules_without_lane.as_ref().map_or(Duration::ZERO, |rules| rules.delay),
        }
    }

    /// The ordering key of an event, if the destination is ordered and the event has one.
    pub(crate) fn order_key(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        provider_key: Option<&DedupKey>,
    ) -> Option<DedupKey> {
        match self.lanes.first() {
            Some(lane) => lane.order_key(headers, body, provider_key),
            None => {
                self.rules_without_lane.as_ref()?.order.as_ref()?.key(headers, body, provider_key)
            }
        }
    }
}

/// All usable sources and lanes.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The version of the configuration.
    pub(crate) version: ConfigVersion,
    /// All destinations that can be used, also those whose lanes other nodes own.
    pub(crate) destinations: BTreeMap<DestinationId, UsableDestination>,
    /// The number of destinations with one lane, also of misconfigured ones.
    pub(crate) whole_lanes: usize,
    /// The names of all destinations, also of misconfigured ones.
    pub(crate) names: BTreeMap<DestinationId, String>,
    pub(crate) sources: HashMap<String, Arc<SourceRuntime>>,
    /// The lanes that run here.
    pub(crate) lanes: HashMap<DestinationId, LocalLanes>,
    /// The filters and transforms of all routes.
    pub(crate) filters: JqFilterSet,
}

/// A destination whose settings are valid, and everything that they name is there.
#[derive(Debug)]
pub(crate) struct UsableDestination {
    pub(crate) prepared: PreparedDestination,
    rules: Arc<LaneConfig>,
}

impl UsableDestination {
    /// How many lanes it has.
    pub(crate) fn shards(&self) -> u16 {
        self.prepared.destination.shards
    }
}

/// The lanes that this process owns.
#[derive(Debug, Default)]
pub(crate) struct OwnedLanes {
    pub(crate) lanes: BTreeMap<LaneId, OwnedLane>,
    /// The saved states of the destinations, read after the lanes were acquired.
    pub(crate) saved: BTreeMap<DestinationId, SavedLaneState>,
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("source `{0}`: {1}")]
    Source(String, #[source] SourceSpecError),
    #[error("destination `{0}`: {1}")]
    Destination(String, #[source] DestinationSpecError),
    #[error("route from `{0}` to `{1}`: {2}")]
    Route(String, String, #[source] RouteSpecError),
    #[error(
        "source `{0}`: `sync` waits for destination `{1}`, but no route leads there; add a route or change `sync`"
    )]
    NothingToWaitFor(String, String),
    #[error("route from `{from}` to `{to}`: there is no {missing} with this name")]
    UnknownRouteEnd {
        from: String,
        to: String,
        /// `source` or `destination`.
        missing: &'static str,
    },
    #[error(
        "destination `{0}` is of kind origin, which stands for all URLs of a host: no route may lead to it; add a destination with the whole URL"
    )]
    RouteToOrigin(String),
    #[error(
        "destination `{0}`: `on_dead` must name another destination of kind http, and `{1}` is none"
    )]
    NoReportsOfDead(String, String),
    #[error("source `{0}`: this name is reserved; choose another one")]
    Reserved(String),
    #[error("source `{0}` is built in: it cannot be deleted or replaced")]
    BuiltIn(String),
    #[error("there are two {0} named `{1}`")]
    DuplicateName(&'static str, String),
    #[error("destination `{0}`: {1}")]
    Tls(String, #[source] TlsConfigError),
    #[error("destination `{0}`: {1}; to allow it, add its network to `allow_networks`")]
    Blocked(String, #[source] BlockedAddress),
    #[error("destination `{0}`: exec: {1}")]
    Program(String, #[source] ProgramError),
    #[error(
        "{0}: the API may not reference the environment variable `{1}`; add it to `allow_env` in the gateway's settings, or configure this in the settings file"
    )]
    VariableNotAllowed(String, String),
    #[error(
        "{0}: `env:{1}` cannot be used: variables that start with SUREHOOK_ belong to the gateway; give the variable another name"
    )]
    ReservedVariable(String, String),
}

/// Looks up an environment variable.
pub type EnvLookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The rules that the settings of a destination are checked against.
#[derive(Clone, Copy, Debug)]
pub struct DestinationPolicy<'a> {
    pub addresses: &'a AddressPolicy,
    pub trust: &'a TrustStore,
    pub programs: &'a AllowedPrograms,
}

/// Checks that a configuration fits together and that each of `changes` is valid.
///
/// Objects that are not changed are not checked: a secret that is missing from the environment today
/// must not prevent fixing something else. Nor are short secrets that `before` has already.
/// `has_public_url` says whether the server has a `public_url`.
pub fn check_configuration(
    before: &Configuration,
    configuration: &Configuration,
    changes: &[ConfigChange],
    policy: &DestinationPolicy<'_>,
    has_public_url: bool,
    env: &EnvLookup,
) -> Result<(), ConfigError> {
    let check_names = |kind, names: Vec<&str>| {
        let mut seen = std::collections::HashSet::new();
        match names.into_iter().find(|name| !seen.insert(*name)) {
            Some(duplicate) => Err(ConfigError::DuplicateName(kind, duplicate.to_owned())),
            None => Ok(()),
        }
    };
    check_names("sources", configuration.sources.iter().map(|s| s.spec.name.as_str()).collect())?;
    check_names(
        "destinations",
        configuration.destinations.iter().map(|d| d.spec.name.as_str()).collect(),
    )?;
    for change in changes {
        match change {
            ConfigChange::PutSource(id, spec) => {
                let named = |error| ConfigError::Source(spec.name.to_string(), error);
                let source = spec.build(*id, env).map_err(named)?;
                if !configuration.past.lenient_sources.contains(id) {
                    source.check_new(has_public_url).map_err(named)?;
                }
                let stored = before.sources.iter().find(|stored| stored.id == *id);
                let stored = stored.map(|stored| &stored.spec);
                spec.check_secret_lengths(stored, env).map_err(named)?;
            }
            ConfigChange::PutDestination(id, spec) => {
                let prepared = prepare(spec, *id, policy.trust, env)?;
                check_addresses(&prepared.destination, policy.addresses)?;
                check_program(&prepared.destination, policy.programs)?;
                let stored = before.destinations.iter().find(|stored| stored.id == *id);
                let stored = stored.and_then(|stored| stored.spec.sign_as.as_ref());
                let named = |error: SignAsSpecError| {
                    ConfigError::Destination(spec.name.to_string(), error.into())
                };
                let sign_as = spec.sign_as.as_ref();
                sign_as
                    .map_or(Ok(()), |sign_as| sign_as.check_secret_length(stored, env))
                    .map_err(named)?;
            }
            ConfigChange::PutRoute(_, spec) => {
                let named =
                    |error| ConfigError::Route(spec.from.to_string(), spec.to.to_string(), error);
                spec.check().map_err(named)?;
            }
            ConfigChange::DeleteSource(_)
            | ConfigChange::DeleteDestination(_)
            | ConfigChange::DeleteRoute(_) => {}
        }
    }
    let (routes, _) = build_routes(configuration, &JqFilterSet::default());
    routes.into_iter().try_for_each(|route| route.map(drop))?;
    check_origins(configuration)?;
    check_reports_of_dead(configuration)?;
    configuration.sources.iter().try_for_each(|source| check_sync(&source.spec, configuration))
}

/// Refuses routes to destinations of the kind `origin`: their URLs are named by messages.
fn check_origins(configuration: &Configuration) -> Result<(), ConfigError> {
    let is_origin = |name: &Name| {
        let mut destinations = configuration.destinations.iter().map(|stored| &stored.spec);
        destinations.any(|spec| spec.name == *name && spec.kind == DestinationKind::Origin)
    };
    match configuration.routes.iter().find(|route| is_origin(&route.spec.to)) {
        Some(route) => Err(ConfigError::RouteToOrigin(route.spec.to.to_string())),
        None => Ok(()),
    }
}

/// Refuses reports of dead deliveries to a destination that does not exist or takes no webhooks.
fn check_reports_of_dead(configuration: &Configuration) -> Result<(), ConfigError> {
    for DestinationSpec { name, on_dead, .. } in
        configuration.destinations.iter().map(|stored| &stored.spec)
    {
        let Some(to) = on_dead else { continue };
        let mut others =
            configuration.destinations.iter().filter(|stored| stored.spec.name != *name);
        let takes_reports = others
            .any(|stored| stored.spec.name == *to && stored.spec.kind == DestinationKind::Http);
        if !takes_reports {
            return Err(ConfigError::NoReportsOfDead(name.to_string(), to.to_string()));
        }
    }
    Ok(())
}

/// Refuses `sync` with a destination that no route leads to: its senders would wait in vain.
fn check_sync(source: &SourceSpec, configuration: &Configuration) -> Result<(), ConfigError> {
    let Some(sync) = &source.sync else { return Ok(()) };
    let ends = (&source.name, &sync.destination);
    if configuration.routes.iter().any(|route| (&route.spec.from, &route.spec.to) == ends) {
        return Ok(());
    }
    let (name, to) = (source.name.to_string(), sync.destination.to_string());
    Err(ConfigError::NothingToWaitFor(name, to))
}

/// Builds a destination and loads the files that it names.
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

/// The lanes of all destinations.
pub(crate) fn all_lanes(configuration: &Configuration) -> impl Iterator<Item = LaneId> {
    let destinations = configuration.destinations.iter();
    destinations.flat_map(|stored| LaneId::all(stored.id, stored.spec.shards))
}

/// The number of destinations with one lane.
pub(crate) fn count_whole_lanes(configuration: &Configuration) -> usize {
    all_lanes(configuration).filter(|lane| lane.shard.is_whole()).count()
}

/// The lanes that this process can run, because everything that the settings of their destinations name is
/// there.
pub(crate) fn find_runnable(
    configuration: &Configuration,
    trust: &TrustStore,
    env: &EnvLookup,
) -> Vec<LaneId> {
    let is_runnable = |stored: &&StoredObject<DestinationId, DestinationSpec>| {
        prepare(&stored.spec, stored.id, trust, env).is_ok()
    };
    let runnable = configuration.destinations.iter().filter(is_runnable);
    runnable.flat_map(|stored| LaneId::all(stored.id, stored.spec.shards)).collect()
}

/// The routes, and their filters: those in `before` are used again. Nothing is compiled.
fn build_routes(
    configuration: &Configuration,
    before: &JqFilterSet,
) -> (Vec<Result<Route, ConfigError>>, JqFilterSet) {
    let mut filters = JqFilterSet::default();
    let sources: HashMap<&str, SourceId> =
        configuration.sources.iter().map(|s| (s.spec.name.as_str(), s.id)).collect();
    let destinations: HashMap<&str, DestinationId> =
        configuration.destinations.iter().map(|d| (d.spec.name.as_str(), d.id)).collect();
    let routes = configuration
        .routes
        .iter()
        .map(|route| {
            let (from, to) = (route.spec.from.as_str(), route.spec.to.as_str());
            let unknown = |missing| ConfigError::UnknownRouteEnd {
                from: from.to_owned(),
                to: to.to_owned(),
                missing,
            };
            let source = sources.get(from).ok_or_else(|| unknown("source"))?;
            let destination = destinations.get(to).ok_or_else(|| unknown("destination"))?;
            let share = |text: &str| filters.share(text, before);
            Ok(route.spec.build(route.id, *source, *destination, share))
        })
        .collect();
    (routes, filters)
}

impl Registry {
    /// Builds the next registry from this one: lanes that stay keep what they have in memory. Invalid
    /// objects are logged and not used; everything else keeps working.
    pub(crate) fn next(
        &self,
        configuration: &Configuration,
        shared: &Arc<LaneContext>,
        env: &EnvLookup,
        has_public_url: bool,
        owned: &OwnedLanes,
    ) -> Self {
        // Before any lane starts: deliveries from the store must not be sent with their secrets.
        let secrets = SourceSecretsTable::build(&shared.secrets.load(), configuration);
        shared.secrets.store(Arc::new(secrets));
        let mut destinations = BTreeMap::new();
        let lanes: HashMap<DestinationId, LocalLanes> = configuration
            .destinations
            .iter()
            .filter_map(|stored| match prepare(&stored.spec, stored.id, &shared.trust, env) {
                Ok(prepared) => {
                    let lanes = self.start_or_update_lanes(&stored.spec, &prepared, shared, env, owned);
                    if let Ok(rules) = stored.spec.lane() {
                        let rules = Arc::new(rules);
                        destinations.insert(stored.id, UsableDestination { prepared, rules });
                    }
                    (!lanes.is_empty()).then_some((stored.id, lanes))
                }
                Err(error) => {
                    let name = stored.spec.name.as_str();
                    // A certificate file that cannot be read now was read before: that one is used.
                    let before = self.lanes_of(stored.id).iter();
                    let is_owned = |lane: &&Arc<Lane>| self.owned_lane(lane.id(), owned).is_some();
                    let before: LocalLanes = before.filter(is_owned).cloned().collect();
                    let uses_old_settings = !before.is_empty();
                    tracing::error!(destination = name, %error, uses_old_settings, "destination is misconfigured; it gets no deliveries until this is fixed, unless its old settings are still in use");
                    uses_old_settings.then_some((stored.id, before))
                }
            })
            .collect();
        let is_kept = |lane: &Arc<Lane>| {
            let kept = lanes.get(&lane.destination_id());
            kept.is_some_and(|kept| kept.iter().any(|kept| Arc::ptr_eq(kept, lane)))
        };
        self.all_lanes().filter(|lane| !is_kept(lane)).for_each(|lane| lane.end());
        for DestinationSpec { name, .. } in destinations_without_status_source(configuration) {
            let (destination, warning, advice) =
                (name.as_str(), MISSING_STATUS_SOURCE, MISSING_STATUS_SOURCE_ADVICE);
            tracing::warn!(
                destination,
                warning,
                advice,
                "destination is less safe than it could be"
            );
        }
        let (routes, filters) = build_routes(configuration, &self.filters);
        let route_table = routes.iter().flatten().map(|route| (route.id, route.clone())).collect();
        shared.routes.store(Arc::new(route_table));
        let sources = configuration
            .sources
            .iter()
            .map(|stored| {
                let name = stored.spec.name.as_str();
                let is_lenient = configuration.past.lenient_sources.contains(&stored.id);
                let source = stored.spec.build(stored.id, env);
                let source = source.map(|source| source.with_leniency(is_lenient));
                let source = source.map_err(|error| error.to_string());
                let (routes, invalid) = routes_of(stored, &routes, &lanes, configuration);
                // With an invalid route, events would be accepted and not delivered.
                let source = invalid.map_or(source, Err);
                let (source, sync) = resolve_sync(source, &routes);
                for warning in source.iter().flat_map(|source| source.warnings(has_public_url)) {
                    tracing::warn!(
                        source = name,
                        warning,
                        "source is less safe than it could be"
                    );
                }
                let needs_no_signature = |source: &Source| source.is_generic() || source.is_outbox();
                if source.as_ref().is_ok_and(|source| !source.is_verified() && !needs_no_signature(source)) {
                    tracing::warn!(
                        source = name,
                        provider = stored.spec.provider,
                        "source is unverified: it accepts requests from anyone, although its provider signs them"
                    );
                }
                if let Err(error) = &source {
                    tracing::error!(
                        source = name,
                        error,
                        "source is misconfigured; it refuses all requests until this is fixed"
                    );
                }
                let metrics = shared.telemetry.source(name);
                (name.to_owned(), Arc::new(SourceRuntime { source, routes, sync, metrics }))
            })
            .collect();
        let version = configuration.version;
        let whole_lanes = count_whole_lanes(configuration);
        let names = configuration.destinations.iter();
        let names = names.map(|stored| (stored.id, stored.spec.name.to_string())).collect();
        Self { version, destinations, whole_lanes, names, sources, lanes, filters }
    }

    /// Where deliveries to a destination go, whichever nodes own its lanes; `None` if it cannot be used.
    pub(crate) fn target(&self, destination: DestinationId) -> Option<RouteTarget> {
        // For messages, which have callbacks of their own.
        if let Some(lanes) = self.lanes.get(&destination) {
            let lanes = Arc::clone(lanes);
            return Some(RouteTarget {
                destination,
                lanes,
                rules_without_lane: None,
                on_dead: None,
            });
        }
        let rules_without_lane = Some(Arc::clone(&self.destinations.get(&destination)?.rules));
        let lanes = LocalLanes::default();
        Some(RouteTarget { destination, lanes, rules_without_lane, on_dead: None })
    }

    /// A destination as it is used now.
    pub(crate) fn destination(&self, id: DestinationId) -> Option<Arc<Destination>> {
        let of_lane = self.lanes_of(id).first().map(|lane| lane.destination());
        of_lane.or_else(|| Some(Arc::clone(&self.destinations.get(&id)?.prepared.destination)))
    }

    /// The lanes of a destination that run here.
    pub(crate) fn lanes_of(&self, destination: DestinationId) -> &[Arc<Lane>] {
        self.lanes.get(&destination).map_or(&[], |lanes| &**lanes)
    }

    /// All lanes that run here.
    pub(crate) fn all_lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.lanes.values().flat_map(|lanes| lanes.iter())
    }

    pub(crate) fn lane(&self, id: LaneId) -> Option<&Arc<Lane>> {
        self.lanes_of(id.destination).iter().find(|lane| lane.id() == id)
    }

    /// The lane whose state stands for its destination, if it runs here.
    pub(crate) fn first_lane(&self, destination: DestinationId) -> Option<&Arc<Lane>> {
        self.lanes_of(destination).first().filter(|lane| lane.id().shard.is_first())
    }

    /// How many lanes a destination that can be used has.
    pub(crate) fn shards(&self, destination: DestinationId) -> Option<u16> {
        self.destinations.get(&destination).map(UsableDestination::shards)
    }

    /// Whether the states of all destinations are in the memory of this process.
    pub(crate) fn has_all_first_lanes(&self) -> bool {
        self.destinations.keys().all(|id| self.first_lane(*id).is_some())
    }

    /// A running lane, if this process owns it without interruption.
    fn owned_lane(&self, id: LaneId, owned: &OwnedLanes) -> Option<&Arc<Lane>> {
        let lane = self.lane(id)?;
        let owned = owned.lanes.get(&id)?;
        (owned.epoch == lane.epoch()).then_some(lane)
    }

    /// The lanes of a destination that this process owns.
    fn start_or_update_lanes(
        &self,
        spec: &DestinationSpec,
        prepared: &PreparedDestination,
        shared: &Arc<LaneContext>,
        env: &EnvLookup,
        owned: &OwnedLanes,
    ) -> LocalLanes {
        let id = prepared.destination.id;
        let start_or_update = |lane: LaneId| {
            let owned_lane = *owned.lanes.get(&lane)?;
            let prepared = match lane.shard.is_whole() {
                true => prepared.clone(),
                // It was built once already.
                false => prepared.with_destination(spec.build(id, env).ok()?.for_shard(lane.shard)),
            };
            if let Some(running) = self.owned_lane(lane, owned) {
                running.update(prepared);
                return Some(Arc::clone(running));
            }
            let saved = owned.saved.get(&id).cloned().unwrap_or_default();
            Some(Lane::start(prepared, Arc::clone(shared), owned_lane, saved))
        };
        LaneId::all(id, spec.shards).filter_map(start_or_update).collect()
    }
}

/// Refuses addresses that no attempt may call. Names are resolved and checked at every attempt.
fn check_addresses(
    destination: &Destination,
    addresses: &AddressPolicy,
) -> Result<(), ConfigError> {
    let host_of = |uri: &Uri| uri.host().and_then(|host| Host::parse(host).ok());
    let url = match &destination.transport {
        Transport::Http(uri) | Transport::Origin(uri) => host_of(uri),
        Transport::Inbox | Transport::Exec(_) | Transport::Listen(_) => None,
        Transport::RedisStream(stream) => Some(stream.server.host.clone()),
        Transport::Email(mailbox) => Some(mailbox.host.clone()),
        Transport::Channel(sender) => sender.account.base_url().host().map(|host| host.to_owned()),
    };
    let token_url = match &destination.auth {
        Some(AuthConfig::Oauth2(oauth2)) => host_of(&oauth2.token_url),
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

/// Refuses programs that no attempt may run. They are checked again at every attempt.
fn check_program(destination: &Destination, programs: &AllowedPrograms) -> Result<(), ConfigError> {
    let Transport::Exec(exec) = &destination.transport else { return Ok(()) };
    let named = |error| ConfigError::Program(destination.name.to_string(), error);
    programs.resolve(&exec.program).map(drop).map_err(named)
}

/// The routes of one source, and why one of them is invalid, if so.
fn routes_of(
    source: &StoredObject<SourceId, SourceSpec>,
    routes: &[Result<Route, ConfigError>],
    lanes: &HashMap<DestinationId, LocalLanes>,
    configuration: &Configuration,
) -> (Vec<RouteRuntime>, Option<String>) {
    let mut valid = Vec::new();
    let mut invalid = None;
    for route in routes {
        match route {
            Ok(route) if route.source == source.id => {
                let target = route_target(route.destination, lanes, configuration);
                valid.push(RouteRuntime { route: route.clone(), target });
            }
            Err(problem) if problem.is_of_route_from(source.spec.name.as_str()) => {
                invalid = Some(problem.to_string());
            }
            Ok(_) | Err(_) => {}
        }
    }
    (valid, invalid)
}

fn route_target(
    destination: DestinationId,
    lanes: &HashMap<DestinationId, LocalLanes>,
    configuration: &Configuration,
) -> RouteTarget {
    let stored = configuration.destinations.iter().find(|stored| stored.id == destination);
    let on_dead = stored.and_then(|stored| report_of_dead(&stored.spec, configuration));
    let lanes = lanes.get(&destination).cloned().unwrap_or_default();
    // Invalid rules were refused when they were stored.
    let rules_without_lane = match lanes.is_empty() {
        true => stored.and_then(|stored| stored.spec.lane().ok()).map(Arc::new),
        false => None,
    };
    RouteTarget { destination, lanes, rules_without_lane, on_dead }
}

/// The callback of deliveries to this destination: it reports those that die.
fn report_of_dead(spec: &DestinationSpec, configuration: &Configuration) -> Option<Arc<Callback>> {
    let name = spec.on_dead.as_ref()?;
    let to = configuration.destinations.iter().find(|stored| stored.spec.name == *name)?;
    Some(Arc::new(Callback {
        destination: to.id,
        path: String::new(),
        query: None,
        on: vec![DeliveryEnd::Dead],
    }))
}

/// The source, and what its senders wait for. A source whose senders would wait in vain is invalid.
fn resolve_sync(
    source: Result<Source, String>,
    routes: &[RouteRuntime],
) -> (Result<Source, String>, Option<SyncConfig>) {
    let Ok(valid_source) = &source else { return (source, None) };
    let Some(sync) = &valid_source.sync else { return (source, None) };
    match routes.iter().map(|runtime| &runtime.route).find(|route| route.to == sync.destination) {
        Some(route) => {
            let config = SyncConfig {
                destination: route.destination,
                deadline: sync.deadline.0,
                on_timeout: sync.on_timeout,
                revives: valid_source.revive_dead,
            };
            (source, Some(config))
        }
        None => {
            let (name, to) = (valid_source.name.to_string(), sync.destination.to_string());
            (Err(ConfigError::NothingToWaitFor(name, to).to_string()), None)
        }
    }
}

impl ConfigError {
    fn is_of_route_from(&self, source: &str) -> bool {
        match self {
            Self::Route(from, ..) | Self::UnknownRouteEnd { from, .. } => from == source,
            Self::NothingToWaitFor(..)
            | Self::Source(..)
            | Self::Destination(..)
            | Self::RouteToOrigin(..)
            | Self::NoReportsOfDead(..)
            | Self::Reserved(..)
            | Self::BuiltIn(..)
            | Self::DuplicateName(..)
            | Self::Tls(..)
            | Self::Blocked(..)
            | Self::VariableNotAllowed(..)
            | Self::ReservedVariable(..)
            | Self::Program(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_types::{ids::RouteId, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn put_route(number: u128, filter: &str) -> ConfigChange {
        let spec = json!({ "from": "in", "to": "out", "filter": filter, "transform": "{id}" });
        ConfigChange::PutRoute(
            RouteId::new(NOW, number << 100),
            serde_json::from_value(spec).unwrap(),
        )
    }

    #[test]
    fn routes_share_filters_and_a_change_compiles_none_of_the_others() {
        let mut configuration = Configuration::default();
        let source = json!({ "name": "in", "verify": "none" });
        let destination = json!({ "name": "out", "url": "builtin:inbox" });
        let ends = [
            ConfigChange::PutSource(SourceId::new(NOW, 1), serde_json::from_value(source).unwrap()),
            ConfigChange::PutDestination(
                DestinationId::new(NOW, 1),
                serde_json::from_value(destination).unwrap(),
            ),
        ];
        configuration.apply(&ends, NOW);
        let text = |number: u128| format!(".n == {}", number % 10);
        let changes: Vec<_> = (0..1000).map(|number| put_route(number, &text(number))).collect();
        configuration.apply(&changes, NOW);

        let (routes, filters) = build_routes(&configuration, &JqFilterSet::default());

        assert_eq!((routes.len(), filters.len(), filters.compiled_count()), (1000, 11, 0));
        let used = routes[0].as_ref().unwrap().filter.clone().unwrap();
        used.check().unwrap();
        let change = put_route(1, "true");
        configuration.apply(std::slice::from_ref(&change), NOW);
        let (_, changed) = build_routes(&configuration, &filters);
        assert_eq!((changed.len(), changed.compiled_count()), (12, 1), "the one that was used");
        let (trust, programs) = (TrustStore::from_system(), AllowedPrograms::default());
        let addresses = AddressPolicy::new(Vec::new());
        let policy =
            DestinationPolicy { addresses: &addresses, trust: &trust, programs: &programs };
        let check = |change: ConfigChange| {
            let before = &configuration;
            let mut configuration = before.clone();
            // Of an unchanged route, nothing is checked; of a changed one, everything.
            configuration.apply(&[put_route(2, "nope"), change.clone()], NOW);
            check_configuration(before, &configuration, &[change], &policy, false, &|_| None)
        };
        assert!(check(change).is_ok());
        assert!(check(put_route(3, "true")).is_ok());
        assert!(check(put_route(3, "nope")).is_err_and(|error| {
            error.to_string().contains("route from `in` to `out`: filter: filter, line 1")
        }));
    }
}
