//! The event list, its filter and its export.

use askama::Template;
use axum::{
    extract::Query,
    response::{IntoResponse as _, Redirect},
};
use http::{HeaderValue, header};
use serde::Deserialize;
use surehook_api::{
    calls,
    events::{EventList, EventResponse, ListedEvent},
    percent_encode,
};
use surehook_core::delivery::state::DeliveryStatus;
use surehook_types::time::Timestamp;

use super::{attributes, pasted::find_pasted};
use crate::{
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery},
    format::{Badge, mask_phones},
    lang::fill,
    list_page::{ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{CommonTexts, EventListTexts},
};

const FILTERS: [&str; 21] = [
    "status",
    "source",
    "dest",
    "code",
    "class",
    "reason",
    "kind",
    "phone",
    "key",
    "email",
    "chat",
    "message",
    "object",
    "conversation",
    "user",
    "account",
    "key_conflict",
    "since",
    "until",
    "body.",
    "",
];

const LIST: ListDefinition = ListDefinition {
    path: "/events",
    filters: &FILTERS,
    example: "status:dead source:shop since:1h",
};

/// Default page size of the API.
const PAGE_ROWS: usize = 50;

/// Statuses that need attention come first.
const STATUSES_BY_URGENCY: [DeliveryStatus; 8] = [
    DeliveryStatus::Dead,
    DeliveryStatus::Held,
    DeliveryStatus::Scheduled,
    DeliveryStatus::InFlight,
    DeliveryStatus::Pending,
    DeliveryStatus::Succeeded,
    DeliveryStatus::Cancelled,
    DeliveryStatus::Replayed,
];

/// One badge per status with deliveries, most urgent first.
pub(super) fn status_badges(count: impl Fn(DeliveryStatus) -> u64, c: &CommonTexts) -> Vec<Badge> {
    let badge = |status| match count(status) {
        0 => None,
        1 => Some(Badge::status(status, c)),
        count => {
            let badge = Badge::status(status, c);
            Some(Badge { text: format!("{} ×{count}", badge.text), ..badge })
        }
    };
    STATUSES_BY_URGENCY.into_iter().filter_map(badge).collect()
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: PageFrame,
    t: &'static EventListTexts,
    bar: FilterBar,
    events: Vec<ListedEvent>,
    pager: Pager,
    /// The number of events searched and the time of the oldest, if the search stopped early.
    searched: Option<(String, Timestamp)>,
    /// Only for operators: exports contain unmasked phone numbers.
    export: Vec<(&'static str, String)>,
}

impl EventsPage {
    fn masked_key(event: &EventResponse) -> Option<String> {
        let key = event.key.as_deref()?;
        Some(mask_phones(&attributes::mask_personal_data(key, &event.attributes)))
    }

    fn badges(&self, event: &ListedEvent) -> Vec<Badge> {
        let count = |status: DeliveryStatus| event.deliveries.get(status.as_str());
        status_badges(|status| count(status).copied().unwrap_or_default(), self.frame.c)
    }
}

pub(super) async fn list_events(
    user: CurrentUser,
    Query(query): Query<ListPageQuery>,
) -> PageResult {
    if query.cursor.is_none()
        && let Some(page) = find_pasted(&user, &query.q, &FILTERS).await
    {
        return Ok(Redirect::to(&page).into_response());
    }
    let t = EventListTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Events);
    let (bar, EventList { page, searched }) =
        LIST.load(&user, &query, calls::list_events()).await?;
    let pager = Pager::filtered(&bar, &query, page.next_cursor.as_deref());
    // A full page does not mean that the search stopped early.
    let stopped_early = page.next_cursor.is_some() && page.data.len() < PAGE_ROWS;
    let searched = searched
        .until
        .filter(|_| stopped_early)
        .map(|until| (fill(t.searched, &[&user.lang().number(searched.events as u64)]), until));
    let export_url =
        |format: &str| format!("/events/export?format={format}&q={}", percent_encode(&bar.typed));
    let export = match user.can_operate() {
        true => vec![("NDJSON", export_url("ndjson")), ("CSV", export_url("csv"))],
        false => Vec::new(),
    };
    let events = page.data;
    render_page(&EventsPage { frame, t, bar, events, pager, searched, export })
}

#[derive(Deserialize)]
pub(super) struct ExportQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    format: String,
}

pub(super) async fn export_events(
    user: CurrentUser,
    Query(query): Query<ExportQuery>,
) -> PageResult {
    if !user.can_operate() {
        return Ok(Redirect::to(&format!("/events?q={}", percent_encode(&query.q))).into_response());
    }
    let format = if query.format == "csv" { "csv" } else { "ndjson" };
    let call = calls::list_events().query("format", format);
    let filter = FilterQuery::parse(&query.q);
    let Ok(call) = filter.apply_to(call, &FILTERS, user.now()) else {
        // The list shows which filter is unknown.
        return Ok(Redirect::to(&format!("/events?q={}", percent_encode(&query.q))).into_response());
    };
    let mut file = user.fetch(call).await?;
    let name = format!("attachment; filename=\"events.{format}\"");
    let name = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment"));
    file.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    Ok(file)
}
