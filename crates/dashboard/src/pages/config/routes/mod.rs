//! `/routes`: which events go to which destination, and a playground for filters and transforms.

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
    client::{ApiList, ApiPath},
    current_user::CurrentUser,
    page::PageError,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/routes", get(list::list_routes))
        .route("/routes/new", get(edit::show_new))
        .route("/routes/try", get(form::show_playground).post(form::try_route))
        .route("/routes/save", post(edit::save_route))
        .route("/routes/{id}/edit", get(edit::show_edit))
        .route("/routes/{id}/delete", post(edit::delete_route))
}

#[derive(Clone, Deserialize)]
struct RouteItem {
    id: String,
    from: String,
    to: String,
    filter: Option<String>,
    transform: Option<String>,
}

#[derive(Deserialize)]
struct NamedResource {
    name: String,
}

/// Sorted names of all sources or destinations.
async fn resource_names(user: &CurrentUser, what: &str) -> Result<Vec<String>, PageError> {
    let found = user.get::<ApiList<NamedResource>>(ApiPath::new(&[what])).await;
    let found = found.map_err(|error| user.page_error(error))?;
    let mut names: Vec<String> = found.data.into_iter().map(|named| named.name).collect();
    names.sort();
    Ok(names)
}
