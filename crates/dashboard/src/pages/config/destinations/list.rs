//! The destination list.

use askama::Template;
use surehook_api::{
    ApiTransport as _, calls,
    resources::{DestinationStatus, DestinationSummary, StoredSpecResponse},
};

use super::{
    super::sparkline::{CHARTS_MAX, load_day, sparkline},
    mask_url_secrets,
    state::{DailyMeter, daily_meter, oldest_age, state_badge},
};
use crate::{
    current_user::CurrentUser,
    format::Badge,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::DestinationTexts,
};

struct DestinationRow {
    spec: DestinationSummary,
    badge: Badge,
    meter: Option<DailyMeter>,
    oldest: String,
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
    rows: Vec<DestinationRow>,
}

pub(super) async fn list_destinations(user: CurrentUser) -> PageResult {
    let (lang, t) = (user.lang(), DestinationTexts::of(user.lang()));
    let destinations = user.call(calls::list_destinations()).await?.data;
    let stats = user.call(calls::get_stats()).await?;
    let with_charts = destinations.len() <= CHARTS_MAX;
    let mut rows = Vec::with_capacity(destinations.len());
    for StoredSpecResponse { mut spec, state: DestinationStatus { state }, .. } in destinations {
        let stats = stats.destinations.iter().find(|stats| stats.name == spec.name);
        let (mut dead, mut chart) = (0, String::new());
        if with_charts {
            let load = |metric| load_day(&user, metric, "destination", spec.name.as_str());
            dead = load("dead").await.map(|series| series.total.value).unwrap_or_default();
            chart = load("attempts").await.as_ref().map(sparkline).unwrap_or_default();
        }
        spec.url = mask_url_secrets(&spec.url);
        rows.push(DestinationRow {
            badge: state_badge(state.as_ref(), t),
            meter: stats.and_then(|stats| daily_meter(stats, lang, t)),
            oldest: oldest_age(stats, lang),
            dead,
            dead_text: lang.number(dead),
            chart,
            spec,
        });
    }
    render_page(&DestinationsPage {
        frame: PageFrame::of_menu(&user, NavItem::Destinations),
        t,
        rows,
    })
}
