//! `/`: how the gateway does, and where a newcomer begins.

mod charts;
mod range;
mod start;
mod trouble;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use askama::Template;
use axum::{Router, extract::Query, routing::get};
use http::HeaderMap;
use serde::Deserialize;

use self::{
    charts::{Chart, NOW, Numbers},
    range::{Asked, Range},
    start::Start,
    trouble::Troubles,
};
use crate::{
    Dashboard,
    client::Address,
    lang::Lang,
    page::{Frame, Nav, Shown, show},
    show::span,
    visitor::Visitor,
    words::{Failures, Overview},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/", get(overview))
}

#[derive(Debug, Deserialize)]
struct Stats {
    total: u64,
    by_status: BTreeMap<String, u64>,
    dlq_size: u64,
    oldest_pending_age_seconds: Option<u64>,
    destinations: Vec<trouble::Destination>,
}

/// A number with where it leads.
struct Tile {
    name: &'static str,
    value: String,
    more: &'static str,
    tone: &'static str,
    path: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    t: &'static Overview,
    f: &'static Failures,
    start: Start,
    range: Range,
    tiles: [Tile; 6],
    charts: [Chart; 3],
    troubles: Troubles,
}

async fn overview(visitor: Visitor, Query(asked): Query<Asked>, headers: HeaderMap) -> Shown {
    let t = Overview::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Overview, t.title);
    let range = Range::of(&asked, visitor.now());
    let stats = visitor.get::<Stats>(Address::new(&["stats"]));
    let gathered = tokio::try_join!(stats, Numbers::of(&visitor, range));
    let (stats, numbers) = gathered.map_err(|trouble| visitor.failed(trouble))?;
    let troubles = Troubles::of(&visitor, &stats, range, t);
    let start = Start::of(&visitor, &stats, &headers);
    let gathered = tokio::try_join!(troubles, start);
    let (troubles, start) = gathered.map_err(|trouble| visitor.failed(trouble))?;
    let lang = visitor.lang();
    let tiles = tiles(&stats, &numbers, range, t, lang);
    let charts = charts::charts(&numbers, t, lang);
    let f = Failures::of(lang);
    show(&OverviewPage { frame, t, f, start, range, tiles, charts, troubles })
}

/// The six numbers that say how it goes.
fn tiles(
    stats: &Stats,
    numbers: &Numbers,
    range: Range,
    t: &'static Overview,
    lang: Lang,
) -> [Tile; 6] {
    const NONE: &str = "–";
    let events = |filter: &str| format!("/events?q={}", crate::client::encode(filter));
    let within = match range.chosen {
        Some(word) => format!("since:{word}"),
        None => format!("since:{} until:{}", range.since, range.until),
    };
    let scheduled = stats.by_status.get("scheduled").copied().unwrap_or_default();
    let attempts = numbers.attempts.total.value;
    let success = percent(numbers.attempts.total.succeeded(), attempts);
    let oldest = stats.oldest_pending_age_seconds;
    let in_range = if range.chosen.is_some() { t.in_range } else { t.in_marked };
    [
        Tile {
            name: t.received,
            value: rate(lang, numbers.lately.total.value),
            more: t.last_minute,
            tone: "",
            path: events(&within),
        },
        Tile {
            name: t.success,
            value: success
                .map_or(NONE.to_owned(), |success| format!("{} %", lang.decimal(success, 1))),
            more: in_range,
            tone: match success {
                None => "",
                Some(99.0..) => "tone-ok",
                Some(95.0..) => "tone-warn",
                Some(_) => "tone-bad",
            },
            path: events(&format!("status:succeeded {within}")),
        },
        Tile {
            name: t.p95,
            value: numbers
                .latency
                .total
                .p95_ms
                .map_or(NONE.to_owned(), |p95| charts::span(lang, p95)),
            more: in_range,
            tone: "",
            path: "#chart-latency".to_owned(),
        },
        Tile {
            name: t.retrying,
            value: lang.number(scheduled),
            more: t.now,
            tone: if scheduled > 0 { "tone-warn" } else { "tone-ok" },
            path: events("status:scheduled"),
        },
        Tile {
            name: t.dead,
            value: lang.number(stats.dlq_size),
            more: t.now,
            tone: if stats.dlq_size > 0 { "tone-bad" } else { "tone-ok" },
            path: "/dead-letters".to_owned(),
        },
        Tile {
            name: t.oldest,
            value: oldest.map_or(NONE.to_owned(), |secs| span(lang, Duration::from_secs(secs))),
            more: if oldest.is_some() { t.now } else { t.nothing_waits },
            tone: match oldest {
                None | Some(..60) => "tone-ok",
                Some(60..600) => "tone-warn",
                Some(_) => "tone-bad",
            },
            path: events("status:pending"),
        },
    ]
}

/// How much of it that is, in percent; nothing of nothing. Never rounded up to all of it.
#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn percent(part: u64, whole: u64) -> Option<f64> {
    let exact = 100.0 * part as f64 / whole as f64;
    (whole > 0).then(|| (exact * 10.0).floor() / 10.0)
}

/// How many a second, of a count in [`NOW`].
#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn rate(lang: Lang, count: u64) -> String {
    let each_second = count as f64 / NOW.as_secs_f64();
    lang.decimal(each_second, usize::from(each_second < 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_all_is_not_all() {
        for (part, whole, expected) in
            [(0, 0, None), (1, 1, Some(100.0)), (9999, 10_000, Some(99.9)), (0, 7, Some(0.0))]
        {
            assert_eq!(percent(part, whole), expected, "case: {part} of {whole}");
        }
    }

    #[test]
    fn rates_are_short() {
        for (count, expected) in [(0, "0.0"), (90, "1.5"), (60_000, "1000")] {
            assert_eq!(rate(Lang::En, count), expected);
        }
    }
}
