//! Plans the changes from the current to a desired configuration: listed objects are created or updated;
//! others are kept, unless `prune` is set.

use surehook_core::{
    destination::DestinationSpec,
    route::RouteSpec,
    source::SourceSpec,
    store::{ConfigChange, Configuration, StoredObject},
};
use surehook_types::{
    ids::{Id, IdKind, RouteId},
    rng::{Rng, new_id},
    time::Timestamp,
};

/// A configuration as a person wrote it.
#[derive(Clone, Debug, Default)]
pub struct DesiredConfiguration {
    /// Matched by name.
    pub sources: Vec<SourceSpec>,
    /// Matched by name.
    pub destinations: Vec<DestinationSpec>,
    /// Matched by source and destination.
    pub routes: Vec<RouteSpec>,
    /// Whether objects that are not listed are deleted.
    pub prune: bool,
}

/// The changes made by applying a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    pub created: Vec<String>,
    pub updated: Vec<String>,
    pub deleted: Vec<String>,
    /// The number of objects that already were as desired.
    pub unchanged: usize,
}

/// The changes that lead from `configuration` to `desired`.
pub fn plan_changes(
    configuration: &Configuration,
    desired: DesiredConfiguration,
    rng: &dyn Rng,
    now: Timestamp,
) -> (Vec<ConfigChange>, ApplyReport) {
    let mut plan = ChangePlan { changes: Vec::new(), report: ApplyReport::default(), rng, now };
    for spec in &desired.sources {
        let current = configuration.sources.iter().find(|other| other.spec.name == spec.name);
        let label = format!("source {}", spec.name);
        plan.put(current, spec, label, ConfigChange::PutSource);
    }
    for spec in &desired.destinations {
        let current = configuration.destinations.iter().find(|other| other.spec.name == spec.name);
        let label = format!("destination {}", spec.name);
        plan.put(current, spec, label, ConfigChange::PutDestination);
    }
    let mut unmatched: Vec<_> = configuration.routes.iter().collect();
    // Equal routes first: a changed route must not take the match of an unchanged one.
    let equal: Vec<_> = desired
        .routes
        .iter()
        .map(|spec| {
            let index = unmatched.iter().position(|other| other.spec == *spec)?;
            Some(unmatched.remove(index))
        })
        .collect();
    for (spec, equal) in desired.routes.iter().zip(equal) {
        let current = equal.or_else(|| take_route(&mut unmatched, spec));
        plan.put(current, spec, route_label(spec), ConfigChange::PutRoute);
    }
    if desired.prune {
        plan.delete_unlisted(configuration, &unmatched, &desired);
    }
    (plan.changes, plan.report)
}

fn route_label(spec: &RouteSpec) -> String {
    format!("route {} to {}", spec.from, spec.to)
}

/// Takes a stored route with the same source and destination. There may be several, with different
/// filters; each is matched once.
fn take_route<'a>(
    unmatched: &mut Vec<&'a StoredObject<RouteId, RouteSpec>>,
    spec: &RouteSpec,
) -> Option<&'a StoredObject<RouteId, RouteSpec>> {
    let has_same_endpoints = |other: &RouteSpec| (&other.from, &other.to) == (&spec.from, &spec.to);
    let index = unmatched.iter().position(|other| has_same_endpoints(&other.spec))?;
    Some(unmatched.remove(index))
}

struct ChangePlan<'a> {
    changes: Vec<ConfigChange>,
    report: ApplyReport,
    rng: &'a dyn Rng,
    now: Timestamp,
}

