//! Health checks and metrics.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};

use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::{DISK_FULL, Problem},
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let live = Operation::public("check_liveness", "Check that the process runs.")
        .returns_media(200, &["text/plain"]);
    let ready =
        Operation::public("check_readiness", "Check whether this gateway can take requests.")
            .returns_media(200, &["text/plain"])
            .problem(
                503,
                &[
                    "draining",
                    "store_failed",
                    "store_unreachable",
                    "disk_full",
                    "no_lease",
                    "deliveries_stuck",
                ],
            );
    let metrics_operation = Operation::new("get_metrics", "Get metrics in OpenMetrics format.")
        .returns_media(200, &["application/openmetrics-text"]);
    api.get("/livez", livez, live).get("/readyz", readyz, ready).get(
        "/metrics",
        metrics,
        metrics_operation,
    )
}

pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

pub(crate) async fn readyz(State(server): State<Arc<ServerState>>) -> Response {
    match readiness_problem(&server) {
        None => "ok\n".into_response(),
        Some((code, detail)) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
            .retry_after(5)
            .into_response(),
    }
}

fn readiness_problem(server: &ServerState) -> Option<(&'static str, String)> {
    if server.draining.is_cancelled() {
        return Some(("draining", "The gateway is shutting down.".to_owned()));
    }
    let health = server.engine.store().health();
    if let Some(reason) = health.failure {
        return Some(("store_failed", format!("The store has failed: {reason}")));
    }
    if let Some(reason) = health.unreachable {
        return Some(("store_unreachable", format!("The database cannot be reached: {reason}")));
    }
    if !server.engine.has_lease() {
        let detail = "The lease of this node has ended: it delivers nothing until it is renewed.";
        return Some(("no_lease", detail.to_owned()));
    }
    if health.is_disk_full {
        return Some(("disk_full", DISK_FULL.to_owned()));
    }
    let destination = server.engine.stuck_destination()?;
    Some(("deliveries_stuck", format!("Due deliveries to `{destination}` are not being started.")))
}

pub(crate) async fn metrics(State(server): State<Arc<ServerState>>) -> Response {
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, media_type)], server.engine.telemetry().render()).into_response()
}
