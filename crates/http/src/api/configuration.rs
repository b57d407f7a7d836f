//! `/api/v1/configuration`: everything that is configured, as one document.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec, route::RouteSpec, source::SourceSpec, store::Configuration,
};
use surehook_engine::apply::{Applied, Wanted, plan};

use super::{
    changes::{Changed, changed},
    input::{Asked, Input},
    masked,
};
use crate::{App, problem::Problem};

/// What is wanted, by name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    #[serde(default)]
    sources: Vec<SourceSpec>,
    #[serde(default)]
    destinations: Vec<DestinationSpec>,
    #[serde(default)]
    routes: Vec<RouteSpec>,
}

/// How it is applied.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct How {
    /// Deletes what the document does not name.
    prune: bool,
    /// Says what would change, and changes nothing.
    dry_run: bool,
}

/// What an apply did, or would do.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    dry_run: bool,
    created: Vec<String>,
    updated: Vec<String>,
    deleted: Vec<String>,
    unchanged: usize,
    changes: Vec<Changed>,
}

impl Report {
    fn new(applied: Applied, changes: Vec<Changed>, dry_run: bool) -> Self {
        let Applied { created, updated, deleted, unchanged } = applied;
        Self { dry_run, created, updated, deleted, unchanged, changes }
    }
}

/// The whole configuration, secrets masked.
pub(crate) async fn export(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let configuration: Configuration = app.engine.store().configuration().await?;
    Ok(Json(json!({
        "sources": configuration.sources.iter().map(|s| masked::spec(&s.spec)).collect::<Vec<_>>(),
        "destinations":
            configuration.destinations.iter().map(|d| masked::spec(&d.spec)).collect::<Vec<_>>(),
        "routes": configuration.routes.iter().map(|r| masked::spec(&r.spec)).collect::<Vec<_>>(),
    })))
}

/// Creates and updates what the document names, and deletes the rest if asked to; otherwise leaves
/// everything else alone. All or nothing.
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Asked(how): Asked<How>,
    Input(document): Input<Document>,
) -> Result<Json<Report>, Problem> {
    let Document { sources, destinations, routes } = document;
    let wanted = Wanted { sources, destinations, routes, prune: how.prune };
    let (chance, now) = (app.engine.chance(), app.engine.clock().now());
    let decide = |configuration: &Configuration| {
        let (changes, applied) = plan(configuration, wanted, chance, now);
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
