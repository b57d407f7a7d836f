//! What is configured, ready to be used: sources by name, each with its routes and their lanes.
//!
//! A registry is never changed, only replaced: a request sees one from beginning to end.

use std::{collections::HashMap, sync::Arc};

use surehook_core::{
    destination::{Destination, InvalidDestination},
    ids::{DestinationId, SourceId},
    jq::JqError,
    route::Route,
    source::{InvalidSource, Source},
    store::Configuration,
};

use crate::{
    lane::{Lane, Shared},
    telemetry::SourceMetrics,
};

/// A source and all that its events need.
#[derive(Debug)]
pub(crate) struct SourceEntry {
    /// The source, or why it cannot be used: then its requests are refused, not let through.
    pub(crate) source: Result<Source, String>,
    pub(crate) routes: Vec<(Route, Arc<Lane>)>,
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
}

/// How a name in the environment is looked up.
pub type Env = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A configuration with every part compiled, or the first thing that is wrong with it.
pub fn check(configuration: &Configuration, env: &Env) -> Result<(), ConfigProblem> {
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
    for source in &configuration.sources {
        source
            .spec
            .build(source.id, env)
            .map_err(|error| ConfigProblem::Source(source.spec.name.to_string(), error))?;
    }
    for destination in &configuration.destinations {
        destination.spec.build(destination.id, env).map_err(|error| {
            ConfigProblem::Destination(destination.spec.name.to_string(), error)
        })?;
    }
    routes(configuration).map(drop)
}

fn routes(configuration: &Configuration) -> Result<Vec<Route>, ConfigProblem> {
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
    /// Builds the next registry from this one: lanes that stay keep what they have in memory.
    pub(crate) fn next(
        &self,
        configuration: &Configuration,
        shared: &Arc<Shared>,
        env: &Env,
    ) -> Result<Self, ConfigProblem> {
        let routes = routes(configuration)?;
        let mut lanes = HashMap::new();
        for stored in &configuration.destinations {
            let destination = stored
                .spec
                .build(stored.id, env)
                .map_err(|error| ConfigProblem::Destination(stored.spec.name.to_string(), error))?;
            lanes.insert(stored.id, self.lane(destination, shared));
        }
        for (id, lane) in &self.lanes {
            if !lanes.contains_key(id) {
                lane.end();
            }
        }
        let sources = configuration
            .sources
            .iter()
            .map(|stored| {
                let name = stored.spec.name.as_str();
                let source = stored.spec.build(stored.id, env).map_err(|error| {
                    tracing::error!(source = name, %error, "the source refuses everything until this is mended");
                    error.to_string()
                });
                let routes = routes
                    .iter()
                    .filter(|route| route.source == stored.id)
                    .filter_map(|route| Some((route.clone(), lanes.get(&route.destination)?.clone())))
                    .collect();
                let metrics = shared.telemetry.source(name);
                (name.to_owned(), Arc::new(SourceEntry { source, routes, metrics }))
            })
            .collect();
        Ok(Self { sources, lanes })
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
