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
        let there = configuration.sources.iter().find(|other| other.spec.name == spec.name);
        let label = format!("source {}", spec.name);
        plan.put(there, spec, label, Change::PutSource);
    }
    for spec in wanted.destinations {
        let there = configuration.destinations.iter().find(|other| other.spec.name == spec.name);
        let label = format!("destination {}", spec.name);
        plan.put(there, spec, label, Change::PutDestination);
    }
    for spec in wanted.routes {
        let ends = (&spec.from, &spec.to);
        let there =
            configuration.routes.iter().find(|other| (&other.spec.from, &other.spec.to) == ends);
        let label = format!("route {} to {}", spec.from, spec.to);
        plan.put(there, spec, label, Change::PutRoute);
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
        there: Option<&Stored<Id<K>, S>>,
        spec: S,
        label: String,
        change: impl Fn(Id<K>, S) -> Change,
    ) {
        match there {
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
