//! `/api/v1/configuration`: everything that is configured, as one document.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec, object, route::RouteSpec, source::SourceSpec,
    store::Configuration,
};
use surehook_engine::apply::{ApplyReport, DesiredConfiguration, plan_changes};

use super::{
    changes::{Changed, changed},
    input::{Asked, Input},
    masked,
    tagged::{Expected, Tag, TaggedAs},
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// What is configured, by name.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Configuration")]
pub(crate) struct Document {
    #[serde(default, deserialize_with = "object::each")]
    sources: Vec<SourceSpec>,
    #[serde(default, deserialize_with = "object::each")]
    destinations: Vec<DestinationSpec>,
    #[serde(default, deserialize_with = "object::each")]
    routes: Vec<RouteSpec>,
}

/// How it is applied.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct How {
    /// Deletes what the document does not name.
    prune: bool,
    /// Says what would change, and changes nothing.
    dry_run: bool,
}

/// What an apply did, or would do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    dry_run: bool,
    created: Vec<String>,
    updated: Vec<String>,
    deleted: Vec<String>,
    unchanged: usize,
    changes: Vec<Changed>,
}

impl Report {
    fn new(applied: ApplyReport, changes: Vec<Changed>, dry_run: bool) -> Self {
        let ApplyReport { created, updated, deleted, unchanged } = applied;
        Self { dry_run, created, updated, deleted, unchanged, changes }
    }
}

pub(crate) fn routes(api: Api) -> Api {
    let example = json!({
        "sources": [{ "name": "shop", "verify": "none" }],
        "destinations": [{ "name": "inbox", "url": "builtin:inbox" }],
        "routes": [{ "from": "shop", "to": "inbox" }],
    });
    let read = Op::new("read_configuration", "All that is configured, secrets masked.")
        .answers::<Document>(200)
        .cached();
    let write =
        Op::new("apply_configuration", "Creates and updates what is named; all or nothing.")
            .text("Leaves alone what it does not name, unless `prune` is given.")
            .query::<How>()
            .body::<Document>(example)
            .answers::<Report>(200)
            .guarded_by_tag();
    api.get("/api/v1/configuration", export, read).put("/api/v1/configuration", apply, write)
}

/// The whole configuration, secrets masked.
pub(crate) async fn export(State(app): State<Arc<App>>) -> Result<TaggedAs<Value>, Problem> {
    let configuration = app.engine.store().configuration().await?;
    let tag = Tag::of(&versions(&configuration));
    Ok(TaggedAs { status: StatusCode::OK, tag, moves: false, value: shown(&configuration) })
}

/// When each was last written: what is shown may be the same while a masked secret is another.
fn versions(configuration: &Configuration) -> Value {
    let Configuration { sources, destinations, routes, .. } = configuration;
    json!([
        sources.iter().map(|s| (s.id, s.updated_at)).collect::<Vec<_>>(),
        destinations.iter().map(|d| (d.id, d.updated_at)).collect::<Vec<_>>(),
        routes.iter().map(|r| (r.id, r.updated_at)).collect::<Vec<_>>(),
    ])
}

fn shown(configuration: &Configuration) -> Value {
    // What is built in is there again by itself, unless somebody has set something about it.
    let sources = configuration.sources.iter().filter(|s| s.spec != SourceSpec::outbox());
    json!({
        "sources": sources.map(|s| masked::spec(&s.spec)).collect::<Vec<_>>(),
        "destinations":
            configuration.destinations.iter().map(|d| masked::spec(&d.spec)).collect::<Vec<_>>(),
        "routes": configuration.routes.iter().map(|r| masked::spec(&r.spec)).collect::<Vec<_>>(),
    })
}

/// Creates and updates what the document names, and deletes the rest if asked to; otherwise leaves
/// everything else alone. All or nothing.
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Asked(how): Asked<How>,
    expected: Expected,
    Input(document): Input<Document>,
) -> Result<Json<Report>, Problem> {
    let Document { sources, destinations, routes } = document;
    let wanted = DesiredConfiguration { sources, destinations, routes, prune: how.prune };
    let (chance, now) = (app.engine.chance(), app.engine.clock().now());
    let decide = |configuration: &Configuration| {
        expected.check(&versions(configuration))?;
        let (changes, applied) = plan_changes(configuration, wanted, chance, now);
        let told = changed(configuration, &changes);
        Ok((changes, Report::new(applied, told, how.dry_run)))
    };
    let report = if how.dry_run {
        app.engine.preview::<_, Problem>(decide).await?
    } else {
        app.engine.change::<_, Problem>(decide).await?
    };
    Ok(Json(report))
}
