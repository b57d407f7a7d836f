//! From what is wanted to what must change: named things are created or updated, the rest stays.

use surehook_core::{
    chance::{Chance, new_id},
    destination::DestinationSpec,
    ids::{Id, Kind},
    route::RouteSpec,
    source::SourceSpec,
    store::{Change, Configuration, Stored},
    time::Timestamp,
};

/// What there should be.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Sources, by name.
    pub sources: Vec<SourceSpec>,
    /// Destinations, by name.
    pub destinations: Vec<DestinationSpec>,
    /// Routes, by their two ends.
    pub routes: Vec<RouteSpec>,
}

/// What was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What is new.
    pub created: Vec<String>,
    /// What is different now.
    pub updated: Vec<String>,
    /// How many were as wanted already.
    pub unchanged: usize,
}

/// The changes that lead from `configuration` to `wanted`.
pub fn plan(
    configuration: &Configuration,
    wanted: Wanted,
    chance: &dyn Chance,
    now: Timestamp,
) -> (Vec<Change>, Applied) {
    let mut plan = Plan { changes: Vec::new(), applied: Applied::default(), chance, now };
    for spec in wanted.sources {
        let (label, name) = (format!("source {}", spec.name), spec.name.clone());
        let is_it = move |other: &SourceSpec| other.name == name;
        plan.put(&configuration.sources, spec, label, is_it, Change::PutSource);
    }
    for spec in wanted.destinations {
        let (label, name) = (format!("destination {}", spec.name), spec.name.clone());
        let is_it = move |other: &DestinationSpec| other.name == name;
        plan.put(&configuration.destinations, spec, label, is_it, Change::PutDestination);
    }
    for spec in wanted.routes {
        let label = format!("route {} to {}", spec.from, spec.to);
        let ends = (spec.from.clone(), spec.to.clone());
        let is_it = move |other: &RouteSpec| (&other.from, &other.to) == (&ends.0, &ends.1);
        plan.put(&configuration.routes, spec, label, is_it, Change::PutRoute);
    }
    (plan.changes, plan.applied)
}

struct Plan<'a> {
    changes: Vec<Change>,
    applied: Applied,
    chance: &'a dyn Chance,
    now: Timestamp,
}

impl Plan<'_> {
    fn put<K: Kind, S: PartialEq>(
        &mut self,
        existing: &[Stored<Id<K>, S>],
        spec: S,
        label: String,
        is_it: impl Fn(&S) -> bool,
        change: impl Fn(Id<K>, S) -> Change,
    ) {
        match existing.iter().find(|stored| is_it(&stored.spec)) {
            Some(stored) if stored.spec == spec => self.applied.unchanged += 1,
            Some(stored) => {
                self.changes.push(change(stored.id, spec));
                self.applied.updated.push(label);
            }
            None => {
                self.changes.push(change(new_id(self.chance, self.now), spec));
                self.applied.created.push(label);
            }
        }
    }
}
