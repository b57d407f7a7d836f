//! `/api/v1/about`: version and settings of this gateway.

use std::sync::Arc;

use axum::{Json, extract::State};
use surehook_api::gateway::AboutResponse;
use surehook_types::time::HumanDuration;

use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation = Operation::new("get_about", "Get the version and settings of this gateway.")
        .returns::<AboutResponse>(200);
    api.get("/api/v1/about", get_about, operation)
}

pub(crate) async fn get_about(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<AboutResponse>, Problem> {
    Ok(Json(AboutResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: server.engine.clock().now(),
        public_url: server.engine.public_url().map(|url| url.as_str().to_owned()),
        retention: HumanDuration(server.engine.event_retention()),
        body_bytes_max: server.limits.body_bytes_max,
    }))
}
