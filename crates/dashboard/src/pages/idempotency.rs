//! `/idempotency`: keys of the idempotency service.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::Query,
    response::Response,
    routing::{get, post},
};
use serde::Deserialize;
use surehook_api::{
    ApiTransport as _, calls,
    idempotency::{ClaimState, IdempotencyStats, ReleaseClaimRequest, StoredKeyResponse},
    percent_encode,
};

use crate::{
    Dashboard,
    current_user::CurrentUser,
    filter::{FilterBar, FilterTerm},
    format::{Badge, format_size},
    list_page::{ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::IdempotencyTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/idempotency", get(list_keys))
        .route("/idempotency/release", post(release_key))
}

const LIST: ListDefinition = ListDefinition {
    path: "/idempotency",
    filters: &["namespace", "key"],
    example: "namespace:orders key:4711",
};

#[derive(Template)]
#[template(path = "idempotency.html")]
struct IdempotencyPage {
    frame: PageFrame,
    t: &'static IdempotencyTexts,
    bar: FilterBar,
    namespaces: Vec<IdempotencyStats>,
    keys: Vec<StoredKeyResponse>,
    pager: Pager,
}

impl IdempotencyPage {
    /// Path of the list of the keys of a namespace.
    fn namespace_path(namespace: &str) -> String {
        let term = FilterTerm { name: "namespace".to_owned(), value: namespace.to_owned() };
        format!("/idempotency?q={}", percent_encode(&term.text()))
    }

    fn size(&self, bytes: &u64) -> String {
        format_size(self.frame.lang(), *bytes)
    }

    fn badge(&self, key: &StoredKeyResponse) -> Badge {
        match key.status {
            ClaimState::InProgress => Badge::new("held", "clock", self.t.in_progress),
            ClaimState::Abandoned => Badge::new("bad", "warn", self.t.abandoned),
            ClaimState::Completed => Badge::new("ok", "check", self.t.completed),
            ClaimState::Released => Badge::new("", "dot", self.t.released),
        }
    }

    fn can_release(&self, key: &StoredKeyResponse) -> bool {
        let is_unfinished = matches!(key.status, ClaimState::InProgress | ClaimState::Abandoned);
        self.frame.can_operate && is_unfinished
    }
}

async fn list_keys(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let t = IdempotencyTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Idempotency);
    let (bar, page) = LIST.load(&user, &query, calls::list_idempotency_keys()).await?;
    let pager = Pager::filtered(&bar, &query, page.next_cursor.as_deref());
    let namespaces = match bar.chips.is_empty() && query.cursor.is_none() {
        true => user.call(calls::get_idempotency_stats()).await?.data,
        false => Vec::new(),
    };
    render_page(&IdempotencyPage { frame, t, bar, namespaces, keys: page.data, pager })
}

#[derive(Deserialize)]
struct ReleaseForm {
    namespace: String,
    key: String,
}

async fn release_key(user: CurrentUser, Form(form): Form<ReleaseForm>) -> Response {
    let t = IdempotencyTexts::of(user.lang());
    let request = ReleaseClaimRequest { token: None, force: true };
    let call = calls::release_idempotency_key(&form.namespace, &form.key, &request);
    let released = user.call(call).await;
    let path = IdempotencyPage::namespace_path(&form.namespace);
    user.redirect_with_result(&path, released, t.key_released)
}
