//! `/destinations/{name}`: health of one destination, and actions.

use std::time::Duration;

use askama::Template;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::destination::kind::DestinationFamily;

use super::{
    super::{DeleteDialog, sparkline::DaySeries},
    DestinationItem, DestinationsStats, NO_VALUE,
    fields::kind_of,
    mask_url_secrets,
    state::{ActiveLimit, DailyMeter, DestinationNumbers, active_limits, daily_meter, state_badge},
};
use crate::{
    client::{ApiError, ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    format::{Badge, format_duration},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{DestinationTexts, FormTexts},
};

#[derive(Deserialize)]
struct FailedAttempt {
    started_at: String,
    status: Option<u16>,
    failure: Option<String>,
    class: Option<String>,
    detail: Option<String>,
}

impl FailedAttempt {
    fn summary(&self) -> String {
        let code = self.status.map(|status| status.to_string());
        let what = code.or_else(|| self.failure.clone()).unwrap_or_default();
        format!("{what} {}", self.class.as_deref().unwrap_or_default()).trim().to_owned()
    }
}

#[derive(Template)]
#[template(path = "destination.html")]
struct DestinationPage {
    frame: PageFrame,
    t: &'static DestinationTexts,
    e: &'static FormTexts,
    destination: DestinationItem,
    badge: Badge,
    meter: Option<DailyMeter>,
    limits: Vec<ActiveLimit>,
    /// Neither paused nor misconfigured.
    is_running: bool,
    delete_dialog: DeleteDialog,
    path: String,
    tiles: Vec<(&'static str, String, String)>,
    last: Option<FailedAttempt>,
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
    let address = ApiPath::new(&["destinations", name]);
    let (mut resource, tag) = user.get_with_etag::<Value>(address).await?;
    let mut destination: DestinationItem =
        serde_json::from_value(resource.clone()).map_err(ApiError::unexpected)?;
    let stats: DestinationsStats = user.get(ApiPath::new(&["stats"])).await?;
    let numbers = stats.destinations.into_iter().find(|numbers| numbers.name == destination.name);
    let numbers = numbers.unwrap_or_default();
    destination.url = mask_url_secrets(&destination.url);
    if resource["url"].is_string() {
        resource["url"] = json!(destination.url);
    }
    let spec = crate::form_fields::editable_spec(resource);
    let e = FormTexts::of(lang);
    let text = t.delete_text.to_owned();
    render_page(&DestinationPage {
        frame: PageFrame::new(user, NavItem::Destinations, &destination.name),
        t,
        e,
        badge: state_badge(destination.state.as_ref(), t),
        meter: daily_meter(&numbers, lang, t),
        limits: active_limits(destination.state.as_ref(), destination.rate.as_deref(), t),
        is_running: destination.state.as_ref().is_some_and(|state| state.pause.is_none()),
        delete_dialog: DeleteDialog::new(e, "destinations", &destination.name, tag, text),
        path: format!("/destinations/{}", percent_encode(&destination.name)),
        tiles: load_tiles(user, &destination.name, &numbers).await?,
        last: load_last_failure(user, &destination.name).await?,
        takes_messages: kind_of(&spec).family() == DestinationFamily::Channel,
        spec: serde_json::to_string_pretty(&spec).unwrap_or_default(),
        forms,
        destination,
    })
}

/// Metrics of the last 24 hours.
async fn load_tiles(
    user: &CurrentUser,
    name: &str,
    numbers: &DestinationNumbers,
) -> Result<Vec<(&'static str, String, String)>, ApiError> {
    let (lang, t) = (user.lang(), DestinationTexts::of(user.lang()));
    let of = |metric| DaySeries::load(user, metric, "destination", name);
    let (attempts, failures) = (of("attempts").await?.total.value, of("failed").await?.total.value);
    let times = of("attempt_time").await?.total;
    let dead = of("dead").await?.total.value;
    let ms = |ms: Option<f64>| {
        let whole = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        whole.map_or_else(|| NO_VALUE.to_owned(), |whole| format_duration(lang, whole))
    };
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is resource")]
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
        (t.oldest, numbers.oldest_age(lang), none()),
    ])
}

/// The latest failed attempt of a delivery that is being retried, otherwise of a dead one.
async fn load_last_failure(
    user: &CurrentUser,
    name: &str,
) -> Result<Option<FailedAttempt>, ApiError> {
    #[derive(Deserialize)]
    struct DeliveryRef {
        id: String,
    }
    #[derive(Deserialize)]
    struct DeliveryAttempts {
        attempt_list: Vec<FailedAttempt>,
    }
    for status in ["scheduled", "dead"] {
        let address = ApiPath::new(&["deliveries"])
            .with("destination", name)
            .with("status", status)
            .with("limit", "1");
        let deliveries: ApiList<DeliveryRef> = user.get(address).await?;
        let Some(delivery) = deliveries.data.into_iter().next() else { continue };
        let delivery: DeliveryAttempts =
            user.get(ApiPath::new(&["deliveries", &delivery.id])).await?;
        let failed = |attempt: &FailedAttempt| attempt.class.is_some();
        if let Some(attempt) = delivery.attempt_list.into_iter().rev().find(failed) {
            return Ok(Some(attempt));
        }
    }
    Ok(None)
}
