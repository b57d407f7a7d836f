//! The event list, its filter and its export.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    extract::Query,
    response::{IntoResponse as _, Redirect},
};
use http::{HeaderValue, header};
use serde::Deserialize;

use super::api::{self, EventAttributes};
use crate::{
    client::{ApiPath, percent_encode},
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery},
    format::{Badge, mask_phones},
    lang::fill,
    list_page::{FilteredList, ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{CommonTexts, EventListTexts},
};

const FILTERS: [&str; 16] = [
    "status", "source", "dest", "code", "class", "reason", "kind", "phone", "key", "email", "chat",
    "message", "since", "until", "body.", "",
];

const LIST: ListDefinition = ListDefinition {
    path: "/events",
    name: "events",
    known: &FILTERS,
    example: "status:dead source:shop since:1h",
};

/// Default page size of the API.
const PAGE_ROWS: usize = 50;

/// Statuses that need attention come first.
const STATUSES_BY_URGENCY: [&str; 8] =
    ["dead", "held", "scheduled", "in_flight", "pending", "succeeded", "cancelled", "replayed"];

#[derive(Deserialize)]
struct EventRow {
    id: String,
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    received_at: String,
    duplicate_count: u64,
    #[serde(default)]
    attributes: EventAttributes,
    /// Number of deliveries by status.
    deliveries: Option<BTreeMap<String, u64>>,
}

impl EventRow {
    fn about(&self) -> String {
        api::masked_subject(&self.attributes)
    }

    fn shown_key(&self) -> Option<String> {
        self.key.as_deref().map(|key| mask_phones(&api::mask_people(key, &self.attributes)))
    }

    fn badges(&self, c: &CommonTexts) -> Vec<Badge> {
        let counts = self.deliveries.iter().flatten();
        status_badges(&counts.map(|(status, count)| (status.as_str(), *count)).collect(), c)
    }

    fn select_label(&self, t: &EventListTexts) -> String {
        fill(t.select, &[&self.id])
    }

    fn has_no_deliveries(&self) -> bool {
        self.deliveries.as_ref().is_some_and(BTreeMap::is_empty)
    }
}

/// One badge per status, most urgent first.
pub(super) fn status_badges(counts: &BTreeMap<&str, u64>, c: &CommonTexts) -> Vec<Badge> {
    let known =
        STATUSES_BY_URGENCY.iter().filter_map(|status| Some((*status, *counts.get(status)?)));
    let new = counts.iter().filter(|(status, _)| !STATUSES_BY_URGENCY.contains(*status));
    let all = known.chain(new.map(|(status, count)| (*status, *count)));
    all.map(|(status, count)| {
        let mut badge = Badge::status(status, c);
        if count > 1 {
            badge.text = format!("{} ×{count}", badge.text);
        }
        badge
    })
    .collect()
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: PageFrame,
    t: &'static EventListTexts,
    bar: FilterBar,
    events: Vec<EventRow>,
    pager: Pager,
    /// How far was searched, if the page is not full.
    searched: Option<(String, String)>,
    /// Only for operators: exports contain unmasked phone numbers.
    export: Vec<(&'static str, String)>,
    idempotency_key: String,
}

pub(super) async fn list_events(
    user: CurrentUser,
    Query(query): Query<ListPageQuery>,
) -> PageResult {
    let t = EventListTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Events);
    let FilteredList { bar, found, pager, .. } = LIST.load::<EventRow>(&user, &query).await?;
    // A full page does not mean that the search stopped early.
    let is_short = found.next_cursor.is_some() && found.data.len() < PAGE_ROWS;
    let searched = found.searched.filter(|_| is_short);
    let searched = searched.and_then(|extent| {
        Some((fill(t.searched, &[&user.lang().number(extent.events)]), extent.until?))
    });
    let file =
        |format: &str| format!("/events/export?format={format}&q={}", percent_encode(&bar.typed));
    let export = match user.can_operate() {
        true => vec![("NDJSON", file("ndjson")), ("CSV", file("csv"))],
        false => Vec::new(),
    };
    let (events, idempotency_key) = (found.data, user.new_idempotency_key());
    render_page(&EventsPage { frame, t, bar, events, pager, searched, export, idempotency_key })
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
    let address = ApiPath::new(&["events"]).with("format", format);
    let filter = FilterQuery::parse(&query.q);
    let Ok(address) = filter.apply_to(address, &FILTERS, user.now()) else {
        // The list shows which filter is unknown.
        return Ok(Redirect::to(&format!("/events?q={}", percent_encode(&query.q))).into_response());
    };
    let mut file = user.fetch(address).await?;
    let name = format!("attachment; filename=\"events.{format}\"");
    let name = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment"));
    file.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    Ok(file)
}
