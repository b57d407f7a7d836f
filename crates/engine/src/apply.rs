//! From what is wanted to what must change: named things are created or updated; the rest stays,
//! unless what is wanted is all that there should be.

use surehook_core::{
    destination::DestinationSpec,
    ids::{Id, IdKind, RouteId},
    name::Name,
    rng::{Rng, new_id},
    route::RouteSpec,
    source::SourceSpec,
    store::{ConfigChange, Configuration, StoredObject},
    time::Timestamp,
};

/// What there should be.
#[derive(Clone, Debug, Default)]
pub struct DesiredConfiguration {
    /// Sources, by name.
    pub sources: Vec<SourceSpec>,
    /// Destinations, by name.
    pub destinations: Vec<DestinationSpec>,
    /// Routes, by their two ends.
    pub routes: Vec<RouteSpec>,
    /// Whether this is all that there should be: the rest is deleted.
    pub prune: bool,
}

/// What was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// What is new.
    pub created: Vec<String>,
    /// What is different now.
    pub updated: Vec<String>,
    /// What is gone.
    pub deleted: Vec<String>,
    /// How many were as wanted already.
    pub unchanged: usize,
}

/// The changes that lead from `configuration` to `wanted`.
pub fn plan_changes(
    configuration: &Configuration,
    wanted: DesiredConfiguration,
    chance: &dyn Rng,
    now: Timestamp,
) -> (Vec<ConfigChange>, ApplyReport) {
    let mut plan = ChangePlan { changes: Vec::new(), applied: ApplyReport::default(), chance, now };
    let kept = wanted.prune.then(|| DesiredNames::of(&wanted));
    for spec in wanted.sources {
        let there = configuration.sources.iter().find(|other| other.spec.name == spec.name);
        let label = format!("source {}", spec.name);
        plan.put(there, spec, label, ConfigChange::PutSource);
    }
    for spec in wanted.destinations {
        let there = configuration.destinations.iter().find(|other| other.spec.name == spec.name);
        let label = format!("destination {}", spec.name);
        plan.put(there, spec, label, ConfigChange::PutDestination);
    }
    let mut unmatched: Vec<_> = configuration.routes.iter().collect();
    for spec in wanted.routes {
        let there = take_route(&mut unmatched, &spec);
        let label = route_label(&spec);
        plan.put(there, spec, label, ConfigChange::PutRoute);
    }
    if let Some(kept) = kept {
        plan.delete_rest(configuration, &unmatched, &kept);
    }
    (plan.changes, plan.applied)
}

fn route_label(spec: &RouteSpec) -> String {
    format!("route {} to {}", spec.from, spec.to)
}

/// Takes the stored route that a wanted one stands for. Several may join the same two ends, each
/// with its own filter: an equal one first, and none for two.
fn take_route<'a>(
    unmatched: &mut Vec<&'a StoredObject<RouteId, RouteSpec>>,
    spec: &RouteSpec,
) -> Option<&'a StoredObject<RouteId, RouteSpec>> {
    let same_ends = |other: &RouteSpec| (&other.from, &other.to) == (&spec.from, &spec.to);
    let equal = unmatched.iter().position(|other| other.spec == *spec);
    let at = equal.or_else(|| unmatched.iter().position(|other| same_ends(&other.spec)))?;
    Some(unmatched.remove(at))
}

/// The names that are wanted.
struct DesiredNames {
    sources: Vec<Name>,
    destinations: Vec<Name>,
}

impl DesiredNames {
    fn of(wanted: &DesiredConfiguration) -> Self {
        Self {
            sources: wanted.sources.iter().map(|spec| spec.name.clone()).collect(),
            destinations: wanted.destinations.iter().map(|spec| spec.name.clone()).collect(),
        }
    }
}

struct ChangePlan<'a> {
    changes: Vec<ConfigChange>,
    applied: ApplyReport,
    chance: &'a dyn Rng,
    now: Timestamp,
}

impl ChangePlan<'_> {
    /// Deletes what is not wanted; routes first, because they would go with their ends unsaid.
    fn delete_rest(
        &mut self,
        configuration: &Configuration,
        routes: &[&StoredObject<RouteId, RouteSpec>],
        kept: &DesiredNames,
    ) {
        for route in routes {
            self.changes.push(ConfigChange::DeleteRoute(route.id));
            self.applied.deleted.push(route_label(&route.spec));
        }
        for source in &configuration.sources {
            if !kept.sources.contains(&source.spec.name) && !source.spec.is_outbox() {
                self.changes.push(ConfigChange::DeleteSource(source.id));
                self.applied.deleted.push(format!("source {}", source.spec.name));
            }
        }
        for destination in &configuration.destinations {
            if !kept.destinations.contains(&destination.spec.name) {
                self.changes.push(ConfigChange::DeleteDestination(destination.id));
                self.applied.deleted.push(format!("destination {}", destination.spec.name));
            }
        }
    }

    fn put<K: IdKind, S: PartialEq>(
        &mut self,
        there: Option<&StoredObject<Id<K>, S>>,
        spec: S,
        label: String,
        change: impl Fn(Id<K>, S) -> ConfigChange,
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[derive(Debug)]
    struct Dice;

    impl Rng for Dice {
        fn bits(&self) -> u128 {
            7
        }
    }

    fn wanted(
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

    /// What there is after `wanted` was applied to nothing.
    fn after(wanted: DesiredConfiguration) -> Configuration {
        let mut configuration = Configuration::default();
        let (changes, _) = plan_changes(&configuration, wanted, &Counting::default(), NOW);
        configuration.apply(&changes, NOW);
        configuration
    }

    #[derive(Debug, Default)]
    struct Counting(std::sync::atomic::AtomicU64);

    impl Rng for Counting {
        fn bits(&self) -> u128 {
            u128::from(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) << 64
        }
    }

    #[test]
    fn what_is_there_changes_nothing_also_with_two_routes_between_the_same_ends() {
        let all = || wanted(&["a"], &["x"], &[("a", "x", ".p"), ("a", "x", ".q")]);
        let there = after(all());

        for prune in [false, true] {
            let (changes, applied) =
                plan_changes(&there, DesiredConfiguration { prune, ..all() }, &Dice, NOW);
            assert!(changes.is_empty(), "{changes:?}");
            assert_eq!(applied, ApplyReport { unchanged: 4, ..ApplyReport::default() });
        }
    }

    #[test]
    fn the_rest_is_deleted_only_when_that_is_wanted() {
        let there = after(wanted(&["a", "b"], &["x", "y"], &[("a", "x", "."), ("b", "y", ".")]));
        let less = || wanted(&["a"], &["x"], &[("a", "x", ".p")]);

        let (_, kept) = plan_changes(&there, less(), &Dice, NOW);
        let (changes, pruned) =
            plan_changes(&there, DesiredConfiguration { prune: true, ..less() }, &Dice, NOW);

        assert!(kept.deleted.is_empty(), "{kept:?}");
        assert_eq!(pruned.updated, ["route a to x"]);
        assert_eq!(pruned.deleted, ["route b to y", "source b", "destination y"]);
        let mut left = there;
        left.apply(&changes, NOW);
        assert_eq!((left.sources.len(), left.destinations.len(), left.routes.len()), (1, 1, 1));
    }
}
