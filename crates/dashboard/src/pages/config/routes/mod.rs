//! `/routes`: which events go where, and a place to try filters and transforms on real events.

mod edit;
mod form;
mod list;
mod trial;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};
use serde::Deserialize;

use crate::{
    Dashboard,
    client::{Address, List},
    page::Failed,
    visitor::Visitor,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/routes", get(list::list))
        .route("/routes/new", get(edit::begin))
        .route("/routes/try", get(form::playground).post(form::try_it))
        .route("/routes/save", post(edit::save))
        .route("/routes/{id}/edit", get(edit::edit))
        .route("/routes/{id}/delete", post(edit::delete))
}

#[derive(Clone, Deserialize)]
struct Route {
    id: String,
    from: String,
    to: String,
    filter: Option<String>,
    transform: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// The names of all sources or destinations, in order.
async fn names(visitor: &Visitor, what: &str) -> Result<Vec<String>, Failed> {
    let found = visitor.get::<List<Named>>(Address::new(&[what])).await;
    let found = found.map_err(|trouble| visitor.failed(trouble))?;
    let mut names: Vec<String> = found.data.into_iter().map(|named| named.name).collect();
    names.sort();
    Ok(names)
}
