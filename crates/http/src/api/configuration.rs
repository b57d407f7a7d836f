//! `/api/v1/configuration`: everything that is configured, as one document.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec, route::RouteSpec, source::SourceSpec, store::Configuration,
};
use surehook_engine::apply::{Applied, Wanted, plan};

use super::{input::Input, masked};
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

/// What an apply did.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    created: Vec<String>,
    updated: Vec<String>,
    unchanged: usize,
}

impl From<Applied> for Report {
    fn from(applied: Applied) -> Self {
        let Applied { created, updated, unchanged } = applied;
        Self { created, updated, unchanged }
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

/// Creates and updates what the document names; leaves everything else alone. All or nothing.
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Input(document): Input<Document>,
) -> Result<Json<Report>, Problem> {
    let Document { sources, destinations, routes } = document;
    let wanted = Wanted { sources, destinations, routes };
    let (chance, now) = (app.engine.chance(), app.engine.clock().now());
    let applied = app
        .engine
        .change::<_, Problem>(|configuration| Ok(plan(configuration, wanted, chance, now)))
        .await?;
    Ok(Json(applied.into()))
}
