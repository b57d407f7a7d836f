//! `/api/v1/inbox`: what the destination inside the gateway got.

use std::sync::Arc;

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{ids::EventId, redact::SecretNames, store::Configuration, time::Timestamp};

use super::{
    Bytes, HeaderLine, List,
    hidden::{self, header_lines},
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// One delivery as a destination sees it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InboxDelivery {
    arrived_at: Timestamp,
    event: EventId,
    headers: Vec<HeaderLine>,
    /// The first 16 KiB of it; secrets are masked.
    body: Bytes,
    /// How many values of the body are masked.
    masked: usize,
}

pub(crate) fn routes(api: Api) -> Api {
    let op = Op::new("read_inbox", "The latest deliveries to `builtin:inbox`, newest first.")
        .answers::<List<InboxDelivery>>(200);
    api.get("/api/v1/inbox", read_inbox, op)
}

/// The latest deliveries to `builtin:inbox`, newest first.
pub(crate) async fn read_inbox(
    State(app): State<Arc<App>>,
) -> Result<Json<List<InboxDelivery>>, Problem> {
    let names = secret_names(&app.engine.store().configuration().await?);
    let shown = app.engine.inbox().deliveries().into_iter().map(|arrival| {
        let lines = arrival.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let (body, masked) = hidden::body(&arrival.headers, &arrival.body, &names);
        InboxDelivery {
            arrived_at: arrival.at,
            event: arrival.event,
            headers: header_lines(lines, &names),
            body,
            masked,
        }
    });
    Ok(Json(List { data: shown.collect(), next_cursor: None }))
}

/// What is secret for any source, and the headers that destinations add.
fn secret_names(configuration: &Configuration) -> SecretNames {
    let mut names = configuration.all_secret_names();
    let added = configuration.destinations.iter().flat_map(|d| d.spec.headers.keys());
    added.for_each(|header| names.add_header(header));
    names
}
