//! `/replays/{id}`: progress of a replay, and actions.

use askama::Template;
use axum::{extract::Path, response::Response};
use surehook_api::{ApiTransport as _, calls, percent_encode, replays::ReplayJobResponse};
use surehook_core::replay::ReplayState;

use super::finished_count;
use crate::{
    client::ApiError,
    current_user::CurrentUser,
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::ReplayTexts,
};

#[derive(Template)]
#[template(path = "replay.html")]
struct ReplayPage {
    frame: PageFrame,
    t: &'static ReplayTexts,
    job: ReplayJobResponse,
}

impl ReplayPage {
    fn number(&self, number: &u64) -> String {
        self.frame.lang().number(*number)
    }

    fn progress(&self) -> String {
        let (finished, selected) = (finished_count(&self.job), self.job.counts.selected);
        fill(self.t.of, &[&self.number(&finished), &self.number(&selected)])
    }

    /// What the remaining items are doing.
    fn remaining_parts(&self) -> String {
        let counts = &self.job.counts;
        let in_flight = self.number(&counts.in_flight);
        match counts.left {
            0 => fill(self.t.remaining_parts, &[&self.number(&counts.queued), &in_flight]),
            left => fill(self.t.remaining_not_sent, &[&self.number(&left), &in_flight]),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.job.state, ReplayState::Done | ReplayState::Cancelled)
    }

    fn is_paused(&self) -> bool {
        self.job.state == ReplayState::Paused
    }

    /// All dead letters since the start, not only those of this replay.
    fn dead_letters_path(&self) -> String {
        let since = format!("since:{}", self.job.created_at);
        format!("/dead-letters/all?q={}", percent_encode(&since))
    }
}

pub(super) async fn show_replay(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    let t = ReplayTexts::of(user.lang());
    let job = user.call(calls::get_replay(&id)).await?;
    render_page(&ReplayPage { frame: PageFrame::new(&user, NavItem::Replays, t.job), t, job })
}

/// Pauses, resumes or cancels.
pub(super) async fn change_replay(
    user: CurrentUser,
    Path((id, action)): Path<(String, String)>,
) -> Response {
    let t = ReplayTexts::of(user.lang());
    let page = format!("/replays/{}", percent_encode(&id));
    let notice = match action.as_str() {
        "pause" => t.pause_done,
        "resume" => t.resume_done,
        "cancel" => t.cancel_done,
        _ => return user.redirect_with_error(&page, &ApiError::default()),
    };
    let result = user.call(calls::change_replay(&id, &action)).await;
    user.redirect_with_result(&page, result, notice)
}
