//! `/api/v1/sources`, `/destinations` and `/routes`: what people configure, one set of handlers.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use surehook_core::{
    chance::new_id,
    destination::DestinationSpec,
    ids::{DestinationKind, Id, Kind, RouteKind, SourceKind},
    route::RouteSpec,
    source::SourceSpec,
    store::{Change, Configuration, Stored},
};

use super::{
    input::{Input, Segment},
    lanes, masked,
};
use crate::{App, problem::Problem};

/// One kind of thing that can be configured.
pub(crate) trait Resource:
    masked::Masked + DeserializeOwned + Send + Sync + 'static
{
    /// What its ids are like.
    type Kind: Kind + Send + Sync;
    /// The word for it.
    const WORD: &'static str;

    /// All of them.
    fn all(configuration: &Configuration) -> &[Stored<Id<Self::Kind>, Self>]
    where
        Self: Sized;
    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;
    /// Creates or replaces it.
    fn put(id: Id<Self::Kind>, spec: Self) -> Change;
    /// Removes it.
    fn delete(id: Id<Self::Kind>) -> Change;
    /// How it does, beside what was written.
    fn state(_: &App, _: Id<Self::Kind>) -> Option<Value> {
        None
    }
}

impl Resource for SourceSpec {
    type Kind = SourceKind;
    const WORD: &'static str = "source";

    fn all(configuration: &Configuration) -> &[Stored<Id<SourceKind>, Self>] {
        &configuration.sources
    }
    fn name(&self) -> Option<&str> {
        Some(self.name.as_str())
    }
    fn put(id: Id<SourceKind>, spec: Self) -> Change {
        Change::PutSource(id, spec)
    }
    fn delete(id: Id<SourceKind>) -> Change {
        Change::DeleteSource(id)
    }
}

impl Resource for DestinationSpec {
    type Kind = DestinationKind;
    const WORD: &'static str = "destination";

    fn all(configuration: &Configuration) -> &[Stored<Id<DestinationKind>, Self>] {
        &configuration.destinations
    }
    fn name(&self) -> Option<&str> {
        Some(self.name.as_str())
    }
    fn put(id: Id<DestinationKind>, spec: Self) -> Change {
        Change::PutDestination(id, spec)
    }
    fn delete(id: Id<DestinationKind>) -> Change {
        Change::DeleteDestination(id)
    }
    fn state(app: &App, id: Id<DestinationKind>) -> Option<Value> {
        Some(lanes::state(app, id))
    }
}

impl Resource for RouteSpec {
    type Kind = RouteKind;
    const WORD: &'static str = "route";

    fn all(configuration: &Configuration) -> &[Stored<Id<RouteKind>, Self>] {
        &configuration.routes
    }
    fn name(&self) -> Option<&str> {
        None
    }
    fn put(id: Id<RouteKind>, spec: Self) -> Change {
        Change::PutRoute(id, spec)
    }
    fn delete(id: Id<RouteKind>) -> Change {
        Change::DeleteRoute(id)
    }
}

/// The addresses of one kind.
pub(crate) fn router<R: Resource>() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(list::<R>).post(create::<R>))
        .route("/{wanted}", get(find::<R>).put(replace::<R>).delete(delete::<R>))
}

/// By id, or by name where there is one.
pub(super) fn find_in<'a, R: Resource>(
    configuration: &'a Configuration,
    wanted: &str,
) -> Result<&'a Stored<Id<R::Kind>, R>, Problem> {
    let by_id: Option<Id<R::Kind>> = wanted.parse().ok();
    R::all(configuration)
        .iter()
        .find(|stored| {
            by_id.is_some_and(|id| id.uuid() == stored.id.uuid())
                || stored.spec.name() == Some(wanted)
        })
        .ok_or_else(|| Problem::not_found(R::WORD))
}

/// What was written, masked, and how it does.
fn shown<R: Resource>(app: &App, stored: &Stored<Id<R::Kind>, R>) -> Value {
    let mut json = masked::stored(stored);
    if let Some(state) = R::state(app, stored.id) {
        json["state"] = state;
    }
    json
}

pub(super) async fn show<R: Resource>(app: &App, wanted: &str) -> Result<Json<Value>, Problem> {
    let configuration = app.engine.store().configuration().await?;
    Ok(Json(shown(app, find_in::<R>(&configuration, wanted)?)))
}

async fn list<R: Resource>(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let configuration = app.engine.store().configuration().await?;
    let data: Vec<Value> =
        R::all(&configuration).iter().map(|stored| shown(&app, stored)).collect();
    Ok(Json(json!({ "data": data, "next_cursor": null })))
}

async fn find<R: Resource>(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
) -> Result<Json<Value>, Problem> {
    show::<R>(&app, &wanted).await
}

async fn create<R: Resource>(
    State(app): State<Arc<App>>,
    Input(spec): Input<R>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let id: Id<R::Kind> = new_id(app.engine.chance(), app.engine.clock().now());
    app.engine
        .change::<_, Problem>(|configuration| match spec.name() {
            Some(name) if is_taken::<R>(configuration, name, id) => Err(name_taken::<R>(name)),
            Some(_) | None => Ok((vec![R::put(id, spec)], ())),
        })
        .await?;
    Ok((StatusCode::CREATED, show::<R>(&app, &id.to_string()).await?))
}

fn is_taken<R: Resource>(configuration: &Configuration, name: &str, by: Id<R::Kind>) -> bool {
    find_in::<R>(configuration, name).is_ok_and(|other| other.id.uuid() != by.uuid())
}

fn name_taken<R: Resource>(name: &str) -> Problem {
    let detail = format!("there is a {} named `{name}` already", R::WORD);
    Problem::new(StatusCode::CONFLICT, "name_taken", detail)
}

async fn replace<R: Resource>(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    Input(spec): Input<R>,
) -> Result<Json<Value>, Problem> {
    let id = app
        .engine
        .change::<_, Problem>(|configuration| {
            let id = find_in::<R>(configuration, &wanted)?.id;
            match spec.name() {
                Some(name) if is_taken::<R>(configuration, name, id) => Err(name_taken::<R>(name)),
                Some(_) | None => Ok((vec![R::put(id, spec)], id)),
            }
        })
        .await?;
    show::<R>(&app, &id.to_string()).await
}

async fn delete<R: Resource>(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
) -> Result<StatusCode, Problem> {
    app.engine
        .change::<_, Problem>(|configuration| {
            let id = find_in::<R>(configuration, &wanted)?.id;
            Ok((vec![R::delete(id)], ()))
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
