//! One file a page. Each has the lines of its own addresses.

mod conversations;
mod events;
mod login;
mod messages;
mod overview;
mod preferences;
mod settings;

use std::sync::Arc;

use axum::Router;

use crate::Dashboard;

/// Every page.
pub(crate) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .merge(conversations::routes())
        .merge(events::routes())
        .merge(login::routes())
        .merge(messages::routes())
        .merge(preferences::routes())
        .merge(settings::routes())
        .merge(overview::routes())
}
