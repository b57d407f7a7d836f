//! `/events`: everything that was taken in, and each event with its story.

mod acts;
mod api;
mod card;
mod detail;
mod duplicates;
mod list;
mod story;
mod waterfall;

use std::sync::Arc;

use axum::{
    Router,
    extract::Path,
    response::Redirect,
    routing::{get, post},
};

use crate::{Dashboard, client::encode};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/events", get(list::list))
        .route("/events/export", get(list::export))
        .route("/e/{id}", get(short))
        .route("/events/{id}", get(detail::detail))
        .route("/events/{id}/body", get(detail::body))
        .route("/events/{id}/reveal", get(short).post(acts::reveal))
        .route("/events/{id}/deliveries/{delivery}/replay", post(acts::replay))
        .route("/events/{id}/deliveries/{delivery}/cancel", post(acts::cancel))
        .route("/events/{id}/deliveries/{delivery}/curl", get(detail::curl))
        .route("/events/{id}/deliveries/{delivery}/body", get(detail::sent_body))
        .route("/events/{id}/duplicates/{n}", get(duplicates::compare))
        .route("/events/{id}/duplicates/{n}/deliver", post(duplicates::deliver))
}

/// The page of an event.
fn path_of(id: &str) -> String {
    format!("/events/{}", encode(id))
}

/// An address short enough for a chat. What was revealed is not there a second time either.
async fn short(Path(id): Path<String>) -> Redirect {
    Redirect::to(&path_of(&id))
}
