//! `/events`: the event list, and the page of one event.

mod actions;
mod attributes;
pub(super) mod card;
mod detail;
mod duplicates;
mod list;
mod pasted;
mod timeline;
mod waterfall;

use std::sync::Arc;

use axum::{
    Router,
    extract::Path,
    response::Redirect,
    routing::{get, post},
};
use surehook_api::percent_encode;

use crate::Dashboard;

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/events", get(list::list_events))
        .route("/events/export", get(list::export_events))
        .route("/e/{id}", get(redirect_to_event))
        .route("/events/{id}", get(detail::show_event))
        .route("/events/{id}/body", get(detail::download_body))
        .route("/events/{id}/reveal", get(redirect_to_event).post(actions::reveal_event))
        .route("/events/{id}/deliveries/{delivery}/replay", post(actions::replay_delivery))
        .route("/events/{id}/deliveries/{delivery}/cancel", post(actions::cancel_delivery))
        .route("/events/{id}/deliveries/{delivery}/curl", get(detail::show_curl))
        .route("/events/{id}/deliveries/{delivery}/body", get(detail::download_sent_body))
        .route("/events/{id}/duplicates/{n}", get(duplicates::show_comparison))
        .route("/events/{id}/duplicates/{n}/deliver", post(duplicates::deliver_anyway))
}

fn event_path(id: impl std::fmt::Display) -> String {
    format!("/events/{}", percent_encode(&id.to_string()))
}

/// Short link for chats. Also the target after revealing: revealed values are shown only once.
async fn redirect_to_event(Path(id): Path<String>) -> Redirect {
    Redirect::to(&event_path(&id))
}
