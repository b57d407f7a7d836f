//! One job: how far it is, and what can be done with it.

use askama::Template;
use axum::{extract::Path, response::Response};
use serde_json::Value;

use super::Job;
use crate::{
    client::{Address, Trouble, encode},
    lang::fill,
    page::{Frame, Nav, Shown, show},
    visitor::Visitor,
    words::Replays,
};

#[derive(Template)]
#[template(path = "replay.html")]
struct JobPage {
    frame: Frame,
    t: &'static Replays,
    job: Job,
}

impl JobPage {
    fn number(&self, number: &u64) -> String {
        self.frame.lang().number(*number)
    }

    fn progress(&self) -> String {
        let (through, of) = (self.job.through(), self.job.selected);
        fill(self.t.of, &[&self.number(&through), &self.number(&of)])
    }

    /// What died since it began: what of it died again, and whatever else did.
    fn dead(&self) -> String {
        let since = format!("since:{}", self.job.created_at);
        format!("/dead-letters/all?q={}", encode(&since))
    }
}

pub(super) async fn show_job(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let t = Replays::of(visitor.lang());
    let found = visitor.get::<Job>(Address::new(&["replays", &id])).await;
    let job = found.map_err(|trouble| visitor.failed(trouble))?;
    show(&JobPage { frame: Frame::new(&visitor, Nav::Replays, t.job), t, job })
}

/// Pauses, resumes or cancels.
pub(super) async fn change(
    visitor: Visitor,
    Path((id, action)): Path<(String, String)>,
) -> Response {
    let t = Replays::of(visitor.lang());
    let page = format!("/replays/{}", encode(&id));
    let said = match action.as_str() {
        "pause" => t.pause_done,
        "resume" => t.resume_done,
        "cancel" => t.cancel_done,
        _ => return visitor.refused(&page, &Trouble::default()),
    };
    let asked = visitor.post::<Value>(Address::new(&["replays", &id, &action]), None).await;
    match asked {
        Ok(_) => visitor.done(&page, said),
        Err(trouble) => visitor.refused(&page, &trouble),
    }
}
