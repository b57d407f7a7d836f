//! Everything that is not the door: the table of all calls, and what stands around them.

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use crate::{
    App, api, auth, door, health,
    openapi::{self, Api, Op},
    pages::Behind,
    problem::Problem,
};

/// Every call, with its description. Each file of `api/` has the lines of its own.
pub(crate) fn table() -> Api {
    Api::default()
        .with(api::events::routes)
        .with(api::duplicates::routes)
        .with(api::reveal::routes)
        .with(api::deliveries::routes)
        .with(api::groups::routes)
        .with(api::messages::routes)
        .with(api::stats::routes)
        .with(api::series::routes)
        .with(api::replays::routes)
        .with(api::requests::routes)
        .with(api::quarantine::routes)
        .with(api::inbox::routes)
        .with(api::media::routes)
        .with(api::stream::routes)
        .with(api::tokens::routes)
        .with(api::about::routes)
        .with(api::configuration::routes)
        .with(api::resources::routes::<SourceSpec>)
        .with(api::resources::routes::<DestinationSpec>)
        .with(api::resources::routes::<RouteSpec>)
        .with(api::trials::routes)
        .with(api::lanes::routes)
        .with(health::routes)
        .with(door::described)
        .get(
            "/api/openapi.json",
            openapi_json,
            Op::open("openapi", "This document.").answers_as(200, &["application/json"]),
        )
}

/// Everything but the door: the pages for people, and what is for programs.
pub(crate) fn everything(app: Arc<App>) -> Router {
    let api = router(Arc::clone(&app));
    let pages = surehook_dashboard::router(Arc::new(Behind { app, api: api.clone() }));
    // What no page has is for the API to say.
    pages.fallback_service(api)
}

/// The routes of the API, the probes and the metrics.
pub(crate) fn router(app: Arc<App>) -> Router {
    let Api { guarded, open, .. } = table();
    // The last one is the first that a request meets.
    let guarded = guarded
        .layer(middleware::from_fn(api::tagged::spare_what_is_known))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), api::idempotent::once))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), auth::require_token));
    Router::new()
        .merge(guarded)
        .merge(open)
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::map_response(harden))
        .with_state(app)
}

/// What the API is, for programs. Without a token: it says nothing about this gateway but its
/// version, and tools fetch it before they have one.
async fn openapi_json() -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], openapi::document()).into_response()
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
