//! The destination list.

use askama::Template;

use super::{
    super::sparkline::{CHARTS_MAX, DaySeries},
    DestinationItem, DestinationsStats, mask_url_secrets,
    state::{DailyMeter, daily_meter, state_badge},
};
use crate::{
    client::{ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    format::Badge,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::DestinationTexts,
};

struct DestinationRow {
    path: String,
    destination: DestinationItem,
    badge: Badge,
    meter: Option<DailyMeter>,
    oldest: String,
    dead: u64,
    dead_shown: String,
    line: String,
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
    let destinations: ApiList<DestinationItem> = user.get(ApiPath::new(&["destinations"])).await?;
    let stats: DestinationsStats = user.get(ApiPath::new(&["stats"])).await?;
    let with_charts = destinations.data.len() <= CHARTS_MAX;
    let mut rows = Vec::with_capacity(destinations.data.len());
    for mut destination in destinations.data {
        let numbers = stats.destinations.iter().find(|numbers| numbers.name == destination.name);
        let (mut dead, mut line) = (0, String::new());
        if with_charts {
            let of = |metric| DaySeries::load(&user, metric, "destination", &destination.name);
            dead = of("dead").await.map(|series| series.total.value).unwrap_or_default();
            line = of("attempts").await.map(|series| series.sparkline()).unwrap_or_default();
        }
        destination.url = mask_url_secrets(&destination.url);
        let oldest = numbers.map(|numbers| numbers.oldest_age(lang)).unwrap_or_default();
        rows.push(DestinationRow {
            path: format!("/destinations/{}", percent_encode(&destination.name)),
            badge: state_badge(destination.state.as_ref(), t),
            meter: numbers.and_then(|numbers| daily_meter(numbers, lang, t)),
            oldest,
            dead,
            dead_shown: lang.number(dead),
            line,
            destination,
        });
    }
    render_page(&DestinationsPage {
        frame: PageFrame::of_menu(&user, NavItem::Destinations),
        t,
        rows,
    })
}
