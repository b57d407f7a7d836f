//! `/requests`: all incoming requests, and the quarantine.

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
    client::{ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    filter::FilterBar,
    format::{Badge, format_size},
    lang::fill,
    list_page::{FilteredList, ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::RequestTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/requests", get(list_requests))
        .route("/requests/{id}", get(show_request))
        .route("/requests/{id}/release", post(release_request))
}

const LIST: ListDefinition = ListDefinition {
    path: "/requests",
    name: "requests",
    known: &["outcome", "source", "reason", "since", "until"],
    example: "outcome:refused source:shop",
};

#[derive(Deserialize)]
struct RequestItem {
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

impl RequestItem {
    fn badge(&self, t: &RequestTexts) -> Badge {
        match self.outcome.as_str() {
            "accepted" => Badge::new("ok", "check", t.accepted),
            "duplicate" => Badge::new("held", "copy", t.duplicate),
            "refused" => Badge::new("bad", "cross", t.refused),
            other => Badge::new("", "dot", other),
        }
    }

    /// Link to the refused request, or to the event.
    fn details_path(&self) -> Option<String> {
        match (self.outcome.as_str(), &self.id, &self.event) {
            ("refused", Some(id), _) => Some(format!("/requests/{}", percent_encode(id))),
            (_, _, Some(event)) => Some(format!("/events/{}", percent_encode(event))),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct QuarantinedItem {
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
    frame: PageFrame,
    t: &'static RequestTexts,
    bar: FilterBar,
    requests: Vec<RequestItem>,
    quarantined: Vec<QuarantinedItem>,
    idempotency_key: String,
    pager: Pager,
}

impl RequestsPage {
    fn size(&self, bytes: &u64) -> String {
        format_size(self.frame.lang(), *bytes)
    }

    fn new_events(&self, count: &u64) -> String {
        fill(self.t.new_events, &[count])
    }
}

async fn list_requests(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let t = RequestTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Requests);
    let FilteredList { filter, bar, found, pager } = LIST.load(&user, &query).await?;
    let quarantined = if query.cursor.is_none() {
        let address = ApiPath::new(&["quarantine"])
            .with("limit", "20")
            .with_some("source", filter.value("source"));
        user.get::<ApiList<QuarantinedItem>>(address).await.unwrap_or_default().data
    } else {
        Vec::new()
    };
    let (requests, idempotency_key) = (found.data, user.new_idempotency_key());
    render_page(&RequestsPage { frame, t, bar, requests, quarantined, idempotency_key, pager })
}

#[derive(Deserialize)]
struct HeaderField {
    name: String,
    #[serde(flatten)]
    value: Value,
}

impl HeaderField {
    fn text(&self) -> String {
        bytes_text(&self.value)
    }
}

/// Text of a value that is a string, or an object with the text and its encoding.
fn bytes_text(bytes: &Value) -> String {
    let text = bytes.as_str().or_else(|| bytes.get("text").and_then(Value::as_str));
    text.map_or_else(|| bytes.to_string(), str::to_owned)
}

#[derive(Deserialize)]
struct RefusedRequest {
    at: String,
    source: Option<String>,
    reason: Option<String>,
    what_to_do: Option<String>,
    http_status: Option<u16>,
    method: Option<String>,
    path: Option<String>,
    remote: Option<String>,
    #[serde(default)]
    headers: Vec<HeaderField>,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    masked: u64,
}

#[derive(Template)]
#[template(path = "request.html")]
struct RequestPage {
    frame: PageFrame,
    t: &'static RequestTexts,
    request: RefusedRequest,
}

impl RequestPage {
    fn body(&self) -> Option<String> {
        (!self.request.body.is_null()).then(|| bytes_text(&self.request.body))
    }

    fn masked(&self) -> Option<String> {
        let count = self.request.masked;
        (count > 0).then(|| self.frame.lang().count(count, self.t.masked_one, self.t.masked))
    }
}

async fn show_request(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    let t = RequestTexts::of(user.lang());
    let request = user.get::<RefusedRequest>(ApiPath::new(&["requests", &id])).await?;
    render_page(&RequestPage {
        frame: PageFrame::new(&user, NavItem::Requests, t.request),
        t,
        request,
    })
}

#[derive(Deserialize)]
struct ReleaseForm {
    idempotency_key: String,
}

async fn release_request(
    user: CurrentUser,
    Path(id): Path<String>,
    Form(form): Form<ReleaseForm>,
) -> Response {
    let t = RequestTexts::of(user.lang());
    let address = ApiPath::new(&["quarantine", &id, "release"]);
    let released =
        user.post_idempotent::<Value>(address, Some(json!({})), &form.idempotency_key).await;
    user.redirect_with_result("/requests", released, t.released)
}
