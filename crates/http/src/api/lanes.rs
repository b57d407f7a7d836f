//! `/api/v1/destinations/{id}/pause`, `/resume` and `/probe`.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec,
    ids::DestinationId,
    lane::{CircuitState, Pause, Rate},
};
use surehook_engine::LaneError;

use super::{
    deliveries,
    input::{Segment, Wish},
    resources,
};
use crate::{App, problem::Problem};

/// The longest reason that is kept.
const REASON_CHARS_MAX: usize = 500;

/// How the lane of a destination does.
pub(super) fn state(app: &App, id: DestinationId) -> Value {
    let Some(state) = app.engine.lane_state(id) else { return Value::Null };
    let holds = state.holds();
    let open_until = match state.circuit {
        CircuitState::Open { until, .. } => Some(until),
        CircuitState::Closed | CircuitState::HalfOpen { .. } | CircuitState::Ramp { .. } => None,
    };
    json!({
        "paused": state.paused.is_some(),
        "pause": state.paused.map(|Pause { at, reason, automatic }| {
            json!({ "at": at, "reason": reason, "automatic": automatic })
        }),
        "circuit": state.circuit.as_str(),
        "open_until": open_until,
        "cooling_until": state.cool_until,
        "drain": state.drain.map(|drain| json!({ "rate": drain.rate, "until": drain.until })),
        "holds": holds,
    })
}

async fn find(app: &App, wanted: &str) -> Result<DestinationId, Problem> {
    let configuration = app.engine.store().configuration().await?;
    Ok(resources::find_in::<DestinationSpec>(&configuration, wanted)?.id)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseWish {
    reason: Option<String>,
}

/// Delivers nothing more until it is resumed.
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    Wish(wish): Wish<PauseWish>,
) -> Result<Json<Value>, Problem> {
    if wish.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        let detail = format!("a reason has at most {REASON_CHARS_MAX} characters");
        return Err(Problem::invalid(detail));
    }
    app.engine.pause(find(&app, &wanted).await?, wish.reason).await?;
    resources::show::<DestinationSpec>(&app, &wanted).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeWish {
    rate: Option<Rate>,
}

/// Goes on with what waits, and with what comes.
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    Wish(wish): Wish<ResumeWish>,
) -> Result<Json<Value>, Problem> {
    app.engine.resume(find(&app, &wanted).await?, wish.rate).await?;
    resources::show::<DestinationSpec>(&app, &wanted).await
}

/// Tries one delivery now and tells what came of it.
pub(crate) async fn probe(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
) -> Result<Json<Value>, Problem> {
    let id = find(&app, &wanted).await?;
    let probed = app.engine.probe(id).await?;
    Ok(Json(json!({
        "delivery": probed.delivery,
        "succeeded": probed.attempt.class.is_none(),
        "attempt": deliveries::attempt(&probed),
        "state": state(&app, id),
    })))
}

impl From<LaneError> for Problem {
    fn from(error: LaneError) -> Self {
        let code = match error {
            LaneError::NoLane => "destination_misconfigured",
            LaneError::NothingWaits => "nothing_waits",
            LaneError::Store(error) => return Self::from(error),
        };
        Self::new(StatusCode::CONFLICT, code, error.to_string())
    }
}
