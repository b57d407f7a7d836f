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
use surehook_engine::apply::{Applied, Wanted, plan};

use super::{
    input::Input,
    masked,
    tagged::{Expected, Tagged},
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

/// What an apply did.
#[derive(Debug, Serialize, JsonSchema)]
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
            .text("Leaves alone what it does not name.")
            .body::<Document>(example)
            .answers::<Report>(200)
            .guarded_by_tag();
    api.get("/api/v1/configuration", export, read).put("/api/v1/configuration", apply, write)
}

/// The whole configuration, secrets masked.
pub(crate) async fn export(State(app): State<Arc<App>>) -> Result<Tagged<Value>, Problem> {
    Ok(Tagged(StatusCode::OK, shown(&app.engine.store().configuration().await?)))
}

fn shown(configuration: &Configuration) -> Value {
    json!({
        "sources": configuration.sources.iter().map(|s| masked::spec(&s.spec)).collect::<Vec<_>>(),
        "destinations":
            configuration.destinations.iter().map(|d| masked::spec(&d.spec)).collect::<Vec<_>>(),
        "routes": configuration.routes.iter().map(|r| masked::spec(&r.spec)).collect::<Vec<_>>(),
    })
}

/// Creates and updates what the document names; leaves everything else alone. All or nothing.
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    expected: Expected,
    Input(document): Input<Document>,
) -> Result<Json<Report>, Problem> {
    let Document { sources, destinations, routes } = document;
    let wanted = Wanted { sources, destinations, routes };
    let (chance, now) = (app.engine.chance(), app.engine.clock().now());
    let applied = app
        .engine
        .change::<_, Problem>(|configuration| {
            expected.check(&shown(configuration))?;
            Ok(plan(configuration, wanted, chance, now))
        })
        .await?;
    Ok(Json(applied.into()))
}
