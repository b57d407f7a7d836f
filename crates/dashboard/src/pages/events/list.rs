//! The list, its filter and its export.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    extract::Query,
    response::{IntoResponse as _, Redirect},
};
use http::{HeaderValue, header};
use serde::Deserialize;

use super::api::{self, Attributes};
use crate::{
    client::{Address, encode},
    filter::{Bar, Filter},
    lang::fill,
    listing::{Asked, Filtered, Listing, Pager},
    page::{Frame, Nav, Shown, show},
    show::{Badge, without_phones},
    visitor::Visitor,
    words::{Common, Events},
};

/// Names of the filter bar, and what the API calls them.
const KNOWN: [(&str, &str); 16] = [
    ("status", "status"),
    ("source", "source"),
    ("dest", "destination"),
    ("code", "code"),
    ("class", "class"),
    ("reason", "reason"),
    ("kind", "kind"),
    ("phone", "phone"),
    ("key", "key"),
    ("email", "email"),
    ("chat", "chat"),
    ("message", "message_id"),
    ("since", "since"),
    ("until", "until"),
    ("body.", ""),
    ("", "search"),
];

const LIST: Listing = Listing {
    path: "/events",
    name: "events",
    known: &KNOWN,
    example: "status:dead source:shop since:1h",
};

/// Rows of a page, where the API is not told otherwise.
const PAGE_ROWS: usize = 50;

/// The order of states in a row: first what somebody has to look at.
const BY_URGENCY: [&str; 8] =
    ["dead", "held", "scheduled", "in_flight", "pending", "succeeded", "cancelled", "replayed"];

#[derive(Deserialize)]
struct Row {
    id: String,
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    received_at: String,
    duplicate_count: u64,
    #[serde(default)]
    attributes: Attributes,
    /// How many deliveries have each status.
    deliveries: Option<BTreeMap<String, u64>>,
}

impl Row {
    fn about(&self) -> String {
        api::about(&self.attributes)
    }

    /// The key, with people masked.
    fn shown_key(&self) -> Option<String> {
        self.key.as_deref().map(|key| without_phones(&api::without_people(key, &self.attributes)))
    }

    /// One pill for each status.
    fn pills(&self, c: &Common) -> Vec<Badge> {
        let counts = self.deliveries.iter().flatten();
        pills(&counts.map(|(status, count)| (status.as_str(), *count)).collect(), c)
    }

    fn choose(&self, t: &Events) -> String {
        fill(t.choose, &[&self.id])
    }

    fn goes_nowhere(&self) -> bool {
        self.deliveries.as_ref().is_some_and(BTreeMap::is_empty)
    }
}

/// One pill for each status, the most urgent first.
pub(super) fn pills(counts: &BTreeMap<&str, u64>, c: &Common) -> Vec<Badge> {
    let known = BY_URGENCY.iter().filter_map(|status| Some((*status, *counts.get(status)?)));
    let new = counts.iter().filter(|(status, _)| !BY_URGENCY.contains(*status));
    let all = known.chain(new.map(|(status, count)| (*status, *count)));
    all.map(|(status, count)| {
        let mut badge = Badge::status(status, c);
        if count > 1 {
            badge.text = format!("{count} {}", badge.text);
        }
        badge
    })
    .collect()
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: Frame,
    t: &'static Events,
    bar: Bar,
    events: Vec<Row>,
    pager: Pager,
    /// How far was looked, if a page is short of what may be there.
    searched: Option<(String, String)>,
    /// For operators: a file has everything as it is, phones too.
    export: Vec<(&'static str, String)>,
    once: String,
}

pub(super) async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    let t = Events::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Events, t.title);
    let Filtered { bar, found, pager, .. } = LIST.look::<Row>(&visitor, &asked).await?;
    // A page that is full is no sign that somebody gave up.
    let is_short = found.next_cursor.is_some() && found.data.len() < PAGE_ROWS;
    let searched = found.searched.filter(|_| is_short);
    let searched = searched.and_then(|how| {
        Some((fill(t.searched, &[&visitor.lang().number(how.events)]), how.until?))
    });
    let file = |format: &str| format!("/events/export?format={format}&q={}", encode(&bar.typed));
    let export = match visitor.operates() {
        true => vec![("NDJSON", file("ndjson")), ("CSV", file("csv"))],
        false => Vec::new(),
    };
    let (events, once) = (found.data, visitor.once());
    show(&EventsPage { frame, t, bar, events, pager, searched, export, once })
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    q: String,
    #[serde(default)]
    format: String,
}

/// The whole list as a file.
pub(super) async fn export(visitor: Visitor, Query(wanted): Query<Wanted>) -> Shown {
    if !visitor.operates() {
        return Ok(Redirect::to(&format!("/events?q={}", encode(&wanted.q))).into_response());
    }
    let format = if wanted.format == "csv" { "csv" } else { "ndjson" };
    let address = Address::new(&["events"]).with("format", format);
    let filter = Filter::parse(&wanted.q);
    let Ok(address) = filter.ask(address, &KNOWN, visitor.now()) else {
        // The list says which word it does not know.
        return Ok(Redirect::to(&format!("/events?q={}", encode(&wanted.q))).into_response());
    };
    let mut file = visitor.fetch(address).await.map_err(|trouble| visitor.failed(trouble))?;
    let name = format!("attachment; filename=\"events.{format}\"");
    let name = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment"));
    file.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    Ok(file)
}
