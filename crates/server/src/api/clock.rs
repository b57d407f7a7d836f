//! `/api/v1/clock`: whether the wall clock is trusted, and confirming it.

use std::sync::Arc;

use axum::{Json, extract::State};
use surehook_core::clock::ClockStatus;

use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let status = Operation::new("get_clock", "Get whether the clock is trusted.")
        .returns::<ClockStatus>(200);
    let confirm = Operation::new("confirm_clock", "Confirm that the clock is right.")
        .description(
            "While the clock is in doubt, no history and no deduplication key expires because of the \
             difference. Check the clock before you confirm it: what is too old by it is removed.",
        )
        .returns::<ClockStatus>(200);
    api.get("/api/v1/clock", get_clock, status).post(
        "/api/v1/clock/confirm",
        confirm_clock,
        confirm,
    )
}

pub(crate) async fn get_clock(State(server): State<Arc<ServerState>>) -> Json<ClockStatus> {
    Json(server.engine.clock_status())
}

pub(crate) async fn confirm_clock(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<ClockStatus>, Problem> {
    Ok(Json(server.engine.confirm_clock().await?))
}
