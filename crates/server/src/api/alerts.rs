//! `/api/v1/alerts`: what fires, what has fired, and test messages to channels.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use surehook_api::alerts::{
    AlertChannelResponse, AlertResponse, AlertsResponse, TestAlertResponse,
};
use surehook_core::{alert::log::Alert, destination::DestinationSpec, store::StoredObject};
use surehook_types::{ids::DestinationId, name::Name};

use super::idempotency::IdempotencyContext;
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = Operation::new("list_alerts", "List what fires, and what has fired.")
        .description(
            "Alerts are raised by the rules of `[alerts]` in the settings, and told to the channels: \
             destinations with `alerts`.",
        )
        .returns::<AlertsResponse>(200);
    let test = Operation::new("test_alert_channel", "Send a test message to an alert channel.")
        .description(
            "202 means that the message is stored on disk; its event shows whether it arrived.",
        )
        .path::<Name>("channel")
        .returns::<TestAlertResponse>(202)
        .problem(409, &["destination_misconfigured", "no_alert_channel", "outbox_taken"])
        .problem(422, &["unknown_destination"])
        .problem(503, &["source_disabled", "source_misconfigured"]);
    api.get("/api/v1/alerts", list_alerts, list).post(
        "/api/v1/alerts/{channel}/test",
        test_channel,
        test,
    )
}

pub(crate) async fn list_alerts(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<AlertsResponse>, Problem> {
    let store = server.engine.store();
    let log = store.load_alerts().await?.log;
    let configuration = store.load_configuration().await?;
    let channels = configuration.destinations.iter().filter(|stored| stored.spec.alerts.is_some());
    let mut channels: Vec<_> = channels.map(|stored| channel_response(&server, stored)).collect();
    channels.sort_by(|one, other| one.destination.cmp(&other.destination));
    Ok(Json(AlertsResponse {
        active: log.active.iter().map(alert_response).collect(),
        past: log.past.iter().map(alert_response).collect(),
        channels,
        rules: server.engine.alert_rules().spec().clone(),
    }))
}

fn alert_response(alert: &Alert) -> AlertResponse {
    AlertResponse {
        id: alert.number,
        rule: alert.rule,
        status: alert.status(),
        subject: alert.subject.clone(),
        summary: alert.figures.describe(alert.rule),
        figures: alert.figures.clone(),
        fired_at: alert.fired_at,
        resolved_at: alert.resolved_at,
        notified: alert.notice.is_some(),
    }
}

fn channel_response(
    server: &ServerState,
    stored: &StoredObject<DestinationId, DestinationSpec>,
) -> AlertChannelResponse {
    let StoredObject { id, spec, .. } = stored;
    let channel = spec.alerts.as_ref().and_then(|alerts| alerts.build(spec.kind, &spec.url).ok());
    AlertChannelResponse {
        destination: spec.name.clone(),
        destination_id: *id,
        kind: spec.kind,
        format: channel.map(|channel| channel.format),
        health: server.engine.destination_health(*id).status,
    }
}

async fn test_channel(
    State(server): State<Arc<ServerState>>,
    Path(channel): Path<String>,
    IdempotencyContext(identity): IdempotencyContext,
) -> Result<(StatusCode, Json<TestAlertResponse>), Problem> {
    let target = server.engine.find_send_target(&channel).await?;
    let name = target.destination().name.clone();
    let sent = server.engine.send_test_alert(&channel, identity).await?;
    let events = sent.iter().map(|message| message.event).collect();
    Ok((StatusCode::ACCEPTED, Json(TestAlertResponse { channel: name, events })))
}
