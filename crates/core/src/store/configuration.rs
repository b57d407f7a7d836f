//! What people configure, as it is stored, and how it changes.

use crate::{
    destination::DestinationSpec, ids::DestinationId, ids::RouteId, ids::SourceId, name::Name,
    route::RouteSpec, source::SourceSpec, time::Timestamp,
};

/// A stored object that people configure, with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<I, S> {
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
    pub sources: Vec<Stored<SourceId, SourceSpec>>,
    /// All destinations, by name.
    pub destinations: Vec<Stored<DestinationId, DestinationSpec>>,
    /// All routes, oldest first.
    pub routes: Vec<Stored<RouteId, RouteSpec>>,
}

impl Configuration {
    /// What it would be after `changes`; the store does the same to its tables.
    pub fn apply(&mut self, changes: &[Change], now: Timestamp) {
        for change in changes {
            match change {
                // Routes follow their ends through a change of name.
                Change::PutSource(id, spec) => {
                    let before = put(&mut self.sources, *id, spec, now).map(|old| old.name);
                    let moved = self.routes.iter_mut().map(|route| &mut route.spec.from);
                    rename(moved, before.as_ref(), &spec.name);
                }
                Change::PutDestination(id, spec) => {
                    let before = put(&mut self.destinations, *id, spec, now).map(|old| old.name);
                    let moved = self.routes.iter_mut().map(|route| &mut route.spec.to);
                    rename(moved, before.as_ref(), &spec.name);
                }
                Change::PutRoute(id, spec) => {
                    put(&mut self.routes, *id, spec, now);
                }
                Change::DeleteSource(id) => {
                    let name = remove(&mut self.sources, *id).map(|spec| spec.name);
                    self.routes.retain(|route| Some(&route.spec.from) != name.as_ref());
                }
                Change::DeleteDestination(id) => {
                    let name = remove(&mut self.destinations, *id).map(|spec| spec.name);
                    self.routes.retain(|route| Some(&route.spec.to) != name.as_ref());
                }
                Change::DeleteRoute(id) => self.routes.retain(|route| route.id != *id),
            }
        }
        self.sources.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        self.destinations.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    }
}

/// Writes one entry; gives back what it replaced.
fn put<I: PartialEq, S: Clone>(
    list: &mut Vec<Stored<I, S>>,
    id: I,
    spec: &S,
    now: Timestamp,
) -> Option<S> {
    let spec = spec.clone();
    if let Some(stored) = list.iter_mut().find(|stored| stored.id == id) {
        stored.updated_at = now;
        return Some(std::mem::replace(&mut stored.spec, spec));
    }
    list.push(Stored { id, spec, created_at: now, updated_at: now });
    None
}

fn rename<'a>(names: impl Iterator<Item = &'a mut Name>, from: Option<&Name>, to: &Name) {
    if let Some(from) = from {
        names.filter(|name| *name == from).for_each(|name| *name = to.clone());
    }
}

fn remove<I: PartialEq, S>(list: &mut Vec<Stored<I, S>>, id: I) -> Option<S> {
    let at = list.iter().position(|stored| stored.id == id)?;
    Some(list.remove(at).spec)
}

/// One change to the configuration.
#[derive(Clone, Debug)]
pub enum Change {
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
