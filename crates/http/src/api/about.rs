//! `/api/v1/about`: which gateway this is, and by which rules it keeps things.

use std::sync::Arc;

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::time::{HumanDuration, Timestamp};

use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// Which gateway this is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct About {
    version: &'static str,
    /// The time that this gateway goes by.
    now: Timestamp,
    /// Where senders reach it, if the settings say so.
    public_url: Option<String>,
    /// How long events are kept, unless their source says otherwise.
    retention: HumanDuration,
    /// The largest body that is taken in, unless the source says otherwise.
    body_bytes_max: usize,
}

pub(crate) fn routes(api: Api) -> Api {
    let op = Op::new("about", "Which gateway this is, and by which rules it keeps things.")
        .answers::<About>(200);
    api.get("/api/v1/about", about, op)
}

/// Which gateway this is.
pub(crate) async fn about(State(app): State<Arc<App>>) -> Result<Json<About>, Problem> {
    Ok(Json(About {
        version: env!("CARGO_PKG_VERSION"),
        now: app.engine.clock().now(),
        public_url: app.engine.public_url().map(|url| url.as_str().to_owned()),
        retention: HumanDuration(app.engine.event_retention()),
        body_bytes_max: app.limits.body_bytes_max,
    }))
}
