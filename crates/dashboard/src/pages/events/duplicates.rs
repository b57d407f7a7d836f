//! `/events/{id}/duplicates/{n}`: comparison of a duplicate with the original event.

use std::time::Duration;

use askama::Template;
use axum::{Form, extract::Path, response::Response};
use serde::Deserialize;

use super::{actions::IdempotentForm, event_path};
use crate::{
    client::ApiPath,
    current_user::CurrentUser,
    format::{Badge, format_duration},
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::EventTexts,
};

#[derive(Deserialize)]
struct DuplicateComparison {
    at: String,
    gap_ms: u64,
    same_bytes: bool,
    body_kept: bool,
    delivered_as: Option<String>,
    compared_as: Option<String>,
    diff: Vec<BodyDifference>,
    truncated: bool,
    masked: u64,
}

#[derive(Deserialize)]
struct BodyDifference {
    path: String,
    change: String,
    before: Option<String>,
    after: Option<String>,
}

impl BodyDifference {
    fn badge(&self, t: &EventTexts) -> Badge {
        match self.change.as_str() {
            "added" => Badge::new("ok", "plus", t.added),
            "removed" => Badge::new("bad", "minus", t.removed),
            "changed" => Badge::new("warn", "swap", t.changed),
            other => Badge::new("", "dot", other),
        }
    }
}

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

pub(super) async fn show_comparison(
    user: CurrentUser,
    Path((id, n)): Path<(String, u32)>,
) -> PageResult {
    let address = ApiPath::new(&["events", &id, "duplicates", &n.to_string()]);
    let comparison: DuplicateComparison = user.get(address).await?;
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
            .then(|| lang.count(comparison.masked, t.diff_masked_one, t.diff_masked)),
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

#[derive(Deserialize)]
struct DeliveredAnyway {
    event_id: String,
}

pub(super) async fn deliver_anyway(
    user: CurrentUser,
    Path((id, n)): Path<(String, u32)>,
    Form(form): Form<IdempotentForm>,
) -> Response {
    let address = ApiPath::new(&["events", &id, "duplicates", &n.to_string(), "deliver"]);
    let done = user.post_idempotent::<DeliveredAnyway>(address, None, &form.idempotency_key).await;
    let next = match &done {
        Ok(new) => event_path(&new.event_id),
        Err(_) => format!("{}/duplicates/{n}", event_path(&id)),
    };
    user.redirect_with_result(&next, done, EventTexts::of(user.lang()).anyway_done)
}
