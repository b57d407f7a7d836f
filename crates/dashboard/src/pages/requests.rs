//! `/requests`: all incoming requests, and the quarantine.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    response::Response,
    routing::{get, post},
};
use surehook_api::{
    ApiTransport as _, BodyContent, HeaderField, calls,
    quarantine::{QuarantinedRequestSummary, ReleaseRequest},
    requests::{ReceivedRequestSummary, RefusedRequestDetail},
};

use super::IdempotentForm;
use crate::{
    Dashboard,
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery},
    format::{Badge, format_size},
    lang::fill,
    list_page::{ListDefinition, ListPageQuery, Pager},
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
    filters: &["outcome", "source", "reason", "since", "until"],
    example: "outcome:refused source:shop",
};

#[derive(Template)]
#[template(path = "requests.html")]
struct RequestsPage {
    frame: PageFrame,
    t: &'static RequestTexts,
    bar: FilterBar,
    requests: Vec<ReceivedRequestSummary>,
    quarantined: Vec<QuarantinedRequestSummary>,
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

    fn badge(&self, request: &ReceivedRequestSummary) -> Badge {
        match request.outcome.as_str() {
            "accepted" => Badge::new("ok", "check", self.t.accepted),
            "duplicate" => Badge::new("held", "copy", self.t.duplicate),
            "refused" => Badge::new("bad", "cross", self.t.refused),
            other => Badge::new("", "dot", other),
        }
    }

    /// Link to the refused request, or to the event.
    fn details_path(request: &ReceivedRequestSummary) -> Option<String> {
        match (request.outcome.as_str(), request.id, request.event) {
            ("refused", Some(id), _) => Some(format!("/requests/{id}")),
            (_, _, Some(event)) => Some(format!("/events/{event}")),
            _ => None,
        }
    }
}

async fn list_requests(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let t = RequestTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Requests);
    let (bar, page) = LIST.load(&user, &query, calls::list_requests()).await?;
    let pager = Pager::filtered(&bar, &query, page.next_cursor.as_deref());
    let quarantined = if query.cursor.is_none() {
        let filter = FilterQuery::parse(&query.q);
        let call = calls::list_quarantine()
            .query("limit", "20")
            .query_some("source", filter.value("source"));
        user.call(call).await.unwrap_or_default().data
    } else {
        Vec::new()
    };
    let (requests, idempotency_key) = (page.data, user.new_idempotency_key());
    render_page(&RequestsPage { frame, t, bar, requests, quarantined, idempotency_key, pager })
}

#[derive(Template)]
#[template(path = "request.html")]
struct RequestPage {
    frame: PageFrame,
    t: &'static RequestTexts,
    request: ReceivedRequestSummary,
    headers: Vec<HeaderField>,
    body: Option<BodyContent>,
    /// How many secrets are masked in the body.
    masked: Option<String>,
}

async fn show_request(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    let t = RequestTexts::of(user.lang());
    let RefusedRequestDetail { request, headers, body, masked } =
        user.call(calls::get_request(&id)).await?;
    let frame = PageFrame::new(&user, NavItem::Requests, t.request);
    let masked = (masked > 0).then(|| user.lang().count(masked as u64, t.masked_one, t.masked));
    render_page(&RequestPage { frame, t, request, headers, body, masked })
}

async fn release_request(
    user: CurrentUser,
    Path(id): Path<String>,
    Form(form): Form<IdempotentForm>,
) -> Response {
    let t = RequestTexts::of(user.lang());
    let call = calls::release_quarantined_request(&id, &ReleaseRequest::default());
    let released = user.call(call.idempotent(&form.idempotency_key)).await;
    user.redirect_with_result("/requests", released, t.released)
}
