//! The destination list.

use askama::Template;
use surehook_api::{
    ApiTransport as _, calls,
    resources::{DestinationStatus, DestinationSummary, StoredSpecResponse},
};

use super::{
    super::sparkline::{CHARTS_MAX, load_day, sparkline},
    mask_url_secrets,
    state::{DailyMeter, daily_meter, lane_badge},
};
use crate::{
    current_user::CurrentUser,
    format::Badge,
    health::HealthSummary,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{DestinationTexts, HealthTexts},
};

struct DestinationRow {
    spec: DestinationSummary,
    health: HealthSummary,
    /// What slows deliveries down.
    lane_badge: Option<Badge>,
    meter: Option<DailyMeter>,
    /// Deliveries that died during the last day.
    dead: u64,
    dead_text: String,
    /// Sparkline of the attempts of the last day, as SVG.
    chart: String,
}

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    frame: PageFrame,
    t: &'static DestinationTexts,
    h: &'static HealthTexts,
    rows: Vec<DestinationRow>,
}

pub(super) async fn list_destinations(user: CurrentUser) -> PageResult {
    let (lang, t) = (user.lang(), DestinationTexts::of(user.lang()));
    let destinations = user.call(calls::list_destinations()).await?.data;
    let stats = user.call(calls::get_stats()).await?;
    let with_charts = destinations.len() <= CHARTS_MAX;
    let mut rows = Vec::with_capacity(destinations.len());
    for StoredSpecResponse { mut spec, state: DestinationStatus { state, health }, .. } in
        destinations
    {
        let stats = stats.destinations.iter().find(|stats| stats.name == spec.name);
        let (mut dead, mut chart) = (0, String::new());
        if with_charts {
            let load = |metric| load_day(&user, metric, "destination", spec.name.as_str());
            dead = load("dead").await.map(|series| series.total.value).unwrap_or_default();
            chart = load("attempts").await.as_ref().map(sparkline).unwrap_or_default();
        }
        spec.url = mask_url_secrets(&spec.url);
        rows.push(DestinationRow {
            health: HealthSummary::new(&health, lang),
            lane_badge: state.as_ref().and_then(|state| lane_badge(state, t)),
            meter: stats.and_then(|stats| daily_meter(stats, lang, t)),
            dead,
            dead_text: lang.number(dead),
            chart,
            spec,
        });
    }
    render_page(&DestinationsPage {
        frame: PageFrame::of_menu(&user, NavItem::Destinations),
        t,
        h: HealthTexts::of(lang),
        rows,
    })
}
