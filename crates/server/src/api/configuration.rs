//! `/api/v1/configuration`: all sources, destinations and routes as one document.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_api::configuration::{
    ApplyResponse, ConfigurationDocument, FieldChange, ResourceChange,
};
use surehook_core::{
    route::RouteSpec,
    source::SourceSpec,
    store::{ConfigChange, Configuration, StoredObject},
};
use surehook_engine::apply::{ApplyReport, DesiredConfiguration, plan_changes};

use super::{
    etag::{ETag, IfMatch, VersionedJson},
    extract::{JsonBody, QueryParams},
    masked_spec::{MaskSecrets, mask_spec},
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Options of an apply.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApplyQuery {
    /// Delete resources that the document does not contain.
    prune: bool,
    /// Only return what would change.
    dry_run: bool,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let example = json!({
        "sources": [{ "name": "shop", "verify": "none" }],
        "destinations": [{ "name": "inbox", "url": "builtin:inbox" }],
        "routes": [{ "from": "shop", "to": "inbox" }],
    });
    let get = Operation::new("get_configuration", "Get the whole configuration, secrets masked.")
        .returns::<ConfigurationDocument>(200)
        .with_conditional_get();
    let put = Operation::new("apply_configuration", "Apply a configuration, all or nothing.")
        .description(
            "Creates and updates the resources in the document. Other resources are left unchanged \
                 unless `prune` is true.",
        )
        .query::<ApplyQuery>()
        .body::<ConfigurationDocument>(example)
        .returns::<ApplyResponse>(200)
        .with_conditional_write();
    api.get("/api/v1/configuration", get_configuration, get).put(
        "/api/v1/configuration",
        apply_configuration,
        put,
    )
}

pub(crate) async fn get_configuration(
    State(server): State<Arc<ServerState>>,
) -> Result<VersionedJson<Value>, Problem> {
    let configuration = server.engine.store().load_configuration().await?;
    let tag = ETag::from_value(&versions(&configuration));
    Ok(VersionedJson {
        status: StatusCode::OK,
        tag,
        has_state: false,
        value: mask_configuration(&configuration),
    })
}

/// Input of the `ETag`: the masked document alone would not change when only a secret does.
fn versions(configuration: &Configuration) -> Value {
    let Configuration { sources, destinations, routes, .. } = configuration;
    json!([
        sources.iter().map(|s| (s.id, s.updated_at)).collect::<Vec<_>>(),
        destinations.iter().map(|d| (d.id, d.updated_at)).collect::<Vec<_>>(),
        routes.iter().map(|r| (r.id, r.updated_at)).collect::<Vec<_>>(),
    ])
}

fn mask_configuration(configuration: &Configuration) -> Value {
    // The built-in outbox source is created by itself; it is listed only if its settings were changed.
    let sources = configuration.sources.iter().filter(|s| s.spec != SourceSpec::outbox());
    json!({
        "sources": sources.map(|s| mask_spec(&s.spec)).collect::<Vec<_>>(),
        "destinations":
            configuration.destinations.iter().map(|d| mask_spec(&d.spec)).collect::<Vec<_>>(),
        "routes": configuration.routes.iter().map(|r| mask_spec(&r.spec)).collect::<Vec<_>>(),
    })
}

pub(crate) async fn apply_configuration(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<ApplyQuery>,
    if_match: IfMatch,
    JsonBody(document): JsonBody<ConfigurationDocument>,
) -> Result<Json<ApplyResponse>, Problem> {
    let ConfigurationDocument { sources, destinations, routes } = document;
    let desired = DesiredConfiguration { sources, destinations, routes, prune: query.prune };
    let (rng, now) = (server.engine.rng(), server.engine.clock().now());
    let decide = |configuration: &Configuration| {
        if_match.check(&versions(configuration))?;
        let (plan, report) = plan_changes(configuration, desired.clone(), rng, now);
        let ApplyReport { created, updated, deleted, unchanged } = report;
        let changes = describe_changes(configuration, &plan);
        let dry_run = query.dry_run;
        Ok((plan, ApplyResponse { dry_run, created, updated, deleted, unchanged, changes }))
    };
    let response = if query.dry_run {
        server.engine.preview::<_, Problem>(decide).await?
    } else {
        server.engine.change::<_, Problem>(decide).await?
    };
    Ok(Json(response))
}

/// Describes changes by comparing them with the current configuration.
fn describe_changes(
    configuration: &Configuration,
    changes: &[ConfigChange],
) -> Vec<ResourceChange> {
    let Configuration { sources, destinations, routes, .. } = configuration;
    changes
        .iter()
        .map(|change| match change {
            ConfigChange::PutSource(id, spec) => {
                describe_put(sources, *id, spec, format!("source {}", spec.name))
            }
            ConfigChange::PutDestination(id, spec) => {
                describe_put(destinations, *id, spec, format!("destination {}", spec.name))
            }
            ConfigChange::PutRoute(id, spec) => describe_put(routes, *id, spec, route_label(spec)),
            ConfigChange::DeleteSource(id) => {
                describe_delete(sources, *id, |spec| format!("source {}", spec.name))
            }
            ConfigChange::DeleteDestination(id) => {
                describe_delete(destinations, *id, |spec| format!("destination {}", spec.name))
            }
            ConfigChange::DeleteRoute(id) => describe_delete(routes, *id, route_label),
        })
        .collect()
}

fn route_label(spec: &RouteSpec) -> String {
    format!("route {} to {}", spec.from, spec.to)
}

fn describe_put<I: PartialEq, S: MaskSecrets>(
    current: &[StoredObject<I, S>],
    id: I,
    spec: &S,
    what: String,
) -> ResourceChange {
    match current.iter().find(|stored| stored.id == id) {
        None => ResourceChange { action: "create".to_owned(), what, fields: Vec::new() },
        Some(stored) => {
            let fields = changed_fields(&stored.spec, spec);
            ResourceChange { action: "update".to_owned(), what, fields }
        }
    }
}

fn describe_delete<I: PartialEq, S>(
    current: &[StoredObject<I, S>],
    id: I,
    label: impl Fn(&S) -> String,
) -> ResourceChange {
    let what = current.iter().find(|stored| stored.id == id).map(|stored| label(&stored.spec));
    let what = what.unwrap_or_default();
    ResourceChange { action: "delete".to_owned(), what, fields: Vec::new() }
}

/// The fields in which two specs differ: compared with their secrets, returned masked.
fn changed_fields<S: MaskSecrets>(before: &S, after: &S) -> Vec<FieldChange> {
    // Specs always serialize to a JSON object.
    let plain = |spec: &S| serde_json::to_value(spec).unwrap_or_default();
    let (old, new) = (plain(before), plain(after));
    let (old_masked, new_masked) = (mask_spec(before), mask_spec(after));
    let names = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let mut all = names(&old);
    all.extend(names(&new));
    all.sort();
    all.dedup();
    all.into_iter()
        .filter(|name| old[name] != new[name])
        .map(|name| FieldChange {
            from: old_masked[&name].clone(),
            to: new_masked[&name].clone(),
            name,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::destination::DestinationSpec;
    use surehook_types::{ids::DestinationId, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn destination(fields: Value) -> DestinationSpec {
        let mut spec = json!({ "name": "crm", "url": "https://example.com/" });
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn update_lists_changed_fields_without_secrets() {
        let id = DestinationId::new(NOW, 1);
        let before = destination(json!({ "headers": { "x-key": "hunter2" }, "concurrency": 1 }));
        let after = destination(json!({ "headers": { "x-key": "hunter3" }, "concurrency": 2 }));
        let current = Configuration {
            destinations: vec![StoredObject { id, spec: before, created_at: NOW, updated_at: NOW }],
            ..Configuration::default()
        };

        let described = describe_changes(&current, &[ConfigChange::PutDestination(id, after)]);

        let text = serde_json::to_string(&described).unwrap();
        assert!(!text.contains("hunter"), "{text}");
        assert_eq!(
            serde_json::to_value(&described).unwrap(),
            json!([{ "action": "update", "what": "destination crm", "fields": [
                { "name": "concurrency", "from": 1, "to": 2 },
                { "name": "headers", "from": { "x-key": "•••" }, "to": { "x-key": "•••" } },
            ] }])
        );
    }
}
