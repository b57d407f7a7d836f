//! What people configure, as it is stored, and how it changes.

use std::collections::BTreeSet;

use crate::{
    destination::DestinationSpec, ids::DestinationId, ids::RouteId, ids::SourceId, name::Name,
    redact::SecretNames, route::RouteSpec, source::SourceSpec, time::Timestamp,
};

/// A stored object that people configure, with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredObject<I, S> {
    /// Its id.
    pub id: I,
    /// What was written.
    pub spec: S,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// Everything that people configure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// All sources, by name.
    pub sources: Vec<StoredObject<SourceId, SourceSpec>>,
    /// All destinations, by name.
    pub destinations: Vec<StoredObject<DestinationId, DestinationSpec>>,
    /// All routes, oldest first.
    pub routes: Vec<StoredObject<RouteId, RouteSpec>>,
    /// What is not configured any more and still says what is secret in what is kept.
    pub past: PastConfiguration,
}

/// What was configured once and says what is secret in the requests of that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastConfiguration {
    /// Headers in which a source gets its secret, or once did; in lower case.
    pub token_headers: BTreeSet<String>,
    /// Sources that are deleted and had something to say about secrets, by id.
    pub sources: Vec<PastSource>,
}

/// What a deleted source said about secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastSource {
    /// Its id.
    pub id: SourceId,
    /// Its name.
    pub name: Name,
    /// [`SourceSpec::redact`].
    pub redact: Vec<String>,
    /// [`SourceSpec::strip_secrets`].
    pub strip_secrets: bool,
}

impl PastSource {
    /// What stays of a source when it is deleted.
    fn of(id: SourceId, spec: SourceSpec) -> Option<Self> {
        let SourceSpec { name, redact, strip_secrets, .. } = spec;
        let says = strip_secrets || !redact.is_empty();
        says.then_some(Self { id, name, redact, strip_secrets })
    }
}

impl Configuration {
    /// What is secret in the requests of a source, deleted or not.
    pub fn secret_names(&self, source: SourceId) -> SecretNames {
        let spec = self.sources.iter().find(|stored| stored.id == source);
        let mut names = spec.map_or_else(SecretNames::builtin, |stored| stored.spec.secret_names());
        let past = self.past.sources.iter().find(|past| past.id == source);
        names.add_fields(past.into_iter().flat_map(|past| &past.redact));
        self.add_token_headers(names)
    }

    /// What is secret in the requests of any source.
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

    /// What it would be after `changes`; the store does the same to its tables.
    pub fn apply(&mut self, changes: &[ConfigChange], now: Timestamp) {
        for change in changes {
            match change {
                // Routes follow their ends through a change of name.
                ConfigChange::PutSource(id, spec) => {
                    let before = put(&mut self.sources, *id, spec, now).map(|old| old.name);
                    self.past.sources.retain(|past| past.id != *id);
                    let header = spec.token_header().map(str::to_ascii_lowercase);
                    self.past.token_headers.extend(header);
                    let moved = self.routes.iter_mut().map(|route| &mut route.spec.from);
                    rename(moved, before.as_ref(), &spec.name);
                }
                ConfigChange::PutDestination(id, spec) => {
                    let before = put(&mut self.destinations, *id, spec, now).map(|old| old.name);
                    let moved = self.routes.iter_mut().map(|route| &mut route.spec.to);
                    rename(moved, before.as_ref(), &spec.name);
                }
                ConfigChange::PutRoute(id, spec) => {
                    put(&mut self.routes, *id, spec, now);
                }
                ConfigChange::DeleteSource(id) => {
                    let gone = remove(&mut self.sources, *id);
                    let name = gone.as_ref().map(|spec| spec.name.clone());
                    self.routes.retain(|route| Some(&route.spec.from) != name.as_ref());
                    self.past.sources.extend(gone.and_then(|spec| PastSource::of(*id, spec)));
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

/// Writes one entry; gives back what it replaced.
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
    /// Creates a destination under this id, or replaces the one that has it. One that has no order
    /// (any more) makes what is held for it due.
    PutDestination(DestinationId, DestinationSpec),
    /// Creates a route under this id, or replaces the one that has it.
    PutRoute(RouteId, RouteSpec),
    /// Removes a source and its routes. Its events stay.
    DeleteSource(SourceId),
    /// Removes a destination and its routes. What it was still owed is cancelled.
    DeleteDestination(DestinationId),
    /// Removes a route.
    DeleteRoute(RouteId),
}
