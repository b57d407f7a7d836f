//! Everything that is not the door: one table of routes.

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderValue, StatusCode, header};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use crate::{App, api, auth, health, problem::Problem};

/// The routes of the API, the probes and the metrics.
pub(crate) fn router(app: Arc<App>) -> Router {
    let api = Router::new()
        .route("/events", get(api::events::list_events))
        .route("/events/{id}", get(api::events::find_event))
        .route("/events/{id}/body", get(api::events::read_body))
        .route("/deliveries", get(api::deliveries::list_deliveries))
        .route("/deliveries/{id}", get(api::deliveries::find_delivery))
        .route("/deliveries/{id}/body", get(api::deliveries::read_body))
        .route("/deliveries/{id}/replay", post(api::deliveries::replay_delivery))
        .route("/deliveries/{id}/cancel", post(api::deliveries::cancel_delivery))
        .route("/dead-letters", get(api::deliveries::list_dead_letters))
        .route("/dead-letters/stats", get(api::stats::dead_letter_stats))
        .route("/dead-letters/reprocess", post(api::replays::reprocess))
        .nest("/replays", api::replays::router())
        .route("/stats", get(api::stats::stats))
        .route("/stats/series", get(api::series::series))
        .route("/requests", get(api::requests::list_requests))
        .route("/requests/{id}", get(api::requests::find_request))
        .route("/inbox", get(api::events::read_inbox))
        .route("/configuration", get(api::configuration::export).put(api::configuration::apply))
        .nest("/sources", api::resources::router::<SourceSpec>())
        .route("/destinations/{wanted}/pause", post(api::lanes::pause))
        .route("/destinations/{wanted}/resume", post(api::lanes::resume))
        .route("/destinations/{wanted}/probe", post(api::lanes::probe))
        .nest("/destinations", api::resources::router::<DestinationSpec>())
        .nest("/routes", api::resources::router::<RouteSpec>());
    let guarded = Router::new()
        .nest("/api/v1", api)
        .route("/metrics", get(health::metrics))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), auth::require_token));
    Router::new()
        .merge(guarded)
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/", get(welcome))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::map_response(harden))
        .with_state(app)
}

async fn welcome() -> &'static str {
    "Surehook is running.\n\n\
     Webhooks come in at  POST /in/{source}\n\
     The API is at        /api/v1 (Authorization: Bearer <admin token>)\n\
     Probes and metrics   /livez /readyz /metrics\n"
}

async fn nothing_here() -> Problem {
    Problem::not_found("address")
}

async fn wrong_method() -> Problem {
    // The router adds `Allow`: it knows which methods the address has.
    let detail = "this address takes other methods; `Allow` names them";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Payloads are hostile: no answer may ever be taken for a page that runs something.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response.into_response()
}
