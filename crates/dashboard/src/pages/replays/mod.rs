//! `/replays`: bulk redelivery jobs.

mod job;
mod new_replay;
mod selected;

use std::sync::Arc;

use askama::Template;
use axum::{
    Router,
    extract::Query,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::Value;
use surehook_api::{ApiTransport as _, calls, replays::ReplayJobResponse};
use surehook_core::replay::{ReplayAction, ReplayState};

use crate::{
    Dashboard,
    current_user::CurrentUser,
    format::Badge,
    list_page::Pager,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::ReplayTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/replays", get(list_replays).post(new_replay::start_replay))
        .route("/replays/new", get(new_replay::show_form))
        .route("/replays/selected", post(selected::replay_selected))
        .route("/replays/selected/confirm", post(selected::confirm_selected))
        .route("/replays/{id}", get(job::show_replay))
        .route("/replays/{id}/{action}", post(job::change_replay))
}

fn finished_count(job: &ReplayJobResponse) -> u64 {
    job.counts.succeeded + job.counts.dead + job.counts.cancelled + job.counts.skipped
}

/// The filter as typed in the filter bar.
fn filter_text(job: &ReplayJobResponse) -> String {
    let term = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = if name == "destination" { "dest" } else { name };
        format!("{name}:{text}")
    };
    let filter = serde_json::to_value(&job.filter).unwrap_or_default();
    let terms: Vec<_> = filter.as_object().into_iter().flatten().map(term).collect();
    terms.join(" ")
}

fn action_label(action: ReplayAction, t: &ReplayTexts) -> &'static str {
    match action {
        ReplayAction::RetryFailed => t.action_retry_failed,
        ReplayAction::SendMissing => t.action_send_missing,
        ReplayAction::ForceResend => t.action_force_resend,
    }
}

fn state_badge(state: ReplayState, t: &ReplayTexts) -> Badge {
    match state {
        ReplayState::Selecting => Badge::new("", "clock", t.selecting),
        ReplayState::Running => Badge::new("warn", "pulse", t.running),
        ReplayState::Paused => Badge::new("held", "pause", t.paused),
        ReplayState::Done => Badge::new("ok", "check", t.done),
        ReplayState::Cancelled => Badge::new("", "cross", t.cancelled),
    }
}

#[derive(Template)]
#[template(path = "replays.html")]
struct ReplaysPage {
    frame: PageFrame,
    t: &'static ReplayTexts,
    jobs: Vec<ReplayJobResponse>,
    pager: Pager,
}

#[derive(Deserialize)]
struct ReplaysQuery {
    cursor: Option<String>,
}

async fn list_replays(user: CurrentUser, Query(query): Query<ReplaysQuery>) -> PageResult {
    let t = ReplayTexts::of(user.lang());
    let call = calls::list_replays().query_some("cursor", query.cursor.as_deref());
    let page = user.call(call).await?;
    let (cursor, next) = (query.cursor.as_deref(), page.next_cursor.as_deref());
    let pager = Pager::new("/replays".to_owned(), cursor, next);
    let frame = PageFrame::of_menu(&user, NavItem::Replays);
    render_page(&ReplaysPage { frame, t, jobs: page.data, pager })
}
