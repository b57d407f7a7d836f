//! `/api/v1/freeze`: ends the work of this process and answers 503 from then on, so that the last changes
//! can be moved to another store.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use surehook_api::nodes::{FreezeResponse, FreezeState};

use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let freeze = Operation::new("freeze", "Freeze this process before its data is moved.")
        .description(
            "Used by `surehook migrate`. Running attempts end, nothing new is started, the store is \
             closed, and every request is answered 503 with `Retry-After` until the process is stopped. \
             There is no way back but a restart.",
        )
        .returns::<FreezeResponse>(202);
    api.post("/api/v1/freeze", freeze_process, freeze)
}

async fn freeze_process(
    State(server): State<Arc<ServerState>>,
) -> (StatusCode, Json<FreezeResponse>) {
    tracing::warn!("frozen: requests are answered 503 until this process is stopped");
    server.frozen.cancel();
    (StatusCode::ACCEPTED, Json(FreezeResponse { state: FreezeState::Freezing }))
}
