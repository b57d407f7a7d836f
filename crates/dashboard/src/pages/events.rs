//! `/events`: everything that was taken in.

use std::sync::Arc;

use askama::Template;
use axum::{Router, extract::Query, routing::get};
use serde::Deserialize;

use crate::{
    Dashboard,
    client::{Address, List, encode},
    filter::{Bar, Filter},
    lang::fill,
    page::{Frame, Nav, Shown, show},
    show::masked,
    visitor::Visitor,
    words::Events,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/events", get(list))
}

/// Names of the filter bar, and what the API calls them.
const KNOWN: [(&str, &str); 8] = [
    ("status", "status"),
    ("source", "source"),
    ("kind", "kind"),
    ("phone", "phone"),
    ("key", "key"),
    ("since", "since"),
    ("until", "until"),
    ("", "search"),
];

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    q: String,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    received_at: String,
    duplicate_count: u64,
    #[serde(default)]
    attributes: serde_json::Map<String, serde_json::Value>,
}

impl Event {
    /// Whom it is about, as far as a list shows it.
    fn about(&self) -> String {
        let phone = self.attributes.get("phone").and_then(|phone| phone.as_str());
        phone.map(masked).unwrap_or_default()
    }
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: Frame,
    t: &'static Events,
    bar: Bar,
    events: Vec<Event>,
    first: Option<String>,
    next: Option<String>,
}

async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    let t = Events::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Events, t.title);
    let filter = Filter::parse(&asked.q);
    let mut bar = Bar::new("/events", &filter, &KNOWN, "status:dead source:shop since:1h", frame.c);
    let address = Address::new(&["events"]).with_some("cursor", asked.cursor.as_deref());
    let found = match filter.ask(address, &KNOWN, visitor.now()) {
        Err(unknown) => {
            bar.problem = Some(fill(frame.c.unknown_word, &[&unknown, &bar.known.join(" ")]));
            List::default()
        }
        Ok(address) => match visitor.get::<List<Event>>(address).await {
            Ok(found) => found,
            // What was typed cannot be asked: the bar says why, and nothing is lost.
            Err(trouble) if trouble.is_about_what_was_asked() => {
                bar.problem = Some(trouble.detail);
                List::default()
            }
            Err(trouble) => return Err(visitor.failed(trouble)),
        },
    };
    let page = |cursor: &str| format!("/events?q={}{cursor}", encode(&bar.typed));
    let next = found.next_cursor.map(|cursor| page(&format!("&cursor={}", encode(&cursor))));
    let first = asked.cursor.map(|_| page(""));
    show(&EventsPage { frame, t, bar, events: found.data, first, next })
}
