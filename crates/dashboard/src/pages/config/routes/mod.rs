//! `/routes`: which events go to which destination, and a playground for filters and transforms.

mod edit;
mod form;
mod list;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use crate::Dashboard;

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/routes", get(list::list_routes))
        .route("/routes/new", get(edit::show_new))
        .route("/routes/try", get(form::show_playground).post(form::try_route))
        .route("/routes/save", post(edit::save_route))
        .route("/routes/{id}/edit", get(edit::show_edit))
        .route("/routes/{id}/delete", post(edit::delete_route))
}
