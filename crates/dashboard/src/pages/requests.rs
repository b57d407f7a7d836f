//! `/requests`: everything that hit the door, and what is kept aside.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    response::Response,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Dashboard,
    client::{Address, List, encode},
    filter::Bar,
    lang::fill,
    listing::{Asked, Filtered, Listing, Pager},
    page::{Frame, Nav, Shown, show},
    show::{Badge, size},
    visitor::Visitor,
    words::Requests,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/requests", get(list))
        .route("/requests/{id}", get(one))
        .route("/requests/{id}/release", post(release))
}

/// Names of the filter bar, and what the API calls them.
const KNOWN: [(&str, &str); 5] = [
    ("outcome", "outcome"),
    ("source", "source"),
    ("reason", "reason"),
    ("since", "since"),
    ("until", "until"),
];

const LIST: Listing = Listing {
    path: "/requests",
    name: "requests",
    known: &KNOWN,
    example: "outcome:refused source:shop",
};

#[derive(Deserialize)]
struct Request {
    id: Option<String>,
    at: String,
    outcome: String,
    source: Option<String>,
    event: Option<String>,
    events: Option<u64>,
    bytes_differ: Option<bool>,
    reason: Option<String>,
    what_to_do: Option<String>,
    http_status: Option<u16>,
    method: Option<String>,
    path: Option<String>,
    remote: Option<String>,
    body_bytes: Option<u64>,
}

impl Request {
    fn badge(&self, t: &Requests) -> Badge {
        match self.outcome.as_str() {
            "accepted" => Badge::new("ok", "check", t.accepted),
            "duplicate" => Badge::new("held", "copy", t.duplicate),
            "refused" => Badge::new("bad", "cross", t.refused),
            other => Badge::new("", "dot", other),
        }
    }

    /// The page that tells more: the refused request itself, or the event.
    fn page(&self) -> Option<String> {
        match (self.outcome.as_str(), &self.id, &self.event) {
            ("refused", Some(id), _) => Some(format!("/requests/{}", encode(id))),
            (_, _, Some(event)) => Some(format!("/events/{}", encode(event))),
            _ => None,
        }
    }
}

/// A request that was refused and is kept for whoever mends the secret.
#[derive(Deserialize)]
struct KeptAside {
    id: String,
    source: String,
    received_at: String,
    reason: String,
    what_to_do: String,
    times: u64,
}

#[derive(Template)]
#[template(path = "requests.html")]
struct RequestsPage {
    frame: Frame,
    t: &'static Requests,
    bar: Bar,
    requests: Vec<Request>,
    kept_aside: Vec<KeptAside>,
    once: String,
    pager: Pager,
}

impl RequestsPage {
    fn size(&self, bytes: &u64) -> String {
        size(self.frame.lang(), *bytes)
    }

    fn new_events(&self, many: &u64) -> String {
        fill(self.t.new_events, &[many])
    }
}

async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    let t = Requests::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Requests, t.title);
    let Filtered { filter, bar, found, pager } = LIST.look(&visitor, &asked).await?;
    let kept_aside = if asked.cursor.is_none() {
        let address = Address::new(&["quarantine"])
            .with("limit", "20")
            .with_some("source", filter.value("source"));
        visitor.get::<List<KeptAside>>(address).await.unwrap_or_default().data
    } else {
        Vec::new()
    };
    let (requests, once) = (found.data, visitor.once());
    show(&RequestsPage { frame, t, bar, requests, kept_aside, once, pager })
}

#[derive(Deserialize)]
struct Line {
    name: String,
    #[serde(flatten)]
    value: Value,
}

impl Line {
    fn text(&self) -> String {
        said(&self.value)
    }
}

/// Bytes as the API shows them: a text, or an object that says how they are written.
fn said(bytes: &Value) -> String {
    let text = bytes.as_str().or_else(|| bytes.get("text").and_then(Value::as_str));
    text.map_or_else(|| bytes.to_string(), str::to_owned)
}

#[derive(Deserialize)]
struct Whole {
    at: String,
    source: Option<String>,
    reason: Option<String>,
    what_to_do: Option<String>,
    http_status: Option<u16>,
    method: Option<String>,
    path: Option<String>,
    remote: Option<String>,
    #[serde(default)]
    headers: Vec<Line>,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    masked: u64,
}

#[derive(Template)]
#[template(path = "request.html")]
struct RequestPage {
    frame: Frame,
    t: &'static Requests,
    request: Whole,
}

impl RequestPage {
    fn body(&self) -> Option<String> {
        (!self.request.body.is_null()).then(|| said(&self.request.body))
    }

    fn masked(&self) -> Option<String> {
        let many = self.request.masked;
        (many > 0).then(|| self.frame.lang().count(many, self.t.masked_one, self.t.masked))
    }
}

async fn one(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let t = Requests::of(visitor.lang());
    let found = visitor.get::<Whole>(Address::new(&["requests", &id])).await;
    let request = found.map_err(|trouble| visitor.failed(trouble))?;
    show(&RequestPage { frame: Frame::new(&visitor, Nav::Requests, t.request), t, request })
}

#[derive(Deserialize)]
struct Once {
    once: String,
}

async fn release(visitor: Visitor, Path(id): Path<String>, Form(form): Form<Once>) -> Response {
    let t = Requests::of(visitor.lang());
    let address = Address::new(&["quarantine", &id, "release"]);
    match visitor.post_once::<Value>(address, Some(json!({})), &form.once).await {
        Ok(_) => visitor.done("/requests", t.released),
        Err(trouble) => visitor.refused("/requests", &trouble),
    }
}
