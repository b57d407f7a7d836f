//! `/api/v1/inbox`: what the destination inside the gateway got.

use std::sync::Arc;

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{ids::EventId, time::Timestamp};

use super::{Bytes, HeaderLine, Hidden, List, header_lines};
use crate::{
    App,
    openapi::{Api, Op},
};

/// One delivery as a destination sees it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Arrival {
    arrived_at: Timestamp,
    event: EventId,
    headers: Vec<HeaderLine>,
    /// The first 16 KiB of it.
    body: Bytes,
}

pub(crate) fn routes(api: Api) -> Api {
    let op = Op::new("read_inbox", "The latest deliveries to `builtin:inbox`, newest first.")
        .answers::<List<Arrival>>(200);
    api.get("/api/v1/inbox", read_inbox, op)
}

/// The latest deliveries to `builtin:inbox`, newest first.
pub(crate) async fn read_inbox(State(app): State<Arc<App>>) -> Json<List<Arrival>> {
    let data = app
        .engine
        .inbox()
        .arrivals()
        .into_iter()
        .map(|arrival| {
            let lines = arrival.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes()));
            Arrival {
                arrived_at: arrival.at,
                event: arrival.event,
                headers: header_lines(lines, Hidden::of(None)),
                body: Bytes::from(&arrival.body[..]),
            }
        })
        .collect();
    Json(List { data, next_cursor: None })
}
