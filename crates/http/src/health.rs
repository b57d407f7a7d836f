//! Probes and metrics.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};

use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

pub(crate) fn routes(api: Api) -> Api {
    let live = Op::open("livez", "The process answers.").answers_as(200, &["text/plain"]);
    let ready = Op::open("readyz", "Whether requests should be sent here, and if not, why.")
        .answers_as(200, &["text/plain"])
        .refuses(503, &["draining", "store_failed", "disk_full", "deliveries_stuck"]);
    let numbers = Op::new("metrics", "The metrics as Prometheus reads them.")
        .answers_as(200, &["application/openmetrics-text"]);
    api.get("/livez", livez, live).get("/readyz", readyz, ready).get("/metrics", metrics, numbers)
}

/// The process answers.
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether requests should be sent here, and if not, why.
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    match trouble(&app) {
        None => "ok\n".into_response(),
        Some((code, detail)) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
            .retry_after(5)
            .into_response(),
    }
}

fn trouble(app: &App) -> Option<(&'static str, String)> {
    if app.draining.is_cancelled() {
        return Some(("draining", "the gateway is shutting down".to_owned()));
    }
    let health = app.engine.store().health();
    if let Some(why) = health.failed {
        return Some(("store_failed", format!("the store has failed: {why}")));
    }
    if health.full {
        return Some(("disk_full", "the disk is full; make room and it goes on".to_owned()));
    }
    let stuck = app.engine.stuck_destination()?;
    Some(("deliveries_stuck", format!("due deliveries to `{stuck}` are not being taken")))
}

/// The metrics as Prometheus reads them.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.engine.telemetry().set_bodies_in_memory(app.body_bytes_held());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.engine.telemetry().render()).into_response()
}
