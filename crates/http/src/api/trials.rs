//! `/api/v1/routes/try`: what a filter and a transform would do.

use std::{borrow::Cow, sync::Arc};

use axum::{Extension, Json, extract::State};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use surehook_core::{
    attribute::EventKind, ids::EventId, inflate, jq::OUTPUT_BYTES_MAX, redact, store::StoreError,
};
use surehook_engine::trial::{RouteTrialResult, try_route};
use tokio::sync::Semaphore;

use super::{events, hidden, input::Input};
use crate::{
    App,
    auth::Insight,
    openapi::{Api, Op},
    problem::Problem,
};

/// Trials at the same time: each may keep a core busy for a moment.
const TRIALS_MAX: usize = 2;
static PLACES: Semaphore = Semaphore::const_new(TRIALS_MAX);

/// What is to be tried, and on what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTrial {
    /// A filter in jq.
    filter: Option<String>,
    /// A transform in jq.
    transform: Option<String>,
    /// The event whose body is used.
    event: Option<EventId>,
    /// The body itself, instead: a text stands for what it says, anything else for itself.
    #[schemars(with = "Option<Value>")]
    body: Option<Box<RawValue>>,
    /// Use the event's body with its secrets. Needs the role operator.
    #[serde(default)]
    exact: bool,
}

/// What a route would do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tried {
    /// Whether the filter takes the event; null without a filter, and when it failed.
    matches: Option<bool>,
    /// Why the filter cannot be used, and where; or why it failed.
    filter_error: Option<String>,
    /// What would be sent; null without a transform, when it failed, and when it drops the event.
    output: Option<String>,
    /// The transform has no output: nothing would be sent.
    dropped: bool,
    /// Why the transform cannot be used, and where; or why it failed.
    transform_error: Option<String>,
    /// What they were tried on; null if it is no text or too long to be shown.
    input: Option<String>,
    /// How many values of it are masked, for them as for whoever reads this.
    masked: usize,
}

pub(crate) fn routes(api: Api) -> Api {
    let example = json!({ "filter": ".type == \"paid\"", "body": { "type": "paid" } });
    let attempt = Op::new("try_route", "What a filter and a transform would do; changes nothing.")
        .text(
            "Uses what routes use, with the same limits. Secret values of an event are masked before \
             the filter sees them, unless `exact` is true.",
        )
        .body::<RouteTrial>(example)
        .answers::<Tried>(200)
        .refuses(404, &["not_found"])
        .refuses(409, &["body_opaque"])
        .refuses(410, &["body_removed"]);
    api.post("/api/v1/routes/try", try_it, attempt)
}

/// What is tried on.
struct Sample {
    /// Unpacked.
    body: Vec<u8>,
    kind: Option<EventKind>,
    masked: usize,
}

async fn try_it(
    State(app): State<Arc<App>>,
    Extension(insight): Extension<Insight>,
    Input(wish): Input<RouteTrial>,
) -> Result<Json<Tried>, Problem> {
    // Before anything is read: a body waits nowhere else than in a place.
    let place = PLACES.acquire().await.map_err(|_| StoreError::Overloaded)?;
    let sample = match (wish.event, &wish.body) {
        (Some(event), None) => of_event(&app, event, wish.exact, insight).await?,
        (None, Some(body)) => given(body),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::invalid("give either `event` or `body` to try it on"));
        }
    };
    let work = move || {
        let _place = place;
        let (filter, transform) = (wish.filter.as_deref(), wish.transform.as_deref());
        let kind = sample.kind.as_ref().map(EventKind::as_str);
        let trial = try_route(filter, transform, &HeaderMap::new(), &sample.body, kind);
        (trial, sample)
    };
    let (trial, sample) =
        tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Overloaded)?;
    let RouteTrialResult { matches, filter_error, output, dropped, transform_error } = trial;
    let masked = sample.masked;
    let input = String::from_utf8(sample.body).ok().filter(|text| text.len() <= OUTPUT_BYTES_MAX);
    Ok(Json(Tried { matches, filter_error, output, dropped, transform_error, input, masked }))
}

/// A body that came with the question. A text may be one that is no JSON.
fn given(body: &RawValue) -> Sample {
    let text = serde_json::from_str::<String>(body.get());
    let body = text.unwrap_or_else(|_| body.get().to_owned()).into_bytes();
    Sample { body, kind: None, masked: 0 }
}

async fn of_event(
    app: &App,
    event: EventId,
    exact: bool,
    insight: Insight,
) -> Result<Sample, Problem> {
    if exact {
        hidden::exactly(insight)?;
    }
    let store = app.engine.store();
    let none = || Problem::not_found("event");
    let row = store.event_row(event).await?.ok_or_else(none)?;
    let Some(payload) = store.body(event).await? else {
        return Err(events::without_body(app, event).await?.unwrap_or_else(none));
    };
    let headers = payload.head.headers.to_map();
    let kind = row.kind;
    let (body, masked) = if exact {
        (Cow::Borrowed(&*payload.body), 0)
    } else {
        // Before it is tried: a transform could give a secret another name, and an error quotes it.
        let names = store.configuration().await?.secret_names(row.source);
        let shown = redact::mask_body(&headers, &payload.body, &names).map_err(hidden::opaque)?;
        (shown.body, shown.fields)
    };
    // What had to be masked is unpacked already.
    let plain = inflate::decode_body(&headers, &body).map(Cow::into_owned);
    Ok(Sample { body: plain.unwrap_or_else(|| body.into_owned()), kind, masked })
}
