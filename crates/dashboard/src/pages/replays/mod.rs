//! `/replays`: jobs that deliver again, from the wish to the report.

mod job;
mod selected;
mod wish;

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
    client::{Address, List},
    listing::Pager,
    page::{Frame, Nav, Shown, show},
    show::Badge,
    visitor::Visitor,
    words::Replays,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/replays", get(list).post(wish::start))
        .route("/replays/new", get(wish::ask))
        .route("/replays/selected", post(selected::replay))
        .route("/replays/{id}", get(job::show_job))
        .route("/replays/{id}/{action}", post(job::change))
}

/// A job as the API shows it.
#[derive(Deserialize)]
struct Job {
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

impl Job {
    /// How many are through, one way or another.
    fn through(&self) -> u64 {
        self.succeeded + self.dead + self.cancelled + self.skipped
    }

    fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "done" | "cancelled")
    }

    fn is_paused(&self) -> bool {
        self.state == "paused"
    }

    /// The filter as the bar writes it.
    fn which(&self) -> String {
        let word = |(name, value): (&String, &serde_json::Value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let name = if name == "destination" { "dest" } else { name };
            (!value.is_null()).then(|| format!("{name}:{text}"))
        };
        self.filter.iter().filter_map(word).collect::<Vec<_>>().join(" ")
    }

    fn verb<'w>(&'w self, t: &'w Replays) -> &'w str {
        verb(&self.verb, t)
    }

    fn badge(&self, t: &Replays) -> Badge {
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

/// What a verb of a job means; as the API says it if it is new.
fn verb<'w>(word: &'w str, t: &'w Replays) -> &'w str {
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
    frame: Frame,
    t: &'static Replays,
    jobs: Vec<Job>,
    pager: Pager,
}

#[derive(Deserialize)]
struct Asked {
    cursor: Option<String>,
}

async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    let t = Replays::of(visitor.lang());
    let address = Address::new(&["replays"]).with_some("cursor", asked.cursor.as_deref());
    let found: List<Job> = visitor.get(address).await.map_err(|trouble| visitor.failed(trouble))?;
    let (cursor, next) = (asked.cursor.as_deref(), found.next_cursor.as_deref());
    let pager = Pager::new("/replays".to_owned(), cursor, next);
    let frame = Frame::new(&visitor, Nav::Replays, t.title);
    show(&ReplaysPage { frame, t, jobs: found.data, pager })
}
