//! `/api/v1/destinations/{id}/pause`, `/resume` and `/probe`.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec,
    ids::{DeliveryId, DestinationId},
    lane::{BacklogDrain, CircuitState, LanePause, Rate},
    time::Timestamp,
};
use surehook_engine::LaneError;

use super::{
    deliveries::{self, ShownAttempt},
    input::{Segment, Wish},
    resources::{self, Shown, Wanted},
    tagged::TaggedAs,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// The longest reason that is kept.
const REASON_CHARS_MAX: usize = 500;

/// How the lane of a destination does.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LaneState {
    paused: bool,
    pause: Option<ShownPause>,
    #[schemars(with = "String", regex(pattern = "^(closed|open|half_open|ramp)$"))]
    circuit: &'static str,
    /// Until when it is left alone.
    open_until: Option<Timestamp>,
    /// Until when it asked us to wait.
    cooling_until: Option<Timestamp>,
    /// Until when it sends no messages, and why.
    hold: Option<ShownHold>,
    drain: Option<ShownDrain>,
    /// Whether what waits for it is held: it is paused, or its circuit is open.
    holds: bool,
}

/// Since when and why a destination is paused.
#[derive(Debug, Serialize, JsonSchema)]
struct ShownPause {
    at: Timestamp,
    reason: Option<String>,
    /// The gateway paused it by itself.
    automatic: bool,
}

/// Until when a destination sends no messages, and why. What waits for it is pending.
#[derive(Debug, Serialize, JsonSchema)]
struct ShownHold {
    until: Timestamp,
    #[schemars(with = "String", regex(pattern = "^(quiet_hours|daily_limit)$"))]
    why: &'static str,
}

/// How fast what waited during a pause is worked off.
#[derive(Debug, Serialize, JsonSchema)]
struct ShownDrain {
    rate: Rate,
    /// What was created before this time.
    until: Timestamp,
}

/// The same as a field of a destination.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LaneShown {
    /// How it does; null when its settings cannot be used. Is no part of its version.
    pub(super) state: Option<LaneState>,
}

/// Says how the lane of a destination does, if it has one.
pub(super) fn state(app: &App, id: DestinationId) -> Option<LaneState> {
    let state = app.engine.lane_state(id)?;
    let holds = state.holds();
    let open_until = match state.circuit {
        CircuitState::Open { until, .. } => Some(until),
        CircuitState::Closed | CircuitState::HalfOpen { .. } | CircuitState::Ramp { .. } => None,
    };
    let pause = |LanePause { at, reason, automatic }| ShownPause { at, reason, automatic };
    Some(LaneState {
        paused: state.paused.is_some(),
        pause: state.paused.map(pause),
        circuit: state.circuit.as_str(),
        open_until,
        cooling_until: state.cool_until,
        hold: app.engine.lane_hold(id).map(|(until, why)| ShownHold { until, why: why.as_str() }),
        drain: state.drain.map(|BacklogDrain { rate, until }| ShownDrain { rate, until }),
        holds,
    })
}

pub(crate) fn routes(api: Api) -> Api {
    let op = |id: &str, summary: &str| {
        Op::new(id, summary)
            .path::<Wanted<DestinationSpec>>("wanted")
            .refuses(409, &["destination_misconfigured"])
    };
    let path = |what: &str| format!("/api/v1/destinations/{{wanted}}/{what}");
    let pause_op =
        op("pause_destination", "Delivers nothing more to a destination until it is resumed.")
            .may_have_body::<PauseWish>(json!({ "reason": "maintenance" }))
            .answers::<Shown<DestinationSpec>>(200)
            .tagged();
    let resume_op =
        op("resume_destination", "Goes on; with a rate, what waits by now no faster than that.")
            .may_have_body::<ResumeWish>(json!({ "rate": "10/s" }))
            .answers::<Shown<DestinationSpec>>(200)
            .tagged();
    let probe_op = op(
        "probe_destination",
        "Tries the delivery that is due first, even if the destination is paused.",
    )
    .answers::<Probed>(200)
    .refuses(409, &["nothing_waits"]);
    api.post(&path("pause"), pause, pause_op).post(&path("resume"), resume, resume_op).post(
        &path("probe"),
        probe,
        probe_op,
    )
}

pub(super) async fn find(app: &App, wanted: &str) -> Result<DestinationId, Problem> {
    let configuration = app.engine.store().configuration().await?;
    Ok(resources::find_in::<DestinationSpec>(&configuration, wanted)?.id)
}

/// Why it is paused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseWish {
    /// For people.
    #[schemars(length(max = REASON_CHARS_MAX))]
    reason: Option<String>,
}

/// Delivers nothing more until it is resumed.
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    Wish(wish): Wish<PauseWish>,
) -> Result<TaggedAs<Value>, Problem> {
    if wish.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        let detail = format!("a reason has at most {REASON_CHARS_MAX} characters");
        return Err(Problem::invalid(detail));
    }
    app.engine.pause(find(&app, &wanted).await?, wish.reason).await?;
    resources::show::<DestinationSpec>(&app, &wanted, StatusCode::OK).await
}

/// How it goes on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeWish {
    /// For what waits by now; as fast as ever when left out.
    rate: Option<Rate>,
}

/// Goes on with what waits, and with what comes.
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    Wish(wish): Wish<ResumeWish>,
) -> Result<TaggedAs<Value>, Problem> {
    app.engine.resume(find(&app, &wanted).await?, wish.rate).await?;
    resources::show::<DestinationSpec>(&app, &wanted, StatusCode::OK).await
}

/// What came of a probe.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Probed {
    /// The delivery that was tried.
    delivery: DeliveryId,
    succeeded: bool,
    attempt: ShownAttempt,
    /// How the destination does now.
    state: Option<LaneState>,
}

/// Tries one delivery now and tells what came of it.
pub(crate) async fn probe(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
) -> Result<Json<Probed>, Problem> {
    let id = find(&app, &wanted).await?;
    let probed = app.engine.probe(id).await?;
    let names = app.engine.store().configuration().await?.all_secret_names();
    Ok(Json(Probed {
        delivery: probed.delivery,
        succeeded: probed.attempt.class.is_none(),
        attempt: deliveries::attempt(&probed, &names),
        state: state(&app, id),
    }))
}

impl From<LaneError> for Problem {
    fn from(error: LaneError) -> Self {
        let code = match error {
            LaneError::NoLane => "destination_misconfigured",
            LaneError::NothingPending => "nothing_waits",
            LaneError::Store(error) => return Self::from(error),
        };
        Self::new(StatusCode::CONFLICT, code, error.to_string())
    }
}
