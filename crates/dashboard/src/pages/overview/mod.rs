//! `/`: health of the gateway, and a guide for new installations.

mod charts;
mod first_event;
mod problems;
mod range;

use std::{sync::Arc, time::Duration};

use askama::Template;
use axum::{Router, extract::Query, routing::get};
use http::HeaderMap;
use surehook_api::{ApiTransport as _, calls, percent_encode, stats::Stats};

use self::{
    charts::{Chart, OverviewMetrics, RATE_WINDOW},
    first_event::FirstEventGuide,
    problems::OverviewProblems,
    range::{RangeQuery, TimeRange},
};
use crate::{
    Dashboard,
    current_user::CurrentUser,
    format::format_duration,
    lang::Lang,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{CommonTexts, FailureTexts, HealthTexts, OverviewTexts},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/", get(show_overview))
}

/// A number that links to its details.
struct OverviewTile {
    name: &'static str,
    value: String,
    more: &'static str,
    tone: &'static str,
    path: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    t: &'static OverviewTexts,
    f: &'static FailureTexts,
    h: &'static HealthTexts,
    guide: FirstEventGuide,
    range: TimeRange,
    tiles: [OverviewTile; 6],
    charts: [Chart; 3],
    problems: OverviewProblems,
}

async fn show_overview(
    user: CurrentUser,
    Query(query): Query<RangeQuery>,
    headers: HeaderMap,
) -> PageResult {
    let t = OverviewTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Overview);
    let range = TimeRange::from_query(&query, user.now());
    let stats = user.call(calls::get_stats());
    let (stats, metrics) = tokio::try_join!(stats, OverviewMetrics::load(&user, range))?;
    let problems = OverviewProblems::load(&user, &stats, range, t);
    let guide = FirstEventGuide::load(&user, &stats, &headers);
    let (problems, guide) = tokio::try_join!(problems, guide)?;
    let lang = user.lang();
    let tiles = build_tiles(&stats, &metrics, range, t, lang);
    let charts = charts::build_charts(&metrics, t, lang);
    let (f, h) = (FailureTexts::of(lang), HealthTexts::of(lang));
    render_page(&OverviewPage { frame, t, f, h, guide, range, tiles, charts, problems })
}

fn build_tiles(
    stats: &Stats,
    metrics: &OverviewMetrics,
    range: TimeRange,
    t: &'static OverviewTexts,
    lang: Lang,
) -> [OverviewTile; 6] {
    const NONE: &str = "–";
    let c = CommonTexts::of(lang);
    let events = |filter: &str| format!("/events?q={}", percent_encode(filter));
    let range_filter = match range.preset_name {
        Some(preset) => format!("since:{preset}"),
        None => format!("since:{} until:{}", range.since, range.until),
    };
    let scheduled = stats.by_status.get("scheduled").copied().unwrap_or_default();
    let attempts = metrics.attempts.total.value;
    let success = percent(charts::succeeded(&metrics.attempts.total), attempts);
    let oldest = stats.oldest_pending_age_seconds;
    let in_range = if range.preset_name.is_some() { t.in_range } else { t.in_marked };
    [
        OverviewTile {
            name: t.received,
            value: rate(lang, metrics.last_minute.total.value),
            more: t.last_minute,
            tone: "",
            path: events(&range_filter),
        },
        OverviewTile {
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
            path: events(&format!("status:succeeded {range_filter}")),
        },
        OverviewTile {
            name: t.p95,
            value: metrics
                .latency
                .total
                .percentiles
                .as_ref()
                .and_then(|times| times.p95_ms)
                .map_or(NONE.to_owned(), |p95| charts::format_millis(lang, p95)),
            more: in_range,
            tone: "",
            path: "#chart-latency".to_owned(),
        },
        OverviewTile {
            name: t.retrying,
            value: lang.number(scheduled),
            more: t.now,
            tone: if scheduled > 0 { "tone-warn" } else { "tone-ok" },
            path: events("status:scheduled"),
        },
        OverviewTile {
            name: c.dead_letters,
            value: lang.number(stats.dlq_size),
            more: t.now,
            tone: if stats.dlq_size > 0 { "tone-bad" } else { "tone-ok" },
            path: "/dead-letters".to_owned(),
        },
        OverviewTile {
            name: t.oldest,
            value: oldest
                .map_or(NONE.to_owned(), |secs| format_duration(lang, Duration::from_secs(secs))),
            more: if oldest.is_some() { t.now } else { t.none_pending },
            tone: match oldest {
                None | Some(..60) => "tone-ok",
                Some(60..600) => "tone-warn",
                Some(_) => "tone-bad",
            },
            path: events("status:pending"),
        },
    ]
}

/// Percentage, rounded down so that 99.99 % is not shown as 100 %. `None` if `total` is zero.
#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn percent(part: u64, total: u64) -> Option<f64> {
    let exact = 100.0 * part as f64 / total as f64;
    (total > 0).then(|| (exact * 10.0).floor() / 10.0)
}

/// Events per second, from a count in [`RATE_WINDOW`].
#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn rate(lang: Lang, count: u64) -> String {
    let each_second = count as f64 / RATE_WINDOW.as_secs_f64();
    lang.decimal(each_second, usize::from(each_second < 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_is_never_rounded_up_to_hundred() {
        for (part, total, expected) in
            [(0, 0, None), (1, 1, Some(100.0)), (9999, 10_000, Some(99.9)), (0, 7, Some(0.0))]
        {
            assert_eq!(percent(part, total), expected, "case: {part} of {total}");
        }
    }

    #[test]
    fn rates_are_formatted_by_magnitude() {
        for (count, expected) in [(0, "0.0"), (90, "1.5"), (60_000, "1000")] {
            assert_eq!(rate(Lang::En, count), expected);
        }
    }
}
