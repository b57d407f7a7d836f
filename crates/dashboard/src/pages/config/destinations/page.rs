//! `/destinations/{name}`: health of one destination, and actions.

use std::time::Duration;

use askama::Template;
use axum::extract::Path;
use serde_json::json;
use surehook_api::{
    ApiTransport as _, calls,
    resources::{DestinationResponse, DestinationState, DestinationStatus, DestinationSummary},
};
use surehook_core::destination::kind::DestinationFamily;

use super::{
    super::{DeleteDialog, sparkline::load_day},
    NO_VALUE, mask_url_secrets,
    state::{ActiveLimit, DailyMeter, active_limits, daily_meter, lane_badge, oldest_age},
};
use crate::{
    client::ApiError,
    current_user::CurrentUser,
    format::{Badge, format_duration},
    health::HealthSummary,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{DestinationTexts, FormTexts, HealthTexts},
};

#[derive(Template)]
#[template(path = "destination.html")]
struct DestinationPage {
    frame: PageFrame,
    t: &'static DestinationTexts,
    e: &'static FormTexts,
    destination: DestinationSummary,
    state: Option<DestinationState>,
    h: &'static HealthTexts,
    health: HealthSummary,
    /// What slows deliveries down.
    lane_badge: Option<Badge>,
    meter: Option<DailyMeter>,
    limits: Vec<ActiveLimit>,
    /// Neither paused nor misconfigured.
    is_running: bool,
    delete_dialog: DeleteDialog,
    path: String,
    /// Label, value and a second line, which may be empty.
    tiles: Vec<(&'static str, String, String)>,
    takes_messages: bool,
    spec: String,
    forms: PageForms,
}

/// Form values of the page, and errors from submitting them.
pub(super) struct PageForms {
    pub(super) reason: String,
    pub(super) rate: String,
    pub(super) body: String,
    pub(super) to: String,
    pub(super) text: String,
    pub(super) idempotency_key: String,
    pub(super) test_error: Option<ApiError>,
    /// Error from pausing or resuming.
    pub(super) lane_error: Option<ApiError>,
}

impl PageForms {
    pub(super) fn new(user: &CurrentUser) -> Self {
        Self {
            reason: String::new(),
            rate: String::new(),
            body: TEST_BODY.to_owned(),
            to: String::new(),
            text: String::new(),
            idempotency_key: user.new_idempotency_key(),
            test_error: None,
            lane_error: None,
        }
    }
}

/// Default body of a test event.
const TEST_BODY: &str = "{\n  \"type\": \"test\",\n  \"message\": \"Hello from Surehook\"\n}";

pub(super) async fn show_destination(user: CurrentUser, Path(name): Path<String>) -> PageResult {
    let forms = PageForms::new(&user);
    destination_page(&user, &name, forms).await
}

pub(super) async fn destination_page(
    user: &CurrentUser,
    name: &str,
    forms: PageForms,
) -> PageResult {
    let (lang, t) = (user.lang(), DestinationTexts::of(user.lang()));
    let (mut resource, tag) =
        user.call_versioned(calls::get_resource("destinations", name)).await?;
    let DestinationResponse {
        spec: mut destination,
        state: DestinationStatus { state, health },
        ..
    } = serde_json::from_value(resource.clone())?;
    let stats = user.call(calls::get_stats()).await?;
    let numbers = stats.destinations.iter().find(|numbers| numbers.name == destination.name);
    destination.url = mask_url_secrets(&destination.url);
    if resource["url"].is_string() {
        resource["url"] = json!(destination.url);
    }
    let spec = crate::form_fields::editable_spec(resource);
    let e = FormTexts::of(lang);
    let name = destination.name.as_str();
    render_page(&DestinationPage {
        frame: PageFrame::new(user, NavItem::Destinations, name),
        t,
        e,
        h: HealthTexts::of(lang),
        health: HealthSummary::new(&health, lang),
        lane_badge: state.as_ref().and_then(|state| lane_badge(state, t)),
        meter: numbers.and_then(|numbers| daily_meter(numbers, lang, t)),
        limits: active_limits(state.as_ref(), destination.rate, t),
        is_running: state.as_ref().is_some_and(|state| state.pause.is_none()),
        delete_dialog: DeleteDialog::new(e, "destinations", name, tag, t.delete_text.to_owned()),
        path: format!("/destinations/{name}"),
        tiles: load_tiles(user, name, oldest_age(numbers, lang)).await?,
        takes_messages: destination.kind.family() == DestinationFamily::Channel,
        spec: serde_json::to_string_pretty(&spec).unwrap_or_default(),
        forms,
        state,
        destination,
    })
}

/// Metrics of the last 24 hours.
async fn load_tiles(
    user: &CurrentUser,
    name: &str,
    oldest_age: String,
) -> Result<Vec<(&'static str, String, String)>, ApiError> {
    let (lang, t) = (user.lang(), DestinationTexts::of(user.lang()));
    let load = |metric| load_day(user, metric, "destination", name);
    let (attempts, failures) =
        (load("attempts").await?.total.value, load("failed").await?.total.value);
    let times = load("attempt_time").await?.total.percentiles.unwrap_or_default();
    let dead = load("dead").await?.total.value;
    let ms = |ms: Option<f64>| {
        let duration = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        duration.map_or_else(|| NO_VALUE.to_owned(), |duration| format_duration(lang, duration))
    };
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let success = match attempts {
        0 => NO_VALUE.to_owned(),
        _ => {
            let share = (attempts.saturating_sub(failures)) as f64 / attempts as f64;
            format!("{} %", lang.decimal(share * 100.0, 1))
        }
    };
    let none = String::new;
    let times_shown = match times.p95_ms {
        Some(_) => format!("p50 {} · p99 {}", ms(times.p50_ms), ms(times.p99_ms)),
        None => none(),
    };
    Ok(vec![
        (t.success, success, none()),
        (t.attempts_day, lang.number(attempts), none()),
        (t.response_time, ms(times.p95_ms), times_shown),
        (t.dead_day, lang.number(dead), none()),
        (t.oldest, oldest_age, none()),
    ])
}
