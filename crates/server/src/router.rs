//! The axum router: all endpoints outside `/in/`, and the middleware around them.

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use crate::{
    ServerState, api, auth, health,
    in_process_gateway::InProcessGateway,
    openapi::{self, ApiTable, Operation},
    problem::Problem,
    receive,
};

/// All endpoints with their OpenAPI description. Each file of `api/` adds its own.
pub(crate) fn api_table() -> ApiTable {
    ApiTable::default()
        .with(api::events::add_routes)
        .with(api::duplicates::add_routes)
        .with(api::reveal::add_routes)
        .with(api::deliveries::add_routes)
        .with(api::dead_letter_groups::add_routes)
        .with(api::dead_letter_aliases::add_routes)
        .with(api::messages::add_routes)
        .with(api::stats::add_routes)
        .with(api::series::add_routes)
        .with(api::replays::add_routes)
        .with(api::requests::add_routes)
        .with(api::quarantine::add_routes)
        .with(api::inbox::add_routes)
        .with(api::media::add_routes)
        .with(api::claims::add_routes)
        .with(api::stream::add_routes)
        .with(api::tokens::add_routes)
        .with(api::about::add_routes)
        .with(api::nodes::add_routes)
        .with(api::alerts::add_routes)
        .with(api::freeze::add_routes)
        .with(api::clock::add_routes)
        .with(api::configuration::add_routes)
        .with(api::reload::add_routes)
        .with(api::resources::add_routes::<SourceSpec>)
        .with(api::resources::add_routes::<DestinationSpec>)
        .with(api::resources::add_routes::<RouteSpec>)
        .with(api::route_trials::add_routes)
        .with(api::lanes::add_routes)
        .with(api::listen::add_routes)
        .with(api::what_if::add_routes)
        .with(health::add_routes)
        .with(receive::describe_endpoint)
        .get(
            "/api/openapi.json",
            openapi_json,
            Operation::public("get_openapi", "Get this OpenAPI document.")
                .returns_media(200, &["application/json"]),
        )
}

/// The dashboard and the API.
pub(crate) fn build_router(server: Arc<ServerState>) -> Router {
    let api = build_api_router(Arc::clone(&server));
    let dashboard =
        surehook_dashboard::router(Arc::new(InProcessGateway { server, api: api.clone() }));
    // The API answers every path that is not a page of the dashboard.
    dashboard.fallback_service(api)
}

/// The API, the health checks and the metrics.
pub(crate) fn build_api_router(server: Arc<ServerState>) -> Router {
    let ApiTable { authenticated, public, .. } = api_table();
    // A request passes the layers from the last to the first.
    let authenticated = authenticated
        .layer(middleware::from_fn(api::etag::answer_not_modified))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&server),
            api::idempotency::enforce_idempotency,
        ))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), auth::require_token));
    Router::new()
        .merge(authenticated)
        .merge(public)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::map_response(add_security_headers))
        .with_state(server)
}

/// Needs no token: the document reveals nothing about this gateway but its version, and tools fetch
/// it before they have one.
async fn openapi_json() -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], openapi::document()).into_response()
}

async fn not_found() -> Problem {
    Problem::not_found("endpoint")
}

async fn method_not_allowed() -> Problem {
    // The router adds the `Allow` header.
    let detail = "Method not allowed. See the `Allow` header.";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Responses may contain hostile payloads: a browser must never run one as a page.
async fn add_security_headers(mut response: Response) -> Response {
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
