//! One module per page, with its routes.

mod alerts;
mod clock;
mod config;
mod conversations;
mod dead_letters;
mod events;
mod idempotency;
mod login;
mod messages;
mod nodes;
mod overview;
mod preferences;
mod replays;
mod requests;
mod settings;
mod stream;

use std::sync::Arc;

use axum::Router;
use serde::Deserialize;

use crate::Dashboard;

/// A form that must be executed only once.
#[derive(Deserialize)]
struct IdempotentForm {
    #[serde(default)]
    idempotency_key: String,
}

pub(crate) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .merge(clock::routes())
        .merge(config::routes())
        .merge(conversations::routes())
        .merge(dead_letters::routes())
        .merge(events::routes())
        .merge(idempotency::routes())
        .merge(login::routes())
        .merge(messages::routes())
        .merge(nodes::routes())
        .merge(alerts::routes())
        .merge(preferences::routes())
        .merge(replays::routes())
        .merge(requests::routes())
        .merge(settings::routes())
        .merge(overview::routes())
        .merge(stream::routes())
}
