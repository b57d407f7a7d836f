//! `/api/v1/destinations/{id}/pause`, `/resume` and `/probe`, and the state of a destination's lane.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use serde_json::{Value, json};
use surehook_api::resources::{
    DestinationBacklog, DestinationDrain, DestinationHealthResponse, DestinationHold,
    DestinationPause, DestinationState, LastErrorResponse, PauseRequest, ProbeResponse,
    ResumeRequest,
};
use surehook_core::{
    destination::DestinationSpec,
    lane::{BacklogDrain, LanePause},
};
use surehook_engine::{
    LaneError, LaneStates,
    health::{DestinationHealth, WAITING_MAX},
};
use surehook_retry::circuit::CircuitState;
use surehook_types::{ids::DestinationId, time::HumanDuration};

use super::{
    deliveries,
    etag::VersionedJson,
    extract::{OptionalJson, PathParam},
    resources::{self, ResourceRef, ResourceResponse},
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// The state of a destination's lane; `None` if it has none because its settings are unusable.
pub(super) fn destination_state(lanes: &LaneStates, id: DestinationId) -> Option<DestinationState> {
    let state = lanes.find(id)?;
    let holds = state.is_holding();
    let open_until = match state.circuit {
        CircuitState::Open { until, .. } => Some(until),
        CircuitState::Closed | CircuitState::HalfOpen { .. } | CircuitState::Ramp { .. } => None,
    };
    let pause = |LanePause { at, reason, automatic }| DestinationPause { at, reason, automatic };
    Some(DestinationState {
        paused: state.paused.is_some(),
        pause: state.paused.map(pause),
        circuit: state.circuit.as_str().to_owned(),
        open_until,
        cooling_until: state.cool_until,
        hold: lanes
            .find_hold(id)
            .map(|(until, hold)| DestinationHold { until, reason: hold.as_str().to_owned() }),
        listeners: lanes.count_listeners(id),
        drain: state.drain.map(|BacklogDrain { rate, until }| DestinationDrain { rate, until }),
        holds,
    })
}

/// The health of a destination. What the services said is not included: it may quote secrets.
pub(super) fn destination_health(
    server: &ServerState,
    id: DestinationId,
) -> DestinationHealthResponse {
    let DestinationHealth { status, since, window, last_error, waiting, drain } =
        server.engine.destination_health(id);
    let last_error = last_error.map(|error| LastErrorResponse {
        at: error.at,
        event: error.event,
        delivery: error.delivery,
        status: error.attempt.status,
        failure: error.attempt.failure,
        class: error.attempt.class,
        detail: error.attempt.detail.clone(),
    });
    DestinationHealthResponse {
        status,
        since,
        window: HumanDuration(server.engine.health_policy().window),
        attempts: window.attempts,
        failed: window.failed,
        dead: window.dead,
        failure_ratio: window.failure_ratio(),
        backlog: DestinationBacklog {
            waiting: waiting.waiting,
            due: waiting.due,
            more: waiting.waiting >= WAITING_MAX,
            drain_seconds: drain.map(|drain| drain.as_secs()),
        },
        last_error,
    }
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation = |id: &str, summary: &str| {
        Operation::new(id, summary)
            .path::<ResourceRef<DestinationSpec>>("id")
            .problem(409, &["destination_misconfigured"])
            .problem(503, &["owner_unavailable"])
    };
    let path = |what: &str| format!("/api/v1/destinations/{{id}}/{what}");
    let pause_operation = operation("pause_destination", "Pause deliveries to a destination.")
        .optional_body::<PauseRequest>(json!({ "reason": "maintenance" }))
        .returns::<ResourceResponse<DestinationSpec>>(200)
        .with_etag();
    let resume_operation = operation("resume_destination", "Resume deliveries to a destination.")
        .optional_body::<ResumeRequest>(json!({ "rate": "10/s" }))
        .returns::<ResourceResponse<DestinationSpec>>(200)
        .with_etag();
    let probe_operation = operation(
        "probe_destination",
        "Attempt the next due delivery now, even if the destination is paused.",
    )
    .returns::<ProbeResponse>(200)
    .problem(409, &["nothing_waits"]);
    api.post(&path("pause"), pause_destination, pause_operation)
        .post(&path("resume"), resume_destination, resume_operation)
        .post(&path("probe"), probe_destination, probe_operation)
}

pub(super) async fn find_destination(
    server: &ServerState,
    id_or_name: &str,
) -> Result<DestinationId, Problem> {
    let configuration = server.engine.store().load_configuration().await?;
    Ok(resources::find_resource::<DestinationSpec>(&configuration, id_or_name)?.id)
}

pub(crate) async fn pause_destination(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    OptionalJson(request): OptionalJson<PauseRequest>,
) -> Result<VersionedJson<Value>, Problem> {
    const MAX: usize = PauseRequest::REASON_CHARS_MAX;
    if request.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX) {
        let detail = format!("`reason` must have at most {MAX} characters.");
        return Err(Problem::invalid(detail));
    }
    server.engine.pause(find_destination(&server, &id).await?, request.reason).await?;
    resources::resource_response::<DestinationSpec>(&server, &id, StatusCode::OK).await
}

pub(crate) async fn resume_destination(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    OptionalJson(request): OptionalJson<ResumeRequest>,
) -> Result<VersionedJson<Value>, Problem> {
    server.engine.resume(find_destination(&server, &id).await?, request.rate).await?;
    resources::resource_response::<DestinationSpec>(&server, &id, StatusCode::OK).await
}

pub(crate) async fn probe_destination(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<Json<ProbeResponse>, Problem> {
    let id = find_destination(&server, &id).await?;
    let attempt = server.engine.probe(id).await?;
    let configuration = server.engine.store().load_configuration().await?;
    let names = configuration.all_secret_names();
    let lanes = server.engine.load_lane_states(&configuration).await?;
    Ok(Json(ProbeResponse {
        delivery: attempt.delivery,
        succeeded: attempt.attempt.class.is_none(),
        attempt: deliveries::attempt_response(&attempt, &names),
        state: destination_state(&lanes, id),
    }))
}

impl From<LaneError> for Problem {
    fn from(error: LaneError) -> Self {
        let code = match error {
            LaneError::NoLane => "destination_misconfigured",
            LaneError::NothingPending => "nothing_waits",
            LaneError::OwnedElsewhere(_) => "owned_by_other_node",
            LaneError::NotListen => "not_a_listen_destination",
            LaneError::TooManyListeners(_) => "too_many_listeners",
            LaneError::BurstBelowShards { .. } => return Self::invalid(error.to_string()),
            LaneError::NoAnswer | LaneError::NotDone(_) | LaneError::Changing => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Self::new(status, "owner_unavailable", error.to_string()).retry_after(5);
            }
            LaneError::Store(error) => return Self::from(error),
        };
        Self::new(StatusCode::CONFLICT, code, error.to_string())
    }
}
