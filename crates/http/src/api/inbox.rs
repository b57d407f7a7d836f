//! `/api/v1/inbox`: what the destination inside the gateway got.

use std::{collections::HashSet, sync::Arc};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{ids::EventId, store::Configuration, time::Timestamp, verify::VerifySpec};

use super::{Bytes, HeaderLine, Hidden, List, header_lines, hidden::MASK};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
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
pub(crate) async fn read_inbox(
    State(app): State<Arc<App>>,
) -> Result<Json<List<Arrival>>, Problem> {
    let secret = secret_headers(&app.engine.store().configuration().await?);
    let data = app
        .engine
        .inbox()
        .arrivals()
        .into_iter()
        .map(|arrival| {
            let lines = arrival.headers.iter().map(|(name, value)| {
                let is_secret = secret.contains(name.as_str());
                (name.as_str(), if is_secret { MASK.as_bytes() } else { value.as_bytes() })
            });
            Arrival {
                arrived_at: arrival.at,
                event: arrival.event,
                headers: header_lines(lines, Hidden::of(None)),
                body: Bytes::from(&arrival.body[..]),
            }
        })
        .collect();
    Ok(Json(List { data, next_cursor: None }))
}

/// Headers whose values are secrets though their names do not say so: those that destinations add,
/// and those in which sources get theirs.
fn secret_headers(configuration: &Configuration) -> HashSet<String> {
    let added = configuration.destinations.iter().flat_map(|d| d.spec.headers.keys());
    let verified = configuration.sources.iter().filter_map(|s| match &s.spec.verify {
        Some(VerifySpec::Token { header }) => Some(header),
        Some(VerifySpec::None | VerifySpec::Hmac(_) | VerifySpec::Basic { .. }) | None => None,
    });
    added.chain(verified).map(|name| name.to_ascii_lowercase()).collect()
}
