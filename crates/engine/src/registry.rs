//! What is configured, ready to be used: sources by name, each with its routes and their lanes.
//!
//! A registry is never changed, only replaced: a request sees one from beginning to end.

use std::{collections::HashMap, sync::Arc};

use surehook_core::{
    address::{AddressPolicy, Blocked},
    destination::{Destination, InvalidDestination, Reach},
    ids::{DestinationId, SourceId},
    jq::JqError,
    route::Route,
    source::{InvalidSource, Source},
    store::{Change, Configuration},
};

use url::Host;

use crate::{
    lane::{Lane, Shared},
    telemetry::SourceMetrics,
};

/// A source and all that its events need.
#[derive(Debug)]
pub(crate) struct SourceEntry {
    /// The source, or why it cannot be used: then its requests are refused, not let through.
    pub(crate) source: Result<Source, String>,
    /// A destination that cannot be used has no lane; what it is owed waits in the store.
    pub(crate) routes: Vec<(Route, Option<Arc<Lane>>)>,
    pub(crate) metrics: SourceMetrics,
}

/// Everything that is configured.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) sources: HashMap<String, Arc<SourceEntry>>,
    pub(crate) lanes: HashMap<DestinationId, Arc<Lane>>,
}

/// Something configured that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigProblem {
    /// A source.
    #[error("source `{0}`: {1}")]
    Source(String, #[source] InvalidSource),
    /// A destination.
    #[error("destination `{0}`: {1}")]
    Destination(String, #[source] InvalidDestination),
    /// A route's filter.
    #[error("route from `{0}` to `{1}`: filter: {2}")]
    Filter(String, String, #[source] JqError),
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
    /// Two things with one name.
    #[error("there are two {0} named `{1}`")]
    Twice(&'static str, String),
    /// A destination at an address that may not be called.
    #[error("destination `{0}`: {1}; list its network in `allow_networks` if this is meant")]
    Blocked(String, #[source] Blocked),
}

/// How a name in the environment is looked up.
pub type Env = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Whether a configuration can be stored: it fits together, and each of `changes` can be used.
///
/// What is not touched is not asked: a secret that is missing from the environment today must not be
/// in the way of whoever mends something else.
pub fn check(
    configuration: &Configuration,
    changes: &[Change],
    env: &Env,
    addresses: &AddressPolicy,
) -> Result<(), ConfigProblem> {
    let names = |what, names: Vec<&str>| {
        let mut seen = std::collections::HashSet::new();
        match names.into_iter().find(|name| !seen.insert(*name)) {
            Some(twice) => Err(ConfigProblem::Twice(what, twice.to_owned())),
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
            Change::PutSource(id, spec) => {
                let named = |error| ConfigProblem::Source(spec.name.to_string(), error);
                spec.build(*id, env).map_err(named)?;
            }
            Change::PutDestination(id, spec) => {
                let named = |error| ConfigProblem::Destination(spec.name.to_string(), error);
                let destination = spec.build(*id, env).map_err(named)?;
                check_address(&destination, addresses)?;
            }
            Change::PutRoute(..)
            | Change::DeleteSource(_)
            | Change::DeleteDestination(_)
            | Change::DeleteRoute(_) => {}
        }
    }
    routes(configuration).into_iter().try_for_each(|route| route.map(drop))
}

fn routes(configuration: &Configuration) -> Vec<Result<Route, ConfigProblem>> {
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
                |what| ConfigProblem::UnknownEnd { from: from.to_owned(), to: to.to_owned(), what };
            let source = sources.get(from).ok_or_else(|| unknown("source"))?;
            let destination = destinations.get(to).ok_or_else(|| unknown("destination"))?;
            route
                .spec
                .build(route.id, *source, *destination)
                .map_err(|error| ConfigProblem::Filter(from.to_owned(), to.to_owned(), error))
        })
        .collect()
}

impl Registry {
    /// Builds the next registry from this one: lanes that stay keep what they have in memory. What
    /// cannot be used is said once and stands still; everything else goes on.
    pub(crate) fn next(
        &self,
        configuration: &Configuration,
        shared: &Arc<Shared>,
        env: &Env,
    ) -> Self {
        let lanes: HashMap<DestinationId, Arc<Lane>> = configuration
            .destinations
            .iter()
            .filter_map(|stored| match stored.spec.build(stored.id, env) {
                Ok(destination) => Some((stored.id, self.lane(destination, shared))),
                Err(error) => {
                    let name = stored.spec.name.as_str();
                    tracing::error!(destination = name, %error, "nothing is delivered there until this is mended");
                    None
                }
            })
            .collect();
        for (id, lane) in &self.lanes {
            if !lanes.contains_key(id) {
                lane.end();
            }
        }
        let routes = routes(configuration);
        let sources = configuration
            .sources
            .iter()
            .map(|stored| {
                let name = stored.spec.name.as_str();
                let source = stored.spec.build(stored.id, env).map_err(|error| error.to_string());
                let (routes, broken) = routes_of(stored.id, name, &routes, &lanes);
                // An event that cannot be judged must not be taken in and go nowhere.
                let source = broken.map_or(source, Err);
                for warning in source.iter().flat_map(|source| source.verifier.warnings()) {
                    tracing::warn!(
                        source = name,
                        warning,
                        "a source is less safe than it could be"
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
                (name.to_owned(), Arc::new(SourceEntry { source, routes, metrics }))
            })
            .collect();
        Self { sources, lanes }
    }

    /// The name that a source has now.
    pub(crate) fn source_name(&self, id: SourceId) -> Option<String> {
        let is_it = |entry: &SourceEntry| entry.source.as_ref().is_ok_and(|it| it.id == id);
        self.sources.iter().find(|(_, entry)| is_it(entry)).map(|(name, _)| name.clone())
    }

    fn lane(&self, destination: Destination, shared: &Arc<Shared>) -> Arc<Lane> {
        let destination = Arc::new(destination);
        match self.lanes.get(&destination.id) {
            Some(lane) => {
                lane.update(destination);
                Arc::clone(lane)
            }
            None => Lane::start(destination, Arc::clone(shared)),
        }
    }
}

/// Refuses an address that no attempt could reach. What a name leads to is asked at every attempt.
fn check_address(
    destination: &Destination,
    addresses: &AddressPolicy,
) -> Result<(), ConfigProblem> {
    let host = match &destination.reach {
        Reach::Http(uri) => uri.host().and_then(|host| Host::parse(host).ok()),
        Reach::Inbox => None,
    };
    let allowed = host.map_or(Ok(()), |host| addresses.check_host(&host));
    allowed.map_err(|blocked| ConfigProblem::Blocked(destination.name.to_string(), blocked))
}

type RoutesOfSource = Vec<(Route, Option<Arc<Lane>>)>;

/// The routes of one source with their lanes, and what is wrong with one of them.
fn routes_of(
    source: SourceId,
    name: &str,
    routes: &[Result<Route, ConfigProblem>],
    lanes: &HashMap<DestinationId, Arc<Lane>>,
) -> (RoutesOfSource, Option<String>) {
    let mut found = Vec::new();
    let mut broken = None;
    for route in routes {
        match route {
            Ok(route) if route.source == source => {
                found.push((route.clone(), lanes.get(&route.destination).cloned()));
            }
            Err(problem) if problem.is_of_route_from(name) => broken = Some(problem.to_string()),
            Ok(_) | Err(_) => {}
        }
    }
    (found, broken)
}

impl ConfigProblem {
    fn is_of_route_from(&self, source: &str) -> bool {
        match self {
            Self::Filter(from, ..) | Self::UnknownEnd { from, .. } => from == source,
            Self::Source(..) | Self::Destination(..) | Self::Twice(..) | Self::Blocked(..) => false,
        }
    }
}
