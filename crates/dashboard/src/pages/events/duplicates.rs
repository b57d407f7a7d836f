//! `/events/{id}/duplicates/{n}`: comparison of a duplicate with the original event.

use std::time::Duration;

use askama::Template;
use axum::{Form, extract::Path, response::Response};
use surehook_api::{
    ApiTransport as _, calls,
    events::{DuplicateComparison, DuplicateDifference},
};

use super::{super::IdempotentForm, event_path};
use crate::{
    current_user::CurrentUser,
    format::{Badge, format_duration},
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::EventTexts,
};

#[derive(Template)]
#[template(path = "event_duplicate.html")]
struct DuplicatePage {
    frame: PageFrame,
    t: &'static EventTexts,
    path: String,
    id: String,
    n: u32,
    gap: String,
    method: &'static str,
    comparison: DuplicateComparison,
    masked: Option<String>,
    can_deliver: bool,
    idempotency_key: String,
}

impl DuplicatePage {
    fn badge(&self, difference: &DuplicateDifference) -> Badge {
        match difference.change.as_str() {
            "added" => Badge::new("ok", "plus", self.t.added),
            "removed" => Badge::new("bad", "minus", self.t.removed),
            "changed" => Badge::new("warn", "swap", self.t.changed),
            other => Badge::new("", "dot", other),
        }
    }
}

pub(super) async fn show_comparison(
    user: CurrentUser,
    Path((id, n)): Path<(String, u32)>,
) -> PageResult {
    let comparison = user.call(calls::compare_duplicate(&id, n)).await?;
    let (lang, t) = (user.lang(), EventTexts::of(user.lang()));
    let method = match comparison.compared_as.as_deref() {
        Some("json") => t.compared_json,
        Some("text") => t.compared_text,
        Some(_) => t.compared_bytes,
        None if comparison.same_bytes => t.compared_same,
        None => t.compared_gone,
    };
    let title = fill(t.compare_title, &[&n]);
    render_page(&DuplicatePage {
        frame: PageFrame::new(&user, NavItem::Events, title),
        path: event_path(&id),
        gap: format_duration(lang, Duration::from_millis(comparison.gap_ms)),
        masked: (comparison.masked > 0)
            .then(|| lang.count(comparison.masked as u64, t.diff_masked_one, t.diff_masked)),
        can_deliver: user.can_operate()
            && comparison.body_kept
            && comparison.delivered_as.is_none(),
        idempotency_key: user.new_idempotency_key(),
        t,
        id,
        n,
        method,
        comparison,
    })
}

pub(super) async fn deliver_anyway(
    user: CurrentUser,
    Path((id, n)): Path<(String, u32)>,
    Form(form): Form<IdempotentForm>,
) -> Response {
    let call = calls::deliver_duplicate(&id, n).idempotent(&form.idempotency_key);
    let result = user.call(call).await;
    let next = match &result {
        Ok(new) => event_path(new.event_id),
        Err(_) => format!("{}/duplicates/{n}", event_path(&id)),
    };
    user.redirect_with_result(&next, result, EventTexts::of(user.lang()).anyway_done)
}