impl ChangePlan<'_> {
    /// Deletes objects that are not listed. Routes first: deleted with their source or destination, they
    /// would be missing from the report.
    fn delete_unlisted(
        &mut self,
        configuration: &Configuration,
        routes: &[&StoredObject<RouteId, RouteSpec>],
        desired: &DesiredConfiguration,
    ) {
        for route in routes {
            self.changes.push(ConfigChange::DeleteRoute(route.id));
            self.report.deleted.push(route_label(&route.spec));
        }
        for StoredObject { id, spec: SourceSpec { name, .. }, .. } in
            configuration.sources.iter().filter(|source| !source.spec.is_outbox())
        {
            if !desired.sources.iter().any(|spec| spec.name == *name) {
                self.changes.push(ConfigChange::DeleteSource(*id));
                self.report.deleted.push(format!("source {name}"));
            }
        }
        for StoredObject { id, spec: DestinationSpec { name, .. }, .. } in
            &configuration.destinations
        {
            if !desired.destinations.iter().any(|spec| spec.name == *name) {
                self.changes.push(ConfigChange::DeleteDestination(*id));
                self.report.deleted.push(format!("destination {name}"));
            }
        }
    }

    fn put<K: IdKind, S: Clone + PartialEq>(
        &mut self,
        current: Option<&StoredObject<Id<K>, S>>,
        spec: &S,
        label: String,
        change: impl Fn(Id<K>, S) -> ConfigChange,
    ) {
        match current {
            Some(stored) if stored.spec == *spec => self.report.unchanged += 1,
            Some(stored) => {
                self.changes.push(change(stored.id, spec.clone()));
                self.report.updated.push(label);
            }
            None => {
                self.changes.push(change(new_id(self.rng, self.now), spec.clone()));
                self.report.created.push(label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[derive(Debug)]
    struct ConstantRng;

    impl Rng for ConstantRng {
        fn next_u128(&self) -> u128 {
            7
        }
    }

    fn desired(
        sources: &[&str],
        destinations: &[&str],
        routes: &[(&str, &str, &str)],
    ) -> DesiredConfiguration {
        let source = |name: &&str| {
            serde_json::from_value(serde_json::json!({ "name": name, "verify": "none" })).unwrap()
        };
        let destination = |name: &&str| {
            let url = "https://example.com/";
            serde_json::from_value(serde_json::json!({ "name": name, "url": url })).unwrap()
        };
        let route = |(from, to, filter): &(&str, &str, &str)| {
            let route = serde_json::json!({ "from": from, "to": to, "filter": filter });
            serde_json::from_value(route).unwrap()
        };
        DesiredConfiguration {
            sources: sources.iter().map(source).collect(),
            destinations: destinations.iter().map(destination).collect(),
            routes: routes.iter().map(route).collect(),
            prune: false,
        }
    }

    /// The configuration after `desired` was applied to an empty one.
    fn apply_to_empty(desired: DesiredConfiguration) -> Configuration {
        let mut configuration = Configuration::default();
        let (changes, _) = plan_changes(&configuration, desired, &CountingRng::default(), NOW);
        configuration.apply(&changes, NOW);
        configuration
    }

    #[derive(Debug, Default)]
    struct CountingRng(std::sync::atomic::AtomicU64);

    impl Rng for CountingRng {
        fn next_u128(&self) -> u128 {
            u128::from(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) << 64
        }
    }

    #[test]
    fn applying_the_same_configuration_changes_nothing_even_with_parallel_routes() {
        let all = || desired(&["a"], &["x"], &[("a", "x", ".p"), ("a", "x", ".q")]);
        let current = apply_to_empty(all());

        for prune in [false, true] {
            let (changes, report) =
                plan_changes(&current, DesiredConfiguration { prune, ..all() }, &ConstantRng, NOW);
            assert!(changes.is_empty(), "{changes:?}");
            assert_eq!(report, ApplyReport { unchanged: 4, ..ApplyReport::default() });
        }
    }

    #[test]
    fn unchanged_route_keeps_its_id_when_a_parallel_one_changes() {
        let current =
            apply_to_empty(desired(&["a"], &["x"], &[("a", "x", ".p"), ("a", "x", ".q")]));
        let next = desired(&["a"], &["x"], &[("a", "x", ".r"), ("a", "x", ".p")]);

        let (changes, report) = plan_changes(&current, next, &ConstantRng, NOW);

        assert_eq!((report.unchanged, report.updated.len()), (3, 1));
        let changed = current.routes[1].id;
        assert!(
            matches!(&changes[..], [ConfigChange::PutRoute(id, _)] if *id == changed),
            "{changes:?}"
        );
    }

    #[test]
    fn unlisted_objects_are_deleted_only_with_prune() {
        let current =
            apply_to_empty(desired(&["a", "b"], &["x", "y"], &[("a", "x", "."), ("b", "y", ".")]));
        let less = || desired(&["a"], &["x"], &[("a", "x", ".p")]);

        let (_, kept) = plan_changes(&current, less(), &ConstantRng, NOW);
        let (changes, pruned) = plan_changes(
            &current,
            DesiredConfiguration { prune: true, ..less() },
            &ConstantRng,
            NOW,
        );

        assert!(kept.deleted.is_empty(), "{kept:?}");
        assert_eq!(pruned.updated, ["route a to x"]);
        assert_eq!(pruned.deleted, ["route b to y", "source b", "destination y"]);
        let mut left = current;
        left.apply(&changes, NOW);
        assert_eq!((left.sources.len(), left.destinations.len(), left.routes.len()), (1, 1, 1));
    }
}
