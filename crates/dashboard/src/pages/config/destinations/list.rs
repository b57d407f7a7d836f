//! The list of all destinations.

use askama::Template;

use super::{
    super::chart::{CHARTS_MAX, Series},
    Found, Stats,
    state::{Watermark, badge, watermark},
    without_secrets,
};
use crate::{
    client::{Address, List, encode},
    page::{Frame, Nav, Shown, show},
    show::Badge,
    visitor::Visitor,
    words::Destinations,
};

/// A destination as a line of the list.
struct Row {
    path: String,
    found: Found,
    badge: Badge,
    mark: Option<Watermark>,
    oldest: String,
    dead: u64,
    dead_shown: String,
    line: String,
}

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    frame: Frame,
    t: &'static Destinations,
    rows: Vec<Row>,
}

pub(super) async fn list(visitor: Visitor) -> Shown {
    let (lang, t) = (visitor.lang(), Destinations::of(visitor.lang()));
    let failed = |trouble| visitor.failed(trouble);
    let found: List<Found> = visitor.get(Address::new(&["destinations"])).await.map_err(failed)?;
    let stats: Stats = visitor.get(Address::new(&["stats"])).await.map_err(failed)?;
    let with_charts = found.data.len() <= CHARTS_MAX;
    let mut rows = Vec::with_capacity(found.data.len());
    for mut found in found.data {
        let numbers = stats.destinations.iter().find(|numbers| numbers.name == found.name);
        let (mut dead, mut line) = (0, String::new());
        if with_charts {
            let of = |metric| Series::of_day(&visitor, metric, "destination", &found.name);
            dead = of("dead").await.map(|series| series.total.value).unwrap_or_default();
            line = of("attempts").await.map(|series| series.line()).unwrap_or_default();
        }
        found.url = without_secrets(&found.url);
        let oldest = numbers.map(|numbers| numbers.age(lang)).unwrap_or_default();
        rows.push(Row {
            path: format!("/destinations/{}", encode(&found.name)),
            badge: badge(found.state.as_ref(), t),
            mark: numbers.and_then(|numbers| watermark(numbers, lang, t)),
            oldest,
            dead,
            dead_shown: lang.number(dead),
            line,
            found,
        });
    }
    show(&DestinationsPage { frame: Frame::new(&visitor, Nav::Destinations, t.title), t, rows })
}
