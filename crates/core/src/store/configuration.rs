//! The stored configuration and its changes.

use std::collections::BTreeSet;

use surehook_types::{
    ids::{DestinationId, RouteId, SourceId},
    name::Name,
    redact::SecretNames,
    time::Timestamp,
};
use surehook_webhooks::provider;

use crate::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

/// A configured object with its timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredObject<I, S> {
    pub id: I,
    pub spec: S,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A number that grows with every change of the configuration, so that a change that was planned for an
/// older version is recognized. Zero before the first change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigVersion(pub u64);

/// The result of changing the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigChangeResult {
    /// All changes are stored; the configuration has this version now.
    Changed(ConfigVersion),
    /// The configuration has moved on to this version, and nothing was changed.
    Outdated(ConfigVersion),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// The version that was loaded; [`Self::apply`] does not change it.
    pub version: ConfigVersion,
    /// Sorted by name.
    pub sources: Vec<StoredObject<SourceId, SourceSpec>>,
    /// Sorted by name.
    pub destinations: Vec<StoredObject<DestinationId, DestinationSpec>>,
    /// Oldest first.
    pub routes: Vec<StoredObject<RouteId, RouteSpec>>,
    pub past: PastConfiguration,
}

/// Past settings that are still needed: to mask secrets in older requests, and to exempt older sources
/// from a newer rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastConfiguration {
    /// Headers that carry or once carried the secret of a source; in lower case.
    pub token_headers: BTreeSet<String>,
    /// Deleted sources with settings about secrets, sorted by id.
    pub sources: Vec<PastSource>,
    /// Sources that were configured before [`Source::check_new`](crate::source::Source::check_new) and
    /// have not been changed since.
    pub lenient_sources: BTreeSet<SourceId>,
}

/// Settings of a deleted source about secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastSource {
    pub id: SourceId,
    pub name: Name,
    /// [`SourceSpec::redact`].
    pub redact: Vec<String>,
    /// [`SourceSpec::strip_secrets`].
    pub strip_secrets: bool,
}

impl PastSource {
    /// `None` if the source has no settings about secrets.
    fn from_spec(id: SourceId, spec: SourceSpec) -> Option<Self> {
        let SourceSpec { name, redact, strip_secrets, .. } = spec;
        let has_settings = strip_secrets || !redact.is_empty();
        has_settings.then_some(Self { id, name, redact, strip_secrets })
    }
}

impl Configuration {
    /// Names of secrets in the requests of a source, deleted or not.
    pub fn secret_names(&self, source: SourceId) -> SecretNames {
        let spec = self.sources.iter().find(|stored| stored.id == source);
        let mut names = spec.map_or_else(SecretNames::builtin, |stored| stored.spec.secret_names());
        let past = self.past.sources.iter().find(|past| past.id == source);
        names.add_fields(past.into_iter().flat_map(|past| &past.redact));
        self.add_token_headers(names)
    }

    /// Whether a header contains the signature of a request: of a preset, or as a source is configured.
    pub fn is_signature_header(&self, name: &str) -> bool {
        let mut configured = self.sources.iter().flat_map(|stored| stored.spec.signature_headers());
        provider::is_signature_header(name)
            || configured.any(|header| header.eq_ignore_ascii_case(name))
    }

    /// Names of secrets in the requests of any source.
    pub fn all_secret_names(&self) -> SecretNames {
        let mut names = SecretNames::builtin();
        names.add_fields(self.sources.iter().flat_map(|stored| &stored.spec.redact));
        names.add_fields(self.past.sources.iter().flat_map(|past| &past.redact));
        self.add_token_headers(names)
    }

    fn add_token_headers(&self, mut names: SecretNames) -> SecretNames {
        self.past.token_headers.iter().for_each(|header| names.add_header(header));
        names
    }

    /// Applies changes; the store does the same to its tables.
    pub fn apply(&mut self, changes: &[ConfigChange], now: Timestamp) {
        for change in changes {
            match change {
                // Routes follow their source or destination when it is renamed.
                ConfigChange::PutSource(id, spec) => {
                    let old_name = put(&mut self.sources, *id, spec, now).map(|old| old.name);
                    self.past.sources.retain(|past| past.id != *id);
                    self.past.lenient_sources.remove(id);
                    let header = spec.token_header().map(str::to_ascii_lowercase);
                    self.past.token_headers.extend(header);
                    let names = self.routes.iter_mut().map(|route| &mut route.spec.from);
                    rename(names, old_name.as_ref(), &spec.name);
                }
                ConfigChange::PutDestination(id, spec) => {
                    let old_name = put(&mut self.destinations, *id, spec, now).map(|old| old.name);
                    let names = self.routes.iter_mut().map(|route| &mut route.spec.to);
                    rename(names, old_name.as_ref(), &spec.name);
                }
                ConfigChange::PutRoute(id, spec) => {
                    put(&mut self.routes, *id, spec, now);
                }
                ConfigChange::DeleteSource(id) => {
                    let removed = remove(&mut self.sources, *id);
                    self.past.lenient_sources.remove(id);
                    let name = removed.as_ref().map(|spec| spec.name.clone());
                    self.routes.retain(|route| Some(&route.spec.from) != name.as_ref());
                    self.past
                        .sources
                        .extend(removed.and_then(|spec| PastSource::from_spec(*id, spec)));
                    self.past.sources.sort_by_key(|past| past.id);
                }
                ConfigChange::DeleteDestination(id) => {
                    let name = remove(&mut self.destinations, *id).map(|spec| spec.name);
                    self.routes.retain(|route| Some(&route.spec.to) != name.as_ref());
                }
                ConfigChange::DeleteRoute(id) => self.routes.retain(|route| route.id != *id),
            }
        }
        self.sources.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        self.destinations.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    }
}

/// Inserts or replaces an object; returns the previous spec.
fn put<I: PartialEq, S: Clone>(
    list: &mut Vec<StoredObject<I, S>>,
    id: I,
    spec: &S,
    now: Timestamp,
) -> Option<S> {
    let spec = spec.clone();
    if let Some(stored) = list.iter_mut().find(|stored| stored.id == id) {
        stored.updated_at = now;
        return Some(std::mem::replace(&mut stored.spec, spec));
    }
    list.push(StoredObject { id, spec, created_at: now, updated_at: now });
    None
}

fn rename<'a>(names: impl Iterator<Item = &'a mut Name>, from: Option<&Name>, to: &Name) {
    if let Some(from) = from {
        names.filter(|name| *name == from).for_each(|name| *name = to.clone());
    }
}

fn remove<I: PartialEq, S>(list: &mut Vec<StoredObject<I, S>>, id: I) -> Option<S> {
    let at = list.iter().position(|stored| stored.id == id)?;
    Some(list.remove(at).spec)
}

/// One change to the configuration.
#[derive(Clone, Debug)]
pub enum ConfigChange {
    /// Creates a source under this id, or replaces the one that has it.
    PutSource(SourceId, SourceSpec),
    /// Creates a destination under this id, or replaces the one that has it. If it has no ordering
    /// (any more), its held deliveries become due.
    PutDestination(DestinationId, DestinationSpec),
    /// Creates a route under this id, or replaces the one that has it.
    PutRoute(RouteId, RouteSpec),
    /// Removes a source and its routes. Its events stay.
    DeleteSource(SourceId),
    /// Removes a destination and its routes. Its unfinished deliveries are cancelled.
    DeleteDestination(DestinationId),
    DeleteRoute(RouteId),
}
