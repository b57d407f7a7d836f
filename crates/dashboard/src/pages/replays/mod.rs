//! `/replays`: bulk redelivery jobs.

mod job;
mod new_replay;
mod selected;

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use axum::{
    Router,
    extract::Query,
    routing::{get, post},
};
use serde::Deserialize;

use crate::{
    Dashboard,
    client::{ApiList, ApiPath},
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
        .route("/replays/{id}", get(job::show_replay))
        .route("/replays/{id}/{action}", post(job::change_replay))
}

#[derive(Deserialize)]
struct ReplayJob {
    id: String,
    verb: String,
    state: String,
    created_at: String,
    ended_at: Option<String>,
    note: Option<String>,
    rate: String,
    to: Option<String>,
    #[serde(default)]
    filter: BTreeMap<String, serde_json::Value>,
    selected: u64,
    dispatched: u64,
    succeeded: u64,
    dead: u64,
    cancelled: u64,
    skipped: u64,
    waiting: u64,
    left: u64,
    #[serde(default)]
    skipped_by_reason: BTreeMap<String, u64>,
    #[serde(default)]
    capped: bool,
}

impl ReplayJob {
    fn finished_count(&self) -> u64 {
        self.succeeded + self.dead + self.cancelled + self.skipped
    }

    fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "done" | "cancelled")
    }

    fn is_paused(&self) -> bool {
        self.state == "paused"
    }

    /// The filter as typed in the filter bar.
    fn filter_text(&self) -> String {
        let word = |(name, value): (&String, &serde_json::Value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let name = if name == "destination" { "dest" } else { name };
            (!value.is_null()).then(|| format!("{name}:{text}"))
        };
        self.filter.iter().filter_map(word).collect::<Vec<_>>().join(" ")
    }

    fn action_label<'w>(&'w self, t: &'w ReplayTexts) -> &'w str {
        action_label(&self.verb, t)
    }

    fn badge(&self, t: &ReplayTexts) -> Badge {
        match self.state.as_str() {
            "selecting" => Badge::new("", "clock", t.selecting),
            "running" => Badge::new("warn", "pulse", t.running),
            "paused" => Badge::new("held", "pause", t.paused),
            "done" => Badge::new("ok", "check", t.done),
            "cancelled" => Badge::new("", "cross", t.cancelled),
            other => Badge::new("", "dot", other),
        }
    }
}

/// Unknown actions are shown as the API sent them.
fn action_label<'w>(word: &'w str, t: &'w ReplayTexts) -> &'w str {
    match word {
        "retry_failed" => t.verb_retry_failed,
        "send_missing" => t.verb_send_missing,
        "force_resend" => t.verb_force_resend,
        other => other,
    }
}

#[derive(Template)]
#[template(path = "replays.html")]
struct ReplaysPage {
    frame: PageFrame,
    t: &'static ReplayTexts,
    jobs: Vec<ReplayJob>,
    pager: Pager,
}

#[derive(Deserialize)]
struct ReplaysQuery {
    cursor: Option<String>,
}

async fn list_replays(user: CurrentUser, Query(query): Query<ReplaysQuery>) -> PageResult {
    let t = ReplayTexts::of(user.lang());
    let address = ApiPath::new(&["replays"]).with_some("cursor", query.cursor.as_deref());
    let found: ApiList<ReplayJob> = user.get(address).await?;
    let (cursor, next) = (query.cursor.as_deref(), found.next_cursor.as_deref());
    let pager = Pager::new("/replays".to_owned(), cursor, next);
    let frame = PageFrame::of_menu(&user, NavItem::Replays);
    render_page(&ReplaysPage { frame, t, jobs: found.data, pager })
}
