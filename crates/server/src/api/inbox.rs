//! `/api/v1/inbox`: deliveries to the built-in test destination.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use surehook_api::{ListResponse, gateway::InboxDeliveryResponse};
use surehook_core::store::Configuration;
use surehook_types::redact::SecretNames;

use super::redacted_body::{self, mask_headers};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation =
        Operation::new("list_inbox", "List recent deliveries to `builtin:inbox`, newest first.")
            .returns::<ListResponse<InboxDeliveryResponse>>(200);
    api.get("/api/v1/inbox", list_inbox, operation)
}

pub(crate) async fn list_inbox(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
) -> Result<Json<ListResponse<InboxDeliveryResponse>>, Problem> {
    let configuration = server.engine.store().load_configuration().await?;
    let names = secret_names(&configuration);
    let deliveries = server.engine.inbox().deliveries().into_iter().map(|arrival| {
        let lines = arrival.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let (body, masked) = redacted_body::mask_body(&arrival.headers, &arrival.body, &names);
        InboxDeliveryResponse {
            received_at: arrival.at,
            event: arrival.event,
            headers: mask_headers(lines, &names, access, &configuration),
            body,
            masked,
        }
    });
    Ok(Json(ListResponse { data: deliveries.collect(), next_cursor: None }))
}

/// The secret names of all sources, and the headers that destinations add.
fn secret_names(configuration: &Configuration) -> SecretNames {
    let mut names = configuration.all_secret_names();
    let added = configuration.destinations.iter().flat_map(|d| d.spec.headers.keys());
    added.for_each(|header| names.add_header(header));
    names
}
