//! What a list of changes means to a person: which thing, which of its fields, from what to what.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use surehook_core::{
    route::RouteSpec,
    store::{ConfigChange, Configuration, StoredObject},
};

use super::masked::{self, Masked};

/// One thing that changes.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Changed {
    #[schemars(regex(pattern = "^(create|update|delete)$"))]
    action: &'static str,
    what: String,
    /// Of an update.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<Field>,
}

/// One field that changes. Secrets are masked on both sides, and may so look the same.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Field {
    name: String,
    from: Value,
    to: Value,
}

/// Tells `changes` by what there is.
pub(crate) fn changed(configuration: &Configuration, changes: &[ConfigChange]) -> Vec<Changed> {
    let Configuration { sources, destinations, routes, .. } = configuration;
    changes
        .iter()
        .map(|change| match change {
            ConfigChange::PutSource(id, spec) => {
                put(sources, *id, spec, format!("source {}", spec.name))
            }
            ConfigChange::PutDestination(id, spec) => {
                put(destinations, *id, spec, format!("destination {}", spec.name))
            }
            ConfigChange::PutRoute(id, spec) => put(routes, *id, spec, route(spec)),
            ConfigChange::DeleteSource(id) => {
                gone(sources, *id, |spec| format!("source {}", spec.name))
            }
            ConfigChange::DeleteDestination(id) => {
                gone(destinations, *id, |spec| format!("destination {}", spec.name))
            }
            ConfigChange::DeleteRoute(id) => gone(routes, *id, route),
        })
        .collect()
}

fn route(spec: &RouteSpec) -> String {
    format!("route {} to {}", spec.from, spec.to)
}

fn put<I: PartialEq, S: Masked>(
    there: &[StoredObject<I, S>],
    id: I,
    spec: &S,
    what: String,
) -> Changed {
    match there.iter().find(|stored| stored.id == id) {
        None => Changed { action: "create", what, fields: Vec::new() },
        Some(stored) => Changed { action: "update", what, fields: fields(&stored.spec, spec) },
    }
}

fn gone<I: PartialEq, S>(
    there: &[StoredObject<I, S>],
    id: I,
    label: impl Fn(&S) -> String,
) -> Changed {
    let what = there.iter().find(|stored| stored.id == id).map(|stored| label(&stored.spec));
    Changed { action: "delete", what: what.unwrap_or_default(), fields: Vec::new() }
}

/// The fields in which two differ. Compared as they are, shown as they may be.
fn fields<S: Masked>(before: &S, after: &S) -> Vec<Field> {
    // A spec is plain data and always becomes a JSON object.
    let plain = |spec: &S| serde_json::to_value(spec).unwrap_or_default();
    let (old, new) = (plain(before), plain(after));
    let (old_shown, new_shown) = (masked::spec(before), masked::spec(after));
    let names = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let mut all = names(&old);
    all.extend(names(&new));
    all.sort();
    all.dedup();
    all.into_iter()
        .filter(|name| old[name] != new[name])
        .map(|name| Field { from: old_shown[&name].clone(), to: new_shown[&name].clone(), name })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::{destination::DestinationSpec, ids::DestinationId, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn destination(more: Value) -> DestinationSpec {
        let mut spec = json!({ "name": "crm", "url": "https://example.com/" });
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn an_update_names_its_fields_and_shows_no_secret() {
        let id = DestinationId::new(NOW, 1);
        let before = destination(json!({ "headers": { "x-key": "hunter2" }, "concurrency": 1 }));
        let after = destination(json!({ "headers": { "x-key": "hunter3" }, "concurrency": 2 }));
        let there = Configuration {
            destinations: vec![StoredObject { id, spec: before, created_at: NOW, updated_at: NOW }],
            ..Configuration::default()
        };

        let told = changed(&there, &[ConfigChange::PutDestination(id, after)]);

        let text = serde_json::to_string(&told).unwrap();
        assert!(!text.contains("hunter"), "{text}");
        assert_eq!(
            serde_json::to_value(&told).unwrap(),
            json!([{ "action": "update", "what": "destination crm", "fields": [
                { "name": "concurrency", "from": 1, "to": 2 },
                { "name": "headers", "from": { "x-key": "•••" }, "to": { "x-key": "•••" } },
            ] }])
        );
    }
}
